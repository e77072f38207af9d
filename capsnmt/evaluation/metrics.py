"""The metrics: sacreBLEU's (Post 2018), means over segments, BLEU by source length and of tokens.

Tokenised BLEU is for comparison with papers that report it; it is not comparable with sacreBLEU.
``multi-bleu`` is Moses' ``multi-bleu.perl``: n-grams of the given tokens, no smoothing.
``compound-split`` is the same after ``rich-text`` has become ``rich ##AT##-##AT## text`` on both
sides, which raises English-German scores: tensor2tensor's ``get_ende_bleu.sh`` (Vaswani et al.
2017) and fairseq's ``compound_split_bleu.sh``.
"""

import re
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.outputs import Output
from capsnmt.evaluation.scores import COMPOUND_SPLIT, METRICS, MULTI_BLEU, Score
from capsnmt.evaluation.test_set import TestSet
from capsnmt.evaluation.text import BETWEEN_CJK, WITHOUT_SPACES, base_language

DECIMALS = 9
HYPHEN = re.compile(r"(\S)-(\S)")
# **D**: the papers write 10-20 and 20-30. A length that is in two names belongs to the second, so
# 10-20 is 10..19 and >50 is 50 and more. compare-mt, which Ampomah et al. use, does the same.
EDGES = (10, 20, 30, 40, 50)
BUCKETS = ("<10", "10-20", "20-30", "30-40", "40-50", ">50")


class ShownTER(TER):
    """TER that shows its progress on a terminal: it may take seconds for a long segment."""

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], references: Any) -> Any:
        from tqdm import tqdm

        shown = tqdm(hypotheses, "  TER", unit=" segments", leave=False, disable=None)
        return super()._extract_corpus_statistics(shown, references)


def as_scored(lines: Sequence[str], target_lang: Optional[str]) -> List[str]:
    """Return text as it is scored: the words of Japanese together, which a user has set apart.

    **D**: such text has no spaces once it is detokenised, and its reference has them: MeCab and TER
    would end words there, and the TER of a perfect translation be 40.
    """
    if base_language(target_lang) == "ja":
        return [BETWEEN_CJK.sub("", line) for line in lines]
    return [*lines]


def build_metrics(
    target_lang: Optional[str],
    references: Sequence[Sequence[str]],
    names: Sequence[str] = tuple(METRICS),
) -> Dict[str, Metric]:
    """Build sacreBLEU's metrics for a target language, with the references' statistics cached.

    BLEU uses the tokeniser that sacreBLEU recommends: zh, ja-mecab, ko-mecab, else 13a. **D**: with
    13a this is the score of ``mteval-v13a.pl -c``, which has the same tokeniser and smoothing
    (Post 2018), so the BLEU that Ampomah et al. 2020 report for En-De is not computed again.

    **D**: TER counts words. Chinese and Japanese do not separate words by spaces; for them TER
    uses sacreBLEU's normalisation and Asian support, which count characters. The signature says
    so.

    **D**: chrF++ counts words as well, and has no such support: of a perfect Chinese translation,
    whose spaces the detokeniser drops, it is 79.7. There it is left out.

    The keys are those of ``names``, in the order of :data:`~capsnmt.evaluation.scores.METRICS`.
    """
    base = base_language(target_lang)
    asian = base in WITHOUT_SPACES
    references = [as_scored(each, target_lang) for each in references]
    try:
        # test_set.py warns of tokens, once an output
        bleu = BLEU(trg_lang=base, force=True, references=references)
    except (ImportError, RuntimeError):  # MeCab is sacreBLEU's own extra
        raise ConfigurationError(
            f"BLEU for {target_lang!r} needs MeCab; pip install 'sacrebleu[{base}]'"
        ) from None
    metrics = {
        "bleu": lambda: bleu,
        "chrf": lambda: CHRF(references=references),
        "chrf++": lambda: CHRF(word_order=2, references=references),
        "ter": lambda: ShownTER(normalized=asian, asian_support=asian, references=references),
    }
    chosen = {*names} - ({"chrf++"} if asian else set())
    return {key: build() for key, build in metrics.items() if key in chosen}


