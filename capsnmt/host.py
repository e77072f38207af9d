"""The supported hosts: which fairseq on which Python, patches of their defects, and the plugin."""

import functools
import importlib
import importlib.util
import inspect
import logging
import multiprocessing.util
import os
import platform
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, Callable, Optional

from capsnmt.cli import ConfigurationError

LONGEST_SOCKET = 107  # bytes of the path of an AF_UNIX socket
PYTHON_SINCE, PYTHON_BEFORE = (3, 9), (3, 15)
# Two forks of the same Python code: the first has wheels, the second is built where there is none.
FORK, FORK_FROM_SOURCE = "ve-fairseq==0.12.3", "fairseq-fixed==0.12.3.1"
STOCK = "fairseq==0.12.2"
SUPPORTED_FAIRSEQ = "0.12."


@functools.cache
def prepare_host() -> None:
    """Import fairseq, if this host is supported, and patch it.

    The root logger is restored: some of its modules call ``logging.basicConfig``, one of them with
    DEBUG, and the messages of every library would appear on the standard error of our commands.
    fairseq's own commands configure logging before they import anything and are not affected.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        check_host()
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    keep_last_batch()
    keep_batches_when_resuming()
    keep_place_in_epoch()
    unscale_once()
    clip_beside_a_gpu()
    find_groups_by_row()
    start_training()
    optimize_without_compiler()


def load_plugin(other: Optional[Path] = None) -> None:
    """Let fairseq import this package as its ``--user-dir``, and find what it registers by name.

    Then an ``other`` one, of the user's own models. **D**: never one that a checkpoint names, which
    could run code.
    """
    prepare_host()
    from fairseq.utils import import_user_module

    import_user_module(Namespace(user_dir=str(Path(__file__).parent)))
    if other is not None:
        if not (other / "__init__.py").is_file():
            raise ConfigurationError(
                f"--user-dir {other} is no plugin; give the folder of its __init__.py"
            )
        import_user_module(Namespace(user_dir=str(other)))


def check_host() -> None:
    """Raise an ``ImportError``, one line with the fix, unless Python and fairseq are supported."""
    running = ".".join(map(str, sys.version_info[:3]))
    if not PYTHON_SINCE <= sys.version_info[:2] < PYTHON_BEFORE:
        raise ImportError(
            f"capsnmt: Python {running} is not supported; use Python 3.11 or 3.12 (with {FORK}), "
            f"3.13 or 3.14 (with {FORK_FROM_SOURCE}), or 3.9 or 3.10 (with {STOCK})"
        )
    problem = "fairseq is not installed"
    if importlib.util.find_spec("fairseq") is not None:
        # at every import it advises to install a package that nothing here uses
        logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
        try:
            version = getattr(importlib.import_module("fairseq"), "__version__", "unknown")
        except Exception as error:
            problem = (
                f"the installed fairseq cannot be imported on Python {running} "
                f"({type(error).__name__}: {' '.join(str(error).split())})"
            )
        else:
            if version.startswith(SUPPORTED_FAIRSEQ):
                return
            problem = f"fairseq {version} is not supported"
    raise ImportError(
        f"capsnmt: {problem}: pip uninstall fairseq ve-fairseq fairseq-fixed; {installation()}"
    )


def installation() -> str:
    """Return the commands that install fairseq for this Python and machine."""
    # Python >= 3.11 refuses the dataclasses of stock fairseq. That needs omegaconf 2.0.6, whose
    # metadata newer versions of pip refuse.
    if sys.version_info < (3, 11):
        return f"pip install 'pip<24.1' 'numpy<2' && pip install {STOCK}"
    wheels = sys.version_info < (3, 13) and sys.platform == "linux"
    if wheels and platform.machine() == "x86_64":
        return f"pip install {FORK}"
    # with its own environment for the build, pip would install the newest torch there
    return (
        "pip install torch numpy cython setuptools wheel && "
        f"pip install --no-build-isolation {FORK_FROM_SOURCE}"
    )


def patch(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Replace a function of fairseq by the decorated one, whose first argument is the original."""
    original = getattr(owner, name)

    def replace(function: Callable[..., Any]) -> None:
        @functools.wraps(original)
        def patched(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, name, patched)

    return replace


