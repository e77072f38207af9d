"""The switches of a sentence classifier, in addition to those of its encoder.

No postponed annotations: fairseq reads the types of the dataclass fields at run time.
"""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import FairseqDataclass

from capsnmt.sentences.pooling import POOLINGS


@dataclass
class SentenceClassifierConfig(FairseqDataclass):
    """Options of pooling, classifier and probed encoder."""

    pooling: str = field(
        default="mean",
        metadata={"help": f"pooling of a sentence into one vector: {', '.join(POOLINGS)}"},
    )
    pooling_queries: int = field(
        default=2, metadata={"help": "k, the number of trainable queries of --pooling queries"}
    )
    classifier_layers: int = field(
        default=2,
        metadata={"help": "linear maps of the classifier, separated by relu and dropout"},
    )
    classifier_dim: int = field(
        default=0, metadata={"help": "hidden width of the classifier; 0 means the encoder's"}
    )
    freeze_encoder: bool = field(
        default=False, metadata={"help": "train only the pooling and the classifier"}
    )
    probe_checkpoint: Optional[str] = field(
        default=None,
        metadata={
            "help": "checkpoint of a translation model: use its encoder, settings and parameters, "
            "and freeze it; give its dictionary by --dictionary"
        },
    )
