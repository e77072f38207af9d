"""An evaluation as tables for the terminal."""

import statistics
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from tabulate import tabulate

from capsnmt.evaluation.scores import (
    COMPARABLE,
    FEW,
    METRICS,
    Comparison,
    Evaluation,
    Evaluations,
    OutputScores,
    Plan,
    SystemScores,
    Test,
    common_metrics,
    digits,
)


def as_text(found: Union[Evaluation, Evaluations], details: bool = False) -> str:
    """Return what fits a screen: scores, differences, p; with ``details`` all else as well."""
    sets = found.test_sets if isinstance(found, Evaluations) else {"": found}
    first = next(iter(sets.values()))
    paragraphs = []
    for name, each in sets.items():
        texts = ", ".join(each.references) or each.reference
        reference = "references" if each.references else "reference"
        test_set = f"{name}: " if name else ""
        paragraphs.append(f"{test_set}{each.segments:,} segments, {reference}: {texts}")
    outputs = [out for each in sets.values() for sys in each.systems for out in sys.outputs]
    shown = common_metrics(outputs)
    tokenised = {key: shown.pop(key) for key in COMPARABLE if key in shown}
    if not found.comparisons:
        paragraphs.append(_scores(sets, shown))
    for key, metric in shown.items() if found.comparisons else ():
        title = metric if key in METRICS else f"{metric}, means of the scores of all segments"
        paragraphs.append(f"{title}\n{_differences(sets, found.comparisons, key)}")
    if tokenised:
        paragraphs.append(
            "tokenised BLEU, not comparable with the scores above:\n" + _scores(sets, tokenised)
        )
    shown.update(tokenised)
    paragraphs.append("\n".join(_signatures(sets, shown)))
    if first.test is not None:
        sizes = [each.segments for each in sets.values()]
        paragraphs.append("\n".join(_explanations(found.comparisons, first.test, sizes)))
    for plan in found.plans:
        paragraphs.append(_plan_text(plan))
    if details:
        for name, each in sets.items():
            paragraphs += [*([f"{name}:"] if name else []), *_details(each)]
    return "\n\n".join(paragraphs)


def _scores(sets: Mapping[str, Evaluation], metrics: Mapping[str, str]) -> str:
    """Return one table of all metrics, which map to their names, over seeds."""
    header = [f"{name} {metric}".strip() for name in sets for metric in metrics.values()]
    rows = []
    for number, system in enumerate(next(iter(sets.values())).systems):
        found = ((key, each.systems[number]) for each in sets.values() for key in metrics)
        rows.append([system.name, *(_mean(scored, key) for key, scored in found)])
    return _table(["system", *header], rows)


def _differences(
    sets: Mapping[str, Evaluation], comparisons: Sequence[Comparison], key: str
) -> str:
    """Return the table of one metric: scores over seeds, and differences to the baseline."""
    compared = {each.system: each for each in comparisons if each.metric == key}
    rows = []
    for number, system in enumerate(next(iter(sets.values())).systems):
        row = [system.name, str(len(system.outputs))]
        row += [_mean(each.systems[number], key) for each in sets.values()]
        row += _difference(compared[system.name]) if system.name in compared else [""] * 4
        rows.append(row if len(compared) > 1 else row[:-1])
    header = ["system", "seeds", *(name or "score" for name in sets)]
    header += ["Δ", "95% of Δ", "p", "p, Holm"]
    return _table(header[: len(rows[0])], rows)


def _mean(system: SystemScores, key: str) -> str:
    return system.spread(key).text(f".{digits(key)}f")


def _difference(found: Comparison) -> List[str]:
    form = f"+.{digits(found.metric)}f"
    ends = " to ".join(f"{end:{form}}" for end in found.interval or ())
    p, corrected = map(p_text, (found.p_value, found.corrected_p_value))
    return [f"{found.delta:{form}}{found.mark}", ends, p, corrected]


def p_text(p_value: Optional[float]) -> str:
    """Return a p-value; a dash if nothing was tested.

    >>> p_text(0.0304), p_text(0.00001), p_text(None)
    ('0.0304', '<0.0001', '–')
    """
    if p_value is None:
        return "–"
    return "<0.0001" if p_value < 0.00005 else f"{p_value:.4f}"


def _signatures(sets: Mapping[str, Evaluation], shown: Mapping[str, str]) -> Iterator[str]:
    for key, metric in shown.items():
        found = {each.systems[0].outputs[0].scores[key].signature for each in sets.values()}
        yield from (f"{metric}: {each}" for each in sorted(found))
        if key in COMPARABLE:
            yield f"{key}: {COMPARABLE[key]}"
        elif any("tok:13a" in each for each in found):
            yield "BLEU is also that of mteval-v13a.pl -c: same tokeniser and smoothing"


def _explanations(
    comparisons: Sequence[Comparison], test: Test, sizes: Sequence[int]
) -> Iterator[str]:
    """Yield what Δ and p are, and what they cannot say; ``sizes`` are those of the test sets."""
    several = f", means over {len(sizes)} test sets" if len(sizes) > 1 else ""
    yield f"Δ: the difference to {test.baseline}{several}; ±: the standard deviation over seeds"
    if few := min(sizes) < FEW:
        yield (
            f"{min(sizes)} segment(s) are too few: nothing is known of other sentences, and "
            "several seeds have no p"
        )
    seeds = [each.seeds for each in comparisons]
    if (1, 1) in seeds:
        yield (
            f"p of one output each: {test.in_words}; it is over sentences and says nothing of "
            "other seeds"
        )
    yield from said_of_seeds(comparisons)
    if not few and any(min(n) > 1 and x.p_value is None for n, x in zip(seeds, comparisons)):
        yield "no p where all seeds of both have the same score: nothing is known of other seeds"
    tested = {each.system for each in comparisons if each.p_value is not None}
    if tested:
        yield f"†, ‡: p below 0.05, 0.01 by Holm's correction over {len(tested)} test(s) of a table"
    for each in comparisons:
        p, alone = each.p_value, each.sentences_p_value
        if p is not None and alone is not None and p < min(0.05, alone):
            yield (
                f"{each.system}, {each.metric}: over its sentences alone p is larger, "
                f"{p_text(alone)}: its seeds agree by luck; that one is corrected"
            )


