"""The data of sentence classifiers: what they mean, and the commands that make or fetch them."""

import json
import random
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.sentences import build, logical_inference, senteval
from capsnmt.sentences.build import balance, bigram_shift, sentence_length, word_content
from capsnmt.sentences.logical_inference import operators_of, parse, read_file, relation
from capsnmt.sentences.senteval import TASKS
from tests.corpora.conftest import tree
from tests.corpora.server import serving
from tests.real_data import library, real_data


def corpus(count: int = 600) -> List[List[str]]:
    """Sentences of 4 to 12 words, the word w0 the most frequent."""
    draw = random.Random(1)
    words = [f"w{number}" for number in range(40)]
    weights = [1 / (1 + rank) for rank in range(len(words))]
    return [draw.choices(words, weights, k=draw.randint(4, 12)) for _ in range(count)]


def test_a_sentence_that_is_always_true_has_no_relation() -> None:
    with pytest.raises(ValueError, match="always true or always false"):
        relation(parse("( a ( or ( not a ) ) )"), parse("b"))


@pytest.mark.parametrize("number", range(13))
def test_a_real_test_pair_has_the_relation_and_the_operators_of_its_file(number: int) -> None:
    path = real_data(f"propositional_logic/test{number}.gz")
    pairs = read_file(path.parent, "test", number)  # which checks the number of operators
    assert pairs
    assert [relation(*map(parse, pair.sentences)) for pair in pairs] == [p.label for p in pairs]


def test_sentence_length_is_the_class_of_the_number_of_tokens() -> None:
    labelled = list(sentence_length([["x"] * n for n in range(1, 32)]))
    classes = {len(tokens): label for label, tokens in labelled}
    assert set(classes) == set(range(5, 29))
    starts = {n: classes[n] for n in (5, 8, 9, 12, 13, 16, 17, 20, 21, 25, 26, 28)}
    assert "".join(starts.values()) == "001122334455"


def test_word_content_is_the_one_word_of_the_middle_that_the_sentence_has() -> None:
    sentences = corpus()
    counts = Counter(word for sentence in sentences for word in sentence)
    ranked = [count for _, count in counts.most_common()]
    labelled = list(word_content(sentences, 10, 5))
    middle = {label for label, _ in labelled}
    assert sorted((counts[word] for word in middle), reverse=True) == ranked[10:15]
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
    labels = [(" ".join(tokens), label) for label, tokens in bigram_shift(text)]
    assert len(labels) == len(dict(labels)) > 50
    assert {dict(labels).get(" ".join(words), "O") for words in text} == {"O"}


def test_the_classes_of_a_split_are_mixed() -> None:
    """A frequent class has the small hashes; by them, the lines ended with the rare one alone."""
    examples = [("AB"[n < 40], [str(n)]) for n in range(340)]
    labels = "".join(label for label, _ in balance(examples)["train"])
    assert labels.count("A") == labels.count("B") == 32
    assert max(map(len, re.findall("A+|B+", labels))) < 12


SIZES = ["--train", "40", "--test", "10"]


def lines(path: Path) -> List[Tuple[str, ...]]:
    return [tuple(line.split("\t")) for line in path.read_text("utf-8").splitlines()]


def test_generated_pairs_agree_with_their_files_labels_and_splits(tmp_path: Path) -> None:
    """Training pairs have at most six operators."""
    logic, seen = tmp_path / "logic", {}
    assert logical_inference.main(["--output", str(logic), *SIZES]) == 0
    for part, size in (("train", 40), ("test", 10)):
        files = [lines(logic / f"{part}{number}") for number in range(13)]
        for number, found in enumerate(files):
            assert len(found) == size or number == 0
            for label, *pair in found:
                assert relation(*map(parse, pair)) == label
                assert max(map(operators_of, pair)) == number
                assert len(set("abcdef") & {*" ".join(pair).split()}) <= 4
        seen[part] = {frozenset(pair) for found in files for _, *pair in found}
    assert seen["train"].isdisjoint(seen["test"]), "in either order"
    # words alone: 6 * 7 / 2 pairs, which are all there are
    assert sum(len(lines(logic / f"{part}0")) for part in seen) == 21
    for seed in ("1", "2"):
        logical_inference.main(["--output", str(tmp_path / seed), *SIZES, "--seed", seed])
    assert tree(tmp_path / "1") == tree(logic)
    assert tree(tmp_path / "2")["train5"] != tree(logic)["train5"]
    splits = {
        split: logical_inference.read_split(logic, split, 6) for split in ("train", "valid", "test")
    }
    pairs = {split: {frozenset(e.sentences) for e in found} for split, found in splits.items()}
    assert pairs["train"].isdisjoint(pairs["valid"])
    assert pairs["test"].isdisjoint(pairs["train"] | pairs["valid"])
    assert {e.bucket for e in splits["train"]} == set(range(7))
    assert {e.bucket for e in splits["test"]} == set(range(13))
    assert 0.02 < len(splits["valid"]) / len(splits["train"]) < 0.25


