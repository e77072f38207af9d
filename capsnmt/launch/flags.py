"""Flags of fairseq's commands: mappings as words of a command, checked by fairseq's own parsers."""

import argparse
import json
import math
import os
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, NoReturn, Sequence

from capsnmt.cli import ConfigurationError, say, shown
from capsnmt.configurations import Settings
from capsnmt.records import as_number
from capsnmt.runs.trained_rows import FREE_IN_GENERATION

OWNED = {
    # what other settings and flags of capsnmt-run decide
    *("arch", "autocast", "batch-size", "bf16", "cpu", "fp16", "log-file", "log-format"),
    *("max-sentences", "max-tokens", "memory-efficient-bf16", "probing-task", "save-dir", "seed"),
    *("source-lang", "target-lang", "tpu"),
    *("update-freq", "user-dir", "distributed-world-size", "distributed-rank"),
    *("distributed-init-method", "distributed-port", "gen-subset", "num-shards", "path"),
    *("quiet", "results-path", "score-reference"),
    # what would change a training at each resume, or leave nothing to resume from
    *("restore-file", "reset-optimizer", "reset-lr-scheduler", "reset-dataloader"),
    *("reset-meters", "optimizer-overrides", "no-save", "no-last-checkpoints"),
    "no-save-optimizer-state",
}

# The files without which fairseq-generate would fail, after the training.
NEEDED_FILES = {"bpe-codes", "lm-path", "sentencepiece-model"}
# Which flag of fairseq-train keeps the checkpoints of each way to average; -1: all, of best none.
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
# What fairseq takes as it is, to fail with it after hours or to train nothing: numbers by their
# least value, of which those from 1 on are whole. The learning rate may be a list.
LEAST = {
    **dict.fromkeys(("beam", "nbest", "batch-size", "max-sentences", "max-tokens"), 1),
    **dict.fromkeys(("max-tokens-valid", "batch-size-valid", "max-sentences-valid"), 1),
    **dict.fromkeys(("max-source-positions", "max-target-positions", "max-update"), 1),
    **dict.fromkeys(("log-interval", "save-interval", "validate-interval"), 1),
    **dict.fromkeys(("save-interval-updates", "validate-interval-updates", "max-epoch"), 0),
    **dict.fromkeys(("clip-norm", "label-smoothing", "warmup-updates", "weight-decay"), 0),
    **dict.fromkeys(("max-len-a", "max-len-b", "min-len", "no-repeat-ngram-size"), 0),
    **dict.fromkeys(("lr", "temperature"), math.ulp(0.0)),  # above 0
    **dict.fromkeys(("adam-betas", "adam-eps", "num-workers"), 0),
}
BELOW_1 = ("adam-betas", "label-smoothing")
# What fairseq may choose the best checkpoint by: where less is better, and where more is, with the
# flag of a translation without which no validation has it.
FALLING = ("loss", "nll_loss", "ppl")
RISING = {"accuracy": "report_accuracy", "bleu": "eval_bleu", "macro_f1": ""}
AS_JSON = ("eval-bleu-args", "eval-bleu-detok-args")
# Of other commands or models: with these fairseq-generate ends in a traceback, or does the same.
OF_OTHER_SEARCHES = re.compile("constraints|print-step|retain-iter-history|iter-decode-.+|.+-mt")


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


def named_files(flags: Mapping[str, Any]) -> Dict[str, Path]:
    """Return what is a file of the values, by flag: it is compared by its content.

    **D**: of any flag, as those of a user's own plugin; a value that happens to be a file's name
    is compared, too, where the file is there both times.
    """
    texts = {f"--{name}": value for name, value in flags.items() if isinstance(value, str)}
    return {flag: Path(texts[flag]) for flag in sorted(texts) if os.path.isfile(texts[flag])}


def training(settings: Settings) -> List[str]:
    """Return the flags of fairseq-train; it keeps the checkpoints that are averaged."""
    flags = dict(settings.train)
    for way, count in settings.average.items():
        kept = as_number(flags.get(KEPT_BY[way]))  # what is no number fairseq refuses
        all_kept = -1 if way != "best" else -math.inf
        if kept is None or (isinstance(kept, float) and all_kept < kept < (count or 0)):
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
    _check_values("train", settings.train)
    if parsed.store_ema:
        raise ConfigurationError(
            "train.store-ema keeps a mean of the weights that nothing validates or decodes with; "
            "drop it, and give average.last-updates=N for the mean of checkpoints"
        )
    _check_best(parsed)
    if parsed.lr_scheduler == "polynomial_decay":
        last, total = parsed.max_update, settings.train.get("total-num-update")
        if total is None or (last > float(total) and not parsed.end_learning_rate):
            known = "not set" if total is None else f"{total}, after which the rate is 0"
            raise ConfigurationError(
                f"train.lr-scheduler is polynomial_decay, which ends at train.total-num-update, "
                f"and that is {known}; give --set train.total-num-update={last or 'N'}"
            )
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


