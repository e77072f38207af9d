"""Models for ``torch.hub``: https://pytorch.org/docs/stable/hub.html."""

from typing import Any

dependencies = ["torch", "fairseq", "sacremoses", "jieba", "subword_nmt", "sentencepiece"]


def capsnmt(run: str, **kwargs: Any) -> Any:
    """Load the translation model of a finished run.

    Args:
        run: the folder of the run, OUTPUT/ROW/seed-S, or the name of a model of the project.
        kwargs: of ``CapsnmtTransformer.from_pretrained``.
    """
    from capsnmt.models import CapsnmtTransformer

    return CapsnmtTransformer.from_pretrained(run, **kwargs)