def buckets_of(source: Optional[Sequence[str]]) -> Dict[str, np.ndarray]:
    """Return the numbers of the segments in each bucket of source lengths that has some.

    A length is the number of tokens in the line: subwords for the source that fairseq-generate
    prints without ``--remove-bpe`` (as in Ampomah et al.), words for plain tokenised text.

    >>> found = buckets_of(["a", "a " * 9, "a " * 10, "a " * 49, "a " * 50])
    >>> {name: numbers.tolist() for name, numbers in found.items()}
    {'<10': [0, 1], '10-20': [2], '40-50': [3], '>50': [4]}
    """
    if source is None:
        return {}
    found = np.digitize([len(line.split()) for line in source], EDGES)
    return {BUCKETS[bucket]: np.flatnonzero(found == bucket) for bucket in np.unique(found)}


def f_score(statistics: np.ndarray, order: int, beta: float) -> np.ndarray:
    """Compute chrF, 0..100, from sums ``[..., 3 * order]`` of n-grams: hypothesis, reference, both.

    This is sacreBLEU's chrF: precisions and recalls are means over the orders that both sides have.
    """
    hypothesis, reference, both = np.moveaxis(
        statistics.reshape(*statistics.shape[:-1], order, 3), -1, 0
    )
    had = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(had.sum(-1), 1)
    precision, recall = (
        np.where(had, both / np.maximum(ngrams, 1), 0).sum(-1) / orders
        for ngrams in (hypothesis, reference)
    )
    weighted = beta**2 * precision + recall
    return 100 * (1 + beta**2) * precision * recall / np.where(weighted, weighted, 1)


def smoothed_bleu(statistics: np.ndarray, smooth: bool) -> np.ndarray:
    """Compute BLEU, 0..100, from sums ``[..., 10]`` over segments.

    Those are the lengths of the hypothesis and of the closest reference, the matching n-grams for
    n = 1..4, and all n-grams of the hypothesis for n = 1..4. With ``smooth``, the k-th order
    without a match counts 1 / 2^k (mteval-v13a's, sacreBLEU's exp).
    """
    length, reference = statistics[..., 0], statistics[..., 1]
    matches, ngrams = statistics[..., 2:6], statistics[..., 6:]
    missing = matches == 0
    counted = np.where(missing, 0.5 ** np.cumsum(missing, -1) if smooth else 0.0, matches)
    with np.errstate(divide="ignore", invalid="ignore"):
        precisions = np.where(ngrams > 0, counted / ngrams, 0)
        brevity = np.where(
            length < reference, np.exp(1 - reference / np.maximum(length, 1e-300)), 1
        )
        scores = 100 * brevity * np.exp(np.log(precisions).mean(-1))
    return np.where(missing.all(-1), 0, scores)


def error_rate(statistics: np.ndarray) -> np.ndarray:
    """Compute TER from sums ``[..., 2]`` of edits and words; edits without words are 100."""
    edits, words = statistics[..., 0], statistics[..., 1]
    return 100 * np.where(words > 0, edits / np.where(words > 0, words, 1), edits > 0)


def mean_score(statistics: np.ndarray) -> np.ndarray:
    """Compute the mean from sums ``[..., 2]`` of scores and of their number.

    **D**: it is rounded to 9 decimals, so that the same scores added in another order are a tie and
    not a greater difference.
    """
    return np.round(statistics[..., 0] / statistics[..., 1], DECIMALS)


@dataclass(frozen=True)
class Measure:
    """A metric by its sufficient statistics, which are sums over segments."""

    signature: str
    statistics: Callable[[Any], np.ndarray]  # what it scores of each segment -> [segments, K]
    score: Callable[[np.ndarray], float]  # the sums [K] -> the score that is printed
    scores: Callable[[np.ndarray], np.ndarray]  # sums [..., K] -> scores [...]


