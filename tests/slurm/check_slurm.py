"""A real SLURM runs ``run_wmt14.sh --slurm``, ends its time, preempts it; no result differs.

Not collected with the other tests: it needs root, Debian's slurm-wlm and munge, and some minutes.
``scripts/slurm_test.sh`` installs them and runs it.
"""

import gzip
import itertools
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Iterator, List, NoReturn, Sequence

import pytest
from fairseq import options
from fairseq_cli import preprocess

from capsnmt import records
from capsnmt.checkpoints.resume import LAST, num_updates
from tests.commands import hypotheses
from tests.real_data import real_data
from tests.support import REPO

UPDATES = 600  # still training when SLURM on busy cores delivers the second signal
# A model of toy size on the settings of the row, so that two nodes on one machine are quick.
SMALL = [
    *("--arch", "capsnmt_transformer_tiny", "--name", "tiny", "--threads", "1"),
    *("--max-update", str(UPDATES)),
    *(
        argument
        for setting in (
            *("data.recipe=null", "batch.tokens-per-update=512", "batch.max-tokens=256"),
            *("train.encoder-layers=1", "train.decoder-layers=1", "train.log-interval=10"),
            *("train.encoder-embed-dim=32", "train.decoder-embed-dim=32"),
            *(f"train.save-interval-updates={UPDATES}", "train.warmup-updates=20"),
        )
        for argument in ("--set", setting)
    ),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Two nodes on this machine."""
    folder = tmp_path_factory.mktemp("slurm")
    for parent in (folder, folder.parent, folder.parent.parent):
        parent.chmod(0o755)  # munged runs as its own user
    script = str(REPO / "tests" / "slurm" / "cluster.sh")
    subprocess.run(["bash", script, "start", str(folder)], check=True)
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    yield
    subprocess.run(["scancel", "--user", "root"], check=False)
    subprocess.run(["bash", script, "stop", str(folder)], check=True)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Multi30k's first sentences, as data_prep leaves a corpus."""
    data = real_data("multi30k")
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "raw").mkdir()
    splits = {"train": ("train", 600), "valid": ("val", 20), "test": ("test_2016_flickr", 20)}
    arguments = ["--source-lang", "en", "--target-lang", "de", "--joined-dictionary"]
    arguments += ["--thresholdsrc", "3", "--thresholdtgt", "3", "--destdir", str(folder / "bin")]
    for split, (name, lines) in splits.items():
        for language in ("en", "de"):
            with gzip.open(data / f"{name}.{language}.gz", "rt", encoding="utf-8") as file:
                text = "".join(itertools.islice(file, lines))
            (folder / "raw" / f"{split}.{language}").write_text(text, encoding="utf-8")
        arguments += [f"--{split}pref", str(folder / "raw" / split)]
    preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
    (folder / "manifest.json").write_text('{"subsets": {"test": "test"}}', encoding="utf-8")
    return folder


