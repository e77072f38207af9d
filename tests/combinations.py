"""``python -m tests.combinations``: the lines that ``combinations.txt`` lacks, for pairs of values.

Each line starts from a pair of values that no system has, and takes those values of other switches
with which it holds more of such pairs.
"""

import itertools
from itertools import starmap
from typing import Dict, FrozenSet, Iterable, Iterator, List, Set, Tuple

from capsnmt.cli import ConfigurationError
from capsnmt.models.validation import validate
from capsnmt.modules.algorithms import OF_HEADS, OF_LAYERS
from tests.support import SMALL, SYSTEMS, VALUES, flags_of, parse

Value = Tuple[str, str]
ROUTED = {"--head-aggregation": OF_HEADS, "--layer-aggregation": OF_LAYERS}


def kind(switch: str, value: str) -> Value:
    """A value of a switch; with what an algorithm combines does not depend on which it is."""
    return switch, "any routing" if value in ROUTED.get(switch, ()) else value


def values_of(flags: Iterable[str]) -> Dict[str, str]:
    words = iter(flags)
    own = {each: "yes" if "yes" in VALUES[each] else next(words) for each in words}
    return {**{switch: first for switch, (first, *_) in VALUES.items()}, **own}


def pairs_of(values: Dict[str, str]) -> Set[FrozenSet[Value]]:
    return {frozenset(pair) for pair in itertools.combinations(starmap(kind, values.items()), 2)}


def pairs_without_a_system() -> List[Dict[str, str]]:
    """Each pair of values of two switches that no system has."""
    held = set().union(*(pairs_of(values_of(flags)) for _, flags in SYSTEMS.values()))
    return [
        {one: x, other: y}
        for one, other in itertools.combinations(VALUES, 2)
        for x, y in itertools.product(VALUES[one], VALUES[other])
        if frozenset((kind(one, x), kind(other, y))) not in held
    ]


def is_accepted(values: Dict[str, str]) -> bool:
    try:
        validate(parse("capsnmt_transformer", *SMALL, *flags_of(values)))
    except (ConfigurationError, SystemExit):
        return False
    return True


def lines() -> Iterator[str]:
    """The flags of systems that hold all pairs without one, but those that are refused."""
    missing = [pair for pair in pairs_without_a_system() if is_accepted(pair)]
    wanted = {frozenset(starmap(kind, pair.items())) for pair in missing}
    for pair in missing:
        if frozenset(starmap(kind, pair.items())) not in wanted:
            continue
        best, before = {**values_of(()), **pair}, {}
        while best != before:
            before = best
            for switch in sorted(VALUES.keys() - pair):
                for value in VALUES[switch]:
                    other = {**best, switch: value}
                    more = len(pairs_of(other) & wanted) > len(pairs_of(best) & wanted)
                    best = other if more and is_accepted(other) else best
        wanted -= pairs_of(best)
        yield " ".join(flags_of(best))


if __name__ == "__main__":
    print(*lines(), sep="\n")