def _check_best(parsed: argparse.Namespace) -> None:
    """Raise if the best checkpoint would be the worst, or the first validation would end it."""
    metric, most = parsed.best_checkpoint_metric, parsed.maximize_best_checkpoint_metric
    needed = RISING.get(metric)
    if needed and not getattr(parsed, needed, True):  # a classifier has no such
        key = f"train.{needed.replace('_', '-')}"
        problem = f"which no validation has without {key}; give --set {key}=true"
    elif metric in (FALLING if most else RISING):
        chosen, value = ("highest", "null") if most else ("lowest", "true")
        key = "train.maximize-best-checkpoint-metric"
        problem = f"and the {chosen} would be the best; give --set {key}={value}"
    else:
        return
    raise ConfigurationError(f"train.best-checkpoint-metric is {metric}, {problem}")


def check_generation(settings: Settings, arguments: Sequence[str]) -> None:
    """Parse the arguments of fairseq-generate as fairseq will, and build its search with them."""
    from fairseq import options
    from fairseq.data import Dictionary
    from fairseq.tasks import FairseqTask

    parsed = check("generate", options.get_generation_parser(), arguments)
    _check_values("generate", settings.generate)
    for name in sorted(NEEDED_FILES & settings.generate.keys()):
        if not Path(path := str(settings.generate[name])).is_file():
            raise ConfigurationError(f"generate.{name}: {path} is not there; give a file")
    given = [name for name, value in settings.generate.items() if value is not False]
    others = [*filter(OF_OTHER_SEARCHES.fullmatch, given)]
    groups, beam = parsed.diverse_beam_groups, parsed.beam
    for wrong, problem in (
        (others, f"{', '.join(others)} is for other commands or models than these; drop it"),
        (
            parsed.nbest > beam,
            f"nbest is {parsed.nbest}, but the beam has {beam} hypotheses; give {beam} or less",
        ),
        (
            parsed.max_len_a == 0 and parsed.min_len > parsed.max_len_b,
            f"min-len is {parsed.min_len}, but max-len-b is {parsed.max_len_b}; give one that is "
            f"not less",
        ),
        (
            parsed.sampling_topp > 0 and settings.train.get("surface-fusion"),
            "sampling-topp is a share of probabilities that add up to 1, and those of "
            "train.surface-fusion add up to less; give sampling-topk",
        ),
        (
            beam % max(1, groups),
            f"diverse-beam-groups is {groups}, which does not divide a beam of {beam}; give one "
            f"that does",
        ),
        (
            parsed.sampling and parsed.nbest != beam,
            f"nbest is {parsed.nbest}, but sampling needs that of the beam; give {beam}",
        ),
        (parsed.replace_unk is not None, "replace-unk is for text, not binarised data; drop it"),
    ):
        if wrong:
            raise ConfigurationError(f"generate.{problem}")
    if parsed.prefix_size > 0:  # of some tasks the first is a mark of the language
        say(
            f"warning: generate.prefix-size {parsed.prefix_size} gives the search that many "
            f"subwords of each reference, and the scores count them"
        )
    # a task of any text, and a search that is not used
    task = type("AnyTask", (FairseqTask,), {"target_dictionary": Dictionary()})(parsed)
    try:
        task.build_generator([], parsed, seq_gen_cls=lambda *_, **__: None)
    except (AssertionError, ValueError) as wrong:
        raise ConfigurationError(f"generate: {wrong}; drop one of its flags") from None


def _check_values(section: str, flags: Mapping[str, Any]) -> None:
    for name, value in flags.items():
        if name in LEAST and value is not False:  # which leaves the flag out
            least, below = LEAST[name], 1 if name in BELOW_1 else math.inf
            try:
                numbers = [float(text) for text in str(value).strip("()[] ").split(",")]
            except ValueError:
                numbers = [math.nan]
            whole = least == 1
            pair = name == "adam-betas"
            fits = all(least <= one < below and not (whole and one % 1) for one in numbers)
            if not fits or (pair and len(numbers) != 2):
                kind = "two numbers" if pair else f"a{' whole' * whole} number"
                allowed = f"{kind} above 0" if 0 < least < 1 else f"{kind}, {least:g} or more"
                allowed += " and below 1" if name in BELOW_1 else ""
                raise ConfigurationError(f"{section}.{name} is {shown(value)}; give {allowed}")
        elif name in AS_JSON and isinstance(value, str):
            try:
                known = json.loads(value)
            except ValueError:
                known = None
            if not isinstance(known, dict):
                raise ConfigurationError(
                    f"{section}.{name} is {shown(value)}, which is no JSON; give such as "
                    f"""'{section}.{name}={{"beam": 4}}'"""
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
        parsed = options.parse_args_and_arch(parser, list(arguments))
    except SyntaxError as wrong:  # a list, which argparse expects to be a ValueError
        raise ConfigurationError(
            f"{section}: {shown(wrong.text)} is not a number; give one, or numbers in brackets"
        ) from None
    for name, value in vars(parsed).items():
        if isinstance(value, float) and not math.isfinite(value):
            key = f"{section}.{name}".replace("_", "-")
            raise ConfigurationError(f"{key} is {value}; give a number")
    return parsed
