"""The switches of a sentence classifier beside those of its encoder.

No postponed annotations here: fairseq reads the types off the dataclass.
"""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import FairseqDataclass

from capsnmt.sentences.pooling import POOLINGS


@dataclass
class SentenceClassifierConfig(FairseqDataclass):
    """Pooling, classifier, and where the encoder comes from."""

    pooling: str = field(
        default="mean",
        metadata={"help": f"how a sentence becomes one vector: {', '.join(POOLINGS)}"},
    )
    pooling_queries: int = field(
        default=2, metadata={"help": "k, the trainable queries of --pooling queries"}
    )
    classifier_layers: int = field(
        default=2,
        metadata={"help": "linear maps of the classifier, with relu and dropout between them"},
    )
    classifier_dim: int = field(
        default=0, metadata={"help": "width inside the classifier; 0 means the encoder's"}
    )
    freeze_encoder: bool = field(
        default=False, metadata={"help": "train pooling and classifier only"}
    )
    probe_checkpoint: Optional[str] = field(
        default=None,
        metadata={
            "help": "checkpoint of a translation model whose encoder is taken, shape and "
            "parameters, and frozen; give its dictionary with --dictionary"
        },
    )
