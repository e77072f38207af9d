"""sacreBLEU's paired tests of significance, with the seed as an argument."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

from capsnmt.evaluation.environment import environment
from capsnmt.evaluation.scores import Score
from capsnmt.evaluation.settings import BOOTSTRAP, RANDOMIZATION, Significance

SEED_VARIABLE = "SACREBLEU_SEED"
TYPES = {BOOTSTRAP: "bs", RANDOMIZATION: "ar"}  # sacreBLEU's names


def paired_test(
    systems: Sequence[Tuple[str, Sequence[Any]]],
    metrics: Dict[str, Any],
    significance: Significance,
) -> List[Dict[str, Score]]:
    """Score systems and test each against the first.

    With d the difference on the test set and d_b that of sample b of B:

    - Paired bootstrap resampling (Koehn 2004): sample b draws segments with replacement, and scores
      both systems on them. p = (#{b: abs(d_b) - mean(abs(d_b)) > abs(d)} + 1) / (B + 1).
    - Paired approximate randomization (Riezler and Maxwell 2005): sample b exchanges the two
      systems' translations of each segment with probability 1/2.
      p = (#{b: abs(d_b) > abs(d)} + 1) / (B + 1). There is no confidence interval.

    Args:
        systems: (name, segments), the baseline first.
        metrics: what :func:`~capsnmt.evaluation.scoring.build_metrics` returns.
        significance: the test, its number of samples and its seed.

    Returns:
        The scores of each system by metric, in the order given.

    Raises:
        ValueError: the seed is below 1; sacreBLEU treats 0 as no seed.
    """
    from sacrebleu.significance import PairedTest

    seed = significance.seed
    if seed < 1:
        raise ValueError(f"seed {seed} is not allowed: sacreBLEU needs one of at least 1")
    with environment({SEED_VARIABLE: str(seed)}):
        test = PairedTest(
            list(systems),
            metrics,
            references=None,
            test_type=TYPES[significance.method],
            n_samples=significance.samples,
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
    p_value, mean, ci = (
        None if value is None else float(value)
        for value in (result.p_value, result.mean, result.ci)
    )
    return Score(float(result.score), signature, p_value, mean, ci)
