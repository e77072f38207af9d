"""Tokenised BLEU, for comparison with the papers that report it; never comparable with sacreBLEU's.

``multi-bleu`` is Moses' ``multi-bleu.perl``: n-grams of tokens as they stand, no smoothing.
``compound-split`` is the same after ``rich-text`` has become ``rich ##AT##-##AT## text`` on both
sides, which raises English-German scores: tensor2tensor's ``get_ende_bleu.sh`` (Vaswani et al.
2017) and fairseq's ``compound_split_bleu.sh``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata
from typing import Dict, List, Optional, Sequence

from capsnmt.errors import ConfigurationError
from capsnmt.evaluation.reading import read_lines
from capsnmt.evaluation.scoring import Score, import_sacrebleu_metrics
from capsnmt.evaluation.systems import Output
from capsnmt.evaluation.text import WITHOUT_SPACES, base_language

HYPHEN = re.compile(r"(\S)-(\S)")

# what each is called, and whose numbers it may stand beside
MULTI_BLEU, COMPOUND_SPLIT = "multi-bleu", "compound-split"
COMPARABLE = {
    MULTI_BLEU: "multi-bleu.perl on Moses-tokenised text, case-sensitive (Ampomah et al. 2020, "
    "Es-En)",
    COMPOUND_SPLIT: "the same with compounds split, ##AT##-##AT## (WMT14 En-De as Vaswani et al. "
    "2017 and tensor2tensor's get_ende_bleu.sh)",
}


def split_compounds(line: str) -> str:
    """Hyphens inside words as tokens of their own.

    As in perl's ``s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g``, a match uses up the letter behind it.

    >>> split_compounds("rich-text format - a-b-c")
    'rich ##AT##-##AT## text format - a ##AT##-##AT## b-c'
    """
    return HYPHEN.sub(r"\1 ##AT##-##AT## \2", line)


@dataclass(frozen=True)
class Tokens:
    """The same words on all sides.

    Attributes:
        how: text became tokens, for the signature.
        reference: tokens of each segment, separated by spaces.
        lines: the same of each output, by its label.
    """

    how: str
    reference: List[str]
    lines: Dict[str, List[str]]


def tokens_of(
    outputs: Sequence[Output],
    reference: Sequence[str],
    target_lang: Optional[str],
    path: Optional[str],
) -> Optional[Tokens]:
    """The tokens of reference and outputs; ``None`` for a language whose words no spaces part.

    **D**: without a tokenised reference, text is tokenised again on both sides by Moses' tokeniser,
    as get_ende_bleu.sh does with its decodes, without ``-a``, so that hyphens stay in words:
    whatever the training data's tokeniser did, hypothesis and reference cannot differ in it. With a
    tokenised reference the tokens stand as they were decoded, which is what most papers gave to
    multi-bleu.perl.

    Args:
        outputs: of all systems.
        reference: as text.
        target_lang: a language code.
        path: a tokenised reference.

    Raises:
        ConfigurationError: the tokenised reference has another length.
    """
    if path is not None:
        given = read_lines(path)
        if len(given) != len(reference):
            raise ConfigurationError(
                f"--tokenized-reference {path} has {len(given)} segments, but the reference has "
                f"{len(reference)}: give the same test set"
            )
        return Tokens("as-given", given, {each.label: each.tokens for each in outputs})
    lang = base_language(target_lang or "")
    if lang in WITHOUT_SPACES:
        return None
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang=lang)

    def tokenize(line: str) -> str:
        # escaping would change every token alike on both sides, and no score
        return moses.tokenize(line, escape=False, return_str=True)

    return Tokens(
        f"moses.{lang or 'any'}-sacremoses.{metadata.version('sacremoses')}",
        [tokenize(line) for line in reference],
        {each.label: [tokenize(line) for line in each.hypotheses] for each in outputs},
    )


def tokenized_scores(
    tokens: Optional[Tokens], label: str, target_lang: Optional[str]
) -> Dict[str, Score]:
    """multi-bleu.perl's BLEU of one output and, into German, the compound-split one.

    Args:
        tokens: of :func:`tokens_of`; there is no score without.
        label: the output's.
        target_lang: a language code.
    """
    if tokens is None:
        return {}
    scores = {MULTI_BLEU: multi_bleu(tokens.lines[label], tokens.reference, tokens.how)}
    if base_language(target_lang or "") == "de":
        scores[COMPOUND_SPLIT] = multi_bleu(
            [split_compounds(line) for line in tokens.lines[label]],
            [split_compounds(line) for line in tokens.reference],
            f"{tokens.how}+compound-split",
        )
    return scores


def multi_bleu(hypotheses: List[str], reference: List[str], tokens: str) -> Score:
    """The BLEU of ``multi-bleu.perl``: tokens as they stand, case-sensitive, no smoothing.

    Args:
        hypotheses, reference: tokens, separated by spaces.
        tokens: how text became tokens, for the signature.
    """
    # force only keeps sacreBLEU from warning of tokenised text, which is meant here
    bleu = import_sacrebleu_metrics().BLEU(tokenize="none", smooth_method="none", force=True)
    score = float(bleu.corpus_score(hypotheses, [reference]).score)
    return Score(score, f"{bleu.get_signature().format(short=False)}|text:{tokens}")
