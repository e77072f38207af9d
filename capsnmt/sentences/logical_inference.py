"""The data of logical inference (Bowman et al. 2015), read, or made by this command.

``python -m capsnmt.sentences.logical_inference --output DIR`` makes files ``train0..12`` and
``test0..12``, one per number of operators. Each line is ``relation TAB sentence TAB sentence``. A
sentence is a proposition; every bracket is a token::

    S -> a | b | c | d | e | f | ( not S ) | ( S ( and S ) ) | ( S ( or S ) )
"""

import functools
import hashlib
import random
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Set, Tuple

from capsnmt.cli import ConfigurationError, OneLineParser, command, positive
from capsnmt.sentences.examples import Example, existing, read_fields, write_examples

VARIABLES = "abcdef"
# a truth table is a number with one bit per assignment, 2^6 bits
ALWAYS = (1 << (1 << len(VARIABLES))) - 1
TABLES: Dict[str, int] = {
    name: sum(1 << row for row in range(1 << len(VARIABLES)) if row >> place & 1)
    for place, name in enumerate(VARIABLES)
}
RELATIONS = ("<", ">", "=", "^", "|", "v", "#")

OPERATORS = ("not", "and", "or")
STARTS, END = (*VARIABLES, "("), "the end"  # tokens that begin a sentence, and what follows it

Pair = Tuple[str, str, str]

FIELDS = ("relation", "sentence", "sentence")
MAX_OPERATORS = 12  # the last file has sentences with 12 or more
HELD_OUT = 10  # one in ten training pairs is for validation
PER_PAIR = 4  # at most so many different variables in a pair: Bowman et al. 2015, section 4.1
FUTILE = 2000  # draws in a row without a new pair, after which the search ends


def operators_of(sentence: str) -> int:
    """Return the number of operators."""
    return sum(token in OPERATORS for token in sentence.split())


def parse(sentence: str) -> int:
    """Return the truth table; a ``ValueError`` names the token that is not in the grammar.

    >>> parse("( a ( or ( not a ) ) )") == ALWAYS
    True
    """
    tokens = enumerate([*sentence.split(), END], 1)

    def take(*allowed: str) -> str:
        place, token = next(tokens)
        if token not in allowed:
            wanted = " or ".join(map(repr, allowed))
            raise ValueError(f"token {place}: {token!r} where {wanted} should be")
        return token

    def read(token: str) -> int:
        if token != "(":
            return TABLES[token]
        token = take(*STARTS, "not")
        if token == "not":
            inner = read(take(*STARTS))
            take(")")
            return ALWAYS & ~inner
        left = read(token)
        take("(")
        operator = take("and", "or")
        right = read(take(*STARTS))
        take(")")
        take(")")
        return left & right if operator == "and" else left | right

    table = read(take(*STARTS))
    take(END)
    return table


def relation(p: int, q: int) -> str:
    """Return the natural-logic relation between two truth tables, over all assignments.

    ``=`` equivalence, ``<`` and ``>`` entailment, ``^`` contradiction (negation), ``|`` non-
    exhaustive contradiction (alternation), ``v`` cover, ``#`` independence.

    >>> relation(parse("( a ( and b ) )"), parse("a"))
    '<'

    Raises:
        ValueError: one of them is always true or always false. MacCartney's relations are not
            defined for it, and it does not occur in the data of Bowman et al.
    """
    if {p, q} & {0, ALWAYS}:
        raise ValueError("the relation is undefined: a sentence is always true or always false")
    holds = {
        "=": p == q,
        "^": p == ALWAYS & ~q,
        "<": p & q == p,
        ">": p & q == q,
        "|": p & q == 0,
        "v": p | q == ALWAYS,
    }
    return next((name for name, true in holds.items() if true), "#")


@functools.cache  # training and validation read the same files
def read_file(folder: Path, part: str, operators: int) -> List[Example]:
    """Return the pairs of ``trainN`` or ``testN``, plain or gzipped."""
    path = existing(
        folder / f"{part}{operators}",
        f"a data folder has {part}0 to {part}{MAX_OPERATORS}; python -m "
        f"capsnmt.sentences.logical_inference makes one",
    )
    examples = []
    for number, (label, *sentences) in read_fields(path, FIELDS):
        example = Example(tuple(sentences), label, operators, path, number)
        if label not in RELATIONS:
            example.reject(f"unknown relation {label!r}; choose from {' '.join(RELATIONS)}")
        try:
            for sentence in sentences:
                parse(sentence)
        except (ValueError, RecursionError) as error:
            example.reject(str(error))
        longest = max(map(operators_of, sentences))
        if min(longest, MAX_OPERATORS) != operators:
            example.reject(
                f"{longest} operators in the longer sentence, but the file is for {operators}"
            )
        examples.append(example)
    return examples


