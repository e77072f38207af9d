"""Loading trained models for translation: one, or several as an ensemble."""

from __future__ import annotations

import io
import os
import sys
from argparse import Namespace
from contextlib import redirect_stderr
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Collection, Dict, Mapping, Optional, Sequence, Set, Union

import torch
from fairseq import checkpoint_utils, tasks

from capsnmt.checkpoints.load import WITHOUT_TRAINING, load_trained
from capsnmt.cli import ConfigurationError, require, shown
from capsnmt.runs.folder import RunFolder
from capsnmt.runs.records import SENTENCE_TASKS
from capsnmt.translate.trained import TrainedModel, find_model
from capsnmt.translate.translator import Translator

# fairseq's default of ``checkpoint_file``
MODEL_FILE = "model.pt"
MAX_TOKENS = 4096
# **D**: what only training uses is switched off; batches are those of translation.
OVERRIDES: Dict[str, Any] = {
    **WITHOUT_TRAINING,
    "eval_bleu": False,
    "max_tokens": MAX_TOKENS,
    "batch_size": None,
}

PathLike = Union[str, "os.PathLike[str]"]


def from_run(
    runs: Union[PathLike, Sequence[PathLike]],
    data: Optional[PathLike] = None,
    device: str = "cpu",
    **overrides: Any,
) -> Any:
    """Load the model of a finished run with its dictionaries, tokeniser and subwords.

    Args:
        runs: the folder of a run, or a checkpoint; several are an ensemble.
        data: the folder of capsnmt-prepare; by default that of the first run.
        device: ``cpu``, ``cuda``, or ``auto`` for a GPU if there is one.
        overrides: settings of fairseq that differ from those of the training and of the run's
            generation, such as ``beam``, ``lenpen``, ``max_tokens`` or ``autocast``.

    Returns:
        A :class:`~capsnmt.translate.translator.Translator` in evaluation mode.

    Raises:
        ConfigurationError: a run, checkpoint or its data cannot be used, runs do not fit together,
            a library is not installed, or there is no GPU.
    """
    require("data")
    paths = [runs] if isinstance(runs, (str, os.PathLike)) else list(runs)
    place = chosen_device(device)
    found = [find_model(Path(path), None if data is None else Path(data)) for path in paths]
    for other in found[1:]:
        _check_ensemble(found[0], other)
    known = {*found[0].text.settings, "autocast"}  # older checkpoints lack it
    for model in found:
        known.update(_check_parameters(model.checkpoint))
    check_settings(overrides, known)
    first = found[0]
    settings = {
        **first.generation,
        **OVERRIDES,
        "data": str(first.data.binarised),
        **first.text.settings,
        **overrides,
    }
    models, cfg, task = _load(found, settings)
    if not isinstance(task, tasks.translation.TranslationTask):
        raise ConfigurationError(
            f"{first.checkpoint}: its task is {cfg.task._name}, not translation"
        )
    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            translator = Translator(cfg, task, [model.to(place) for model in models])
    except ConfigurationError:
        raise
    except (ValueError, RuntimeError, SystemExit) as error:  # subword-nmt prints, and exits
        fault = " ".join((printed.getvalue() or str(error)).split())[:200]
        raise ConfigurationError(
            f"{first.text.model}: its subwords cannot be read ({fault}): prepare the data again"
        ) from None
    sys.stderr.write(printed.getvalue())
    return translator.to(place).eval()


def _load(found: Sequence[TrainedModel], settings: Dict[str, Any]) -> Any:
    """Load the models as fairseq-generate does.

    Raises:
        ConfigurationError: the tensors of a checkpoint do not fit its settings or dictionaries.
    """
    paths = [str(model.checkpoint) for model in found]
    try:
        return checkpoint_utils.load_model_ensemble_and_task(paths, arg_overrides=settings)
    except ConfigurationError:
        raise
    except (KeyError, ValueError, RuntimeError) as error:
        fault = " ".join(str(error).split())[:200]
        raise ConfigurationError(
            f"{', '.join(paths)}: cannot be loaded with the dictionaries in {settings['data']} "
            f"({fault}): give the data of the training (--data)"
        ) from None


