"""Every flag reaches the model; what is refused as late as in training is one line."""

import argparse
import itertools
import re
from types import SimpleNamespace
from typing import Dict, Sequence, Set, Tuple
from unittest.mock import patch

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.registry import REGISTRIES
from omegaconf import OmegaConf

from capsnmt.cli import ConfigurationError
from capsnmt.fast.triton import launch
from capsnmt.models import encoder
from capsnmt.models.config import defaults
from capsnmt.models.switches import flag
from capsnmt.models.transformer import CapsnmtTransformer
from capsnmt.routing import backend, operator
from tests.frozen.kit import set_weights
from tests.support import (
    CAPSULES,
    FIRST,
    HEADS,
    LAYERS,
    NORM,
    SMALL,
    TASK,
    VALUES,
    WORDS,
    batch,
    build,
    encoder_input,
    forward,
    parse,
    sentences,
    shifted,
    task_of,
)

SOURCES, TARGETS = sentences(5, 3), sentences(4, 4, seed=1)
PLAIN = "capsnmt_transformer"
PLACE = re.compile(r"(encoder|decoder)\.(?:layers\.(\d)\.)?(\w+)")


def model(arch: str, *flags: str) -> torch.nn.Module:
    """A model in double precision whose weights follow from their names."""
    with torch.no_grad():
        return set_weights(build(arch, *flags).double())


def logits(built: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return forward(built, SOURCES, TARGETS)


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    names = [{name: p.shape for name, p in each.named_parameters()} for each in (one, other)]
    return names[0] == names[1] and torch.allclose(logits(one), logits(other), rtol=0, atol=1e-9)


def changed(one: torch.nn.Module, other: torch.nn.Module) -> Set[str]:
    """Where two models have other parameters, such as ``encoder 0 self_attn``."""
    ours, theirs = ({n: p.shape for n, p in each.named_parameters()} for each in (one, other))
    found = {n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n)}
    matches = filter(None, map(PLACE.match, found))
    return {" ".join(part for part in match.groups() if part) for match in matches}


def at(sides: str, layers: str, part: str) -> Set[str]:
    return {" ".join(place) for place in itertools.product(sides.split(), layers.split(), [part])}


