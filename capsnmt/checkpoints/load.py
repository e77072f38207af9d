"""Safe checkpoints: what torch may unpickle, and files that are complete or absent.

A fairseq checkpoint is a pickle that holds more than tensors: an ``argparse.Namespace`` (the
model's arguments, unless the run was configured by hydra), and numpy arrays and scalars wherever a
metric logged some (``--eval-bleu`` logs its n-gram counts). torch >= 2.6 refuses both by default;
older versions unpickle anything, including code. Here all versions do the same: they load
what torch's own ``weights_only`` allows and :func:`safe_globals`, nothing else.
"""

import argparse
import codecs
import errno
import hashlib
import itertools
import logging
import os
import pickle
import re
import types
import zipfile
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Union

import torch

from capsnmt.cli import ConfigurationError
from capsnmt.files import replacing

logger = logging.getLogger(__name__)

PathLike = Union[str, "os.PathLike[str]"]
SIDES = ("source_lang", "target_lang")
# what our models add to fairseq's state of a task: the words of each side, as words_of gives them
WORDS = "words"

# numpy types of the arrays and scalars that metrics leave in a checkpoint
METRIC_DTYPES = ("int64", "float32", "float64")
# entries of fairseq's model state that are not learned
UNSET = "_float_tensor"
BUFFERS = ("version", UNSET, "coefficients")
# the parameters that fairseq ties
EMBEDDINGS = ("embed_tokens.weight", "output_projection.weight")
# entries of a checkpoint and what each is, unless it is None
PARTS: Dict[str, type] = {
    **{"args": argparse.Namespace, "cfg": dict, "task_state": dict, "extra_state": dict},
    **{"optimizer_history": list, "last_optimizer_state": dict},
}
# Files that only a training's first start reads. Later the model has its own checkpoint, perhaps on
# a machine without them.
STARTS = ("init_from", "probe_checkpoint", "encoder_embed_path", "decoder_embed_path")
# by what tensors of the same names and shapes compute something else, with whose tensors they are
COMPUTING = {
    "encoder_attention_heads": "encoder.layers.",
    "decoder_attention_heads": "decoder.layers.",
    "encoder_normalize_before": "encoder.layers.",
    "decoder_normalize_before": "decoder.layers.",
    "activation_fn": "",
    "no_scale_embedding": "",
    "no_token_positional_embeddings": "",
    "cross_self_attention": "decoder.layers.",
}
# What only training uses; a trained model is loaded without it.
WITHOUT_TRAINING: Dict[str, Any] = {
    **{"checkpoint_activations": False, "offload_activations": False},
    **dict.fromkeys(STARTS),
}


class CheckpointError(ConfigurationError):
    """A checkpoint that cannot be used; the message names the file, the fault and the fix."""


class DamagedError(CheckpointError):
    """A file that is not complete as torch writes it."""


class UnreadError(CheckpointError):
    """A file that may be whole, and is not read now: for want of memory, of a disk, of rights."""


def safe_globals() -> Dict[str, Any]:
    """Return pickled name -> object of everything in fairseq's checkpoints beyond torch's own.

    The list was found by training on both hosts, by argparse and by hydra, plain and with
    ``--eval-bleu``, ``--store-ema`` and ``reduce_lr_on_plateau``. numpy's scalars come from metrics
    that are means of arrays, such as fairseq's own F1 and Matthews correlation. None of these
    objects can run code or open a file.
    """
    named: Dict[str, Any] = {"argparse.Namespace": argparse.Namespace}
    try:
        import numpy as np
    except ImportError:  # torch works without numpy, and so does a checkpoint without arrays
        return named
    named.update({"numpy.ndarray": np.ndarray, "numpy.dtype": np.dtype})
    for name in METRIC_DTYPES:
        dtype = type(np.dtype(name))
        named[f"{dtype.__module__}.{dtype.__qualname__}"] = dtype
    constructors: Any = (np.zeros(0).__reduce__()[0], np.float64(0).__reduce__()[0])
    for constructor in constructors:
        # numpy 2 moved them, and each host must read the checkpoints of the other
        for package in ("numpy.core", "numpy._core"):
            named[f"{package}.multiarray.{constructor.__name__}"] = constructor
    return named


def loads_weights_only() -> bool:
    """Return whether torch loads ``weights_only`` by default, with an allow-list to extend."""
    return tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6)