def check_settings(given: Mapping[str, Any], known: Collection[str] = ()) -> None:
    """Raise unless settings are known, and the beam is one.

    Args:
        given: the settings.
        known: the names of all settings; empty for any.

    Raises:
        ConfigurationError: naming the setting.
    """
    for name in given:
        if known and name not in known:
            similar = " or ".join(get_close_matches(name, sorted(known))) or "one that fairseq has"
            raise ConfigurationError(f"{name}: there is no such setting: give {similar}")
    beam = given.get("beam", 1)
    if not isinstance(beam, int) or beam < 1:
        raise ConfigurationError(f"beam: {shown(beam)}: give a whole number, 1 or more")


def _check_parameters(checkpoint: Path) -> Set[str]:
    """Check that a checkpoint is safe and its parameters are finite.

    Returns:
        The names of its settings.

    Raises:
        ConfigurationError: the file could run code, which fairseq would not refuse, or is damaged,
            or a parameter is not finite, with which fairseq's search ends in a traceback.
    """
    state = _load_translating(checkpoint)
    for name, tensor in state["model"].items():
        if torch.is_tensor(tensor) and not tensor.isfinite().all():
            raise ConfigurationError(
                f"{checkpoint}: {name} is not finite: its training diverged: use another checkpoint"
            )
    groups = state["cfg"].values() if state.get("cfg") else [state["args"]]
    settings = (vars(group) if isinstance(group, Namespace) else group for group in groups)
    return {name for group in settings if isinstance(group, Mapping) for name in group}


def _check_ensemble(first: TrainedModel, other: TrainedModel) -> None:
    """Raise unless two models translate the same subwords.

    Raises:
        ConfigurationError: naming the file or setting that differs.
    """
    one, two = first.text, other.text
    pairs = ["-".join(text.languages) for text in (one, two)]
    if pairs[0] != pairs[1]:
        raise ConfigurationError(
            f"{other.checkpoint}: translates {pairs[1]}, but {first.checkpoint} {pairs[0]}: an "
            "ensemble needs runs of one language pair"
        )
    files = [(one.model, two.model)]
    files += [
        (first.data.dictionary(language), other.data.dictionary(language))
        for language in one.languages
    ]
    for mine, its in files:
        if mine.read_bytes() != its.read_bytes():
            raise ConfigurationError(
                f"{its}: differs from {mine}: an ensemble needs runs on the same data"
            )
    if (one.tokenisers, one.method) != (two.tokenisers, two.method):
        raise ConfigurationError(
            f"{other.data.folder}: is tokenised or segmented in another way than "
            f"{first.data.folder}: an ensemble needs runs on the same data"
        )


def chosen_device(device: str) -> str:
    """Return ``cpu`` or ``cuda``; for ``auto``, ``cuda`` if there is a GPU.

    Raises:
        ConfigurationError: there is no GPU.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError("--device cuda: torch finds no GPU: use --device cpu or auto")
    return "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"


def is_run(path: PathLike, checkpoint_file: str) -> bool:
    """Return whether the arguments of ``from_pretrained`` name a run, not a checkpoint in a folder.

    Raises:
        ConfigurationError: there is neither.
    """
    if checkpoint_file != MODEL_FILE or "://" in str(path):
        return False
    folder = RunFolder(Path(path))
    if folder.exists:
        return True
    if folder.path.is_file() or (folder.path / MODEL_FILE).is_file():
        return False
    raise ConfigurationError(
        f"{folder}: holds neither a run (config.json) nor {MODEL_FILE}: give OUTPUT/ROW/seed-S, or "
        "a folder and checkpoint_file"
    )


def check_checkpoints(folder: PathLike, checkpoint_file: str) -> None:
    """Raise if a checkpoint in a local folder could run code, or cannot be read.

    Raises:
        CheckpointError: naming the file and its fault.
    """
    if not os.path.isdir(folder):  # fairseq downloads or unpacks it
        return
    for name in checkpoint_file.split(os.pathsep):
        _load_translating(Path(folder) / name)


def _load_translating(path: Path) -> Dict[str, Any]:
    """Load a checkpoint safely.

    Raises:
        ConfigurationError: it cannot be loaded, or its model classifies sentences.
    """
    state = load_trained(path)
    task = state["args"].task if state.get("args") else (state["cfg"]["task"] or {}).get("_name")
    if task in SENTENCE_TASKS:
        raise ConfigurationError(
            f"{path}: its task is {task}, not translation: python -m "
            "capsnmt.sentences.evaluate evaluates it"
        )
    return state
