"""Every analysis, on both paddings, against loops over the tokens of each sentence alone."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List, Tuple, Type

import numpy as np
import pytest
import torch
from fairseq.data import LanguagePairDataset
from sklearn.metrics import silhouette_samples
from torch import Tensor

from capsnmt.analysis import heads
from capsnmt.analysis import model as models
from capsnmt.analysis.analyse import analyse
from capsnmt.analysis.base import Analysis
from capsnmt.analysis.layers import Anisotropy, Similarity
from capsnmt.analysis.sentences import Sentences
from capsnmt.cli import ConfigurationError
from capsnmt.models import PRESETS
from tests.analysis import oracles
from tests.analysis.oracles import CALLS, Rows
from tests.analysis.small_models import (
    LENGTHS,
    SCOPE,
    Flags,
    analysed,
    of_each_sentence,
    precise,
    rows_of,
    write_checkpoint,
    write_data,
)
from tests.support import EVERYWHERE, NORM, TASK

TRANSFORMER = "capsnmt_transformer"
LAYERS = (TRANSFORMER, "--layer-aggregation")
DROPOUT = ("--dropout", "0.5", "--attention-dropout", "0.5", "--activation-dropout", "0.5")
HEADS = [
    *((preset, *DROPOUT) for preset in PRESETS),
    *(
        (TRANSFORMER, "--head-aggregation", kind, *EVERYWHERE)
        for kind in ("gated", "talking", "composed")
    ),
    *(("transformer_mlmha", "--mlmha", variant) for variant in ("M-01", "M-11")),
    (*LAYERS, "transparent"),
    (TRANSFORMER, "--surface-fusion", "0.2"),
]


STACKS: List[Flags] = [
    (TRANSFORMER,),
    (TRANSFORMER, "--encoder-layers", "3"),  # different depths
    (TRANSFORMER, NORM[0]),
    (TRANSFORMER, NORM[1]),
    ("transformer_em_routing",),
    ("transformer_dlcl_routing",),
    ("transformer_mlmha",),
    ("capsule_transformer",),
    (*LAYERS, "transparent"),
    (TRANSFORMER, "--surface-fusion", "0.2"),
]


ORACLES: List[Tuple[Callable[[Any, Flags], Rows], List[Flags]]] = [
    (oracles.attention, HEADS),
    (oracles.agreement, list(CALLS)),
    (oracles.disagreement, HEADS),
    (oracles.similarity, STACKS[:7]),
    (oracles.anisotropy, STACKS),
    (
        oracles.layer_weights,
        [
            *((*LAYERS, "linear"), (*LAYERS, "dynamic", *NORM), (*LAYERS, "attention")),
            *((*LAYERS, "dlcl"), (*LAYERS, "dlcl", *NORM), (*LAYERS, "dense", *NORM)),
            (*LAYERS, "transparent", "--decoder-layers", "3"),
            *(
                (*LAYERS, "attention-residuals", *NORM, "--attention-residuals-block", block)
                for block in ("1", "2")
            ),
        ],
    ),
    (
        oracles.sentences,
        [
            *((TRANSFORMER,), ("capsule_transformer",)),
            (TRANSFORMER, "--adaptive-softmax-cutoff", "5,9"),
        ],
    ),
]
MODELS = list(dict.fromkeys(flags for _, models in ORACLES for flags in models))


@pytest.mark.parametrize("flags", MODELS, ids=" ".join)
def test_every_analysis_of_padded_batches_is_its_definition(flags: Flags, tmp_path: Path) -> None:
    """Every analysis has models of either padding."""
    model, left_pad = precise(*flags), MODELS.index(flags) % 2 == 0
    chosen = {oracle.__name__: oracle for oracle, models in ORACLES if flags in models}
    findings = analysed(model, tmp_path, flags, list(chosen), left_pad)
    for name, oracle in chosen.items():
        expected = oracle(model, flags)
        width = len(next(iter(expected)))
        rows = rows_of(findings, name)
        assert [tuple(row[:width]) for row in rows] == list(expected)
        for row, numbers in zip(rows, expected.values()):
            # losses of subwords are rounded
            digits = 6e-4 if name == "sentences" else 2e-5
            close = [
                number
                if number is None
                else pytest.approx(number, rel=2e-4, abs=digits, nan_ok=True)
                for number in numbers
            ]
            assert list(row[width:]) == close, (name, row)


NONE: List[Tuple[str, str, Flags]] = [
    ("agreement", "nothing is routed", (TRANSFORMER,)),
    ("layer_weights", "no layers are added up", ("transformer_dlcl_routing",)),
    ("layer_weights", "no layers are added up", (*LAYERS, "iterative")),
    ("head_tsne", "has one head", (TRANSFORMER, "--encoder-attention-heads", "1")),
    ("head_tsne", "there is none", (TRANSFORMER, "--encoder-layers", "0")),
    ("layer_bleu", "--ablation-translations is 0", ("transformer_mlmha",)),
    *(
        ("layer_ablation", "reads the top encoder layer only", flags)
        for flags in (
            ("transformer_mlmha", "--mlmha-sources", "1"),
            ("transformer_dlcl_routing", "--layer-aggregation-side", "decoder"),
        )
    ),
    ("layer_ablation", "reads sums of sublayers only", (*LAYERS, "attention-residuals", *NORM)),
]


@pytest.mark.parametrize(("name", "reason", "flags"), NONE)
def test_a_model_without_what_is_analysed_says_so(
    name: str, reason: str, flags: Flags, tmp_path: Path
) -> None:
    findings = analysed(precise(*flags), tmp_path, flags, [name])
    assert not findings.of
    assert reason in findings.missing[name]["it"]


def test_data_of_dictionaries_alone_are_refused_with_what_to_give(tmp_path: Path) -> None:
    """As those of a model of the project."""
    data, flags = write_data(tmp_path / "data"), (TRANSFORMER,)
    checkpoint = write_checkpoint(precise(*flags), tmp_path / "it.pt", data, flags)
    for file in data.glob("test.*"):
        file.unlink()
    with pytest.raises(ConfigurationError, match="choose from other data, by --data"):
        analyse([checkpoint], SCOPE)


def test_without_layers_of_the_encoder_no_attention_of_it_is_drawn(tmp_path: Path) -> None:
    flags = (TRANSFORMER, "--encoder-layers", "0")
    findings = analysed(precise(*flags), tmp_path, flags, ["sentences"])
    assert not Sentences.figures(findings.of["sentences"])


def test_the_map_of_agreement_is_the_mean_over_all_real_tokens(tmp_path: Path) -> None:
    flags = list(CALLS)[1]
    model = precise(*flags)
    each = [
        C
        for records in of_each_sentence(model)
        for C in oracles.routings("layers", records[0].coefficients[-1])
    ]
    mean = torch.stack(each).mean(0)
    found: Any = analysed(model, tmp_path, flags, ["agreement"]).of["agreement"]["it"]
    last = found.maps()["encoder", 2][-1]
    torch.testing.assert_close(last, mean[:, oracles.by_strongest(mean)], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("flags", "tokens", "left_pad"),
    [
        (("transformer_em_routing", "--head-aggregation-encoder-layers", "2"), 200, False),
        (("capsule_transformer",), 10, True),
    ],
)
def test_t_sne_shows_the_head_outputs_of_a_sample_of_real_tokens(
    flags: Flags, tokens: int, left_pad: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "TOKENS", tokens)
    model = precise(*flags)
    rows = rows_of(analysed(model, tmp_path, flags, ["head_tsne"], left_pad), "head_tsne")
    keys = [(row[3], row[4], row[2]) for row in rows]
    outputs = oracles.heads_of_each_token(model)
    assert len(set(keys)) == len(keys) == 4 * min(tokens, sum(LENGTHS) + len(LENGTHS))
    assert {row[:2] for row in rows} == {("enc-self", 2)}
    points = np.array([outputs[key] for key in keys])
    expected = silhouette_samples(points, [head for *_, head in keys])
    assert [row[-1] for row in rows] == pytest.approx(expected, abs=1e-4)
    assert np.isfinite([row[5:7] for row in rows]).all()


def after(kind: Type[Analysis], *states: List[Tensor]) -> Any:
    """Return an analysis that has read a stack's states of some batches of one sentence."""
    analysis: Any = kind(SimpleNamespace(chosen=[0]))  # type: ignore[arg-type]
    for layers in states:
        real = torch.ones(1, len(layers[0]), dtype=torch.bool)
        batch = SimpleNamespace(source=real, target=real)
        stack = [layer[None] for layer in layers]
        read = SimpleNamespace(batch=batch, encoder=stack, decoder=stack, encoder_output=stack[0])
        analysis.on_states(read)
    analysis.finish(None)
    return analysis.rows()


