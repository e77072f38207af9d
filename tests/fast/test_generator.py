"""Our beam search on a CPU against fairseq's, of every decoder."""

import argparse
import copy
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Tuple
from unittest.mock import patch

import pytest
import torch
from fairseq.dataclass.configs import GenerationConfig
from fairseq.incremental_decoding_utils import FairseqIncrementalState
from fairseq.models import build_model
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.token_generation_constraints import pack_constraints
from torch.nn.modules.module import register_module_forward_hook

from capsnmt.cli import ConfigurationError
from capsnmt.fast.generator import Generator
from capsnmt.models.decoder import TransformerDecoder
from capsnmt.models.encoder import TransformerEncoder
from capsnmt.routing import record_routing
from tests.models.test_search import ALL, Hypotheses, assert_same_hypotheses, flagged, lively
from tests.support import (
    FIRST,
    PAD,
    SMALL,
    TASK,
    build,
    build_system,
    encoder_input,
    every_system,
    parse,
    sentences,
    task_of,
)

SOURCES = sentences(5, 9, 1, 7, 2, 12, 4)
# 36 features of a head: vectors and a rest
WIDE = (*("--encoder-embed-dim=72", "--decoder-embed-dim=72"), "--decoder-attention-heads=2")
TRANSLATION = TranslationTask(TranslationConfig(), TASK.source_dictionary, TASK.target_dictionary)


def prepared(*flags: str, seed: int = 1, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    model = flagged(*flags, seed=seed).to(dtype)
    model.make_generation_fast_()
    return model


def generated(
    build: Callable[..., Any],
    models: List[torch.nn.Module],
    left_pad: bool = True,
    settings: Any = (),
    given: Any = (),
    extra: Any = None,
) -> Hypotheses:
    """Return the hypotheses of the generator that a task builds."""
    source = encoder_input(SOURCES, left_pad)
    sample = {"net_input": source, "target": source["src_tokens"]}
    settings = {"beam": 4, "max_len_b": 10, **dict(settings)}
    options = argparse.Namespace(**{**vars(GenerationConfig()), **settings})
    if isinstance(options.constraints, str):
        given = {"constraints": CONSTRAINED}
    torch.manual_seed(5)
    generator = build(TRANSLATION, models, options, None, extra)
    return generator.generate(models, sample, **dict(given))


def compared(models: Any, *args: Any, **kwargs: Any) -> bool:
    """Assert that ours are fairseq's hypotheses; return whether fairseq has searched."""
    expected = generated(FairseqTask.build_generator.__wrapped__, models, *args, **kwargs)
    original = SequenceGenerator._generate
    with patch.object(SequenceGenerator, "_generate", autospec=True) as search:
        search.side_effect = original
        found = generated(FairseqTask.build_generator, models, *args, **kwargs)
    assert len(found) == len(expected) == len(SOURCES)
    exact = next(models[0].parameters()).dtype == torch.float64
    # in fp32, fairseq's own scores of a system differ by 7e-4 from those in fp64
    near = {} if exact else {"rtol": 1e-3, "atol": 1e-3}
    assert_same_hypotheses(found, expected, equal_nan=True, **near)
    return search.called


# The kernels compute in fp32, torch in fp64. Long translations with random parameters repeat words,
# and are equally good but for rounding.
SETTINGS: List[Tuple[torch.dtype, Dict[str, Any]]] = [
    (torch.float64, {"beam": 13, "max_len_b": 40}),
    (torch.float64, {"beam": 2, "lenpen": 1.8, "min_len": 6}),
    (torch.float32, {"beam": 1, "lenpen": 0.3}),
    (torch.float32, {"beam": 13, "min_len": 6}),
    (torch.float32, {"beam": 9, "unnormalized": True, "max_len_b": 2}),
    (torch.float32, {"max_len_a": 1.5, "max_len_b": 2, "min_len": 0}),
]


@pytest.mark.parametrize(("dtype", "settings"), SETTINGS)
def test_all_hypotheses_and_scores_are_fairseqs(
    dtype: torch.dtype, settings: Dict[str, Any]
) -> None:
    for seed, flags in enumerate([(), WIDE]):
        model = prepared(*flags, seed=seed, dtype=dtype)
        assert not compared([model], seed == 0, settings)  # padding on either side


def test_a_search_may_have_more_hypotheses_than_the_first_places() -> None:
    """It wrote behind the end of its memory."""
    task = task_of(300)
    args = parse("capsnmt_transformer", *SMALL)
    model = lively(build_model(args, task)).eval()
    model.make_generation_fast_()
    sample, dictionary = {"net_input": encoder_input(SOURCES)}, task.target_dictionary
    settings = {"beam_size": 130, "max_len_a": 0, "max_len_b": 2}
    found, expected = (
        search([model], dictionary, **settings).generate([model], sample)
        for search in (Generator, SequenceGenerator)
    )
    assert_same_hypotheses([each[:5] for each in found], [each[:5] for each in expected])


@pytest.mark.parametrize("beam", [0, -1])
def test_a_beam_without_hypotheses_is_one_line(beam: int) -> None:
    """Of 0, the kernel wrote outside of its memory: a command ended by a signal."""
    with pytest.raises(ConfigurationError, match=rf"^--beam is {beam}; give [^\n]*$"):
        generated(FairseqTask.build_generator, [prepared()], settings={"beam": beam})


FLAGS: List[Tuple[str, ...]] = [
    ("--encoder-normalize-before", "--decoder-normalize-before"),
    ("--encoder-embed-dim=24",),
    ("--decoder-learned-pos", "--encoder-learned-pos"),
    ("--no-token-positional-embeddings",),
    ("--layernorm-embedding", "--no-scale-embedding"),
    ("--decoder-layerdrop=0.5", "--activation-fn=gelu"),
    ("--no-cross-attention",),
]
WORDS = [[torch.tensor([FIRST + 3])] for _ in SOURCES]
CONSTRAINED = pack_constraints(WORDS)


class LanguageModel(torch.nn.Module):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*tokens.shape, len(TASK.target_dictionary))

    def get_normalized_probs(self, logits: torch.Tensor, **_: Any) -> torch.Tensor:
        return logits.log_softmax(-1)


