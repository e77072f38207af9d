"""The fused kernels build for a GPU, on a machine without one: what the interpreter cannot show."""

from __future__ import annotations

import importlib
import inspect

import pytest

from capsnmt.routing import backend

OBSTACLE = backend.triton_obstacle("cuda")
pytestmark = pytest.mark.skipif(bool(OBSTACLE), reason=f"backend 'triton' {OBSTACLE}")

SIZES = {"I": 3, "N": 32, "D": 2, "I_PAD": 4, "N_PAD": 32, "D_PAD": 2, "T": 3}
NUMBERS = {**SIZES, "tokens": 7, "tokens_per_program": 2}
SETTINGS = {"variance_floor": 1e-6, "lam_step": 1.0, "NORMALISE": False, "INVERTED": False}
NO_ACTIVATION = ("activation", "g_activation")
MASKS = ("input_mask", "output_mask", "width_mask")
CASES = {
    "em, forward": ("em", "forward", {"PER_PAIR": False}, ("activation",), "fp16"),
    "em, backward": (
        "em_backward",
        "backward",
        {"PER_PAIR": False},
        ("activation", "g_activation"),
        "bf16",
    ),
    "em, activation of inputs": ("em_backward", "backward", {"PER_PAIR": False}, (), "bf16"),
    "em, activation of pairs": ("em_backward", "backward", {"PER_PAIR": True}, (), "fp32"),
    "dynamic, forward": ("agreement", "forward", {}, (), "fp16"),
    "dynamic, backward": ("agreement", "backward", {}, MASKS, "bf16"),
    "dynamic, masked": ("agreement", "backward", {}, ("g_logits",), "fp32"),
    "simple, forward": ("agreement", "forward", {"NORMALISE": True}, (*MASKS, "logits"), "fp32"),
    "inverted, forward": ("agreement", "forward", {"INVERTED": True}, (*MASKS, "logits"), "fp32"),
    "inverted, backward": (
        "agreement",
        "backward",
        {"INVERTED": True},
        (*MASKS, "g_logits"),
        "bf16",
    ),
    "simple, backward": (
        "agreement",
        "backward",
        {"NORMALISE": True},
        (*MASKS, "g_logits"),
        "fp16",
    ),
}


def describe(kernel, values, absent, dtype):
    """Return the types of the kernel's arguments and the values of its constants."""
    types, constants = {}, {}
    for position, name in enumerate(kernel.arg_names):
        if name in absent:
            types[name], constants[(position,)] = "constexpr", None
        elif "constexpr" in str(inspect.signature(kernel.fn).parameters[name].annotation):
            types[name], constants[(position,)] = "constexpr", values[name]
        elif name in values:
            types[name] = "fp32" if isinstance(values[name], float) else "i32"
        elif name in MASKS:
            types[name] = "*i1"
        else:
            types[name] = "*fp32" if "beta" in name else f"*{dtype}"
    return types, constants


@pytest.mark.parametrize("case", CASES)
def test_kernel_builds_for_sm_80(case):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module, direction, flags, absent, dtype = CASES[case]
    kernel = getattr(
        importlib.import_module(f"capsnmt.routing.fused.{module}"), f"{direction}_kernel"
    )
    types, constants = describe(kernel, {**NUMBERS, **SETTINGS, **flags}, absent, dtype)
    built = triton.compile(ASTSource(kernel, types, constants), target=GPUTarget("cuda", 80, 32))
    assert "st.global" in built.asm["ptx"]
    assert "atom." not in built.asm["ptx"]  # atomics would add in an order that varies
