"""Beam search reads each sentence once: what is computed from it is shared by its hypotheses."""

import copy
from typing import Any, Dict, List, Sequence, Tuple

import pytest
import torch
from fairseq import search
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.sequence_generator import SequenceGenerator
from fairseq.token_generation_constraints import pack_constraints

from tests.support import (
    DROP,
    EOS,
    EVERY_COMMIT,
    EVERYWHERE,
    FIRST,
    NORM,
    PAD,
    SYSTEMS,
    TASK,
    build,
    build_system,
    encoder_input,
    forward,
    sentences,
    with_every_commit,
)

BEAM = 3
WORDS = TASK.target_dictionary
SOURCES = sentences(5, 3, 7, 2)
Hypotheses = List[List[Dict[str, Any]]]  # of every sentence
# heads are routed after the attention, and gated and talk inside it
MULTI_LAYER = {
    f"{variant} {heads}": ("--mlmha", variant, "--head-aggregation", heads, *EVERYWHERE)
    for variant, heads in (
        *(("M-00", "talking"), ("M-01", "em"), ("M-10", "gated"), ("M-11", "em")),
        *(("M-00", "composed"), ("M-10", "composed")),
    )
}
# what decides otherwise what a layer of the decoder reads, or where it reads it
OTHERS: Dict[str, Tuple[str, ...]] = {
    "transparent": ("--layer-aggregation", "transparent"),
    "transparent, pre-norm": ("--layer-aggregation", "transparent", *NORM),
    "one source, pre-norm": ("--mlmha", "M-10", "--mlmha-sources", "1", *NORM),
    "dlcl with layer drop": ("--layer-aggregation", "dlcl", *DROP),
    "widths": ("--encoder-embed-dim", "24", "--decoder-learned-pos"),
    "checkpointing": ("--checkpoint-activations",),
    "surface fusion": ("--surface-fusion", "0.2", *NORM),
}
ALL = {**MULTI_LAYER, **OTHERS}


@torch.no_grad()
def lively(model: torch.nn.Module) -> torch.nn.Module:
    """Let translations differ, and end at different steps."""
    projection = model.decoder.output_projection
    model.decoder.output_projection = torch.nn.Linear(
        projection.in_features, len(projection.weight)
    )
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=0.4)
    model.decoder.output_projection.bias[EOS] += 2
    return model.double()


def flagged(*flags: str, seed: int = 1) -> torch.nn.Module:
    return lively(build("capsnmt_transformer", *flags, seed=seed))


def projected_keys(model: torch.nn.Module) -> List[int]:
    """Return a list that will hold the rows that each key projection of the encoder gets."""
    rows: List[int] = []
    suffix = ".encoder_attn.k_proj.weight"  # as in a checkpoint
    for name in [name for name in model.state_dict() if name.endswith(suffix)]:
        projection = model.get_submodule(name.rpartition(".")[0])
        projection.register_forward_pre_hook(lambda _, args: rows.append(args[0].size(1)))
    return rows


def generator(models: Sequence[torch.nn.Module], beam: int = BEAM, **settings: Any) -> Any:
    settings = {"max_len_a": 0, "max_len_b": 9, **settings}
    return SequenceGenerator(list(models), WORDS, beam_size=beam, **settings)


def found_by(searching: Any, **more: Any) -> Hypotheses:
    return searching.generate([], {"net_input": encoder_input(SOURCES), "target": None}, **more)


def assert_same_hypotheses(found: Hypotheses, expected: Hypotheses, **near: Any) -> None:
    for ours, theirs in zip(found, expected):
        words = [[one["tokens"].tolist() for one in several] for several in (ours, theirs)]
        assert words[0] == words[1]
        for name in ("score", "positional_scores"):
            scores = ([one[name] for one in several] for several in (ours, theirs))
            torch.testing.assert_close(*scores, **near)


@torch.no_grad()
def assert_scored_as_by_full_passes(models: Sequence[torch.nn.Module], found: Hypotheses) -> None:
    """Check the score of every word of every hypothesis, of the mean of some models."""
    pairs = [(source, one) for source, several in zip(SOURCES, found) for one in several]
    sources, hypotheses = [source for source, _ in pairs], [one["tokens"] for _, one in pairs]
    outputs = [(model, (forward(model, sources, hypotheses), None)) for model in models]
    mean = sum(model.get_normalized_probs(output, log_probs=False) for model, output in outputs)
    mean = mean.double() / len(models)
    for (_, one), probabilities in zip(pairs, mean):
        words = one["tokens"]
        expected = probabilities[: len(words)].gather(1, words[:, None])[:, 0].log()
        torch.testing.assert_close(
            one["positional_scores"].double(), expected, rtol=1e-6, atol=1e-6
        )


@with_every_commit(len(ALL) + EVERY_COMMIT, [*ALL, *SYSTEMS])
def test_every_system_projects_the_keys_of_a_sentence_once(name: str) -> None:
    model = flagged(*ALL[name]) if name in ALL else lively(build_system(name))
    rows = projected_keys(model)
    found = found_by(generator([model]))
    assert [len(several) for several in found] == [BEAM] * len(SOURCES)
    assert rows
    assert set(rows) == {len(SOURCES)}  # and not a row for each hypothesis
    assert len(rows) == len(model.decoder.layers)  # and not in each step
    assert_scored_as_by_full_passes([model], found)


