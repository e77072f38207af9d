"""Run folders in the launcher's formats, for tests of the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List, Optional

from capsnmt.evaluation.__main__ import main as evaluate

SENTENCES = 30
SOURCES = [f"line {number} | with *marks*" for number in range(SENTENCES)]
REFERENCES = [f"Zeile {number} ist schön und gut ." for number in range(SENTENCES)]
TRANSLATIONS = {
    "baseline": [f"Zeile {number} ist sch@@ ön ." for number in range(SENTENCES)],
    "em_routing": ["", *(f"Zeile {number} ist gut 漢字 |" for number in range(1, SENTENCES))],
}
TEST_SET = "test"


def write_data(folder: Path) -> None:
    """Prepared data as ``data_prep`` leaves it, as far as a report reads it."""
    (folder / "raw").mkdir(parents=True)
    files = {}
    for language, lines in (("en", SOURCES), ("de", REFERENCES)):
        path = folder / "raw" / f"{TEST_SET}.{language}"
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        files[f"raw/{path.name}"] = {"bytes": 1, "sha256": "0", "lines": len(lines), "tokens": 1}
    manifest = {
        "description": "Sentences about lines",
        "command": "python -m capsnmt.corpora lines",
        "steps": {"raw": {"files": files}},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def write_generated(path: Path, translations: List[str]) -> None:
    """What fairseq-generate prints, longest sentence first."""
    order = sorted(range(SENTENCES), key=lambda number: -len(translations[number]))
    lines = ["2026-01-01 00:00:00 | INFO | fairseq_cli.generate | noise"]
    for number in order:
        lines += [
            f"S-{number}\t{SOURCES[number]}",
            f"T-{number}\t{REFERENCES[number]}",
            f"H-{number}\t-0.5\t{translations[number]}",
            f"P-{number}\t-0.5 -0.5",
        ]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def write_run(output: Path, row: str, baseline: Optional[str] = None, seed: int = 1) -> Path:
    """A finished run's folder; its scores are those of the real scoring command."""
    folder, data = output / row / f"seed-{seed}", output / "data"
    folder.mkdir(parents=True)
    if not data.exists():
        write_data(data)
    write_generated(folder / f"generate-{TEST_SET}.txt", TRANSLATIONS[row])
    settings = {
        "dataset": "lines",
        "arch": "capsnmt_transformer_tiny",
        "data": {"source-lang": "en", "target-lang": "de", "test-sets": {TEST_SET: "test"}},
        "batch": {"tokens-per-update": 100},
        "train": {"max-update": 40, "lr": 0.1},
        "average": {"last-updates": 2},
        "score": {"remove-bpe": "subword_nmt", "detokenize": "moses"},
    }
    config = {
        "row": row, "seed": seed, "vocabulary": {}, "parameters": 6,
        "device": "CPU", "device-name": "x86_64, 2 cores",
        "baseline": baseline, "data": str(data), "settings": settings,
        "command": ["capsnmt/launch/__main__.py", "--config", f"lines/{row}"],
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    (folder / "commands.sh").write_text(f"#!/usr/bin/env bash\ntrain '{row}'\n", "utf-8")
    write_log(folder / "train.log")
    against = output / f"{baseline}/seed-{seed}/generate-{TEST_SET}.txt"
    arguments = [f"{row}={folder / f'generate-{TEST_SET}.txt'}"]
    arguments += ["--baseline", f"{baseline}={against}", "--resamples", "20"] if baseline else []
    arguments += ["--reference", str(data / "raw" / f"{TEST_SET}.de"), "--target-lang", "de"]
    status = evaluate([*arguments, "--json", str(folder / "scores-test.json")])
    assert status == 0  # python -O drops what an assertion computes
    scores = json.loads((folder / "scores-test.json").read_text("utf-8"))
    (folder / "scores.json").write_text(json.dumps({TEST_SET: scores}), "utf-8")
    return folder


def write_log(path: Path, valid: bool = True) -> None:
    """A training of 40 updates that was killed once, in the middle of a line."""
    lines = [
        '{"epoch": 1, "loss": "9.5", "num_updates": "20", "wps": "200", "wpb": "100"}',
        '{"epoch": 1, "valid_loss": "9.125", "valid_num_updates": "20"}' if valid else "",
        '{"epoch": 1, "loss": "8.5", "num_upd',
        '{"epoch": 1, "loss": "8", "num_updates": "30", "wps": "50", "wpb": "100"}',
        '{"epoch": 2, "loss": "7", "num_updates": "40", "wps": "20", "wpb": "70"}',
        '{"epoch": 2, "valid_loss": "7.25", "valid_num_updates": "40"}' if valid else "",
        '{"peak_memory_gib": 1.5}',
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def runs(output: Path) -> List[str]:
    """The folders of both runs below an output folder."""
    return [str(output / row / "seed-1") for row in TRANSLATIONS]
