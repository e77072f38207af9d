"""Limit cases: where the model, or a mechanism, must be fairseq's Transformer."""

import copy
import functools
from typing import Any, Callable, NamedTuple, Sequence, Tuple

import fairseq.models
import pytest
import torch
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules.dynamic_convolution import DynamicConv1dTBC

from capsnmt.models.layers import TransformerEncoderLayer
from capsnmt.modules.multi_layer_attention import VARIANTS
from capsnmt.modules.shortcuts import SHORTCUTS
from scripts.workload import learned_parameters
from tests.support import (
    CAPSULES,
    DROP,
    EVERYWHERE,
    NORM,
    ONE_LAYER,
    PAD,
    SMALL,
    TASK,
    batch,
    build,
    encoder_input,
    forward,
    parse,
    randomise_special_starts,
    sentences,
    shifted,
)

PLAIN = "capsnmt_transformer"
INPUTS = sentences(5, 3), sentences(4, 2, seed=1)
AROUND = {
    "post-norm": (),
    "pre-norm": NORM,
    "attention dropout": ("--attention-dropout", "0.3"),
    "cross self-attention": ("--cross-self-attention", "--no-cross-attention"),
    "one embedding": ("--share-all-embeddings",),
    "layer drop": ("--encoder-layerdrop", "0.3", "--decoder-layerdrop", "0.3"),
}


def stock(*flags: str) -> torch.nn.Module:
    torch.manual_seed(1)
    return fairseq.models.build_model(parse("transformer", *SMALL, *flags), TASK).eval()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("flags", AROUND.values(), ids=AROUND)
def test_parameters_outputs_and_gradients_are_the_hosts(flags: tuple, training: bool) -> None:
    """From the same initial values."""
    inputs = sentences(5, 3), sentences(4, 5, seed=1)
    outputs, gradients, starts = [], [], []
    for model in (build(PLAIN, *flags), stock(*flags)):
        learned = learned_parameters(model)
        starts.append([(name, p.tolist()) for name, p in learned.items()])
        torch.manual_seed(7)
        logits = forward(model.train(training), *inputs)
        real = batch(inputs[1], left_pad=False).ne(PAD)
        logits[real].square().sum().backward()
        outputs.append(logits[real])
        gradients.append({name: p.grad for name, p in learned.items()})
    assert starts[0] == starts[1]
    if training and "--attention-dropout" in flags:
        # the same mask would need the same kernel: only its size can be compared
        torch.testing.assert_close(outputs[0].norm(), outputs[1].norm(), rtol=0.3, atol=0)
        return
    torch.testing.assert_close(*outputs, atol=1e-5, rtol=1e-5)
    for name, gradient in gradients[0].items():
        if gradient is not None:  # a dropped layer has none in either
            torch.testing.assert_close(gradient, gradients[1][name], atol=2e-5, rtol=2e-5, msg=name)


def test_padding_between_words_is_read_by_none_and_attention_weights_are_the_hosts() -> None:
    """Of a text that spells it, or of words that are dropped; it was read unless others led."""
    given = shifted(batch(sentences(4, 4, seed=1), left_pad=False))
    given[0, 2] = PAD
    inputs = {**encoder_input(sentences(5, 3)), "prev_output_tokens": given, "alignment_layer": 0}
    found = []
    for logits, extra in (model(**inputs) for model in (build(PLAIN), stock())):
        found.append([each[given.ne(PAD)] for each in (logits, extra["attn"][0])])
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


def test_an_encoder_without_layers_leaves_the_mechanisms_of_the_decoder() -> None:
    flags = ("--head-aggregation", "em", "--head-aggregation-attention", "dec-self")
    names = build(PLAIN, "--encoder-layers", "0", *flags).state_dict()
    assert "decoder.layers.0.self_attn.out_proj.beta_a" in names


def derive(part: torch.nn.Module, own: Callable[..., Any]) -> None:
    """Give a part a class derived of its own, whose pass is ``own(the host's, its inputs)``."""
    host = type(part)

    def forward(self: Any, *args: Any, **more: Any) -> Any:
        return own(functools.partial(host.forward, self), *args, **more)

    part.__class__ = type("Own", (host,), {"forward": forward})


