"""A report has the numbers of the records, and says what a reader must know.

``tests/frozen`` has whole pages: of seeds, a sweep and classifiers (``reports``), of a training
(``report``).
"""

import csv
import html
import json
import re
import shutil
from pathlib import Path
from random import Random
from typing import Any, Callable, Dict, List, Sequence

import pytest

from capsnmt.cli import ConfigurationError
from capsnmt.evaluation.__main__ import main as evaluate
from capsnmt.evaluation.scores import METRICS
from capsnmt.files import sha256
from capsnmt.report import __main__ as report
from capsnmt.report.translation_runs import analysis_of
from capsnmt.runs.finished import FinishedRun, find_runs
from capsnmt.runs.trained_rows import find_sweeps
from tests.report import finished_runs
from tests.report.finished_runs import (
    REFERENCES,
    SENTENCES,
    TRANSLATIONS,
    edit,
    edit_scores,
    page,
    put,
    rows_of,
    runs,
    scores_of,
    seeds,
    write_classifiers,
    write_generated,
    write_run,
    write_swept,
)

RUN = "em_routing/seed-1"


def test_every_number_is_that_of_scores_json(output: Path) -> None:
    # as of a metric that scores segments
    comet = {"score": 0.75, "signature": "nsegs:30", "p_value": 0.02, "delta": -0.25}
    for row in TRANSLATIONS:
        edit_scores(output / row / "seed-1", lambda scores: scores.update(COMET=comet))
    folder = output / "report"
    assert report.main([*runs(output), "--output", str(folder), "--samples", "0"]) == 0
    content = (folder / "report.md").read_text("utf-8").partition("## Scores")[2]
    header, *rows = rows_of(content, "system")
    with (folder / "scores.csv").open(encoding="utf-8") as file:
        lines = {(line["row"], line["metric"]): line for line in csv.DictReader(file)}
    for row, cells in zip(TRANSLATIONS, rows):
        found = scores_of(output / row / "seed-1")
        assert {metric for name, metric in lines if name == row} == {
            *("parameters", "tokens_per_second"),
            *found,
        }
        for metric, score in found.items():
            line = lines[row, metric]
            assert [float(line[key]) for key in ("score", "delta", "p_value") if line[key]] == [
                score[key] for key in ("score", "delta", "p_value") if key in score
            ]
            shown = f"{score['score']:.{4 if metric == 'COMET' else 2}f}"
            assert cells[header.index(METRICS.get(metric, metric))] == shown
            assert f": `{score['signature']}`\n" in content


@pytest.mark.parametrize("rows", [[*TRANSLATIONS], ["em_routing"]])
def test_a_metric_that_a_run_was_not_scored_by_is_left_out(output: Path, rows: List[str]) -> None:
    """As chrF++ of Chinese; an older version has it."""
    for row in rows:
        edit_scores(output / row / "seed-1", lambda scores: scores.pop("chrf++"))
    content = page(runs(output))
    assert "chrF2" in content
    assert "chrF2++" not in content


def train_longer(run: Path) -> None:
    with open(run / "train.log", "a", encoding="utf-8") as log:
        log.write('{"loss": "6", "num_updates": "50", "wall": "60"}\n')


def retokenise(scores: Any) -> None:
    scores["bleu"]["signature"] = scores["bleu"]["signature"].replace("tok:13a", "tok:none")


EARLIER = {"device": "GPU", "device-name": "H100", "versions": {"torch": "2.5.1"}, "updates": 2}


def read_other_text(run: Path) -> None:
    for number, folder in enumerate((run, run.parents[1] / "baseline" / run.name)):
        put("training.json", "data", value={"train.en-de.de.bin": str(number)})(folder)


def prepare_again(run: Path) -> None:
    baseline = run.parents[1] / "baseline" / run.name
    put("config.json", "data", value=str(run.parents[1] / "data"))(baseline)
    put("training.json", "vocabulary", value={"dict.en.txt": "0"})(baseline)
    put("manifest.json", "files", "bin/dict.en.txt", value={"sha256": "1"})(run.parents[1] / "data")


