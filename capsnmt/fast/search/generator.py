"""Beam search that is faster on a CPU, several times so for a decoder without a mechanism."""

from __future__ import annotations

import functools
import math
from typing import Any, Collection, Dict, List, Optional, Sequence, Tuple

import torch
from fairseq import search as strategies
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from capsnmt.fast.search.decoding import choose
from capsnmt.fast.search.plain_decoder import Memory, PlainDecoder, is_plain
from capsnmt.models.transformer import CapsnmtTransformer

Hypotheses = List[List[Dict[str, Tensor]]]


class Generator(SequenceGenerator):
    """fairseq's generator; of a plain decoder on a CPU it makes the same hypotheses faster.

    fairseq copies the keys and values of all hypotheses at every step. Here they stay where they
    were written, in the *slots* of their sentence, and a mask says which slots are the words of a
    hypothesis: beam search reorders masks. The slots also keep words and scores. The first step
    has a single row for each sentence, and the last sentence of the batch takes the place of one
    that is finished.

    Everything else is fairseq's own search: decoders with a mechanism, ensembles, prefixes, other
    strategies, a language model, whatever changes the probabilities of words, and other devices.

    **D**: the hypotheses have no ``attention``, which no command prints; ``--print-alignment`` has
    a generator of its own.
    """

    search: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if type(self.search) is strategies.BeamSearch:
            self.search = BeamSearch(self.tgt_dict)

    def _generate(
        self,
        sample: Dict[str, Any],
        prefix_tokens: Optional[Tensor] = None,
        constraints: Optional[Tensor] = None,
        bos_token: Optional[int] = None,
    ) -> Hypotheses:
        found = None
        own = prefix_tokens is None and constraints is None and bos_token != self.pad
        if own and self.searches_plainly(sample):  # fairseq never reads padding as a word
            found = Search(self, sample["net_input"], bos_token).run()
        if found is None:
            found = super()._generate(sample, prefix_tokens, constraints, bos_token)
        return found

    def searches_plainly(self, sample: Dict[str, Any]) -> bool:
        """Return whether this is a plain beam search of one plain decoder for text on a CPU."""
        source = sample["net_input"].get("src_tokens")
        return (
            source is not None
            and source.device.type == "cpu"
            and self.min_len <= self.longest(source)
            and self.vocab_size > 2 * self.beam_size + 1
            and type(self.search) is BeamSearch
            and self.lm_model is None
            and self.repeat_ngram_blocker is None
            and self.token_indices_to_suppress is None
            and not self.match_source_len
            and self.temperature == 1
            and self.unk_penalty == 0
            and self.model.models_size == 1
            and is_plain(self.model.single_model)
        )

    def longest(self, source: Tensor) -> int:
        """Return the most words of a translation of these sentences, without the end."""
        return min(int(self.max_len_a * source.size(1) + self.max_len_b), self.max_len - 1)


class Search:
    """The search of one batch.

    B sentences are unfinished, and each has k hypotheses, S slots and 2k candidates.

    Attributes:
        ids: the places of the unfinished sentences in the batch.
        mask: ``[B, k, S]``, 0 at the slots of a hypothesis, otherwise minus infinity.
        words: ``[B, S]``.
        totals: ``[B, S]``, the scores of the hypotheses up to these words.
    """

    @torch.no_grad()
    def __init__(self, settings: Generator, inputs: Dict[str, Any], bos: Optional[int]) -> None:
        self.settings, self.beam = settings, settings.beam_size
        self.max_len = settings.longest(inputs["src_tokens"])
        model = settings.model.single_model
        self.decoder = PlainDecoder.of(model.decoder)
        self.memory = Memory(self.decoder, model.encoder.forward_torchscript(inputs))
        sentences = inputs["src_tokens"].size(0)
        self.ids = list(range(sentences))
        self.found: Hypotheses = [[] for _ in self.ids]
        self.mask = self.memory.mask.new_zeros(sentences, 1, 1)
        first = settings.eos if bos is None else bos
        self.words = self.mask.new_full((sentences, 1), first, dtype=torch.long)
        self.totals = self.mask.new_zeros(sentences, 1, dtype=torch.float32)

    @torch.no_grad()
    def run(self) -> Optional[Hypotheses]:
        """Return fairseq's list of hypotheses of each sentence, best first; None: not a number."""
        for step in range(self.max_len + 1):
            width = self.mask.size(1)  # the rows of a sentence: 1 at first, then k
            logits = self.decoder.step(step, self.words[:, -width:], self.memory, self.mask)
            totals = self.totals[:, -width:]
            pad, end = self.settings.pad, self.settings.eos
            never = end if step < self.settings.min_len else -1
            only = end if step == self.max_len else -1
            scores, words, beams = choose(logits, totals, 2 * self.beam, pad, never, only)
            if scores.isnan().any():
                return None
            ends = words.eq(self.settings.eos) & scores.ne(-torch.inf)
            kept = self.finish(step, ends[:, : self.beam], scores, beams)
            if kept is not None:
                if not kept:
                    break
                scores, words, beams, ends = (x[kept] for x in (scores, words, beams, ends))
            if step == self.max_len:  # fairseq's assertion says so
                return None
            self.extend(scores, words, beams, ends)
        return [sorted(each, key=lambda found: -float(found["score"])) for each in self.found]

    def finish(self, step: int, ends: Tensor, scores: Tensor, beams: Tensor) -> Optional[List[int]]:
        """Store the hypotheses that end; return the unfinished sentences if any is finished.

        Args:
            step: steps before this one.
            ends: ``[B, k]``: which of the k best candidates end.
            scores: ``[B, 2k]``.
            beams: ``[B, 2k]``, the hypotheses that the candidates continue.
        """
        if not ends.any():
            return None
        sentence, candidate = ends.nonzero(as_tuple=True)
        slots = self.mask[sentence, beams[sentence, candidate]].eq(0)  # each has one a step
        score = scores[sentence, candidate].unsqueeze(1)
        words, totals = (x[sentence][slots].view(-1, step + 1) for x in (self.words, self.totals))
        tokens = torch.cat([words[:, 1:], words.new_full(score.shape, self.settings.eos)], 1)
        totals = torch.cat([totals[:, 1:], score], 1)
        steps = torch.cat([totals[:, :1], totals.diff(dim=1)], 1)
        if self.settings.normalize_scores:
            score = score / (step + 1) ** self.settings.len_penalty
        for number, place in enumerate(sentence.tolist()):
            hypotheses = self.found[self.ids[place]]
            if len(hypotheses) < self.beam:
                hypotheses.append(
                    {
                        "tokens": tokens[number],
                        "score": score[number, 0],
                        "attention": score.new_empty(0),
                        "alignment": score.new_empty(0),
                        "positional_scores": steps[number],
                    }
                )
        return self.remove(
            {
                place
                for place in sentence.tolist()
                if step == self.max_len or len(self.found[self.ids[place]]) == self.beam
            }
        )

    def remove(self, finished: Collection[int]) -> Optional[List[int]]:
        """Put the last sentences in the places of finished ones; return the order that is left."""
        if not finished:
            return None
        count = len(self.ids) - len(finished)
        last = [place for place in range(count, len(self.ids)) if place not in finished]
        free = sorted(place for place in finished if place < count)
        order = list(range(count))
        for place, moved in zip(free, last):
            order[place] = moved
        self.memory.move(free, last, count)
        self.ids = [self.ids[place] for place in order]
        self.mask, self.words, self.totals = (
            x[order] for x in (self.mask, self.words, self.totals)
        )
        return order

    def extend(self, scores: Tensor, words: Tensor, beams: Tensor, ends: Tensor) -> None:
        """Continue the hypotheses by the k best candidates that do not end."""
        chosen = torch.sort(ends, dim=1, stable=True).indices[:, : self.beam]
        scores, words, beams = (x.gather(1, chosen) for x in (scores, words, beams))
        ancestors = self.mask.gather(1, beams.unsqueeze(-1).expand(-1, -1, self.mask.size(-1)))
        own = self.mask.new_full((self.beam, self.beam), -torch.inf)
        own = own.fill_diagonal_(0).expand(len(self.ids), -1, -1)
        self.mask = torch.cat([ancestors, own], dim=-1)
        self.words = torch.cat([self.words, words], dim=1)
        self.totals = torch.cat([self.totals, scores], dim=1)


