"""What only makes the mechanisms and their models faster: without it the results are the same.

Nothing imports this package but :mod:`capsnmt.plugin`. It is an addition: it registers kernels of
the operators, shortcuts of the modules, and a search and linear maps of the models. Every one of
them asks :func:`capsnmt.routing.tracing.is_watched` first, and leaves to torch what torch must
see. With ``CAPSNMT_FAST=0`` in the environment nothing is registered.
"""

from __future__ import annotations

import functools
import os
from typing import List, Tuple

from capsnmt.routing.backend import SWITCH, Kernel
from capsnmt.routing.operator import Operator


@functools.cache
def install() -> None:
    """Add what needs torch alone: the kernels, and the shortcuts of the modules and the loss."""
    if os.environ.get(SWITCH) == "0":
        return
    from capsnmt.fast import attention, depth, dropout, softmax
    from capsnmt.fast.cpp import routing
    from capsnmt.fast.search import decoding
    from capsnmt.fast.triton import launch
    from capsnmt.modules.shortcuts import SHORTCUTS

    kernels: List[Tuple[Operator, Kernel]] = [*routing.KERNELS, *launch.KERNELS]
    for operator, kernel in kernels:
        operator.add(kernel)
    SHORTCUTS.dropout = dropout.dropout
    SHORTCUTS.products_are_faster = attention.products_are_faster
    SHORTCUTS.attend_to_slots = decoding.attend
    SHORTCUTS.softmax_ = softmax.softmax_
    SHORTCUTS.mix_over_depth = depth.mixture


@functools.cache
def install_in_host() -> None:
    """Add all: also the generator, and the preparation of linear maps; the plugin calls it."""
    install()
    if os.environ.get(SWITCH) == "0":
        return
    from capsnmt.fast import derived, linear
    from capsnmt.fast.search.generator import generate_faster
    from capsnmt.models.inference import PREPARATIONS

    derived.count_updates_of_optimizers()
    PREPARATIONS.append(linear.prepare)
    generate_faster()
