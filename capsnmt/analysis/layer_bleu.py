"""BLEU without one encoder layer, and its significance (Ampomah et al. 2020, Table 7)."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, List, Optional, Sequence, Tuple

import torch
from fairseq.sequence_generator import SequenceGenerator
from fairseq.utils import strip_pad

from capsnmt.analysis.ablation import Replacement
from capsnmt.analysis.base import Cell
from capsnmt.analysis.layer_ablation import LayerAblation
from capsnmt.evaluation.metrics import measure_of
from capsnmt.evaluation.resampling import resample
from capsnmt.evaluation.scores import RANDOMIZATION, SAMPLES, SEED, Test
from capsnmt.evaluation.significance import scores_of
from capsnmt.evaluation.tokenised_bleu import multi_bleu_metric

# D: beam and length penalty of Vaswani et al. 2017, which Ampomah et al. 2020 follow, for all
# models; a translation is at most 50 subwords longer than its source, also of a model that never
# ends it.
GENERATION = {"beam_size": 4, "len_penalty": 0.6, "max_len_a": 1, "max_len_b": 50}
TEST = Test(baseline="intact", method=RANDOMIZATION, samples=SAMPLES[RANDOMIZATION], seed=SEED)


class LayerBleu(LayerAblation):
    """BLEU when the decoder does not see the output of one encoder layer, by beam search.

    A generation for each replacement of :class:`LayerAblation`, on a sample of
    ``--ablation-translations`` sentences.

    **D**: BLEU is the score of multi-bleu.perl, on tokens without subword marks.
    """

    name = "layer_bleu"
    columns = ("layer", "replacement", "bleu", "difference", "p_value", "signature")
    plots = ()
    size = "ablation_translations"

    @torch.no_grad()
    def finish(self, model: Any) -> None:
        """Translate with and without each layer."""
        sample = model.sample(model.scope.ablation_translations)
        self.sentences = len(sample.chosen)
        intact = (None, "none"), nullcontext()
        parts: List[Replacement] = [intact, *self.replacements(model.model)]
        self.keys = [key for key, _ in parts]
        outputs = []
        for (layer, by), replaced in parts:
            label = "the intact model" if layer is None else f"without layer {layer} ({by})"
            with replaced:
                references, hypotheses = translate(sample, f"translations: {label}")
            outputs.append(hypotheses)
        bleu = measure_of(multi_bleu_metric([references]))
        statistics = [bleu.statistics(hypotheses) for hypotheses in outputs]
        pairs = [0] * len(outputs)
        scored = resample({"bleu": (bleu, statistics)}, pairs, TEST)
        self.scores = scores_of(scored["bleu"], pairs, TEST)

    def rows(self) -> List[Sequence[Cell]]:
        return [
            (*key, each.score, each.delta, each.p_value, each.signature)
            for key, each in zip(self.keys, self.scores)
        ]


def translate(sample: Any, progress: str) -> Tuple[List[str], List[str]]:
    """Return references and best translations, without subword marks, in the order of the data."""
    dictionary = sample.task.target_dictionary
    generator = SequenceGenerator([sample.model], dictionary, **GENERATION)
    marks = subword_marks(dictionary)
    found = {}
    for batch in sample.batches(progress):
        hypotheses = generator.generate([sample.model], batch.sample)
        for number, target, of_sentence in zip(batch.numbers, batch.sample["target"], hypotheses):
            found[number] = (
                # unknown words of the reference are written so that no hypothesis matches them
                dictionary.string(strip_pad(target, dictionary.pad()), marks, escape_unk=True),
                dictionary.string(of_sentence[0]["tokens"], marks),
            )
    references, best = zip(*(found[number] for number in sorted(found)))
    return list(references), list(best)


def subword_marks(dictionary: Any) -> Optional[str]:
    """Return fairseq's name of the segmentation that a dictionary shows; None for words."""
    if any(symbol.startswith("\u2581") for symbol in dictionary.symbols):
        return "sentencepiece"
    if any(symbol.endswith("@@") for symbol in dictionary.symbols):
        return "subword_nmt"
    return None