ENC_SELF, ENC_DEC = at("encoder", "0 1", "self_attn"), at("decoder", "0 1", "encoder_attn")
AGGREGATES = {"encoder layer_aggregation", "decoder layer_aggregation"}
CONNECTIONS = {"encoder connection", "decoder connection"}
CHOSEN = (
    "--head-aggregation-attention enc-self,enc-dec "
    "--head-aggregation-encoder-layers 1 --head-aggregation-decoder-layers 2"
)
# flag -> (the flags around it, where it adds, changes or removes parameters)
REACHES: Dict[str, Tuple[Sequence[str], Set[str]]] = {
    **{f"--head-aggregation {kind}": ((), ENC_SELF) for kind in VALUES["--head-aggregation"][1:]},
    **{
        f"--head-aggregation {kind} {CHOSEN}": (
            (),
            {"encoder 0 self_attn", "decoder 1 encoder_attn"},
        )
        for kind in ("gated", "talking", "composed")  # which are not routed
    },
    "--head-aggregation-attention enc-dec,dec-self": (
        HEADS,
        ENC_SELF | ENC_DEC | at("decoder", "0 1", "self_attn"),
    ),
    "--head-aggregation-encoder-layers 2": (HEADS, at("encoder", "0", "self_attn")),
    "--head-aggregation-decoder-layers 1-1": (
        (*HEADS, "--head-aggregation-attention", "dec-self"),
        at("decoder", "1", "self_attn"),
    ),
    "--head-capsules 8": (HEADS, ENC_SELF),
    "--head-capsule-norm": (HEADS, ENC_SELF),
    "--head-composition-rank 1": (("--head-aggregation", "composed"), ENC_SELF),
    **{
        f"--layer-aggregation {mode}": ((), AGGREGATES)
        for mode in VALUES["--layer-aggregation"][1:]
    },
    "--layer-aggregation dlcl": ((), CONNECTIONS),
    "--layer-aggregation dense": ((), CONNECTIONS),
    "--layer-aggregation attention-residuals": (NORM, CONNECTIONS),
    "--attention-residuals-block 2": ((*NORM, "--layer-aggregation", "attention-residuals"), set()),
    "--layer-aggregation transparent": ((), {"encoder transparent"}),
    "--layer-aggregation-side encoder": (LAYERS, {"decoder layer_aggregation"}),
    "--layer-aggregation-side decoder": (LAYERS, {"encoder layer_aggregation"}),
    "--layer-capsules 8": (LAYERS, AGGREGATES),
    "--layer-capsule-input own": (LAYERS, AGGREGATES),
    **{f"--mlmha {variant}": ((), ENC_DEC) for variant in VALUES["--mlmha"][1:]},
    "--mlmha-sources 1": (("--mlmha", "M-10"), ENC_DEC),
    "--mlmha-mask-source 2": (("--mlmha", "M-10"), set()),
    "--surface-fusion 0.2": ((), {"decoder surface"}),
    "--capsule-routing-encoder vertical": ((), ENC_SELF),
    "--capsule-routing-encoder horizontal": ((), set()),
    "--capsule-routing-encoder both": ((), ENC_SELF),
    "--capsule-routing-decoder horizontal": ((), set()),
    "--capsule-routing-encoder-layers 2": (CAPSULES, at("encoder", "0", "self_attn")),
    "--capsule-routing-decoder-layers 1": (("--capsule-routing-decoder", "horizontal"), set()),
    "--routing-iterations 5": ((*HEADS, *LAYERS, *CAPSULES), set()),
    "--routing-coefficients random": ((*HEADS, "--routing-iterations", "1"), set()),
}
# where it shows that these reach the model, whose output stays the same
ELSEWHERE = {
    "--init-from": "checkpoints/test_initialisation.py",
    "--autocast": "test_precision.py",
    "--compile": "test_graphs.py",
    "--drop-head": "modules/test_drop_head.py",
    "--drop-head-fall-updates": "modules/test_drop_head.py",
    "--drop-head-rise-updates": "modules/test_drop_head.py",
    "--routing-backend": "below",
}


@pytest.mark.parametrize("given", REACHES)
def test_the_flag_reaches_the_model(given: str) -> None:
    around, places = REACHES[given]
    flagged, other = model(PLAIN, *around, *given.split()), model(PLAIN, *around)
    assert changed(flagged, other) == places
    assert not same(flagged, other)


def test_every_flag_of_the_plugin_has_such_a_test() -> None:
    assert {given.split()[0] for given in REACHES} | {*ELSEWHERE} == {flag(n) for n in defaults()}


# architecture -> the flags that make the plain model the same, in the size of the architecture
PRESETS = {
    "transformer_em_routing": "--head-aggregation em --head-aggregation-encoder-layers 1,2",
    "transformer_dlcl_routing": "--layer-aggregation em-routing",
    "transformer_dlcl": "--layer-aggregation dlcl",
    "transformer_mlmha": "--mlmha M-10",
    "transformer_mlmha_big": "--mlmha M-10",
    "transformer_mlmha_iwslt": "--mlmha M-00",
    "capsule_transformer": "--capsule-routing-encoder both --capsule-routing-decoder horizontal",
}


@pytest.mark.parametrize("arch", PRESETS)
def test_a_preset_is_what_its_paper_recommends(arch: str) -> None:
    three = ("--encoder-layers", "3", "--decoder-layers", "3")
    assert same(model(arch, *three), model(PLAIN, *three, *PRESETS[arch].split()))


@pytest.mark.parametrize(
    ("size", "width", "ffn", "layers"),
    [("", 512, 2048, 6), ("_big", 1024, 4096, 6), ("_iwslt", 256, 1024, 4), ("_tiny", 128, 256, 3)],
)
def test_a_size_has_the_parameters_of_its_width_and_depth(
    size: str, width: int, ffn: int, layers: int
) -> None:
    with torch.device("meta"):
        built = build(f"{PLAIN}{size}", small=False)
    attention = 4 * (width * width + width)
    feed_forward = 2 * width * ffn + width + ffn
    norms = 5 * 2 * width
    embeddings = 3 * 28 * width  # source, target, output of the tests' 28-word dictionary
    expected = layers * (3 * attention + 2 * feed_forward + norms) + embeddings
    assert sum(parameter.numel() for parameter in built.parameters()) == expected


