"""Flags of fairseq's commands: mappings as argument lists, checked by fairseq's own parsers."""

from __future__ import annotations

import argparse
import ast
import difflib
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Sequence

from capsnmt.cli import ConfigurationError, shown
from capsnmt.evaluation.arguments import parse_arguments
from capsnmt.evaluation.comet_model import check_comet
from capsnmt.launch.config import Experiment

# Flags that the launcher sets itself -> what to do instead.
OWNED: Dict[str, str] = {
    "arch": "set arch",
    "save-dir": "give --output",
    "restore-file": "drop it: training resumes by itself; --init-from starts from a checkpoint",
    **dict.fromkeys(
        ("reset-optimizer", "reset-lr-scheduler", "reset-dataloader", "reset-meters"),
        "drop it: it would reset at every resume",
    ),
    "optimizer-overrides": "drop it: it would override at every resume",
    **dict.fromkeys(
        ("no-save", "no-last-checkpoints", "no-save-optimizer-state"),
        "drop it: the training could not resume, nor be evaluated",
    ),
    "seed": "give --seed",
    "user-dir": "drop it: it is this plugin",
    "max-tokens": "set batch.max-tokens",
    "probing-task": "give --tasks",
    "update-freq": "set batch.tokens-per-update",
    "log-format": "drop it: the launcher reads the log",
    "log-file": "drop it: the log is train.log in the run's folder",
    "source-lang": "set data.source-lang",
    "target-lang": "set data.target-lang",
    "fp16": "set precision",
    "bf16": "set precision",
    "autocast": "set precision",
    "cpu": "give --cpu",
    "distributed-world-size": "give --gpus or --cpu N, and --nodes",
    "distributed-rank": "drop it: the launcher starts every process",
    "distributed-init-method": "drop it: the launcher starts every process",
    "distributed-port": "drop it: it comes from the number of the job",
    "path": "drop it: it is the averaged checkpoint",
    "gen-subset": "set data.test-sets",
    "results-path": "give --output",
    "num-shards": "drop it: every sentence is evaluated",
    "quiet": "drop it: the output would hold no translation",
}

# Flags whose text fairseq's translation trainings evaluate as Python, some only when they begin.
LITERALS = {
    "lr",
    "update-freq",
    "adam-betas",
    "adamax-betas",
    "lamb-betas",
    "adafactor-eps",
    "optimizer-overrides",
    "model-overrides",
}

# Which flag of fairseq-train keeps the checkpoints of each way to average; -1 or none: all.
KEPT_BY = {
    "last-updates": "keep-interval-updates",
    "last-epochs": "keep-last-epochs",
    "best": "keep-best-checkpoints",
}


def argv(flags: Mapping[str, Any]) -> List[str]:
    """Return a mapping of flags as arguments; ``True`` is a bare flag, ``False`` is omitted.

    >>> argv({"lr": 0.005, "share-all-embeddings": True, "fp16": False})
    ['--lr', '0.005', '--share-all-embeddings']
    """
    arguments: List[str] = []
    for name, value in flags.items():
        if value is True:
            arguments.append(f"--{name}")
        elif value is not False:
            arguments += [f"--{name}", str(value)]
    return arguments


def check_owned(experiment: Experiment) -> None:
    """Raise if a configuration sets a flag that the launcher decides.

    Raises:
        ConfigurationError: naming the flag and what to do instead.
    """
    for section in ("train", "generate"):
        for name in experiment[section] or {}:
            # The batch size at generation does not change the result.
            if name in OWNED and not (section == "generate" and name == "max-tokens"):
                key = f"{section}.{name}"
                raise ConfigurationError(f"{experiment.where(key)}: {key}: {OWNED[name]}")


