"""``results/`` holds what its scores say: the kept translations are scored again."""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Dict
from unittest.mock import patch

import pytest
import sacrebleu

from capsnmt.cli import ConfigurationError
from capsnmt.corpora.prepared import PreparedData
from capsnmt.evaluation.text import moses_detokenizer
from capsnmt.files import sha256
from capsnmt.runs.finished import FinishedRun
from capsnmt.runs.records import RunFolder
from scripts.results import facts, find_runs, keep, reckon, state
from tests.commands import command, is_refusal, succeed
from tests.real_data import real_data
from tests.report.finished_runs import TEST_SET, TRANSLATIONS, edit, edit_scores, write_run
from tests.support import REPO

REFERENCES = {
    "multi30k_lowercase/test_2016_flickr": "multi30k_lowercase/test.2016.de.gz",
    "multi30k_lowercase/test_2017_flickr": "multi30k_lowercase/test.2017.de.gz",
}
CARDS = sorted(REPO.glob("results/*/*/seed-*/README.md"))
# LibreOffice's text is not at hand
KEPT = sorted(path.parent for path in REPO.glob("results/multi30k_lowercase/*/seed-*/config.json"))


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: "-".join(folder.parts[-3:]))
def test_kept_translations_have_the_kept_scores(folder: Path) -> None:
    scores = json.loads((folder / "scores.json").read_text("utf-8"))
    target = RunFolder(folder).read_config().settings.languages[1]
    assert scores
    for name, document in scores.items():
        path = real_data(REFERENCES[f"{folder.parts[-3]}/{name}"])
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            reference = [line.rstrip("\n").replace("@@ ", "") for line in stream]
        lines = (folder / f"{name}.{target}").read_text("utf-8").splitlines()
        published = next(each for each in document["systems"] if each["name"] == folder.parts[-2])
        bleu = sacrebleu.corpus_bleu(lines, [reference], tokenize="none", force=True)
        assert bleu.score == pytest.approx(
            published["outputs"][0]["scores"]["multi-bleu"]["score"], abs=1e-6
        )
        compared = folder / "differences.json"
        if compared.exists():
            document = json.loads(compared.read_text("utf-8"))[name]
            baseline, own = (each["outputs"][0]["scores"]["bleu"] for each in document["systems"])
            assert own["score"] == published["outputs"][0]["scores"]["bleu"]["score"]
            assert own["delta"] == own["score"] - baseline["score"]


def test_a_finished_run_leaves_its_translations_curves_and_facts(tmp_path: Path) -> None:
    runs, kept = tmp_path / "runs", tmp_path / "results" / "lines" / "baseline" / "seed-1"
    row, other = TRANSLATIONS
    write_run(runs, row, baseline=None)
    (run,) = find_runs(runs)
    keep(run, kept)
    assert (kept / f"{TEST_SET}.de").read_text("utf-8").splitlines() == [
        line.replace("@@ ", "") for line in TRANSLATIONS[row]
    ]
    facts: Dict = json.loads((kept / "facts.json").read_text("utf-8"))
    assert (facts["updates"], facts["ended-by"]) == (40, "max-update 40")
    assert facts["best-valid-loss"] == {"loss": 7.25, "update": 40}
    assert (kept / "valid-loss.tsv").read_text("utf-8") == "update\tloss\n20\t9.125\n40\t7.25\n"
    assert (kept / "train.log").read_bytes() == (run.path / "train.log").read_bytes()

    log = (run.path / "train.log").read_text("utf-8")
    # as --disable-validation leaves it
    (run.path / "train.log").write_text(log.replace("valid_loss", "unknown"), "utf-8")
    keep(run, kept)
    assert json.loads((kept / "facts.json").read_text("utf-8"))["best-valid-loss"] is None

    (run.path / "train.log").write_text(log, "utf-8")
    keep(run, kept)  # the same again
    config = (kept / "config.json").read_text("utf-8")
    (kept / "config.json").write_text(
        config.replace('"max-update": 40', '"max-update": 50'), "utf-8"
    )
    before = {path: path.read_bytes() for path in kept.iterdir()}
    for folder in (kept, kept.with_name("seed-2")):
        with pytest.raises(
            ConfigurationError, match=r"has train\.max-update 40, but .* has 50; keep"
        ):
            keep(run, folder)
    assert before == {path: path.read_bytes() for path in kept.iterdir()}
    assert not kept.with_name("seed-2").exists()

    write_run(runs, other, baseline=row)
    (runs / "a" / "seed-1").mkdir(parents=True)
    (runs / "a" / "seed-1" / "config.json").touch()
    first, begun, second = find_runs(runs)  # what others are compared with comes first
    assert first.path == run.path
    assert state(begun) == "begun"
    begun.train_log.write_text('{"loss": "8", "num_updates": "1200"}\n', "utf-8")
    assert state(begun) == "at update 1,200"
    elsewhere = command("scripts.results", run.path.parent, "--keep", tmp_path / "results")
    is_refusal(elsewhere.returncode, elsewhere.stderr, "has no finished run", "all rows")
    keep(second, beside := kept.parents[1] / other / "seed-1")
    reckon(kept.parents[1], PreparedData(runs / "data"))
    compared = json.loads((kept.parents[1] / "comparisons.json").read_text("utf-8"))
    assert [(x["system"], x["seeds"]) for x in compared[TEST_SET]] == [(other, [1, 1])] * 2
    found, scored = (
        json.loads((beside / name).read_text("utf-8"))[TEST_SET]["systems"][1]["outputs"][0]
        for name in ("differences.json", "scores.json")
    )
    assert found["scores"]["bleu"]["delta"] == scored["scores"]["bleu"]["delta"] != 0
    assert f"{scored['scores']['multi-bleu']['score']:.2f}" in state(second)
    edit_scores(second.path, lambda scores: [scores.pop(key) for key in ("multi-bleu", "chrf")])
    bleu = scored["scores"]["bleu"]["score"]
    assert state(second) == f"finished, BLEU: {TEST_SET} {bleu:.2f}"

    (runs / "data" / "raw" / f"{TEST_SET}.de").write_text("x\n", "utf-8")
    with pytest.raises(ConfigurationError, match="was scored with another reference"):
        reckon(kept.parents[1], PreparedData(runs / "data"))


