"""Capsule-routing self-attention against the loops of Algorithms 2 and 3."""

import copy
from typing import Callable, Dict, Optional

import pytest
import torch
from torch import Tensor, nn

from capsnmt.models.attention import HostedCapsuleAttention as CapsuleAttention
from capsnmt.modules.capsule_attention import ENCODER_ROUTINGS
from tests.modules.attention_oracle import FUTURE, HEADS, LENGTH, PADDINGS, WIDTH, capsules, oracle
from tests.modules.compare import assert_same, numbers


@pytest.mark.parametrize("padding", PADDINGS.values(), ids=PADDINGS)
@pytest.mark.parametrize("routing", [*ENCODER_ROUTINGS[1:], "decoder"])
def test_outputs_and_gradients_equal_the_algorithms(
    routing: str, padding: Optional[Tensor]
) -> None:
    """Heads talk after they are routed."""
    causal, kind = routing == "decoder", "talking" if routing == "both" else "linear"
    module = capsules("horizontal" if causal else routing, kind=kind, iterations=2)
    x = numbers(LENGTH, 2, WIDTH)
    found, _ = module(x, x, x, padding, attn_mask=FUTURE if causal else None)
    expected, *_ = oracle(module, x, x, padding, causal)
    real = slice(None) if padding is None else ~padding.T  # [L, B]
    assert_same(found[real], expected[real], module, x, rtol=1e-8, atol=1e-10)


def normalised(map_: nn.Module) -> None:
    """Weight normalisation, which a hook computes, of twice the length."""
    nn.utils.weight_norm(map_).weight_g.data.mul_(2)
    map_.bias.data.mul_(2)


def derived(map_: nn.Module) -> None:
    parent = type(map_)
    own = {"forward": lambda self, x: 2 * parent.forward(self, x)}
    map_.__class__ = type("Own", (parent,), own)


WAYS: Dict[str, Callable[[nn.Module], object]] = {
    "hook": lambda map_: map_.register_forward_hook(lambda *given: 2 * given[-1]),
    "weight normalisation": normalised,
    "class": derived,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
def test_the_map_to_head_weights_may_be_changed_as_every_map(way: str) -> None:
    """Here to its double; the parameters were read past whatever changed it."""
    module, x = capsules("vertical"), numbers(LENGTH, 2, WIDTH)
    doubled = copy.deepcopy(module)
    for parameter in doubled.head_weights.parameters():
        parameter.data.mul_(2)
    expected, _ = doubled(x, x, x)
    assert not torch.allclose(module(x, x, x)[0], expected)
    WAYS[way](module.head_weights)
    torch.testing.assert_close(module(x, x, x)[0], expected)


def test_head_weights_start_uniform_with_all_of_their_gradient() -> None:
    """Eight heads, 30 positions: a Glorot W^up would start at the flat end of its softmax."""
    module = CapsuleAttention(8 * WIDTH // HEADS, 8, vertical=True)
    e = torch.randn(16, 8, 30, 30) * 2
    probe = torch.randn_like(e)

    def gradient() -> Tensor:
        capsules = module.vertical_capsules(e, None)
        (result,) = torch.autograd.grad((capsules * probe).sum(), module.head_weights.bias)
        return result.abs()

    capsules = module.vertical_capsules(e, None)
    torch.testing.assert_close(capsules, capsules[:, :1].expand_as(capsules))  # one weight for all
    fresh = gradient()
    torch.nn.init.xavier_uniform_(module.head_weights.weight)
    assert (fresh > 0).all()
    assert fresh.mean() > 3 * gradient().mean()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_scores_are_routed_in_fp32_and_rounded_once(dtype: torch.dtype) -> None:
    """At this length and these scores the sums of eq 11 are 3e5, more than fp16 can hold."""
    module = capsules("both").to(dtype)
    torch.nn.init.normal_(module.head_weights.weight, std=3e-6)
    scores = (torch.randn(2, HEADS, 400, 400) * 60).to(dtype)
    routed = module.scores(scores, None, None, None)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # which lowers nothing
        assert torch.equal(module.scores(scores, None, None, None), routed)
    expected = module.double().scores(scores.double(), None, None, None)
    assert routed.dtype == dtype
    assert expected.sub(scores.double()).abs().max() > 0.1  # there is something to get wrong
    half_a_step = torch.finfo(dtype).eps / 2
    torch.testing.assert_close(routed.double(), expected, rtol=1.01 * half_a_step, atol=1e-4)
