"""The statistics that are kept, and the lines that are shown."""

from __future__ import annotations

import io
import json
from typing import List

from capsnmt.launch.progress import TrainingProgress

STAMP = "2026-01-01 00:00 | INFO"
OUTPUT = [
    f"{STAMP} | fairseq_cli.train | {{'_name': None, 'common': {{}}}}\n",
    f'{STAMP} | train_inner | {{"loss": "9.1", "ppl": "550", "wps": "9", "num_updates": "50"}}\n',
    f'{STAMP} | train_inner | {{"loss": "8.1", "ppl": "270", "wps": "9", "num_updates": "100"}}\n',
    f'{STAMP} | valid | {{"epoch": 1, "valid_loss": "8.0", "valid_ppl": "256"}}\n',
    f'{STAMP} | train | {{"epoch": 1, "train_loss": "8.5"}}\n',
    "a warning\n",
]


def test_statistics_are_kept_as_json_lines_and_progress_is_shown():
    log, console = io.StringIO(), io.StringIO()
    shown: List[str] = []
    progress = TrainingProgress(200, log, console, shown.append)
    for line in OUTPUT:
        progress(line)
    kept = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [sorted(stats)[0] for stats in kept] == ["loss", "loss", "epoch", "epoch"]
    assert console.getvalue() == "".join(OUTPUT)
    assert list(progress.tail) == [OUTPUT[0].strip(), "a warning"]
    assert shown[0] == "  update 50/200  loss 9.1  ppl 550  9 words/s"
    assert shown[1].startswith("  update 100/200  loss 8.1")
    assert shown[1].endswith(" left")
    assert shown[2] == "  epoch 1  valid loss 8.0  ppl 256"
    assert len(shown) == 3
