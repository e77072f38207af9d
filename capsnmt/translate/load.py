"""Trained translation models: their files, how their text was prepared, and loading them."""

import os
import re
from argparse import ArgumentParser, Namespace
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.models.transformer import TransformerConfig, TransformerModel
from fairseq.registry import REGISTRIES
from fairseq.tasks.translation import TranslationTask
from omegaconf import OmegaConf

from capsnmt.checkpoints.load import (
    SIDES,
    WITHOUT_TRAINING,
    check_finite,
    in_group,
    load_trained,
    model_classes,
    settings_of,
)
from capsnmt.cli import ConfigurationError, require, say, shown
from capsnmt.corpora.prepared import PreparedData
from capsnmt.files import bundled_folder, sha256
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.records import RunFolder
from capsnmt.translate.tokenizer import NAME
from capsnmt.translate.translator import Translator, check_settings

PathLike = Union[str, "os.PathLike[str]"]

MODEL_FILE = "model.pt"  # fairseq's default of ``checkpoint_file``
CARD = "README.md"  # beside a model of the project
BATCHES = {"max_tokens": 4096, "batch_size": None}  # of translation, not of the training
# **D**: where the run says nothing, so many subwords more than the source; fairseq ends at 200
LENGTHS = {"max_len_a": 1.0, "max_len_b": 200}
# fairseq's option for the model of the subwords
MODEL_OF_SUBWORDS = {"subword_nmt": "bpe_codes", "sentencepiece": "sentencepiece_model"}
# **D**: what only training uses is switched off, and this machine chooses the backend.
OVERRIDES: Dict[str, Any] = {**WITHOUT_TRAINING, "eval_bleu": False, "routing_backend": "auto"}
TRANSLATES = (
    "give a translation model of capsnmt, or fairseq's transformer, and by --user-dir the plugin "
    "of its training, if that was your own"
)
# settings that a checkpoint may lack: of the text, and of our model for one of fairseq's own
ADDED = {
    *("source_tokeniser", "target_tokeniser", "bpe_codes", "sentencepiece_model"),
    *("autocast", "routing_backend"),
}


@dataclass(frozen=True)
class TrainedModel:
    """A trained translation model."""

    checkpoint: Path
    data: PreparedData  # with the dictionaries
    text: Dict[str, Any]  # fairseq's settings that make subwords of raw text, and raw text of them
    generation: Mapping[str, Any] = field(default_factory=dict)  # of the run's configuration
    overrides: Mapping[str, Any] = field(default_factory=dict)  # of the model, by the same


def named(run: PathLike) -> Path:
    """Return the folder of a run, or that of the model of the project that is named."""
    path = Path(run)
    models = sorted((bundled_folder("trained") / path).glob(f"seed-*/{CARD}"))
    return models[0].parent if models and not path.exists() else path


def find_model(path: Path, folder: Optional[Path] = None) -> TrainedModel:
    """Find the files of a finished run, or of a checkpoint of fairseq-train.

    The folder is what ``capsnmt-prepare`` wrote; by default the data of the run's training.
    """
    path = named(path)
    if path.is_file():
        if folder is None:
            raise ConfigurationError(
                f"{path} is not the folder of a run; give its data by --data, the folder of "
                "capsnmt-prepare"
            )
        data, trained = PreparedData(folder), settings_of(load_translating(path))
        # those of the training, which fairseq's own model may have inferred
        sides = [trained.get(x) or y for x, y in zip(SIDES, data.read_manifest().languages)]
        return TrainedModel(path, data, text_settings(data, *sides))
    if not path.exists():
        models = bundled_folder("trained").glob(f"*/*/seed-*/{CARD}")
        names = sorted({"/".join(model.parts[-4:-2]) for model in models})
        known = f", or a model of the project: {', '.join(names)}" if names else ""
        raise ConfigurationError(f"{path}: no such run; give OUTPUT/ROW/seed-S{known}")
    run = FinishedRun(path)
    if run.settings.classifies:
        raise ConfigurationError(f"{path} classifies sentences; give a run that translates")
    data = PreparedData(folder or run.data)
    text = text_settings(data, *run.settings.languages)
    run.check_dictionaries(data.binarised)
    generation, flags = {}, {**run.settings.generate}
    flags.pop("model-overrides", None)
    for name, what in (("lm-path", "language model"), ("prefix-size", "parts of references")):
        if flags.pop(name, None):
            say(
                f"warning: {path} was scored with the {what} of generate.{name}, not used here; "
                f"the command in its commands.sh uses it"
            )
    parser = ArgumentParser()  # a flag may have several names: --remove-bpe is post_process
    options.add_dataset_args(parser, gen=True)
    options.add_generation_args(parser)
    for name, value in flags.items():
        flag = parser._option_string_actions.get(f"--{name}")
        kind: Any = getattr(flag, "type", None)  # of 6e-1, YAML makes a text
        given = kind(value) if kind and isinstance(value, str) else value
        generation[name.replace("-", "_") if flag is None else flag.dest] = given
    return TrainedModel(run.model, data, text, generation, run.settings.model_overrides)


