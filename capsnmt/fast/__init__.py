"""What only makes the mechanisms and their models faster: without it the results are the same.

Nothing imports this package but :mod:`capsnmt.plugin`. It is an addition: it registers kernels of
the operators, shortcuts of the modules, and a search and linear maps of the models. Every one of
them asks :func:`capsnmt.routing.tracing.is_watched` first, and leaves to torch what torch must
see. With ``CAPSNMT_FAST=0`` in the environment nothing is registered.
"""

import functools
from typing import List, Tuple

from capsnmt.routing.backend import Kernel, is_fast
from capsnmt.routing.operator import Operator


@functools.cache
def install() -> None:
    """Add what needs torch alone: the kernels, and the shortcuts of the modules and the loss."""
    if not is_fast():
        return
    from capsnmt.fast import shortcuts
    from capsnmt.fast.cpp import operations, routing
    from capsnmt.fast.triton import launch
    from capsnmt.modules.shortcuts import SHORTCUTS

    kernels: List[Tuple[Operator, Kernel]] = [*routing.KERNELS, *launch.KERNELS]
    for operator, kernel in kernels:
        operator.add(kernel)
    SHORTCUTS.dropout = shortcuts.dropout
    SHORTCUTS.products_are_faster = shortcuts.products_are_faster
    SHORTCUTS.attend_to_slots = operations.attend
    SHORTCUTS.softmax_ = operations.softmax_
    SHORTCUTS.mix_over_depth = operations.mix_over_depth


@functools.cache
def install_in_host() -> None:
    """Add all: also the generator, and the preparation of linear maps; the plugin calls it."""
    install()
    if not is_fast():
        return
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from capsnmt.fast import linear
    from capsnmt.fast.generator import generate_faster
    from capsnmt.models.precision import PREPARATIONS

    register_optimizer_step_post_hook(linear.count_update)
    PREPARATIONS.append(linear.prepare)
    generate_faster()
