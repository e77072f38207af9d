"""What the browser keeps of a sentence is what the model computes, rounded, and is bounded."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Dict, List, Sequence, Tuple

import pytest
import torch

from capsnmt.analysis import sentences as module
from capsnmt.analysis.base import NotApplicableError, Table
from capsnmt.analysis.browser import browser_data
from capsnmt.analysis.sentences import MOST_COLUMNS, Sentences, columns_of
from capsnmt.analysis.system import Options
from capsnmt.routing.recording import record_routing
from tests.analysis.kept_sentences import EVIL, keep
from tests.analysis.passes import make_batch, pass_through, real_positions, returned_weights
from tests.analysis.test_agreement import MODELS
from tests.support import build

# another kernel computes the attention where its weights are read; routing amplifies the difference
NOISE = 1e-5
PADDED = pytest.mark.parametrize("left_pad", [False, True], ids=["padded right", "padded left"])


def lines_of(table: Table, *key: object) -> List[List[float]]:
    """Return the rows that begin with a key as numbers, in the order of the file."""
    return [
        [float(value) for value in str(row[-1]).split()]
        for row in table.rows
        if tuple(row[: len(key)]) == key
    ]


def assert_rounded(found: Sequence[Sequence[float]], true: torch.Tensor, unit: float) -> None:
    assert torch.tensor(found).shape == true.shape
    assert torch.allclose(torch.tensor(found), true.float(), rtol=0, atol=0.5 * unit + NOISE)


@PADDED
@pytest.mark.parametrize("arch", ["capsnmt_transformer", "transformer_mlmha"])
def test_maps_are_the_weights_that_the_attentions_return(arch: str, left_pad: bool) -> None:
    model, batch = build(arch), make_batch(left_pad)
    maps = keep("it", model, [batch]).tables()["maps"]
    with returned_weights(model) as weights:
        pass_through(model, batch)
    for number in range(3):
        for (role, layer), of_layer in weights.items():
            queries = real_positions((batch.source if role == "enc-self" else batch.target)[number])
            keys = real_positions((batch.target if role == "dec-self" else batch.source)[number])
            for head, of_head in enumerate(of_layer[:, number], 1):
                found = lines_of(maps, number, role, layer, head)
                assert_rounded(found, of_head[queries][:, keys], 1e-3)


@PADDED
@pytest.mark.parametrize("name", MODELS)
def test_couplings_are_the_recorded_coefficients(name: str, left_pad: bool) -> None:
    flags, calls = MODELS[name]
    model, batch = build(*flags), make_batch(left_pad)
    couplings = keep("it", model, [batch]).tables()["couplings"]
    with record_routing() as records:
        pass_through(model, batch)
    assert len(records) == len(calls)
    for (place, layer), record in zip(calls, records):
        reads_source = place.startswith("enc-self") or place == "encoder"
        for number in range(3):
            real = real_positions((batch.source if reads_source else batch.target)[number])
            key = (number, place, layer)
            last = record.coefficients[-1]
            for iteration, C in enumerate(record.coefficients, 1):
                if place.endswith("-vertical"):
                    found = lines_of(couplings, *key, iteration, "all")
                    assert_rounded(found, C[number][:, real], 1e-5)
                elif place.endswith("-horizontal"):
                    for head in range(C.size(-1)):
                        found = lines_of(couplings, *key, iteration, str(head + 1))
                        assert_rounded(found, C[number][real][:, real][..., head], 1e-5)
                else:
                    mean = last[real, number].mean(0)
                    order = sorted(
                        range(mean.size(1)),
                        key=lambda n: (mean[:, n].argmax().item(), -mean[:, n].max().item()),
                    )
                    of_tokens = C[real, number][..., order]
                    found = lines_of(couplings, *key, iteration, "mean")
                    assert_rounded(found, of_tokens.mean(0), 1e-5)
                    for token, each in enumerate(of_tokens, 1):
                        found = lines_of(couplings, *key, iteration, str(token))
                        assert_rounded(found, each, 1e-5)


@PADDED
def test_losses_are_those_of_the_references(left_pad: bool) -> None:
    model, batch = build("capsnmt_transformer"), make_batch(left_pad)
    kept = keep("it", model, [batch])
    logits = pass_through(model, batch)
    table = kept.tables()["sentences"]
    for number, sentence in kept.kept.items():
        target = batch.sample["target"][number]
        real = real_positions(batch.target[number])
        losses = [-logits[number, i].log_softmax(-1)[target[i]].item() for i in real]
        assert sentence.loss == pytest.approx(losses, abs=6e-4)
        assert [row[4] for row in table.rows if row[:2] == (number, "target")] == sentence.loss
        assert sentence.inputs == ["</s>", *sentence.target[:-1]]
        assert sentence.source[-1] == sentence.target[-1] == "</s>"


def test_the_first_sentences_of_the_test_set_are_kept_whatever_their_batches() -> None:
    model = build("capsnmt_transformer")
    later, earlier = make_batch(True, first=7), make_batch(False, first=2)
    together = keep("it", model, [later, earlier], count=4)
    assert list(together.kept) == [2, 3, 4, 7]
    alone = keep("it", model, [later])
    assert together.kept[7].loss == alone.kept[7].loss
    assert together.kept[7].source == alone.kept[7].source


def test_no_sentence_is_a_reason_not_to_apply() -> None:
    system = SimpleNamespace(options=Options(browser_sentences=0), numbers=[[1]])
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
    flags, _ = MODELS["heads"]
    monkeypatch.setattr(module, "MOST_COEFFICIENTS", 200)
    kept = keep("it", build(*flags), [make_batch(False)]).kept
    sizes: Dict[int, int] = {
        number: sum(each.maps[:, 1:].size for each in sentence.couplings)
        for number, sentence in kept.items()
    }
    assert all(size <= 200 for size in sizes.values())
    assert any(sizes.values())
    for sentence in kept.values():
        assert all(each.choices[0] == "mean" for each in sentence.couplings)


def test_a_page_that_would_be_too_large_has_fewer_sentences_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = keep("it", build("capsnmt_transformer"), [make_batch(False)])
    everything = json.loads(browser_data({"it": kept}))
    assert (len(everything["sentences"]), everything["leftOut"]) == (3, 0)
    assert capsys.readouterr().err == ""
    largest = len(browser_data({"it": kept})) * 2 // 3
    some = json.loads(browser_data({"it": kept}, largest))
    assert 0 < len(some["sentences"]) < 3
    assert some["leftOut"] == 3 - len(some["sentences"])
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith(f"warning: the browser of sentences shows {len(some['sentences'])} ")


def test_the_data_cannot_end_its_element_and_is_unchanged() -> None:
    kept = keep("it", build("capsnmt_transformer"), [make_batch(False)])
    text = browser_data({EVIL: kept})
    assert "<" not in text
    data = json.loads(text)
    assert data["systems"] == [EVIL]
    shown: List[Tuple[str, ...]] = [tuple(each["of"][EVIL]["source"]) for each in data["sentences"]]
    assert shown == [tuple(sentence.source) for sentence in kept.kept.values()]
    # zeros at the end of a row are left out: the decoder cannot look ahead
    first = data["sentences"][0]["of"][EVIL]["attention"]["dec-self"][0][0]
    assert all(len(row) <= number for number, row in enumerate(first, 1))