def text_settings(data: PreparedData, source: str, target: str) -> Dict[str, Any]:
    """Return fairseq's settings of ``--tokenizer`` and ``--bpe`` for prepared data."""
    manifest = data.read_manifest()
    if not {source, target} <= manifest.tokenisers.keys() & manifest.models.keys():
        raise ConfigurationError(
            f"{data.folder} holds {manifest.pair or 'no languages'}, not {source}-{target}; give "
            "the data of the training by --data"
        )
    name = manifest.models[source]
    model, known = data.folder / name, manifest.files.get(name)
    if known is None or not model.is_file() or sha256(model) != known.sha256:
        raise ConfigurationError(
            f"{model} is not the model of subwords that the data were prepared with; restore it, "
            f"or delete {data.manifest} and prepare the data again"
        )
    return {
        "tokenizer": NAME,
        "source_lang": source,
        "target_lang": target,
        "source_tokeniser": manifest.tokenisers[source],
        "target_tokeniser": manifest.tokenisers[target],
        "bpe": manifest.subwords,
        MODEL_OF_SUBWORDS[manifest.subwords]: str(model),
    }


def prepared_as(model: TrainedModel) -> Dict[str, Any]:
    """Return what the subwords of a model depend on; files by their recorded checksums."""
    manifest = model.data.read_manifest()
    languages = model.text["source_lang"], model.text["target_lang"]
    names = [manifest.models[languages[0]], *(f"bin/dict.{each}.txt" for each in languages)]
    files = {name: manifest.files.get(name) for name in names}
    return {"language pair": languages, "tokenisers": manifest.tokenisers, **files}


def load_model(path: Path, data: Path, overrides: Mapping[str, Any]) -> Tuple[Any, Any, Any]:
    """Load a model on the CPU; return it, fairseq's configuration of it, and its task.

    fairseq's own ``transformer``, of any size, is loaded as ``capsnmt_transformer``, which has the
    same parameters under the same names. It is in evaluation mode. ``data`` is binarised, with the
    dictionaries of the model; ``overrides`` are settings that differ from the training's.
    """
    trained = load_translating(path)
    check_settings(overrides, ADDED.union(trained.get("cfg") or (), settings_of(trained)))
    try:
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path), {**OVERRIDES, **overrides})
    except LookupError as error:  # of a model alone
        raise ConfigurationError(
            f"{path} lacks {error}, which fairseq reads; give a checkpoint of fairseq-train"
        ) from None
    check_finite(state["model"], path)
    args = state.get("args")
    cfg = state["cfg"] if args is None else convert_namespace_to_omegaconf(args)
    _check_buildable(path, cfg.model, cfg.task._name)  # also what the overrides have changed
    cfg.task.data = str(data)  # the model's settings keep the training's
    try:
        task = tasks.setup_task(cfg.task)
        task.load_state_dict(state.get("task_state") or {})
        model = task.build_model(_as_ours(cfg.model))
        model.load_state_dict(state["model"], strict=True, model_cfg=cfg.model)
    except ConfigurationError:
        raise
    except Exception as error:  # fairseq raises anything, even Exception itself
        fault = " ".join(str(error).split())[:200]
        raise ConfigurationError(
            f"{path} cannot be loaded with the dictionaries in {data} ({fault}); give the "
            "data of its training by --data"
        ) from None
    return model.eval(), cfg, task


def load_translating(path: Path) -> Dict[str, Any]:
    """Load the checkpoint of a translation model safely, as fairseq does not."""
    state = load_trained(path)
    args, cfg = state.get("args"), state.get("cfg") or {}
    if args is not None:
        _check_buildable(path, args, getattr(args, "task", None))
    else:
        _check_buildable(path, cfg.get("model"), in_group(cfg.get("task")).get("_name"))
    return state


