"""Sentence classification: data, encoder, classifier and metrics."""
