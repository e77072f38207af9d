"""``--tokenizer capsnmt``: the tokenisers of data preparation, in fairseq's registry."""

from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from fairseq.data.encoders import register_tokenizer
from fairseq.dataclass import FairseqDataclass

from capsnmt.cli import ConfigurationError, not_installed
from capsnmt.corpora.text import TOKENISERS, make_tokeniser
from capsnmt.evaluation.text import moses_detokenizer

NAME = "capsnmt"


@dataclass
class PreparedTextTokenizerConfig(FairseqDataclass):
    """How the text of the two languages was tokenised."""

    # fairseq's commands leave them None unless the languages are given
    source_lang: Optional[str] = field(default="en", metadata={"help": "source language"})
    target_lang: Optional[str] = field(default="en", metadata={"help": "target language"})
    source_tokeniser: str = field(
        default="moses", metadata={"help": "tokeniser of the source in capsnmt-prepare's recipe"}
    )
    target_tokeniser: str = field(
        default="moses", metadata={"help": "tokeniser of the target in capsnmt-prepare's recipe"}
    )


@register_tokenizer(NAME, dataclass=PreparedTextTokenizerConfig)
class PreparedTextTokenizer:
    """Tokenise sources as ``capsnmt-prepare`` does, and detokenise translations.

    fairseq's ``moses`` normalises neither Unicode nor punctuation, and knows no Chinese.

    **D**: ``none`` as target tokeniser leaves translations tokenised, because the text of such a
    corpus is published tokenised. All others are inverted by the detokeniser that
    ``capsnmt-evaluate`` scores with.
    """

    def __init__(self, cfg: Any) -> None:
        if not cfg.source_lang or not cfg.target_lang:
            raise ConfigurationError(
                "--tokenizer capsnmt needs both languages; give --source-lang and --target-lang"
            )
        for name in (cfg.source_tokeniser, cfg.target_tokeniser):
            if name not in TOKENISERS:
                raise ConfigurationError(
                    f"the tokeniser is {name!r}; choose from {', '.join(TOKENISERS)}"
                )
        try:
            self.encode = make_tokeniser(cfg.source_tokeniser, cfg.source_lang)
            self.decode: Callable[[str], str] = str
            if not cfg.target_tokeniser.startswith("none"):
                self.decode = moses_detokenizer(cfg.target_lang)
        except ImportError as error:
            raise not_installed(error) from None