def with_own_mask(model: torch.nn.Module, owner: str) -> torch.nn.Module:
    """Let words attend to the last three, with a learned bias by distance, as a user adds it.

    Padding then has words to attend to: without any it is no number in some hosts.
    """
    model.slope = torch.nn.Parameter(torch.zeros(()))

    def masked(future: torch.Tensor) -> torch.Tensor:
        distance = torch.arange(len(future))[:, None] - torch.arange(len(future))
        return future.masked_fill(distance > 2, -torch.inf) + model.slope * distance.relu()

    def own(given: Any) -> Any:
        return {**given, name: masked(given[name])}

    of_layer = "layer" in owner
    name = "self_attn_mask" if of_layer else "attn_mask"
    if owner in ("decoder", "loop"):
        original, changed = model.decoder.buffered_future_mask, model.decoder
        if owner == "loop":  # over the layers, as a copy of the host's in a derived class
            changed = copy.copy(model.decoder)
            model.decoder.extract_features_scriptable = functools.partial(
                TransformerDecoderBase.extract_features_scriptable, changed
            )
        changed.buffered_future_mask = lambda x: masked(original(x))
        return model
    for part in (layer if of_layer else layer.self_attn for layer in model.decoder.layers):
        if "hook" in owner:
            part.register_forward_pre_hook(lambda _, x, given: (x, own(given)), with_kwargs=True)
        else:
            derive(part, lambda run, *x, **given: run(*x, **own(given)))
    return model


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("lengths", [(5, 5), (5, 3)], ids=str)
@pytest.mark.parametrize(
    "owner", ["decoder", "loop", "layer", "attention", "layer hook", "attention hook"]
)
def test_a_mask_of_a_users_own_hides_and_learns_what_it_does_with_the_host(
    owner: str, lengths: Sequence[int], training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's fused function was told of the future alone, unless there was padding."""
    monkeypatch.setattr(SHORTCUTS, "products_are_faster", lambda q, k: False)
    target, found = sentences(*lengths, seed=1), []
    for slope in (0.0, 0.7):
        for model in (build(PLAIN), stock()):
            with_own_mask(model, owner).slope.data.fill_(slope)
            logits = forward(model.train(training), sentences(5, 3), target)
            logits = logits[batch(target, left_pad=False).ne(PAD)]
            (learned,) = torch.autograd.grad(logits.square().sum(), model.slope)
            found.append((logits, learned))
    assert found[0][1].abs() > 1e-3
    for ours, hosts in (found[:2], found[2:]):
        torch.testing.assert_close(ours, hosts, atol=1e-4, rtol=1e-4)


def tripled(found: Any) -> Any:
    """Return three times the output of an encoder, or of a decoder's layers."""
    if isinstance(found, dict):
        return {**found, "encoder_out": [3 * x for x in found["encoder_out"]]}
    return 3 * found[0], found[1]


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_users_layer_gets_the_padding_of_the_source_as_the_hosts_does(side: str) -> None:
    place, found = 1 if side == "encoder" else 2, []

    def own(run: Any, *args: Any, **more: Any) -> Any:
        padding = [*args, more.get("encoder_padding_mask")][place]
        return run(args[0] * (1 - padding.type_as(args[0])).mean(), *args[1:], **more)

    for model in (build(PLAIN), stock()):
        for layer in getattr(model, side).layers:
            derive(layer, own)
        found.append(forward(model, *INPUTS)[batch(INPUTS[1], left_pad=False).ne(PAD)])
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


class Convolved(TransformerEncoderLayer):
    def __init__(self, cfg: Any, *others: Any) -> None:
        super().__init__(cfg, *others)
        self.convolution = DynamicConv1dTBC(
            cfg.encoder.embed_dim, 3, padding_l=1, num_heads=4, weight_dropout=0.1
        )

    def forward(self, x: torch.Tensor, *masks: Any) -> Any:
        return super().forward(self.convolution(x.contiguous()), *masks)


def test_a_users_layer_may_have_the_hosts_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their dropout, which is replaced as that of all layers, gets an argument more."""
    monkeypatch.setattr("capsnmt.models.encoder.TransformerEncoderLayer", Convolved)
    assert forward(build(PLAIN).train(), *INPUTS).isfinite().all()


def test_an_encoder_hands_over_what_the_feed_forward_networks_of_its_layers_return() -> None:
    """Of a class derived to learn from them, as data2vec does (``return_fc``)."""
    found = []
    for model in (build(PLAIN), stock()):
        made = model.encoder
        own = type(made)(made.cfg, made.dictionary, made.embed_tokens, return_fc=True).eval()
        own.load_state_dict(made.state_dict())
        results = own(**encoder_input(sentences(5, 5)), return_all_hiddens=True)["fc_results"]
        assert len(results) == len(own.layers)
        found.append(results)
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("path", ["encoder.forward", "decoder.extract_features"])
def test_a_users_pass_in_place_of_the_hosts_is_run(path: str) -> None:
    """The host gives the passes whose code a derived class may call names of their own."""
    stack, _, name = path.partition(".")
    name, found = f"{name}_scriptable", []
    real = batch(INPUTS[1], left_pad=False).ne(PAD)
    for model in (build(PLAIN), stock()):
        part = getattr(model, stack)
        original = getattr(part, name)
        own = {name: lambda self, *args, f=original, **more: tripled(f(*args, **more))}
        part.__class__ = type("Own", (type(part),), own)
        found.append(forward(model, *INPUTS)[real])
    assert not torch.allclose(found[0], forward(build(PLAIN), *INPUTS)[real], atol=0.1)
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("around", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("lengths", [(5, 5), (5, 3)], ids=str)
def test_the_decoder_does_not_read_what_a_users_encoder_hides(
    lengths: Sequence[int], around: Any
) -> None:
    """Beside padding, or alone; also after a reordering, as of beam search."""
    source, target = sentences(*lengths), sentences(4, 4, seed=1)
    order, given = torch.tensor([1, 0]), shifted(batch(target, left_pad=False))
    found = []
    for model in (build(PLAIN), stock()):
        for hide in (lambda mask, _: mask, torch.logical_or, torch.Tensor.logical_or_):
            with around():
                encoded = model.encoder(**encoder_input(source))
                (padding,) = encoded["encoder_padding_mask"]
                last = torch.arange(padding.size(1)).eq(4)
                own = {**encoded, "encoder_padding_mask": [hide(padding, last)]}
                turned = model.encoder.reorder_encoder_out(own, order)
                found += [model.decoder(given, each)[0] for each in (own, turned)]
    assert not torch.allclose(found[0], found[2], atol=1e-2)
    torch.testing.assert_close(found[:6], found[6:], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found[2:4], found[4:6])


def without_epsilon(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model with LayerNorms whose output is the same for every multiple of an input."""
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-30  # not 0: what is padded may be constant
    return model


def outputs_and_gradients(model: torch.nn.Module) -> tuple:
    output = forward(model.double(), *INPUTS)
    output.square().sum().backward()
    return output, {name: p.grad for name, p in model.named_parameters()}


def on_the_bottom_layer(model: torch.nn.Module) -> None:
    for stack in (model.encoder, model.decoder):
        weight = stack.layer_aggregation.combine.weight  # [W_1, W_2] = [0, I]
        weight.copy_(weight.flip(1).flip(0))


def on_the_top_layer(model: torch.nn.Module) -> None:
    model.encoder.transparent.weight[-1] = 1000.0


class Limit(NamedTuple):
    """The flags of a mechanism, those around it, the names of its parameters and what sets them."""

    flags: str
    own: Tuple[str, ...] = ()
    around: Sequence[Sequence[str]] = ((), NORM)
    set_parameters: Callable[[Any], None] = lambda model: None  # it is so at the start


AGGREGATED, RESIDUALS = "--layer-aggregation", "--layer-aggregation attention-residuals"
LIMITS = {
    **{
        f"{variant} to one source": Limit(f"--mlmha {variant} --mlmha-sources 1")
        for variant in VARIANTS
    },
    "linear": Limit(f"{AGGREGATED} linear", ("layer_aggregation",)),
    "dense": Limit(f"{AGGREGATED} dense", ("connection",)),
    # every LayerNorm reads the mean of what the residual sum adds up: a multiple of the sum
    "residuals": Limit(RESIDUALS, ("connection",), (NORM,)),
    "blocks": Limit(f"{RESIDUALS} --attention-residuals-block 2", ("connection",), (NORM,)),
    # a Transformer of one layer: a LayerNorm at the end is applied to every layer
    "linear, of the bottom layer": Limit(
        f"{AGGREGATED} linear",
        ("layer_aggregation", "layers.1."),
        set_parameters=on_the_bottom_layer,
    ),
    "transparent, of the top layer": Limit(
        f"{AGGREGATED} transparent", ("transparent",), set_parameters=on_the_top_layer
    ),
    "attention over depth, to one layer": Limit(
        f"{AGGREGATED} attention", ("layer_aggregation",), (ONE_LAYER, (*ONE_LAYER, *NORM))
    ),
    **{
        f"{kind} heads": Limit(
            f"--head-aggregation {kind} {' '.join(EVERYWHERE)}",
            ("_mixing", "composition"),
            ((), NORM, ("--mlmha", "M-10"), CAPSULES),
        )
        for kind in ("talking", "composed")
    },
}


@pytest.mark.parametrize(
    ("name", "around"), [(name, around) for name in LIMITS for around in LIMITS[name].around]
)
def test_it_is_the_transformer_with_the_same_gradients(name: str, around: Sequence[str]) -> None:
    """The gradients of the parameters that the Transformer has."""
    flags, own, _, set_parameters = LIMITS[name]
    depth = ONE_LAYER if "layers.1." in own else ()
    transformer = without_epsilon(build(PLAIN, *around, *depth))
    model = without_epsilon(build(PLAIN, *around, *flags.split(), seed=2))
    missing, unexpected = model.load_state_dict(transformer.state_dict(), strict=False)
    assert not unexpected
    assert all(any(part in name for part in own) for name in missing)
    with torch.no_grad():
        set_parameters(model)
    expected, gradients = outputs_and_gradients(transformer)
    output, found = outputs_and_gradients(model)
    torch.testing.assert_close(output, expected)
    for name, gradient in gradients.items():
        torch.testing.assert_close(found[name], gradient, msg=name)


@pytest.mark.parametrize("mode", ["linear", "dense", "attention-residuals"])
def test_a_dropped_layer_is_the_identity_and_fairseqs_draw_decides_which(mode: str) -> None:
    """All start as the Transformer, so they must equal its layer dropout."""
    flags = (*DROP, *(NORM if mode == "attention-residuals" else ()))
    plain = without_epsilon(build(PLAIN, *flags)).train()
    model = build(PLAIN, *flags, "--layer-aggregation", mode)
    model = without_epsilon(model).train()
    model.load_state_dict(plain.state_dict(), strict=False)
    for seed in range(6):
        outputs = []
        for one in (plain, model):
            torch.manual_seed(seed)
            outputs.append(forward(one, *INPUTS))
        torch.testing.assert_close(*outputs)


@pytest.mark.parametrize("mode", ["dlcl", "dense"])
def test_the_output_of_a_dropped_layer_is_its_input_in_every_sum_above(mode: str) -> None:
    model = build(PLAIN, "--layer-aggregation", mode, "--encoder-layerdrop", "0.5")
    encoder = randomise_special_starts(model).double().train().encoder
    source = batch(INPUTS[0], left_pad=True)
    encoder.encoder_layerdrop = 1.0
    dropped = encoder(source)["encoder_out"][0]
    encoder.encoder_layerdrop = 0.0
    for layer in encoder.layers:
        layer.forward = lambda x, *_, **__: x
    torch.testing.assert_close(dropped, encoder(source)["encoder_out"][0])