def said_of_seeds(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield what p of some numbers of seeds are over, and what they cannot say."""
    seeds = {each.seeds for each in comparisons}
    if any(min(each) > 1 for each in seeds):
        yield (
            "p and interval of several seeds are over seeds and sentences, two-sided: whether "
            "other seeds and other sentences would show the difference"
        )
    if any(max(each) >= 3 * min(each) > 3 for each in seeds):
        yield "p is too small where one system has three times as many seeds as the other"
    if any(min(each) in (2, 3, 4) for each in seeds):
        yield "fewer than 5 seeds: the deviation over seeds is rough, and so are p and interval"
    if any(min(each) == 1 < max(each) for each in seeds):
        yield "one output against several seeds: no p, nothing is known of other seeds of the one"


def _plan_text(plan: Plan) -> str:
    """Return what more seeds would show, and what the finished ones could have shown."""
    sentences = plan.deviation_over_sentences
    floor = f"; more seeds do not lower that over sentences, {sentences:.2f}" if sentences else ""
    powers = plan.power.values()
    needed = f"{plan.needed} seeds" if plan.needed else "no number of seeds up to 200"
    return "\n".join(
        [
            f"{plan.system} and {plan.baseline}: deviation over seeds {plan.deviation:.2f}{floor}",
            f"probability of p < 0.05 at a difference of {plan.effect:g} BLEU:",
            _table(["seeds", *map(str, plan.power)], [["", *(f"{p:.2f}" for p in powers)]]),
            f"{needed} have 0.8 there; the finished seeds have 0.8 at {plan.shown:.2f} BLEU",
        ]
    )


def _details(evaluation: Evaluation) -> Iterator[str]:
    """Yield the scores and tests of every output, BLEU by length, the sign test."""
    systems, test = evaluation.systems, evaluation.test
    first = systems[0].outputs[0].scores
    names = {key: METRICS.get(key, key) for key in first}
    rows = [row for system in systems for row in _score_rows(system, names)]
    yield _table(["output", *names.values()], [row for row in rows if any(row[1:])])
    if evaluation.segments_by_length:
        yield f"BLEU by source length, in {evaluation.length_unit} (10-20 is 10 to 19):"
        yield _length_table(systems, evaluation.segments_by_length)
    if any(output.sign_test for system in systems for output in system.outputs) and test:
        alone = len(systems[0].outputs) == 1
        against = test.baseline if alone else f"that of {test.baseline} in the same place"
        yield f"p of each output, against {against}: {test.in_words}"
        yield (
            f"sign test (Collins et al. 2005) against {test.baseline}, on BLEU: sentences that "
            "raise or lower the corpus BLEU of the baseline when they replace its own; ties count "
            "for neither side; two-sided"
        )
        yield _table(["system", "better", "worse", "ties", "p"], list(_sign_tests(systems)))


def _outputs(system: SystemScores) -> List[Tuple[str, OutputScores]]:
    """Return the outputs of a system, numbered if there are several."""
    if len(system.outputs) == 1:
        return [(system.name, system.outputs[0])]
    return [(f"{system.name} {number}", each) for number, each in enumerate(system.outputs, 1)]


def _score_rows(system: SystemScores, metrics: Iterable[str]) -> Iterator[List[str]]:
    """Yield the scores of each output and, after a test, intervals, differences and p-values."""

    def row(name: str, values: Iterable[Optional[float]], sign: str = "") -> List[str]:
        numbers = zip(metrics, values)
        return [name, *("" if x is None else f"{x:{sign}.{digits(key)}f}" for key, x in numbers)]

    for name, output in _outputs(system):
        scores = [output.scores[key] for key in metrics]
        yield row(name, [each.score for each in scores])
        yield row(f"{name} ± 95%", [each.ci for each in scores])
        yield row(f"{name} Δ", [each.delta for each in scores], "+")
        yield [f"{name} p", *("" if x.p_value is None else p_text(x.p_value) for x in scores)]


def _length_table(systems: Sequence[SystemScores], segments: Dict[str, int]) -> str:
    rows = [["segments", *(f"{number:,}" for number in segments.values())]]
    for system in systems:
        found = [[each.bleu_by_length[bucket] for each in system.outputs] for bucket in segments]
        rows.append([system.name, *(f"{statistics.fmean(values):.2f}" for values in found)])
    return _table(["system", *segments], rows)


def _sign_tests(systems: Sequence[SystemScores]) -> Iterator[List[str]]:
    for system in systems:
        for name, output in _outputs(system):
            sign = output.sign_test
            if sign is not None:
                counts = (f"{count:,}" for count in (sign.better, sign.worse, sign.ties))
                yield [name, *counts, p_text(sign.p_value)]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose names are on the left and whose numbers are on the right."""
    sides = ("left", *["right"] * (len(header) - 1))
    return tabulate(rows, header, tablefmt="plain", colalign=sides, disable_numparse=True)
