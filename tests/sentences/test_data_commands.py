"""The commands that make or fetch the data of sentence classifiers, and files that are wrong."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.sentences import build, logical_inference, senteval
from capsnmt.sentences.logical_inference import parse, relation
from capsnmt.sentences.senteval import TASKS
from tests.corpora.server import serving
from tests.real_data import library
from tests.sentences.test_logic_and_probing import corpus

pytestmark = pytest.mark.one_host  # text: no host is loaded

SIZES = ["--train", "40", "--test", "10"]


def contents(folder: Path) -> Dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def lines(path: Path) -> List[Tuple[str, ...]]:
    return [tuple(line.split("\t")) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def logic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logic")
    assert logical_inference.main(["--output", str(path), *SIZES]) == 0
    return path


def test_generated_pairs_agree_with_their_files_and_labels(logic: Path, tmp_path: Path) -> None:
    seen = {}
    for part, size in (("train", 40), ("test", 10)):
        files = [lines(logic / f"{part}{number}") for number in range(13)]
        for number, found in enumerate(files):
            assert len(found) == size or number == 0
            for label, *pair in found:
                left, right = map(parse, pair)
                assert relation(left, right) == label
                assert max(left.operators, right.operators) == number
                assert len(set("abcdef") & {*" ".join(pair).split()}) <= 4
        seen[part] = {frozenset(pair) for found in files for _, *pair in found}
    assert seen["train"].isdisjoint(seen["test"]), "in either order"
    # words alone: 6 * 7 / 2 pairs, which are all there are
    assert sum(len(lines(logic / f"{part}0")) for part in seen) == 21
    for seed in ("1", "2"):
        logical_inference.main(["--output", str(tmp_path / seed), *SIZES, "--seed", seed])
    assert contents(tmp_path / "1") == contents(logic)
    assert contents(tmp_path / "2")["train5"] != contents(logic)["train5"]


def test_splits_are_disjoint_and_training_has_at_most_six_operators(logic: Path) -> None:
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
        assert contents(tmp_path / "one")[file] == contents(tmp_path / "two")[file]


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
    made = contents(output)
    (output / "manifest.json").unlink()
    assert main(given) == 0
    assert contents(output) == made
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
    made = contents(output)
    other = ["--seed", "2"] if name == "train5" else ["--length-bounds", "4,8,12,15"]
    assert "is there, and not of this command" in refused(main, *given, *other)
    assert contents(output) == made


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
    ("train0", "=\ta\ta\n#\t( not a\tb\n", "line 2: a parenthesis is not closed"),
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
    published: Dict[str, bytes], tmp_path: Path, refused: Callable[..., str]
) -> None:
    arguments = ["--tasks", "SubjNum", "--output", str(tmp_path)]
    absent = senteval.ADDRESS.replace("good", "absent")
    assert senteval.main([*arguments, "--mirror", absent]) == 0
    assert senteval.read_task(tmp_path, "SubjNum")["train"][0].label == "NN"
    published.clear()
    assert senteval.main(arguments) == 0
    (tmp_path / FILE).write_text(f"{TEXT}te\tNN\tMore .\n", "utf-8")
    assert "{'tr': 1, 'va': 1, 'te': 2} lines" in refused(senteval.main, *arguments)


def test_another_file_than_the_published_one_is_not_kept(
    published: Dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    published[FILE] = b"tr\tNN\tIt .\n"
    assert senteval.main(["--tasks", "SubjNum", "--output", str(tmp_path)]) == 2
    assert f"where SentEval's {FILE} has" in capsys.readouterr().err
    assert not (tmp_path / FILE).exists()
