"""What a run leaves: records, learning curves whatever interrupted it, and means over its seeds."""

import json
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, Iterable, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from capsnmt import records
from capsnmt.cli import ConfigurationError
from capsnmt.configurations import BatchSize, Data, Settings
from capsnmt.evaluation.__main__ import main as evaluate
from capsnmt.evaluation.scores import METRICS
from capsnmt.records import RecordError
from capsnmt.runs.learning_curve import parse_train_log, read_learning_curve
from capsnmt.runs.records import (
    Bucket,
    ClassifierResult,
    Device,
    InitialModel,
    Measures,
    RunConfig,
    RunFolder,
    SweepPoint,
    TrainingRecord,
)
from capsnmt.runs.summary import lines, summarise
from capsnmt.runs.trained_rows import training_differences
from tests.report.finished_runs import TRANSLATIONS as ROWS
from tests.report.finished_runs import edit, edit_scores, page, put, write_run

POINT = SweepPoint(row="em", flag="layer-capsules", value=8)
SETTINGS = Settings(
    arch="a",
    train={"lr": 0.1, "task": "translation"},
    batch=BatchSize(tokens_per_update=4),
    data=Data(source_lang="en", target_lang="de", test_sets={"test": "test"}),
)
CONFIG = RunConfig(
    row=POINT.name, seed=1, settings=SETTINGS, data="/data",
    mirrors=("https://a",), device=Device(gpus=2, threads=4), sweep=POINT, command=("capsnmt-run",),
)  # fmt: skip
INITIAL = InitialModel(row="a", checkpoint="a.pt", checksum="0", updates=80)
TRAINING = TrainingRecord(vocabulary={"dict.en.txt": "0"}, device="CPU", device_name="x86_64",
                          versions={"torch": "2"}, initial=INITIAL)  # fmt: skip
MEASURES = Measures(examples=2, accuracy=50.0, macro_f1=1.5, majority=50.0, f1_by_class={"a": 3.0},
                    by_bucket={7: Bucket(examples=1, accuracy=100.0)})  # fmt: skip
RESULT = ClassifierResult(task="probing", probing_task="WC", updates=1, parameters=9,
                          splits={"test": MEASURES})  # fmt: skip


def places(value: Any) -> List[List[Any]]:
    """The keys that lead to each value."""
    items: Iterable[Tuple[Any, Any]] = ()
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
    return [[], *([key, *rest] for key, inner in items for rest in places(inner))]


