"""BLEU without an encoder layer: against models whose hand-over is changed by other means."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, List

import pytest
import sacrebleu
import torch

from capsnmt.analysis.layer_ablation import LayerAblation
from capsnmt.analysis.system import Options, System
from capsnmt.analysis.translation_scores import (
    GENERATION,
    Translations,
    subword_marks,
    tokenised_bleu,
    translate,
)
from capsnmt.evaluation.tokenized import multi_bleu
from tests.analysis.systems import LENGTHS, analysed, corpus, precise, system_of
from tests.analysis.test_layer_ablation import means, replaced
from tests.support import TASK

COUNT = len(LENGTHS)
MODELS = {
    "transparent": ("capsnmt_transformer", "--layer-aggregation", "transparent"),
    "routing": ("transformer_dlcl_routing",),
    "multi-layer": ("transformer_mlmha",),
}


def with_references(system: System, lines: List[str]) -> System:
    """Return the system on the same sources with other references."""
    dictionary = TASK.target_dictionary
    dataset = system.dataset
    dataset.tgt = [dictionary.encode_line(line, add_if_not_exist=False).long() for line in lines]
    dataset.tgt_sizes = torch.tensor([len(line) for line in dataset.tgt]).numpy()
    return system


@pytest.mark.parametrize("flags", MODELS.values(), ids=MODELS)
def test_it_is_the_bleu_of_a_model_that_reads_a_constant(
    flags: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # an untrained model ends no translation by itself
    monkeypatch.setitem(GENERATION, "max_len_b", 5)
    model = precise(*flags)
    # references that are nearly its own translations, for a BLEU far from 0
    references = translate(system_of(model)).hypotheses

    def bleu_of(changed: Any) -> float:
        system = with_references(system_of(changed), references).sample(COUNT)
        return multi_bleu(translate(system).hypotheses, references, "").score

    system = with_references(system_of(model), references)
    options = Options(ablation_translations=COUNT)
    analysis = analysed(LayerAblation, replace(system, options=options))
    intact, *rows = analysis.tables()["layer_ablation_bleu"].rows
    assert intact[:5] == (None, "none", pytest.approx(bleu_of(model)), None, None)
    assert intact[2] > 50
    assert [row[:2] for row in rows] == analysis.keys()
    for layer, replacement, bleu, difference, p_value, signature in rows:
        mean = means(model)[layer]
        value = mean if replacement == "mean" else torch.zeros_like(mean)
        assert bleu == pytest.approx(bleu_of(replaced(model, layer, value)))
        assert difference == pytest.approx(bleu - intact[2])
        assert 0 < p_value <= 1
        assert "tok:none" in signature
        assert "bs:1000" in signature
    assert any(row[3] < -1 for row in rows)


def test_no_bleu_by_default() -> None:
    analysis = analysed(LayerAblation, system_of(precise("transformer_mlmha")))
    assert set(analysis.tables()) == {"layer_ablation"}


def test_translations_are_in_the_order_of_the_data() -> None:
    system = system_of(precise("capsnmt_transformer"))
    assert [len(line.split()) + 1 for line in translate(system).references] == [
        len(target) for target in corpus()[1]
    ]


def test_the_p_value_is_that_of_sacrebleu() -> None:
    references = [f"the cat number {n} sat on the mat" for n in range(30)]
    worse = [
        line.replace("sat on", "lay on") if n % 3 else line for n, line in enumerate(references)
    ]
    scores = tokenised_bleu([Translations(references, each) for each in (references, worse, worse)])
    bleu = sacrebleu.metrics.BLEU(tokenize="none", smooth_method="none", force=True)
    assert scores[1].score == pytest.approx(bleu.corpus_score(worse, [references]).score)
    assert scores[0].p_value is None
    assert scores[1].p_value == scores[2].p_value < 0.05


@pytest.mark.parametrize(
    ("symbols", "marks"),
    [
        (["a@@", "b"], "subword_nmt"),
        (["\u2581a", "b"], "sentencepiece"),
        (["a", "b"], None),
    ],
)
def test_the_dictionary_shows_how_words_were_segmented(symbols: Any, marks: Any) -> None:
    assert subword_marks(SimpleNamespace(symbols=symbols)) == marks
