"""Flags of fairseq's commands: mappings as words of a command, checked by fairseq's own parsers."""

from __future__ import annotations

import argparse
from typing import Any, List, Mapping, NoReturn, Sequence

from capsnmt.cli import ConfigurationError, shown
from capsnmt.runs.records import Settings
from capsnmt.runs.trained_rows import FREE_IN_GENERATION

OWNED = {
    # what other settings and flags of capsnmt-run decide
    *("arch", "autocast", "batch-size", "bf16", "cpu", "fp16", "log-file", "log-format"),
    *("max-sentences", "max-tokens", "probing-task", "save-dir", "seed"),
    *("source-lang", "target-lang"),
    *("update-freq", "user-dir", "distributed-world-size", "distributed-rank"),
    *("distributed-init-method", "distributed-port", "gen-subset", "num-shards", "path"),
    *("quiet", "results-path"),
    # what would change a training at each resume, or leave nothing to resume from
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
# Which flag leaves none to average; which say when the training ends and how often it saves.
LEFT_OUT_BY = {"last-epochs": "no-epoch-checkpoints", "best": "disable-validation"}
SAVED_BY = {
    "last-updates": ("max-update", "save-interval-updates"),
    "last-epochs": ("max-epoch", "save-interval"),
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
    for way, count in settings.average.items():
        kept = flags.get(KEPT_BY[way])
        if not isinstance(kept, int) or -1 < kept < (count or 0):
            flags[KEPT_BY[way]] = count
    return argv(flags)


def check_owned(settings: Settings) -> None:
    """Raise if a flag of fairseq is not for a configuration to set."""
    start = set() if settings.init_from is None else {"init-from"}
    for section, set_here, owned in (
        ("train", settings.train, OWNED | start),
        ("generate", settings.generate, OWNED - FREE_IN_GENERATION),
    ):
        for name in set_here.keys() & owned:
            raise ConfigurationError(
                f"{section}.{name} is decided by other settings and by the flags of capsnmt-run, "
                f"or would act at each resume (docs/configurations.md); drop it"
            )


def check_training(settings: Settings, arguments: Sequence[str]) -> None:
    """Parse the arguments of fairseq-train as fairseq will, and look for checkpoints to average."""
    from fairseq import options

    import capsnmt.plugin  # noqa: F401  registers ours

    parsed = check("train", options.get_training_parser(), arguments)
    for way, count in settings.average.items():
        left_out_by = LEFT_OUT_BY.get(way)
        if left_out_by is not None and settings.train.get(left_out_by):
            raise ConfigurationError(
                f"average.{way} needs checkpoints that train.{left_out_by} leaves out; give --set "
                f"train.{left_out_by}=null or average=null"
            )
        if way not in SAVED_BY or count is None:
            continue
        end, interval = SAVED_BY[way]
        last, every = (getattr(parsed, flag.replace("-", "_")) for flag in (end, interval))
        if last and not 0 < every * count <= last:
            of_the_end = max(1, last // (8 * count))  # the average is of its last eighth
            fix = f"train.{interval}={of_the_end}" if last >= count else "average=null"
            raise ConfigurationError(
                f"average.{way} is {count}, but train.{end} {last} with a checkpoint every {every} "
                f"has fewer; give --set {fix}"
            )


def check(
    section: str, parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> argparse.Namespace:
    """Parse arguments by a parser of fairseq."""
    from fairseq import options

    def error(message: str) -> NoReturn:
        raise ConfigurationError(f"{section}: {message} (fairseq-{section} --help lists the flags)")

    parser.error = error  # type: ignore[method-assign]
    try:
        return options.parse_args_and_arch(parser, list(arguments))
    except SyntaxError as wrong:  # a list, which argparse expects to be a ValueError
        raise ConfigurationError(
            f"{section}: {shown(wrong.text)} is not a number; give one, or numbers in brackets"
        ) from None
