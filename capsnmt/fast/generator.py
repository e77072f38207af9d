"""Beam search that is faster on a CPU, with the same hypotheses, for every decoder of ours."""

import math
from typing import Any, Collection, Dict, List, Optional, Sequence

import torch
from fairseq import search as strategies
from fairseq.models.fairseq_incremental_decoder import FairseqIncrementalDecoder
from fairseq.models.transformer import TransformerDecoderBase, TransformerModelBase
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from capsnmt.cli import ConfigurationError
from capsnmt.fast.cpp.operations import choose
from capsnmt.host import patch
from capsnmt.models.attention import Hosted
from capsnmt.models.decoder import TransformerDecoder
from capsnmt.models.encoder import TransformerEncoder
from capsnmt.models.layers import HostLayer
from capsnmt.models.transformer import CapsnmtTransformer
from capsnmt.modules import cache
from capsnmt.modules.observation import open_observer
from capsnmt.modules.overrides import PROBABILITIES, hooked, inherits, overridden
from capsnmt.routing.recording import open_records

Hypotheses = List[List[Dict[str, Tensor]]]
REORDER = "reorder_incremental_state"
READERS = (Hosted, HostLayer)
PASSES = ("forward", "extract_features", "extract_features_scriptable")


class Generator(SequenceGenerator):
    """fairseq's generator, which makes the same hypotheses faster on a CPU.

    fairseq copies the keys and values of all hypotheses at every step. Here they stay where they
    were written, and beam search reorders masks: :class:`capsnmt.modules.cache.SearchState`. The
    first step has a single row for each sentence, and the last sentence of the batch takes the
    place of one that is finished.

    Everything else is fairseq's own search: prefixes, other strategies, a language model, whatever
    changes the probabilities of words, and other devices.

    **D**: the hypotheses have no ``attention``, which no command prints; ``--print-alignment`` has
    a generator of its own.
    """

    search: Any

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        if self.beam_size < 1:  # the kernel would read and write outside of its memory
            raise ConfigurationError(f"--beam is {self.beam_size}; give a whole number, 1 or more")

    def _generate(
        self,
        sample: Dict[str, Any],
        prefix_tokens: Optional[Tensor] = None,
        constraints: Optional[Tensor] = None,
        bos_token: Optional[int] = None,
    ) -> Hypotheses:
        own = prefix_tokens is None and constraints is None and bos_token != self.pad
        if own and self.searches(sample):  # fairseq never reads padding as a word
            found = Search(self, sample["net_input"], bos_token).run()
            if found is not None:
                return found
        return super()._generate(sample, prefix_tokens, constraints, bos_token)

    def searches(self, sample: Dict[str, Any]) -> bool:
        """Return whether this is a plain beam search for text on a CPU."""
        source = sample["net_input"].get("src_tokens")
        return (
            source is not None
            and source.device.type == "cpu"
            and self.min_len <= self.longest(source)
            and self.vocab_size > 2 * self.beam_size + 1
            and type(self.search) is strategies.BeamSearch
            and self.lm_model is None
            and self.repeat_ngram_blocker is None
            and self.token_indices_to_suppress is None
            and not self.match_source_len
            and self.temperature == 1
            and self.unk_penalty == 0
            and open_observer() is None
            and open_records() is None
            and all(map(is_searchable, self.model.models))
        )

    def longest(self, source: Tensor) -> int:
        """Return the most words of a translation of these sentences, without the end."""
        return min(int(self.max_len_a * source.size(1) + self.max_len_b), self.max_len - 1)


def is_searchable(model: Any) -> bool:
    """Return whether all that the decoder keeps between two steps is in caches of our attentions.

    What it reads of the encoder is ours, a row for each sentence. With ``--cross-self-attention``
    the source is among the keys of the words. Dropout that is on (``--retain-dropout``, or
    in training mode) would be the same for all hypotheses at first.
    """
    decoder = model.decoder
    return (
        next(decoder.parameters()).device.type == "cpu"
        and not getattr(decoder, "cross_self_attention", False)
        and inherits(decoder, FairseqIncrementalDecoder, REORDER, f"{REORDER}_scripting")
        and inherits(model.encoder, TransformerEncoder, "reorder_encoder_out")
        and not any(keeps_more(module) for module in decoder.modules() if module is not decoder)
    )


