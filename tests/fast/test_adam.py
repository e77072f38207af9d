"""fused_adam is fairseq's adam: same updates, same checkpoints, same norm of the gradients."""

import argparse
import copy
import functools
from typing import Any, Dict, List, Tuple

import pytest
import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim import FP16Optimizer, MemoryEfficientFP16Optimizer, build_optimizer, shard
from torch import nn

from capsnmt.fast.adam import has_fused_kernel
from tests.support import parse

STRONG = ("--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-9", "--weight-decay", "0.1")


def arguments(name: str, *flags: str) -> argparse.Namespace:
    return parse("capsnmt_transformer", "--optimizer", name, "--lr", "0.01", *STRONG, *flags)


@functools.cache
def half_precision_config(name: str) -> Any:
    """Return the configuration of a command line; conversion takes a second."""
    return convert_namespace_to_omegaconf(arguments(name, "--bf16", "--memory-efficient-bf16"))


def parameters(dtype: torch.dtype = torch.float32) -> List[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((7, 5), (5,), (3, 2, 2), ())
    return [nn.Parameter(torch.randn(s, generator=generator).to(dtype)) for s in shapes]


def optimizer(name: str, params: List[nn.Parameter], *flags: str) -> Any:
    return build_optimizer(arguments(name, *flags), params)


def put_gradients(params: List[nn.Parameter], step: int) -> None:
    """Gradients from 1e-10, far below epsilon, to 1; a parameter that has one in every other step.

    Without a gradient a parameter keeps its own count of updates.
    """
    generator = torch.Generator().manual_seed(100 + step)
    for index, p in enumerate(params):
        size = 10.0 ** -torch.randint(0, 11, p.shape, generator=generator)
        p.grad = (torch.randn(p.shape, generator=generator) * size).to(p.dtype)
        if index == 1 and step % 2:
            p.grad = None


def run(
    optimizer: Any, params: List[nn.Parameter], steps: range, scale: float = 0.5, norm: float = 0.5
) -> None:
    for step in steps:
        put_gradients(params, step)
        optimizer.multiply_grads(scale)
        optimizer.clip_grad_norm(norm)
        optimizer.set_lr(0.01 / (1 + step))
        optimizer.step()
        optimizer.zero_grad()


def assert_same(results: List[Tuple[List[nn.Parameter], Dict[str, Any]]], **near: float) -> None:
    """Both have the same parameters, and checkpoints of the same names, types and numbers."""
    (params, ours), (expected, theirs) = results
    torch.testing.assert_close(params, expected, **near)
    assert ours["param_groups"] == theirs["param_groups"]
    assert ours["state"].keys() == theirs["state"].keys()
    for index, state in theirs["state"].items():
        assert ours["state"][index].keys() == state.keys()
        assert type(ours["state"][index]["step"]) is type(state["step"])
        torch.testing.assert_close(ours["state"][index], state)


def test_a_closure_computes_the_gradients_of_its_update() -> None:
    p = nn.Parameter(torch.tensor([2.0]))

    def loss() -> torch.Tensor:
        (p * p).sum().backward()
        return p.detach().clone()

    assert optimizer("fused_adam", [p]).optimizer.step(loss).item() == 2
    assert p.item() < 2


def test_updates_and_checkpoints_are_fairseqs_also_after_the_state_of_torchs_own_adam() -> None:
    """So that runs of either resume from the other's."""
    results, through = [], parameters()
    fairseqs = optimizer("adam", through)
    run(fairseqs, through, range(8))
    for made_by_torch in (True, False):
        params = parameters()
        made = optimizer("fused_adam", params)
        run(made, params, range(2))
        state = copy.deepcopy(made.state_dict())
        if made_by_torch:
            for values in state["state"].values():
                values["step"] = torch.tensor(float(values["step"]))
        resumed = optimizer("fused_adam", params)
        resumed.load_state_dict(state, resumed.optimizer_config)
        run(resumed, params, range(2, 8))
        results.append((params, resumed.state_dict()))
    assert_same(results, rtol=0, atol=0)
    assert_same([results[1], (through, fairseqs.state_dict())], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("max_norm", "expert"), [(0.0, False), (0.1, False), (1e6, False), (0.1, True)]
)
def test_the_norm_and_the_clipped_gradients_are_fairseqs(max_norm: float, expert: bool) -> None:
    """The fused optimizer scales the gradients in its update; experts are not in the norm."""
    found = []
    for name in ("adam", "fused_adam"):
        params = parameters()
        if expert:
            params[0].expert = True
        made = optimizer(name, params)
        put_gradients(params, 1)
        made.multiply_grads(3.0)
        norm = made.clip_grad_norm(max_norm, aggregate_norm_fn=lambda norm: norm * 2)
        made.step()
        found.append((norm, [p.grad for p in params if p.grad is not None]))
    torch.testing.assert_close(*found)


def test_the_scale_of_one_update_is_not_that_of_the_next() -> None:
    """Not after an update, and not after gradients that are thrown away."""
    params = parameters()
    made = optimizer("fused_adam", params)
    assert made.clip_grad_norm(1.0) == 0  # without any gradient
    for use in (made.step, made.zero_grad):
        put_gradients(params, 0)
        made.multiply_grads(0.0)
        use()
        put_gradients(params, 2)
        expected = [p.grad.clone() for p in params]
        made.step()
        torch.testing.assert_close([p.grad for p in params], expected, rtol=0, atol=0)


def test_a_copy_goes_on_as_the_optimizer() -> None:
    params = parameters()
    made = optimizer("fused_adam", params)
    run(made, params, range(2))
    copied = copy.deepcopy(made.optimizer)
    for each in (made.optimizer, copied):
        put_gradients(each.param_groups[0]["params"], 2)
        each.step()
    torch.testing.assert_close(copied.param_groups[0]["params"], params, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_parameters_are_updated_in_fp32(dtype: torch.dtype) -> None:
    """As --memory-efficient-fp16 and --memory-efficient-bf16 do; also after resuming."""
    as_they_are = {"scale": 1.0, "norm": 0.0}
    results = []
    for name in ("fused_adam", "adam"):
        params = parameters(dtype)
        cfg = half_precision_config(name)
        made = MemoryEfficientFP16Optimizer.build_optimizer(cfg, params)
        run(made, params, range(3), **as_they_are)
        resumed = MemoryEfficientFP16Optimizer.build_optimizer(cfg, params)
        resumed.load_state_dict(copy.deepcopy(made.state_dict()), resumed.optimizer_config)
        run(resumed, params, range(3, 6), **as_they_are)
        results.append((params, resumed.state_dict()))
    assert_same(results)
    assert {s["exp_avg"].dtype for s in results[0][1]["state"].values()} == {torch.float32}


def test_small_gradients_survive_their_multiplication_in_half_precision() -> None:
    """As --memory-efficient-fp16 multiplies them: by the loss scale and the number of words."""
    (alone,) = params = [nn.Parameter(torch.zeros(4, dtype=torch.float16))]
    made = optimizer("fused_adam", params)
    alone.grad = torch.full((4,), 1e-3, dtype=torch.float16)
    made.multiply_grads(2.0**-20)
    made.step()
    moment = made.state_dict()["state"][0]["exp_avg"]
    torch.testing.assert_close(moment, 0.1 * 2.0**-20 * alone.grad.float())


def test_the_optimizer_within_a_sharded_one_works_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As --zero-sharding os does, with one shard; fairscale is not among our packages."""

    class Whole(torch.optim.Optimizer):
        def __init__(self, groups: Any, inner: Any, group: Any, **settings: Any) -> None:
            self.optim = inner(groups, **settings)
            super().__init__(groups, settings)

        def step(self, closure: Any = None) -> None:
            self.optim.step(closure)

    monkeypatch.setattr(shard, "_has_fairscale", True)
    monkeypatch.setattr(shard, "OSS", Whole, raising=False)
    results = []
    for sharded in (True, False):
        params = parameters()
        made = optimizer("fused_adam", params)
        if sharded:
            shard.shard_(made, None)
        run(made, params, range(4))
        results.append(params)
    torch.testing.assert_close(*results)


def test_the_wrapper_with_fp32_copies_works_the_same() -> None:
    """As --bf16 does; --fp16 needs a GPU."""
    results = []
    for name in ("fused_adam", "adam"):
        params = parameters(torch.bfloat16)
        made = FP16Optimizer.build_optimizer(half_precision_config(name), params)
        for step in range(4):
            put_gradients(params, 2 * step)
            made._needs_sync = True
            made.clip_grad_norm(0.5)
            made.step()
            made.zero_grad()
        results.append((params, made.state_dict()))
    assert_same(results)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="NO GPU: fused_adam is not tested on one")
def test_on_a_gpu_the_host_never_waits_and_the_updates_are_the_same() -> None:
    on_cpu, on_gpu = parameters(), [nn.Parameter(p.detach().cuda()) for p in parameters()]
    run(optimizer("fused_adam", on_cpu), on_cpu, range(4))
    made = optimizer("fused_adam", on_gpu)
    for step in range(4):
        source = parameters()
        put_gradients(source, step)
        for p, other in zip(on_gpu, source):
            p.grad = None if other.grad is None else other.grad.cuda()
        torch.cuda.set_sync_debug_mode("error")
        try:
            made.multiply_grads(0.5)
            made.clip_grad_norm(0.5)
            made.set_lr(0.01 / (1 + step))
            made.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close([p.cpu() for p in on_gpu], on_cpu, rtol=1e-5, atol=1e-7)
    assert has_fused_kernel(torch.device("cuda"))
