"""Every command of a tutorial runs, in the order of its page, with smaller sizes."""

import os
import re
from pathlib import Path
from typing import Dict, List

import pytest
import yaml

from capsnmt.routing.backend import AUTOMATIC
from tests.commands import CORPUS_WORDS as WORDS
from tests.commands import TINY, binarise_reversals
from tests.docs.pages import REPO, Block, blocks, rows
from tests.interpreter import interpreter, ran
from tests.support import PLUGIN

TUTORIALS = REPO / "docs" / "tutorials"
CORPUS = [" ".join(WORDS[n % 5 : 2 + n % 7][::-1] + WORDS[: 1 + n % 4]) for n in range(80)]
QUICK = "--max-update 4 --cpu --threads 1 --set generate.beam=1 --set train.num-workers=0"
SMALL = " ".join([*TINY, "--cpu", "--num-workers 0", "--no-epoch-checkpoints"])
# page -> what replaces a part of its commands; every part must occur
SMALLER: Dict[str, Dict[str, str]] = {
    "own_data": {
        r"^pip .*$": "",
        r"capsnmt-run (?!--config)": f"capsnmt-run {QUICK} ",
        r"capsnmt-run --config": "capsnmt-run --max-update 4 --cpu --config",
        "_iwslt": "_tiny",
        "--seeds 1,2,3": "--seeds 1,2",
    },
    "checkpoint": {
        "--user-dir capsnmt": f"--user-dir {PLUGIN}",
        "M30K/bin|DATA": "bin",
        r"--max-update \d+": f"--max-update 2 {SMALL}",
        r"--(?:en|de)coder-\w+(?:-\w+)? \d+|--cpu$": "",
        "STOCK/checkpoint_best": "STOCK/checkpoint_last",
    },
}


def smaller(page: str, text: str) -> str:
    for part, replacement in SMALLER[page].items():
        assert re.search(part, "".join(block.text for block in shell(page)), re.MULTILINE), part
        text = re.sub(part, replacement, text, flags=re.MULTILINE)
    return text


def run(commands: str, folder: Path) -> str:
    """Run a block as a user does, with an interpreter and commands that start at once."""
    path = os.pathsep.join([str(interpreter().parent), os.environ["PATH"]])
    done = ran(["bash", "-euo", "pipefail", "-c", commands], folder, PATH=path)
    assert done.returncode == 0, f"{commands}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout + done.stderr


def shell(page: str) -> List[Block]:
    return [block for block in blocks(TUTORIALS / f"{page}.md") if block.language == "bash"]


@pytest.mark.system
@pytest.mark.nightly  # six trainings
def test_own_data(tmp_path: Path) -> None:
    for language, lines in (("en", CORPUS), ("de", [line[::-1] for line in CORPUS])):
        (tmp_path / f"corpus.{language}").write_text("\n".join(lines) + "\n", "utf-8")
    (tmp_path / "new.en").write_text("parts vote\n\nfor wholes\n", "utf-8")
    said = "".join(run(smaller("own_data", block.text), tmp_path) for block in shell("own_data"))
    assert "drawn from --train" in said
    assert len((tmp_path / "new.de").read_text("utf-8").splitlines()) == 3
    page = (tmp_path / "runs/mine/report.md").read_text("utf-8")
    assert "transformer\\_em\\_routing\\_tiny" in page
    assert (tmp_path / "runs/mine/mine/seed-1/scores.json").is_file()


@pytest.mark.system
@pytest.mark.nightly  # three trainings; with every commit test_commands.py parses them
def test_checkpoint(tmp_path: Path) -> None:
    """The page first starts from the checkpoint whose training it shows last."""
    binarise_reversals(tmp_path, {"train": CORPUS, "valid": CORPUS[:8], "test": CORPUS[8:16]})
    (start, measured) = shell("checkpoint")
    trained, _, routed = measured.text.partition("fairseq-train M30K/bin --user-dir")
    run(smaller("checkpoint", trained), tmp_path)
    for text in (f"fairseq-train M30K/bin --user-dir{routed}", start.text):
        said = run(f"rm -rf RUN; {smaller('checkpoint', text)}", tmp_path)
        assert "routing replaces the trained W^O and starts at random in encoder.layers.0" in said


def test_the_kernels_that_auto_takes_are_those_that_the_tutorial_names() -> None:
    text = (TUTORIALS / "torch.md").read_text("utf-8")
    (said,) = re.findall(r'`backend="auto"` chooses ([^.]*)\.', text)
    assert ("C++" in said, "Triton" in said) == ("cpp" in AUTOMATIC, "triton" in AUTOMATIC)


def test_the_scores_updates_and_tokens_of_a_row_are_those_of_its_configuration() -> None:
    text = (TUTORIALS / "paper_row.md").read_text("utf-8")
    base = yaml.safe_load((REPO / "configs/wmt14_en_de/base.yaml").read_text("utf-8"))
    found = {cells[0].strip("`"): cells[1:] for cells in rows(text) if "wmt14" in cells[0]}
    assert len(found) == 2
    for row, (bleu, updates, tokens) in found.items():
        paper = yaml.safe_load((REPO / f"configs/{row}.yaml").read_text("utf-8"))["paper"]
        assert float(bleu) == paper["li2019"]["bleu"]
        assert int(updates.replace(",", "")) == base["train"]["max-update"]
        assert int(tokens.replace(",", "")) == base["batch"]["tokens-per-update"]


def test_the_estimate_of_a_rows_cost_follows_from_its_figures() -> None:
    text = (TUTORIALS / "paper_row.md").read_text("utf-8")
    paper = [
        yaml.safe_load((REPO / f"configs/wmt14_en_de/{row}.yaml").read_text("utf-8"))["paper"]
        for row in ("baseline", "li2019_effective")
    ]
    slow, fast = sorted(each["li2019"]["training-speed"] for each in paper)
    assert f"{slow} instead of {fast} steps per second: {slow / fast:.2f}x" in text
    words_per_second = 0.1 * 312e12 / (6 * 60e6)
    assert f"{round(words_per_second, -3):,.0f} words per second" in text
    hours = 100_000 * 32_768 / words_per_second / 3600
    table = {cells[0].strip("`"): cells[1:] for cells in rows(text.partition("| estimate")[2])}
    one = {"baseline": hours, "li2019_effective": hours * fast / slow}
    for row, needed in one.items():
        assert table[row][:2] == [f"{needed:.0f} h", f"{needed / 7:.1f} h"]
    assert table["li2019_effective"][2] == f"{3 * sum(one.values()):.0f} h"
