"""The paired bootstrap test (Koehn 2004) of sacreBLEU, with its seed as an argument."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from capsnmt.evaluation.scoring import Score

SEED_VARIABLE = "SACREBLEU_SEED"


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """sacreBLEU takes its seed from the environment alone; what stood there comes back."""
    before = os.environ.get(SEED_VARIABLE)
    os.environ[SEED_VARIABLE] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[SEED_VARIABLE]
        else:
            os.environ[SEED_VARIABLE] = before


def paired_bootstrap(
    systems: Sequence[Tuple[str, List[str]]],
    metrics: Dict[str, Any],
    resamples: int = 1000,
    seed: int = 12345,
) -> List[Dict[str, Score]]:
    """Score systems and test each against the first, by paired bootstrap resampling.

    The same ``resamples`` draws of segments, with replacement, are scored for both systems; with
    d_b their differences and d that on the whole test set, p = (#{b: |d_b| - mean |d| > |d|} + 1)
    / (resamples + 1).

    Args:
        systems: (name, hypotheses), the baseline first.
        metrics: what :func:`~capsnmt.evaluation.scoring.build_metrics` returns.
        resamples: the number of draws, at least 1.
        seed: at least 1; sacreBLEU would take 0 for no seed at all.

    Returns:
        The scores of each system by metric, in the order given.

    Raises:
        ValueError: the seed is below 1.
    """
    from sacrebleu.significance import PairedTest

    if seed < 1:
        raise ValueError(f"seed {seed} is not allowed: sacreBLEU needs one of at least 1")
    with _sacrebleu_seed(seed):
        test = PairedTest(
            list(systems), metrics, references=None, test_type="bs", n_samples=resamples
        )
        signatures, results = test()
    return [
        {
            # sacreBLEU returns the metrics under names of its own, in the order they were given
            key: _score(results[name][index], signatures[name].format(short=False))
            for key, name in zip(metrics, signatures)
        }
        for index in range(len(systems))
    ]


def _score(result: Any, signature: str) -> Score:
    """sacreBLEU's result, whose means are numpy's scalars of single precision, as ours."""
    p_value = None if result.p_value is None else float(result.p_value)
    return Score(float(result.score), signature, p_value, float(result.mean), float(result.ci))