@pytest.mark.parametrize(
    "more",
    [
        *(
            {"settings": settings}
            for settings in (
                {"sampling": True},
                {"diverse_beam_groups": 2},
                {"diversity_rate": 0.5},
                {"match_source_len": True},
                {"no_repeat_ngram_size": 2},
                {"unkpen": 0.5},
                {"temperature": 1.3},
                {"print_alignment": "hard"},
                {"constraints": "unordered"},
                {"prefix_allowed_tokens_fn": lambda *_: [2, 5, 7, 9, 11, 13, 15, 17, 19]},
                {"beam": 15},
            )
        ),
        {"given": {"prefix_tokens": torch.full((len(SOURCES), 2), FIRST + 1)}},
        {"extra": {"tokens_to_suppress": ["w3"]}},
        {"extra": {"lm_model": LanguageModel()}},
    ],
    ids=lambda more: "".join(*more.values()),
)
def test_other_searches_are_left_to_fairseq(more: Dict[str, Any]) -> None:
    assert compared([prepared()], **more)


@every_system
def test_every_system_is_searched_by_us(name: str) -> None:
    """In fp64 torch attends, in fp32 the kernel."""
    model = lively(build_system(name))
    assert not compared([model])
    model.float().make_generation_fast_()
    assert not compared([model])


@pytest.mark.parametrize("flags", [*map(ALL.get, ALL), *FLAGS], ids=str)
def test_every_decoder_is_searched_by_us(flags: Tuple[str, ...]) -> None:
    assert not compared([prepared(*flags)])


@torch.no_grad()
def test_an_adaptive_softmax_is_searched_by_us() -> None:
    model = build(
        "capsnmt_transformer", "--adaptive-softmax-cutoff=8,12", "--criterion=adaptive_loss"
    )
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=0.4)
    for dtype in (torch.float32, torch.float64):
        assert not compared([model.to(dtype)])


def test_models_that_are_several_change_or_are_watched_are_searched_by_us() -> None:
    model = prepared()
    assert not compared([model], given={"bos_token": FIRST})
    assert compared([model], given={"bos_token": PAD})  # which fairseq masks
    several = [
        model,
        prepared(*ALL["M-10 gated"]),
        prepared("--capsule-routing-decoder=horizontal"),
    ]
    assert not compared(several)
    assert compared([model, prepared("--cross-self-attention")])
    assert not compared([copy.deepcopy(model)])
    with torch.no_grad():
        model.decoder.layers[0].self_attn.q_proj.weight.mul_(3)
    assert not compared([model])
    for register in (
        model.decoder.layers[1].fc2.register_forward_hook,
        register_module_forward_hook,
    ):
        handle = register(lambda module, _, x: 2 * x if isinstance(module, torch.nn.Linear) else x)
        assert not compared([model])
        handle.remove()
    dropping, generate = flagged("--attention-dropout=0.1"), SequenceGenerator.generate

    def with_dropout(self: Any, *args: Any, **more: Any) -> Any:
        for module in self.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.train()
        return generate(self, *args, **more)

    with patch.object(SequenceGenerator, "generate", with_dropout):  # Gal and Ghahramani 2016
        assert compared([dropping])
    # --eval-bleu translates while a model is trained
    assert not compared([dropping.train()])
    dropping.make_generation_fast_(retain_dropout=True)
    assert compared([dropping])


