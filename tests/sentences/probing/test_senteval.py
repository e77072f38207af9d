"""SentEval's files: reading, errors of bad files, and downloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from capsnmt.sentences.probing import download
from capsnmt.sentences.probing.senteval import read_task
from capsnmt.sentences.probing.tasks import TASKS, ProbingTask

from capsnmt.cli import ConfigurationError

LINES = ["tr\tNN\tIt works .", "va\tNNS\tThey work .", "te\tNN\tWorks ."]


def write(folder: Path, *lines: str, name: str = "SubjNum") -> Path:
    path = folder / TASKS[name].file
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_file_is_read_by_the_tasks_name_and_split(tmp_path: Path) -> None:
    write(tmp_path, *LINES)
    splits = read_task(tmp_path, "SubjNum")
    found = {
        split: [(e.label, e.sentences) for e in examples] for split, examples in splits.items()
    }
    assert found == {
        "train": [("NN", ("It works .",))],
        "valid": [("NNS", ("They work .",))],
        "test": [("NN", ("Works .",))],
    }


def test_all_ten_tasks_have_the_papers_names_in_its_order() -> None:
    papers = "SeLen WC TrDep ToCo BShif Tense SubNm ObjNm SOMO CoIn"
    assert [task.paper for task in TASKS.values()] == papers.split()
    assert len({task.file for task in TASKS.values()}) == 10


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [*LINES, "tr NN no tabs"],
            "line 4: 0 tabs: a line is tr, va or te TAB label TAB sentence",
        ),
        ([*LINES, "tr\tNN\t "], "line 4: the sentence is empty"),
        ([*LINES, "tr\t\tIt ."], "line 4: the label is empty"),
        ([*LINES, "dev\tNN\tIt ."], "line 4: unknown split 'dev': give tr, va or te"),
        (LINES[:2], "no test split: no line begins with te"),
    ],
)
def test_a_bad_file_is_reported_in_one_line(lines: Any, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, *lines)
    with pytest.raises(ConfigurationError, match=message) as error:
        read_task(tmp_path, "SubjNum")
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_a_missing_or_binary_file_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"past_present\.txt: there is no such file, nor"):
        read_task(tmp_path, "Tense")
    (tmp_path / TASKS["WC"].file).write_bytes(b"tr\ta\tb\ntr\ta\t\xff\n")
    with pytest.raises(ConfigurationError, match="line 2: not UTF-8"):
        read_task(tmp_path, "WC")
    (tmp_path / f"{TASKS['SOMO'].file}.gz").write_bytes(b"no gzip")
    with pytest.raises(ConfigurationError, match="not a complete gzip file"):
        read_task(tmp_path, "SOMO")
    with pytest.raises(ConfigurationError, match="--probing-task: 'Length': choose from SentLen"):
        read_task(tmp_path, "Length")


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the address, with a task of three lines."""
    monkeypatch.setattr(download, "SIZES", {"tr": 1, "va": 1, "te": 1})
    monkeypatch.setattr(download, "RETRIES", 0)
    monkeypatch.setitem(TASKS, "SubjNum", ProbingTask("subj_number.txt", 2, "SubNm", "Semantic"))
    (tmp_path / "published").mkdir()
    write(tmp_path / "published", *LINES)
    return tmp_path / "published"


@pytest.fixture
def served(published: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The folder over HTTP."""
    import functools
    import http.server
    import threading

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(published))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(download, "ADDRESS", f"http://127.0.0.1:{server.server_port}/")
        yield download.ADDRESS
        server.shutdown()
        thread.join()


def test_a_file_is_downloaded_once_and_a_change_is_detected(
    served: str, published: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("pooch", reason="the extra 'data' is not installed here")
    folder = tmp_path / "data"
    arguments = ["--tasks", "SubjNum", "--output", str(folder)]
    assert download.main([*arguments, "--offline"]) == 2
    assert "--offline: " in capsys.readouterr().err
    assert download.main([*arguments, "--mirror", f"{served}absent/"]) == 0
    assert read_task(folder, "SubjNum")["train"][0].label == "NN"
    (published / "subj_number.txt").unlink()
    assert download.main([*arguments, "--offline"]) == 0
    write(folder, *LINES, "te\tNN\tMore .")
    assert download.main(arguments) == 2
    assert "has changed since it was downloaded" in capsys.readouterr().err


def test_a_failed_download_and_another_file_leave_nothing(
    served: str, published: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("pooch", reason="the extra 'data' is not installed here")
    folder = tmp_path / "data"
    arguments = ["--tasks", "SubjNum", "--output", str(folder)]
    write(published, *LINES[:2])
    assert download.main(arguments) == 2
    assert "where SentEval's subj_number.txt has" in capsys.readouterr().err
    assert not (folder / "subj_number.txt").exists()
    (published / "subj_number.txt").unlink()
    assert download.main([*arguments, "--mirror", f"{served}mirror/"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    both = f"{served}mirror/subj_number.txt (HTTPError), {served}subj_number.txt (HTTPError)"
    assert error.startswith(f"error: {both}: cannot be downloaded")
    assert not (folder / "subj_number.txt").exists()
    assert download.main(["--tasks", "X", "--output", str(folder)]) == 2
    assert "--tasks: 'X'" in capsys.readouterr().err
