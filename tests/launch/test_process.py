"""Children end with the launcher, however it ends."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import List

import pytest

from capsnmt import process
from capsnmt.cli import ConfigurationError
from capsnmt.files import atomic_writer, locked
from capsnmt.process import Stopped

# Prints its process number, then waits for a signal.
WAITING = "import os, time; os.write(1, b'%d\\n' % os.getpid()); time.sleep(600)"


def test_every_line_and_the_status_are_returned():
    lines: List[str] = []
    program = "import sys; print('out'); print('error', file=sys.stderr); sys.exit(3)"
    assert process.run([sys.executable, "-c", program], {}, lines.append) == 3
    assert sorted(lines) == ["error\n", "out\n"]


def test_variables_reach_the_child_in_addition_to_ours(monkeypatch):
    monkeypatch.setenv("OURS", "kept")
    lines: List[str] = []
    program = "import os; print(os.environ['OURS'], os.environ['OMP_NUM_THREADS'])"
    process.run([sys.executable, "-c", program], {"OMP_NUM_THREADS": "3"}, lines.append)
    assert lines == ["kept 3\n"]


def test_the_child_blocks_no_signal_that_the_launcher_was_started_with():
    lines: List[str] = []
    program = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    assert process.run([sys.executable, "-c", program], {}, lines.append) == 0
    assert lines == ["set()\n"]


@pytest.mark.parametrize(
    ("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_a_signal_reaches_the_child_and_gives_the_status(signum: int, status: int):
    children: List[int] = []

    def stop_when_running(line: str) -> None:
        if line.strip().isdigit():  # a traceback may follow
            children.append(int(line))
            os.kill(os.getpid(), signum)

    handler = signal.getsignal(signum)
    with pytest.raises(Stopped) as stopped:
        process.run([sys.executable, "-c", WAITING], {}, stop_when_running)
    assert stopped.value.status == status
    assert signal.getsignal(signum) is handler
    with pytest.raises(ProcessLookupError):
        os.kill(children[0], 0)


def test_a_second_signal_kills_a_child_that_does_not_listen():
    program = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('no', flush=True))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(1)"
    )
    seen: List[str] = []

    def insist(line: str) -> None:
        seen.append(line)
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped):
        process.run([sys.executable, "-c", program], {}, insist)
    assert seen == ["ready\n", "no\n"]


def test_a_child_and_its_own_children_end_when_the_launcher_is_killed():
    deaf = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {WAITING}"
    program = (
        "import subprocess, sys\n"
        f"children = [subprocess.Popen([sys.executable, '-c', {deaf!r}]) for _ in range(2)]\n"
        f"{deaf}"
    )
    launcher = (
        "import sys; from capsnmt import process\n"
        "show = lambda line: print(line, flush=True)\n"
        f"process.run([sys.executable, '-c', {program!r}], {{}}, show)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", launcher], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    ) as parent:
        assert parent.stdout is not None
        numbers = (int(line) for line in parent.stdout if line.strip().isdigit())
        started = list(itertools.islice(numbers, 3))
        parent.kill()
        parent.wait()
    for child in started:
        _wait_for_end(child)


def test_no_guard_is_left_of_a_child_that_has_ended():
    def forks() -> int:
        children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
        return len(children.read_text("utf-8").split())

    before = forks()
    assert process.run([sys.executable, "-c", ""], {}, print) == 0
    assert forks() == before


def _wait_for_end(pid: int) -> None:
    ended = threading.Event()
    for _ in range(600):
        try:
            status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        except OSError:
            return
        if status.rpartition(")")[2].split()[0] == "Z":  # nobody reaps it in a container
            return
        ended.wait(0.1)
    pytest.fail(f"process {pid} outlived the launcher")


def test_a_folder_in_use_is_refused_and_free_afterwards(tmp_path: Path):
    lock = tmp_path / "run" / ".lock"
    with (
        locked(lock, "never"),
        pytest.raises(ConfigurationError, match="in use"),
        locked(lock, "in use", patience=0),
    ):
        pass
    with locked(lock, "never", patience=0):
        assert lock.exists()


def test_waiting_for_a_folder_in_use_is_reported_once(tmp_path: Path, capsys):
    lock = tmp_path / ".lock"
    with (
        locked(lock, "never"),
        pytest.raises(ConfigurationError),
        locked(lock, "in use", patience=0.3, waiting="waiting"),
    ):
        pass
    assert capsys.readouterr().out == "waiting\n"


def test_a_file_whose_writing_fails_keeps_its_old_content(tmp_path: Path):
    path = tmp_path / "scores.json"
    path.write_text("old")

    def fail() -> None:
        with atomic_writer(path) as file:
            file.write("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
