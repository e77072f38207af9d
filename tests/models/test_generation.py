"""Our models under fairseq's ways of decoding: ensembles, prefixes, constraints, sampling."""

from __future__ import annotations

import copy
from typing import Any, List, Sequence

import pytest
import torch
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.search import LexicallyConstrainedBeamSearch, Sampling
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.token_generation_constraints import pack_constraints
from torch import Tensor

from capsnmt.models import PRESETS
from tests.support import (
    EOS,
    FIRST,
    PAD,
    TASK,
    batch,
    build,
    forward,
    sentences,
    shifted,
)

# models that decide differently what the decoder reads and keeps
ARCHITECTURES = ("capsnmt_transformer", "transformer_mlmha", "capsule_transformer")
SOURCES = sentences(5, 3, 7, 2)


@torch.no_grad()
def lively(arch: str, seed: int = 1) -> torch.nn.Module:
    """Return a model whose translations differ; tied embeddings repeat the last word forever."""
    model = build(arch, seed=seed)
    model.decoder.output_projection = torch.nn.Linear(16, len(TASK.target_dictionary))
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=0.4)
    return model.double()


def sample_of(sources: Sequence[Tensor]) -> Any:
    """Return sentences as a batch of fairseq."""
    source = batch(sources, left_pad=True)
    inputs = {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)}
    return {"net_input": inputs, "target": None}


def translations(
    models: Sequence[torch.nn.Module],
    sources: Sequence[Tensor],
    prefix: Any = None,
    **settings: Any,
) -> List[Any]:
    """Return fairseq's best hypothesis of each sentence; the models are not changed."""
    models = copy.deepcopy(list(models))
    settings = {"beam_size": 3, "max_len_a": 0, "max_len_b": 8, **settings}
    constraints = settings.pop("constraints", None)
    generator = SequenceGenerator(models, TASK.target_dictionary, **settings)
    found = generator.generate(
        models, sample_of(sources), prefix_tokens=prefix, constraints=constraints
    )
    return [hypotheses[0] for hypotheses in found]


def best(*args: Any, **settings: Any) -> List[List[int]]:
    """Return the words of the same."""
    return [hypothesis["tokens"].tolist() for hypothesis in translations(*args, **settings)]


@torch.no_grad()
def greedy(
    models: Sequence[torch.nn.Module], source: Tensor, begin: Sequence[int] = (), longest: int = 8
) -> List[int]:
    """Return the greedy translation under the mean probability of some models, word by word."""
    words = list(begin)
    while len(words) <= longest:
        # the last place predicts the next word; what stands there is not read
        target = torch.tensor([*words, EOS])
        mean = sum(
            forward(model, [source], [target])[0, -1].double().softmax(-1) for model in models
        )
        mean[PAD] = 0
        if not words:
            mean[EOS] = 0  # fairseq's translations have a word at least
        word = EOS if len(words) == longest else int(mean.argmax())
        words.append(word)
        if word == EOS:
            break
    return words


@pytest.mark.parametrize("preset", PRESETS)
def test_a_translation_does_not_depend_on_the_other_sentences(preset: str) -> None:
    model = lively(preset)
    for source, together in zip(SOURCES, translations([model], SOURCES)):
        (alone,) = translations([model], [source])
        assert together["tokens"].tolist() == alone["tokens"].tolist()
        torch.testing.assert_close(together["positional_scores"], alone["positional_scores"])


def test_an_ensemble_of_different_architectures_takes_the_mean_probability() -> None:
    models = [lively(arch, seed) for seed, arch in enumerate(ARCHITECTURES)]
    expected = [greedy(models, source) for source in SOURCES]
    assert best(models, SOURCES, beam_size=1) == expected
    # it is none of its models
    assert all(best([model], SOURCES, beam_size=1) != expected for model in models)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_prefix_is_kept_and_continued(arch: str) -> None:
    model = lively(arch)
    begin = [FIRST + 3, FIRST + 1]
    prefix = torch.tensor([begin] * len(SOURCES))
    expected = [greedy([model], source, begin) for source in SOURCES]
    assert best([model], SOURCES, prefix, beam_size=1) == expected


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_constraints_are_in_the_translation(arch: str) -> None:
    model = lively(arch)
    words = [[FIRST + 2 + number, FIRST + 9] for number in range(len(SOURCES))]
    packed = pack_constraints([[torch.tensor([word]) for word in some] for some in words])
    search = LexicallyConstrainedBeamSearch(TASK.target_dictionary, "unordered")
    found = best([model], SOURCES, search_strategy=search, constraints=packed, beam_size=6)
    for some, translation in zip(words, found):
        assert set(some) <= set(translation)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_sampling_from_the_best_word_is_greedy_and_repeats_with_its_seed(arch: str) -> None:
    model = lively(arch)
    top = Sampling(TASK.target_dictionary, sampling_topk=1)
    expected = [greedy([model], source) for source in SOURCES]
    assert best([model], SOURCES, search_strategy=top, beam_size=1) == expected
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        anything = Sampling(TASK.target_dictionary)
        drawn.append(best([model], SOURCES, search_strategy=anything, beam_size=1))
    assert drawn[0] == drawn[1] != expected


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_alignments_name_words_of_the_source_and_of_the_translation(arch: str) -> None:
    model = build(arch)
    sample = sample_of(SOURCES)
    sample["target"] = batch(sentences(4, 4, 4, 4, seed=3), left_pad=False)
    sample["net_input"]["prev_output_tokens"] = shifted(sample["target"])
    generator = SequenceGeneratorWithAlignment(
        [model], TASK.target_dictionary, beam_size=2, max_len_b=6, print_alignment="hard"
    )
    for source, hypotheses in zip(SOURCES, generator.generate([model], sample)):
        for hypothesis in hypotheses:
            for into, of in hypothesis["alignment"]:
                assert 0 <= into < len(source)
                assert 0 <= of < len(hypothesis["tokens"])


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_batch_is_reordered_as_by_the_host_and_copied_only_if_it_changes(arch: str) -> None:
    """Test it by sentences: each is kept once for its hypotheses."""
    encoder = lively(arch).encoder
    given = sample_of(SOURCES)["net_input"]
    ours, hosts = encoder(**given), encoder(**given)
    # two hypotheses each; of one sentence they change places; a sentence ends; one is repeated
    orders = [[0, 0, 1, 1, 2, 2, 3, 3], [1, 1, 2, 3, 5, 4, 6, 6], [0, 1, 4, 5, 6, 7], [2, 2, 0, 1]]
    copied = []
    for order in map(torch.tensor, orders):
        before = ours["encoder_out"][0]
        ours = encoder.reorder_encoder_out(ours, order)
        copied.append(ours["encoder_out"][0] is not before)
        hosts = TransformerEncoderBase.reorder_encoder_out(encoder, hosts, order)
        for name, tensors in hosts.items():
            assert len(ours[name]) == len(tensors)
            dim = 1 if name == "encoder_out" else 0
            repeated = [one.repeat_interleave(2, dim) for one in ours[name]]
            assert all(one.equal(other) for one, other in zip(repeated, tensors))
    assert copied == [False, False, True, True]
