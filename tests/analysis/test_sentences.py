"""What the browser keeps of a sentence is what the model computes of it alone, rounded."""

from __future__ import annotations

import json
from typing import Any, List, Tuple

import pytest
import torch
from torch import Tensor

from capsnmt.analysis import sentences as module
from capsnmt.analysis.base import NotApplicableError, Table
from capsnmt.analysis.browser import browser_data
from capsnmt.analysis.model import Options
from capsnmt.analysis.sentences import MOST_COLUMNS, Sentences, columns_of
from tests.analysis.conftest import EVIL, hostile
from tests.analysis.systems import (
    LENGTHS,
    analysed,
    corpus,
    couplings_of_each_sentence,
    logits_of_each_sentence,
    precise,
    system_of,
    weights_of_each_sentence,
)
from tests.analysis.test_analyses import CALLS, Flags, by_strongest

PADDED = pytest.mark.parametrize("left_pad", [True, False], ids=["left", "right"])
ALL = Options(browser_sentences=len(LENGTHS))


def assert_rounded(table: Table, key: Tuple[object, ...], true: Tensor, unit: float) -> None:
    """Check the rows of a table that begin with a key, in the order of the file."""
    lines = [row[-1].split() for row in table.rows if tuple(row[: len(key)]) == key]
    found = torch.tensor([[float(value) for value in line] for line in lines])
    assert torch.allclose(found, true.float(), rtol=0, atol=0.5 * unit + 1e-6), key


@PADDED
@pytest.mark.parametrize("arch", ["capsnmt_transformer", "transformer_mlmha"])
def test_maps_are_the_weights_that_the_attentions_return(arch: str, left_pad: bool) -> None:
    model = precise(arch)
    maps = analysed(Sentences, system_of(model, left_pad, options=ALL)).tables()["maps"]
    for number, weights in enumerate(weights_of_each_sentence(model)):
        for (role, layer), of_layer in weights.items():
            for head, of_head in enumerate(of_layer, 1):
                assert_rounded(maps, (number, role, layer, head), of_head, 1e-3)


@PADDED
@pytest.mark.parametrize("flags", CALLS, ids=" ".join)
def test_couplings_are_the_recorded_coefficients(flags: Flags, left_pad: bool) -> None:
    model = precise(*flags)
    system = system_of(model, left_pad, options=ALL)
    couplings = analysed(Sentences, system).tables()["couplings"]
    for number, records in enumerate(couplings_of_each_sentence(model)):
        for (place, layer), record in zip(CALLS[flags], records):
            for iteration, C in enumerate(record.coefficients, 1):
                key = number, place, layer, iteration
                if place.endswith("-vertical"):
                    expected = {"all": C[0]}
                elif place.endswith("-horizontal"):
                    expected = {str(n): of_head for n, of_head in enumerate(C[0].unbind(-1), 1)}
                else:
                    C = C[:, 0, :, by_strongest(record.coefficients[-1][:, 0].mean(0))]
                    expected = {str(token): of_token for token, of_token in enumerate(C, 1)}
                    expected["mean"] = C.mean(0)
                for of, each in expected.items():
                    assert_rounded(couplings, (*key, of), each, 1e-5)


@PADDED
def test_losses_are_those_of_the_references(left_pad: bool) -> None:
    model = precise("capsnmt_transformer")
    kept = analysed(Sentences, system_of(model, left_pad, options=ALL))
    table = kept.tables()["sentences"]
    for number, logits in enumerate(logits_of_each_sentence(model)):
        target = corpus()[1][number]
        losses = [-row.log_softmax(-1)[word].item() for row, word in zip(logits, target)]
        sentence = kept.kept[number]
        assert sentence.loss == pytest.approx(losses, abs=6e-4)
        assert [row[4] for row in table.rows if row[:2] == (number, "target")] == sentence.loss
        assert sentence.inputs == ["</s>", *sentence.target[:-1]]
        assert sentence.source[-1] == sentence.target[-1] == "</s>"


def test_the_first_sentences_of_the_test_set_are_kept_whatever_their_batches() -> None:
    model = precise("capsnmt_transformer")
    several = system_of(model, numbers=((4, 2), (3, 1)), options=Options(browser_sentences=3))
    alone = analysed(Sentences, system_of(model, numbers=((3,),)))
    together = analysed(Sentences, several)
    assert list(together.kept) == [1, 2, 3]
    assert together.kept[3].loss == alone.kept[3].loss
    assert together.kept[3].source == alone.kept[3].source


def test_no_sentence_is_a_reason_not_to_apply() -> None:
    system = system_of(precise("capsnmt_transformer"), options=Options(browser_sentences=0))
    with pytest.raises(NotApplicableError, match="--browser-sentences is 0"):
        Sentences(system)


@pytest.mark.parametrize(("capsules", "group"), [(64, 1), (65, 2), (130, 3), (512, 8)])
def test_many_output_capsules_become_few_columns_with_the_same_mean(
    capsules: int, group: int
) -> None:
    C = torch.rand(5, 4, capsules).softmax(-1)
    (found,), size = columns_of([C])
    assert size == group
    assert found.shape == (6, 4, -(-capsules // group))
    assert found.size(-1) <= MOST_COLUMNS
    widths = torch.full((found.size(-1),), group)
    widths[-1] = capsules - group * (found.size(-1) - 1)
    assert torch.allclose((found * widths).sum(-1), torch.ones(6, 4))  # each row still adds up
    assert torch.allclose(found[0], found[1:].mean(0))


def test_coefficients_of_tokens_are_left_out_of_a_sentence_that_would_be_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_COEFFICIENTS", 200)
    kept = analysed(Sentences, system_of(precise(*next(iter(CALLS))), options=ALL)).kept
    sizes = [sum(each.maps[:, 1:].size for each in one.couplings) for one in kept.values()]
    assert 0 < max(sizes) <= 200
    assert {each.choices[0] for one in kept.values() for each in one.couplings} == {"mean"}


def test_a_page_that_would_be_too_large_has_fewer_sentences_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = analysed(Sentences, system_of(precise("capsnmt_transformer"), options=ALL))
    everything = browser_data({"it": kept})
    assert (len(json.loads(everything)["sentences"]), capsys.readouterr().err) == (5, "")
    some = json.loads(browser_data({"it": kept}, len(everything) // 2))
    assert 0 < len(some["sentences"]) == 5 - some["leftOut"] < 5
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith(f"warning: the browser of sentences shows {len(some['sentences'])} ")


def test_the_data_cannot_end_its_element_and_is_unchanged() -> None:
    kept = analysed(Sentences, hostile(precise("capsnmt_transformer"), EVIL))
    text = browser_data({EVIL: kept})
    assert "<" not in text
    data: Any = json.loads(text)
    assert data["systems"] == [EVIL]
    shown: List[List[str]] = [each["of"][EVIL]["source"] for each in data["sentences"]]
    assert shown == [sentence.source for sentence in kept.kept.values()]