def test_a_flag_takes_precedence_over_a_presets_value() -> None:
    preset, heads = "transformer_em_routing", "--head-aggregation"
    assert same(model(preset, heads, "linear"), model(PLAIN))
    assert same(model(preset, heads, "simple"), model(PLAIN, heads, "simple"))
    decoder = (f"{heads}-attention", "dec-self")
    assert same(model(preset, *decoder), model(PLAIN, *HEADS, *decoder))
    # it names only layers that there are
    one = ("--encoder-layers", "1")
    assert same(model(preset, *one), model(PLAIN, *HEADS, *one))
    # a list that the user gives is not shortened
    with pytest.raises(ConfigurationError, match="names layer 2"):
        build(preset, *one, "--head-aggregation-encoder-layers", "1,2")


def test_a_model_that_no_architecture_has_completed_is_the_base_model() -> None:
    dimensions = {"encoder_layers": 1, "decoder_layers": 1, "encoder_embed_dim": 16}
    built, plain = (
        CapsnmtTransformer.build_model(argparse.Namespace(**dimensions, **more), TASK)
        for more in ({"head_aggregation": "em"}, {})
    )
    assert changed(built, plain) == {"encoder 0 self_attn"}
    assert plain.decoder.layers[0].fc1.out_features == 2048


def test_hydras_task_says_that_alignments_are_learned() -> None:
    """fairseq's criterion with alignments reads the weights of the top layer in training."""
    task, previous = task_of(FIRST + WORDS), shifted(batch(TARGETS, left_pad=False))
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_embed_dim": 16, "base_layers": 0}
    for given in (True, False):
        task.cfg = SimpleNamespace(load_alignments=given)
        built = CapsnmtTransformer.build_model(OmegaConf.create({"_name": PLAIN, **sizes}), task)
        _, extra = built.train()(**encoder_input(SOURCES), prev_output_tokens=previous)
        assert (extra["attn"][0] is not None) == given


@pytest.mark.parametrize(
    ("arch", "flags"),
    [
        ("transformer_em_routing", "--head-aggregation linear"),
        ("transformer_em_routing", "--head-aggregation-attention dec-self"),
        ("transformer_dlcl_routing", "--layer-aggregation dynamic"),
        ("transformer_dlcl_routing", "--layer-aggregation transparent"),
        ("transformer_mlmha", "--mlmha-sources 1 --mlmha-mask-source 2"),
        ("transformer_mlmha", "--mlmha none"),
        ("capsule_transformer", "--capsule-routing-encoder none"),
    ],
)
def test_arguments_saved_in_a_checkpoint_are_accepted_again(arch: str, flags: str) -> None:
    """A checkpoint's arguments hold every switch, and pass through the same function."""
    args = parse(arch, *SMALL, *flags.split())
    before = dict(vars(args))
    ARCH_CONFIG_REGISTRY[arch](args)
    assert vars(args) == before


def test_every_routing_of_a_model_runs_on_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(operator, "check_backend", lambda name, _: seen.append(name) or name)
    logits(model(PLAIN, *HEADS, *LAYERS, *CAPSULES, "--routing-backend", "eager"))
    assert set(seen) == {"eager"}


def built_with(model: type = CapsnmtTransformer, **values: object) -> torch.nn.Module:
    """A model of values that --model-overrides and hydra may give, which parse no text."""
    args = argparse.Namespace(**{**vars(parse(PLAIN, *SMALL)), **values})
    return model.build_model(args, TASK)


# of a default's type
WRONG: Dict[type, Sequence[object]] = {
    bool: ["yes", 2.5, [1]],
    int: ["3", 2.5, [1]],
    float: ["3", [1]],
    str: [2.5, [1]],
}


