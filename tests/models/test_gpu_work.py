"""What an update of the base model, with two layers a stack, asks of a GPU; counted without one.

The tensors are torch's ``meta`` tensors: they have no numbers, and are not on a CPU, so nothing
that only makes a CPU fast runs. Routing is eager: what a compiler makes of tensors without numbers
depends on whether there is a Triton, and on what it has failed on before. A launch is an operation
that is no view; a fused attention is one, and its gradient three.
"""

import weakref
from typing import Any, List, Sequence, Set, Tuple

import fairseq.models
import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.counting import WAITING
from tests.support import CAPSULES, EVERYWHERE, NORM, parse, task_of

WORDS, TOKENS = 32_000, 8_192
ALLOCATIONS = ("empty", "detach", "unsafe_view", "lift_fresh")
CHUNKED = "chunked_label_smoothed_cross_entropy"
EAGER = ("--routing-backend", "eager")


# flags of a system -> tokens of a sentence, the most launches, and the most GiB that wait for the
# backward pass
ALLOWED = {
    (): (32, 490, 0.75),
    (*EAGER, "--head-aggregation", "em"): (32, 1120, 0.895),
    (*EAGER, "--layer-aggregation", "em-routing"): (32, 1220, 0.885),
    ("--mlmha", "M-10"): (32, 505, 0.82),
    ("--layer-aggregation", "dlcl"): (32, 525, 0.795),
    (*NORM, "--layer-aggregation", "attention-residuals"): (32, 970, 0.81),
    ("--head-aggregation", "talking", *EVERYWHERE): (32, 608, 0.815),
    ("--head-aggregation", "composed", *EVERYWHERE): (32, 1395, 1.02),
    (*EAGER, *CAPSULES, "--capsule-routing-decoder", "horizontal"): (256, 1555, 1.145),
}


class FusedAttention(torch.autograd.Function):
    """The launches of a fused attention, and what it keeps."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        sums = q.new_empty(q.shape[:-1], dtype=torch.float32)
        output = q.neg()
        ctx.save_for_backward(q, k, v, output, sums)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tuple[Tensor, ...]:
        return tuple(x.neg() for x in ctx.saved_tensors[:3])


class Attentions(TorchFunctionMode):
    """Whether each fused attention reads a mask, which flash attention cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.masked: list[bool] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is not F.scaled_dot_product_attention:
            return function(*args, **(kwargs or {}))
        self.masked.append(kwargs["attn_mask"] is not None)
        return FusedAttention.apply(*args[:3])


def on_gpu(values: Any) -> List[Tensor]:
    leaves = torch.utils._pytree.tree_leaves(values)
    return [x for x in leaves if isinstance(x, Tensor) and x.device.type != "cpu"]


class Work(TorchDispatchMode):
    """Count launches, bytes that are in use, and questions for which the host waits."""

    def __init__(self, answers: Sequence[bool]) -> None:
        super().__init__()
        self.answers = iter(answers)
        self.launches = self.bytes = self.waits = 0
        self.known: Set[int] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.name().partition("::")[2].partition(".")[0]
        if name in WAITING and on_gpu((args, kwargs)):
            self.waits += 1
            return next(self.answers)
        results = function(*args, **kwargs)
        views = [r.alias_info and not r.alias_info.is_write for r in function._schema.returns]
        made = on_gpu(results)
        if made and not any(views) and not any(part in name for part in ALLOCATIONS):
            self.launches += 1
        for tensor in made:
            self.follow(tensor.untyped_storage())
        return results

    def follow(self, storage: torch.UntypedStorage) -> None:
        """Add the bytes of a storage until it is freed."""
        address, size = storage._cdata, storage.nbytes()
        if address in self.known:
            return

        def free() -> None:
            self.known.remove(address)
            self.bytes -= size

        self.known.add(address)
        self.bytes += size
        weakref.finalize(storage, free)


def update_of(
    flags: Sequence[str], length: int, source_padded: bool, target_padded: bool = False
) -> Tuple[Work, Attentions, float]:
    """An update in bf16: its work, its attentions, and the GiB kept between the passes.

    The target is padded on its left, if at all.
    """
    task, depth = task_of(WORDS), ("--encoder-layers", "2", "--decoder-layers", "2")
    args = parse("capsnmt_transformer", "--share-all-embeddings", *depth, *flags)
    with torch.device("meta"):
        model = fairseq.models.build_model(args, task).to(torch.bfloat16).train()
        tokens = torch.zeros(TOKENS // length, length, dtype=torch.long)
    net_input = {"src_tokens": tokens, "src_lengths": tokens[:, 0], "prev_output_tokens": tokens}
    sample = {"net_input": net_input, "target": tokens, "ntokens": TOKENS}
    options = CRITERION_DATACLASS_REGISTRY[CHUNKED](sentence_avg=False, label_smoothing=0.1)
    criterion = CRITERION_REGISTRY[CHUNKED](task, options)
    with Attentions() as attentions, Work([source_padded, target_padded]) as work:
        loss, _, _ = criterion(model, sample)
        kept = work.bytes / 2**30
        loss.backward()
    return work, attentions, kept


@pytest.mark.parametrize("flags", ALLOWED, ids=" ".join)
def test_an_update_launches_keeps_and_waits_no_more_than_allowed(flags: Sequence[str]) -> None:
    length, most_launches, most_kept = ALLOWED[flags]
    work, _, kept = update_of(flags, length, source_padded=True)
    assert work.waits <= 2  # is there padding in the source, and left of the target?
    # and the table is no older than the code
    assert 0.97 * most_launches < work.launches <= most_launches
    assert 0.95 * most_kept < kept <= most_kept


@pytest.mark.parametrize(
    ("source", "target", "masked"), [(False, False, 0), (True, False, 4), (True, True, 6)]
)
def test_flash_attention_is_possible_where_nothing_is_padded_on_the_left(
    source: bool, target: bool, masked: int
) -> None:
    """Right of a word nothing is seen anyway; all 6 attentions of a training are fused."""
    _, attentions, _ = update_of((), 32, source, target)
    assert len(attentions.masked) == 6
    assert sum(attentions.masked) == masked