def decode_otherwise(run: Path) -> None:
    put("config.json", "settings", "average", "last-updates", value=5)(run)
    put("config.json", "settings", "generate", value={"beam": 9, "batch-size": 1})(run)


INITIAL = {"row": "baseline", "checkpoint": "a.pt", "checksum": "0", "updates": 8000}
CHANGES: Dict[str, Callable[[Path], Any]] = {
    "em\\_routing: initialised from baseline (8,000 updates): `a.pt`.": put(
        "training.json", "initial", value=INITIAL
    ),
    "**Not trained equally long:** 40 to 50 updates.": train_longer,
    "**Not comparable:** the systems have different signatures of BLEU on test.": (
        lambda run: edit_scores(run, retokenise)
    ),
    "**Not comparable:** the systems have different signatures of multi-bleu on test.": (
        lambda run: edit_scores(run, lambda x: x["multi-bleu"].update(signature="text:as-given"))
    ),
    "**Not comparable:** the systems have different dictionaries.": (
        put("training.json", "vocabulary", "x", value="1")
    ),
    "**Not comparable:** the systems have different training or validation texts.": read_other_text,
    "different average.last-updates (baseline 2; em\\_routing 5), generate.beam (baseline None;": (
        decode_otherwise
    ),
    "**Not comparable:** the systems have different batch.tokens-per-update (baseline 100; em\\_": (
        put("config.json", "settings", "batch", "tokens-per-update", value=200)
    ),
    "| em\\_routing | train.dropout – → 0.3; train.lr 0.1 → 0.5 |": (
        put("config.json", "settings", "train", value={"max-update": 40, "lr": 0.5, "dropout": 0.3})
    ),
    "**Not the data of the training:** they were prepared again since.": prepare_again,
    "BLEU is sacreBLEU of the words as they are translated, without a detokeniser. Δ": (
        put("config.json", "settings", "score", "detokenize", value="none")
    ),
    "No difference was tested: a translation or reference is missing, or is not what was scored.": (
        lambda run: (run / "generate-test.txt").unlink()
    ),
    "| torch | 2.13.0, 2.5.1 |": put("training.json", "earlier", value=[EARLIER]),
    "2 cores); GPU (H100).": put("training.json", "earlier", value=[EARLIER]),
    "| torch | 2.13.0, 3 |": put("training.json", "versions", "torch", value="3"),
    "| torch | 2.13.0, 4 |": put("scores.json", "test", "versions", "torch", value="4"),
}


@pytest.fixture(scope="module")
def unchanged(finished: Path) -> str:
    return page(runs(finished))


@pytest.mark.parametrize("expected", CHANGES)
def test_what_a_reader_must_know_is_said_where_it_is_so(
    output: Path, unchanged: str, expected: str
) -> None:
    assert expected not in unchanged
    assert "One seed proves nothing" in unchanged
    CHANGES[expected](output / RUN)
    assert expected in page(runs(output))


def numbers_of(content: str) -> List[int]:
    """The positions of the sample translations."""
    return [int(number) for number in re.findall(r"(?m)^\| (\d+), source", content)]


def test_the_sentences_shown_do_not_depend_on_what_was_translated(
    output: Path, unchanged: str
) -> None:
    shown = numbers_of(page(runs(output), "--samples", "5"))
    assert numbers_of(page(runs(output), "--samples", "99")) == list(range(SENTENCES))
    for row in TRANSLATIONS:
        write_generated(output / row / "seed-1/generate-test.txt", REFERENCES)
    assert numbers_of(page(runs(output), "--samples", "5")) == shown
    assert len(shown) == 5
    assert "Sample translations" not in unchanged


