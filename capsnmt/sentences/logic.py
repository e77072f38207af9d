"""Propositional logic: grammar, truth tables and relations of sentences.

The grammar is that of the data of Bowman, Potts and Manning (2015); every bracket is a token::

    S -> a | b | c | d | e | f | ( not S ) | ( S ( and S ) ) | ( S ( or S ) )
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Tuple

VARIABLES = "abcdef"
# a truth table is a number with one bit per assignment, 2^6 bits
ALWAYS = (1 << (1 << len(VARIABLES))) - 1
TABLES: Dict[str, int] = {
    name: sum(1 << row for row in range(1 << len(VARIABLES)) if row >> place & 1)
    for place, name in enumerate(VARIABLES)
}
RELATIONS = ("<", ">", "=", "^", "|", "v", "#")


@dataclass(frozen=True)
class Proposition:
    """A parsed sentence: its truth table and number of operators."""

    table: int
    operators: int


def parse(sentence: str) -> Proposition:
    """Parse a sentence; a ``ValueError`` names the token that is not in the grammar.

    >>> parse("( a ( and ( not b ) ) )").operators
    2
    """
    tokens = sentence.split()
    proposition, end = _parse(tokens, 0)
    if end < len(tokens):
        raise ValueError(f"token {end + 1}: {tokens[end]!r} after the end of the sentence")
    return proposition


def _expect(tokens: List[str], place: int, allowed: Tuple[str, ...]) -> str:
    wanted = " or ".join(map(repr, allowed))
    if place >= len(tokens):
        raise ValueError(f"a parenthesis is not closed: {wanted} is missing at the end")
    if tokens[place] not in allowed:
        raise ValueError(f"token {place + 1}: {tokens[place]!r} where {wanted} should be")
    return tokens[place]


def _parse(tokens: List[str], place: int) -> Tuple[Proposition, int]:
    """Return the proposition that starts at a token, and the index of the token after it."""
    if _expect(tokens, place, (*VARIABLES, "(")) != "(":
        return Proposition(TABLES[tokens[place]], 0), place + 1
    if tokens[place + 1 : place + 2] == ["not"]:
        inner, place = _parse(tokens, place + 2)
        _expect(tokens, place, (")",))
        table = ALWAYS & ~inner.table
        return Proposition(table, inner.operators + 1), place + 1
    left, place = _parse(tokens, place + 1)
    _expect(tokens, place, ("(",))
    operator = _expect(tokens, place + 1, ("and", "or"))
    right, place = _parse(tokens, place + 2)
    _expect(tokens, place, (")",))
    _expect(tokens, place + 1, (")",))
    table = left.table & right.table if operator == "and" else left.table | right.table
    return Proposition(table, left.operators + right.operators + 1), place + 2


def relation(left: Proposition, right: Proposition) -> str:
    """Return the natural-logic relation between two propositions, over all assignments.

    ``=`` equivalence, ``<`` and ``>`` entailment, ``^`` contradiction (negation), ``|`` non-
    exhaustive contradiction (alternation), ``v`` cover, ``#`` independence.

    >>> relation(parse("( a ( and b ) )"), parse("a"))
    '<'

    Raises:
        ValueError: one of them is always true or always false. MacCartney's relations are not
            defined for it, and it does not occur in the data of Bowman et al.
    """
    if {left.table, right.table} & {0, ALWAYS}:
        raise ValueError("the relation is undefined: a sentence is always true or always false")
    p, q = left.table, right.table
    holds = {
        "=": p == q,
        "^": p == ALWAYS & ~q,
        "<": p & q == p,
        ">": p & q == q,
        "|": p & q == 0,
        "v": p | q == ALWAYS,
    }
    return next((name for name, true in holds.items() if true), "#")