def test_built_tasks_have_as_many_of_each_class_in_senteval_files(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("\n".join(" ".join(s) for s in corpus()) + "\n", encoding="utf-8")
    options = ["--length-bounds", "4,7,10,13", "--first-rank", "10", "--words", "3"]
    for name in ("one", "two"):
        assert build.main([str(text), "--output", str(tmp_path / name), *options]) == 0
    for name in build.BUILT:
        splits = senteval.read_task(tmp_path / "one", name)
        sentences = [e.sentences[0] for examples in splits.values() for e in examples]
        assert len(set(sentences)) == len(sentences) >= 40
        labels = {split: [e.label for e in examples] for split, examples in splits.items()}
        classes = set(labels["train"])
        assert len(classes) > 1
        of_a_class = len(sentences) // len(classes)
        held_out = of_a_class // 10
        sizes = {"train": of_a_class - 2 * held_out, "valid": held_out, "test": held_out}
        for split, size in sizes.items():
            assert Counter(labels[split]) == dict.fromkeys(classes, size)
        assert labels["train"] != sorted(labels["train"])
        file = TASKS[name].file
        assert tree(tmp_path / "one")[file] == tree(tmp_path / "two")[file]


@pytest.mark.parametrize("name", ["train5", TASKS["SentLen"].file])
def test_a_file_of_the_users_own_is_not_replaced(
    name: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    """What a killed command left is: it has no manifest, but the same lines. All or none go."""
    text, output = tmp_path / "text", tmp_path / "out"
    text.write_text("\n".join(" ".join(s) for s in corpus()) + "\n", encoding="utf-8")
    built = (text, "--tasks", "SentLen", "--length-bounds", "4,7,10,13")
    main, *words = (logical_inference.main, *SIZES) if name == "train5" else (build.main, *built)
    given = [*map(str, words), "--output", str(output)]
    assert main(given) == main(given) == 0
    made = tree(output)
    (output / "manifest.json").unlink()
    assert main(given) == 0
    assert tree(output) == made
    for kept in [path for path in output.iterdir() if path.name not in (name, ".lock")]:
        kept.unlink()
    (output / name).write_text("mine", "utf-8")
    assert f"{name} is there, and not of this command" in refused(main, *given)
    (output / name).unlink()
    (output / "manifest.json").write_text('{"tasks": {}, "sha256": {}}', "utf-8")
    assert "manifest.json is there, and not of this command" in refused(main, *given)
    assert {path.name for path in output.iterdir()} == {".lock", "manifest.json"}
    shutil.rmtree(output)
    assert main(given) == 0
    made = tree(output)
    other = ["--seed", "2"] if name == "train5" else ["--length-bounds", "4,8,12,15"]
    assert "is there, and not of this command" in refused(main, *given, *other)
    assert tree(output) == made


def test_text_that_is_no_tokens_is_told(
    tmp_path: Path, refused: Callable[..., str], capsys: pytest.CaptureFixture
) -> None:
    """Its words would have their commas and full stops."""
    text = tmp_path / "text"
    lines = (f"{'See ' * n}dog {number}." for number in range(20) for n in (3, 8))
    text.write_text("\n".join(lines), encoding="utf-8")
    given = [str(text), "--tasks", "SentLen", "--length-bounds", "4,7,12"]
    assert build.main([*given, "--output", str(tmp_path / "text-built")]) == 0
    assert "40 of 40 lines have no space before the end" in capsys.readouterr().err
    tokens = [*given, "--tokenize", "moses", "--lang", "de", "--output", str(tmp_path / "tokens")]
    assert build.main(tokens) == 0
    assert not capsys.readouterr().err
    assert "--lang de needs --tokenize moses" in refused(
        build.main, *given, "--lang", "de", "--output", str(tmp_path / "other")
    )


FILE = "subj_number.txt"
TEXT = "tr\tNN\tIt works .\nva\tNNS\tThey work .\nte\tNN\tWorks .\n"


# name of a file, its text, and the message after its name
BAD: List[Tuple[str, Any, str]] = [
    (FILE, f"{TEXT}tr NN no tabs\n", "line 4: 0 tabs: a line is tr, va or te TAB"),
    (FILE, f"{TEXT}tr\t\tIt .\n", "line 4: the label is empty"),
    (FILE, f"{TEXT}dev\tNN\tIt .\n", "line 4: unknown split 'dev'; give tr, va or te"),
    (FILE, "tr\tNN\tIt .\nva\tNN\tI .\n", "no test split: no line begins with te"),
    (FILE, None, "there is no such file, nor subj_number.txt.gz"),
    (FILE, b"tr\ta\tb\ntr\ta\t\xff\n", "line 2: not UTF-8"),
    ("subj_number.txt.gz", b"no gzip", "not a complete gzip file"),
    ("train0", "=\ta\ta\n?\ta\tb\n", "line 2: unknown relation '?'; choose from < > ="),
    ("train0", "=\ta\ta\n#\t( not a\tb\n", "line 2: token 4: 'the end' where ')' should be"),
    ("train0", "#\t( a ( and b ) ) )\ta\n", "line 1: token 8: ')' where 'the end' should be"),
    ("train0", "#\t( a ( xor b ) )\ta\n", "line 1: token 4: 'xor' where 'and' or 'or' should be"),
    ("train0", "#\t( not g )\ta\n", "line 1: token 3: 'g' where 'a' or 'b'"),
    ("train0", "<\t( a ( and b ) )\ta\n", "line 1: 1 operators in the longer sentence, but"),
    ("train0", None, "there is no such file, nor train0.gz; a data folder has train0 to"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD)
def test_a_bad_file_is_one_line_with_its_name(
    name: str, text: Any, message: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    logic = name == "train0"
    read: Any = logical_inference.read_split if logic else senteval.read_task
    with pytest.raises(ConfigurationError) as error:
        read(tmp_path, *(("train", 0) if logic else ("SubjNum",)))
    (line,) = str(error.value).splitlines()
    assert str(tmp_path / name) in line
    assert message in line


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dict[str, bytes]]:
    """The files at the address of SentEval: a task of three lines."""
    library("requests")
    monkeypatch.setattr(senteval, "SIZES", {"tr": 1, "va": 1, "te": 1})
    with serving({FILE: TEXT.encode()}) as server:
        monkeypatch.setattr(senteval, "ADDRESS", f"{server.address}/good")
        yield server.files


def test_a_file_is_downloaded_once_and_a_change_is_detected(
    published: Dict[str, bytes], tmp_path: Path, refused: Callable[..., str], capsys: Any
) -> None:
    arguments = ["--tasks", "SubjNum", "--output", str(tmp_path)]
    absent = senteval.ADDRESS.replace("good", "absent")
    (tmp_path / "manifest.json").write_text('{"arguments": "of a built task"}', "utf-8")
    assert senteval.main([*arguments, "--mirror", absent]) == 0
    assert senteval.read_task(tmp_path, "SubjNum")["train"][0].label == "NN"
    recorded = json.loads((tmp_path / "manifest.json").read_text("utf-8"))
    assert recorded["arguments"] == "of a built task"
    assert recorded["sha256"].keys() == {FILE}
    published.clear()
    (tmp_path / ".lock").rename(tmp_path / "lock")
    assert senteval.main(arguments) == 0
    assert not (tmp_path / ".lock").exists()
    (tmp_path / "lock").rename(tmp_path / ".lock")  # nothing was written: it may be another's
    (tmp_path / FILE).write_text(f"{TEXT}te\tNN\tMore .\n", "utf-8")
    assert "{'tr': 1, 'va': 1, 'te': 2} lines" in refused(senteval.main, *arguments)
    (tmp_path / FILE).unlink()
    published[FILE] = b"tr\tNN\tIt .\n"  # another than the published one is not kept
    assert senteval.main(arguments) == 2
    assert f"where SentEval's {FILE} has" in capsys.readouterr().err
    assert not (tmp_path / FILE).exists()


def test_balanced_classes_may_add_or_leave_out_a_few_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CoordInv has 100,002, 10,002 and 10,002 lines."""
    monkeypatch.setattr(senteval, "SIZES", dict.fromkeys(("tr", "va", "te"), 3000))
    lines = [f"{mark}\t{label}\tIt ." for mark in ("tr", "va", "te") for label in ("NN", "NNS")]
    for each in (1499, 1500, 1501):
        (tmp_path / FILE).write_text("\n".join(lines * each), "utf-8")
        sizes = senteval.check_published(tmp_path / FILE, TASKS["SubjNum"])
        assert sizes == dict.fromkeys(("tr", "va", "te"), 2 * each)
    (tmp_path / FILE).write_text("\n".join(lines * 1498), "utf-8")
    with pytest.raises(ConfigurationError, match="'te': 2996} lines and 2 classes, where"):
        senteval.check_published(tmp_path / FILE, TASKS["SubjNum"])
