"""Make data for logical inference: ``python -m capsnmt.sentences.logical_inference.generate``."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from capsnmt import records
from capsnmt.cli import OneLineParser, positive, run_command
from capsnmt.corpora.manifest import NAME as MANIFEST
from capsnmt.files import atomic_writer
from capsnmt.sentences.logical_inference.data import MAX_OPERATORS
from capsnmt.sentences.logical_inference.logic import ALWAYS, VARIABLES, parse, relation

Pair = Tuple[str, str, str]

PER_PAIR = 4  # at most so many different variables in a pair: Bowman et al. 2015, section 4.1
FUTILE = 2000  # draws in a row without a new pair, after which the search ends


def draw_sentence(operators: int, variables: Sequence[str], draw: random.Random) -> str:
    """Draw a sentence of the grammar with this number of operators.

    **D**: ``not``, ``and`` and ``or`` are equally likely at every place, and so is every split of
    the remaining operators between the two sides.
    """
    if operators == 0:
        return draw.choice(variables)
    operator = draw.choice(("not", "and", "or"))
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
        if unordered in seen or {p.table, q.table} & {0, ALWAYS}:
            continue
        seen.add(unordered)
        futile = 0
        yield relation(p, q), left, right


def generate(output: Path, train: int, test: int, seed: int) -> Dict[str, Dict[str, int]]:
    """Write ``train0..12`` and ``test0..12`` into a folder.

    No pair of a test file, nor its mirror image, is in any training file. If there are fewer pairs
    than asked for, they are split in proportion.

    Args:
        output: the folder.
        train, test: the number of pairs in a file.
        seed: another seed gives other pairs.

    Returns:
        File -> relation -> number of pairs.
    """
    counted = {}
    for operators in range(MAX_OPERATORS + 1):
        draw = random.Random(f"{seed} {operators}")
        pairs: List[Pair] = []
        for pair in draw_pairs(operators, draw):
            pairs.append(pair)
            if len(pairs) == train + test:
                break
        draw.shuffle(pairs)
        tested = len(pairs) * test // (train + test)
        for part, chosen in (("test", pairs[:tested]), ("train", pairs[tested:])):
            with atomic_writer(output / f"{part}{operators}") as file:
                file.writelines("\t".join(pair) + "\n" for pair in chosen)
            counted[f"{part}{operators}"] = dict(Counter(label for label, _, _ in chosen))
    return counted


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Run the command line.

    Raises:
        ConfigurationError: a flag or an input is wrong.
    """
    parser = OneLineParser(
        prog="python -m capsnmt.sentences.logical_inference.generate", description=__doc__
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for the files")
    parser.add_argument("--train", type=positive, default=20000, help="pairs of a training file")
    parser.add_argument("--test", type=positive, default=2000, help="pairs of a test file")
    parser.add_argument("--seed", type=int, default=1, help="another seed gives other pairs")
    options = parser.parse_args(arguments)
    made = generate(options.output, options.train, options.test, options.seed)
    for name, relations in made.items():
        print(f"{name}: {sum(relations.values()):,} pairs {relations}")
    settings = {name: value for name, value in vars(options).items() if name != "output"}
    records.write(options.output / MANIFEST, {"settings": settings, "files": made})


if __name__ == "__main__":
    sys.exit(run_command(main))