def check_literals(experiment: Experiment) -> None:
    """Raise if a text that fairseq evaluates is more than numbers, strings, lists or mappings.

    Otherwise a configuration could run code. fairseq evaluates the texts of dozens of other flags
    of its architectures, tasks and criterions, so no text may be an expression with a call.

    Raises:
        ConfigurationError: naming the flag, its value and its origin.
    """
    for section in ("train", "generate"):
        for name, value in (experiment[section] or {}).items():
            if not isinstance(value, str):
                continue
            key = f"{section}.{name}"
            allowed = "a number, or several such as (0.9, 0.98)"
            if name.endswith("overrides"):
                allowed = "a dictionary of Python in quotes, such as \"{'autocast': 'none'}\""
            if name in LITERALS and not _is_literal(value):
                raise ConfigurationError(
                    f"{experiment.where(key)}: {key}: {shown(value)}: give {allowed}"
                )
            if _calls(value):
                raise ConfigurationError(
                    f"{experiment.where(key)}: {key}: {shown(value)}: is a call in Python, which "
                    f"fairseq might run: give a text without parentheses after a name"
                )


def _is_literal(text: str) -> bool:
    """Return whether a text is a Python literal."""
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _calls(text: str) -> bool:
    """Return whether ``eval`` of a text would call something."""
    try:
        # eval, too, ignores spaces and tabs at the start
        nodes = ast.walk(ast.parse(text.lstrip(" \t"), mode="eval"))
        return any(isinstance(node, ast.Call) for node in nodes)
    except (ValueError, SyntaxError):
        return False
    except (MemoryError, RecursionError):
        return True


def check_average(experiment: Experiment) -> None:
    """Raise if training will not keep the checkpoints that are to be averaged.

    Raises:
        ConfigurationError: naming both settings.
    """
    train = experiment["train"]
    for how, count in (experiment["average"] or {}).items():
        keeps = KEPT_BY[how]
        kept = train.get(keeps, -1)
        # Only the best checkpoints are not kept unless asked for.
        if -1 < kept < count or (how == "best" and kept < count):
            raise ConfigurationError(
                f"{experiment.where('average.' + how)}: average.{how}: {count} checkpoints, but "
                f"train.{keeps} is {kept}: set it to {count} or more"
            )
        interval, updates = train.get("save-interval-updates", 0), train["max-update"]
        if how == "last-updates" and updates < count:
            raise ConfigurationError(
                f"{experiment.where('average.' + how)}: average.{how}: {count} checkpoints, but "
                f"train.max-update is {updates}: give --max-update {count} or more, or --set "
                f"average.{how}={updates} with train.save-interval-updates=1"
            )
        if how == "last-updates" and not 0 < interval * count <= updates:
            raise ConfigurationError(
                f"{experiment.where('average.' + how)}: average.{how}: {count} checkpoints, one "
                f"every {interval} updates, need {interval * count} updates, but train.max-update "
                f"is {updates}: set train.save-interval-updates to {max(1, updates // count)}"
            )


def check_score(arguments: Sequence[str]) -> None:
    """Parse the arguments of ``capsnmt-evaluate`` as it will.

    Raises:
        ConfigurationError: a value is wrong, a flag has no effect, or COMET or its model is
            missing.
    """
    try:
        settings = parse_arguments(arguments).settings
        if settings.comet is not None:
            check_comet(settings.comet)
    except ConfigurationError as error:
        raise ConfigurationError(f"score: {error}") from None


def check_arch(experiment: Experiment) -> None:
    """Raise unless the architecture is registered.

    Raises:
        ConfigurationError: naming the architectures of this plugin.
    """
    from fairseq.models import ARCH_MODEL_REGISTRY

    import capsnmt.plugin  # noqa: F401  registers ours

    ours = [
        arch
        for arch, model in ARCH_MODEL_REGISTRY.items()
        if model.__module__.startswith("capsnmt.")
    ]
    if experiment["arch"] not in ARCH_MODEL_REGISTRY:
        raise ConfigurationError(
            f"{experiment.where('arch')}: arch: {shown(experiment['arch'])} is not registered: "
            f"choose from {', '.join(sorted(ours))} or an architecture of fairseq"
        )


