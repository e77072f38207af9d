"""Data of one's own: ``--prepared DIR --arch ARCH`` needs no file of settings."""

import json
import re
import shutil
from pathlib import Path
from typing import Dict

import pytest
import yaml

from tests.launch.conftest import Launch, trainings

ARCH = "transformer_em_routing_tiny"
BASELINE = "capsnmt_transformer_tiny"


def flags(line: str) -> Dict[str, str]:
    """Flag -> value of a command."""
    return dict(re.findall(r" --([\w-]+) ([^-]\S*)", line))


@pytest.fixture
def mine(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prepared data with the name of a corpus, in the current folder."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(prepared, tmp_path / "mine")


def change(mine: Path, **values: object) -> None:
    manifest = json.loads((mine / "manifest.json").read_text("utf-8"))
    (mine / "manifest.json").write_text(json.dumps({**manifest, **values}), "utf-8")


def test_data_of_a_recipe_keep_what_it_says(plan: Launch, launch: Launch, mine: Path) -> None:
    own = ("--prepared", "mine", "--arch", ARCH, "--cpu")
    wrong = launch(*own, "--baseline", "nope", status=2)  # which is no architecture
    assert "nope: train: argument --arch/-a: invalid choice" in wrong
    assert not Path("runs").exists()
    assert " --share-all-embeddings " in plan(*own)
    assert " --remove-bpe subword_nmt " in plan(*own)
    change(mine, segmentation={"method": "sentencepiece", "size": 9, "joint": False})
    assert " --share-all-embeddings " not in plan(*own)
    assert " --remove-bpe sentencepiece " in plan(*own)
    change(mine, tokenisers={"en": "none-lowercase", "de": "moses"})
    assert " --detokenize moses " in plan(*own)
    change(mine, tokenisers={"en": "moses", "de": "none"})
    assert " --detokenize none " in plan(*own)
    change(mine, recipe={"tokenised-by": {"en": "moses", "de": "moses"}})
    assert "was published as tokens; give --dataset" in launch(*own, status=2)


def test_more_pairs_are_trained_for_longer(plan: Launch, mine: Path) -> None:
    found, schedules = [], set()
    for pairs in (1, 999, 1_000, 10**4, 10**4 + 1, 30_000, 160_000, 10**6, 4_500_000, 10**9):
        change(mine, pairs=pairs)
        text = plan("--prepared", mine, "--arch", ARCH, "--cpu")
        chosen = flags(trainings(text)[0])
        updates, interval = int(chosen["max-update"]), int(chosen["save-interval-updates"])
        averaged = [int(found) for found in re.findall(r"--last-updates (\d+)", text)]
        assert averaged == [10] * (pairs >= 1_000)  # of one sentence, each update ends an epoch
        assert 10 * interval <= updates
        # not all 80, which fill a disk
        assert int(chosen["keep-interval-updates"]) == (averaged or [1])[0]
        schedules.add((updates, chosen["warmup-updates"], chosen["lr"]))
        tokens = int(re.findall(r"# ([\d,]+) tokens per update", text)[0].replace(",", ""))
        found.append((updates, tokens, -float(chosen["dropout"])))
    assert found == sorted(found)
    assert len(set(found)) == 4
    assert found[-1] == (100_000, 32_768, -0.1)  # Vaswani et al. 2017
    assert sorted(schedules) == [
        *((2_000, "500", "0.002"), (8_000, "2000", "0.002")),
        *((50_000, "4000", "0.0014"), (100_000, "4000", "0.0014")),
    ]


def test_fewer_updates_have_their_own_schedule(plan: Launch, mine: Path) -> None:
    change(mine, pairs=30_000)
    for updates in (1, 2, 79, 100, 1000):
        text = plan("--prepared", mine, "--arch", ARCH, "--cpu", "--max-update", updates)
        chosen = flags(trainings(text)[0])
        interval = int(chosen["save-interval-updates"])
        assert chosen["max-update"] == str(updates)
        assert int(re.findall(r"--last-updates (\d+)", text)[0]) * interval <= updates
        assert updates // interval < 50
        assert int(chosen["warmup-updates"]) <= updates
    own = ["--prepared", mine, "--arch", ARCH, "--cpu", "--max-update", 100]
    longer = flags(trainings(plan(*own, "--set", "train.max-update=200"))[0])  # goes on with that
    assert (longer["max-update"], longer["warmup-updates"]) == ("200", "25")


def test_the_settings_are_written_to_be_edited(
    plan: Launch, launch: Launch, mine: Path, tmp_path: Path
) -> None:
    own = ["--prepared", "mine", "--arch", ARCH, "--cpu"]
    lr = ("--set", "train.lr=0.002")
    said = launch(*own, *lr, "--write-config", "row.yaml")
    assert said == "row.yaml: edit it, and run: capsnmt-run --config row.yaml --prepared mine\n"
    named = launch(*own, *lr, "--name", "a row", "--write-config", tmp_path.parent / "named.yaml")
    assert named.endswith(" --name 'a row' --prepared mine\n")
    assert [path.name for path in tmp_path.iterdir() if path != mine] == ["row.yaml"]
    settings = yaml.safe_load((tmp_path / "row.yaml").read_text("utf-8"))
    assert settings["train"]["lr"] == 0.002
    same = plan("--config", "row.yaml", "--prepared", "mine", "--cpu")
    expected = plan(*own, "--set", "train.lr=0.002", "--name", "row").partition("\n# report")[0]
    assert same.strip() == expected.strip()


def test_the_report_leaves_out_seeds_that_the_means_leave_out(launch: Launch, mine: Path) -> None:
    own = ["--prepared", "mine", "--arch", BASELINE, "--cpu", "--max-update", 1]
    launch(*own, "--seeds", "2")
    said = launch(*own, "--set", "train.max-update=2")
    assert "left out, as they are of another experiment: seed(s) 2" in said
    assert "\nreport: " in said
