"""Importance of heads: the loss with one head's output set to zero (Michel et al. 2019)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from torch import Tensor

from capsnmt.analysis.ablation import INTACT, MEASURES, Ablation, Key, method_replaced
from capsnmt.analysis.base import Picture
from capsnmt.analysis.forward_pass import Attended, Batch
from capsnmt.analysis.hooks import attentions
from capsnmt.analysis.plots import NAMES, Points, points_by_layer
from capsnmt.models.config import ATTENTIONS
from capsnmt.modules.attention import Attention


@contextmanager
def zeroed_head(attention: Attention, head: int) -> Iterator[None]:
    """Set the output O_h of one head (from 0) to zero inside the ``with`` block.

    It is zero before the heads are aggregated, by W^o or by routing.
    """
    attend = attention.attend

    def without_head(*args: Any, **kwargs: Any) -> Tuple[Tensor, Any]:
        heads, weights = attend(*args, **kwargs)
        heads = heads.clone()
        heads[:, head] = 0
        return heads, weights

    with method_replaced(attention, "attend", without_head):
        yield


class HeadAblation(Ablation):
    """Loss without one head, for every head of every attention.

    Heads are those of the attention call: with M-10 and M-11, n H of them, source by source.
    """

    name = "head_ablation"
    title = "Importance of heads"
    explanation = (
        "How much the loss per target token increases when the output of one head is set to zero "
        "(Michel et al. 2019), in nats, on a sample of sentences. Near 0 the model does without "
        "the head, and below 0 better; the model is not trained again. A difference of less than "
        "two standard errors may be chance."
    )
    columns = ("attention", "layer", "head", *MEASURES)

    def __init__(self, system: Any) -> None:
        super().__init__(system)
        self.heads: Dict[Tuple[str, int], int] = {}

    def attended(self, call: Attended) -> None:
        self.heads[call.attention, call.layer] = call.heads.size(1)

    def ablations(self, batch: Batch) -> Iterator[Tuple[Key, Tensor]]:
        model = self.system.model
        encoded = self.encode(batch)
        yield INTACT, self.loss_of(batch, encoded)
        places = [*attentions(model.encoder), *attentions(model.decoder)]
        for role, layer, attention in sorted(
            places, key=lambda place: (ATTENTIONS.index(place[0]), place[1])
        ):
            for head in range(self.heads[role, layer]):
                with zeroed_head(attention, head):
                    # the encoder runs again only for its own heads
                    changed = self.encode(batch) if role == "enc-self" else encoded
                    yield (role, layer, head + 1), self.loss_of(batch, changed)

    @classmethod
    def pictures(cls, systems: Mapping[str, Any]) -> List[Picture]:
        panels: Points = {}
        for name, analysis in systems.items():
            for role, layer, _, _, increase, _ in analysis.rows():
                panels.setdefault(NAMES[role], {}).setdefault(name, []).append((layer, increase))
        return [
            Picture(
                "head-ablation",
                "Increase of the loss without one head, by layer, for each attention and system.",
                "Increase of the loss when one head is set to zero: one point per head; a line "
                "joins the means over the heads of a layer.",
                points_by_layer(panels, "increase, nats per token"),
            )
        ]
