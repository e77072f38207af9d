"""Launches by their real commands: complete, resumed, refused, one from another, side by side."""

import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import pytest
import torch

from capsnmt import records
from capsnmt.checkpoints.load import count_parameters
from capsnmt.checkpoints.resume import num_updates
from tests.interpreter import executable
from tests.launch.conftest import Launch
from tests.small_row import SMALL, arguments

pytestmark = pytest.mark.system

RARELY = ("--set", "train.save-interval-updates=1000")
# Small files that every start writes again.
REWRITTEN = ("config.json", "training.json", "commands.sh", "scores.json", "summary.json", ".lock")


def snapshot(folder: Path) -> Dict[str, int]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): path.stat().st_mtime_ns for path in files if path.name not in REWRITTEN}


def test_a_complete_run_is_left_as_it_is_and_only_what_was_lost_is_made_again(
    launch: Launch, words: List[str], run: Path, prepared: Path
) -> None:
    """tests/frozen/golden/launch.txt continues one to more updates."""
    before = snapshot(run)
    for same in ("train.lr=5e-3", "train.amp=false"):  # a number, and no flag, written otherwise
        assert launch(*words, "--set", same).count(": complete") == 4
    assert launch(*words).count(": complete") == 4
    assert records.load(run / "config.json")["command"] == ["capsnmt-run", *words]
    recorded = (run / "config.json").read_text("utf-8")
    trained = num_updates(run / "checkpoints" / "checkpoint_last.pt")
    for more in ([], ["--jobs", "2"]):
        refused = launch(*words, "--max-update", "2", *more, status=2)
        assert f"already has {trained} updates, more than the 2" in refused
        assert f"give --set train.max-update={trained} or more" in refused
    # it would be in the mean of seeds whose averages are of such checkpoints
    refused = launch(*words, "--set", "train.save-interval-updates=2", status=2)
    assert "was trained with train.save-interval-updates 1, not 2; give another --name" in refused
    assert (run / "config.json").read_text("utf-8") == recorded
    assert snapshot(run) == before

    # as the run's own record says, not the row: that has four updates
    (run / "generate-news.txt").unlink()
    again = launch("--resume", run)
    assert f"-- train: complete at {trained} updates" in again
    assert "-- generate news\n" in again
    assert (run / "generate-news.txt").is_file()
    assert again.count(": complete") == 2  # of the training and the average

    # data beside the row are those of a run that was moved; a path that is given is meant
    shutil.copytree(prepared, run.parents[1] / "data")
    words[words.index(str(prepared))] = str(prepared.with_name("typo"))
    assert "typo has no prepared data" in launch(*words, "--set", "train.max-epoch=2", status=2)


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--set", "train.max-epoch=2"),
        # fairseq saves no epoch but the third, and so not the last one
        ("--set", "train.max-epoch=2", "--set", "train.save-interval=3", *RARELY),
    ],
    ids=["over", "goes on", "ends between two saves"],
)
def test_the_launcher_of_a_training_loads_one_checkpoint(
    more: Tuple[str, ...], launch: Launch, words: List[str], run: Path, monkeypatch: Any
) -> None:
    """With Adam it is three times as large as the model. The model is that of the last update."""
    loaded, load = [], torch.load
    monkeypatch.setattr(torch, "load", lambda *args, **by: loaded.append(0) or load(*args, **by))
    assert ("-- train: resuming at" in launch(*words, *more)) == bool(more)
    assert len(loaded) == 1
    record = records.load(run / "training.json")
    assert record["updates"] == num_updates(run / "checkpoints" / "checkpoint_last.pt")
    assert record["parameters"] == count_parameters(run / "averaged.pt")
    if more:
        fewer = launch(*words, status=2)
        assert "has 2 epochs, more than the 1 asked for; give --set train.max-epoch=2" in fewer


