"""What ``--dry-run`` prints: the commands of every row, seed and value of a sweep."""

import re
from pathlib import Path
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsnmt.launch.training_step import split_update
from capsnmt.modules import autocast
from capsnmt.steps import Step
from tests.interpreter import ran
from tests.launch.conftest import Launch, trainings
from tests.support import REPO

MULTI30K = ["--dataset", "multi30k", "--cpu", "--output", "runs"]
DATASETS = sorted({path.parent.name for path in REPO.glob("configs/*/baseline.yaml")})


@pytest.mark.parametrize(
    ("sweep", "expected"),
    [
        ("mlmha=M-00,M-11", ["--mlmha M-00", "--mlmha M-11"]),
        ("head_capsule_norm=true,false", ["--head-capsule-norm ", ""]),
        ("disagreement-weight=0,0.5", ["--disagreement-weight 0 ", "--disagreement-weight 0.5 "]),
        ("lr=1e-3,0.01", ["--lr 1e-3 ", "--lr 0.01 "]),
    ],
)
def test_a_sweep_takes_any_flag(plan: Launch, sweep: str, expected: List[str]) -> None:
    found = trainings(plan("--config", "wmt14_en_de/li2021_both", "--cpu", "--sweep", sweep))
    flag = sweep.partition("=")[0].replace("_", "-")
    assert len(found) == 2
    for line, value, words in zip(found, sweep.partition("=")[2].split(","), expected):
        assert f"/li2021_both_{flag}-{value}" in line.replace("0.001", "1e-3")
        assert words in line.replace("0.001", "1e-3")
        assert words or f"--{flag}" not in line


def test_a_script_stops_where_a_translation_fails(tmp_path: Path) -> None:
    output = tmp_path / "an old output"
    output.touch()
    line = Step("generate", (output,), program=("false",), to_file=True).shell()
    done = ran(["bash", "-c", f"set -e\n{line}\necho scored"])
    assert (done.returncode, done.stdout) == (1, "")
    assert not ran(["bash", "-c", line.replace("false", "true")]).returncode
    assert output.read_text() == ""


