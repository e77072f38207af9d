"""From the files of some systems to their scores."""

import platform
from itertools import chain, count
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
from msgspec.structs import replace

import capsnmt
from capsnmt.cli import ConfigurationError, say
from capsnmt.evaluation import scores
from capsnmt.evaluation.compare_mt import write_report
from capsnmt.evaluation.metrics import (
    Measure,
    as_scored,
    buckets_of,
    build_metrics,
    measure_of,
    segment_mean,
    tokenise,
)
from capsnmt.evaluation.outputs import Settings, Systems, read_systems, warn_of_copies
from capsnmt.evaluation.planning import plans
from capsnmt.evaluation.resampling import Scored, resample
from capsnmt.evaluation.segment_scores import read_segment_scores
from capsnmt.evaluation.significance import compare, scores_of, sign_test
from capsnmt.evaluation.test_set import read_test_set
from capsnmt.evaluation.text import base_language
from capsnmt.files import installed_version

BLOCK = 200  # segments whose order is looked at together


def evaluate(settings: Settings) -> Union[scores.Evaluation, scores.Evaluations]:
    """Read, score and test some systems, on one test set or on several."""
    found: Union[scores.Evaluation, scores.Evaluations]
    if settings.test_sets:
        found = evaluate_sets({name: settings.of(name) for name in settings.test_sets})
    else:
        found, _ = _evaluate(settings)
    if settings.plan is None:
        return found
    made = [*plans(settings.plan, found.comparisons)]
    if not made:
        say(f"note: --plan {settings.plan:g}: all seeds have the same scores, or there are too few")
    return replace(found, plans=made)


def evaluate_sets(
    settings: Mapping[str, Settings], systems: Mapping[str, Systems] = MappingProxyType({})
) -> scores.Evaluations:
    """Evaluate systems on several test sets; ``systems`` are those that are read already."""
    found: Dict[str, scores.Evaluation] = {}
    scored: List[Mapping[str, Scored]] = []
    for test_set, own in settings.items():
        several = len(settings) > 1
        found[test_set], resampled = _evaluate(own, several, systems.get(test_set))
        scored.append(resampled)
    of_sets = ((name, each.checksums["reference"]) for name, each in found.items())
    warn_of_copies(of_sets, "reference")
    first = next(iter(settings.values()))
    comparisons = compare(_places(first.systems), scored, first.test) if first.tested else []
    return scores.Evaluations(test_sets=found, comparisons=comparisons)


def _places(systems: Mapping[str, Sequence[Any]]) -> Dict[str, List[int]]:
    numbers = count()
    return {name: [next(numbers) for _ in found] for name, found in systems.items()}


