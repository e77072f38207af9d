"""Loading a translation model for analysis: ours, or fairseq's Transformer as ours."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, Tuple

from fairseq import checkpoint_utils, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY, build_model
from fairseq.models.transformer import TransformerModel
from omegaconf import OmegaConf

import capsnmt.plugin  # noqa: F401  registers our architectures
from capsnmt.checkpoints.load import WITHOUT_TRAINING, load_trained
from capsnmt.cli import ConfigurationError
from capsnmt.models.architectures import MODEL
from capsnmt.models.transformer import CapsnmtTransformer

# D: the numbers are those of the model in fp32, whatever its training used.
OVERRIDES: Dict[str, Any] = {**WITHOUT_TRAINING, "autocast": "none"}


def load_translation_model(checkpoint: Path, data: Path) -> Tuple[CapsnmtTransformer, Any]:
    """Load a translation model in evaluation mode, with its task.

    fairseq's own ``transformer``, of any size, is loaded as ``capsnmt_transformer``, which has the
    same parameters under the same names.

    Args:
        checkpoint: a checkpoint of fairseq-train.
        data: a folder of binarised data with the dictionaries of the model.

    Returns:
        The model on the CPU, and a translation task on ``data``.

    Raises:
        ConfigurationError: the checkpoint cannot be read, its model is another one, or the
            dictionaries do not fit.
    """
    load_trained(checkpoint)  # refuses a file that could run code; fairseq itself does not
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint), {"data": str(data)})
    if state.get("args") is not None:
        cfg = convert_namespace_to_omegaconf(state["args"])
    else:
        cfg = state["cfg"]
    args = _arguments(cfg.model, checkpoint)
    task = _task(cfg.task, checkpoint, data)
    for side, dictionary in (
        ("encoder", task.source_dictionary),
        ("decoder", task.target_dictionary),
    ):
        embedding = state["model"].get(f"{side}.embed_tokens.weight")
        if embedding is not None and embedding.size(0) != len(dictionary):
            raise ConfigurationError(
                f"--data {data}: the {side}'s dictionary has {len(dictionary):,} entries, the "
                f"model of {checkpoint} has {embedding.size(0):,}: give the data of its training"
            )
    try:
        model = build_model(args, task)
        model.load_state_dict(state["model"], strict=True, model_cfg=args)
    except (RuntimeError, ValueError) as error:
        fault = " ".join(str(error).split())[:200]
        raise ConfigurationError(
            f"{checkpoint}: its model cannot be built with the dictionaries in {data} ({fault})"
        ) from None
    return model.eval(), task


def _arguments(settings: Any, checkpoint: Path) -> Namespace:
    """Return the flat arguments of a model that is ours or loads as ours.

    Raises:
        ConfigurationError: it is another model.
    """
    if isinstance(settings, Namespace):
        args = settings
    else:  # of fairseq-hydra-train, where fairseq's own Transformer has groups of options
        args = Namespace()
        for name, value in OmegaConf.to_container(settings, resolve=True).items():
            group = value if isinstance(value, dict) else {"": value}
            for option, setting in group.items():
                setattr(args, f"{name}_{option}" if option else name, setting)
    name = getattr(args, "arch", None) or getattr(args, "_name", None)
    model = ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)
    if model is TransformerModel:
        args.arch = MODEL
    elif model is not CapsnmtTransformer:
        raise ConfigurationError(
            f"{checkpoint}: its architecture is {name}: give a translation model of capsnmt, or "
            "one of fairseq's transformer"
        )
    vars(args).pop("_name", None)
    vars(args).update(OVERRIDES)
    return args


def _task(settings: Any, checkpoint: Path, data: Path) -> Any:
    """Return the task of a checkpoint, on other data.

    Raises:
        ConfigurationError: the folder has no dictionaries of its languages, or it is no
            translation.
    """
    if not data.is_dir():
        raise ConfigurationError(f"--data {data}: there is no such folder: give binarised data")
    try:
        task = tasks.setup_task(settings)
    except Exception as error:  # fairseq raises anything, even Exception itself, for a dictionary
        fault = " ".join(str(error).split())[:200]
        raise ConfigurationError(
            f"--data {data}: the dictionaries of {checkpoint} cannot be read ({fault}): give the "
            "folder of its binarised data"
        ) from None
    if not isinstance(task, tasks.translation.TranslationTask):
        raise ConfigurationError(
            f"{checkpoint}: its task is {getattr(settings, '_name', None)}: give a model of the "
            "translation task"
        )
    return task
