"""What ``--user-dir capsnmt`` registers: models, criterions, tasks, an optimizer and a tokeniser.

Import this module before running fairseq in the same process. A second import does nothing. It
alone imports :mod:`capsnmt.fast`, and lets it make the rest faster.
"""

from capsnmt import models  # isort: skip  (first: it prepares fairseq)
from capsnmt import criterions, fast
from capsnmt.fast import adam
from capsnmt.sentences import classifier, tasks
from capsnmt.translate import tokenizer

fast.install_in_host()

__all__ = ["adam", "classifier", "criterions", "models", "tasks", "tokenizer"]
