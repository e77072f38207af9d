"""Translation of raw text with finished runs: ``from_pretrained`` and ``capsnmt-translate``.

- :mod:`~capsnmt.translation.trained`: the checkpoint, the data and the text format of a run.
- :mod:`~capsnmt.translation.tokenizer`: the tokeniser of data preparation, for every fairseq
  command.
- :mod:`~capsnmt.translation.translator`: raw text in, raw text out, with fairseq's hub interface.
- :mod:`~capsnmt.translation.pretrained`: loading all of it.
- :mod:`~capsnmt.translation.segments`: lines that are longer than the positions of a model.
"""
