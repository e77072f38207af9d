"""The exact commands of a run, and the same update on every device."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from capsnmt.launch.cli import main
from capsnmt.launch.config import available, find, load

import capsnmt
from capsnmt.launch.devices import split_batch
from tests.scripts import launches

# The flags that a data set requires.
NEEDED = {"probing_multi30k": ["--data", __file__]}
ROOT = Path(capsnmt.__file__).parents[1]


def dry_run(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    """The plan the launcher prints, with what depends on the machine replaced."""
    assert main([*arguments, "--dry-run"]) == 0
    plan = capsys.readouterr().out
    plan = plan.replace(sys.executable, "python").replace(f"{ROOT}/", "ROOT/")
    return plan.replace(str(Path.cwd()), "HERE")


def test_the_test_of_significance_is_that_of_the_configuration(capsys, tmp_path: Path):
    settings = ["--set", "score.significance=approximate-randomization", "--set", "score.trials=99"]
    plan = dry_run(capsys, "--dataset", "multi30k", "--rows", "baseline,em_routing", *settings,
                   "--baseline", "baseline", "--cpu", "--output", str(tmp_path))  # fmt: skip
    scored = [line for line in plan.splitlines() if " capsnmt.evaluation " in line]
    flags = "--significance approximate-randomization --trials 99"
    assert {flags in line for line in scored if "--baseline" in line} == {True}
    # a row without a baseline is not tested
    assert {"--trials" in line for line in scored if "--baseline" not in line} == {False}


def test_a_comet_model_of_the_configuration_reads_the_raw_source(
    capsys, monkeypatch, tmp_path: Path
):
    monkeypatch.setattr("capsnmt.launch.flags.check_comet", lambda settings: None)
    arguments = ["--dataset", "multi30k", "--cpu", "--output", str(tmp_path)]
    plan = dry_run(capsys, *arguments, "--set", "score.comet-model=comet22=model.ckpt")
    scored = [line for line in plan.splitlines() if " capsnmt.evaluation " in line]
    assert scored
    for line in scored:
        test_set = re.search(r"raw/(\w+)\.de", line)[1]
        assert f"--comet-source {tmp_path}/data/raw/{test_set}.en" in line
        assert "--comet-model comet22=model.ckpt" in line


@pytest.mark.parametrize("dataset", sorted({row.split("/")[0] for row in available()}))
def test_an_architecture_alone_is_the_base_of_the_dataset_with_it(capsys, dataset: str):
    arch = load(find(f"{dataset}/baseline"))["arch"]
    given = ["--dataset", dataset, *NEEDED.get(dataset, []), "--cpu"]
    plan = dry_run(capsys, *given, "--arch", arch)
    row = dry_run(capsys, *given)
    assert plan == row.replace("baseline", arch)


def test_a_pair_sets_both_languages_everywhere(capsys):
    plan = dry_run(capsys, "--config", "demo/baseline", "--pair", "es-en", "--cpu")
    commands = [shlex.split(line) for line in plan.splitlines() if line.startswith("python")]
    assert len(commands) >= 4
    for command in commands:
        if "--source-lang" in command:
            assert command[command.index("--source-lang") + 1] == "es"
        if "--target-lang" in command:
            assert command[command.index("--target-lang") + 1] == "en"


def test_where_the_corpus_comes_from_reaches_its_preparation(capsys, monkeypatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "archives").mkdir()
    corpora = ["--corpora", "news-commentary-v12"]
    mirrors = ["--mirror", "http://lab/a", "--mirror", "http://lab/b"]
    for given, expected in (
        (["--data", "archives", "--offline"], ["--data", "archives", *corpora, "--offline"]),
        (mirrors, [*corpora, *mirrors]),
    ):
        plan = dry_run(
            capsys,
            *("--dataset", "wmt17_zh_en", "--cpu", *given),
            *("--set", "data.corpora=news-commentary-v12"),
        )
        (command,) = [line for line in plan.splitlines() if " -m capsnmt.corpora " in line]
        words = shlex.split(command)
        assert words[words.index("--output") + 2 :] == expected


def test_each_seed_has_its_own_folder_and_seed(capsys):
    plan = dry_run(capsys, "--config", "multi30k/baseline", "--cpu", "--seeds", "1,22")
    for seed in (1, 22):
        assert f"--seed {seed} --save-dir runs/multi30k/baseline/seed-{seed}/checkpoints" in plan


@pytest.mark.parametrize("tokens", [2048, 4096, 24576, 25000])
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 8, 16])
def test_the_update_has_the_same_tokens_on_any_number_of_devices(tokens: int, workers: int):
    batch = split_batch(tokens, 4096, workers)
    assert batch.per_pass <= 4096
    assert tokens - workers * batch.update_freq < batch.per_update <= tokens
    fewer_passes = 4096 * workers * (batch.update_freq - 1)
    assert fewer_passes < tokens, "more passes than the memory of the devices asks for"


@pytest.mark.one_host  # a plan starts no fairseq
def test_the_script_prints_the_plan_of_the_baseline_from_an_empty_folder(
    capsys, monkeypatch, tmp_path: Path
):
    empty, stub = tmp_path / "empty", tmp_path / "stub"
    empty.mkdir()
    stub.mkdir()
    done, (launch,) = launches("run_wmt14.sh", "--dry-run", "--gpus", "3", cwd=empty, stub=stub)
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(empty)
    assert main(launch) == 0
    plan = capsys.readouterr().out
    assert "# baseline, seed 1, 3 GPUs" in plan
    assert "10,922 tokens x 3 device(s)" not in plan, "more than a device takes"
    assert (
        "32,760 tokens per update = 3,640 tokens x 3 device(s) x 3 accumulated, 8 fewer than the "
        "configured 32,768"
    ) in plan
    assert "#   segment by bpe of 32,000, one model" in plan
    assert "--output runs/wmt14_en_de/data" in plan
    assert list(empty.iterdir()) == []


def test_every_script_of_a_dataset_names_one_that_has_rows():
    datasets = {row.split("/")[0] for row in available()}
    scripts = [path.read_text("utf-8") for path in (ROOT / "scripts").glob("run_*.sh")]
    calls = [re.findall(r"^(?!#).* --dataset (\w+)", text, re.MULTILINE) for text in scripts]
    named = [dataset for datasets in calls for dataset in datasets]
    assert len(named) == 7 + 2
    assert set(named) <= datasets
