"""The hosts we run on: which fairseq, on which Python."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import sys
from contextlib import contextmanager
from typing import Any, Iterator

PYTHON_SINCE, PYTHON_BEFORE = (3, 9), (3, 13)
FORK = "ve-fairseq==0.12.3"
STOCK = "fairseq==0.12.2"
SUPPORTED_FAIRSEQ = "0.12."


@contextmanager
def logging_kept() -> Iterator[None]:
    """Undo what importing fairseq does to the root logger.

    Some of its modules call ``logging.basicConfig``, one of them for DEBUG: every library's
    chatter would go to the standard error of our own commands. fairseq's command lines set up
    logging before they import anything, and stay as they are.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def check_host() -> None:
    """Raise one line with the fix where capsnmt cannot run.

    Raises:
        ImportError: Python is out of range, no fairseq is installed, the installed one cannot be
            imported on this Python, or its version is not one we test.
    """
    running = ".".join(map(str, sys.version_info[:3]))
    if not PYTHON_SINCE <= sys.version_info[:2] < PYTHON_BEFORE:
        raise ImportError(
            f"capsnmt: Python {running} is not supported: use Python 3.11 or 3.12 (with {FORK}) "
            f"or Python 3.9 or 3.10 (with {STOCK})"
        )
    # Stock fairseq's dataclasses are refused by Python >= 3.11, the fork has no older wheels.
    wanted = FORK if sys.version_info >= (3, 11) else STOCK
    # Stock fairseq needs omegaconf 2.0.6, whose metadata newer pips refuse.
    older_pip = "" if wanted == FORK else "pip install 'pip<24.1' 'numpy<2' && "
    installer = f"{older_pip}pip install"
    if importlib.util.find_spec("fairseq") is None:
        raise ImportError(f"capsnmt: fairseq is not installed: {installer} {wanted}")
    # It announces at every import a package that nothing here uses.
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
    try:
        fairseq = importlib.import_module("fairseq")
    except Exception as error:
        raise ImportError(
            f"capsnmt: the installed fairseq cannot be imported on Python {running} "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}): "
            f"pip uninstall fairseq ve-fairseq && {installer} {wanted}"
        ) from None
    version = getattr(fairseq, "__version__", "unknown")
    if not version.startswith(SUPPORTED_FAIRSEQ):
        raise ImportError(f"capsnmt: fairseq {version} is not supported: {installer} {wanted}")


def keep_last_batch() -> None:
    """Give the fork's batches back the sentences that it drops.

    ve-fairseq 0.12.3 throws away a last batch whose size is no multiple of
    ``--required-batch-size-multiple``, 8 by default: ``fairseq-generate`` then translates 8 of 12
    sentences and says nothing. The documented meaning, which fairseq 0.12.2 has, is a batch size
    "less than N or a multiple of N". Every command line that loads the plugin gets it back.
    """
    import numpy as np
    from fairseq.data import data_utils

    dropping = data_utils.batch_by_size
    if hasattr(dropping, "__wrapped__"):
        return

    @functools.wraps(dropping)
    def batch_by_size(indices: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(indices, np.ndarray):
            indices = np.fromiter(indices, dtype=np.int64, count=-1)
        batches = dropping(indices, *args, **kwargs)
        kept = sum(map(len, batches))
        fixed_shapes = len(args) > 5 or kwargs.get("fixed_shapes") is not None
        return batches if fixed_shapes or kept == len(indices) else [*batches, indices[kept:]]

    data_utils.batch_by_size = batch_by_size


def keep_batches_when_resuming() -> None:
    """Let a training of the fork go on with the batches that it had.

    Batches are made once, when a training starts or resumes; ve-fairseq 0.12.3 draws the order of
    their sentences by ``seed + epoch``. Resumed in its third epoch, a training would go on with
    other batches: some sentences twice in this epoch, others never, and another model at the end.
    fairseq 0.12.2 draws by the seed alone. What is made anew every epoch has no such fault.
    """
    from fairseq.tasks.fairseq_task import FairseqTask

    drawing = FairseqTask.get_batch_iterator
    if hasattr(drawing, "__wrapped__"):
        return

    @functools.wraps(drawing)
    def get_batch_iterator(self: Any, *args: Any, epoch: int = 1, **kwargs: Any) -> Any:
        anew = kwargs.get("disable_iterator_cache") or kwargs.get("update_epoch_batch_itr")
        return drawing(self, *args, epoch=epoch if anew else 1, **kwargs)

    FairseqTask.get_batch_iterator = get_batch_iterator
