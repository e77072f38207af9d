"""sacreBLEU's paired bootstrap test (Koehn 2004), with the seed as an argument."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from capsnmt.evaluation.scores import Score
from capsnmt.evaluation.settings import Bootstrap

SEED_VARIABLE = "SACREBLEU_SEED"


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Set the environment variable that sacreBLEU reads its seed from, and restore it."""
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
    bootstrap: Bootstrap,
) -> List[Dict[str, Score]]:
    """Score systems and test each against the first by paired bootstrap resampling.

    Both systems are scored on the same draws of segments, with replacement. With d the difference
    on the test set and d_b that on draw b of B,
    p = (#{b: abs(d_b) - mean(abs(d_b)) > abs(d)} + 1) / (B + 1).

    Args:
        systems: (name, hypotheses), the baseline first.
        metrics: what :func:`~capsnmt.evaluation.scoring.build_metrics` returns.
        bootstrap: number of resamples and seed.

    Returns:
        The scores of each system by metric, in the order given.

    Raises:
        ValueError: the seed is below 1; sacreBLEU treats 0 as no seed.
    """
    from sacrebleu.significance import PairedTest

    if bootstrap.seed < 1:
        raise ValueError(f"seed {bootstrap.seed} is not allowed: sacreBLEU needs one of at least 1")
    with _sacrebleu_seed(bootstrap.seed):
        test = PairedTest(
            list(systems),
            metrics,
            references=None,
            test_type="bs",
            n_samples=bootstrap.resamples,
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
    """Convert a result of sacreBLEU, whose numbers are numpy scalars."""
    p_value = None if result.p_value is None else float(result.p_value)
    return Score(float(result.score), signature, p_value, float(result.mean), float(result.ci))
