"""BLEU of a system's own translations, and its significance between variants of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from fairseq.sequence_generator import SequenceGenerator
from fairseq.utils import strip_pad

from capsnmt.analysis.model import System
from capsnmt.evaluation.scores import BOOTSTRAP, SAMPLES, SEED, Score, Test
from capsnmt.evaluation.scoring import import_sacrebleu_metrics
from capsnmt.evaluation.significance import paired_test

# D: beam and length penalty of Vaswani et al. 2017, which Ampomah et al. 2020 follow, for all
# systems; a translation is at most 50 subwords longer than its source, also of a model that never
# ends it.
GENERATION = {"beam_size": 4, "len_penalty": 0.6, "max_len_a": 1, "max_len_b": 50}


@dataclass(frozen=True)
class Translations:
    """Sentences without subword marks, their tokens separated by spaces.

    Attributes:
        references: the references.
        hypotheses: the best translation of each.
    """

    references: List[str]
    hypotheses: List[str]


@torch.no_grad()
def translate(system: System, progress: Any = None) -> Translations:
    """Translate a system's sentences by beam search, with the settings ``GENERATION``.

    Args:
        system: the system.
        progress: a bar of tqdm that counts sentences; optional.

    Returns:
        The translations in the order of the data.
    """
    dictionary = system.task.target_dictionary
    generator = SequenceGenerator([system.model], dictionary, **GENERATION)
    marks = subword_marks(dictionary)
    found: Dict[int, Tuple[str, str]] = {}
    for batch in system.batches():
        hypotheses = generator.generate([system.model], batch.sample)
        for number, target, of_sentence in zip(batch.numbers, batch.sample["target"], hypotheses):
            found[number] = (
                # unknown words of the reference are written so that no hypothesis matches them
                dictionary.string(strip_pad(target, dictionary.pad()), marks, escape_unk=True),
                dictionary.string(of_sentence[0]["tokens"], marks),
            )
        if progress is not None:
            progress.update(len(batch.numbers))
    references, best = zip(*(found[number] for number in sorted(found)))
    return Translations(list(references), list(best))


def subword_marks(dictionary: Any) -> Optional[str]:
    """Return fairseq's name of the segmentation that a dictionary shows; None for words."""
    if any(symbol.startswith("\u2581") for symbol in dictionary.symbols):
        return "sentencepiece"
    if any(symbol.endswith("@@") for symbol in dictionary.symbols):
        return "subword_nmt"
    return None


def tokenised_bleu(translations: Sequence[Translations]) -> List[Score]:
    """Compute the BLEU of multi-bleu.perl and test each system against the first.

    The test is sacreBLEU's paired bootstrap with its default samples and seed.

    Args:
        translations: those of the same sentences by each system, the baseline first.
    """
    references = translations[0].references
    bleu = import_sacrebleu_metrics().BLEU(
        tokenize="none", smooth_method="none", force=True, references=[references]
    )
    named = [(str(number), each.hypotheses) for number, each in enumerate(translations)]
    test = Test(baseline="0", method=BOOTSTRAP, samples=SAMPLES[BOOTSTRAP], seed=SEED)
    return [scores["bleu"] for scores in paired_test(named, {"bleu": bleu}, test)]