def keeps_more(module: nn.Module) -> bool:
    """Return whether a module of a decoder has state that is not in a cache of ours, or dropout."""
    is_on = module.training or getattr(module, "apply_during_inference", False)
    if is_on and hasattr(module, "p"):
        return True
    methods = REORDER, "_get_input_buffer", "_set_input_buffer"
    return hasattr(module, REORDER) and not inherits(module, Hosted, *methods)


class Model:
    """One of the models that search together, and what its decoder keeps between two steps."""

    def __init__(self, model: Any, inputs: Dict[str, Any]) -> None:
        self.model, self.decoder, self.encoder = model, model.decoder, model.encoder
        self.encoded = self.encoder.forward_torchscript(inputs)
        self.state = cache.SearchState()
        self.in_order: List[Any] = [
            module
            for module in self.decoder.modules()
            if isinstance(module, Hosted) and module.reads_order
        ]
        ours = inherits(self.decoder, TransformerDecoderBase, *PROBABILITIES)
        ours = ours and inherits(model, TransformerModelBase, *PROBABILITIES)
        self.has_logits = ours and getattr(self.decoder, "adaptive_softmax", None) is None
        # nobody reads the weights of an attention
        unread = ours and inherits(self.decoder, TransformerDecoder, *PASSES)
        unread = unread and not any(
            hooked(module) or any(isinstance(module, x) and overridden(module, x) for x in READERS)
            for module in self.decoder.modules()
        )
        self.settings = {"alignment_layer": -1} if unread else {}

    def step(self, words: Tensor, mask: Tensor, normal: bool) -> Tensor:
        """Return logits ``[B k, V]`` of the words after ``[B k, t]``, or log-probabilities."""
        self.state.mask = mask
        logits, more = self.decoder.forward(
            words, encoder_out=self.encoded, incremental_state=self.state, **self.settings
        )
        if not normal:
            return logits[:, -1]
        given = logits[:, -1:], more
        found = self.model.get_normalized_probs(given, log_probs=True, sample=None)[:, -1]
        return found if found.dtype == torch.float64 else found.float()

    def reorder(self, rows: Tensor) -> None:
        """Reorder by hypotheses the caches whose keys are in order, and what others keep."""
        self.state.reorder(rows)
        for module in self.in_order:
            module.reorder_incremental_state(self.state, rows)

    def move(self, free: Sequence[int], last: Sequence[int], order: Tensor) -> None:
        """Move the last sentences into the places of finished ones."""
        self.state.move(free, last, len(order))
        self.encoded = self.encoder.reorder_encoder_out(self.encoded, order)