def _evaluate(
    settings: Settings, several: bool = False, systems: Optional[Systems] = None
) -> Tuple[scores.Evaluation, Mapping[str, Scored]]:
    """Evaluate systems on one test set; return what comparisons over several need as well."""
    systems = systems or read_systems(settings.systems, settings.text)
    outputs = [output for found in systems.values() for output in found]
    test_set = read_test_set(outputs, settings)
    segments, language = len(test_set.references[0]), test_set.target_lang
    if language is None:
        say(
            "warning: no --target-lang, and no log that names it: the rules for all languages and "
            "BLEU's 13a tokeniser are used"
        )
    test = settings.test if settings.tested else None
    tokenised = tokenise(test_set, outputs)
    if settings.compare_mt is not None and tokenised is None:
        raise ConfigurationError(
            "--compare-mt needs words, which this target language does not separate by spaces; "
            "give --tokenized-reference FILE and systems with the same tokenisation"
        )
    buckets = buckets_of(test_set.source)
    metrics = build_metrics(language, test_set.references, settings.metrics)
    if "chrf++" in {*settings.metrics} - {*metrics}:
        say(f"note: chrF2++ is left out: it counts words, which {language} does not separate")
    measures = {name: measure_of(metric, language) for name, metric in metrics.items()}
    texts = [as_scored(each.hypotheses, language) for each in outputs]
    statistics: Dict[str, Tuple[Measure, List[np.ndarray]]] = {
        metric: (measure, [*map(measure.statistics, texts)]) for metric, measure in measures.items()
    }
    for metric, files in settings.segment_scores.items():
        values, mean = read_segment_scores(metric, files, systems, segments), segment_mean(segments)
        statistics[metric] = mean, [*map(mean.statistics, values)]
    places = _places(systems)
    pairs = paired(places, test)
    compared = {"reference": [*chain(*test_set.references)], "source": test_set.source}
    checksums = {name: scores.checksum(text) for name, text in compared.items() if text is not None}
    content = int(checksums["reference"][:16], 16) if several else 0
    resampled = resample(statistics, pairs, test, content)
    by_metric = {name: scores_of(each, pairs, test) for name, each in resampled.items()}
    bleu, of_bleu = statistics["bleu"]
    for each, text, rows in zip(outputs, texts, of_bleu):
        _check_order(each.label, text, rows, bleu)
    scored: List[scores.OutputScores] = []
    for place, (each, pair) in enumerate(zip(outputs, pairs)):
        found, rows = {name: own[place] for name, own in by_metric.items()}, of_bleu[place]
        words = tokenised.scores(each, base_language(language) == "de") if tokenised else {}
        scored.append(
            scores.OutputScores(
                path=each.path,
                scores={**{name: found[name] for name in measures}, **words, **found},
                bleu_by_length={
                    name: bleu.score(rows[numbers].sum(0)) for name, numbers in buckets.items()
                },
                sign_test=None if pair == place else sign_test(bleu, of_bleu[pair], rows),
            )
        )
    if settings.compare_mt is not None and tokenised is not None:
        firsts = {name: tokenised.outputs[found[0]] for name, found in systems.items()}
        reference, *others = tokenised.references
        if others:
            say("note: compare-mt's report is of the first reference; it takes one")
        write_report(settings.compare_mt, settings.test, reference, firsts, test_set.source)
    evaluation = scores.Evaluation(
        reference=settings.references[0],
        references=test_set.names if len(test_set.names) > 1 else [],
        checksums=checksums,
        segments=segments,
        target_lang=language,
        length_unit=test_set.length_unit if buckets else None,
        segments_by_length={name: len(numbers) for name, numbers in buckets.items()},
        test=test,
        systems=[
            scores.SystemScores(name=name, outputs=[scored[place] for place in found])
            for name, found in places.items()
        ],
        comparisons=compare(places, [resampled], test) if test is not None else [],
        versions={
            "capsnmt": capsnmt.__version__,  # a checkout used by path has no metadata
            "python": platform.python_version(),
            **{package: installed_version(package) for package in ("sacrebleu", "sacremoses")},
        },
    )
    return evaluation, resampled


def _check_order(label: str, text: Sequence[str], own: np.ndarray, bleu: Measure) -> None:
    """Warn if translations fit their references no better than those of the segments before.

    That is, if they have no more words in common by two standard errors: they are in another order
    or language, or say the same of every sentence. Where blocks of them are so, and differ from the
    others by four, a line was lost before.
    """
    moved = bleu.statistics([*text[1:], *text[:1]])
    gain = (own - moved)[:, 2]

    def unfit(part: np.ndarray) -> bool:
        return bool(part.sum() <= 2 * part.std() * len(part) ** 0.5)

    worse = f"warning: {label} fits its reference no better than that of another sentence"
    if len(gain) >= scores.FEW and unfit(gain):
        say(f"{worse}; check the order of lines, the language and the model")
        return
    blocks = {start: gain[start : start + BLOCK] for start in range(0, len(gain), BLOCK)}
    others = [
        start
        for start, part in blocks.items()
        if len(part) >= BLOCK / 2
        and unfit(part)
        and gain.mean() - part.mean() > 4 * gain.std() / len(part) ** 0.5
    ]
    if others:
        count = sum(len(blocks[start]) for start in others)
        say(
            f"{worse} in {count:,} of {len(gain):,} segments, from about {others[0] + 1:,} on; was "
            f"a line lost?"
        )


def paired(places: Mapping[str, Sequence[int]], test: Optional[scores.Test]) -> List[int]:
    """Return the output of the baseline that each is tested against; its own number for none.

    That is the only one, or that of the same place among the seeds, if both have as many.
    """
    firsts, *_ = places.values()
    pairs: List[int] = []
    for own in places.values():
        rivals = [*firsts] * (len(own) if len(firsts) == 1 else 1)
        pairs += rivals if test is not None and len(rivals) == len(own) else own
    return pairs
