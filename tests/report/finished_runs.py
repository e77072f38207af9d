"""Run folders in the launcher's formats, for tests of the report."""

import json
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from capsnmt import records
from capsnmt.configurations import Settings
from capsnmt.evaluation.__main__ import main as evaluate
from capsnmt.report import __main__ as report
from capsnmt.runs.records import RunConfig, RunFolder, TrainingRecord
from tests.evaluation.outputs import generated, write_lines
from tests.html_pages import without_images

SENTENCES = 30
SOURCES = [f"line {number} | with *marks*" for number in range(SENTENCES)]
REFERENCES = [f"Zeile {number} ist schön und gut ." for number in range(SENTENCES)]
TRANSLATIONS = {
    "baseline": [f"Zeile {number} ist sch@@ ön ." for number in range(SENTENCES)],
    "em_routing": ["", *(f"Zeile {number} ist gut 漢字 |" for number in range(1, SENTENCES))],
}
TEST_SET = "test"
# where a record has the scores of what it was tested against
OF_BASELINE = (TEST_SET, "systems", 0, "outputs", 0, "scores")


def write_data(folder: Path) -> None:
    """Prepared data as ``data_prep`` leaves it, as far as a report reads it."""
    (folder / "raw").mkdir(parents=True)
    files = {}
    for language, lines in (("en", SOURCES), ("de", REFERENCES)):
        path = folder / "raw" / f"{TEST_SET}.{language}"
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        files[f"raw/{path.name}"] = {"sha256": "0", "lines": len(lines), "tokens": 1}
    manifest = {
        "description": "Sentences about lines",
        "command": "python -m capsnmt.corpora lines",
        "files": files,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def write_generated(path: Path, translations: List[str]) -> None:
    write_lines(path, generated(translations, SOURCES, "de"))


def write_run(output: Path, row: str, baseline: Optional[str] = None) -> Path:
    """A finished run's folder; its scores are those of the real scoring command."""
    folder, data = RunFolder(output / row / "seed-1"), output / "data"
    folder.path.mkdir(parents=True)
    if not data.exists():
        write_data(data)
    write_generated(folder.generated(TEST_SET), TRANSLATIONS[row])
    settings = {
        "dataset": "lines",
        "arch": "capsnmt_transformer_tiny",
        "data": {"source-lang": "en", "target-lang": "de", "test-sets": {TEST_SET: "test"}},
        "batch": {"tokens-per-update": 100},
        "train": {"max-update": 40, "lr": 0.1},
        "average": {"last-updates": 2},
        "score": {"remove-bpe": "subword_nmt", "detokenize": "moses"},
    }
    command = ("capsnmt-run", "--config", f"lines/{row}")
    config = RunConfig(
        row=row,
        seed=1,
        baseline=baseline,
        data=str(data),
        settings=records.build(settings, Settings, row),
        command=command,
    )
    write_records(folder, config, parameters=6)
    folder.commands.write_text(f"#!/usr/bin/env bash\ntrain '{row}'\n", "utf-8")
    write_log(folder.train_log)
    against = RunFolder(output / f"{baseline}/seed-1").generated(TEST_SET)
    arguments = [f"{row}={folder.generated(TEST_SET)}"]
    arguments += ["--baseline", f"{baseline}={against}", "--samples", "20"] if baseline else []
    arguments += ["--reference", str(data / "raw" / f"{TEST_SET}.de"), "--target-lang", "de"]
    status = evaluate([*arguments, "--json", str(folder.scored(TEST_SET))])
    assert status == 0  # python -O drops what an assertion computes
    records.write(folder.scores, {TEST_SET: records.load(folder.scored(TEST_SET))})
    return folder.path


def write_records(folder: RunFolder, config: RunConfig, **trained: Any) -> None:
    """What a run is, and what it was trained with."""
    given = {"vocabulary": {}, "device": "CPU", "device_name": "x86_64, 2 cores"}
    given["versions"] = {"python": "3.11.7", "torch": "2.13.0"}
    records.write(folder.config, config)
    records.write(folder.training, TrainingRecord(**{**given, **trained}))


def write_log(path: Path) -> None:
    """A training of 40 updates that was killed once, in the middle of a line."""
    lines = [
        '{"epoch": 1, "loss": "9.5", "num_updates": "20", "wps": "200", "wpb": "100"}',
        '{"epoch": 1, "valid_loss": "9.125", "valid_num_updates": "20"}',
        '{"epoch": 1, "loss": "8.5", "num_upd',
        '{"epoch": 1, "loss": "8", "num_updates": "30", "wps": "50", "wpb": "100"}',
        '{"epoch": 2, "loss": "7", "num_updates": "40", "wps": "20", "wpb": "70"}',
        '{"epoch": 2, "valid_loss": "7.25", "valid_num_updates": "40"}',
        '{"peak_memory_gib": 1.5}',
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def runs(output: Path) -> List[str]:
    """The folders of both runs below an output folder."""
    return [str(output / row / "seed-1") for row in TRANSLATIONS]


def edit(path: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_text("utf-8"))
    change(value)
    path.write_text(json.dumps(value), "utf-8")


def put(file: str, *keys: Any, value: Any = None) -> Callable[[Path], None]:
    def change(record: Any) -> None:
        for key in keys[:-1]:
            record = record[key]
        record[keys[-1]] = value

    return lambda run: edit(run / file, change)


def _of_test_set(record: Any) -> Any:
    return record[TEST_SET]["systems"][-1]["outputs"][0]["scores"]


def scores_of(folder: Path) -> Any:
    return _of_test_set(json.loads((folder / "scores.json").read_text("utf-8")))


def edit_scores(folder: Path, change: Callable[[Any], Any]) -> None:
    edit(folder / "scores.json", lambda record: change(_of_test_set(record)))


def page(folders: Sequence[object], *flags: str) -> str:
    """The report of some runs in Markdown, as the command writes it, without samples."""
    with TemporaryDirectory() as folder, without_images():
        given = [*map(str, folders), "--output", folder, "--samples", "0", *flags]
        assert report.main(given) == 0, given
        return (Path(folder) / "report.md").read_text("utf-8")


def add_seeds(
    output: Path, row: str, bleu: Sequence[float], p_values: Sequence[float]
) -> List[Path]:
    """Copy a run's seed 1, so that the seeds have these scores; return all folders."""
    folders = seeds(output / row, len(bleu))
    for folder, *numbers in zip(folders, bleu, p_values):
        set_score(folder, *numbers)
    return folders


def seeds(row: Path, count: int) -> List[Path]:
    """Copy a run's seed 1 to others; return all folders."""
    folders = [row / f"seed-{seed}" for seed in range(1, count + 1)]
    for seed, folder in enumerate(folders[1:], 2):
        shutil.copytree(folders[0], folder)
        edit(folder / "config.json", lambda config, seed=seed: config.update(seed=seed))
    return folders


def set_score(folder: Path, bleu: float, p_value: float) -> None:
    """Set the BLEU of a run, and its p-value if it was tested against the baseline of its seed."""
    changes = {"score": bleu}
    if "p_value" in scores_of(folder)["bleu"]:
        tested = scores_of(folder.parents[1] / "baseline" / folder.name)["bleu"]["score"]
        put("scores.json", *OF_BASELINE, "bleu", "score", value=tested)(folder)
        changes.update(p_value=p_value, delta=bleu - tested)
    edit_scores(folder, lambda scores: scores["bleu"].update(changes))


def write_swept(output: Path) -> None:
    """A baseline and three values of a flag, with two seeds each."""
    write_run(output, "baseline")
    write_run(output, "em_routing", "baseline")
    add_seeds(output, "baseline", [20.5, 21.5], [1, 1])
    for value in (64, 8, 512):
        name = f"em_routing_layer-capsules-{value}"
        shutil.copytree(output / "em_routing", output / name)
        sweep = {"row": "em_routing", "flag": "layer-capsules", "value": value}
        put("config.json", "row", value=name)(output / name / "seed-1")
        put("config.json", "sweep", value=sweep)(output / name / "seed-1")
        put("scores.json", TEST_SET, "systems", -1, "name", value=name)(output / name / "seed-1")
        add_seeds(output, name, [20.0 + value / 100 + seed for seed in (1, 2)], [0.02, 0.02])
    shutil.rmtree(output / "em_routing")


def write_classifiers(output: Path) -> None:
    """Two seeds of two systems in logical inference, and in some probing tasks."""
    for seed, accuracy in ((1, 60.0), (2, 70.0)):
        write_result(output, "baseline", seed, accuracy, {0: 99, 1: accuracy, 12: 50})
        write_result(output, "both", seed, accuracy + 5, {0: 99, 1: 80, 12: accuracy - 20})
        write_result(output, "both", seed, 90, task="WC")
        write_result(output, "baseline", seed, 80 + seed, task="WC")
        write_result(output, "baseline", seed, 40, task="SentLen")


def write_result(
    output: Path,
    row: str,
    seed: int,
    accuracy: float,
    buckets: Mapping[int, float] = MappingProxyType({}),
    task: Optional[str] = None,
) -> None:
    folder = RunFolder(output / row / (task or "") / f"seed-{seed}")
    kind = "probing" if task else "logical_inference"
    settings = Settings(train={"task": kind})
    write_records(folder, RunConfig(row=row, seed=seed, settings=settings, data="data"))
    found = {"examples": 100, "accuracy": accuracy, "macro_f1": accuracy / 2, "majority": 53.0}
    by_bucket = {key: {"examples": 10, "accuracy": value} for key, value in buckets.items()}
    result: Dict[str, Any] = {"task": kind, "probing_task": task, "updates": 7, "parameters": 9}
    result["splits"] = {"test": {**found, "by_bucket": by_bucket}}
    records.write(folder.result, result)


def rows_of(content: str, first: str) -> List[List[str]]:
    """The cells of the table whose header begins with a cell; the header first."""
    table = content[content.index(f"| {first} |") :].split("\n\n")[0]
    header, _, *rows = (re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in table.splitlines())
    return [header, *rows]
