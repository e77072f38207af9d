"""The meaning of propositions, against Python's own logic and the relations of the real data."""

from __future__ import annotations

import gzip
import itertools
import re
from typing import Dict

import pytest
from capsnmt.sentences.logical_inference.data import bucket
from capsnmt.sentences.logical_inference.logic import RELATIONS, VARIABLES, parse, relation

from tests.real_data import real_data

BRACKET = re.compile(r"\( (?:not )?(True|False) (?:\( (and|or) (True|False) \) )?\)")
WORLDS = [dict(zip(VARIABLES, row)) for row in itertools.product((False, True), repeat=6)]


def truth(sentence: str, world: Dict[str, bool]) -> bool:
    """The innermost bracket is replaced by its value, until only a value is left."""
    text = " ".join(str(world.get(token, token)) for token in sentence.split())
    while "(" in text:
        text = BRACKET.sub(lambda found: str(value(found[1], found[2], found[3])), text)
    return text == "True"


def value(left: str, operator: str, right: str) -> bool:
    if not operator:
        return left != "True"
    values = left == "True", right == "True"
    return all(values) if operator == "and" else any(values)


SENTENCES = [
    "a",
    "( not a )",
    "( a ( and b ) )",
    "( ( not a ) ( or ( b ( and f ) ) ) )",
    "( ( a ( or ( not b ) ) ) ( and ( not ( c ( or a ) ) ) ) )",
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_truth_table_has_the_sentences_value_in_every_world(sentence: str) -> None:
    table = parse(sentence).table
    rows = [sum(world[name] << place for place, name in enumerate(VARIABLES)) for world in WORLDS]
    assert [bool(table >> row & 1) for row in rows] == [truth(sentence, w) for w in WORLDS]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("a", "a", "="),
        ("( a ( and b ) )", "( b ( and a ) )", "="),
        ("( a ( and b ) )", "a", "<"),
        ("a", "( a ( and b ) )", ">"),
        ("a", "( not a )", "^"),
        ("( a ( and b ) )", "( not a )", "|"),
        ("( a ( or b ) )", "( not a )", "v"),
        ("a", "b", "#"),
    ],
)
def test_each_relation(left: str, right: str, expected: str) -> None:
    assert relation(parse(left), parse(right)) == expected


def test_relations_are_defined_for_what_may_be_true_or_false_only() -> None:
    with pytest.raises(ValueError, match="always true or always false"):
        relation(parse("( a ( or ( not a ) ) )"), parse("b"))


@pytest.mark.parametrize("number", range(13))
def test_the_relation_and_bucket_of_every_real_test_pair_are_the_files(number: int) -> None:
    path = real_data(f"propositional_logic/test{number}.gz")
    found, expected = [], []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            label, *sentences = line.rstrip("\n").split("\t")
            left, right = map(parse, sentences)
            found.append((relation(left, right), bucket(max(left.operators, right.operators))))
            expected.append((label, number))
    assert found == expected
    assert {label for label, _ in found} <= set(RELATIONS)


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("( a ( and b )", r"a parenthesis is not closed: '\)' is missing at the end"),
        ("( a ( and b ) ) )", r"token 8: '\)' after the end"),
        ("( a ( xor b ) )", "token 4: 'xor' where 'and' or 'or' should be"),
        ("( not g )", "token 3: 'g' where 'a' or 'b'"),
        ("( a and b )", r"token 3: 'and' where '\(' should be"),
        ("", "a parenthesis is not closed"),
        ("not a", "token 1: 'not'"),
    ],
)
def test_a_sentence_outside_the_grammar_is_reported_with_its_token(
    sentence: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        parse(sentence)
