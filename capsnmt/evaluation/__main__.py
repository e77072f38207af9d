"""``capsnmt-evaluate``: score translations against references and test their differences."""

import argparse
from itertools import chain
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from capsnmt import cli, records
from capsnmt.evaluation.compare_mt import PAGE, check_folder
from capsnmt.evaluation.outputs import SET, Settings, parse_systems, split_paths
from capsnmt.evaluation.scores import COMPARABLE, METRICS, RANDOMIZATION, SAMPLES, SEED, Test
from capsnmt.evaluation.text import DETOKENIZE, REMOVE_BPE, language, text_format

INPUTS = ("generate", "plain")  # output of fairseq-generate, or lines
MOST_SAMPLES = 100000
RESERVED = {each.lower() for each in (*METRICS, *METRICS.values(), *COMPARABLE)}


@cli.command
def main(argv: List[str]) -> None:
    """Run ``capsnmt-evaluate`` and return the exit status."""
    settings, target = parse_arguments(argv)
    cli.require("evaluation")

    from capsnmt.evaluation.evaluate import evaluate
    from capsnmt.evaluation.table import as_text

    if settings.compare_mt is not None:
        check_folder(settings.compare_mt)
    if target is not None:
        each = [settings.of(name) for name in settings.test_sets] or [settings]
        cli.check_output_file(target, "--json", [*chain(*map(_inputs, each))])
    evaluation = evaluate(settings)
    if target is not None:
        records.write(target, evaluation)
    print(as_text(evaluation, settings.details))
    if settings.compare_mt is not None:
        print(f"\ncompare-mt's report on the first outputs: {settings.compare_mt / PAGE}")


