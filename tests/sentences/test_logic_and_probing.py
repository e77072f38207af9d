"""What the data mean: propositions against Python's own logic and real pairs, SentEval's tasks."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from typing import Dict, List

import pytest

from capsnmt.sentences.build import balance, bigram_shift, sentence_length, word_content
from capsnmt.sentences.logical_inference import VARIABLES, parse, read_file, relation
from tests.real_data import real_data

pytestmark = pytest.mark.one_host  # text: no host is loaded

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


@pytest.mark.parametrize(
    "sentence",
    [
        "a",
        "( not a )",
        "( a ( and b ) )",
        "( ( not a ) ( or ( b ( and f ) ) ) )",
        "( ( a ( or ( not b ) ) ) ( and ( not ( c ( or a ) ) ) ) )",
    ],
)
def test_a_truth_table_has_the_sentences_value_in_every_world(sentence: str) -> None:
    table = parse(sentence).table
    rows = [sum(world[name] << place for place, name in enumerate(VARIABLES)) for world in WORLDS]
    assert [bool(table >> row & 1) for row in rows] == [truth(sentence, w) for w in WORLDS]


def test_each_relation() -> None:
    pairs = [
        ("=", "( a ( and b ) )", "( b ( and a ) )"),
        ("<", "( a ( and b ) )", "a"),
        (">", "a", "( a ( and b ) )"),
        ("^", "a", "( not a )"),
        ("|", "( a ( and b ) )", "( not a )"),
        ("v", "( a ( or b ) )", "( not a )"),
        ("#", "a", "b"),
    ]
    for name, left, right in pairs:
        assert relation(parse(left), parse(right)) == name
    with pytest.raises(ValueError, match="always true or always false"):
        relation(parse("( a ( or ( not a ) ) )"), parse("b"))


@pytest.mark.parametrize("number", range(13))
def test_a_real_test_pair_has_the_relation_and_the_operators_of_its_file(number: int) -> None:
    path = real_data(f"propositional_logic/test{number}.gz")
    pairs = read_file(path.parent, "test", number)  # which checks the number of operators
    assert pairs
    assert [relation(*map(parse, pair.sentences)) for pair in pairs] == [p.label for p in pairs]


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("( a ( and b )", r"a parenthesis is not closed: '\)' is missing at the end"),
        ("( a ( and b ) ) )", r"token 8: '\)' after the end"),
        ("( a ( xor b ) )", "token 4: 'xor' where 'and' or 'or' should be"),
        ("( not g )", "token 3: 'g' where 'a' or 'b'"),
        ("", "a parenthesis is not closed"),
    ],
)
def test_a_sentence_outside_the_grammar_is_reported_with_its_token(
    sentence: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        parse(sentence)


def corpus(count: int = 600) -> List[List[str]]:
    """Sentences of 4 to 12 words, the word w0 the most frequent."""
    draw = random.Random(1)
    words = [f"w{number}" for number in range(40)]
    weights = [1 / (1 + rank) for rank in range(len(words))]
    return [draw.choices(words, weights, k=draw.randint(4, 12)) for _ in range(count)]


def test_sentence_length_is_the_class_of_the_number_of_tokens() -> None:
    labelled = list(sentence_length([["x"] * n for n in range(1, 32)]))
    classes = {len(tokens): label for label, tokens in labelled}
    assert set(classes) == set(range(5, 29))
    starts = {n: classes[n] for n in (5, 8, 9, 12, 13, 16, 17, 20, 21, 25, 26, 28)}
    assert "".join(starts.values()) == "001122334455"


def test_word_content_is_the_one_word_of_the_middle_that_the_sentence_has() -> None:
    sentences = corpus()
    counts = Counter(word for sentence in sentences for word in sentence)
    ranked = [word for word, _ in counts.most_common()]
    labelled = list(word_content(sentences, 10, 5))
    middle = {label for label, _ in labelled}
    assert len(middle) == 5
    assert max(counts[w] for w in middle) <= counts[ranked[9]]
    assert min(counts[w] for w in middle) >= counts[ranked[15]]
    for label, tokens in labelled:
        assert [token for token in tokens if token in middle] == [label]


def test_bigram_shift_inverts_one_pair_of_neighbours_or_nothing() -> None:
    sentences = [s for s in corpus() if len(set(s)) > 1]
    shifted = 0
    for original, (label, tokens) in zip(sentences, bigram_shift(sentences)):
        changed = [i for i, (a, b) in enumerate(zip(original, tokens)) if a != b]
        assert len(changed) == (0 if label == "O" else 2)
        if changed:
            first, second = changed
            assert second == first + 1
            assert (tokens[first], tokens[second]) == (original[second], original[first])
            shifted += 1
    assert 0.4 < shifted / len(sentences) < 0.6


def test_no_sentence_becomes_another_one_of_the_text() -> None:
    pairs = [["a", "b", str(number)] for number in range(50)]
    text = [words for a, b, c in pairs for words in ([a, b, c], [b, a, c])]
    shifted = [" ".join(tokens) for _, tokens in bigram_shift(text)]
    assert len(shifted) == len(set(shifted)) > 50


def test_the_classes_of_a_split_are_mixed() -> None:
    """A frequent class has the small hashes; by them, the lines ended with the rare one alone."""
    examples = [("AB"[n < 40], [str(n)]) for n in range(340)]
    labels = "".join(label for label, _ in balance(examples)["train"])
    assert labels.count("A") == labels.count("B") == 32
    assert max(map(len, re.findall("A+|B+", labels))) < 12
