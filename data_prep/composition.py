#!/usr/bin/env python3
"""Write the text of a made-up task, always the same: SCAN, copying or reversing words.

``data_prep/composition.py --task TASK --output DIR`` writes ``train.src`` and ``train.tgt`` and,
except for the demo's task, ``valid.src`` and ``valid.tgt``, which are of their kind, and
``test.src`` and ``test.tgt``, which are of another kind or length.
"""

import argparse
import random
import sys
from functools import partial
from itertools import product
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from capsnmt.cli import OneLineParser, command
from capsnmt.files import write_all

Pairs = List[Tuple[str, str]]

PRIMITIVES = {"walk": "WALK", "look": "LOOK", "run": "RUN", "jump": "JUMP"}
TURNS = {"left": "LTURN", "right": "RTURN"}
SHORT = 22  # actions, of the longest training sequence of the split by length
HELD_OUT = 20  # one pair of SCAN's training in so many is for validation
SHARE = 10  # one training pair in so many is jump alone, where it is the primitive that is added


def phrases(primitives: Mapping[str, str]) -> Iterator[Tuple[str, str]]:
    """Yield each phrase V of SCAN with its actions, separated by spaces::

    V -> U | U D | U opposite D | U around D | turn D | turn opposite D | turn around D
    """
    yield from primitives.items()
    for (verb, action), (side, turn) in product([*primitives.items(), ("turn", "")], TURNS.items()):
        for how, turns, times in (("", 1, 1), ("opposite ", 2, 1), ("around ", 1, 4)):
            yield f"{verb} {how}{side}", " ".join([*[turn] * turns, action] * times).strip()


def commands(primitives: Mapping[str, str] = PRIMITIVES) -> Dict[str, str]:
    """Return all commands C of SCAN with their actions (Lake and Baroni 2018)::

        C -> S | S and S | S after S        S -> V | V twice | V thrice

    >>> commands()["jump opposite left after walk twice"]
    'WALK WALK LTURN LTURN JUMP'
    """
    repeated = {
        f"{phrase}{word}": " ".join([actions] * times)
        for phrase, actions in phrases(primitives)
        for word, times in (("", 1), (" twice", 2), (" thrice", 3))
    }
    found = dict(repeated)
    for (one, first), (other, second) in product(repeated.items(), repeat=2):
        found[f"{one} and {other}"] = f"{first} {second}"
        found[f"{one} after {other}"] = f"{second} {first}"
    return {command: " ".join(actions.split()) for command, actions in found.items()}


def held_out(pairs: Pairs) -> Dict[str, Pairs]:
    """Return pairs for training and some of them, always the same, for validation instead."""
    shuffled = random.Random(1).sample(pairs, len(pairs))
    count = len(pairs) // HELD_OUT
    return {"train": shuffled[count:], "valid": shuffled[:count]}


def scan_length() -> Dict[str, Pairs]:
    """Return the commands of up to 22 actions for training, of 24 to 48 for the test."""
    found: Dict[str, Pairs] = {"train": [], "test": []}
    for pair in commands().items():
        found["train" if len(pair[1].split()) <= SHORT else "test"].append(pair)
    return {**held_out(found["train"]), "test": found["test"]}


def scan_jump() -> Dict[str, Pairs]:
    """Return, for training, jump alone and every command without it; the others for the test.

    As in the published split, jump alone is a tenth of the training pairs. None is held out.
    """
    alone = ("jump", PRIMITIVES["jump"])
    others = [*commands({k: v for k, v in PRIMITIVES.items() if k != "jump"}).items()]
    times = round(len(others) / (SHARE - 1))
    known = {alone, *others}
    test = [pair for pair in commands().items() if pair not in known]
    splits = held_out(others)
    return {**splits, "train": [alone] * times + splits["train"], "test": test}


def sequences(
    reverse: bool, words: int = 10, **lengths: Tuple[int, Sequence[int]]
) -> Dict[str, Pairs]:
    """Return, for each split, so many random sequences of such lengths, and the same or reversed.

    **D**: test sequences are longer than all of the training.
    """
    draw, vocabulary = random.Random(1), [f"w{number}" for number in range(words)]
    found: Dict[str, Pairs] = {}
    for split, (count, allowed) in lengths.items():
        drawn = [draw.choices(vocabulary, k=draw.choice(allowed)) for _ in range(count)]
        steps = -1 if reverse else 1
        found[split] = [(" ".join(each), " ".join(each[::steps])) for each in drawn]
    return found


BEYOND = {
    "train": (10_000, range(1, 21)),
    "valid": (500, range(1, 21)),
    "test": (1_000, range(21, 41)),
}
TASKS: Dict[str, Callable[[], Dict[str, Pairs]]] = {
    "scan_length": scan_length,
    "scan_jump": scan_jump,
    "copy": partial(sequences, False, **BEYOND),
    "reversal": partial(sequences, True, **BEYOND),
    "demo": partial(sequences, True, words=8, train=(5_000, range(2, 6))),
}


@command
def main(words: List[str]) -> None:
    """Run the command line."""
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", required=True, choices=TASKS, help="what is learned")
    parser.add_argument("--output", type=Path, required=True, help="folder of the text")
    args = parser.parse_args(words)
    texts = {
        args.output / f"{split}.{language}": "".join(f"{line}\n" for line in lines).encode()
        for split, pairs in TASKS[args.task]().items()
        for language, lines in zip(("src", "tgt"), zip(*pairs))
    }
    write_all(texts)


if __name__ == "__main__":
    sys.exit(main())