def test_samples_are_the_text_that_is_scored(output: Path) -> None:
    """Pieces of sentencepiece become text without a detokeniser, unless the row names one."""
    run = output / RUN
    write_generated(run / "generate-test.txt", ["▁Zeile ▁, ▁gut"] * SENTENCES)
    write_generated(output / "baseline/seed-1/generate-test.txt", ["▁Zeile ▁, ▁gut"] * SENTENCES)
    for score, text in (({}, "Zeile , gut"), ({"detokenize": "moses"}, "Zeile, gut")):
        settings = {"remove-bpe": "sentencepiece", **score}
        edit(run / "config.json", lambda config, s=settings: config["settings"].update(score=s))
        assert f"| em\\_routing | {text} |" in page(runs(output), "--samples", "1")


def test_an_analysis_is_linked_if_it_is_of_one_of_the_models(
    output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = [FinishedRun(output / row / "seed-1") for row in TRANSLATIONS]
    both[1].model.touch()
    (output / "analysis.html").write_text(f"of {sha256(both[1].model)[:12]}", "utf-8")
    assert analysis_of(output, both) == {"page": "analysis.html", "models": ["em_routing"]}
    both[1].model.write_text("trained again", "utf-8")
    assert analysis_of(output, both) is None
    assert "analysis.html is of none of these models" in capsys.readouterr().err


def test_every_text_of_a_record_is_text(output: Path) -> None:
    evil = "</code></summary><script>alert(1)</script>`` | *b*"
    run, folder = output / RUN, output / "report"
    write_generated(run / "generate-test.txt", [evil, *TRANSLATIONS["em_routing"][1:]])
    edit(run / "config.json", lambda config: config.update(command=["x", evil]))
    edit(run / "training.json", lambda training: training.update({"device-name": evil}))
    (folder / "analysis").mkdir(parents=True)
    FinishedRun(run).model.touch()
    (folder / "analysis/analysis.html").write_text(sha256(FinishedRun(run).model), "utf-8")
    flags = ["--title", evil, "--samples", str(SENTENCES)]
    assert report.main([*runs(output), "--output", str(folder), *flags]) == 0
    content = (folder / "report.html").read_text("utf-8")
    assert "<script" not in content
    # the title twice, a device twice, a translation and a command
    assert html.unescape(re.sub(r"<[^>]*>", "", content)).count(evil) == 6
    assert 'href="analysis/analysis.html"' in content


def test_rows_with_other_subwords_have_other_lengths_and_no_table_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of the same subwords: tests/frozen/golden/reports.txt."""
    write_run(tmp_path, "baseline")
    longer = [f"{line} @@ @@ @@ @@ @@ @@ @@" for line in finished_runs.SOURCES]
    monkeypatch.setattr(finished_runs, "SOURCES", longer)
    write_run(tmp_path, "em_routing")
    section = page(runs(tmp_path)).partition("## Length of the source")[2].partition("\n## ")[0]
    assert section
    assert "\n|" not in section


def table(folders: Sequence[Path]) -> List[List[str]]:
    return [[cell.replace("\\_", "_") for cell in row] for row in rows_of(page(folders), "system")][
        1:
    ]


def seeds_of(output: Path, row: str, wrong: Sequence[float]) -> List[str]:
    """Copy a run's seed 1 and score it again; of each seed's words a share is wrong."""
    folders = seeds(output / row, len(wrong))
    for seed, (folder, share) in enumerate(zip(folders, wrong), 1):
        random = Random(f"{row} {seed}")
        lines = [
            " ".join("x" if random.random() < share else word for word in line.split())
            for line in REFERENCES
        ]
        write_generated(folder / "generate-test.txt", lines)
        given = [f"{row}={folder / 'generate-test.txt'}", "--target-lang", "de"]
        given += ["--reference", str(output / "data/raw/test.de"), "--json", str(output / "x.json")]
        assert evaluate(given) == 0
        scored = json.loads((output / "x.json").read_text("utf-8"))
        (folder / "scores.json").write_text(json.dumps({"test": scored}), "utf-8")
    return [*map(str, folders)]


@pytest.mark.parametrize(
    ("better", "mark"), [([0.02, 0.03, 0.01, 0.02], "‡"), ([0.28, 0.31, 0.3, 0.33], "")]
)
def test_seeds_are_compared_as_by_the_command_that_compares_their_outputs(
    output: Path, better: List[float], mark: str
) -> None:
    """Their mean and deviation: tests/frozen/golden/reports.txt."""
    folders = seeds_of(output, "baseline", [0.3, 0.35, 0.28])
    folders += seeds_of(output, "em_routing", better)
    content = page(folders)
    _, first, second = rows_of(content, "system")
    assert first[4:6] == ["–", "–"]
    found = json.loads(compared(output, folders).read_text("utf-8"))["comparisons"]
    for line in rows_of(content, "test set")[1:]:
        expected = next(x for x in found if METRICS[x["metric"]] == line[2])
        delta, *ends = (f"{x:+.2f}" for x in (expected["delta"], *expected["interval"]))
        p = expected["p_value"]
        cells = ["4 and 3", f"{delta}{mark}", " to ".join(ends).replace("-", "−")]
        assert line[3:7] == [*cells, "< 0.001" if p < 0.0005 else f"{p:.3f}"]
        if line[2] == "BLEU":
            assert second[4:6] == cells[1:]
    assert "fewer than 5 seeds" in content


def compared(output: Path, folders: Sequence[str]) -> Path:
    """The record of the command that compares the same outputs."""
    files = {
        row: ",".join(f"{each}/generate-test.txt" for each in folders if row in each)
        for row in ("baseline", "em_routing")
    }
    given = [f"em_routing={files['em_routing']}", "--baseline", f"baseline={files['baseline']}"]
    given += ["--reference", str(output / "data/raw/test.de"), "--metrics", "bleu,chrf"]
    target = output / "compared.json"
    assert evaluate([*given, "--target-lang", "de", "--json", str(target)]) == 0
    return target


@pytest.mark.parametrize(
    "key",
    [
        *("device", "device-name", "threads", "versions", "precision", "earlier", "older"),
        *("no times", "max-tokens"),
    ],
)
def test_speeds_of_different_machines_have_no_ratio(output: Path, key: str) -> None:
    run, speed = output / RUN, "57/s"
    if key == "no times":
        log = (run / "train.log").read_text("utf-8")
        (run / "train.log").write_text(log.replace('"wps"', '"-"'), "utf-8")
        speed = "–"
    elif key == "precision":
        put("config.json", "settings", key, value="bf16")(run)
        assert "different precisions (baseline fp32; em\\_routing bf16)" in page([output])
    elif key == "max-tokens":  # smaller passes, as for want of memory: the updates are the same
        put("config.json", "settings", "batch", key, value=50)(run)
    elif key == "older":  # its training.json has no threads
        edit(run / "config.json", lambda config: config["device"].update(threads=2))
    else:
        other = {"threads": 2, "versions": {"torch": "2.2.2"}}.get(key, "other")

        def change(training: Dict[str, Any]) -> None:
            parts = {each: training[each] for each in ("device", "device-name", "versions")}
            earlier = [{**parts, "threads": 2, "updates": 3}]
            training.update({key: earlier if key == "earlier" else other})

        edit(run / "training.json", change)
    marked = "different versions of torch (baseline 2.13.0; em\\_routing 2.2.2)" in page([output])
    assert marked == (key == "versions")
    assert table([output])[1][2] == speed


def test_one_seed_twice_is_two_experiments(output: Path) -> None:
    first, copy = output / "baseline/seed-1", output / "again/baseline/seed-1"
    shutil.copytree(first, copy)
    assert [row[0] for row in table([first, copy])] == [str(first), str(copy)]


def test_other_data_and_settings_of_classifiers_are_said_also_beside_translation(
    output: Path,
) -> None:
    classifiers = output / "classifiers"
    write_classifiers(classifiers)
    assert "Not comparable" not in page([classifiers])
    assert "A line joins the means" in page([classifiers])
    assert "A line joins the means" not in page([classifiers / "both/seed-1"])
    for task in ("", "WC"):
        for path in (classifiers / "both" / task).glob("seed-*"):
            put("training.json", "vocabulary", value={"test0": "1"})(path)
            put("config.json", "settings", "train", "dropout", value=0.3)(path)
            put("config.json", "settings", "precision", value="fp16")(path)
    content = page([classifiers])
    assert re.search("Not comparable, .*both.*seed-2", content)
    assert content.count("| both | train.dropout – → 0.3; precisions fp32 → fp16 |") == 2
    content = page([output / "baseline", classifiers / "both"])
    assert content.startswith("# lines, en to de\n")
    assert re.findall("(?m)^## .*(?:Results|Probing|Logical inference)$", content)


def test_a_folder_gives_its_rows_with_their_seeds_the_baseline_first(
    output: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Through links as well, each once: a row that lay on another disk was left out, in silence."""
    for path in output.glob("*/seed-1/*.json"):
        text = path.read_text("utf-8").replace(': "baseline"', ': "z"')
        path.write_text(text, "utf-8")
    for seed in (2, 10):
        folder = output / f"em_routing/seed-{seed}"
        shutil.copytree(output / "em_routing/seed-1", folder)
        edit(folder / "config.json", lambda config, seed=seed: config.update(seed=seed))
    (output / "em_routing/seed-2/scores.json").unlink()
    expected = page([output])
    trained = rows_of(expected.partition("## Training")[2], "system")
    names = [row[0].replace("\\_", "_") for row in trained]
    assert names == ["system", "z, seed 1", "em_routing, seed 1", "em_routing, seed 10"]
    left_out = f"warning: {output / 'em_routing/seed-2'} is not finished and is left out\n"
    assert left_out in capfd.readouterr().err
    (output / "em_routing").rename(tmp_path / "moved")
    (output / "em_routing").symlink_to(tmp_path / "moved")
    (output / "newest").symlink_to("em_routing")
    (tmp_path / "moved/up").symlink_to(output)
    assert page([output]) == expected


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    write_swept(tmp_path / "output")
    return tmp_path / "output"


def curves_of(*folders: Path) -> List[str]:
    """The first cells of the table of the sweep."""
    table = rows_of(page(folders).partition("## Sweeps")[2], "system")
    return [row[0].replace("\\_", "_") for row in table[1:]]


def test_values_are_numbers_in_rising_order_then_texts_with_each_seed_once(swept: Path) -> None:
    for text, more in (("all", 0), ("1e1", 0), ("10", 2)):  # YAML reads the first two as texts
        copy = shutil.copytree(swept / "em_routing_layer-capsules-8", swept / f"em_routing_{text}")
        for path in copy.glob("seed-*/config.json"):
            edit(path, lambda config, value=text: config["sweep"].update(value=value))
            edit(path, lambda config, more=more: config.update(seed=config["seed"] + more))
    header, *_ = rows_of(page([swept]).partition("## Sweeps")[2], "system")
    assert header == ["system", "8", "1e1", "64", "512", "all"]
    row = swept / "em_routing_layer-capsules-8"
    shutil.copytree(row / "seed-1", row / "seed-1-old")  # its seeds had the score of one
    with pytest.raises(ConfigurationError, match=f"^{row} has a seed twice"):
        find_sweeps(find_runs([swept]))


def test_a_baseline_that_was_not_tested_against_is_the_first_row(swept: Path) -> None:
    for path in swept.glob("em_routing_*/seed-*/config.json"):
        edit(path, lambda config: config.update(baseline=None))
    rows = sorted(swept.glob("em_routing_*"))
    assert curves_of(swept / "baseline", *rows) == ["baseline", "em_routing"]
    assert curves_of(*rows) == ["em_routing"]
    for path in swept.glob("em_routing_*/seed-*/config.json"):
        edit(path, lambda config: config["sweep"].update(row="baseline"))
    assert curves_of(swept / "baseline", *rows) == ["baseline (baseline)", "baseline"]