def is_held_out(example: Example) -> bool:
    """Return whether a pair of the training files is for validation.

    **D**: the paper splits 0.8/0.1/0.1, but the data have no validation set. We hold out a tenth of
    the training pairs, chosen by a hash of the two sentences in either order: the choice is the
    same in every run, and a pair and its mirror image are in the same split.
    """
    digest = hashlib.sha256("\t".join(sorted(example.sentences)).encode("utf-8")).digest()
    return int.from_bytes(digest[:8], "big") % HELD_OUT == 0


def read_split(folder: Path, split: str, max_operators: int) -> List[Example]:
    """Return the pairs of a split; training and validation have at most ``max_operators``."""
    if split == "test":
        return [e for n in range(MAX_OPERATORS + 1) for e in read_file(folder, "test", n)]
    files = [e for n in range(max_operators + 1) for e in read_file(folder, "train", n)]
    examples = [e for e in files if is_held_out(e) == (split == "valid")]
    if not examples:
        raise ConfigurationError(
            f"{folder}: the {split} split is empty: train0 to train{max_operators} have only "
            f"{len(files)} pairs"
        )
    return examples


def draw_sentence(operators: int, variables: Sequence[str], draw: random.Random) -> str:
    """Draw a sentence of the grammar with this number of operators.

    **D**: ``not``, ``and`` and ``or`` are equally likely at every place, and so is every split of
    the remaining operators between the two sides.
    """
    if operators == 0:
        return draw.choice(variables)
    operator = draw.choice(OPERATORS)
    if operator == "not":
        return f"( not {draw_sentence(operators - 1, variables, draw)} )"
    left = draw.randrange(operators)
    first = draw_sentence(left, variables, draw)
    second = draw_sentence(operators - 1 - left, variables, draw)
    return f"( {first} ( {operator} {second} ) )"


def draw_pairs(operators: int, draw: random.Random) -> Iterator[Pair]:
    """Yield relation and sentences of different pairs with this number of operators.

    The longer sentence has that number, the other one any number up to it. Sentences that are
    always true or always false are left out. It ends when no new pair is found.
    """
    seen: Set[Tuple[str, str]] = set()
    futile = 0
    while futile < FUTILE:
        futile += 1
        variables = draw.sample(VARIABLES, PER_PAIR)
        lengths = [operators, draw.randint(0, operators)]
        draw.shuffle(lengths)
        left, right = (draw_sentence(length, variables, draw) for length in lengths)
        p, q = parse(left), parse(right)
        unordered = (min(left, right), max(left, right))
        if unordered in seen or {p, q} & {0, ALWAYS}:
            continue
        seen.add(unordered)
        futile = 0
        yield relation(p, q), left, right


def generate(train: int, test: int, seed: int) -> Dict[str, List[Pair]]:
    """Return the pairs of ``train0..12`` and ``test0..12``.

    No pair of a test file, nor its mirror image, is in any training file. If there are fewer pairs
    than asked for, they are split in proportion.
    """
    files = {}
    for operators in range(MAX_OPERATORS + 1):
        draw = random.Random(f"{seed} {operators}")
        pairs = [*islice(draw_pairs(operators, draw), train + test)]
        draw.shuffle(pairs)
        tested = len(pairs) * test // (train + test)
        files[f"test{operators}"], files[f"train{operators}"] = pairs[:tested], pairs[tested:]
    return files


@command
def main(argv: List[str]) -> None:
    """Run the command line and return the exit status."""
    parser = OneLineParser(
        prog="python -m capsnmt.sentences.logical_inference",
        description="Make the data of logical inference (Bowman et al. 2015): train0..12 and "
        "test0..12, one file per number of operators, relation TAB sentence TAB sentence.",
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for the files")
    parser.add_argument("--train", type=positive, default=20000, help="pairs of a training file")
    parser.add_argument("--test", type=positive, default=2000, help="pairs of a test file")
    parser.add_argument("--seed", type=int, default=1, help="another seed gives other pairs")
    options = parser.parse_args(argv)
    files = generate(options.train, options.test, options.seed)
    made = {name: dict(Counter(label for label, _, _ in files[name])) for name in files}
    settings = {name: value for name, value in vars(options).items() if name != "output"}
    lines = {name: map("\t".join, files[name]) for name in files}
    write_examples(options.output, lines, {"settings": settings, "files": made})
    for name, relations in made.items():
        print(f"{name}: {sum(relations.values()):,} pairs {relations}")


if __name__ == "__main__":
    raise SystemExit(main())