@given(st.data())
def test_a_change_is_another_record_or_one_line(data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        folder = RunFolder(Path(name))
        path, record, read = data.draw(
            st.sampled_from(
                [
                    (folder.config, CONFIG, folder.read_config),
                    (folder.training, TRAINING, folder.read_training),
                    (folder.result, RESULT, lambda: records.read(folder.result, ClassifierResult)),
                ]
            )
        )
        records.write(path, record)
        assert read() == record
        content: Dict[str, Any] = json.loads(path.read_text("utf-8"))
        *keys, last = data.draw(st.sampled_from(places(content)[1:]))
        inner: Any = content
        for key in keys:
            inner = inner[key]
        before = inner[last]
        inner[last] = data.draw(st.sampled_from([None, -1, "../x", [], {}, {"x": 1}, True, 1e400]))
        path.write_text(json.dumps(content), "utf-8")
        line, changed = "", record
        try:
            changed = read()
            if path == folder.config:
                list(training_differences(record, changed, TRAINING, TRAINING))
        except RecordError as error:
            line = str(error)
        assert line or changed != record or inner[last] == before
        assert not line or path.name in line
        assert "\n" not in line


@pytest.mark.parametrize(
    ("schedule", "flag", "expected"),
    [
        ({"lr-scheduler": "inverse_sqrt"}, "max-update", False),
        ({"lr-scheduler": "cosine"}, "max-update", True),
        ({"lr-scheduler": "cosine", "lr-period-updates": 9}, "max-update", False),
        ({"lr-scheduler": "polynomial_decay"}, "max-update", True),
        ({"lr-scheduler": "polynomial_decay", "total-num-update": 9}, "max-update", False),
        ({"lr-scheduler": "tri_stage", "phase-ratio": "(0.1, 0.4, 0.5)"}, "max-update", True),
        ({"lr-scheduler": "inverse_sqrt"}, "save-interval", False),
        ({"lr-scheduler": "inverse_sqrt"}, "stop-time-hours", False),
        ({"lr-scheduler": "inverse_sqrt"}, "tensorboard-logdir", False),
        ({"lr-scheduler": "inverse_sqrt"}, "patience", True),
        ({"lr-scheduler": "reduce_lr_on_plateau"}, "save-interval", True),
        ({"lr-scheduler": "reduce_lr_on_plateau"}, "validate-interval-updates", True),
    ],
)
def test_another_value_is_another_training_where_the_learning_rate_follows_it(
    schedule: Dict[str, Any], flag: str, expected: bool
) -> None:
    settings = [replace(SETTINGS, train={**schedule, flag: value}) for value in (10, 20)]
    made = (replace(CONFIG, settings=each) for each in settings)
    assert any(training_differences(*made, TRAINING, TRAINING)) == expected


# --- learning curves


SAVED_EVERY = 3  # entries between two checkpoints


def entry(update: int) -> List[str]:
    """What fairseq logs at an update: the training loss and, where it saves, validation."""
    train = {"epoch": 1, "loss": f"{100 - update}", "num_updates": f"{update}"}
    # two seconds an update
    lines = [json.dumps({**train, "wps": "450.5", "wpb": "901", "wall": "0"})]
    if update % SAVED_EVERY == 0:
        valid = {"epoch": 1, "valid_loss": f"{200 - update}", "valid_num_updates": f"{update}"}
        lines.append(json.dumps(valid))
    return lines


def trained(start: int, end: int) -> List[str]:
    """The log of one process that makes the updates after ``start`` up to ``end``."""
    return [line for update in range(start + 1, end + 1) for line in entry(update)]


@given(st.lists(st.integers(1, 30), max_size=6))
def test_a_training_killed_anywhere_has_the_curve_of_an_uninterrupted_one(kills: List[int]) -> None:
    lines: List[str] = []
    start, end = 0, 30
    for kill in kills:
        lines += trained(start, max(start, kill))
        lines.append(lines[-1][:17])  # of the line that it was writing
        start = max(start, kill) // SAVED_EVERY * SAVED_EVERY
    curve = parse_train_log(lines + trained(start, end))
    assert curve == parse_train_log(trained(0, end))
    assert curve.training_seconds == pytest.approx(2 * end)
    assert curve.updates == end


def test_a_training_that_ends_at_a_checkpoint_it_had_passed_ends_there() -> None:
    """As by --max-update, after a kill."""
    assert parse_train_log(trained(0, 8), 6) == parse_train_log(trained(0, 6))
    assert parse_train_log(trained(0, 8), 8) == parse_train_log(trained(0, 8))


def test_a_curve_has_what_is_logged_finite_losses_and_the_peak_memory_of_all_starts() -> None:
    log = ['{"loss": "9", "num_updates": "10"}', '{"peak_memory_gib": 1.25}']
    assert parse_train_log(log).peak_memory == 1.25
    assert parse_train_log([*log, *trained(10, 12), '{"peak_memory_gib": 1.0}']).peak_memory == 1.25
    curve = parse_train_log(log[:1])
    assert (curve.valid, curve.training_seconds, curve.updates) == ({}, None, 10)
    assert (curve.tokens_per_second, curve.peak_memory) == (None, None)
    for loss in ("nan", "inf", "null", "x", None):
        lines = [json.dumps({"loss": loss, "num_updates": "20"}), *trained(0, 2)]
        assert sorted(parse_train_log(lines).train) == [1, 2], loss


def test_the_mean_of_an_epoch_is_a_point_where_the_training_has_no_other() -> None:
    numbers = {"train_loss": "3", "train_num_updates": "2", "train_wps": "5", "train_wpb": "10"}
    log = ['{"valid_loss": "4", "valid_num_updates": "2"}', json.dumps(numbers)]
    assert parse_train_log([*trained(0, 2), log[1]]) == parse_train_log(trained(0, 2))
    curve = parse_train_log(log)
    assert (curve.train, curve.valid, curve.training_seconds) == ({2: 3.0}, {2: 4.0}, 4.0)


def test_an_epoch_that_a_kill_repeats_takes_its_time_once() -> None:
    """Where no update is logged within an epoch."""
    valid = '{"valid_loss": "4", "valid_num_updates": "%d"}'
    end = '{"epoch": %d, "train_loss": "3", "train_num_updates": "%d",'
    end += ' "train_wps": "5", "train_wpb": "10"}'
    first, second = ([valid % update, end % (epoch, update)] for epoch, update in ((1, 9), (2, 18)))
    whole = parse_train_log([*first, *second])
    assert whole.training_seconds == 36
    assert parse_train_log([*first, *second, *first, *second]) == whole
    assert parse_train_log([*first, *second, *first]) == parse_train_log(first)


def test_a_training_without_validation_ends_where_its_last_epoch_does() -> None:
    ends = [
        f'{{"epoch": {epoch}, "train_loss": "3", "train_num_updates": "{update}"}}'
        for epoch, update in ((1, 9), (2, 12))
    ]
    log = [*trained(0, 8)[:4], ends[0], '{"loss": "3", "num_updates": "10"}']
    assert (parse_train_log(log).updates, parse_train_log(log).epoch) == (10, 1)
    curve = parse_train_log([*log, ends[1]])
    assert (curve.updates, curve.epoch) == (12, 2)
    # updates after the last entry that has a time take as long
    assert (curve.training_seconds, curve.tokens_per_second) == pytest.approx((24, 450.5))
    again = parse_train_log([*log, ends[1], '{"loss": "3", "num_updates": "9"}'])
    assert (again.updates, again.epoch) == (9, 0)


@pytest.mark.parametrize("content", ["", "\n", "no json\n", '{"valid_loss": "1"}\n', "[1]\n"])
def test_a_log_without_training_loss_is_one_error_that_names_it(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "train.log"
    path.write_text(content, "utf-8")
    line = rf"^{re.escape(str(path))} has no training loss.*\Z"
    with pytest.raises(ConfigurationError, match=line):
        read_learning_curve(path)


# --- means over seeds


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs"), "em_routing")


def add_seed(
    first: Path,
    row: Path,
    seed: int,
    score: float,
    initial_updates: Optional[int] = None,
    **train: Any,
) -> RunFolder:
    """Another seed, of which every metric is ``score``."""
    folder = RunFolder(shutil.copytree(first, row / f"seed-{seed}"))
    put("config.json", "seed", value=seed)(folder.path)
    edit(folder.config, lambda config: config["settings"]["train"].update(train))
    edit_scores(folder.path, lambda scores: [scores[x].update(score=score) for x in METRICS])
    if initial_updates is not None:
        initial = {"row": "baseline", "checkpoint": "a.pt", "checksum": str(seed)}
        put("training.json", "initial", value={**initial, "updates": initial_updates})(folder.path)
    return folder


def summary_of(run: RunFolder) -> Dict[str, Any]:
    summarise(run)
    return json.loads(run.summary.read_text("utf-8"))


def test_a_row_has_the_mean_and_the_deviation_of_a_sample(first: Path, tmp_path: Path) -> None:
    for seed, score in ((10, 43.0), (2, 41.0), (1, 42.0)):
        run = add_seed(first, tmp_path, seed, score)
    summary = summary_of(run)
    assert (summary["seeds"], summary["left-out-seeds"]) == ([1, 2, 10], [])
    assert summary["scores"]["test"].keys() == METRICS.keys()
    for score in summary["scores"]["test"].values():
        assert score["values"] == [42.0, 41.0, 43.0]
        assert (score["mean"], score["std"]) == pytest.approx((42.0, 1.0))
    assert "bleu 42.00 +- 1.00" in next(lines(summarise(run)))


def test_seeds_with_other_settings_and_unfinished_ones_are_left_out(
    first: Path, tmp_path: Path
) -> None:
    run = add_seed(first, tmp_path, 1, 42.0)
    add_seed(first, tmp_path, 2, 99.0, lr=0.5)
    add_seed(first, tmp_path, 3, 99.0, **{"max-update": 50})
    add_seed(first, tmp_path, 4, 99.0).scores.unlink()
    add_seed(first, tmp_path, 5, 42.0, **{"log-interval": 7, "validate-interval": 3})
    other = add_seed(first, tmp_path, 6, 99.0)
    edit(other.training, lambda training: training.update(vocabulary={"dict.en.txt": "0"}))
    searched = add_seed(first, tmp_path, 7, 99.0), add_seed(first, tmp_path, 8, 42.0)
    for other, changes in zip(searched, ({"beam": 1}, {"batch-size": 1})):
        edit(other.config, lambda config, new=changes: config["settings"].update(generate=new))
    add_seed(first, tmp_path, 9, 99.0, **{"save-interval-updates": 3})  # another average
    add_seed(first, tmp_path, 11, 99.0, **{"stop-time-hours": 9})
    fewer = add_seed(first, tmp_path, 10, 42.0)
    put("config.json", "settings", "score", "metrics", value="bleu,chrf")(fewer.path)
    for metric in ("chrf++", "ter"):
        edit_scores(fewer.path, lambda scores, metric=metric: scores.pop(metric))
    summary = summary_of(run)
    assert (summary["seeds"], summary["left-out-seeds"]) == ([1, 5, 8, 10], [2, 3, 6, 7, 9, 11])
    assert list(summary["scores"]["test"]) == ["bleu", "chrf"]
    assert next(lines(summarise(run))).endswith("seed(s) 2, 3, 6, 7, 9, 11")


@pytest.mark.parametrize("asked", [("fp32", "bf16"), ("auto", "auto")])
def test_seeds_that_were_trained_or_scored_otherwise_are_named(
    asked: Tuple[str, str], first: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Also of machines on which ``auto`` is another one, but of older records that say no more.

    The mean had the signature of one of them.
    """
    runs = [add_seed(first, tmp_path, seed, 42.0) for seed in (1, 2, 3)]
    for run, setting, precision in zip(runs, (*asked, "auto"), ("fp32", "bf16", None)):
        put("config.json", "settings", "precision", value=setting)(run.path)
        put("training.json", "precision", value=precision)(run.path)
    assert summary_of(runs[0])["seeds"] == [1, 2, 3]
    warning = "the mean is of seeds with different precisions (em_routing bf16 and fp32)"
    assert warning in capsys.readouterr().err
    assert "different precisions (em\\_routing bf16 and fp32)" in page([tmp_path])
    bleu = ("test", "systems", 0, "outputs", 0, "scores", "bleu", "signature")
    for run, version in zip(runs, ("2.3.1", "2.4.0", "2.4.0")):
        put("scores.json", *bleu, value=f"tok:13a|version:{version}")(run.path)
    signature = "tok:13a|version:2.3.1 and tok:13a|version:2.4.0"
    assert summary_of(runs[0])["scores"]["test"]["bleu"]["signature"] == signature
    assert "seeds with different signatures of BLEU on test" in capsys.readouterr().err


@pytest.mark.parametrize("record", ["config.json", "training.json", "scores.json"])
def test_a_seed_of_another_version_beside_it_does_not_fail_a_seed(
    first: Path, tmp_path: Path, record: str, capsys: pytest.CaptureFixture
) -> None:
    """The launch ended with an error after the training, and the jobs that wait for it with it."""
    run, other = (add_seed(first, tmp_path, seed, 42.0) for seed in (1, 2))
    put(record, "version", value=1)(other.path)
    assert summary_of(run)["seeds"] == [1]
    assert re.search(f"warning: no mean has .*seed-2: .*{record}", capsys.readouterr().err)
    with pytest.raises(RecordError):
        summarise(other)


def test_patience_is_of_validations_which_a_save_has_too(first: Path, tmp_path: Path) -> None:
    for seed, every in ((1, 3), (2, 3), (3, 4)):
        saved = {"save-interval-updates": every}
        run = add_seed(first, tmp_path, seed, 42.0, patience=2, **saved)
        edit(run.config, lambda config: config["settings"].update(average={}))
    summary = summary_of(run)
    assert (summary["seeds"], summary["left-out-seeds"]) == ([3], [1, 2])


@pytest.mark.parametrize("task", [None, "WC"])
def test_data_that_moved_with_a_run_are_found_beside_its_row(
    task: Optional[str], first: Path, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path.joinpath("out", "row", *([task] if task else []), "seed-1"))
    shutil.copytree(first, run.path)
    config = replace(run.read_config(), data="/gone", task=task)
    assert run.data(config) == Path("/gone")
    (tmp_path / "out" / "data").mkdir()
    assert run.data(config) == tmp_path / "out" / "data"


@pytest.mark.parametrize("name", ["seed-2-bak", "seed-02", "seed-old"])
def test_a_copy_beside_a_seed_counts_only_if_it_is_the_run_itself(
    first: Path, tmp_path: Path, name: str
) -> None:
    run, copy = add_seed(first, tmp_path, 2, 42.0), add_seed(first, tmp_path, 3, 1.0)
    edit(copy.config, lambda config: config.update(seed=2))
    copy = RunFolder(copy.path.rename(tmp_path / name))
    for each in (run, copy):
        summary = summary_of(each)
        assert (summary["seeds"], summary["left-out-seeds"]) == ([2], [])
        assert summary["scores"]["test"]["bleu"]["values"] == [42.0]
    edit(copy.config, lambda config: config["settings"]["train"].update(lr=0.5))
    assert summary_of(copy)["scores"]["test"]["bleu"]["values"] == [42.0]
    shutil.rmtree(run.path)
    assert summary_of(copy)["scores"]["test"]["bleu"]["values"] == [1.0]


def test_the_updates_of_the_initial_model_are_counted_next_to_the_own(
    first: Path, tmp_path: Path
) -> None:
    for seed in (1, 2):
        run = add_seed(first, tmp_path, seed, 42.0, initial_updates=80)
    add_seed(first, tmp_path, 3, 99.0, initial_updates=60)
    add_seed(first, tmp_path, 4, 99.0)
    summary = summary_of(run)
    assert (summary["seeds"], summary["left-out-seeds"]) == ([1, 2], [3, 4])
    assert (summary["updates"], summary["init-from"], summary["initial-updates"]) == (
        *(40, "baseline", 80),
    )
    assert next(lines(summarise(run))) == (
        "initialised from baseline (up to 80 updates), trained for up to 40 more"
    )
    for seed, updates in ((5, 80), (6, 60)):
        run = add_seed(first, tmp_path, seed, 42.0, initial_updates=updates, patience=10)
    assert (summary_of(run)["seeds"], summary_of(run)["initial-updates"]) == ([5, 6], 80)


def test_a_row_has_its_difference_to_the_baseline_that_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """As the command that compares their outputs."""
    write_run(tmp_path, "baseline")
    run = RunFolder(write_run(tmp_path, "em_routing", "baseline"))
    references = {"test": [tmp_path / "data/raw/test.de"]}
    record = tmp_path / "compared.json"
    files = (RunFolder(tmp_path / row / "seed-1").generated("test") for row in ROWS)
    given = [*map("=".join, zip(ROWS, map(str, files))), "--baseline", "baseline", "--json"]
    given += [str(record), "--reference", str(references["test"][0]), "--target-lang", "de"]
    assert evaluate([*given, "--metrics", "bleu,chrf"]) == 0
    found = summarise(run, references)
    assert records.plain(found.comparisons["test"]) == records.load(record)["comparisons"]
    (line, *_) = [line for line in lines(found) if "to baseline" in line]
    assert line.startswith("test: bleu ")
    small = replace(found.comparisons["test"][0], p_value=0.001, corrected_p_value=0.3)
    assert [*lines(replace(found, comparisons={"test": [small]}))][-1].endswith("p 0.3000")
    assert "systems alone" not in capsys.readouterr().err
    edit(tmp_path / "baseline/seed-1/scores.json", lambda x: x.update(other=x["test"]))
    edit(run.config, lambda config: config["settings"].update(generate={"lenpen": 2.0}))
    put("config.json", "settings", "batch", "tokens-per-update", value=200)(run.path)
    assert summarise(run, references).comparisons == found.comparisons
    said = capsys.readouterr().err
    assert "generate.lenpen (baseline None; em_routing 2.0): they differ not in" in said
    assert "different batch.tokens-per-update (baseline 100; em_routing 200): they" in said
    put("training.json", "vocabulary", value={"dict.de.txt": "0"})(run.path)
    assert summarise(run, references).comparisons == found.comparisons
    assert "em_routing and baseline have different dictionaries: they" in capsys.readouterr().err
    put("training.json", "precision", value="bf16")(run.path)
    ends = {"max-update": 50, "max-epoch": 3, "patience": 5}
    edit(run.config, lambda config: config["settings"]["train"].update(ends))
    assert summarise(run, references).comparisons == found.comparisons
    said = capsys.readouterr().err
    assert "different precisions (baseline fp32; em_routing bf16): they" in said
    for flag, before in (("max-epoch", None), ("max-update", 40), ("patience", None)):
        assert f"different train.{flag} (baseline {before}; em_routing {ends[flag]}): they" in said
    cut = RunFolder(tmp_path / "baseline" / "seed-1").generated("test")
    cut.write_bytes(cut.read_bytes()[:99])
    assert summarise(run, references).comparisons == {}
    assert f"warning: {cut.parent} has no H- lines" in capsys.readouterr().err
    add_seed(tmp_path / "baseline/seed-1", tmp_path / "baseline", 2, 42.0, lr=0.5)
    assert summarise(run, references).comparisons == {}
    refused = r"warning: .*baseline/seed-2 has train.lr 0.5, but .*; no difference to their mean"
    assert re.search(refused, capsys.readouterr().err)
    shutil.rmtree(tmp_path / "baseline")
    assert summarise(run, references).comparisons == {}
