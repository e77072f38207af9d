"""How often tests have p < 0.05 in drawn experiments: the table of docs/evaluation.md.

python -m tests.evaluation.rates
"""

import sys
from dataclasses import replace
from itertools import product
from typing import Callable, Dict, Iterator, List, Sequence, Tuple

import numpy as np
from sacrebleu.metrics import BLEU

from capsnmt.evaluation.metrics import Measure, measure_of, segment_mean
from capsnmt.evaluation.resampling import resample
from capsnmt.evaluation.scores import BOOTSTRAP, CENTRED, RANDOMIZATION, Comparison, Method, Test
from capsnmt.evaluation.significance import compare, p_value, sign_test

SEGMENTS = 300
# standard deviations of the difference of two systems with one seed: what seeds, sentences (one
# system translates these better, with any seed) and a seed's luck with these sentences add
SOURCES = {"seeds": (1.0, 0.0, 0.2), "sentences": (0.2, 1.0, 0.5), "luck": (0.2, 0.0, 1.0)}


def sentences(
    statistics: Sequence[np.ndarray], tested: Callable[..., float]
) -> Callable[[np.random.Generator], float]:
    """Return an experiment without a difference: which system translated a segment is drawn.

    ``statistics`` are those ``[segments, K]`` of two real outputs; ``tested`` returns p of two.
    """

    def experiment(random: np.random.Generator) -> float:
        chosen = random.integers(len(statistics[0]), size=SEGMENTS)
        swapped = random.integers(2, size=(SEGMENTS, 1), dtype=bool)
        one, other = (each[chosen] for each in statistics)
        pair = [np.where(swapped, other, one), np.where(swapped, one, other)]
        return tested(random, pair)

    return experiment


def paired(scores: Callable[[np.ndarray], np.ndarray], method: Method) -> Callable[..., float]:
    """Return the test of two outputs by a metric of sums of their statistics."""

    def tested(random: np.random.Generator, pair: Sequence[np.ndarray]) -> float:
        test = Test(baseline="a", method=method, samples=300, seed=int(random.integers(2**31)))
        mean = segment_mean(SEGMENTS)
        measure = replace(mean, score=lambda sums: float(scores(sums)), scores=scores)
        found = resample({"x": (measure, pair)}, [0, 0], test, fewest=300)["x"]
        drawn = found.resampled[1] - found.resampled[0]
        return p_value(method, found.scores[1] - found.scores[0], drawn, found.exchanged[1])

    return tested


def trained(
    random: np.random.Generator, seeds: int, source: str, difference: float = 0.0, sets: int = 1
) -> Tuple[Comparison, List[np.ndarray]]:
    """Draw the scores of two systems, the second better by a difference; compare them.

    Of several test sets each seed has one level; sentences and luck are of each set.
    """
    of_seed, of_sentence, luck = SOURCES[source]
    levels = of_seed * random.standard_normal((2, seeds)) * 0.5**0.5
    levels[1] += difference
    mean = segment_mean(SEGMENTS)
    test = Test(baseline="a", method=BOOTSTRAP, samples=400, seed=int(random.integers(2**31)))
    scored, outputs = [], []
    for number in range(sets):
        common = 5 * random.standard_normal(SEGMENTS)
        outputs = []
        for of_system in levels:
            own = of_sentence * random.standard_normal(SEGMENTS)
            for level in of_system:
                of_one = own + luck * random.standard_normal(SEGMENTS)
                outputs.append(common + level + of_one * (sets * SEGMENTS / 2) ** 0.5)
        given = {"x": (mean, [mean.statistics(each) for each in outputs])}
        scored.append(resample(given, [*range(2 * seeds)], test, content=number, fewest=400))
    places = {"a": [*range(seeds)], "b": [*range(seeds, 2 * seeds)]}
    return compare(places, scored, test)[0], outputs


def plain_bootstrap(random: np.random.Generator, outputs: Sequence[np.ndarray]) -> float:
    """The hierarchical bootstrap by draws alone: seeds of each system, then sentences."""
    seeds, draws = len(outputs) // 2, 300
    weights = random.multinomial(SEGMENTS, [1 / SEGMENTS] * SEGMENTS, size=draws) / SEGMENTS
    scores = weights @ np.array(outputs).T
    chosen = [random.multinomial(seeds, [1 / seeds] * seeds, size=draws) / seeds for _ in "ab"]
    drawn = (scores[:, seeds:] * chosen[1]).sum(1) - (scores[:, :seeds] * chosen[0]).sum(1)
    delta = np.mean(outputs[seeds:]) - np.mean(outputs[:seeds])
    return p_value(CENTRED, float(delta), drawn)


def seeds_and_sentences(seeds: int, source: str, which: str, sets: int = 1) -> Callable[..., float]:
    """Return an experiment without a difference, which is tested over seeds."""

    def experiment(random: np.random.Generator) -> float:
        comparison, outputs = trained(random, seeds, source, sets=sets)
        if which == "plain":
            return plain_bootstrap(random, outputs)
        found = getattr(comparison, which)
        return 1.0 if found is None else float(found)

    return experiment


def rate(experiment: Callable[[np.random.Generator], float], experiments: int) -> float:
    """Return the share of experiments with p < 0.05."""
    random = np.random.default_rng(1)
    return float(np.mean([experiment(random) < 0.05 for _ in range(experiments)]))


def lines(statistics: Sequence[np.ndarray], measure: Measure, experiments: int) -> Iterator[str]:
    """Yield the lines of the table, in percent."""
    yield "| p < 0.05 without a difference, in % | seeds | sentences | luck |"
    yield "| :-- | --: | --: | --: |"
    named: Dict[str, Method] = {
        "approximate randomisation": RANDOMIZATION,
        "centred bootstrap": CENTRED,
        "sacreBLEU's bootstrap": BOOTSTRAP,
    }
    for name, method in named.items():
        found = rate(sentences(statistics, paired(measure.scores, method)), experiments)
        yield f"| two outputs, BLEU: {name} |  | {100 * found:.1f} |  |"
    signs = sentences(statistics, lambda random, pair: sign_test(measure, *pair).p_value)
    found = rate(signs, experiments)
    yield f"| two outputs, BLEU: sign test |  | {100 * found:.1f} |  |"
    tests = {
        "over seeds and sentences": ("p_value", 1),
        "over seeds, sentences and two test sets": ("p_value", 2),
        "Welch's, over seeds": ("welch_p_value", 1),
        "hierarchical bootstrap by draws alone, not printed": ("plain", 1),
    }
    for (name, (which, sets)), seeds in product(tests.items(), (3, 5)):
        cells = []
        for source in SOURCES:
            rated = rate(seeds_and_sentences(seeds, source, which, sets), experiments)
            skipped = which == "welch_p_value" and source == "sentences"  # to it, a difference
            cells.append("" if skipped else f"{100 * rated:.1f}")
        yield f"| {seeds} seeds: {name} | {' | '.join(cells)} |"


def main(experiments: int = 10000) -> None:
    from tests.evaluation.conftest import read_gzip
    from tests.real_data import real_data

    folder = real_data("significance")
    names = ("ref", "sys1", "sys2")
    reference, *outputs = (read_gzip(folder / f"ted.{name}.detok.eng.gz") for name in names)
    bleu = measure_of(BLEU(references=[reference]))
    for line in lines([*map(bleu.statistics, outputs)], bleu, experiments):
        print(line, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