def test_states_without_a_direction_a_pair_or_a_spread() -> None:
    """A rotation, a scale and a shift of a layer change nothing."""
    for tokens, expected in (
        ([[1.0, 2], [2, 4], [3, 6]], 1),  # the same direction
        ([[0.0, 0], [0, 0]], 0),
        ([[1.0, 2]], math.nan),
    ):
        value = after(Anisotropy, *([torch.tensor([token])] for token in tokens))[0][-1]
        assert value == pytest.approx(expected, nan_ok=True, abs=1e-12)
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    layers = [x, 3 * x[:, [2, 0, 3, 1]] + 7, 0 * x + 0.1]
    found = after(Similarity, [y[:10] for y in layers], [y[10:] for y in layers])[:3]
    assert [row[-1] for row in found] == pytest.approx([1, 1, math.nan], abs=1e-5, nan_ok=True)


def test_a_model_with_fewer_positions_reads_the_same_sentences_but_the_long_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths = 1 + np.arange(100) % 40
    of_side = (lengths, lengths, TASK.source_dictionary)
    dataset = LanguagePairDataset(*of_side, *of_side)
    task = SimpleNamespace(load_dataset=lambda subset: None, dataset=lambda subset: dataset)

    def drawn(positions: int) -> List[set]:
        loaded = SimpleNamespace(max_positions=lambda: (positions,), to=lambda device: None)
        monkeypatch.setattr(models, "load_model", lambda *_: (loaded, None, task))
        scope = models.Scope("test", 50, 1, 400, 0, 0, 0, "cpu")
        found = models.load(models.NamedCheckpoint("a", Path(), Path()), scope)
        return [set(each.chosen) for each in (found, found.sample(20))]

    for (every, short), size in zip(zip(drawn(40), drawn(35)), (50, 20)):
        assert len(every) == len(short) == size
        assert {number for number in every if lengths[number] <= 35} <= short
