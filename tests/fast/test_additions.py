"""What makes it faster changes no result: whatever torch does around it, torch sees everything."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from capsnmt import routing
from capsnmt.fast.triton import launch
from capsnmt.routing import simple
from tests.routing.operators import random


def train(votes, **options):
    return routing.simple_routing(votes.requires_grad_(), 2, **options)


def fail(*tensors, **options):
    raise OSError("no compiler\nand a long trace")


@pytest.mark.parametrize("votes", [random(4, 8, 512, 1).double(), random(4, 9, 513, 3)])
def test_what_the_fused_kernels_do_not_cover_runs_without_them(votes, monkeypatch):
    """Numbers of fp64, and more than 32,768 votes a token: 16 x 1,024 x 4, padded."""
    monkeypatch.setattr(launch, "triton_obstacle", lambda device_type: None)
    found = routing.simple_routing(votes, 2, backend="triton")
    assert torch.equal(found, routing.simple_routing(votes, 2, backend="eager"))


def test_a_fused_kernel_that_fails_is_one_line_with_the_fix(monkeypatch):
    """The forward kernel may build and the backward kernel may not."""
    monkeypatch.setattr(launch, "triton_obstacle", lambda device_type: None)
    for forward, part in ((fail, "simple_kernel"), (simple.OPERATOR.precise, "the gradient")):
        launchers = SimpleNamespace(forward=forward, backward=fail)
        monkeypatch.setattr(launch.TritonKernel, "launch", lambda self, chosen=launchers: chosen)
        with pytest.raises(RuntimeError, match=rf"on {part} \(no compiler\); use auto or eager"):
            train(random(2, 3, 4, 2), backend="triton").sum().backward()