@pytest.mark.parametrize("flags", [(), ALL["M-10 gated"], ALL["transparent"]], ids=" ".join)
def test_a_search_leaves_nothing_behind(flags: Tuple[str, ...]) -> None:
    """A full pass after it, a narrower beam, and generators that were made before."""
    model = flagged(*flags)
    fresh = {beam: found_by(generator([copy.deepcopy(model)], beam)) for beam in (1, 2, 4)}
    before = forward(model, SOURCES, SOURCES)
    made = {beam: generator([model], beam) for beam in (4, 1, 2)}
    for beam in (4, 1, 2, 4):
        assert_same_hypotheses(found_by(made[beam]), fresh[beam])
        assert forward(model, SOURCES, SOURCES).equal(before)


CONSTRAINTS = [[FIRST + 2 + number, FIRST + 9] for number in range(len(SOURCES))]


def constrained(order: str) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    packed = pack_constraints([[torch.tensor([word]) for word in some] for some in CONSTRAINTS])
    found = search.LexicallyConstrainedBeamSearch(WORDS, order)
    return {"search_strategy": found, "beam": 6}, {"constraints": packed}


# what is given to the generator, and to its search
SEARCHES: Dict[str, Tuple[Dict[str, Any], Dict[str, Any]]] = {
    "prefix": ({}, {"prefix_tokens": torch.tensor([[FIRST + 3, FIRST + 1]] * len(SOURCES))}),
    "prefixes of other lengths": (
        {},
        {"prefix_tokens": torch.tensor([[FIRST, EOS, PAD], [FIRST, PAD, PAD]] * 2)},
    ),
    "sampling": ({"search_strategy": search.Sampling(WORDS)}, {}),
    "siblings": ({"search_strategy": search.DiverseSiblingsSearch(WORDS, 0.0)}, {}),
    "ordered constraints": constrained("ordered"),
    "unordered constraints": constrained("unordered"),
    "no word twice": ({"no_repeat_ngram_size": 1}, {}),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_every_way_of_searching_projects_once_a_sentence(name: str) -> None:
    model = flagged(*ALL["M-01 em"])
    rows, (settings, more) = projected_keys(model), copy.deepcopy(SEARCHES[name])
    found = found_by(generator([model], **settings), **more)
    assert set(rows) == {len(SOURCES)}
    if name != "no word twice":
        assert_scored_as_by_full_passes([model], found)


def test_an_ensemble_projects_once_a_sentence_in_each_model() -> None:
    several = [(), ALL["M-00 talking"], ALL["transparent"], ("--capsule-routing-encoder", "both")]
    models = [flagged(*flags, seed=seed) for seed, flags in enumerate(several)]
    rows = [projected_keys(model) for model in models]
    found = found_by(generator(models))
    assert all(set(some) == {len(SOURCES)} for some in rows)
    assert_scored_as_by_full_passes(models, found)


@pytest.mark.parametrize("alone", [True, False])
def test_a_decoder_that_joins_the_encoding_to_its_own_words(alone: bool) -> None:
    """Cross+self-attention has one set of keys for both, so that each hypothesis has its own."""
    model = flagged("--cross-self-attention", *(["--no-cross-attention"] if alone else []))
    assert_scored_as_by_full_passes([model], found_by(generator([model])))


def test_hypotheses_of_a_sentence_that_part_are_one_clear_line() -> None:
    """A search of one's own may drop single hypotheses: then say so, and compute nothing wrong."""
    model = flagged()
    encoded = model.encoder(**encoder_input(SOURCES))
    encoded = model.encoder.reorder_encoder_out(encoded, torch.arange(4).repeat_interleave(2))
    with pytest.raises(ValueError, match=r"^.*hypotheses of a sentence.*\Z"):
        model.encoder.reorder_encoder_out(encoded, torch.tensor([0, 2, 4, 6]))


def test_a_batch_is_reordered_as_by_the_host_and_copied_only_if_it_changes() -> None:
    """Test it by sentences: each is kept once for its hypotheses."""
    encoder = flagged("--mlmha", "M-10").encoder
    ours, hosts = (encoder(**encoder_input(SOURCES)) for _ in range(2))
    # two hypotheses each; of one sentence they change places; one ends; one is repeated; none
    orders = [[0, 0, 1, 1, 2, 2, 3, 3], [1, 1, 2, 3, 5, 4, 6, 6], [0, 1, 4, 5, 6, 7], [2, 2, 0, 1]]
    copied = []
    for order in map(torch.LongTensor, [*orders, [], []]):
        before = ours["encoder_out"][0]
        ours = encoder.reorder_encoder_out(ours, order)
        copied.append(ours["encoder_out"][0] is not before)
        hosts = TransformerEncoderBase.reorder_encoder_out(encoder, hosts, order)
        for name, tensors in hosts.items():
            assert len(ours[name]) == len(tensors)
            dim = 1 if name == "encoder_out" else 0
            repeated = [one.repeat_interleave(2, dim) for one in ours[name]]
            assert all(one.equal(other) for one, other in zip(repeated, tensors))
    assert copied == [False, False, True, True, True, False]
