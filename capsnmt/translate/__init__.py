"""Translation of raw text with finished runs: ``from_pretrained`` and ``capsnmt-translate``.

- :mod:`~capsnmt.translate.trained`: the checkpoint, the data and the text format of a run.
- :mod:`~capsnmt.translate.tokenizer`: the tokeniser of data preparation, for every fairseq
  command.
- :mod:`~capsnmt.translate.translator`: raw text in, raw text out, with fairseq's hub interface.
- :mod:`~capsnmt.translate.load`: loading all of it.
- :mod:`~capsnmt.translate.segments`: lines that are longer than the positions of a model.
"""