def run_wmt14(corpus: Path, output: Path, *flags: str, allocation: Sequence[str] = ()) -> str:
    """Run the script as a user starts it; return what it prints."""
    where = ["--prepared", str(corpus), "--output", str(output)]
    done = subprocess.run(
        [*allocation, str(REPO / "scripts" / "run_wmt14.sh"), *SMALL, *flags, *where],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    logs = [path.read_text(encoding="utf-8")[-2000:] for path in sorted(output.rglob("*.log"))]
    assert done.returncode == 0, "\n".join([done.stderr, *logs])
    return done.stdout


def submit(corpus: Path, output: Path, seed: int, *flags: str) -> str:
    """Submit the row; return the number of its job."""
    device = ["--slurm", "--nodes", "2", "--cpu", "1"]
    printed = run_wmt14(corpus, output, *device, "--seed", str(seed), *flags)
    job = re.search(r": job (\d+) ", printed)
    assert job is not None, printed
    return job[1]


def state(job: str, field: str = "JobState") -> str:
    text = subprocess.run(
        ["scontrol", "show", "job", job], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return text.partition(f"{field}=")[2].split()[0]


def limit(job: str, time_limit: str) -> None:
    """Change the time of a job."""
    words = ["scontrol", "update", f"JobId={job}", f"TimeLimit={time_limit}"]
    subprocess.run(words, check=True)


def wait_until(happened: Callable[[], bool], run: Path, what: str) -> None:
    for _ in range(2400):
        if happened():
            return
        time.sleep(0.25)
    never_happened(what, run)


def never_happened(what: str, *runs: Path) -> NoReturn:
    paths = [path for run in runs for path in sorted(run.glob("*.log"))]
    logs = [f"{path}:\n{path.read_text(encoding='utf-8')[-2000:]}" for path in paths]
    pytest.fail(f"never happened: {what}\n" + "\n".join(logs))


def wait_for_end(job: str, *runs: Path) -> None:
    """Wait until a job is complete, and fail at another end: SLURM forgets a job in minutes."""
    going = ("PENDING", "RUNNING", "COMPLETING")
    wait_until(lambda: state(job) not in going, runs[0], f"the end of job {job}")
    if state(job) != "COMPLETED":
        never_happened(f"job {job} is {state(job)} and not complete", *runs)


def found(pattern: str, path: Path) -> List[str]:
    return re.findall(pattern, path.read_text(encoding="utf-8") if path.exists() else "")


def updates_logged(run: Path) -> List[int]:
    return [*map(int, found(r'"num_updates": "(\d+)"', run / "train.log"))]


def stops(run: Path) -> List[str]:
    """What stopped the training, each time it saved."""
    return found(r'"stopped_by": "([^"]*)"', run / "console.log")


# With every commit tests/faults/test_preemption.py stops and resumes without SLURM.
@pytest.mark.nightly
def test_a_job_whose_time_ends_and_that_is_preempted_ends_with_the_results_of_a_run_that_was_not(
    cluster: None, corpus: Path, tmp_path: Path
):
    run = tmp_path / "slurm runs" / "tiny" / "seed-1"
    job = submit(corpus, tmp_path / "slurm runs", 1)

    wait_until(lambda: bool(updates_logged(run)), run, "first updates")
    limit(job, "2")  # its last two minutes have begun
    wait_until(lambda: len(stops(run)) == 1, run, "a save before the end of the time")
    wait_until(lambda: state(job) == "PENDING", run, "the job in the queue again")
    limit(job, "UNLIMITED")
    first = num_updates(run / "checkpoints" / LAST)
    assert 0 < first < UPDATES

    wait_until(lambda: updates_logged(run)[-1] > first, run, "updates of the requeued job")
    subprocess.run(["scontrol", "requeue", job], check=True)
    wait_until(lambda: len(stops(run)) == 2, run, "a save after SIGTERM")
    second = num_updates(run / "checkpoints" / LAST)
    assert first < second < UPDATES

    wait_until((run.parent / "summary.json").exists, run, "the end of the run")
    wait_for_end(job, run)
    log = run / f"slurm-{job}.log"
    assert found(r"resuming at ([\d,]+) of", log) == [f"{first:,}", f"{second:,}"]
    assert len(found("stopped by SIGTERM: the same command resumes", log)) == 2
    console = (run / "console.log").read_text(encoding="utf-8")
    assert console.count("training on 2 devices") == 3
    assert "(rank 1): tcp://127.0.0.1:" in console

    run_wmt14(corpus, tmp_path / "here", "--cpu", "2", "--seed", "1")
    here = tmp_path / "here" / "tiny" / "seed-1"
    assert num_updates(here / "checkpoints" / LAST) == UPDATES
    translations = [
        hypotheses((each / "generate-test.txt").read_text(encoding="utf-8")) for each in (run, here)
    ]
    assert len(translations[0]) == 20
    assert translations[0] == translations[1]
    assert records.load(run.parent / "summary.json") == records.load(here.parent / "summary.json")


def test_a_job_that_its_user_cancels_saves_and_does_not_return(
    cluster: None, corpus: Path, tmp_path: Path
):
    run = tmp_path / "slurm runs" / "tiny" / "seed-2"
    long = ["--max-update", str(100 * UPDATES)]  # on a busy machine scancel takes its time
    job = submit(corpus, tmp_path / "slurm runs", 2, *long)
    again = submit(corpus, tmp_path / "slurm runs", 2, *long)
    assert again == job, "the same command submits nothing twice"
    wait_until(lambda: bool(updates_logged(run)), run, "first updates")
    subprocess.run(["scancel", job], check=True)
    wait_until(lambda: len(stops(run)) == 1, run, "a save after scancel")
    assert 0 < num_updates(run / "checkpoints" / LAST) < 100 * UPDATES
    wait_until(lambda: state(job) == "CANCELLED", run, "the end of the job")
    log = (run / f"slurm-{job}.log").read_text(encoding="utf-8")
    assert "stopped by SIGTERM: the same command resumes" in log
    console = (run / "console.log").read_text(encoding="utf-8")
    assert console.count("training on 2 devices") == 1
    assert "(rank 1): tcp://127.0.0.1:" in console


@pytest.mark.nightly  # with every commit tests/launch/test_slurm.py has what is submitted
def test_a_row_waits_for_the_job_of_its_baseline(
    cluster: None, corpus: Path, tmp_path: Path
) -> None:
    output = tmp_path / "runs"
    short = ["--max-update", "20", "--set", "train.save-interval-updates=20"]
    first = submit(corpus, output, 3, *short)
    other = submit(corpus, output, 3, *short, "--name", "other", "--baseline", "tiny")
    waits = state(other, "Dependency"), state(other)
    if state(first) in ("PENDING", "RUNNING"):  # so it was when the other one was looked at
        assert waits[0].startswith(f"afterok:{first}")
        assert waits[1] == "PENDING"
    run = output / "other" / "seed-3"
    wait_for_end(other, run, output / "tiny" / "seed-3")
    assert state(first) == "COMPLETED"
    assert '"tiny"' in (run / "scores.json").read_text(encoding="utf-8")


def test_two_runs_side_by_side_in_one_allocation_meet_at_ports_of_their_own(
    cluster: None, corpus: Path, tmp_path: Path
) -> None:
    """Each trains on both nodes, in a step of its own."""
    allocation = ["salloc", "--nodes=2", "--ntasks-per-node=4"]
    flags = ["--nodes", "2", "--cpu", "2", "--jobs", "2", "--seeds", "4,5"]
    flags += ["--max-update", "60", "--set", "train.save-interval-updates=60"]
    run_wmt14(corpus, tmp_path / "runs", *flags, allocation=allocation)
    places = []
    for seed in (4, 5):
        run = tmp_path / "runs" / "tiny" / f"seed-{seed}"
        console = (run / "console.log").read_text(encoding="utf-8")
        places.append(set(re.findall(r"tcp://[\d.]+:(\d+)", console)))
        assert updates_logged(run)[-1] == 60
    assert len(places[0]) == len(places[1]) == 1
    assert places[0] != places[1]
