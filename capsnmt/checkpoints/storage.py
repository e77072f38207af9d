"""Checkpoints without trust: what torch may unpickle, and files that are whole or absent.

A fairseq checkpoint is a pickle that holds more than tensors: an ``argparse.Namespace`` (the
model's arguments, unless the run was configured by hydra), and numpy arrays and scalars wherever a
metric logged some (``--eval-bleu`` logs its n-gram counts). torch >= 2.6 refuses both by default,
and older torches unpickle anything at all, code included. Both are made the same here: torch's own
allow-list of ``weights_only`` loading, and :func:`safe_globals`, nothing else.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import os
import pickle
import re
import types
import zipfile
from pathlib import Path
from typing import Any, Dict, Union

import torch

from capsnmt.errors import ConfigurationError

PathLike = Union[str, "os.PathLike[str]"]

ZIP_MAGIC = b"PK\x03\x04"
# the pickled torch.serialization.MAGIC_NUMBER that opens the files of torch < 1.6
LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
# numpy types whose arrays and scalars metrics leave in a checkpoint's meters and best values
METRIC_DTYPES = ("int64", "float32", "float64")


class CheckpointError(ConfigurationError):
    """A checkpoint that cannot be used: which file, what is wrong, what to do."""


def safe_globals() -> Dict[str, Any]:
    """Pickled name -> object of all that fairseq's checkpoints hold beyond torch's own.

    Found by training on both hosts, by argparse and by hydra, plain and with ``--eval-bleu``,
    ``--store-ema`` and ``reduce_lr_on_plateau``; numpy's scalars come from metrics that are means
    of arrays, as fairseq's own F1 and Matthews correlation. None of them can run code or reach a
    file.
    """
    named: Dict[str, Any] = {"argparse.Namespace": argparse.Namespace}
    try:
        import numpy as np
    except ImportError:  # torch works without it, and so must a checkpoint without its arrays
        return named
    named.update({"numpy.ndarray": np.ndarray, "numpy.dtype": np.dtype})
    for name in METRIC_DTYPES:
        dtype = type(np.dtype(name))
        named[f"{dtype.__module__}.{dtype.__qualname__}"] = dtype
    constructors: Any = (np.zeros(0).__reduce__()[0], np.float64(0).__reduce__()[0])
    for constructor in constructors:
        # numpy 2 moved them: each host must read the checkpoints of the other
        for package in ("numpy.core", "numpy._core"):
            named[f"{package}.multiarray.{constructor.__name__}"] = constructor
    return named


def loads_weights_only() -> bool:
    """Whether this torch has ``weights_only`` loading by default, with an allow-list to extend."""
    return tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6)


def allow_fairseq_checkpoints() -> None:
    """Let ``torch.load`` read fairseq's checkpoints with safe loading on; idempotent.

    fairseq calls ``torch.load`` itself, in fairseq-generate and when it resumes. On torch < 2.6
    there is nothing to allow: fairseq's own calls unpickle freely there.
    """
    if loads_weights_only():
        torch.serialization.add_safe_globals(
            [(value, name) for name, value in safe_globals().items()]
        )


class _RestrictedUnpickler(pickle.Unpickler):
    """What ``weights_only`` with our allow-list would be on a torch that has no allow-list."""

    def find_class(self, module: str, name: str) -> Any:
        from torch._weights_only_unpickler import _get_allowed_globals

        allowed = {**_get_allowed_globals(), **safe_globals(), "_codecs.encode": codecs.encode}
        try:
            return allowed[f"{module}.{name}"]
        except KeyError:
            raise pickle.UnpicklingError(f"unsupported GLOBAL {module}.{name}") from None


def _safe_loading() -> Dict[str, Any]:
    """The arguments that make this torch's ``torch.load`` safe."""
    if loads_weights_only():
        return {"weights_only": True}

    def load(file: Any, **options: Any) -> Any:
        return _RestrictedUnpickler(file, **options).load()

    module = types.SimpleNamespace(
        __name__="restricted_pickle", Unpickler=_RestrictedUnpickler, load=load
    )
    return {"pickle_module": module, "weights_only": False}


def _check_container(path: Path) -> None:
    """Raise for a file whose outside shows already that it holds no checkpoint."""
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder, not a checkpoint: name a file in it")
    try:
        with open(path, "rb") as file:
            opening = file.read(len(LEGACY_MAGIC))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: there is no such checkpoint: check the path") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    if not opening:
        raise CheckpointError(f"{path} is empty: copy or train it again")
    if opening.startswith(ZIP_MAGIC):
        if not zipfile.is_zipfile(path):
            raise CheckpointError(f"{path} is truncated: copy or train it again")
        with zipfile.ZipFile(path) as archive:
            files = {name.rpartition("/")[2] for name in archive.namelist()}
        # an older torch.load would hand it to the TorchScript interpreter
        if "data.pkl" not in files or "constants.pkl" in files:
            raise CheckpointError(f"{path} is an archive, but no checkpoint written by torch.save")
    elif opening != LEGACY_MAGIC:
        raise CheckpointError(f"{path} is not a checkpoint written by torch.save")


def load_checkpoint(path: PathLike, map_location: Any = "cpu") -> Dict[str, Any]:
    """Read a fairseq checkpoint; nothing in the file can run code, on any torch.

    Args:
        path: a file written by ``torch.save`` (zip, or the format of torch < 1.6).
        map_location: as in ``torch.load``.

    Returns:
        The checkpoint's dictionary; ``["model"]`` maps parameter names to tensors.

    Raises:
        CheckpointError: the file is missing, truncated, damaged, no fairseq checkpoint, or holds a
            global that is not allowed.
    """
    path = Path(path)
    _check_container(path)
    allow_fairseq_checkpoints()
    try:
        state = torch.load(str(path), map_location=map_location, **_safe_loading())
    except Exception as error:  # a damaged pickle can raise anything
        raise CheckpointError(f"{path} {_complaint(error)}") from None
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise CheckpointError(f"{path} holds no model: not a checkpoint of fairseq-train")
    return state


def _complaint(error: Exception) -> str:
    """What is wrong with a file for which ``torch.load`` raised ``error``."""
    text = str(error)
    forbidden = re.search(r"GLOBAL (\S+)", text)
    if isinstance(error, pickle.UnpicklingError) and forbidden:
        return (
            f"holds {forbidden[1]}, which no fairseq checkpoint needs and which could run code: "
            "it is not loaded; take it from a source you trust"
        )
    reason = next((line for line in text.splitlines() if line), "the file ends too early")
    return f"is truncated or damaged ({reason}): copy or train it again"


def save_checkpoint(state: Dict[str, Any], path: PathLike) -> None:
    """Write a checkpoint that is whole or absent, whenever the process is killed.

    Args:
        state: what :func:`load_checkpoint` returns.
        path: where it goes; an older file is replaced at once, and kept when writing fails.

    Raises:
        CheckpointError: the folder is missing or cannot be written.
    """
    path = Path(path)
    # the process number keeps two writers of one checkpoint apart
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(beside, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(
                file.fileno()
            )  # else the new name can survive a crash that its content does not
        os.replace(beside, path)
    except (OSError, RuntimeError) as error:  # torch's writer turns a full disk into the latter
        raise CheckpointError(f"{path} cannot be written: {error}") from None
    finally:
        with contextlib.suppress(OSError):  # it is gone when all went well
            beside.unlink()