class BeamSearch(strategies.BeamSearch):
    """fairseq's ``BeamSearch``: it reads a few words of each hypothesis instead of all.

    No hypothesis contributes more than as many words as are chosen of all together. On a CPU
    ``topk`` copies what it chooses from, which takes longer than to find these words if they are
    many. The result is the same, except that words of equal score may be chosen in another order.
    """

    # words; with fewer, 256 and 320 hypotheses took 0.6 to 0.95 of the speed on an AMD EPYC
    FROM = 12_000

    def step(
        self, step: int, lprobs: Tensor, *context: Any, candidate_multiple: int = 2, **more: Any
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Return scores, words and hypotheses of the best continuations ``[B, candidates]``.

        A sentence has ``candidate_multiple`` times as many candidates as hypotheses. The
        log-probabilities of the words are ``[B, beam, V]``.
        """
        if candidate_multiple != 2:  # fairseq 0.12.2 has no other
            more["candidate_multiple"] = candidate_multiple
        width = candidate_multiple * lprobs.size(1) + 1  # fairseq never chooses all words
        if lprobs.device.type != "cpu" or lprobs.size(-1) < max(self.FROM, width**2):
            return super().step(step, lprobs, *context, **more)
        words = best_words(lprobs, width)
        chosen, place, beams = super().step(step, lprobs.gather(-1, words), *context, **more)
        return chosen, words.flatten(1).gather(1, beams * width + place), beams


def best_words(lprobs: Tensor, k: int) -> Tensor:
    """Return the k best words of each row ``[..., V]``, best first: ``[..., k]``.

    The words are dealt to groups. The k best words lie in the k groups with the best maxima, or
    among the few words that are left over.
    """
    size = math.isqrt(lprobs.size(-1) // k)  # about as many members to look at as maxima
    groups = lprobs.size(-1) // size
    dealt = groups * size
    maxima = lprobs[..., :dealt].unflatten(-1, (size, groups)).amax(-2)
    first = maxima.topk(k).indices.unsqueeze(-2)
    members = first + torch.arange(0, dealt, groups, device=lprobs.device).unsqueeze(-1)
    rest = torch.arange(dealt, lprobs.size(-1), device=lprobs.device).expand(*lprobs.shape[:-1], -1)
    words = torch.cat([members.flatten(-2), rest], dim=-1)
    return words.gather(-1, lprobs.gather(-1, words).topk(k).indices)


def generate_faster() -> None:
    """Patch fairseq's tasks: our models get :class:`Generator` where fairseq would take its own."""
    original = FairseqTask.build_generator

    @functools.wraps(original)
    def build_generator(
        self: Any,
        models: Sequence[nn.Module],
        args: Any,
        seq_gen_cls: Any = None,
        *rest: Any,
        **kwargs: Any,
    ) -> Any:
        plain = seq_gen_cls is None and not getattr(args, "print_alignment", False)
        if plain and all(isinstance(model, CapsnmtTransformer) for model in models):
            seq_gen_cls = Generator
        return original(self, models, args, seq_gen_cls, *rest, **kwargs)

    FairseqTask.build_generator = build_generator
