"""Initialising a model from the checkpoint of another (``--init-from``), and what then differs."""

import logging
import re
from argparse import Namespace
from pathlib import Path
from typing import Any, Callable, Collection, Dict, Iterable, Mapping

import torch
import torch.nn as nn
from omegaconf import OmegaConf

from capsnmt.checkpoints.load import (
    COMPUTING,
    SIDES,
    STARTS,
    check_dictionary,
    dictionary_of,
    load_checkpoint,
    settings_of,
)
from capsnmt.checkpoints.resume import LAST
from capsnmt.cli import ConfigurationError
from capsnmt.host import patch

logger = logging.getLogger(__name__)

# one for each shard of a model; checkpoint_last_old.pt, a copy that a user keeps, is not read
LASTS = re.compile(r"checkpoint_last(-.+)?\.pt")

Changed = Callable[[Any, Any], Iterable[str]]
"""What yields the switches by which a model computes something else, of two settings."""


def resumes(args: Any) -> bool:
    """Return whether fairseq will load a checkpoint of the training over a new model.

    ``args`` are all arguments of fairseq-train, or the group ``model`` of fairseq-hydra-train.
    """
    settings = args
    if OmegaConf.is_config(args):
        root = args._get_root()
        settings = root.checkpoint if "checkpoint" in root else None
    folder, file = getattr(settings, "save_dir", None), getattr(settings, "restore_file", None)
    if folder is None or file is None:
        return False
    if file != LAST:  # fairseq's default
        return Path(file).exists()
    return any(LASTS.fullmatch(path.name) for path in Path(folder).glob("*.pt"))


def forget_starts(settings: Any) -> None:
    """Take from a model's settings, which fairseq saves with it, the files that it started from."""
    for name in STARTS:
        if getattr(settings, name, None) is not None:
            setattr(settings, name, None)


def warn_of_differences(
    start: str,
    checkpoint: Mapping[str, Any],
    names: Collection[str],
    args: Any,
    task: Any,
    changed: Changed,
) -> None:
    """Warn of dictionaries and settings with which a checkpoint's tensors mean something else.

    ``names`` are those of the tensors that are loaded, ``args`` the settings of the model.
    """
    known, settings = checkpoint.get("task_state") or {}, Namespace(**settings_of(checkpoint))
    for side in SIDES:
        check_dictionary(known, settings, side, dictionary_of(getattr(task, "cfg", None), side))
    for name, first in [*COMPUTING.items(), *((each, "") for each in changed(settings, args))]:
        before, now = getattr(settings, name, None), getattr(args, name, None)
        read = any(each.startswith(first) for each in names)
        if read and None not in (before, now) and before != now:
            logger.warning(
                "%s: it was trained with --%s %s, and now it is %s: the same tensors compute "
                "something else",
                *(start, name.replace("_", "-"), before, now),
            )


def warn_where_training_starts(changed: Changed) -> None:
    """Patch fairseq's trainer, which goes on from any checkpoint whose tensors have the sizes.

    So do ``--finetune-from-model``, ``--restore-file`` and a training that resumes.
    """
    from fairseq import checkpoint_utils
    from fairseq.tasks import FairseqTask
    from fairseq.trainer import Trainer

    read = checkpoint_utils.load_checkpoint_to_cpu

    @patch(Trainer, "load_checkpoint")
    def load_checkpoint(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        def read_and_warn(path: Any, *args: Any, **kwargs: Any) -> Any:
            state = read(path, *args, **kwargs)
            cfg, names = state.get("cfg"), state.get("model") or ()
            known = {**state, "cfg": cfg and OmegaConf.to_container(cfg)}
            if type(self.task).load_state_dict is not FairseqTask.load_state_dict:
                # it may refuse what fairseq saves of it, and compares with nothing
                self.task.load_state_dict(state.get("task_state") or {})
            warn_of_differences(str(path), known, names, self.cfg.model, self.task, changed)
            return state

        checkpoint_utils.load_checkpoint_to_cpu = read_and_warn
        try:
            return original(self, *args, **kwargs)
        finally:
            checkpoint_utils.load_checkpoint_to_cpu = read


def initialise_from(model: nn.Module, args: Any, task: Any, changed: Changed) -> None:
    """Load every tensor whose name and shape match, and log the parameters that stay fresh.

    Dou et al. (2019) train their layer aggregation from a trained baseline in this way. ``args``
    are the settings of the model, with the path.
    """
    path = args.init_from
    try:
        checkpoint = load_checkpoint(path)
    except (ValueError, KeyError) as error:
        raise ConfigurationError(f"--init-from: {error}") from None
    state = checkpoint["model"]
    model.upgrade_state_dict(state)
    own = model.state_dict()
    matching = {
        name: tensor
        for name, tensor in state.items()
        if isinstance(tensor, torch.Tensor) and name in own and tensor.shape == own[name].shape
    }
    learned = [name for name, _ in model.named_parameters()]
    fresh = [name for name in learned if name not in matching]
    if len(fresh) == len(learned):
        raise ConfigurationError(
            f"--init-from {path}: none of its {len(state)} tensors has the name and shape of a "
            "tensor of this model; give a Transformer of the same size and dictionary"
        )
    # not fairseq's load_state_dict, which does not allow missing tensors
    nn.Module.load_state_dict(model, matching, strict=False)
    logger.info(
        "--init-from %s: %d of %d tensors loaded", path, len(learned) - len(fresh), len(learned)
    )
    warn_of_differences(f"--init-from {path}", checkpoint, matching, args, task, changed)
    for name in fresh:
        logger.info("--init-from: fresh: %s", name)
        if name in state and name.endswith("embed_tokens.weight"):
            logger.warning(
                "--init-from %s: %s is not loaded: its subwords and features are %s there and %s "
                "here",
                *(path, name, [*state[name].shape], [*own[name].shape]),
            )
    firsts: Dict[int, str] = {}
    for other, parameter in model.named_parameters(remove_duplicate=False):
        one = firsts.setdefault(id(parameter), other)
        if one in state and other in state and not torch.equal(state[one], state[other]):
            logger.warning(
                "--init-from %s: %s and %s are one matrix here and two there; the last is taken",
                *(path, one, other),
            )
    # a routed layer has votes where the trained one had W^O
    projections = [name[: -len(".weight")] for name in state if name.endswith("out_proj.weight")]
    routed = [name.rpartition(".")[0] for name in projections if f"{name}.votes.weight" in own]
    if routed:
        logger.warning(
            "--init-from: routing replaces the trained W^O and starts at random in %s",
            ", ".join(routed),
        )
