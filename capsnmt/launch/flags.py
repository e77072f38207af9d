"""Flags of fairseq's commands: mappings as argument lists, checked by fairseq's own parsers."""

from __future__ import annotations

import argparse
import ast
import difflib
from pathlib import Path
from typing import Any, List, Mapping, NoReturn, Sequence, Tuple

from capsnmt.cli import ConfigurationError, shown
from capsnmt.launch.settings import Settings

# What the launcher decides, by other settings and flags of its own.
OWNED = {
    *("arch", "autocast", "bf16", "cpu", "fp16", "log-file", "log-format", "max-tokens"),
    *("batch-size", "probing-task", "save-dir", "seed", "source-lang", "target-lang"),
    *("update-freq", "user-dir", "distributed-world-size", "distributed-rank"),
    *("distributed-init-method", "distributed-port", "gen-subset", "num-shards", "path"),
    *("quiet", "results-path"),
}
# What would change a training at each resume, or leave nothing to resume from.
HARMFUL = {
    *("restore-file", "reset-optimizer", "reset-lr-scheduler", "reset-dataloader"),
    *("reset-meters", "optimizer-overrides", "no-save", "no-last-checkpoints"),
    "no-save-optimizer-state",
}

# Which flag of fairseq-train keeps the checkpoints of each way to average; -1: all.
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


def training(settings: Settings) -> List[str]:
    """Return the flags of fairseq-train; it keeps the checkpoints that are averaged."""
    flags = dict(settings.train)
    if settings.average is not None and settings.average.chosen is not None:
        how, count = settings.average.chosen
        kept = flags.get(KEPT_BY[how])
        if not isinstance(kept, int) or -1 < kept < count:
            flags[KEPT_BY[how]] = count
    return argv(flags)


def check_settings(settings: Settings, row: str) -> None:
    """Raise if a flag is the launcher's, or if the training has too few updates for its average.

    Raises:
        ConfigurationError: naming the flag.
    """
    for section, flags in (("train", settings.train), ("generate", settings.generate)):
        for name in flags:
            # the batch size at generation does not change the result
            if name in OWNED and (section, name) not in (
                ("generate", "max-tokens"),
                ("generate", "batch-size"),
            ):
                raise ConfigurationError(
                    f"{row}: {section}.{name}: is decided by other settings and by the flags of "
                    f"capsnmt-run (docs/configurations.md): drop it"
                )
            if name in HARMFUL:
                raise ConfigurationError(
                    f"{row}: {section}.{name}: would act at each resume, or leave nothing to "
                    f"resume from: drop it"
                )
    if settings.init_from is not None and "init-from" in settings.train:
        raise ConfigurationError(
            f"{row}: init-from: {settings.init_from}: train.init-from is set, too: drop one of them"
        )
    count = None if settings.average is None else settings.average.last_updates
    updates = int(settings.train.get("max-update") or 0)
    interval = int(settings.train.get("save-interval-updates") or 0)
    if count is not None and not 0 < interval * count <= updates:
        fix = f"train.save-interval-updates to {updates // count}"
        raise ConfigurationError(
            f"{row}: average.last-updates: {count} checkpoints, one every {interval} updates, do "
            f"not fit into train.max-update {updates}: set "
            f"{fix if updates >= count else 'average to null'}"
        )


def check_train(row: str, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of fairseq-train as fairseq will, and return them.

    Raises:
        ConfigurationError: a flag is unknown or its value wrong.
    """
    from fairseq import options

    import capsnmt.plugin  # noqa: F401  registers ours

    parsed = _check(row, "train", options.get_training_parser(), arguments)
    if not all(rate >= 0 for rate in parsed.lr):
        raise ConfigurationError(f"{row}: train.lr: {shown(parsed.lr)}: give 0 or more")
    return parsed


def check_generate(row: str, arguments: Sequence[str]) -> None:
    """Parse the arguments of fairseq-generate as fairseq will, and check what it checks later.

    Raises:
        ConfigurationError: as :func:`check_train`, or the search cannot work.
    """
    from fairseq import options

    args = _check(row, "generate", options.get_generation_parser(), arguments)
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
        ("model-overrides", not _is_dictionary(args.model_overrides),
         "give a dictionary of Python in quotes, such as \"{'autocast': 'none'}\""),
        ("lm-path", args.lm_path and not Path(args.lm_path).is_file(), "there is no such file"),
    ):  # fmt: skip
        if fails:
            value = getattr(args, name.replace("-", "_"))
            raise ConfigurationError(f"{row}: generate.{name}: {shown(value)}: {fix}")


def check_score(row: str, arguments: Sequence[str]) -> None:
    """Parse the arguments of ``capsnmt-evaluate`` as it will.

    Raises:
        ConfigurationError: a value is wrong, or a flag has no effect.
    """
    from capsnmt.evaluation.__main__ import parse_arguments

    try:
        parse_arguments(arguments)
    except ConfigurationError as error:
        raise ConfigurationError(f"{row}: score: {error}") from None


def _is_dictionary(text: str) -> bool:
    """Return whether a text, which fairseq evaluates, is a dictionary of literals."""
    try:
        return isinstance(ast.literal_eval(text), dict)
    except (ValueError, SyntaxError):
        return False


def _check(
    row: str, section: str, parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> argparse.Namespace:
    from fairseq import options

    def refuse(message: str) -> NoReturn:
        raise ConfigurationError(f"{row}: {section}: {message}")

    parser.error = refuse  # type: ignore[method-assign]
    try:
        parsed, unknown = options.parse_args_and_arch(parser, list(arguments), parse_known=True)
    except ConfigurationError:
        raise
    except (ValueError, SyntaxError, NameError, TypeError) as error:  # fairseq evaluates some texts
        flag, value = _unreadable(parser, arguments)
        raise ConfigurationError(
            f"{row}: {section}.{flag}: {shown(value)}: fairseq cannot read it: {error}"
        ) from None
    for name in (argument[2:] for argument in unknown if argument.startswith("--")):
        known = [option[2:] for option in parser._option_string_actions if option[:2] == "--"]
        similar = difflib.get_close_matches(name, known)
        hint = f"did you mean --{' or --'.join(similar)}?" if similar else "see its --help"
        raise ConfigurationError(
            f"{row}: {section}.{name}: fairseq-{section} has no flag --{name}: {hint}"
        )
    if unknown:
        raise ConfigurationError(
            f"{row}: {section}: fairseq-{section} does not understand {unknown[0]!r}: a flag "
            f"without a value is written as true"
        )
    return parsed


def _unreadable(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> Tuple[str, str]:
    """Return the flag, and its value, of which the type raises what argparse does not expect."""
    for flag, value in zip(arguments, arguments[1:]):
        action = parser._option_string_actions.get(flag)
        try:
            if action is not None and callable(action.type):
                action.type(value)
        except Exception:
            return flag[2:], value
    return "flags", " ".join(arguments)
