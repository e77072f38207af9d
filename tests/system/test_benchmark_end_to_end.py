"""The comparison of complete trainings runs the commands it reports, and reads their speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List

import pytest

from capsnmt import records
from scripts import benchmark, benchmark_end_to_end
from scripts.benchmark_end_to_end import words_per_second
from tests.commands import TINY, command

pytestmark = pytest.mark.system

OURS = "ours: --arch capsnmt_transformer_tiny --optimizer fused_adam"


def log(*windows: object) -> str:
    return "\n".join(
        f"2026-01-01 00:00:00 | INFO | train_inner | {json.dumps(stats)}" for stats in windows
    )


def window(updates: int, wpb: float, wps: float) -> dict:
    return {"num_updates": str(updates), "wpb": str(wpb), "wps": str(wps)}


def test_the_speed_is_all_words_over_all_seconds_of_the_second_half() -> None:
    text = log(window(2, 900, 1), window(4, 100, 50), window(6, 300, 100))
    assert words_per_second(f"other line\n{text}\n", 6) == 400 / (2 + 3)


@pytest.mark.one_host  # how fairseq logs is the same on both
def test_stock_and_ours_train_in_turn(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: List[List[str]] = []

    def run(words: List[str], threads: int) -> str:
        commands.append(words)
        done = command(words[2], *words[3:], *TINY)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout + done.stderr

    monkeypatch.setattr(benchmark_end_to_end, "run", run)
    monkeypatch.chdir(tmp_path)
    report = tmp_path / "report.json"
    benchmark.main(
        [
            *("--end-to-end", str(corpus / "bin"), "--updates", "4", "--repeats", "1"),
            *("--tokens", "64", "--length", "8", "--vocabulary", "40", "--device", "cpu"),
            *("--size", "tiny", "--threads", "1", "--system", OURS, "--json", str(report)),
        ]
    )
    stock, ours = commands
    assert not list(tmp_path.glob("checkpoints")), "it leaves nothing behind"
    assert "--user-dir" not in stock
    assert {"transformer", "adam"} <= {*stock}
    assert {"--user-dir", "capsnmt_transformer_tiny", "fused_adam"} <= {*ours}
    (result,) = records.load(report)["results"]
    speeds = result["phases"]["train"]["tokens_per_second"]
    assert result["phases"]["train"]["ours"]["median"] == speeds["ours"] / speeds["stock"]