def measure_of(metric: Metric, target_lang: Optional[str] = None) -> Measure:
    """Return one of sacreBLEU's metrics, with the references cached, for many resamples at once.

    The signature says where `as_scored` changes the text; chrF counts no spaces.
    """
    joined = base_language(target_lang) == "ja" and not isinstance(metric, CHRF)
    scores: Callable[[np.ndarray], np.ndarray] = error_rate
    if isinstance(metric, CHRF):
        scores = partial(f_score, order=metric.order, beta=metric.beta)
    elif isinstance(metric, BLEU):
        scores = partial(smoothed_bleu, smooth=metric.smooth_method == "exp")
    return Measure(
        metric.get_signature().format() + ("|text:joined" if joined else ""),
        lambda hypotheses: np.array(metric._extract_corpus_statistics(hypotheses, None), float),
        lambda sums: float(metric._compute_score_from_stats(sums.tolist()).score),
        scores,
    )


def segment_mean(segments: int) -> Measure:
    """Return the mean over segments of scores that another program computed."""
    return Measure(
        f"nsegs:{segments}|aggregate:mean|scores:given",
        lambda given: np.stack([np.array(given, float), np.ones(segments)], -1),
        lambda sums: float(mean_score(sums)),
        mean_score,
    )


def split_compounds(line: str) -> str:
    """Make hyphens inside words tokens of their own.

    As in perl's ``s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g``, a match consumes the letter after the
    hyphen.

    >>> split_compounds("rich-text format - a-b-c")
    'rich ##AT##-##AT## text format - a ##AT##-##AT## b-c'
    """
    return HYPHEN.sub(r"\1 ##AT##-##AT## \2", line)


@dataclass(frozen=True)
class Tokenised:
    """The tokens of a test set, separated by spaces; ``how`` is for the signature."""

    how: str
    references: List[List[str]]
    outputs: Dict[Output, List[str]]

    def scores(self, output: Output, into_german: bool) -> Dict[str, Score]:
        """Compute multi-bleu.perl's BLEU of an output and, into German, the compound-split one."""
        ours, references = self.outputs[output], self.references
        found = {MULTI_BLEU: multi_bleu(ours, references, self.how)}
        if into_german:
            ours = [split_compounds(line) for line in ours]
            references = [[split_compounds(line) for line in each] for each in references]
            found[COMPOUND_SPLIT] = multi_bleu(ours, references, f"{self.how}+compound-split")
        return found


def tokenise(test_set: TestSet, outputs: Sequence[Output]) -> Optional[Tokenised]:
    """Tokenise reference and outputs; ``None`` for a language that does not separate words.

    **D**: without a tokenised reference, Moses' tokeniser runs on the text of both sides, as
    get_ende_bleu.sh does with its decodes. It runs without ``-a``, so hyphens stay in words.
    Whatever tokenised the training data, hypothesis and reference then cannot differ in it. With a
    tokenised reference the tokens are those that were decoded, which is what most papers gave to
    multi-bleu.perl.
    """
    if test_set.tokens:
        return Tokenised("as-given", test_set.tokens, {each: each.tokens for each in outputs})
    lang = base_language(test_set.target_lang)
    if lang in WITHOUT_SPACES:
        return None
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang=lang)

    def tokens(lines: Sequence[str]) -> List[str]:
        # escaping would change tokens on both sides in the same way, and no score
        return [moses.tokenize(line, escape=False, return_str=True) for line in lines]

    return Tokenised(
        f"moses.{lang or 'any'}-sacremoses.{metadata.version('sacremoses')}",
        [tokens(each) for each in test_set.references],
        {each: tokens(each.hypotheses) for each in outputs},
    )


def multi_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], how: str) -> Score:
    """Compute the BLEU of ``multi-bleu.perl``."""
    bleu = multi_bleu_metric(references)
    score = float(bleu.corpus_score(hypotheses, None).score)
    return Score(score=score, signature=f"{bleu.get_signature().format()}|text:{how}")


def multi_bleu_metric(references: Sequence[Sequence[str]]) -> BLEU:
    """Build ``multi-bleu.perl``'s BLEU: the given tokens, case-sensitive, no smoothing."""
    # force silences sacreBLEU's warning about tokenised text, which is intended here
    return BLEU(tokenize="none", smooth_method="none", force=True, references=references)
