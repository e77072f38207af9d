"""What ``--user-dir capsnmt`` does: check and patch the host, and register everything.

That is models, criterions, tasks, optimizers and a tokeniser.

Import this module before running fairseq in the same process. A second import does nothing.
"""

from capsnmt.host import (
    check_host,
    keep_batches_when_resuming,
    keep_last_batch,
    keep_memory_while_training,
    logging_kept,
    optimize_without_compiler,
)

with logging_kept():
    check_host()
    keep_last_batch()
    keep_batches_when_resuming()

    from capsnmt.checkpoints.load import allow_fairseq_checkpoints

    allow_fairseq_checkpoints()

    from capsnmt import criterions, models, optim, tasks
    from capsnmt.models.inference import generate_faster
    from capsnmt.sentences import classifier
    from capsnmt.translate import tokenizer

    keep_memory_while_training()
    optimize_without_compiler()
    generate_faster()

__all__ = ["classifier", "criterions", "models", "optim", "tasks", "tokenizer"]
