"""``capsnmt-evaluate``: score translations against one reference and test their differences."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Dict, Optional, Sequence, Tuple

from capsnmt import records
from capsnmt.cli import (
    LARGEST_SEED,
    ConfigurationError,
    OneLineParser,
    at_least,
    check_output_file,
    require,
    run_command,
    shown,
)
from capsnmt.evaluation.compare_mt import CompareMT, check_folder
from capsnmt.evaluation.outputs import parse_systems
from capsnmt.evaluation.scores import (
    BOOTSTRAP,
    COMPARABLE,
    METRICS,
    RANDOMIZATION,
    SAMPLES,
    SEED,
    Test,
)
from capsnmt.evaluation.settings import Settings
from capsnmt.evaluation.text import DETOKENIZE, REMOVE_BPE, TextFormat, language

STDOUT = "-"
MOST_SAMPLES = 100000  # D: sacreBLEU keeps a number for each sample and sentence in memory
RESERVED = {each.lower() for each in (*METRICS, *METRICS.values(), *COMPARABLE)}


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run ``capsnmt-evaluate`` and return the exit status."""
    return run_command(lambda: _run(argv))


def _run(argv: Optional[Sequence[str]]) -> None:
    settings, target = parse_arguments(argv)
    require("evaluation")

    from capsnmt.evaluation.evaluate import evaluate
    from capsnmt.evaluation.table import as_text

    if settings.compare_mt is not None:
        check_folder(settings.compare_mt.folder)
    if target not in (None, STDOUT):
        check_output_file(Path(target), "--json")
    evaluation = evaluate(settings)
    if target == STDOUT:
        print(json.dumps(records.plain(evaluation), indent=2))
        return
    if target is not None:
        records.write(Path(target), evaluation)
    print(as_text(evaluation))
    if settings.compare_mt is not None:
        print(settings.compare_mt.note)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``capsnmt-evaluate``."""
    parser = OneLineParser(
        prog="capsnmt-evaluate",
        description="Score translations against one reference and test their differences.",
    )
    add = parser.add_argument
    several = "NAME=PATH,PATH,... for the outputs of several seeds"
    add("systems", nargs="+", metavar="SYSTEM", help=f"PATH or NAME=PATH; {several}")
    add(
        "--baseline",
        metavar="SYSTEM",
        help="test every system against this one: the name of one of them, or another file",
    )
    add("--reference", metavar="FILE", help="raw reference (default: the T- lines)")
    add(
        "--tokenized-reference",
        metavar="FILE",
        help="reference for tokenised BLEU of the tokens as decoded (default: tokenise both sides "
        "with Moses)",
    )
    add(
        "--source",
        metavar="FILE",
        help="source tokens for BLEU by source length (default: the S- lines)",
    )
    add(
        "--input",
        choices=("generate", "plain"),
        default="generate",
        help="output of fairseq-generate (default), or one sentence per line",
    )
    add(
        "--remove-bpe",
        choices=REMOVE_BPE,
        help="default: subword_nmt for --input generate, none for plain",
    )
    add(
        "--detokenize",
        choices=DETOKENIZE,
        help="default: moses for --input generate (none with sentencepiece), none for plain",
    )
    add(
        "--target-lang",
        type=language,
        metavar="LANG",
        help="target language, for detokenisation and for BLEU's tokeniser (default: from the log "
        "of fairseq-generate)",
    )
    add(
        "--segment-scores",
        nargs="+",
        action="append",
        default=[],
        metavar=("METRIC", "SYSTEM=FILE"),
        help="scores of every segment that COMET, MetricX or another program computed: one number "
        "a line, comet-score's .json, or MetricX's .jsonl; METRIC is a name for the tables, "
        "SYSTEM=FILE,FILE,... is for several seeds",
    )
    add(
        "--significance",
        choices=tuple(SAMPLES),
        help=f"the paired test against the baseline (default {BOOTSTRAP})",
    )
    add(
        "--samples",
        type=at_least(1, MOST_SAMPLES),
        metavar="N",
        help="number of resamples of the bootstrap (default "
        f"{SAMPLES[BOOTSTRAP]}), or of trials of approximate randomization (default "
        f"{SAMPLES[RANDOMIZATION]})",
    )
    add(
        "--seed",
        type=at_least(1, LARGEST_SEED),
        metavar="S",
        help=f"seed of the test (default {SEED})",
    )
    add(
        "--compare-mt",
        type=Path,
        metavar="DIR",
        help="also write compare-mt's report into DIR; its bootstrap resamples half of the "
        "sentences and is a different test",
    )
    add(
        "--json",
        metavar="FILE",
        help="also write the record as JSON; - prints it instead of the table",
    )
    return parser


def parse_arguments(argv: Optional[Sequence[str]] = None) -> Tuple[Settings, Optional[str]]:
    """Parse the command line: the settings, and the file of ``--json``.

    Raises:
        ConfigurationError: a flag is unknown, has a bad value, or would have no effect.
    """
    args = build_parser().parse_args(argv)
    generate = args.input == "generate"
    if args.reference is None and not generate:
        raise ConfigurationError("--input plain has no T- lines: give --reference FILE")
    if args.baseline is None:
        without_effect = {"--significance": args.significance}
        if args.compare_mt is None:
            without_effect.update({"--samples": args.samples, "--seed": args.seed})
        for flag, value in without_effect.items():
            if value is not None:
                raise ConfigurationError(f"{flag} has no effect without --baseline SYSTEM: drop it")
    systems = parse_systems(args.systems, args.baseline)
    method, seed = args.significance or BOOTSTRAP, args.seed or SEED
    samples = args.samples or SAMPLES[method]
    test = Test(baseline=systems[0].name, method=method, samples=samples, seed=seed)
    remove_bpe = args.remove_bpe or ("subword_nmt" if generate else "none")
    moses = generate and remove_bpe != "sentencepiece"
    detokenize = args.detokenize or ("moses" if moses else "none")
    compare_mt = args.compare_mt and CompareMT(
        args.compare_mt, args.samples or SAMPLES[BOOTSTRAP], seed
    )
    settings = Settings(
        systems=systems,
        text=TextFormat(args.input, remove_bpe, detokenize, args.target_lang),
        reference=args.reference,
        tokenized_reference=args.tokenized_reference,
        source=args.source,
        segment_scores=parse_segment_scores(args.segment_scores),
        test=None if args.baseline is None else test,
        compare_mt=compare_mt,
    )
    return settings, args.json


def parse_segment_scores(given: Sequence[Sequence[str]]) -> Dict[str, Dict[str, str]]:
    """Return metric -> system -> ``FILE[,FILE...]``; a repeated flag adds systems to its metric.

    Raises:
        ConfigurationError: a metric has no file, a word is no ``SYSTEM=FILE``, or a name is taken.
    """
    metrics: Dict[str, Dict[str, str]] = {}
    for metric, *pairs in given:
        flag = f"--segment-scores {metric}"
        if metric.lower() in RESERVED or not metric.strip() or not metric.isprintable():
            raise ConfigurationError(f"{flag}: cannot name the metric: give another name")
        if not pairs:
            raise ConfigurationError(f"{flag}: has no file: give METRIC SYSTEM=FILE")
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


if __name__ == "__main__":
    raise SystemExit(main())