@pytest.mark.parametrize("name", defaults())
def test_a_value_of_another_type_is_refused(name: str) -> None:
    """Also one that is equal to the default."""
    default = defaults()[name]
    equal = [float(default)] if isinstance(default, int) else []
    for value in [*WRONG.get(type(default), ()), *equal]:
        with pytest.raises(ConfigurationError, match=f"^{flag(name)} [^\n]*$"):
            built_with(**{name: value})


class OfAUser(CapsnmtTransformer):
    """A model with an option that is called nearly as one of ours."""

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        super().add_args(parser)
        parser.add_argument("--mlmha-sources-dropout", required=True)
        parser.add_argument("--layer-aggregation-bias")


def test_a_probability_that_is_text_and_a_name_that_nothing_reads_are_refused() -> None:
    """fairseq keeps any name of --model-overrides: the ablation would be the intact model."""
    for name, fault in (
        ("dropout", r"^--dropout is '0\.1'; give 0 or more"),
        ("mlmha-mask-source", "^mlmha-mask-source is no setting; give mlmha_mask_source$"),
        ("mlmha_mask_sources", "^mlmha_mask_sources is no setting; give mlmha_mask_source$"),
        ("layer_aggregation_bias", "is no setting; give layer_aggregation$"),
    ):
        with pytest.raises(ConfigurationError, match=fault):
            built_with(**{name: "0.1"})
    assert built_with(OfAUser, layer_aggregation_bias="0.1")


def test_a_criterion_may_have_an_option_that_is_called_nearly_as_a_switch() -> None:
    given = {"criterion": "of_a_user", "head_capsule_loss": "0.1"}
    with pytest.raises(ConfigurationError, match="head_capsule_loss is no setting; give head_caps"):
        built_with(**given)
    own = SimpleNamespace(add_args=lambda parser: parser.add_argument("--head-capsule-loss"))
    with patch.dict(REGISTRIES["criterion"]["registry"], of_a_user=own):
        assert built_with(**given)


# flags of the plain architecture -> the refusal of training, of a machine with nothing but torch
REFUSED = {
    "--mlmha M-10 --mlmha-mask-source 1": "--mlmha-mask-source 1: .*--model-overrides; train",
    "--head-aggregation em --routing-backend compiled": "compiled: needs .*; train without it",
    "--head-aggregation em --routing-backend triton": "triton: needs .*; train without it",
    "--compile": r"^--compile: needs a compiler; train without it$",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_it_is_refused_in_training_only(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (backend, encoder):
        monkeypatch.setattr(module, "compile_obstacle", lambda device_type: "needs a compiler")
    monkeypatch.setattr(launch, "triton_obstacle", lambda device_type: "needs a GPU")
    model = build("capsnmt_transformer", *flags.split())
    with pytest.raises(ConfigurationError, match=REFUSED[flags]):
        model.train()


@pytest.mark.parametrize(
    ("switch", "value", "group", "option", "excluded"),
    [
        ("layer_aggregation", "dlcl", "common", "fp16", True),
        ("autocast", "bf16", "common", "fp16", True),
        ("init_from", "base.pt", "checkpoint", "finetune_from_model", "other.pt"),
        ("compile", True, "criterion", "_name", "label_smoothed_cross_entropy_with_disagreement"),
    ],
)
def test_hydra_refuses_what_the_command_line_refuses(
    switch: str, value: object, group: str, option: str, excluded: object
) -> None:
    """Precision, starts and criterion are of other groups than the model's."""
    root = OmegaConf.create({"model": {"_name": "capsnmt_transformer", switch: value}})
    ARCH_CONFIG_REGISTRY["capsnmt_transformer"](root.model)
    root[group] = {option: excluded}
    with pytest.raises(ConfigurationError, match=f"{flag(switch)}.*; drop one of them"):
        ARCH_CONFIG_REGISTRY["capsnmt_transformer"](root.model)
    assert not {"fp16", "criterion", "finetune_from_model"} & root.model.keys()


def test_half_precision_parameters_are_refused_beside_autocast() -> None:
    model = build("capsnmt_transformer", "--autocast", "bf16").half()
    with pytest.raises(ConfigurationError, match=r"^.*torch.float16; drop --fp16, .*'none'.*\Z"):
        forward(model, sentences(5), sentences(4))