def _check_buildable(path: Path, model: Any, task: Any) -> None:
    """Raise unless a translation model of ours or fairseq's Transformer is built of the settings.

    **D**: fairseq evaluates settings of other models and tasks as Python; of these only the cutoff
    of the adaptive softmax, which must be numbers.
    """
    setup = getattr(tasks.TASK_REGISTRY.get(str(task)), "setup_task", None)
    if getattr(setup, "__func__", None) is not TranslationTask.setup_task.__func__:
        raise ConfigurationError(f"{path} has the task {task}; {TRANSLATES}")
    settings = in_group(OmegaConf.to_container(model) if OmegaConf.is_config(model) else model)
    ours = MODEL_REGISTRY["capsnmt_transformer"]
    for name, kind in model_classes(settings).items():
        if kind is not TransformerModel and not issubclass(kind, ours):
            raise ConfigurationError(f"{path} has the architecture {name}; {TRANSLATES}")
    cutoff = settings.get("adaptive_softmax_cutoff")
    if isinstance(cutoff, str) and not re.fullmatch(r"[\d\s,.()\[\]]*", cutoff):
        raise ConfigurationError(
            f"{path} has the adaptive-softmax-cutoff {shown(cutoff)}, which fairseq would run as "
            f"code; give numbers"
        )


def _as_ours(settings: Any) -> Any:
    """Return the settings of a model; of fairseq's own Transformer, as settings of ours."""
    name = getattr(settings, "arch", None) or getattr(settings, "_name", None)
    if (ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)) is not TransformerModel:
        return settings
    args = settings
    if not isinstance(args, Namespace):  # of fairseq-hydra-train
        options = asdict(TransformerConfig.from_namespace(settings))
        for group in ("encoder", "decoder", "quant_noise"):
            values = options.pop(group)
            options.update({f"{group}_{name}": value for name, value in values.items()})
        args = Namespace(**options)
    args.arch = args._name = "capsnmt_transformer"
    return args


def from_run(
    runs: Union[PathLike, Sequence[PathLike]],
    data: Optional[PathLike] = None,
    device: str = "cpu",
    **overrides: Any,
) -> Translator:
    """Load the model of a finished run with its dictionaries, tokeniser and subwords.

    Args:
        runs: the folder of a run, the name of a model of the project, or a checkpoint; several are
            an ensemble.
        data: the folder of capsnmt-prepare; by default the first run's.
        device: ``cpu``, ``cuda``, ``cuda:N``, or ``auto`` for a GPU if there is one.
        overrides: settings of fairseq that differ from the training's and the run's
            generation, such as ``beam``, ``lenpen``, ``max_tokens`` or ``autocast``.
    """
    require("data")
    place = chosen_device(str(device))
    paths = [runs] if isinstance(runs, (str, os.PathLike)) else runs
    found = [find_model(Path(path), None if data is None else Path(data)) for path in paths]
    first = found[0]
    for other in found[1:]:
        for what, value in prepared_as(first).items():
            if prepared_as(other).get(what) != value:
                raise ConfigurationError(
                    f"{other.checkpoint} has another {what} than {first.checkpoint}; give runs on "
                    "the same data"
                )
    lengths = {} if LENGTHS.keys() & {*first.generation, *overrides} else LENGTHS
    rest = {**BATCHES, **first.text, **overrides}
    models: List[Any] = []
    for each in found:
        settings = {**lengths, **first.generation, **each.overrides, **rest}
        model, cfg, task = load_model(each.checkpoint, first.data.binarised, settings)
        models.append(model.to(place))
    return Translator(cfg, task, models).to(place).eval()


def chosen_device(device: str) -> str:
    """Return a device of torch; for ``auto``, ``cuda`` if there is a GPU, else ``cpu``."""
    gpus = torch.cuda.device_count()
    if device == "auto":
        return "cuda" if gpus else "cpu"
    found = re.fullmatch(r"cpu|cuda(?::(\d+))?", device)
    if not found:
        raise ConfigurationError(f"--device is {shown(device)}; choose cpu, cuda or auto")
    if device != "cpu" and int(found[1] or 0) >= gpus:
        none = f"finds {gpus}" if gpus else "finds no GPU"
        raise ConfigurationError(f"--device is {device}, but torch {none}; use cpu or auto")
    return device


def is_run(path: PathLike, checkpoint_file: str) -> bool:
    """Return whether ``from_pretrained`` is given a run, not a checkpoint in a folder."""
    return checkpoint_file == MODEL_FILE and RunFolder(named(path)).exists


def check_checkpoints(folder: str, checkpoint_file: str, given: Mapping[str, Any]) -> None:
    """Raise if a checkpoint could run code or cannot be read, or fairseq ignores a setting."""
    if "://" in folder or os.path.isfile(folder):
        raise ConfigurationError(
            f"{folder} is an archive or an address, which fairseq unpacks unchecked; unpack it "
            f"yourself, and give the folder"
        )
    known = {"generation_args", *ADDED}
    for kind in ("tokenizer", "bpe"):
        for options_of in REGISTRIES[kind]["dataclass_registry"].values():
            known.update(each.name for each in fields(options_of))
    for name in checkpoint_file.split(os.pathsep):
        state = load_translating(Path(folder) / name)
        check_settings(given, known.union(state.get("cfg") or (), settings_of(state)))