def test_a_kept_model_keeps_its_words(launched: Path, tmp_path: Path) -> None:
    keeping = ["--keep", tmp_path / "kept", "--models", "row/seed-1"]
    for _ in range(2):
        succeed("scripts.results", launched / "runs", *keeping)
    dictionary = tmp_path / "kept" / "tiny" / "data" / "bin" / "dict.en.txt"
    dictionary.write_text("of another 1\n", "utf-8")
    other = command("scripts.results", launched / "runs", *keeping)
    is_refusal(other.returncode, other.stderr, f"{dictionary} is of another model")
    assert dictionary.read_text("utf-8") == "of another 1\n"


def test_what_was_kept_in_part_is_kept_again(tmp_path: Path) -> None:
    run = RunFolder(write_run(tmp_path / "runs", "baseline"))
    kept = tmp_path / "lines" / "baseline" / "seed-1"
    for _ in range(2):  # also in place of an earlier one
        cut = patch("shutil.copyfile", side_effect=KeyboardInterrupt)
        with cut, pytest.raises(KeyboardInterrupt):
            keep(run, kept)
        assert not RunFolder(kept).exists
        keep(run, kept)
    assert FinishedRun(kept).training == FinishedRun(run.path).training


@pytest.mark.parametrize(
    ("train", "updates", "reason"),
    [
        ({"max-update": 43, "patience": 9}, 43, "max-update 43"),
        ({"max-update": 99, "max-epoch": 2}, 43, "max-epoch 2"),
        ({"max-update": 99, "max-epoch": 3, "patience": 9}, 43, "patience 9"),
        ({"stop-min-lr": 0.1}, 43, "stop-min-lr 0.1"),
    ],
)
def test_a_training_ends_by_updates_or_epochs_not_by_entries_of_its_log(
    train: Dict[str, float], updates: int, reason: str, tmp_path: Path
) -> None:
    run = RunFolder(write_run(tmp_path, "baseline"))
    edit(run.config, lambda config: config["settings"].update(train=train))
    valid = '{"epoch": 2, "valid_loss": "7", "valid_num_updates": "%d"}\n'
    end = '{"epoch": 2, "train_loss": "7", "train_num_updates": "43"}\n'
    with open(run.train_log, "a", encoding="utf-8") as log:
        log.write("".join(valid % update for update in (41, 42)) + end)
    found = facts(FinishedRun(run.path))
    assert (found["updates"], found["ended-by"]) == (updates, reason)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.parts[-3])
def test_a_model_of_the_project_translates_raw_text_as_when_it_was_scored(card: Path) -> None:
    with gzip.open(real_data("multi30k/test_2016_flickr.en.gz"), "rt", encoding="utf-8") as stream:
        raw = "".join(islice(stream, 10))
    kept = (card.parent / "test_2016_flickr.de").read_text("utf-8").splitlines()[:10]
    detokenise = moses_detokenizer("de")
    translated = succeed("capsnmt.translate", "/".join(card.parts[-4:-2]), stdin=raw).splitlines()
    assert translated == [detokenise(line) for line in kept]
    assert f"`{sha256(card.with_name('averaged.pt'))}`" in card.read_text("utf-8")