def allow_fairseq_checkpoints() -> None:
    """Let ``torch.load`` read fairseq's checkpoints with safe loading on. Idempotent.

    fairseq calls ``torch.load`` itself, in fairseq-generate and when it resumes. On torch < 2.6
    there is nothing to allow, because fairseq's own calls unpickle anything.
    """
    if loads_weights_only():
        torch.serialization.add_safe_globals(
            [(value, name) for name, value in safe_globals().items()]
        )


class _RestrictedUnpickler(pickle.Unpickler):
    """``weights_only`` loading with our allow-list, for a torch that has no allow-list."""

    def find_class(self, module: str, name: str) -> Any:
        from torch._weights_only_unpickler import _get_allowed_globals

        allowed = {**_get_allowed_globals(), **safe_globals(), "_codecs.encode": codecs.encode}
        try:
            return allowed[f"{module}.{name}"]
        except KeyError:
            raise pickle.UnpicklingError(f"unsupported GLOBAL {module}.{name}") from None


def _safe_loading() -> Dict[str, Any]:
    if loads_weights_only():
        return {"weights_only": True}

    def load(file: Any, **options: Any) -> Any:
        return _RestrictedUnpickler(file, **options).load()

    module = types.SimpleNamespace(
        __name__="restricted_pickle", Unpickler=_RestrictedUnpickler, load=load
    )
    return {"pickle_module": module, "weights_only": False}


def load_checkpoint(path: PathLike) -> Dict[str, Any]:
    """Load a fairseq checkpoint. Nothing in the file can run code, with any version of torch.

    ``["model"]`` of what it returns maps parameter names to tensors.
    """
    allow_fairseq_checkpoints()
    try:
        with open(path, "rb") as file:  # torch takes no name that is not UTF-8
            if zipfile.is_zipfile(file):
                names = zipfile.ZipFile(file).namelist()
                # an older torch.load would run the code of a TorchScript archive
                if any(name.endswith("/constants.pkl") for name in names):
                    raise pickle.UnpicklingError
            file.seek(0)
            state = torch.load(file, map_location="cpu", **_safe_loading())
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such checkpoint; check the path") from None
    except Exception as error:  # a damaged pickle can raise anything
        forbidden = re.search(r"GLOBAL (\S+)", str(error))
        if forbidden:
            raise CheckpointError(
                f"{path} holds {forbidden[1]}, which no fairseq checkpoint needs and which could "
                "run code: it is not loaded; get it from a source you trust"
            ) from None
        if isinstance(error, (MemoryError, OSError)) or "allocate memory" in str(error):
            fault = getattr(error, "strerror", None) or "out of memory"
            raise UnreadError(
                f"{path} cannot be loaded ({fault}); check the path, the disk and the memory"
            ) from None
        raise DamagedError(
            f"{path} cannot be loaded: it is damaged, or not written by torch.save: copy it again, "
            "or check the path"
        ) from None
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise CheckpointError(f"{path} holds no model: not saved by fairseq-train")
    for part, kind in PARTS.items():
        if not isinstance(state.get(part), (kind, type(None))):
            raise CheckpointError(f"{path} holds no usable {part}: not saved by fairseq-train")
    if not all(isinstance(name, str) for name in state["model"]):
        raise CheckpointError(f"{path} holds a tensor without a name: not saved by fairseq-train")
    _tie(state["model"])
    return state


def _tie(model: Dict[str, Any]) -> None:
    """Make tied embeddings one tensor again: fairseq copies a model from a GPU one by one."""
    embeddings = [
        name
        for name, value in model.items()
        if name.endswith(EMBEDDINGS) and isinstance(value, torch.Tensor)
    ]
    for first, other in itertools.combinations(embeddings, 2):
        if model[first].dtype == model[other].dtype and torch.equal(model[first], model[other]):
            model[other] = model[first]


def check_finite(
    model: Mapping[str, Any],
    path: PathLike,
    fix: str = "give an earlier checkpoint, or train again with a lower learning rate",
) -> None:
    """Raise unless all weights of a checkpoint's model are finite: nothing else would say so."""
    for name, value in model.items():
        # not what fairseq's sinusoidal positions save of one number that they never set or read
        is_read = isinstance(value, torch.Tensor) and not name.endswith(UNSET)
        try:
            finite = not is_read or bool(torch.isfinite(value).all())
        except RuntimeError:  # of a sparse, quantised or meta tensor
            raise CheckpointError(
                f"{path}: {name} is no plain tensor: not saved by fairseq-train"
            ) from None
        if not finite:
            raise CheckpointError(
                f"{path}: {name} has NaN or infinite weights, as the training diverged; {fix}"
            )


