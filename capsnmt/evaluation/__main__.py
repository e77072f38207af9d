"""``capsnmt-evaluate``: score translations against one reference and test their differences."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Dict, Optional, Sequence

from capsnmt import records
from capsnmt.cli import (
    LARGEST_SEED,
    ConfigurationError,
    OneLineParser,
    at_least,
    require,
    run_command,
    shown,
)
from capsnmt.evaluation.outputs import baseline_first, split_name
from capsnmt.evaluation.scores import (
    BOOTSTRAP,
    COMPARABLE,
    METRICS,
    RANDOMIZATION,
    SAMPLES,
    SEED,
    Test,
)
from capsnmt.evaluation.settings import (
    DETOKENIZE,
    MOST_SAMPLES,
    REMOVE_BPE,
    CompareMT,
    Settings,
    TextSettings,
)
from capsnmt.evaluation.text import language

STDOUT = "-"
UNNAMED = "segment score"  # a metric without a name


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run ``capsnmt-evaluate`` and return the exit status."""
    return run_command(lambda: _run(argv))


def _run(argv: Optional[Sequence[str]]) -> None:
    settings = parse_arguments(argv)
    require("evaluation")

    # after parsing: --help and a mistyped flag do not wait for sacreBLEU
    import json

    from capsnmt.evaluation.compare_mt import check_folder
    from capsnmt.evaluation.evaluate import check_json_target, evaluate
    from capsnmt.evaluation.text_report import as_text, compare_mt_note

    if settings.compare_mt is not None:
        check_folder(settings.compare_mt.folder)
    if settings.json not in (None, STDOUT):
        check_json_target(Path(str(settings.json)))
    evaluation = evaluate(settings)
    if settings.json == STDOUT:
        print(json.dumps(records.plain(evaluation), indent=2))
        return
    if settings.json is not None:
        records.write(Path(settings.json), evaluation)
    print(as_text(evaluation))
    if settings.compare_mt is not None:
        print(compare_mt_note(settings.compare_mt))


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``capsnmt-evaluate``."""
    parser = OneLineParser(
        prog="capsnmt-evaluate",
        description="Score translations against one reference and test their differences.",
    )
    parser.add_argument(
        "systems",
        nargs="+",
        metavar="SYSTEM",
        help="PATH or NAME=PATH; NAME=PATH,PATH,... for the outputs of several seeds",
    )
    parser.add_argument(
        "--baseline",
        metavar="SYSTEM",
        help="test every system against this one: the name of one of them, or another file",
    )
    parser.add_argument("--reference", metavar="FILE", help="raw reference (default: the T- lines)")
    parser.add_argument(
        "--tokenized-reference",
        metavar="FILE",
        help="reference for tokenised BLEU of the tokens as decoded (default: tokenise both sides "
        "with Moses)",
    )
    parser.add_argument(
        "--source",
        metavar="FILE",
        help="source tokens for BLEU by source length (default: the S- lines)",
    )
    parser.add_argument(
        "--input",
        choices=("generate", "plain"),
        default="generate",
        help="output of fairseq-generate (default), or one sentence per line",
    )
    parser.add_argument(
        "--remove-bpe",
        choices=REMOVE_BPE,
        help="default: subword_nmt for --input generate, none for plain",
    )
    parser.add_argument(
        "--detokenize",
        choices=DETOKENIZE,
        help="default: moses for --input generate (none with sentencepiece), none for plain",
    )
    parser.add_argument(
        "--target-lang",
        type=language,
        metavar="LANG",
        help="target language, for detokenisation and for BLEU's tokeniser (default: from the log "
        "of fairseq-generate)",
    )
    parser.add_argument(
        "--segment-scores",
        nargs="+",
        action="append",
        default=[],
        metavar=("METRIC", "SYSTEM=FILE"),
        help="scores of every segment that COMET, MetricX or another program computed: one number "
        "a line, comet-score's .json, or MetricX's .jsonl; METRIC is a name for the tables, "
        "SYSTEM=FILE,FILE,... is for several seeds",
    )
    parser.add_argument(
        "--significance",
        choices=tuple(SAMPLES),
        help=f"the paired test against the baseline (default {BOOTSTRAP})",
    )
    parser.add_argument(
        "--samples",
        type=at_least(1, MOST_SAMPLES),
        metavar="N",
        help="number of resamples of the bootstrap (default "
        f"{SAMPLES[BOOTSTRAP]}), or of trials of approximate randomization (default "
        f"{SAMPLES[RANDOMIZATION]})",
    )
    parser.add_argument(
        "--seed",
        type=at_least(1, LARGEST_SEED),
        metavar="S",
        help=f"seed of the test (default {SEED})",
    )
    parser.add_argument(
        "--compare-mt",
        type=Path,
        metavar="DIR",
        help="also write compare-mt's report into DIR; its bootstrap resamples half of the "
        "sentences and is a different test",
    )
    parser.add_argument(
        "--json",
        nargs="?",
        const=STDOUT,
        metavar="FILE",
        help="write JSON to FILE, or print it instead of the table",
    )
    return parser


def parse_arguments(argv: Optional[Sequence[str]] = None) -> Settings:
    """Parse the command line.

    Raises:
        ConfigurationError: a flag is unknown, has a bad value, or would have no effect.
    """
    args = build_parser().parse_args(argv)
    _check_effect(args)
    if args.reference is None and args.input == "plain":
        raise ConfigurationError("--input plain has no T- lines: give --reference FILE")
    systems = baseline_first(args.systems, args.baseline)
    return Settings(
        systems=systems,
        text=_text_settings(args),
        reference=args.reference,
        tokenized_reference=args.tokenized_reference,
        source=args.source,
        segment_scores=parse_segment_scores(args.segment_scores),
        test=_test(args, systems[0]),
        compare_mt=_compare_mt(args),
        json=args.json,
    )


def _check_effect(args: argparse.Namespace) -> None:
    """Raise if a flag of the test of significance has no effect."""
    needs_test = {"--significance": args.significance}
    if args.compare_mt is None:
        needs_test.update({"--samples": args.samples, "--seed": args.seed})
    for flag, value in needs_test.items():
        if value is not None and args.baseline is None:
            raise ConfigurationError(f"{flag} has no effect without --baseline SYSTEM: drop it")


def _test(args: argparse.Namespace, baseline: str) -> Optional[Test]:
    if args.baseline is None:
        return None
    method = args.significance or BOOTSTRAP
    samples = args.samples or SAMPLES[method]
    name, _ = split_name(baseline)
    return Test(baseline=name, method=method, samples=samples, seed=args.seed or SEED)


def _compare_mt(args: argparse.Namespace) -> Optional[CompareMT]:
    if args.compare_mt is None:
        return None
    return CompareMT(args.compare_mt, args.samples or SAMPLES[BOOTSTRAP], args.seed or SEED)


def _text_settings(args: argparse.Namespace) -> TextSettings:
    """Return the text settings, with the defaults of the kind of input."""
    generate = args.input == "generate"
    remove_bpe = args.remove_bpe or ("subword_nmt" if generate else "none")
    moses = generate and remove_bpe != "sentencepiece"
    detokenize = args.detokenize or ("moses" if moses else "none")
    return TextSettings(args.input, remove_bpe, detokenize, args.target_lang)


def parse_segment_scores(given: Sequence[Sequence[str]]) -> Dict[str, Dict[str, str]]:
    """Return metric -> system -> ``FILE[,FILE...]``; a repeated flag adds systems to its metric.

    Raises:
        ConfigurationError: a metric has no file, a word is no ``SYSTEM=FILE``, or a name is taken.
    """
    metrics: Dict[str, Dict[str, str]] = {}
    for words in given:
        named = "=" not in words[0]
        metric, pairs = (words[0], words[1:]) if named else (UNNAMED, words)
        flag = f"--segment-scores {metric}"
        _check_metric(metric, flag)
        if not pairs:
            raise ConfigurationError(f"{flag}: has no file: give {metric} SYSTEM=FILE")
        files = metrics.setdefault(metric, {})
        for pair in pairs:
            system, separator, path = pair.partition("=")
            if not separator or not path:
                raise ConfigurationError(f"{flag}: {shown(pair)}: give SYSTEM=FILE")
            if system in files:
                raise ConfigurationError(
                    f"{flag}: {system} is given twice: give {system}=FILE,FILE for several seeds"
                )
            files[system] = path
    return metrics


def _check_metric(name: str, flag: str) -> None:
    """Raise unless a metric of segments may have this name.

    Raises:
        ConfigurationError: it is that of another metric, or cannot be printed.
    """
    reserved = {each.lower() for each in (*METRICS, *METRICS.values(), *COMPARABLE)}
    if name.lower() in reserved or not name.strip() or not name.isprintable():
        raise ConfigurationError(f"{flag}: {shown(name)} cannot name the metric: give another")


if __name__ == "__main__":
    raise SystemExit(main())
