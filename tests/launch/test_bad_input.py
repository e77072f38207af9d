"""Bad input of each kind: one line that names the value, exit status 2, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from capsnmt.launch.cli import main

ROW = ["--config", "multi30k/baseline", "--cpu"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["--config ROW", "--arch"]),
        (["--arch", "capsnmt_transformer"], ["--dataset"]),
        (["--config", "multi30k/nothing"], ["multi30k/nothing", "multi30k/em_routing"]),
        (["--dataset", "demo", "--config", "multi30k/baseline"], ["multi30k", "not demo"]),
        ([*ROW, "--arch", "transfromer"], ["--arch", "'transfromer'", "transformer_em_routing"]),
        ([*ROW, "--seed", "one"], ["--seed", "'one'", "whole number"]),
        ([*ROW, "--seed=-1"], ["--seed", "'-1'", "whole number"]),
        ([*ROW, "--seeds", "1,99999999999"], ["--seeds", "'99999999999' is more than 2147483647"]),
        ([*ROW, "--seeds", "1,1"], ["--seeds", "twice"]),
        ([*ROW, "--seed", "1", "--seeds", "1,2"], ["--seeds", "not allowed with"]),
        ([*ROW, "--max-update", "0"], ["--max-update", "'0'", "at least 1"]),
        ([*ROW, "--cpu", "no"], ["--cpu", "'no'", "at least 1"]),
        ([*ROW, "--gpus", "1"], ["--gpus", "not allowed with argument --cpu"]),
        ([*ROW, "--nodes", "2"], ["--nodes 2", "not a SLURM job", "--slurm", "salloc --nodes=2"]),
        ([*ROW, "--requeue"], ["--requeue", "not a SLURM job"]),
        (["--dataset", "multi30k", "--dry-ru"], ["--dry-ru", "--help"]),
        ([*ROW, "--pair", "en"], ["--pair", "'en'", "SOURCE-TARGET"]),
        ([*ROW, "--learning-rate", "1"], ["--learning-rate", "--help"]),
        ([*ROW, "--data", "/no/such"], ["--data /no/such", "no such folder"]),
        ([*ROW, "--baseline", "baseline"], ["--baseline baseline", "is the row itself"]),
        ([*ROW, "--baseline", "other"], ["--baseline other", "em_routing", "run that row first"]),
        ([*ROW, "--baseline", "em_routing"], ["--baseline em_routing", "run that row first"]),
        ([*ROW, "--set", "train.lerning-rate=1"], ["--set", "no flag --lerning-rate"]),
        ([*ROW, "--set", "train.dropuot=1"], ["no flag --dropuot", "did you mean --dropout"]),
        ([*ROW, "--set", "train.dropout=much"], ["train.dropout", "much"]),
        ([*ROW, "--set", "train.optimizer=adma"], ["train.optimizer", "adma", "adam"]),
        ([*ROW, "--set", "train.share-all-embeddings=yess"], ["yess", "written as true"]),
        ([*ROW, "--set", "train.lr='0.1; x'"], ["train.lr", "'0.1; x'", "give a number"]),
        (
            [*ROW, "--set", "train.adaptive-softmax-cutoff=' [print(1)]'"],
            ["train.adaptive-softmax-cutoff", "is a call in Python"],
        ),
        (
            [*ROW, "--set", "train.xformers-att-config='{1: exit()}'"],
            ["train.xformers-att-config", "is a call in Python"],
        ),
        ([*ROW, "--set", "train.adam-betas=exit()"], ["train.adam-betas", "'exit()'"]),
        ([*ROW, "--set", "train.save-dir=x"], ["train.save-dir", "--output"]),
        ([*ROW, "--set", "train.update-freq=2"], ["batch.tokens-per-update"]),
        ([*ROW, "--set", "generate.beams=5"], ["generate.beams", "--beam"]),
        ([*ROW, "--set", "score.significance=t-test"], ["score.significance", "'t-test'"]),
        (["--config", "multi30k/em_routing", "--cpu", "--baseline", "baseline",
          "--set", "score.trials=9"], ["score: --trials", "--significance bootstrap"]),
        ([*ROW, "--set", "score.comet-model=/no/model.ckpt"], ["score: --comet-model"]),
        ([*ROW, "--set", "average.best=3"], ["average", "choose one"]),
        ([*ROW, "--max-update", "50"], ["average.last-updates", "save-interval-updates to 5"]),
        ([*ROW, "--max-update", "6"], ["--max-update 10 or more", "average.last-updates=6"]),
        ([*ROW, "--set", "train.keep-interval-updates=2"], ["keep-interval-updates is 2"]),
        ([*ROW, "--set", "data.recipe=null"], ["--prepared", "manifest.json"]),
        (["--arch", "transformer_em_routing_tiny", "--dataset", "multi30k", "--cpu",
          "--set", "train.head-capsules=7"], ["--head-capsules", "7"]),
    ],
)  # fmt: skip
def test_bad_input_is_reported_in_one_line_and_leaves_nothing(
    capsys, tmp_path: Path, arguments: list, parts: list
):
    output = tmp_path / "output"
    assert main([*arguments, "--output", str(output)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert all(part in message for part in parts), message
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--name", "../../x"], ["--name", "'../../x'", "without a slash"]),
        (["--name", "."], ["--name", "'.'"]),
        (["--name", ""], ["--name", "''"]),
        (["--name", "a\nrm -r x"], ["--name", "'a\\nrm -r x'", "printable"]),
        (["--name", "x" * 201], ["--name", "up to 200"]),
        (["--baseline", "../x"], ["--baseline", "'../x'"]),
        (["--baseline", "other"], ["--baseline other", "neither a row of multi30k"]),
        (["--set", "data.test-sets={a/b: test}"], ["'a/b'"]),
        (["--data", "/no/such"], ["--data /no/such", "no such folder"]),
        (["--data", __file__], ["--data", "is a file"]),
        (["--output", __file__], ["--output", "is a file: give a folder"]),
        (["--prepared", f"{__file__}/data"], ["--prepared", "is a file: give a folder"]),
        (["--mirror", "/folder"], ["--mirror", "'/folder'", "https:// URL"]),
        (["--mirror", "http://"], ["--mirror", "'http://'"]),
        (["--mirror", "http://a", "--data", "."], ["--mirror http://a", "--data or --offline"]),
        (["--mirror", "http://a", "--offline"], ["--mirror http://a", "leave one out"]),
        (["--slurm", "a b"], ["--slurm", "'a b' is not a partition"]),
        (["--slurm", "a;b"], ["--slurm", "'a;b' is not a partition"]),
        (["--pair", "en-en"], ["--pair", "'en-en'", "two languages"]),
        (["--set", "data.target-lang=en"], ["data.target-lang: en", "two languages"]),
    ],
)
def test_a_plan_that_could_not_run_is_refused(capsys, arguments: list, parts: list):
    assert main([*ROW, "--dry-run", *arguments]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.count("\n") == 1
    assert all(part in printed.err for part in parts), printed.err


def test_more_gpus_than_there_are_is_reported(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert main(["--config", "multi30k/baseline", "--gpus", "2"]) == 2
    assert "--gpus 2: this machine has none" in capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert main(["--config", "multi30k/baseline", "--gpus", "2"]) == 2
    assert (
        "this machine has 1 that torch can use: give --gpus 1..1 or --cpu"
        in capsys.readouterr().err
    )


def test_a_bad_flag_in_a_file_is_reported_with_the_file(capsys, tmp_path: Path):
    base = Path(__file__).parents[2] / "configs" / "multi30k" / "base.yaml"
    (tmp_path / "base.yaml").write_text(base.read_text(encoding="utf-8"), encoding="utf-8")
    row = tmp_path / "row.yaml"
    row.write_text(
        "extends: base\narch: capsnmt_transformer_tiny\ntrain: {warm-up: 1}\n", encoding="utf-8"
    )
    assert main(["--config", str(row), "--cpu", "--dry-run"]) == 2
    assert f"{row}: train.warm-up: fairseq-train has no flag" in capsys.readouterr().err
