"""capsnmt: routing-by-agreement and its relatives, as a fairseq ``--user-dir`` plugin.

Importing it checks the host, makes up for two faults of the fork's batches, lets torch load
fairseq's checkpoints safely, and registers the models, criterions and tasks. fairseq imports it by
the path given as ``--user-dir``.
"""

from capsnmt.host import check_host, keep_batches_when_resuming, keep_last_batch, logging_kept

with logging_kept():
    check_host()
    keep_last_batch()
    keep_batches_when_resuming()

    from capsnmt.checkpoints import allow_fairseq_checkpoints

    allow_fairseq_checkpoints()

    from capsnmt import criterions, models, tasks

__version__ = "0.1.0"
__all__ = ["__version__", "criterions", "models", "tasks"]
