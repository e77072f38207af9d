"""Raw text in, raw text out: fairseq's hub interface for blank and for long lines, too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Union

from fairseq.hub_utils import GeneratorHubInterface

from capsnmt.corpora.subwords import LONGEST_WORD, has_long_word
from capsnmt.translate.segments import cut_words, split_subwords


@dataclass(frozen=True)
class Hypothesis:
    """A translation of a line.

    Attributes:
        text: raw text.
        score: log-probability to base 2, normalised by the length, as fairseq-generate prints it.
    """

    text: str
    score: float


@dataclass(frozen=True)
class Translation:
    """The translations of a line.

    Attributes:
        hypotheses: the best first.
        parts: how many parts of the line were translated separately; 0 for a blank line.
    """

    hypotheses: Sequence[Hypothesis]
    parts: int


class Translator(GeneratorHubInterface):
    """fairseq's hub interface, with the beam of the configuration as default.

    **D**: a blank line is translated by a blank line. A line that is longer than the positions of
    the model is split (:func:`~capsnmt.translate.segments.split_subwords`), and the translations
    of its parts are joined; their score is the mean over tokens.

    Args:
        cfg: fairseq's configuration of the checkpoint.
        task: the translation task.
        models: one model, or several as an ensemble.
    """

    def translate(
        self,
        sentences: Union[str, Sequence[str]],
        beam: Optional[int] = None,
        verbose: bool = False,
        **kwargs: Any,
    ) -> Union[str, List[str]]:
        """Translate raw text.

        Args:
            sentences: one line, or several.
            beam: size of the beam; by default that of the run.
            verbose: log every hypothesis.
            kwargs: other settings of fairseq-generate, such as ``lenpen``.

        Returns:
            A line for each line.
        """
        return self.sample(sentences, beam or self.cfg.generation.beam, verbose, **kwargs)

    def sample(
        self,
        sentences: Union[str, Sequence[str]],
        beam: int = 1,
        verbose: bool = False,
        **kwargs: Any,
    ) -> Union[str, List[str]]:
        """Translate raw text as `translate` does, by default with a beam of one."""
        lines = [sentences] if isinstance(sentences, str) else sentences
        translations = self.translations(lines, beam=beam, verbose=verbose, **kwargs)
        texts = [translation.hypotheses[0].text for translation in translations]
        return texts[0] if isinstance(sentences, str) else texts

    def translations(
        self, lines: Sequence[str], beam: Optional[int] = None, nbest: int = 1, **kwargs: Any
    ) -> List[Translation]:
        """Translate raw lines, and return up to ``nbest`` hypotheses of each with their scores."""
        parts = [self.split(line) for line in lines]
        tokens = [self.binarize(" ".join(part)) for of_line in parts for part in of_line]
        hypotheses: List[List[Dict[str, Any]]] = []
        if tokens:
            hypotheses = self.generate(tokens, beam or self.cfg.generation.beam, **kwargs)
        found = iter(hypotheses)
        return [self._join([next(found) for _ in of_line], nbest) for of_line in parts]

    def split(self, line: str) -> List[List[str]]:
        """Return the subwords of a raw line, in parts that fit into the model."""
        text = self.tokenize(line)
        if has_long_word(text):  # segmentation would take hours
            text = cut_words(text, LONGEST_WORD)
        subwords = self.apply_bpe(text).split()
        sentencepiece = getattr(self.cfg.bpe, "_name", self.cfg.bpe) == "sentencepiece"
        return split_subwords(subwords, self.longest, sentencepiece) if subwords else []

    @property
    def longest(self) -> int:
        """The most subwords of a part, without the end of the sentence."""
        limits = [self.max_positions[0], self.cfg.dataset.max_tokens]
        return max(1, int(min(limit for limit in limits if limit)) - 1)

    def _join(self, parts: Sequence[Sequence[Dict[str, Any]]], nbest: int) -> Translation:
        """Join the hypotheses of the parts of a line, those of the same rank."""
        if not parts:
            return Translation([Hypothesis("", 0.0)], 0)
        joined = []
        for _, same_rank in zip(range(nbest), zip(*parts)):
            tokens = [hypothesis["tokens"] for hypothesis in same_rank]
            words = " ".join(self.remove_bpe(self.string(part)) for part in tokens)
            total = sum(len(part["tokens"]) * float(part["score"]) for part in same_rank)
            score = total / sum(map(len, tokens)) / math.log(2)
            joined.append(Hypothesis(self.detokenize(words), score))
        return Translation(joined, len(parts))