def _inputs(settings: Settings) -> List[Path]:
    scored = (paths for systems in settings.segment_scores.values() for paths in systems.values())
    texts = *settings.references, *settings.tokenized_references, settings.source
    given = chain(*settings.systems.values(), *map(split_paths, scored), texts)
    return [Path(path) for path in given if path is not None]


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``capsnmt-evaluate``."""
    parser = cli.OneLineParser(
        prog="capsnmt-evaluate",
        description="Score translations against references and test their differences.",
    )
    add = parser.add_argument
    add("systems", nargs="+", metavar="SYSTEM", help="PATH or NAME=PATH,PATH,... (one per seed)")
    add("--baseline", metavar="SYSTEM", help="test the systems against this one (name or PATH)")
    reference = "raw reference, one segment per line; repeated for several references"
    add("--reference", action="append", required=True, metavar="FILE", help=reference)
    sets = f"several: each takes the place of {SET} in all paths; differences are of their means"
    add("--test-sets", type=cli.comma_list(), default=[], metavar="NAME,...", help=sets)
    tokens = "for tokenised BLEU of the tokens as decoded; repeated for several references"
    add("--tokenized-reference", action="append", default=[], metavar="FILE", help=tokens)
    add("--source", metavar="FILE", help="tokens for BLEU by source length (default: the S- lines)")
    add("--input", choices=INPUTS, default=INPUTS[0], help="default: output of fairseq-generate")
    add("--remove-bpe", choices=REMOVE_BPE, help="default: subword_nmt, or none if plain")
    joined = "default: moses, or none if plain or sentencepiece"
    add("--detokenize", choices=DETOKENIZE, help=joined)
    rules = "for detokenisation and BLEU's tokeniser (default: from fairseq-generate's log)"
    add("--target-lang", type=language, metavar="LANG", help=rules)
    primary = f"the primary scores (default {','.join(METRICS)}); bleu is always one"
    names = cli.comma_list(METRICS)
    add("--metrics", type=names, default=[*METRICS], metavar="METRIC,...", help=primary)
    given = (
        "scores of every segment by COMET, MetricX or another program: one number per line, or "
        "comet-score's .json; METRIC is a name for the tables"
    )
    words = ("METRIC", "SYSTEM=FILE")
    add("--segment-scores", nargs="+", action="append", default=[], metavar=words, help=given)
    tests = f"paired test of one output against another (default {RANDOMIZATION})"
    samples, seeds = cli.at_least(1, MOST_SAMPLES), cli.at_least(1, cli.LARGEST_SEED)
    numbers = " or ".join(f"{number} for {method}" for method, number in SAMPLES.items())
    add("--significance", choices=tuple(SAMPLES), default=RANDOMIZATION, help=tests)
    add("--samples", type=samples, metavar="N", help=f"of the test (default {numbers})")
    add("--seed", type=seeds, default=SEED, metavar="S", help=f"of the test (default {SEED})")
    add("--compare-mt", type=Path, metavar="DIR", help="also write compare-mt's report to DIR")
    seeds_needed = "also say how many seeds show such a difference with probability 0.8"
    add("--plan", type=above_zero, metavar="BLEU", help=seeds_needed)
    add("--details", action="store_true", help="also print each output, lengths and the sign test")
    add("--json", type=Path, metavar="FILE", help="also write the record as JSON")
    return parser


def parse_arguments(argv: Optional[Sequence[str]] = None) -> Tuple[Settings, Optional[Path]]:
    """Parse the command line: the settings, and the file of ``--json``."""
    args = build_parser().parse_args(argv)
    systems = parse_systems(args.systems, args.baseline)
    settings = Settings(
        systems=systems,
        text=text_format(args.input, args.remove_bpe, args.detokenize, args.target_lang),
        references=args.reference,
        tokenized_references=args.tokenized_reference,
        source=args.source,
        # D: BLEU is no choice: it costs little, and the sign test, lengths and reports are of it
        metrics=list(dict.fromkeys(["bleu", *args.metrics])),
        segment_scores=parse_segment_scores(args.segment_scores),
        tested=args.baseline is not None,
        test=Test(
            baseline=next(iter(systems)),
            method=args.significance,
            samples=args.samples or SAMPLES[args.significance],
            seed=args.seed,
        ),
        compare_mt=args.compare_mt,
        test_sets=args.test_sets,
        plan=args.plan,
        details=args.details,
    )
    check_test_sets(settings)
    counts = [len(paths) for paths in settings.systems.values()]
    if args.plan and (args.baseline is None or counts[0] < 2 or max(counts[1:]) < 2):
        raise cli.ConfigurationError(
            f"--plan {args.plan:g} needs a deviation over seeds; give --baseline, and several "
            f"seeds of it and of a system, NAME=FILE,FILE"
        )
    return settings, args.json


def check_test_sets(settings: Settings) -> None:
    """Raise unless the names of several test sets make different files of every path."""
    if not settings.test_sets:
        return
    if settings.compare_mt is not None:
        raise cli.ConfigurationError("--compare-mt takes one test set; leave out --test-sets")
    for path in map(str, _inputs(settings)):
        if SET not in path:
            raise cli.ConfigurationError(
                f"{path} is one file for {len(settings.test_sets)} test sets; write {SET} in place "
                f"of their names"
            )


def above_zero(text: str) -> float:
    """Parse a difference that may be planned for."""
    number = cli.finite(text)
    if not 0 < number <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no difference; give one in 0 to 100 BLEU")
    return number


def parse_segment_scores(given: Sequence[Sequence[str]]) -> Dict[str, Dict[str, str]]:
    """Return metric -> system -> ``FILE[,FILE...]``; a repeated flag adds systems to its metric."""
    metrics: Dict[str, Dict[str, str]] = {}
    for metric, *pairs in given:
        flag = f"--segment-scores {metric}"
        if metric.lower() in RESERVED or not metric.strip() or not metric.isprintable():
            raise cli.ConfigurationError(f"{flag} is no name of a metric of segments; give another")
        files = metrics.setdefault(metric, {})
        for pair in pairs or [""]:
            system, _, path = pair.partition("=")
            if not path or system in files:
                raise cli.ConfigurationError(
                    f"{flag} needs SYSTEM=FILE once per system, not {cli.shown(pair)}; for several "
                    "seeds, give SYSTEM=FILE,FILE"
                )
            files[system] = path
    return metrics


if __name__ == "__main__":
    raise SystemExit(main())
