"""Translation of raw text with finished runs: ``from_pretrained`` and ``capsnmt-translate``.

- :mod:`~capsnmt.translate.load`: the checkpoint, data and text format of a run, and loading them.
- :mod:`~capsnmt.translate.translator`: raw text in, raw text out, with fairseq's hub interface.
- :mod:`~capsnmt.translate.tokenizer`: the tokeniser of data preparation, for every fairseq command.
"""