@pytest.mark.parametrize("cut", [False, True])
def test_a_finished_training_whose_checkpoints_were_deleted_is_not_repeated(
    launch: Launch, words: List[str], run: Path, cut: bool
) -> None:
    """Its average is evaluated; what needs the checkpoints is refused, and changes nothing."""
    (run / "checkpoints" / "checkpoint_last.pt").unlink()
    if cut:  # as a copy that filled a disk
        shutil.rmtree(run / "checkpoints")
        (run / "checkpoints").mkdir()
        (run / "checkpoints" / "checkpoint_last.pt").write_bytes(b"PK")
        assert launch(*words).count(": complete") == 4
    before = snapshot(run)
    assert launch(*words).count(": complete") == 4
    for more in (["train.max-epoch=2"], ["average.last-updates=2"], ["average=null"]):
        assert "has no checkpoints" in launch(*words, "--set", *more, status=2)
    assert snapshot(run) == before

    (run / "generate-news.txt").unlink()
    assert launch(*words).count(": complete") == 2
    assert (run / "generate-news.txt").is_file()
    for lost in (b"another model", None):
        (run / "averaged.pt").unlink()
        if lost:
            (run / "averaged.pt").write_bytes(lost)
        assert "has no checkpoints" in launch(*words, status=2)
    assert (run / "scores.json").is_file()


def test_a_training_goes_on_from_a_checkpoint_of_its_own_with_all_its_state(
    launch: Launch, words: List[str], run: Path
) -> None:
    """From a model alone, fairseq would begin at update 0 with its weights."""
    last = run / "checkpoints" / "checkpoint_last.pt"
    whole = last.read_bytes()
    shutil.copy(run / "averaged.pt", last)
    said = launch(*words, "--set", "train.max-epoch=2", status=2)
    assert f"{last} has no state of the optimizer, and the training is to go on" in said
    last.write_bytes(whole)
    launch(*words, "--seeds", "2")
    shutil.copy(run.with_name("seed-2") / "checkpoints" / last.name, last)
    assert f"{last} is of a training with seed 2, not 1; restore" in launch(*words, status=2)


def test_a_training_that_has_lost_its_record_is_refused_until_its_checkpoints_are_gone(
    launch: Launch, words: List[str], run: Path
) -> None:
    for lost in ("training.json", "config.json"):
        kept = (run / lost).rename(run / "kept")
        said = launch(*words, status=2)
        assert f"{run / lost}: cannot be read: No such file or directory; check it, or rest" in said
        kept.rename(run / lost)
    for lost in ("training.json", "config.json"):
        (run / lost).unlink()
    shutil.rmtree(run / "checkpoints")
    (run / "train.log").write_text("of the training before\n", "utf-8")
    del words[(at := words.index("--threads")) : at + 2]
    assert "-- train: 1,000 updates" in launch(*words)
    assert "before" not in (run / "train.log").read_text("utf-8")
    # known though no flag chose them: rows of other OMP_NUM_THREADS had a ratio of their speeds
    assert records.load(run / "training.json")["threads"] == torch.get_num_threads()


