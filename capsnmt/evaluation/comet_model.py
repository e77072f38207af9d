"""COMET (Rei et al. 2020) with a model on this disk, where ``unbabel-comet`` is installed.

**D**: nothing is downloaded. The model is a checkpoint file, and the libraries that COMET loads are
set offline, so the encoder that the checkpoint's ``hparams.yaml`` names must be in the cache of
Hugging Face or be a folder.

**D**: scores are computed in fp32, while ``comet-score`` computes them in half precision. The
signature names all that changes a score (Zouhar et al. 2024): package, model, precision.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Dict, Sequence

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.environment import environment
from capsnmt.evaluation.outputs import Output
from capsnmt.evaluation.segment_scores import SegmentScores, check_scores
from capsnmt.evaluation.settings import Comet
from capsnmt.files import hexdigest, installed_version

PACKAGE = "unbabel-comet"
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
HEX_DIGITS = 12  # of the model's checksum, in the signature


def check_comet(settings: Comet) -> None:
    """Raise unless COMET is installed and the model is a checkpoint with its settings.

    Raises:
        ConfigurationError: naming what is missing.
    """
    flag, path = f"--comet-model {settings.model}", settings.model
    if importlib.util.find_spec("comet") is None:
        raise _not_installed()
    if not path.is_file():
        raise ConfigurationError(
            f"{flag}: there is no such file: give the checkpoint, checkpoints/model.ckpt in the "
            "folder of a downloaded model"
        )
    hyperparameters = path.absolute().parents[1] / "hparams.yaml"
    if not hyperparameters.is_file():
        raise ConfigurationError(
            f"{flag}: there is no {hyperparameters}, which describes the model: restore the "
            "layout MODEL/hparams.yaml, MODEL/checkpoints/model.ckpt"
        )


def comet_scores(
    settings: Comet, source: Sequence[str], reference: Sequence[str], outputs: Sequence[Output]
) -> SegmentScores:
    """Score every segment of all outputs.

    Args:
        settings: the model, and how to run it; they pass :func:`check_comet`.
        source: raw source.
        reference: raw reference; models for quality estimation do not read it.
        outputs: outputs of all systems.

    Raises:
        ConfigurationError: the package or an encoder is missing, or the model cannot be loaded.
    """
    values: Dict[str, Sequence[float]] = {}
    # COMET's progress bar is written to the standard output, which is for our results
    with environment(OFFLINE), redirect_stdout(sys.stderr):
        model = _load(settings.model)
        for output in outputs:
            samples = [
                {"src": text, "mt": translation, "ref": target}
                for text, translation, target in zip(source, output.hypotheses, reference)
            ]
            predicted = model.predict(
                samples, batch_size=settings.batch_size, gpus=1 if settings.gpu else 0
            )
            name = f"{settings.model} on {output.label}"
            values[output.label] = check_scores(list(predicted.scores), name, len(samples))
    return SegmentScores(settings.metric, signature(settings), values)


def signature(settings: Comet) -> str:
    """Return what the scores depend on, in the form of sacreBLEU's signatures."""
    checksum = hexdigest(settings.model, "sha256")[:HEX_DIGITS]
    version = installed_version(PACKAGE) or "unknown"
    return f"model:{settings.model.name}|sha256:{checksum}|precision:fp32|version:{version}"


def _load(path: Path) -> Any:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        from comet import load_from_checkpoint
    except ImportError:
        raise _not_installed() from None
    finally:
        # importing COMET makes every library's messages visible
        root.handlers[:] = handlers
        root.setLevel(level)
    try:
        return load_from_checkpoint(str(path))
    except Exception as error:  # COMET raises Exception itself, and its libraries many classes
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfigurationError(
            f"--comet-model {path}: COMET cannot load it offline: {lines[0]}"
        ) from None


def _not_installed() -> ConfigurationError:
    return ConfigurationError(
        f"--comet-model needs COMET: pip install {PACKAGE}, or score in an environment that has "
        "it, and give --segment-scores"
    )