@pytest.mark.parametrize("reader", ["probabilities", "hook", "function"])
def test_the_weights_of_an_attention_are_there_for_who_reads_them(reader: str) -> None:
    """A mechanism that copies words, and the usual way to look at an attention."""
    model, given = prepared(), []
    attention = model.decoder.layers[-1].encoder_attn
    run = attention.forward

    def see(found: Any) -> Any:
        given.append(found[1])
        return found

    if reader == "hook":
        attention.register_forward_hook(lambda _, __, found: see(found))
    elif reader == "function":
        attention.forward = lambda *inputs, **more: see(run(*inputs, **more))
    else:
        original = model.get_normalized_probs

        def probabilities(output: Any, log_probs: bool, sample: Any = None) -> torch.Tensor:
            given.append(output[1]["attn"][0])
            return original(output, log_probs, sample) * given[-1][:, -1:].amax(-1, keepdim=True)

        model.get_normalized_probs = probabilities
    assert not compared([model])
    assert given
    for weights in given:
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def tripled(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return 3 * super(type(module), module).forward(x)


def by_distance(self: Any, e: torch.Tensor, *_: Any) -> torch.Tensor:
    """Scores that decay with the distance of the keys, as of ALiBi (Press et al. 2022)."""
    return e - 0.3 * torch.arange(e.size(-1) - 1, -1, -1)


def by_words(
    self: Any, e: torch.Tensor, mask: Any, padding: Any, cache: Dict[str, torch.Tensor]
) -> torch.Tensor:
    """Scores that depend on how many words there are, by what is kept of them."""
    return e * cache["prev_key"].size(2) ** -0.5


SCORES = {"scores": by_distance, "count": by_words}


@pytest.mark.parametrize(
    "path",
    [
        *("v_proj", "q_proj", "out_proj", "embed_tokens", "model", "attend", "instance"),
        *("layer", "forward", "features"),
        *SCORES,
    ],
)
@pytest.mark.parametrize("attention", ["self_attn", "encoder_attn"])
def test_a_decoder_with_own_methods_is_searched_with_them(path: str, attention: str) -> None:
    """As a user adds them, without a word to the search."""
    model = prepared()
    changed = getattr(model.decoder.layers[1], attention)
    if path == "attend":  # as an ablation of heads replaces it
        original = changed.attend
        changed.attend = lambda *args: (3 * original(*args)[0], None)
    elif path in SCORES:
        own = {"scores": SCORES[path], "reads_scores": True}
        changed.__class__ = type("Own", (type(changed),), own)
    elif path == "layer":  # it reads the encoding itself
        layer, run = model.decoder.layers[1], model.decoder.layers[1].forward
        layer.forward = lambda x, y, *args, **more: run(x + y.mean(0), y, *args, **more)
    elif path == "forward":
        run = changed.forward
        changed.forward = lambda query, key, **more: run(query + key.mean(0), key, **more)
    elif path == "features":  # so does the decoder
        features = model.decoder.extract_features

        def with_mean(words: Any, encoder_out: Any, **more: Any) -> Any:
            found, extra = features(words, encoder_out=encoder_out, **more)
            return found + encoder_out["encoder_out"][0].mean(0).unsqueeze(1), extra

        model.decoder.extract_features = with_mean
    elif path == "instance":
        probabilities = model.get_normalized_probs
        model.get_normalized_probs = lambda *args, **more: 3 * probabilities(*args, **more)
    elif path == "model":
        probabilities = type(model).get_normalized_probs
        own = {"get_normalized_probs": lambda *args, **more: 3 * probabilities(*args, **more)}
        model.__class__ = type("Own", (type(model),), own)
    else:
        part = model.decoder.embed_tokens if path == "embed_tokens" else getattr(changed, path)
        part.__class__ = type("Own", (type(part),), {"forward": tripled})
    assert not compared([model])


def test_logits_that_are_part_of_a_larger_tensor_are_read_as_they_are() -> None:
    model = prepared(dtype=torch.float32)
    original = model.decoder.output_layer
    model.decoder.output_layer = lambda x: torch.cat(2 * [original(x)], -1).chunk(2, -1)[0]
    assert not compared([model])


def test_a_recording_of_routing_gets_every_hypothesis() -> None:
    with record_routing():
        assert compared([prepared("--head-aggregation=em")])


class Counter(FairseqIncrementalState, torch.nn.Module):
    """A part with a state of its own for each hypothesis: it adds the sum of earlier inputs."""

    def forward(self, x: torch.Tensor, state: Any) -> torch.Tensor:
        seen = self.get_incremental_state(state, "seen") or {}
        total = x + seen["sum"] if seen else x
        self.set_incremental_state(state, "seen", {"sum": total})
        return total

    def reorder_incremental_state(self, state: Any, order: torch.Tensor) -> None:
        seen = self.get_incremental_state(state, "seen")
        self.set_incremental_state(state, "seen", {"sum": seen["sum"].index_select(1, order)})


def test_a_decoder_with_a_state_of_its_own_is_left_to_fairseq() -> None:
    model = prepared()
    layer = model.decoder.layers[1]
    layer.counter = Counter()
    original = layer.forward
    layer.forward = lambda x, encoded, padding, state, **more: original(
        layer.counter(x, state), encoded, padding, state, **more
    )
    assert compared([model])


class CountingDecoder(TransformerDecoder):
    """A decoder with such a state, which it reorders itself."""

    reorder_incremental_state = Counter.reorder_incremental_state

    def embed(self, tokens: torch.Tensor, state: Any) -> torch.Tensor:
        return Counter.forward(self, super().embed(tokens, state), state)


class TopicEncoder(TransformerEncoder):
    """An encoder that also hands over the mean of its words, and reorders it."""

    def forward(self, src_tokens: torch.Tensor, *args: Any, **more: Any) -> Any:
        mean = self.embed_tokens(src_tokens).mean(1)
        return {**super().forward(src_tokens, *args, **more), "topic": [mean]}

    def reorder_encoder_out(self, encoded: Any, order: torch.Tensor) -> Any:
        topic = encoded["topic"][0].index_select(0, order)
        return {**super().reorder_encoder_out(encoded, order), "topic": [topic]}


class TopicDecoder(TransformerDecoder):
    """A decoder that adds it to its features."""

    def extract_features(self, words: torch.Tensor, encoder_out: Any, **more: Any) -> Any:
        features, extra = super().extract_features(words, encoder_out, **more)
        return features + encoder_out["topic"][0].unsqueeze(1), extra


@pytest.mark.parametrize("classes", [(CountingDecoder,), (TopicDecoder, TopicEncoder)])
@pytest.mark.parametrize("number", [1, len(SOURCES)])
def test_what_a_model_reorders_itself_is_left_to_fairseq(
    classes: Tuple[type, ...], number: int
) -> None:
    """Of one sentence, rows of hypotheses and of sentences could be added without an error."""
    model = prepared()
    for part, own in zip((model.decoder, model.encoder), classes):
        part.__class__ = own
    with patch.object(sys.modules[__name__], "SOURCES", SOURCES[:number]):
        assert compared([model])


def test_a_generator_may_be_built_of_an_ensemble() -> None:
    """As fairseq's, whose ensemble a user may derive from."""

    class Ensemble(EnsembleModel):
        def forward_decoder(self, *args: Any) -> Any:
            probabilities, attention = super().forward_decoder(*args)
            return 2 * probabilities, attention

    found = [
        generated(build, Ensemble([prepared()]))
        for build in (FairseqTask.build_generator, FairseqTask.build_generator.__wrapped__)
    ]
    assert_same_hypotheses(*found)


def scores_of(build: Callable[..., Any], model: torch.nn.Module) -> torch.Tensor:
    """Return the scores of all hypotheses of a model, whose words may tie."""
    found = [hypotheses for sentence in generated(build, [model]) for hypotheses in sentence]
    return torch.tensor([float(hypothesis["score"]) for hypothesis in found], dtype=torch.float64)


def test_several_threads_translate_with_one_model() -> None:
    model, interval = prepared(), sys.getswitchinterval()
    expected = scores_of(FairseqTask.build_generator, model)
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as threads:
            found = threads.map(lambda _: scores_of(FairseqTask.build_generator, model), range(4))
            assert all(map(expected.equal, found))
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_a_model_that_has_diverged_ends_as_with_fairseq(weight: float) -> None:
    model = prepared(dtype=torch.float32)
    with torch.no_grad():
        model.decoder.output_projection.weight[FIRST + 2] = weight
    found = []
    for building in (FairseqTask.build_generator.__wrapped__, FairseqTask.build_generator):
        with pytest.raises((AssertionError, RuntimeError)) as error:
            generated(building, [model])
        found.append(repr(error.value))
    assert found[0] == found[1]
