"""What ``--user-dir capsnmt`` registers: models, criterions, tasks, an optimizer and a tokeniser.

Import this module before running fairseq in the same process. A second import does nothing.
"""

from capsnmt import models  # isort: skip  (first: it prepares fairseq)
from capsnmt import criterions, optim
from capsnmt.sentences import classifier, tasks
from capsnmt.translate import tokenizer

__all__ = ["classifier", "criterions", "models", "optim", "tasks", "tokenizer"]