def check_train(experiment: Experiment, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of fairseq-train as fairseq will, and return them.

    Args:
        experiment: the configuration, for the origin of a bad flag.
        arguments: what follows the program.

    Raises:
        ConfigurationError: a flag is unknown or its value wrong; the message names its origin.
    """
    from fairseq import options

    parsed = _check(experiment, "train", options.get_training_parser, arguments)
    if not all(rate >= 0 for rate in parsed.lr):
        raise _refused(experiment, "train.lr", "give 0 or more")
    return parsed


def check_generate(experiment: Experiment, arguments: Sequence[str]) -> None:
    """Parse the arguments of fairseq-generate as fairseq will, and check what it checks later.

    Raises:
        ConfigurationError: as :func:`check_train`, or the search cannot work.
    """
    from fairseq import options

    args = _check(experiment, "generate", options.get_generation_parser, arguments)
    kinds = (args.sampling, args.match_source_len, args.diverse_beam_groups > 0)
    for name, fails, fix in (
        ("beam", args.beam < 1, "give 1 or more"),
        ("nbest", not 1 <= args.nbest <= args.beam, f"give 1 to {args.beam}, the beam"),
        ("temperature", not args.temperature > 0, "give a number above 0"),
        ("sampling", args.sampling and args.nbest < args.beam, f"set generate.nbest={args.beam}"),
        ("sampling-topk", args.sampling_topk >= 0 and not args.sampling, "needs sampling: true"),
        ("sampling-topp", args.sampling_topp >= 0 and not args.sampling, "needs sampling: true"),
        ("match-source-len", sum(map(bool, kinds)) > 1, "give one kind of search"),
        ("max-len-b", args.max_len_a <= 0 and args.max_len_b < args.min_len,
         f"give {args.min_len} or more, the min-len"),
        ("replace-unk", args.replace_unk is not None, "drop it: the data are binarised"),
        ("batch-size", (args.batch_size or 1) < 1, "give 1 or more"),
        ("max-tokens", (args.max_tokens or 1) < 1, "give 1 or more"),
        ("lm-path", args.lm_path and not Path(args.lm_path).is_file(), "there is no such file"),
    ):  # fmt: skip
        if fails:
            raise _refused(experiment, f"generate.{name}", fix)


def _refused(experiment: Experiment, key: str, fix: str) -> ConfigurationError:
    return ConfigurationError(f"{experiment.where(key)}: {key}: {shown(experiment[key])}: {fix}")


def _check(
    experiment: Experiment,
    section: str,
    make_parser: Callable[[], argparse.ArgumentParser],
    arguments: Sequence[str],
) -> argparse.Namespace:
    from fairseq import options

    parser = make_parser()

    def refuse(message: str) -> NoReturn:
        flag = re.search(r"--([\w-]+)", message)
        key = f"{section}.{flag.group(1)}" if flag else section
        raise ConfigurationError(f"{experiment.where(key)}: {key}: {message}")

    parser.error = refuse  # type: ignore[method-assign]
    parsed, unknown = options.parse_args_and_arch(parser, list(arguments), parse_known=True)
    for name in (argument[2:] for argument in unknown if argument.startswith("--")):
        known = [option[2:] for option in parser._option_string_actions if option[:2] == "--"]
        similar = difflib.get_close_matches(name, known)
        hint = f"did you mean --{' or --'.join(similar)}?" if similar else "see its --help"
        key = f"{section}.{name}"
        raise ConfigurationError(
            f"{experiment.where(key)}: {key}: fairseq-{section} has no flag --{name}: {hint}"
        )
    if unknown:
        raise ConfigurationError(
            f"{experiment.row}: {section}: fairseq-{section} does not understand {unknown[0]!r}: a "
            f"flag without a value is written as true"
        )
    return parsed
