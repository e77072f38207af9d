"""fairseq's own flags and functions beside ours: they do what they do to fairseq's Transformer."""

import copy
from typing import List

import pytest
import torch
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.sequence_generator import SequenceGenerator

from tests.criterions.samples import SAMPLE, SOURCES, TARGETS
from tests.support import DROP, NORM, TASK, build, forward

DEEP = ("--encoder-layers", "4", "--decoder-layers", "4")
SEEDS = range(4)
# what reads the outputs of all layers; each is run by another part of encoder and decoder
READERS = {
    "nothing": (),
    "linear": ("--layer-aggregation", "linear"),
    "em-routing": ("--layer-aggregation", "em-routing"),
    "dlcl": ("--layer-aggregation", "dlcl"),
    "dense": ("--layer-aggregation", "dense"),
    "attention-residuals": (*NORM, "--layer-aggregation", "attention-residuals"),
    "transparent": ("--layer-aggregation", "transparent"),
    "mlmha": ("--mlmha", "M-10"),
}
every_reader = pytest.mark.parametrize("reader", READERS.values(), ids=READERS)


def loss_of(model: torch.nn.Module, seed: int) -> float:
    """Return the loss, of which every gradient is computed."""
    torch.manual_seed(seed)
    scores = forward(model, SOURCES, TARGETS).float().flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(scores, SAMPLE["target"].flatten(), ignore_index=1)
    loss.backward()
    return loss.item()


def decode(model: torch.nn.Module) -> List[List[int]]:
    """Translate as fairseq-generate does with a model that was just loaded."""
    model.make_generation_fast_(beamable_mm_beam_size=None, need_attn=False)
    generator = SequenceGenerator([model], TASK.target_dictionary, beam_size=2, max_len_b=6)
    return [best[0]["tokens"].tolist() for best in generator.generate([model], SAMPLE)]


@every_reader
def test_a_model_with_layer_drop_trains_and_decodes(reader: tuple) -> None:
    model = build("capsnmt_transformer", *DEEP, *reader, *DROP).train()
    losses = {round(loss_of(model, seed), 4) for seed in SEEDS}
    assert len(losses) > 1, "no layer was ever dropped"
    kept = build("capsnmt_transformer", *DEEP, *reader)
    kept.load_state_dict(model.state_dict())
    expected = decode(kept)
    for seed in SEEDS:  # a model that was just built is in training mode
        torch.manual_seed(seed)
        assert decode(copy.deepcopy(model)) == expected


@pytest.mark.usefixtures("bf16_machine")
@pytest.mark.parametrize(
    "reader",
    [
        *(READERS["linear"], READERS["em-routing"], READERS["dlcl"]),
        READERS["attention-residuals"],
        ("--layer-aggregation", "attention"),
        ("--decoder-output-dim", "8"),
    ],
    ids=" ".join,
)
def test_an_adaptive_softmax_trains_and_decodes_under_autocast(reader: tuple) -> None:
    adaptive = ("--adaptive-softmax-cutoff", "8,16", "--autocast", "bf16")
    model = build("capsnmt_transformer", *adaptive, *reader).train()
    features, _ = model(**SAMPLE["net_input"], features_only=True)
    assert features.dtype == torch.float32
    loss, _, _ = AdaptiveLoss(TASK, sentence_avg=False)(model, SAMPLE)
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    state = model.state_dict()
    model.upgrade_state_dict(state)  # as fairseq does before it loads a checkpoint
    model.load_state_dict(state)
    assert len(decode(model)) == len(SOURCES)
