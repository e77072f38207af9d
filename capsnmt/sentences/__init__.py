"""Classification of sentences: examples, measures, evaluation, tables and figures."""
