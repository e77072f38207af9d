"""Make SentLen, WC or BShift from text: ``python -m capsnmt.sentences.probing.build TEXT``."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from capsnmt import records
from capsnmt.cli import OneLineParser, comma_list, positive, run_command
from capsnmt.corpora.manifest import NAME as MANIFEST
from capsnmt.files import atomic_writer
from capsnmt.sentences.probing.builders import (
    FIRST_RANK,
    LENGTH_BOUNDS,
    NUM_WORDS,
    Labelled,
    balance,
    bigram_shift,
    sentence_length,
    word_content,
)
from capsnmt.sentences.probing.senteval import format_task
from capsnmt.sentences.probing.tasks import TASKS

BUILT = ("SentLen", "WC", "BShift")
OTHERS = (
    "; the other tasks need a parser: fetch SentEval's files with python -m "
    "capsnmt.sentences.probing.download"
)


def bounds(text: str) -> Tuple[int, ...]:
    """Parse a comma list of rising numbers of tokens.

    Raises:
        ArgumentTypeError: it is not one.
    """
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) < 3 or any(a >= b for a, b in zip((0, *numbers), numbers)):
        raise ArgumentTypeError(
            f"{text!r} is not a rising list of 3 or more numbers such as 5,9,13"
        )
    return numbers


def build_parser() -> OneLineParser:
    """The parser of the command line."""
    parser = OneLineParser(prog="python -m capsnmt.sentences.probing.build", description=__doc__)
    parser.add_argument("text", type=Path, nargs="+", help="one sentence a line, plain or gzipped")
    parser.add_argument("--output", type=Path, required=True, help="folder for the tasks' files")
    parser.add_argument(
        "--tasks",
        type=comma_list(BUILT, OTHERS),
        default=list(BUILT),
        help=f"comma list of {', '.join(BUILT)} (default: all)",
    )
    parser.add_argument(
        "--tokenize", choices=("moses", "none"), default="none", help="default: none"
    )
    parser.add_argument("--lang", default="en", help="language of --tokenize moses (default: en)")
    parser.add_argument(
        "--per-class", type=positive, default=0, help="examples of a class (default: all)"
    )
    parser.add_argument(
        "--length-bounds",
        type=bounds,
        default=LENGTH_BOUNDS,
        help="SentLen: lower bounds of the classes, then the upper bound (default: SentEval's)",
    )
    parser.add_argument(
        "--first-rank", type=positive, default=FIRST_RANK, help="WC: rank of the first word"
    )
    parser.add_argument("--words", type=positive, default=NUM_WORDS, help="WC: number of words")
    parser.add_argument("--seed", type=int, default=1, help="seed of the selection and of BShift")
    return parser


def read_sentences(files: Iterable[Path], tokenize: str, language: str) -> List[List[str]]:
    """Read the sentences of all files as tokens, each once.

    Sentences that differ only in case, space or punctuation count as one: otherwise one could be in
    training and the other in the test.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    sentences: Dict[str, List[str]] = {}
    from capsnmt.corpora.lines import read_lines
    from capsnmt.corpora.splitting import sentence_key
    from capsnmt.corpora.text import make_tokeniser

    tokenise = make_tokeniser(tokenize, language)
    for path in files:
        for line in read_lines(path):
            tokens = tokenise(line).split()
            if tokens:
                sentences.setdefault(sentence_key(" ".join(tokens)), tokens)
    return list(sentences.values())


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Run the command line.

    Raises:
        ConfigurationError: a flag or an input is wrong.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = build_parser().parse_args(given)
    sentences = read_sentences(options.text, options.tokenize, options.lang)
    builders: Dict[str, Callable[[], Iterable[Labelled]]] = {
        "SentLen": lambda: sentence_length(sentences, options.length_bounds),
        "WC": lambda: word_content(sentences, options.first_rank, options.words),
        "BShift": lambda: bigram_shift(sentences, options.seed),
    }
    tasks = {
        name: balance(builders[name](), options.per_class, options.seed) for name in options.tasks
    }
    made = {}
    for name, splits in tasks.items():
        with atomic_writer(options.output / TASKS[name].file) as file:
            file.writelines(f"{line}\n" for line in format_task(splits))
        sizes = {split: len(examples) for split, examples in splits.items()}
        made[name] = {"classes": len({label for label, _ in splits["train"]}), **sizes}
        print(f"{options.output / TASKS[name].file}: {made[name]}")
    records.write(options.output / MANIFEST, {"arguments": given, "tasks": made})


if __name__ == "__main__":
    sys.exit(run_command(main))
