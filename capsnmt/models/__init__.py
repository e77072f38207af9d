"""The composable Transformer and its architectures; importing it prepares fairseq."""

from capsnmt.host import prepare_host

prepare_host()  # before a module imports fairseq

from capsnmt.checkpoints.initialise import warn_where_training_starts  # noqa: E402
from capsnmt.checkpoints.load import allow_fairseq_checkpoints  # noqa: E402
from capsnmt.models.architectures import PRESETS, SIZES  # noqa: E402
from capsnmt.models.config import changed  # noqa: E402
from capsnmt.models.transformer import CapsnmtTransformer  # noqa: E402

allow_fairseq_checkpoints()
warn_where_training_starts(changed)

__all__ = ["PRESETS", "SIZES", "CapsnmtTransformer"]