class Search:
    """The search of one batch.

    B sentences are unfinished, and each has k hypotheses, S slots and 2k candidates.

    Attributes:
        ids: the places of the unfinished sentences in the batch.
        mask: ``[B, k, S]``, 0 at the slots of a hypothesis, otherwise minus infinity.
        words: ``[B, k, t]``.
        totals: ``[B, k, t]``, the scores of the hypotheses up to these words.
    """

    @torch.no_grad()
    def __init__(self, settings: Generator, inputs: Dict[str, Any], bos: Optional[int]) -> None:
        self.settings, self.beam = settings, settings.beam_size
        self.max_len = settings.longest(inputs["src_tokens"])
        self.models = [Model(model, inputs) for model in settings.model.models]
        self.normal = len(self.models) > 1 or not self.models[0].has_logits
        sentences = inputs["src_tokens"].size(0)
        self.ids = list(range(sentences))
        self.found: Hypotheses = [[] for _ in self.ids]
        first = settings.eos if bos is None else bos
        self.words = torch.full((sentences, 1, 1), first, dtype=torch.long, device="cpu")
        self.mask = torch.zeros(sentences, 1, 1, dtype=torch.float32, device="cpu")
        self.totals = torch.zeros_like(self.mask)

    @torch.no_grad()
    def run(self) -> Optional[Hypotheses]:
        """Return fairseq's list of hypotheses of each sentence, best first; None: not a number."""
        for step in range(self.max_len + 1):
            pad, end = self.settings.pad, self.settings.eos
            never = end if step < self.settings.min_len else -1
            only = end if step == self.max_len else -1
            scores, words, beams = choose(
                self.logits(), self.totals[..., -1], *(2 * self.beam, pad, never, only, self.normal)
            )
            if scores.isnan().any():
                return None
            ends = words.eq(end) & scores.ne(-torch.inf)
            kept = self.finish(step, ends[:, : self.beam], scores, beams)
            if kept is not None:
                if not kept:
                    break
                scores, words, beams, ends = (x[kept] for x in (scores, words, beams, ends))
            if step == self.max_len:  # fairseq's assertion says so
                return None
            self.extend(scores, words, beams, ends)
        return [sorted(each, key=lambda found: -float(found["score"])) for each in self.found]

    def logits(self) -> Tensor:
        """Return what the models say of the next words, ``[B k, V]``."""
        words = self.words.flatten(0, 1)
        said = [model.step(words, self.mask, self.normal) for model in self.models]
        if len(said) == 1:
            return said[0]
        return torch.logsumexp(torch.stack(said), 0) - math.log(len(said))

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
        beam = beams[sentence, candidate]
        score = scores[sentence, candidate].unsqueeze(1)
        words, totals = self.words[sentence, beam, 1:], self.totals[sentence, beam, 1:]
        tokens = torch.cat([words, words.new_full(score.shape, self.settings.eos)], 1)
        totals = torch.cat([totals, score], 1)
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
        if order:
            width = self.mask.size(1)
            left = torch.tensor(order, device="cpu")
            rows = left.unsqueeze(1) * width + torch.arange(width, device="cpu")
            for model in self.models:
                model.move(free, last, left)
                model.reorder(rows.flatten())
        self.ids = [self.ids[place] for place in order]
        self.mask, self.words, self.totals = (
            x[order] for x in (self.mask, self.words, self.totals)
        )
        return order

    def extend(self, scores: Tensor, words: Tensor, beams: Tensor, ends: Tensor) -> None:
        """Continue the hypotheses by the k best candidates that do not end."""
        chosen = torch.sort(ends, dim=1, stable=True).indices[:, : self.beam]
        scores, words, beams = (x.gather(1, chosen) for x in (scores, words, beams))
        width = self.mask.size(1)
        first = torch.arange(0, len(self.ids) * width, width, device="cpu")
        for model in self.models:
            model.reorder((beams + first.unsqueeze(1)).flatten())
        own = self.mask.new_full((self.beam, self.beam), -torch.inf)
        own = own.fill_diagonal_(0).expand(len(self.ids), -1, -1)
        self.mask = torch.cat([continued(self.mask, beams), own], dim=-1)
        self.words = torch.cat([continued(self.words, beams), words.unsqueeze(-1)], -1)
        self.totals = torch.cat([continued(self.totals, beams), scores.unsqueeze(-1)], -1)


def continued(x: Tensor, beams: Tensor) -> Tensor:
    """Return ``[B, k, n]`` in the order of hypotheses ``[B, k']``."""
    return x.gather(1, beams.unsqueeze(-1).expand(-1, -1, x.size(-1)))


def generate_faster() -> None:
    """Patch fairseq's tasks: our models get :class:`Generator` where fairseq would take its own."""

    @patch(FairseqTask, "build_generator")
    def build_generator(
        original: Any,
        self: Any,
        models: Sequence[nn.Module],
        args: Any,
        seq_gen_cls: Any = None,
        *rest: Any,
        **kwargs: Any,
    ) -> Any:
        plain = seq_gen_cls is None and not getattr(args, "print_alignment", False)
        listed = plain and not isinstance(models, EnsembleModel)  # which may be a user's own
        if listed and all(isinstance(model, CapsnmtTransformer) for model in models):
            seq_gen_cls = Generator
        return original(self, models, args, seq_gen_cls, *rest, **kwargs)
