"""The launcher: what it runs, what it skips, where it goes on, and what it refuses."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, List

import pytest
import torch
from fairseq import options

from capsnmt.errors import ConfigurationError
from capsnmt.experiment import classification_run as launcher
from capsnmt.experiment.flags import argv
from capsnmt.files import write_json
from tests.report.test_classification import measures
from tests.support import REPO

SETS = sorted({path.parent for path in (REPO / "configs").glob("[lp]*/*/baseline.yaml")})


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    folder = tmp_path / "configs"
    folder.mkdir()
    train = "train: {criterion: sentence_classification, max-update: 2}"
    settings = f"dataset: probing\narch: probing_transformer\n{train}\n"
    (folder / "base.yaml").write_text(settings, "utf-8")
    (folder / "baseline.yaml").write_text("extends: base\n", "utf-8")
    (folder / "em.yaml").write_text("extends: base\ntrain: {head-aggregation: em}\n", "utf-8")
    return folder


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> List[List[str]]:
    """What would be run; in its place the files appear that it would leave."""
    ran: List[List[str]] = []

    def pretend(argv: Any, *_: Any, **__: Any) -> int:
        ran.append(list(argv))
        if "fairseq_cli.train" in argv:
            folder = Path(argv[argv.index("--save-dir") + 1])
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
                (folder / name).write_bytes(b"")
        else:
            results = {"task": "probing", "probing_task": "WC", "updates": 2, "parameters": 1}
            path = Path(argv[argv.index("--json") + 1])
            write_json(path, {**results, "splits": {"test": measures(50.0)}})
        return 0

    monkeypatch.setattr(launcher.process, "run", pretend)
    return ran


def arguments(configs: Path, *more: str) -> List[str]:
    where = ["--data", "data", "--output", str(configs.parent / "runs")]
    return [str(configs), *where, "--tasks", "WC", "--seeds", "1,2", *more]


def test_every_row_and_seed_is_trained_evaluated_and_reported_and_then_skipped(
    configs: Path, commands: List[List[str]]
) -> None:
    assert launcher.main(arguments(configs)) == 0
    assert len(commands) == 2 * 2 * 2
    trained = [shlex.join(c) for c in commands if "fairseq_cli.train" in c]
    assert [("--head-aggregation em" in t, t.split("--seed ")[1][0]) for t in trained] == [
        *((False, "1"), (True, "1"), (False, "2"), (True, "2"))
    ]
    runs = configs.parent / "runs"
    assert "50.00" in (runs / "report.md").read_text("utf-8")
    assert launcher.main(arguments(configs)) == 0
    assert len(commands) == 8
    # what was lost is made again, and nothing else
    (runs / "em" / "WC" / "seed-2" / "results.json").unlink()
    assert launcher.main(arguments(configs)) == 0
    assert [c[2] for c in commands[8:]] == ["capsnmt.experiment.classification_evaluate"]


def test_a_stopped_training_is_started_again_where_its_checkpoints_are(
    configs: Path, commands: List[List[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend = launcher.process.run

    def stop(*_: Any, **__: Any) -> int:
        raise launcher.process.Stopped(15)

    monkeypatch.setattr(launcher.process, "run", stop)
    with pytest.raises(launcher.process.Stopped):
        launcher.main(arguments(configs))
    monkeypatch.setattr(launcher.process, "run", pretend)
    assert launcher.main(arguments(configs, "--rows", "baseline")) == 0
    assert len(commands) == 4


def test_a_training_that_ended_but_was_not_recorded_makes_no_update_more(
    configs: Path, commands: List[List[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = configs.parent / "runs" / "baseline" / "WC" / "seed-1" / "checkpoints"
    checkpoints.mkdir(parents=True)
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        torch.save({"model": {}, "optimizer_history": [{"num_updates": 2}]}, checkpoints / name)
    given = arguments(configs, "--rows", "baseline")
    given[given.index("1,2")] = "1"
    assert launcher.main(given) == 0
    assert [command[2] for command in commands] == ["capsnmt.experiment.classification_evaluate"]


def test_other_settings_in_a_folder_that_has_a_run_are_refused(
    configs: Path, commands: List[List[str]]
) -> None:
    launcher.main(arguments(configs))
    with pytest.raises(ConfigurationError, match="has a run with other settings"):
        launcher.main(arguments(configs, "--set", "train.max-update=3"))


def test_a_command_that_fails_is_one_line_with_its_last_one(
    configs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(argv: Any, environment: Any, on_line: Any, **_: Any) -> int:
        on_line("much\n")
        on_line("the reason\n")
        return 1

    monkeypatch.setattr(launcher.process, "run", fail)
    with pytest.raises(ConfigurationError, match=r"train\.log: train failed: the reason$") as error:
        launcher.main(arguments(configs))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--rows", "mlmha"], "--rows: there is no 'mlmha': choose from baseline, em"),
        (["--tasks", "Length"], "--probing-task: 'Length': choose from SentLen"),
        (["--seeds", "one"], "'one': give whole numbers"),
        (["--set", "train"], "--set train: give KEY=VALUE"),
    ],
)
def test_a_bad_flag_is_one_line(more: List[str], message: str, configs: Path) -> None:
    with pytest.raises(ConfigurationError, match=message) as error:
        launcher.main(arguments(configs, *more))
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigurationError, match="there are no rows"):
        launcher.main(arguments(configs.parent / "nowhere"))


@pytest.mark.parametrize("folder", SETS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_fairseq_understands_every_configuration(folder: Path) -> None:
    assert len(SETS) == 5
    for experiment in launcher.rows_of(folder, None):
        task = ["--task", experiment["dataset"], "--arch", experiment["arch"]]
        parser = options.get_training_parser(experiment["dataset"])
        train = argv(experiment["train"])
        args = options.parse_args_and_arch(parser, ["data", *task, *train])
        assert args.best_checkpoint_metric == "accuracy"
        assert args.maximize_best_checkpoint_metric
        regularised = experiment.row in ("disagreement", "both")
        aggregated = {"aggregation": "em", "both": "em", "em": "em", "simple": "simple"}
        assert args.disagreement == ("output" if regularised else "none")
        assert args.head_aggregation == aggregated.get(experiment.row, "linear")
