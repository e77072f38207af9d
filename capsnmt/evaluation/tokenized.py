"""Tokenised BLEU, for comparison with papers that report it. It is not comparable with sacreBLEU.

``multi-bleu`` is Moses' ``multi-bleu.perl``: n-grams of the given tokens, no smoothing.
``compound-split`` is the same after ``rich-text`` has become ``rich ##AT##-##AT## text`` on both
sides, which raises English-German scores: tensor2tensor's ``get_ende_bleu.sh`` (Vaswani et al.
2017) and fairseq's ``compound_split_bleu.sh``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata
from typing import Dict, List, Optional, Sequence

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.outputs import Output
from capsnmt.evaluation.scores import COMPOUND_SPLIT, MULTI_BLEU, Score
from capsnmt.evaluation.scoring import import_sacrebleu_metrics
from capsnmt.evaluation.text import WITHOUT_SPACES, base_language
from capsnmt.evaluation.text_files import read_lines

HYPHEN = re.compile(r"(\S)-(\S)")


def split_compounds(line: str) -> str:
    """Make hyphens inside words tokens of their own.

    As in perl's ``s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g``, a match consumes the letter after the
    hyphen.

    >>> split_compounds("rich-text format - a-b-c")
    'rich ##AT##-##AT## text format - a ##AT##-##AT## b-c'
    """
    return HYPHEN.sub(r"\1 ##AT##-##AT## \2", line)


@dataclass(frozen=True)
class Tokens:
    """The tokens of a reference and of outputs.

    Attributes:
        how: how text became tokens, for the signature.
        reference: tokens of each segment, separated by spaces.
        lines: label of each output -> tokens of each segment.
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
    """Tokenise reference and outputs; ``None`` for a language that does not separate words.

    **D**: without a tokenised reference, Moses' tokeniser runs on the text of both sides, as
    get_ende_bleu.sh does with its decodes. It runs without ``-a``, so hyphens stay in words.
    Whatever tokenised the training data, hypothesis and reference then cannot differ in it. With a
    tokenised reference the tokens are those that were decoded, which is what most papers gave to
    multi-bleu.perl.

    Args:
        outputs: outputs of all systems.
        reference: reference as text.
        target_lang: language code.
        path: file with a tokenised reference.

    Raises:
        ConfigurationError: the tokenised reference has another number of segments, or sacremoses
            is not installed.
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
        # escaping would change tokens on both sides in the same way, and no score
        return moses.tokenize(line, escape=False, return_str=True)

    return Tokens(
        f"moses.{lang or 'any'}-sacremoses.{metadata.version('sacremoses')}",
        [tokenize(line) for line in reference],
        {each.label: [tokenize(line) for line in each.hypotheses] for each in outputs},
    )


def tokenized_scores(
    tokens: Optional[Tokens], label: str, target_lang: Optional[str]
) -> Dict[str, Score]:
    """Compute multi-bleu.perl's BLEU of one output and, into German, the compound-split one.

    Args:
        tokens: what :func:`tokens_of` returned; there is no score without tokens.
        label: label of the output.
        target_lang: language code.

    Returns:
        Key of :data:`~capsnmt.evaluation.scores.COMPARABLE` -> score.
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
    """Compute the BLEU of ``multi-bleu.perl``: the given tokens, case-sensitive, no smoothing.

    Args:
        hypotheses, reference: tokens, separated by spaces.
        tokens: how text became tokens, for the signature.
    """
    # force silences sacreBLEU's warning about tokenised text, which is intended here
    bleu = import_sacrebleu_metrics().BLEU(tokenize="none", smooth_method="none", force=True)
    score = float(bleu.corpus_score(hypotheses, [reference]).score)
    return Score(score=score, signature=f"{bleu.get_signature().format()}|text:{tokens}")
