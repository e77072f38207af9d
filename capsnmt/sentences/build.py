"""Make SentLen, WC or BShift from text: ``python -m capsnmt.sentences.build TEXT``.

These three probing tasks need no parser (Conneau et al. 2018). A function for each takes tokenised
sentences and yields (label, tokens) for those that qualify; :func:`balance` balances the classes
and splits the data, in the same way for all.
"""

import bisect
import hashlib
import random
from argparse import ArgumentTypeError
from collections import Counter
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Sequence, Tuple

from capsnmt.cli import ConfigurationError, OneLineParser, comma_list, command, positive, say
from capsnmt.forms import END_JOINED, SHARE, Words, plain
from capsnmt.lines import read_lines
from capsnmt.sentences.examples import write_examples
from capsnmt.sentences.senteval import SPLITS, TASKS

BUILT = ("SentLen", "WC", "BShift")

Labelled = Tuple[str, List[str]]

# SentEval's classes of lengths: 5-8, 9-12, 13-16, 17-20, 21-25, 26-28 tokens
LENGTH_BOUNDS = (5, 9, 13, 17, 21, 26, 29)
# the words of SentEval's WC: the 2,000 most frequent are passed over
FIRST_RANK, NUM_WORDS = 2000, 1000
# one in ten examples is for validation, and one for testing; a class has at least as many
HELD_OUT = 10


def sentence_length(
    sentences: Iterable[List[str]], bounds: Sequence[int] = LENGTH_BOUNDS
) -> Iterator[Labelled]:
    """Yield examples of SentLen: classify the number of tokens.

    Class c has ``bounds[c]`` to ``bounds[c + 1] - 1`` tokens; other sentences are left out.

    >>> list(sentence_length([["a"] * 9], (5, 9, 13)))[0][0]
    '1'
    """
    for tokens in sentences:
        number = bisect.bisect_right(bounds, len(tokens)) - 1
        if 0 <= number < len(bounds) - 1:
            yield str(number), tokens


def word_content(
    sentences: Sequence[List[str]], first_rank: int = FIRST_RANK, num_words: int = NUM_WORDS
) -> Iterator[Labelled]:
    """Yield examples of WC: classify which word of medium frequency a sentence contains.

    Only sentences with exactly one such word qualify.

    **D**: words of equal frequency are ranked alphabetically. A sentence with the same word twice
    does not qualify. Words are tokens with a letter; SentEval's have four, in lower case.
    """
    counts = Counter(token for tokens in sentences for token in tokens)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    ranked = [word for word in ranked if any(map(str.isalpha, word))]
    words = set(ranked[first_rank : first_rank + num_words])
    if len(words) < num_words:
        raise ConfigurationError(
            f"--first-rank {first_rank} --words {num_words}: the text has {len(ranked)} different "
            f"words; give smaller numbers (SentEval: {FIRST_RANK} and {NUM_WORDS})"
        )
    for tokens in sentences:
        found = [token for token in tokens if token in words]
        if len(found) == 1:
            yield found[0], tokens


def bigram_shift(sentences: Sequence[List[str]], seed: int = 1) -> Iterator[Labelled]:
    """Yield examples of BShift: classify whether two adjacent tokens are inverted (I) or not (O).

    A random half of the sentences have one pair inverted; each sentence occurs in one form only.

    **D**: the two tokens differ, so that the sentence changes; all such pairs are equally likely
    (SentEval's: not the first, nor punctuation). What becomes another sentence is left out.
    """
    texts = {" ".join(tokens) for tokens in sentences}
    for tokens in sentences:
        draw = random.Random(f"{seed} {' '.join(tokens)}")
        pairs = [i for i in range(len(tokens) - 1) if tokens[i] != tokens[i + 1]]
        if not pairs:
            continue
        label = "O" if draw.random() < 0.5 else "I"
        if label == "I":
            i = draw.choice(pairs)
            tokens = [*tokens[:i], tokens[i + 1], tokens[i], *tokens[i + 2 :]]
            if " ".join(tokens) in texts:
                continue
            texts.add(" ".join(tokens))
        yield label, tokens


