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

from sacrebleu.metrics import BLEU

from capsnmt.evaluation.outputs import Output
from capsnmt.evaluation.scores import COMPOUND_SPLIT, MULTI_BLEU, Score
from capsnmt.evaluation.test_set import TestSet
from capsnmt.evaluation.text import WITHOUT_SPACES, base_language

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