def test_a_training_that_is_killed_may_have_had_too_little_memory(
    launch: Launch, words: List[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = executable(tmp_path / "python", "#!/bin/sh\nkill -9 $$\n")
    monkeypatch.setattr(sys, "executable", str(python))
    said = launch(*words, status=1)
    assert "train failed with signal 9 (probably out of memory: give a smaller batch.max-" in said


@pytest.mark.parametrize("more", ["train.max-epoch=2", "average.last-updates=99"])
def test_an_average_is_not_that_of_more_updates_or_checkpoints_which_failed(
    more: str, launch: Launch, words: List[str], run: Path
) -> None:
    longer = more.startswith("train")
    if longer:
        (run / "averaged.pt.part").mkdir()  # it cannot be written
    assert "error: average failed" in launch(*words, "--set", more, status=1)
    shutil.rmtree(run / "checkpoints")
    assert "has no checkpoints" in launch(*words, "--set", more, status=2)
    assert longer or launch(*words).count(": complete") == 4


def test_scores_of_other_settings_and_texts_are_gone_before_those_of_the_new_are_made(
    launch: Launch, words: List[str], run: Path, prepared: Path, tmp_path: Path
) -> None:
    model = "generate.lm-path={}".format
    said = launch(*words, "--set", model(tmp_path / "lm.pt"), status=2)
    assert f"generate.lm-path: {tmp_path / 'lm.pt'} is not there" in said
    assert (run / "scores.json").exists()
    (tmp_path / "lm.pt").write_text("no checkpoint", "utf-8")
    launch(*words, "--set", model(tmp_path / "lm.pt"), status=1)
    assert not (run / "scores.json").exists()
    launch(*words)
    text = (prepared / "raw" / "news.de").read_text("utf-8")
    data = shutil.copytree(prepared, tmp_path / "data")
    (data / "raw" / "news.de").write_text(text.replace(" ", "@@ "), "utf-8")
    launch(*words, "--prepared", data, status=1)
    assert not (run / "scores.json").exists()
    launch(*words, "--set", "score.metrics=bleu,chrf")
    scored = records.load(run / "scores.json")["news"]["systems"][0]["outputs"][0]["scores"]
    assert {"bleu", "chrf"} <= {*scored}
    assert not {"ter", "chrf++"} & {*scored}
    assert "'x' is unknown; choose" in launch(*words, "--set", "score.metrics=x", status=2)


def test_a_run_on_a_gpu_is_not_resumed_without_one(
    launch: Launch, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fairseq would use the CPU without a word."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    config = records.load(run / "config.json")
    config["device"]["gpus"] = 1
    (run / "config.json").write_text(json.dumps(config), "utf-8")
    assert launch("--resume", run).count(": complete") == 4
    for path in (run / "training.json", *(run / "checkpoints").glob("*.pt")):
        path.unlink()
    assert "--gpus is 1, but torch can use none" in launch("--resume", run, status=2)


def test_gpus_and_a_tokeniser_that_this_machine_has_not_are_refused(
    launch: Launch, words: List[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    japanese = ["--config", "multi30k/baseline", "--cpu", "--set", "data.target-lang=ja"]
    assert "pip install 'sacrebleu[ja]'" in launch(*japanese, status=2)
    for count, found in ((0, "none of"), (1, "1 of this machine; give --gpus 1..1")):
        monkeypatch.setattr("torch.cuda.device_count", lambda count=count: count)
        refused = launch("--config", "multi30k/baseline", "--gpus", 2, status=2)
        assert f"--gpus is 2, but torch can use {found}" in refused
    # those of several nodes are not of this machine
    row = [*words[:2], "--prepared", tmp_path, "--gpus", 2, "--nodes", 2]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "--nodes is 2, but srun is not on PATH; give --slurm" in launch(*row, status=2)
    executable(tmp_path / "srun", "#!/bin/sh\n")
    assert "has no prepared data" in launch(*row, status=2)


def test_data_that_differ_from_the_settings_or_are_not_whole_are_refused(
    launch: Launch, words: List[str], prepared: Path, tmp_path: Path
) -> None:
    overrides = "generate.model-overrides=\"{'max_source_positions': 6}\""
    for assignment, message in (
        ("data.test-sets.old.2014=test1", "data.test-sets.old.2014 is not in the data"),
        ("data.test-sets.news=test1", "data.test-sets.news is test1, but test in "),
        ("data.target-lang=fr", "news.fr"),
        ("train.max-source-positions=6", "news: line 1 has 7 subwords in en"),
        ("generate.max-target-positions=6", "the 6 of generate.max-target-positions; set that to"),
        ("generate.max-tokens=6", "more than the 6 of generate.max-tokens; set that to 7, or"),
        ("train.max-tokens-valid=6", "more than the 6 of train.max-tokens-valid"),
        ("batch.max-tokens=6", "error: valid: line 2 has 8 subwords in en"),
        ("generate.model-overrides='{1'", "generate.model-overrides is '{1'; give"),
        (overrides, "more than the 6 of generate.model-overrides; set that to 7, or"),
    ):
        assert message in launch(*words, "--set", assignment, status=2)
    # as a copy that was cut off, or a folder of which something was deleted
    data = shutil.copytree(prepared, tmp_path / "data")
    words += ["--prepared", str(data)]
    for name, cut, message in (
        ("bin/dict.en.txt", None, "bin/dict.en.txt: there is no such dictionary; restore it"),
        ("bin/train.en-de.de.idx", None, "train.*.de.bin and .idx are not there, or are cut; res"),
        ("bin/train.en-de.en.idx", 0, "train.*.en.bin and .idx are not there, or are cut"),
        ("bin/train.en-de.en.idx", 12, "train.*.en.bin and .idx are not there, or are cut"),
        ("bin/valid.en-de.de.idx", 40, "valid.*.de.bin and .idx are not there, or are cut"),
        ("bin/valid.en-de.de.bin", None, "valid.*.de.bin and .idx are not there, or are cut"),
        ("bin/test.en-de.en.bin", -1, "test.*.en.bin and .idx are not there, or are cut"),
        ("raw/news.de", 30, "raw/news.de has 1 lines, but news is of 8 sentences; restore it"),
    ):
        whole = (data / name).read_bytes()
        (data / name).unlink()
        if cut is not None:
            (data / name).write_bytes(whole[:cut])
        assert message in launch(*words, status=2)
        (data / name).write_bytes(whole)
    manifest = records.load(data / "manifest.json")
    manifest["segmentation"] = {"method": "sentencepiece"}
    (data / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    refused = launch(*words, status=2)
    assert f"score.remove-bpe is subword_nmt, but {data} has subwords of sentencepiece" in refused
    assert not list((tmp_path / "runs").rglob("config.json"))


def test_data_that_were_replaced_while_a_model_was_trained_are_not_translated_with_it(
    launch: Launch,
    words: List[str],
    prepared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = shutil.copytree(prepared, tmp_path / "data")
    dictionary = shlex.quote(str(data / "bin" / "dict.en.txt"))
    replaces = f'case "$*" in *capsnmt.launch.train*) echo x 1 >>{dictionary} ;; esac'
    script = f'#!/bin/sh\n{shlex.quote(sys.executable)} "$@" && {replaces}\n'
    monkeypatch.setattr(sys, "executable", str(executable(tmp_path / "python", script)))
    said = launch(*words, "--prepared", data, status=2)
    assert "was trained with data: dict.en.txt " in said
    assert "meanwhile; restore it" in said
    assert not list((tmp_path / "runs").rglob("generate-*"))


def test_a_row_starts_from_the_trained_other(
    launch: Launch, words: List[str], launched: Path, tmp_path: Path
) -> None:
    words[1] = str(tmp_path / "started.yaml")
    started = "extends: row\ninit-from: row\ntrain: {activation-fn: gelu}\n"
    Path(words[1]).write_text(started, "utf-8")
    base, run = (tmp_path / "runs" / name / "seed-1" for name in ("row", "started"))
    refused = launch(*words, status=2)
    assert f"init-from row has no finished run in {base} with the same" in refused
    assert f"init-from row has no run in {base}: the plan takes" in launch(*words, "--dry-run")

    shutil.copytree(launched / "runs" / "row", base.parent)
    (base / "averaged.pt").rename(tmp_path / "away.pt")
    assert "averaged.pt, which init-from starts from, is not there" in launch(*words, status=2)
    (tmp_path / "away.pt").rename(base / "averaged.pt")
    (base / "scores.json").rename(tmp_path / "away.json")  # as of one that goes on for longer
    assert "or not yet trained to its end" in launch("--resume", run, status=2)
    (tmp_path / "away.json").rename(base / "scores.json")
    said, before = launch(*words), num_updates(base / "averaged.pt")
    assert f"initialised from row (up to {before} updates), trained for" in said
    warned = f"{base / 'averaged.pt'}: it was trained with --activation-fn relu, and now it is gelu"
    assert said.count(f"  warning: --init-from {warned}") == 1
    assert "tensors loaded" in (run / "console.log").read_text("utf-8")
    initial = records.load(run / "training.json")["initial"]
    assert (initial["row"], initial["updates"]) == ("row", before)
    assert initial["checkpoint"] == str(base / "averaged.pt")
    # the other was trained again, as in a folder that was deleted
    kept = (base / "averaged.pt").rename(tmp_path / "away.pt")
    shutil.copy(base / "checkpoints" / "checkpoint_last.pt", base / "averaged.pt")
    replaced = f"warning: {run} started from another model of row than {base / 'averaged.pt'} is"
    assert replaced in launch(*words)
    kept.rename(base / "averaged.pt")
    assert replaced not in launch(*words)
    other = launch(*words, "--set", "average=null", "--dry-run")
    assert f"--init-from {shlex.quote(str(base / 'averaged.pt'))}" in other
    (base / "averaged.pt").unlink()
    assert launch("--resume", run).count(": complete") == 4
    summary = records.load(run.parent / "summary.json")
    assert (summary["init-from"], summary["initial-updates"]) == ("row", before)


def test_a_run_is_resumed_from_inside_its_folders(
    launch: Launch, launched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tested against the row beside it, and its means are written."""
    for name in ("row", "base"):
        shutil.copytree(launched / "runs" / "row", tmp_path / name)
    run = tmp_path / "row" / "seed-1"
    config = {**records.load(run / "config.json"), "baseline": "base"}
    (run / "config.json").write_text(json.dumps(config), "utf-8")
    (run.parent / "summary.json").unlink()
    monkeypatch.chdir(run / "checkpoints")
    assert launch("--resume", "..").count(": complete") == 3
    assert "base" in json.dumps(records.load(run / "scores.json")["news"])
    assert records.load(run.parent / "summary.json")["seeds"] == [1]
    shutil.rmtree(tmp_path / "base")  # archived: the scores are those of a finished run still
    refused = launch("--resume", "..", status=2)
    assert "generate-news.txt, which the scores are made of, is not there" in refused
    assert (run / "scores.json").is_file()


@pytest.mark.parametrize("flag", ["--output", "--prepared"])
def test_a_run_of_the_working_folder_is_the_same_by_any_path(
    flag: str, launch: Launch, words: List[str], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``--output .`` it was scored, with ``--prepared .`` translated, and submitted again."""
    shutil.copytree(run.parent, run.parents[1] / "base")
    launch(*words, "--baseline", "base")
    place = words.index(flag) + 1
    monkeypatch.chdir(words[place])
    words[words.index("--output") + 1] = os.path.relpath(run.parents[1])
    words[place] = "."
    assert launch(*words, "--baseline", "base").count(": complete") == 4


def test_runs_side_by_side_are_those_of_one_after_another(
    launch: Launch, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline comes first, then the others at once."""
    monkeypatch.chdir(tmp_path)
    configs = tmp_path / "configs" / "tiny"
    configs.mkdir(parents=True)
    (configs / "baseline.yaml").write_text(f"{SMALL}paper: {{}}\n", "utf-8")
    for name, rate in (("one", 0.01), ("two", 0.02)):
        text = f"extends: baseline\ntrain: {{lr: {rate}}}\n"
        (configs / f"{name}.yaml").write_text(text, "utf-8")
    rows = ["--dataset", "tiny", "--rows", "all", "--baseline", "baseline"]
    words = [*rows, *arguments(prepared, tmp_path)[2:], "--set", "score.samples=20"]
    said = [line for line in launch(*words, "--jobs", "2").splitlines() if line[:2] == "=="]
    first = said.index("== baseline, seed 1: done")
    assert [line.partition(",")[0] for line in said[:first]] == ["== baseline"]
    assert [line.partition(",")[0] for line in said[first + 1 : first + 3]] == ["== one", "== two"]
    assert all("started" in line for line in said[first + 1 : first + 3])
    scores = records.load(tmp_path / "runs" / "two" / "seed-1" / "scores.json")
    assert "baseline" in json.dumps(scores["news"])
    assert records.load(tmp_path / "runs" / "two" / "summary.json")["seeds"] == [1]
    assert launch(*words).count(": complete") == 3 * 3

    # what is tested against a run that failed is not trained for nothing; the others end
    lost = [*words, "--output", tmp_path / "lost", "--set", "train.decoder-embed-path=nothing"]
    said = launch(*lost, "--jobs", "2", status=1)
    for name in ("one", "two"):
        assert f"== {name}, seed 1: not started, as baseline, seed 1 failed" in said
        assert not (tmp_path / "lost" / name).exists()
    assert said.endswith(": failed: see launch.log in the run's folder\n")
    assert said.count("failed with exit status 1") == 1
    log = (tmp_path / "lost" / "baseline" / "seed-1" / "launch.log").read_text("utf-8")
    assert "error: train failed with exit status 1" in log


# in place of the interpreter: a run that starts, notes its GPUs, waits for the others, and fails
CHILD = """#!/bin/sh
cd RUNS
echo "$CUDA_VISIBLE_DEVICES" >"gpus-$$"
for _ in $(seq 600); do test "$(ls | grep -c gpus)" -lt COUNT || break; sleep 0.1; done
test "$(ls | grep -c gpus)" -ge COUNT || echo alone >"gpus-$$"
sleep 0.5
echo >"ended-$$"
exit 1
"""


@pytest.fixture
def children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """``children(COUNT)`` replaces the processes of runs, of which COUNT run at once."""

    def replace(count: int) -> Path:
        notes, python = tmp_path / "notes", tmp_path / "python"
        notes.mkdir()
        executable(
            python, CHILD.replace("RUNS", shlex.quote(str(notes))).replace("COUNT", str(count))
        )
        monkeypatch.setattr(sys, "executable", str(python))
        return notes

    return replace


@pytest.mark.parametrize(
    ("visible", "each", "expected"),
    [
        (None, 1, {"0", "1"}),
        ("5,GPU-7,2,3", 2, {"5,GPU-7", "2,3"}),
        ("5,6,7", 2, {"5,6", "7,5"}),
        ("6", 1, {"6"}),
    ],
)
def test_runs_side_by_side_have_gpus_of_their_own(
    visible: Optional[str],
    each: int,
    expected: Set[str],
    launch: Launch,
    words: List[str],
    children: Callable[[int], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of those that the launcher sees; where they do not suffice, they are shared."""
    notes = children(2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = 4 if visible is None else visible.count(",") + 1
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    words.remove("--cpu")
    launch(*words, "--gpus", each, "--seeds", "1,2", "--jobs", "2", status=1)
    assert {path.read_text("utf-8").strip() for path in notes.glob("gpus-*")} == expected


def test_a_finished_training_goes_on_in_another_process_and_has_its_mean_beside_one_that_failed(
    launch: Launch, words: List[str], run: Path
) -> None:
    """As a job: config.json has its new end before it has gone on."""
    first = records.load(run / "training.json")["updates"]
    (run.parent / "summary.json").unlink()
    (run.with_name("seed-2") / "generate-news.txt" / "in the way").mkdir(parents=True)
    longer = ["--set", "train.max-epoch=2", "--seeds", "1,2", "--jobs", "2"]
    assert "error: row, seed 2: failed: see launch.log" in launch(*words, *longer, status=1)
    assert "-- train: resuming at" in (run / "launch.log").read_text("utf-8")
    assert records.load(run / "training.json")["updates"] == 2 * first
    assert records.load(run.parent / "summary.json")["seeds"] == [1]


@pytest.mark.usefixtures("run")
def test_a_run_that_is_refused_ends_none_of_those_beside_it(
    launch: Launch, words: List[str], children: Callable[[int], Path]
) -> None:
    notes, other = children(1), ("--set", "train.lr=0.1")
    said = launch(*words, *other, "--seeds", "2,1", "--jobs", "2", status=2)
    assert "== row, seed 1: not started: " in said
    assert said.splitlines()[-1].startswith("error: ")
    assert "was trained with train.lr 0.005, not 0.1" in said.splitlines()[-1]
    assert list(notes.glob("ended-*"))
    assert "== row, seed 2: failed with exit status 1" in said