def load_trained(path: PathLike) -> Dict[str, Any]:
    """Load a checkpoint that has the settings of its model, ``cfg`` or ``args``."""
    state = load_checkpoint(path)
    if state.get("cfg") is None and state.get("args") is None:
        raise CheckpointError(
            f"{path} has no settings of its model (cfg or args), only weights; give a checkpoint "
            "of fairseq-train"
        )
    return state


def dictionary_of(settings: Any, side: str) -> Path:
    """Return the dictionary of a task by its settings; ``side`` is one of ``SIDES``."""
    folder = str(getattr(settings, "data", "")).split(os.pathsep)[0]
    of_probing = getattr(settings, "dictionary", None) if side == SIDES[0] else None
    return Path(of_probing or Path(folder, f"dict.{getattr(settings, side, None)}.txt"))


def words_of(dictionary: Path) -> Optional[str]:
    """Return the SHA-256 of the words of a dictionary in order, if there is such a file."""
    if not dictionary.is_file():
        return None
    words = (line.rpartition(b" ")[0] for line in dictionary.read_bytes().splitlines())
    return hashlib.sha256(b"\n".join(words)).hexdigest()


def check_dictionary(known: Mapping[str, Any], trained: Any, side: str, now: Path) -> None:
    """Warn if a model was trained with another dictionary than the one that is read now.

    Its matrices hold no words: they load with any other dictionary of the same size. ``known`` is
    fairseq's state of the training's task, ``trained`` its settings. The state of a stock
    checkpoint has no words; its dictionary is read where it still is.
    """
    file = dictionary_of(trained, side)
    before, words = in_group(known.get(WORDS)).get(side) or words_of(file), words_of(now)
    if before and words and before != words:
        logger.warning(
            "the model was trained with %s%s, and %s is another dictionary",
            *("an earlier " if file == now else "", file, now),
        )


def settings_of(state: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the settings of a checkpoint's training by name, of all groups.

    Those of the task count first: fairseq infers its languages, which the model's group may lack.
    """
    found: Dict[str, Any] = {}
    groups = state.get("cfg") or {"args": state.get("args")}
    for group in (*groups.values(), groups.get("task")):
        settings = in_group(group)
        found.update({key: x for key, x in settings.items() if x is not None or key not in found})
    return found


def in_group(group: Any) -> Mapping[str, Any]:
    """Return the settings of one group by name: of what has no dataclass it is a namespace."""
    if isinstance(group, argparse.Namespace):
        return vars(group)
    return group if isinstance(group, Mapping) else {}


def count_parameters(path: PathLike) -> int:
    """Count the learned parameters of a checkpoint's model."""
    return count_learned(load_checkpoint(path)["model"])


def count_learned(model: Dict[str, Any]) -> int:
    """Count the learned parameters in the state of a model; tied ones count once."""
    learned: Dict[int, int] = {
        tensor.data_ptr(): tensor.numel()
        for name, tensor in model.items()
        if isinstance(tensor, torch.Tensor) and name.rsplit(".", 1)[-1] not in BUFFERS
    }
    return sum(learned.values())


def save_checkpoint(state: Dict[str, Any], path: Path) -> None:
    """Write a checkpoint that is complete or absent, even if the process is killed."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:  # in its place torch raises what it makes of a full disk
            fault = str(error).splitlines()[0]
            raise OSError(errno.EIO, f"torch cannot write it ({fault})", str(path)) from None
        file.flush()
        os.fsync(file.fileno())  # otherwise the new name may survive a crash and its content not


def model_classes(model: Any) -> Dict[str, type]:
    """Return the names by which fairseq may build a model of a checkpoint's settings, with classes.

    **D**: whoever builds a model checks them first, as fairseq evaluates settings of many other
    models as Python. It takes ``_name`` before ``arch``.
    """
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY

    given = [name for name in (model.get("_name"), model.get("arch")) if name is not None]
    return {
        name: ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name) or type
        for name in map(str, given or [None])
    }
