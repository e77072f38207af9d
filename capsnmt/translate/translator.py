"""Raw text in, raw text out: fairseq's hub interface, also for blank and long lines."""

import inspect
import math
from difflib import get_close_matches
from typing import Any, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE
from fairseq.hub_utils import GeneratorHubInterface

from capsnmt.cli import ConfigurationError, shown

# a subword of subword-nmt that does not end its word; one of sentencepiece that starts a word
CONTINUED, STARTS = "@@", "\u2581"
OF_CALLS = frozenset(inspect.signature(GeneratorHubInterface.generate).parameters)
SENTENCE_ENDS = frozenset(".!?;…")
WIDE_ENDS = frozenset("。！？；")  # also where no space, and so no word, follows


class Hypothesis(NamedTuple):
    """A translation of a line."""

    text: str  # raw
    score: float  # log-probability to base 2 over the length, as fairseq-generate prints it


class Translation(NamedTuple):
    """The translations of a line."""

    hypotheses: Sequence[Hypothesis]  # the best first
    parts: int  # of the line, which were translated separately; 0 for a blank line
    known: bool  # whether the dictionary has all subwords of the line


class Translator(GeneratorHubInterface):
    """fairseq's hub interface, with the beam of the configuration as default.

    **D**: blank lines stay blank. A line that is longer than the positions of the model is split
    (:func:`split_subwords`), and the translations of its parts are joined; their score is the mean
    over tokens.
    """

    def __init__(self, cfg: Any, task: Any, models: Sequence[Any]) -> None:
        super().__init__(cfg, task, models)
        if isinstance(self.bpe, SubwordNMTBPE):  # fairseq reads its merges by the locale
            from subword_nmt.apply_bpe import BPE

            with open(cfg.bpe.bpe_codes, encoding="utf-8") as merges:
                self.bpe.bpe = BPE(merges, separator=cfg.bpe.bpe_separator)

    def sample(
        self,
        sentences: Union[str, Sequence[str]],
        beam: Optional[int] = None,
        verbose: bool = False,
        **kwargs: Any,
    ) -> Union[str, List[str]]:
        """Translate raw text, one line or several, with further settings of fairseq-generate."""
        translations = self.translations(sentences, beam=beam, verbose=verbose, **kwargs)
        texts = [translation.hypotheses[0].text for translation in translations]
        return texts[0] if isinstance(sentences, str) else texts

    translate = sample

    def generate(
        self, tokenized_sentences: Any, beam: Optional[int] = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Translate numbers of subwords as fairseq does, with the beam of the configuration."""
        beam = self.cfg.generation.beam if beam is None else beam
        return super().generate(tokenized_sentences, beam, *args, **kwargs)

    def translations(
        self, lines: Sequence[str], beam: Optional[int] = None, nbest: int = 1, **kwargs: Any
    ) -> List[Translation]:
        """Translate raw lines, and return up to ``nbest`` hypotheses of each with their scores."""
        lines = [lines] if isinstance(lines, str) else lines
        for name in kwargs.keys() & {*self.cfg.dataset}:
            raise ConfigurationError(f"{name} is of the model; give it to from_pretrained")
        kwargs["beam"] = self.cfg.generation.beam if beam is None else beam
        check_settings(kwargs, OF_CALLS.union(self.cfg.generation))
        parts = [self.split(line) for line in lines]
        tokens = [self.binarize(" ".join(part)) for of_line in parts for part in of_line]
        hypotheses: List[List[Dict[str, Any]]] = []
        if tokens:
            hypotheses = self.generate(tokens, **kwargs)
        found = iter(hypotheses)
        return [
            Translation(
                self._join([next(found) for _ in of_line], nbest),
                len(of_line),
                all(subword in self.src_dict for part in of_line for subword in part),
            )
            for of_line in parts
        ]

    def split(self, line: str) -> List[List[str]]:
        """Return the subwords of a raw line, in parts that fit into the model."""
        subwords = self.apply_bpe(self.tokenize(line)).split()
        sentencepiece = getattr(self.cfg.bpe, "_name", self.cfg.bpe) == "sentencepiece"
        return split_subwords(subwords, self.longest, sentencepiece) if subwords else []

    @property
    def longest(self) -> int:
        """The most subwords of a part, without the end of the sentence."""
        limits = [self.max_positions[0], self.cfg.dataset.max_tokens]
        return max(1, int(min(limit for limit in limits if limit)) - 1)

    def _join(self, parts: Sequence[Sequence[Dict[str, Any]]], nbest: int) -> List[Hypothesis]:
        """Join the hypotheses of the parts of a line that have the same rank."""
        if not parts:
            return [Hypothesis("", 0.0)]
        joined = []
        for _, same_rank in zip(range(nbest), zip(*parts)):
            tokens = [hypothesis["tokens"] for hypothesis in same_rank]
            words = " ".join(self.remove_bpe(self.string(part)) for part in tokens)
            score = float(same_rank[0]["score"])  # normalised as the search is asked to
            if len(same_rank) > 1:
                total = sum(float(part["positional_scores"].sum()) for part in same_rank)
                score = total / sum(map(len, tokens))
            joined.append(Hypothesis(self.detokenize(words), score / math.log(2)))
        return joined


def check_settings(given: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise unless all settings are known, and the beam is a whole number, 1 or more."""
    for name in given:
        if name not in known:
            similar = " or ".join(get_close_matches(name, sorted(known))) or "one that fairseq has"
            raise ConfigurationError(f"{name} is no setting; give {similar}")
    beam = given.get("beam", 1)
    if not isinstance(beam, int) or beam < 1:
        raise ConfigurationError(f"beam is {shown(beam)}; give a whole number, 1 or more")


def split_subwords(subwords: Sequence[str], limit: int, sentencepiece: bool) -> List[List[str]]:
    """Split the subwords of a line into parts of at most ``limit``, which fit into a model.

    **D**: a part ends at the last end of a sentence in its second half, otherwise at the last end
    of a word, and only inside a word that is longer than a part.

    >>> split_subwords("a b . c d@@ e f".split(), 4, sentencepiece=False)
    [['a', 'b', '.'], ['c', 'd@@', 'e', 'f']]
    """

    def starts_word(place: int) -> bool:
        if sentencepiece:
            return subwords[place].startswith(STARTS)
        return not subwords[place - 1].endswith(CONTINUED)

    def ends_sentence(place: int) -> bool:
        mark = subwords[place - 1].lstrip(STARTS).removesuffix(CONTINUED)
        return mark in WIDE_ENDS or (mark in SENTENCE_ENDS and starts_word(place))

    parts: List[List[str]] = []
    start = 0
    while len(subwords) - start > limit:
        ends = range(start + limit, start, -1)
        words = [end for end in ends if starts_word(end)]
        sentences = [end for end in ends if ends_sentence(end) and end - start > limit // 2]
        end = (sentences or words or ends)[0]
        parts.append(list(subwords[start:end]))
        start = end
    return [*parts, list(subwords[start:])]