def keep_last_batch() -> None:
    """Patch the fork's batching to keep the last sentences.

    ve-fairseq 0.12.3 silently drops a last batch whose size is not a multiple of
    ``--required-batch-size-multiple``, 8 by default: ``fairseq-generate`` translates 8 of 12
    sentences. Documented, and implemented in fairseq 0.12.2, is a batch size "less than N or a
    multiple of N". Every command that loads the plugin gets this behaviour.
    """
    import numpy as np
    from fairseq.data import data_utils

    @patch(data_utils, "batch_by_size")
    def batch_by_size(original: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(indices, np.ndarray):
            indices = np.fromiter(indices, dtype=np.int64, count=-1)
        batches = original(indices, *args, **kwargs)
        kept = sum(map(len, batches))
        fixed_shapes = len(args) > 5 or kwargs.get("fixed_shapes") is not None
        return batches if fixed_shapes or kept == len(indices) else [*batches, indices[kept:]]


def keep_batches_when_resuming() -> None:
    """Patch the fork so that a resumed training has the same batches as an uninterrupted one.

    Batches are made once, when training starts or resumes, and ve-fairseq 0.12.3 shuffles their
    sentences by ``seed + epoch``. Training resumed in the third epoch would continue with other
    batches: some sentences occur twice in that epoch, others never, and the final model differs.
    fairseq 0.12.2 uses the seed alone. Batches that are rebuilt in every epoch are not affected.
    """
    from fairseq.tasks.fairseq_task import FairseqTask

    @patch(FairseqTask, "get_batch_iterator")
    def get_batch_iterator(original: Any, *args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(original).bind(*args, **kwargs).arguments
        if given.get("num_workers"):
            # Workers put their sockets into this folder, which is removed when this process ends.
            # Many are killed in the end: folders of their own would stay.
            folder = multiprocessing.util.get_temp_dir()
            # **D**: this process loads the data if the path of a socket would be too long: a worker
            # could not send them, and fairseq would wait for ever.
            if len(os.fsencode(folder)) + len("/listener-12345678") > LONGEST_SOCKET:
                given["num_workers"] = 0
        rebuilt = (
            given.get("disable_iterator_cache")
            or given.get("update_epoch_batch_itr")
            or not given["self"].can_reuse_epoch_itr(given["dataset"])
        )
        return original(**(given if rebuilt else {**given, "epoch": 1}))


def keep_place_in_epoch() -> None:
    """Patch fairseq to find its place in an epoch again with other devices or other batches.

    It counts the batches that one device has had, and skips as many of those that one has now: if
    one of two devices goes on alone after half of an epoch, half of that half comes again.

    **D**: the same share of the epoch is skipped, up to a batch of each device. These are the same
    sentences if the batches are; others are shuffled otherwise.
    """
    from fairseq.data.iterators import EpochBatchIterator

    @patch(EpochBatchIterator, "state_dict")
    def state_dict(original: Any, self: Any) -> Any:
        return {**original(self), "iterations_of_epoch": len(self)}

    @patch(EpochBatchIterator, "load_state_dict")
    def load_state_dict(original: Any, self: Any, state: Any) -> None:
        self.epoch = state["epoch"]  # batches may depend on it
        before = state.get("iterations_of_epoch") or len(self)
        done = state.get("iterations_in_epoch", 0) * len(self) // before
        original(self, {**state, "iterations_in_epoch": done})


def unscale_once() -> None:
    """Patch fairseq's ``--amp``, which divides the gradients by the loss scale twice.

    torch notes for which optimizer it has done so. fairseq lets it do so for the one of torch
    before it clips, and then asks it to step fairseq's own. Adam would see gradients so small that
    its epsilon stops the training where the scale has grown.
    """
    from fairseq.optim.amp_optimizer import AMPOptimizer

    @patch(AMPOptimizer, "step")
    def step(_: Any, self: Any) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()


def clip_beside_a_gpu() -> None:
    """Patch fairseq to clip gradients on a CPU by their norm there: ``--cpu`` where there is a GPU.

    It would move the norm to the GPU, by which torch multiplies nothing on a CPU. What it has for
    apex's kernels does not.
    """
    from fairseq import utils

    @patch(utils, "clip_grad_norm_")
    def clip_grad_norm_(original: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        kernels = utils.multi_tensor_l2norm_available
        params = [params] if hasattr(params, "grad") else [*params]
        on_cpu = all(p.device.type == "cpu" for p in params)
        utils.multi_tensor_l2norm_available = kernels or on_cpu
        try:
            return original(params, *args, **kwargs)
        finally:
            utils.multi_tensor_l2norm_available = kernels


def find_groups_by_row() -> None:
    """Patch the fork's diverse beam search, which takes a sentence's number for its row.

    What the groups have in common is stored by the rows of the batch, and looked up by the numbers
    of the sentences in the data: ``--diverse-beam-groups`` ends with an ``IndexError``. Of numbers
    that are rows it penalises the words of another sentence. fairseq 0.12.2 stores nothing.
    """
    from fairseq.search import DiverseBeamSearch

    @patch(DiverseBeamSearch, "step")
    def step(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(original).bind(self, *args, **kwargs).arguments
        numbers = given.get("original_batch_idxs")
        if numbers is not None:
            self.numbers = numbers if given["step"] == 0 else self.numbers
            given["original_batch_idxs"] = numbers.unsqueeze(1).eq(self.numbers).int().argmax(1)
        return original(**given)


def start_training() -> None:
    """Patch fairseq's trainer, which only a command makes: it keeps freed memory.

    It also says at once what a model cannot be trained with here. fairseq's trainer would ask when
    a thread already reads the data, and in the midst of that thread the exit would be an abort.
    """
    from fairseq.trainer import Trainer

    from capsnmt.machine import keep_freed_memory

    @patch(Trainer, "__init__")
    def initialise(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        keep_freed_memory(self.device.type)
        self.model.train()  # with several processes only the wrapper moves it to its GPU


def optimize_without_compiler() -> None:
    """Patch torch's optimizers: they would import its compiler before the first update.

    Their functions that torch.compile is to leave alone say so by a wrapper, which imports it: 0.9
    seconds of processor time with torch 2.13. It also keeps the group of several processes, whose
    threads may then abort at the exit. Nothing here compiles an optimizer.
    """
    from torch.optim import Optimizer

    for name, function in list(vars(Optimizer).items()):
        code = getattr(function, "__code__", None)
        if code is not None and code.co_filename.endswith("_compile.py"):
            setattr(Optimizer, name, function.__wrapped__)
