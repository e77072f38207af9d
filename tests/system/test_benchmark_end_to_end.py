"""The comparison of complete trainings runs the commands it reports, and reads their speed."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import List

import pytest

from capsnmt import records
from capsnmt.cli import ConfigurationError, ExecutionError, run_command
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


def test_a_training_that_ends_early_has_no_speed() -> None:
    with pytest.raises(ExecutionError, match="before half of its 6 updates"):
        words_per_second(log(window(3, 900, 1)), 6)


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


def test_a_failed_training_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match=r"ended with 3: no data") as error:
        benchmark_end_to_end.run(
            ["python3", "-c", "import sys; print('first\\nno data'); sys.exit(3)"], threads=1
        )
    assert len(str(error.value).splitlines()) == 1


def test_a_precision_that_fairseq_has_not_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--dtype bf16: fairseq has none"):
        benchmark.main(["--end-to-end", str(tmp_path), "--dtype", "bf16"])


def test_a_stop_signal_is_one_line_and_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    def measure() -> None:
        stops = "import os, signal; os.kill(os.getppid(), signal.SIGTERM); signal.pause()"
        benchmark_end_to_end.run([sys.executable, "-c", stops], threads=1)

    assert run_command(measure) == 128 + signal.SIGTERM
    assert capsys.readouterr().err == "stopped by SIGTERM: the same command resumes\n"
