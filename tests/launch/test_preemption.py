"""A training that is stopped and resumed ends with the same model."""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import signal
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Callable, Dict, List, Tuple

import fairseq_cli.train
import pytest
import torch
from fairseq import checkpoint_utils

from capsnmt.checkpoints.load import load_checkpoint
from capsnmt.checkpoints.resume import LAST, STOP_FILE, num_updates
from capsnmt.launch import preemption
from capsnmt.launch import train as training
from capsnmt.launch.preemption import ASKING, Request
from capsnmt.launch.train import Place
from tests import forked
from tests.commands import command, environment, succeed
from tests.launch import preemption_worker, ranks
from tests.launch.conftest import EVEN_TOKENS
from tests.support import PLUGIN

UPDATES = 9
TINY = [
    *("--arch", "capsnmt_transformer_tiny", "--user-dir", PLUGIN, "--cpu", "--num-workers", "0"),
    *("--encoder-layers", "1", "--decoder-layers", "1", "--share-all-embeddings"),
    *("--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "16", "--encoder-attention-heads"),
    *("2", "--decoder-embed-dim", "16", "--decoder-ffn-embed-dim", "16"),
    *("--decoder-attention-heads", "2", "--required-batch-size-multiple", "1"),
    *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"),
    *("--source-lang", "en", "--target-lang", "de", "--log-format", "json", "--log-interval", "1"),
    *("--distributed-world-size", "1", "--no-epoch-checkpoints"),
]
# 5 updates an epoch: it is stopped at its first update, at the end of an epoch, and inside one
ADAM = [
    *("--optimizer", "adam", "--lr", "0.01", "--lr-scheduler", "inverse_sqrt"),
    *("--warmup-updates", "4", "--dropout", "0.3", "--max-tokens", "320", "--update-freq", "2"),
    *("--save-interval-updates", "3"),
]


def new_process() -> None:
    """Trainings share a process; reset the signals and the best checkpoint, as in a new one."""
    for signum in ASKING:
        signal.signal(signum, signal.SIG_IGN)  # drops what is pending
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
    if hasattr(checkpoint_utils.save_checkpoint, "best"):
        del checkpoint_utils.save_checkpoint.best


def train(data: Path, save: Path, *flags: str) -> int:
    """Train in this process; return the updates of the saved checkpoint."""
    new_process()
    training.cli_main([str(data / "bin"), "--save-dir", str(save), *TINY, *flags])
    return num_updates(save / LAST)


def parameters(checkpoint: Path) -> Dict[str, torch.Tensor]:
    model = load_checkpoint(checkpoint)["model"]
    # uninitialised memory in fairseq 0.12.2
    return {name: value for name, value in model.items() if not name.endswith("_float_tensor")}


def moments(checkpoint: Path) -> Dict[int, torch.Tensor]:
    state = load_checkpoint(checkpoint)["last_optimizer_state"]["state"]
    return {index: state[index]["exp_avg_sq"] for index in state}


def position(checkpoint: Path) -> Tuple[int, int, float]:
    """The position at which a training would resume, and its best validation loss."""
    state = load_checkpoint(checkpoint)["extra_state"]
    iterator = state["train_iterator"]
    return iterator["epoch"], iterator["iterations_in_epoch"], state["best"]


class SignalAt(logging.Handler):
    """Sends this process a signal when the training logs an update."""

    def __init__(self, update: int, signum: int) -> None:
        super().__init__()
        self.update, self.signum = f'"num_updates": "{update}"', signum

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "train_inner" and self.update in record.getMessage():
            os.kill(os.getpid(), self.signum)


@pytest.mark.system
def test_stopped_three_times_is_bit_for_bit_as_never_stopped(
    prepared: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    uninterrupted, stopped = tmp_path / "uninterrupted", tmp_path / "stopped"
    flags = [*ADAM, "--max-update", str(UPDATES)]
    assert train(prepared, uninterrupted, *flags) == UPDATES
    peaks = [float(each) for each in re.findall(r'\{"peak_memory_gib": ([\d.]+)\}', caplog.text)]
    assert 0.05 < peaks[-1] < 50

    flags += ["--num-workers", "1"]  # a process, which must neither get the signals nor stay
    stopped.mkdir()
    (stopped / STOP_FILE).touch()
    assert train(prepared, stopped, *flags) == 1
    assert f"stopped by {stopped / STOP_FILE} at 1 updates" in caplog.text
    assert not (stopped / STOP_FILE).exists()
    for update, signum in ((5, signal.SIGUSR1), (7, signal.SIGTERM)):
        handler = SignalAt(update, signum)
        logging.getLogger().addHandler(handler)
        try:
            assert train(prepared, stopped, *flags) == update
        finally:
            logging.getLogger().removeHandler(handler)
        assert multiprocessing.active_children() == []
        assert f"stopped by {signal.Signals(signum).name} at {update} updates" in caplog.text
    assert train(prepared, stopped, *flags) == UPDATES

    names = sorted(path.name for path in uninterrupted.glob("*.pt"))
    assert sorted(path.name for path in stopped.glob("*.pt")) == names
    assert len(names) > 3
    for name in names:
        for part in (parameters, moments):
            expected = part(uninterrupted / name)
            for key, value in part(stopped / name).items():
                assert torch.equal(value, expected[key]), (name, key)
        assert position(stopped / name) == position(uninterrupted / name)


@pytest.mark.system
@pytest.mark.one_host  # Python makes the folders
def test_a_training_leaves_no_temporary_files(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with TemporaryDirectory() as folder:  # a worker's socket has a short path
        monkeypatch.setenv("TMPDIR", folder)
        flags = [*TINY, *ADAM, "--max-update", "1", "--num-workers", "1"]
        data = [prepared / "bin", "--save-dir", tmp_path / "checkpoints"]
        done = command("capsnmt.launch.train", *data, *flags)
        assert (tmp_path / "checkpoints" / LAST).is_file(), done.stderr
        model = ["--path", tmp_path / "checkpoints" / LAST, "--user-dir", PLUGIN, "--cpu"]
        succeed("fairseq_cli.generate", data[0], *model, "--num-workers", "1", "--max-len-b", "3")
        assert not list(Path(folder).glob("pymp-*"))
        long = Path(folder) / ("x" * 100)  # too long for a socket: without workers
        long.mkdir()
        monkeypatch.setenv("TMPDIR", str(long))
        succeed("fairseq_cli.generate", data[0], *model, "--num-workers", "1", "--max-len-b", "3")


@pytest.mark.system
@pytest.mark.one_host  # the count is ours, not the host's
def test_an_interruption_does_not_reset_the_patience(
    prepared: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)  # SignalAt waits for a message of this level
    flags = ["--optimizer", "sgd", "--lr", "1e-9", "--max-tokens", "640", "--patience", "2"]
    flags += ["--max-epoch", "9", "--dropout", "0"]
    ended, stopped = tmp_path / "ended", tmp_path / "stopped"
    updates = train(prepared, ended, *flags)  # nothing is learned: three epochs
    in_the_third = 2 * updates // 3 + 1
    handler = SignalAt(in_the_third, signal.SIGTERM)
    logging.getLogger().addHandler(handler)
    try:
        assert train(prepared, stopped, *flags) == in_the_third < updates
    finally:
        logging.getLogger().removeHandler(handler)
    assert train(prepared, stopped, *flags) == updates
    assert train(prepared, stopped, *flags) == updates, "a finished training continued"


# Fresh interpreters, which import for seconds, start at night; a plugin is loaded in a spawned
# process with every commit by tests/test_imports.py.
@pytest.mark.system
@pytest.mark.parametrize(
    "module",
    [ranks.__name__, pytest.param(training.__name__, marks=pytest.mark.nightly)],
    ids=["forked", "spawned"],
)
@pytest.mark.one_host  # stopping, and training with two processes, are tested on both
def test_two_processes_train_one_model_and_stop_at_one_update_when_one_of_them_is_asked(
    module: str, prepared_evenly: Path, tmp_path: Path
):
    # Not Adam, which turns the rounding of a gradient that is 0 into a step of full size.
    flags = ["--optimizer", "sgd", "--lr", "0.1", "--dropout", "0", "--disable-validation"]
    half = ["--max-tokens", str(EVEN_TOKENS // 2), "--distributed-world-size", "2"]
    two, one = tmp_path / "two", tmp_path / "one"
    arguments = [str(prepared_evenly / "bin"), "--save-dir", str(two), *TINY, *flags, *half]
    log = tmp_path / "log"
    log.touch()
    parent = forked.start(module, arguments, environment(), [Path(os.devnull), log, log])
    while parent.exitcode is None and '"num_updates": "3"' not in log.read_text("utf-8"):
        time.sleep(0.02)
    if parent.exitcode is None:
        os.kill(children(parent.pid)[-1], signal.SIGUSR1)
    parent.join()
    text = log.read_text("utf-8")
    assert parent.exitcode == 0, text[-3000:]
    assert "training on 2 devices" in text
    updates = num_updates(two / LAST)
    assert f"stopped by SIGUSR1 at {updates} updates" in text

    one_batch = ["--max-tokens", str(EVEN_TOKENS), "--max-update", str(updates)]
    assert train(prepared_evenly, one, *flags, *one_batch) == updates
    expected = parameters(one / LAST)
    for name, value in parameters(two / LAST).items():
        torch.testing.assert_close(value, expected[name], atol=1e-5, rtol=1e-5)


def children(parent: int) -> List[int]:
    """Return the child processes of another; multiprocessing's tracker of resources is none."""
    found = Path(f"/proc/{parent}/task/{parent}/children").read_text("utf-8").split()
    command_lines = {int(child): Path(f"/proc/{child}/cmdline").read_bytes() for child in found}
    return sorted(child for child, line in command_lines.items() if b"resource_tracker" not in line)


def in_a_fork(action: Callable[[], None]) -> int:
    """Run an action in a forked process; return its exit status: negative for a signal, else 7."""
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def terminate_self(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_ends_a_training_before_its_first_update(monkeypatch):
    monkeypatch.setattr(fairseq_cli.train, "main", terminate_self)
    preemption.outlive()
    assert in_a_fork(lambda: preemption.main(None)) == -signal.SIGTERM


def test_a_waiting_process_outlives_a_signal_to_any_of_its_threads():
    begun, ended = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        ended.wait()

    thread = threading.Thread(target=wait)  # blocks no signal, because it starts earlier
    thread.start()
    begun.wait()
    preemption.outlive()
    terminate_self()
    ended.set()
    thread.join()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) >= ASKING


def test_the_children_of_a_listening_process_do_not_get_the_signal():
    request = Request()
    request.listen()
    assert in_a_fork(terminate_self) == 7
    assert request.cause(Path("absent")) == 0
    terminate_self()
    # Another thread may take the signal, which is then neither pending nor handled for a moment.
    causes = []
    while not any(causes) and len(causes) < 500:
        time.sleep(0.01)
        causes.append(request.cause(Path("absent")))
    assert causes[-1] == signal.SIGTERM


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_that_starts_before_the_first_update_does_not_get_the_signal(method, monkeypatch):
    def worker() -> int:
        process = multiprocessing.get_context(method).Process(target=preemption_worker.main)
        process.start()
        process.join()
        return process.exitcode

    def load_before_training(_: object) -> None:
        assert worker() == 7
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & ASKING

    monkeypatch.setattr(fairseq_cli.train, "main", load_before_training)
    preemption.main(None)
    assert worker() == -signal.SIGTERM


def test_outside_of_a_step_there_is_one_node():
    inside_a_job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_NODEID": "0"}
    assert Place.of_step({}) == Place.of_step(inside_a_job) == Place(0, 1, "127.0.0.1", 0)


def test_the_nodes_of_a_step_agree_on_host_and_port(tmp_path: Path, monkeypatch):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\n[ "$3" = "n[1-2]" ] && printf "n1\\nn2\\n"\n', "utf-8")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    step = {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_JOB_ID": "60001"}
    places = [Place.of_step({**step, "SLURM_NODEID": node}) for node in "01"]
    assert [place.node for place in places] == [0, 1]
    assert {(place.host, place.nodes) for place in places} == {("n1", 2)}
    assert {place.port for place in places} == {20001}
