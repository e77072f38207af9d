"""DropHead against its equation: which heads it drops, how often, when, and what it leaves."""

import pytest
import torch

from capsnmt.modules.drop_head import DropHead
from tests.modules.attention_oracle import ATTENTIONS, attention, oracle
from tests.modules.compare import numbers
from tests.support import EVERYWHERE, build, forward, sentences

INPUTS = sentences(5, 3), sentences(4, 2, seed=1)
ROUTED = ("--head-aggregation", "em", *EVERYWHERE)
FLAGS = ("--drop-head", "0.4", "--drop-head-fall-updates", "4", "--drop-head-rise-updates", "8")


def test_a_kept_head_is_scaled_by_the_share_of_the_kept_and_so_is_its_gradient() -> None:
    heads = numbers(500, 4, 3, 2)
    dropped = DropHead(0.6)(heads)
    ratio = dropped / heads
    of_head = ratio[:, :, :1, :1]
    torch.testing.assert_close(ratio, of_head.expand_as(ratio))
    kept = (of_head != 0).sum(1, keepdim=True)
    assert (kept.min(), kept.max()) == (1, 4)  # 0.6^4 of the sentences would have none
    torch.testing.assert_close(of_head, (of_head != 0).double() * 4 / kept)
    (gradient,) = torch.autograd.grad(dropped.sum(), heads)
    torch.testing.assert_close(gradient, ratio)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_each_head_is_dropped_as_often_as_the_rate_says(p: float) -> None:
    kept = DropHead(p)(torch.ones(20_000, 8, 1, 1)) != 0
    shares = 1 - kept.double().mean(0).flatten()
    torch.testing.assert_close(shares, torch.full((8,), p).double(), atol=0.02, rtol=0)
    both = (~kept[:, 0] & ~kept[:, 1]).double().mean().item()
    assert both == pytest.approx(p * p, abs=0.015)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_in_an_attention_the_heads_of_the_call_are_dropped_in_training_only(name: str) -> None:
    module, query, memory = attention(name)
    expected, *_, heads = oracle(module, query, memory)
    module.drop_head = DropHead(0.9).eval()
    torch.testing.assert_close(module(query, memory, memory)[0], expected)
    torch.manual_seed(0)
    found, _ = module.train()(query, memory, memory)
    torch.manual_seed(0)
    dropped = module.drop_head(heads)
    module.drop_head = None  # drops nothing more
    torch.testing.assert_close(found, module.aggregate(dropped, query))
    assert not torch.allclose(found, expected)
    torch.testing.assert_close(module.aggregate(heads, query), expected)


def test_the_trainer_moves_every_rate_along_the_v_which_is_not_stored() -> None:
    """Also in front of heads that are routed."""
    plain = build("capsnmt_transformer", *ROUTED)
    model = build("capsnmt_transformer", *ROUTED, *FLAGS).train()
    assert model.state_dict().keys() == plain.state_dict().keys()
    drops = [module for module in model.modules() if isinstance(module, DropHead)]
    assert len(drops) == 6
    rates = []
    for update in range(14):
        model.set_num_updates(update)
        rates.append(drops[0].rate.item())
        assert all(drop.rate == drops[0].rate for drop in drops)
    fall, rise = [0.4, 0.3, 0.2, 0.1], [0.05 * step for step in range(8)]
    assert rates == pytest.approx([*fall, *rise, 0.4, 0.4])
    model.load_state_dict(plain.state_dict())
    for update, same in ((4, True), (0, False)):  # at 4 the rate is 0
        model.set_num_updates(update)
        found = forward(model, *INPUTS)
        assert torch.allclose(found, forward(plain, *INPUTS), atol=1e-5 if same else 0.01) == same
    found.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