@pytest.mark.parametrize("named", ["base_0.1", "base_0.1.yaml", "mine/base_0.1"])
def test_the_name_of_a_row_may_have_a_dot(
    plan: Launch, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "configs" / "mine"
    own.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for name in ("base_0.1", "base_0"):
        (own / f"{name}.yaml").write_text("extends: multi30k/baseline\ndataset: mine\n")
    (own / "started.yaml").write_text(f"extends: base_0\ninit-from: {named}\naverage: null\n")
    text = plan("--dataset", "mine", "--cpu", "--rows", "base_0.1,base_0,started")
    assert "--init-from runs/mine/base_0.1/seed-1/averaged.pt " in trainings(text)[-1]


@pytest.mark.parametrize("dataset", DATASETS)
def test_an_architecture_alone_is_the_base_of_the_dataset_with_it(
    plan: Launch, dataset: str
) -> None:
    data = ["--data", __file__] if dataset == "probing_multi30k" else []
    row = plan("--dataset", dataset, *data, "--cpu")
    (arch,) = set(re.findall(r"--arch (\S+)", row))
    assert plan("--dataset", dataset, *data, "--cpu", "--arch", arch) == row.replace(
        "baseline", arch
    )


@pytest.mark.parametrize(
    ("average", "kept", "expected"),
    [
        ("last-updates: 4", None, "--keep-interval-updates 4"),
        ("last-updates: 4", 3, "--keep-interval-updates 4"),
        ("last-updates: 4", 9, "--keep-interval-updates 9"),
        ("last-updates: 4", "'9'", "--keep-interval-updates 9"),
        ("last-updates: 4", -1, "--keep-interval-updates -1"),
        ("last-epochs: 5", None, "--keep-last-epochs 5"),
        ("best: 3", None, "--keep-best-checkpoints 3"),
        ("best: 3", -1, "--keep-best-checkpoints 3"),  # fairseq's -1 keeps none of them
    ],
)
def test_the_training_keeps_what_is_averaged(
    plan: Launch, average: str, kept: object, expected: str
) -> None:
    row = ["--config", "wmt14_en_de/baseline", "--cpu", "--set", "train.no-epoch-checkpoints=null"]
    sets = [f"average={{{average}}}"]
    sets += [] if kept is None else [f"train.{expected.split()[0][2:]}={kept}"]
    text = plan(*row, *(word for each in sets for word in ("--set", each)))
    assert f" {expected} " in trainings(text)[0]
    assert f"--{average.replace(':', '')}" in text
    assert expected not in plan(*row, "--set", "average=null")


@given(st.integers(1, 10**5), st.integers(1, 9000), st.integers(1, 64))
def test_the_update_has_the_same_tokens_on_any_number_of_devices(
    tokens: int, most: int, workers: int
) -> None:
    if tokens < workers:
        return
    batch = split_update(tokens, most, workers)
    assert 1 <= batch.per_pass <= most
    assert tokens - workers * batch.update_freq < batch.per_update <= tokens
    fewer_passes = most * workers * (batch.update_freq - 1)
    assert fewer_passes < tokens, "more passes than the memory of the devices asks for"


def precision(text: str) -> List[str]:
    """The flags of precision of the training."""
    return re.findall(r" --(fp16|autocast \S+)", trainings(text)[0])


@pytest.mark.usefixtures("bf16_machine")
@pytest.mark.parametrize(
    ("chosen", "flags", "expected"),
    [
        ("fp32", "--cpu", []),
        ("fp32", "--gpus 1", []),
        ("fp16", "--cpu", []),
        ("fp16", "--gpus 1", ["fp16"]),
        ("bf16", "--cpu", ["autocast bf16"]),
        ("bf16", "--gpus 1", ["autocast bf16"]),
        ("auto", "--gpus 1", ["fp16"]),
        ("auto", "--cpu", ["autocast bf16"]),
        ("auto", "--cpu --arch transformer_tiny --set train.head-aggregation=null", []),
    ],
)
def test_the_precision_reaches_the_training(
    plan: Launch, monkeypatch: pytest.MonkeyPatch, chosen: str, flags: str, expected: List[str]
) -> None:
    row = ["--config", "multi30k/em_routing", "--set", f"precision={chosen}", *flags.split()]
    assert precision(plan(*row)) == expected
    if chosen == "auto" and "--cpu" in flags:
        monkeypatch.setattr(autocast, "cpu_flags", list)  # of a machine without bf16
        autocast.bf16_obstacle.cache_clear()
        assert precision(plan(*row)) == []


def test_a_users_configurations_add_to_ours_and_come_first(
    plan: Launch, launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a file extends the one beside it, not one of its name in the working folder."""
    own = tmp_path / "configs" / "multi30k"
    own.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    (own / "mine.yaml").write_text("extends: multi30k/baseline\ntrain: {lr: 0.5}\n")
    (own / "child.yaml").write_text("extends: mine\ntrain: {<<: {dropout: 0}, clip-norm: null}\n")
    (line,) = trainings(plan("--config", "multi30k/child", "--cpu", "--set", "train.seed=null"))
    assert "--save-dir runs/multi30k/child/" in line
    assert "--lr 0.5 " in line
    assert "--dropout 0 " in line
    assert "--optimizer fused_adam " in line
    assert len(trainings(plan(*MULTI30K, "--rows", "child,em_routing"))) == 2
    (own / "baseline.yaml").write_text("extends: multi30k/baseline\ntrain: {lr: 0.25}\n")
    assert "--lr 0.25 " in trainings(plan("--config", "multi30k/baseline", "--cpu"))[0]
    (own / "em_routing.yaml").write_text("extends: multi30k/em_routing\ntrain: {lr: 0.125}\n")
    every = launch(*MULTI30K, "--rows", "all", "--dry-run")
    assert sum("--lr 0.125 " in line for line in trainings(every)) == 1
    # their own baseline is extended by others, and so is none of all
    assert "init-from baseline has no run in" in every
    (tmp_path / "mine").mkdir()
    for folder, rate in (("mine", 0.5), (".", 0.25)):
        text = f"extends: multi30k/baseline\ntrain: {{lr: {rate}}}\n"
        (tmp_path / folder / "base.yaml").write_text(text)
    (tmp_path / "mine" / "row.yaml").write_text("extends: base.yaml\n")
    (line,) = trainings(plan("--config", "mine/row.yaml", "--cpu"))
    assert "--lr 0.5 " in line


def test_what_a_search_is_given_of_the_references_is_warned_of(launch: Launch) -> None:
    for size, warned in ((0, False), (2, True)):
        given = ["--config", "multi30k/baseline", "--set", f"generate.prefix-size={size}"]
        said = launch(*given, "--cpu", "--dry-run")
        assert ("of each reference, and the scores count them" in said) == warned