def balance(examples: Iterable[Labelled], seed: int = 1) -> Dict[str, List[Tuple[str, str]]]:
    """Split examples into train, valid and test with equally many examples per class.

    A hash of the sentence decides which examples are used and in which split, so the same text
    gives the same files. The splits are disjoint if the sentences are distinct: 8 of 10 for
    training, 1 each for validation and testing, in random order.
    """

    def by_chance(example: Tuple[str, str], purpose: str = "") -> bytes:
        return hashlib.sha256(f"{purpose}{seed}\t{example[1]}".encode()).digest()

    classes: Dict[str, List[Tuple[str, str]]] = {}
    for label, tokens in examples:
        classes.setdefault(label, []).append((label, " ".join(tokens)))
    size = min(map(len, classes.values()), default=0)
    if len(classes) < 2 or size < HELD_OUT:
        raise ConfigurationError(
            f"the text has {len(classes)} class(es), the rarest of {size} sentence(s), where a "
            f"task needs two of {HELD_OUT}; give more text, other --length-bounds or a lower "
            f"--first-rank"
        )
    held_out = size // HELD_OUT
    splits: Dict[str, List[Tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    for members in classes.values():
        members = sorted(members, key=by_chance)[:size]
        splits["test"] += members[:held_out]
        splits["valid"] += members[held_out : 2 * held_out]
        splits["train"] += members[2 * held_out :]
    # not by the hash of the choice, which is small in a frequent class
    return {
        name: sorted(split, key=lambda example: by_chance(example, "order "))
        for name, split in splits.items()
    }


def bounds(text: str) -> Tuple[int, ...]:
    """Parse a comma list of rising numbers of tokens."""
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
    parser = OneLineParser(
        prog="python -m capsnmt.sentences.build",
        description="Make SentLen, WC or BShift, the probing tasks without a parser, from text.",
    )
    add = parser.add_argument
    add("text", type=Path, nargs="+", help="one sentence per line, plain or gzipped")
    add("--output", type=Path, required=True, help="folder for the tasks' files")
    tasks = f"comma list of {', '.join(BUILT)} (default: all)"
    add("--tasks", type=comma_list(BUILT), default=list(BUILT), help=tasks)
    add("--tokenize", choices=("moses", "none"), default="none", help="default: none")
    add("--lang", help="language of --tokenize moses (default: en)")
    limits = "SentLen: lower bounds of the classes, then the upper bound (default: SentEval's)"
    add("--length-bounds", type=bounds, default=LENGTH_BOUNDS, help=limits)
    add("--first-rank", type=positive, default=FIRST_RANK, help="WC: frequent words left out")
    add("--words", type=positive, default=NUM_WORDS, help="WC: number of words")
    add("--seed", type=int, default=1, help="seed of the selection and of BShift")
    return parser


def read_sentences(files: Iterable[Path], tokenize: str, language: str) -> List[List[str]]:
    """Read the sentences of all files as tokens, each once.

    Sentences that differ only in case, space or punctuation count as one: otherwise one could be in
    training and the other in the test.
    """
    from capsnmt.corpora.text import make_tokeniser, sentence_key

    sentences: Dict[str, List[str]] = {}
    tokenise = make_tokeniser(tokenize, language)
    for path in files:
        words, joined = Words(of_tokens=tokenize == "none"), 0
        for line in plain(read_lines(path), str(path)):
            words.see(line)
            joined += END_JOINED.search(line) is not None
            tokens = tokenise(line).split()
            if tokens:
                sentences.setdefault(sentence_key(" ".join(tokens)), tokens)
        words.check(str(path), "give text of words, joined and without symbols")
        if tokenize == "none" and joined > SHARE * words.lines:
            say(
                f"warning: {path}: {joined:,} of {words.lines:,} lines have no space before the "
                f"end, as text and not as tokens; give --tokenize moses"
            )
    return list(sentences.values())


@command
def main(argv: List[str]) -> None:
    """Run the command line and return the exit status."""
    options = build_parser().parse_args(argv)
    if options.lang and options.tokenize == "none":
        raise ConfigurationError(f"--lang {options.lang} needs --tokenize moses; give it, too")
    sentences = read_sentences(options.text, options.tokenize, options.lang or "en")
    examples = {  # none is drawn before it is asked for
        "SentLen": sentence_length(sentences, options.length_bounds),
        "WC": word_content(sentences, options.first_rank, options.words),
        "BShift": bigram_shift(sentences, options.seed),
    }
    files, made = {}, {}
    for name in options.tasks:
        splits = balance(examples[name], options.seed)
        files[TASKS[name].file] = [
            f"{SPLITS[split]}\t{label}\t{sentence}"
            for split in SPLITS
            for label, sentence in splits[split]
        ]
        sizes = {split: len(of_split) for split, of_split in splits.items()}
        made[name] = {"classes": len({label for label, _ in splits["train"]}), **sizes}
    write_examples(options.output, files, {"arguments": argv, "tasks": made})
    for name in made:
        print(f"{options.output / TASKS[name].file}: {made[name]}")


if __name__ == "__main__":
    raise SystemExit(main())
