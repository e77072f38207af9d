"""A small launch with every stage, as a process whose output is read while it runs."""

import os
import random
import re
import resource
import threading
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, Iterator, List, Optional

import yaml

from capsnmt.checkpoints.load import load_checkpoint
from tests.commands import draw_sentence
from tests.corpora.conftest import recipe_of, tree
from tests.interpreter import environment, start
from tests.small_row import SMALL

UPDATES = 40
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
LINES = {"train": 400, "val": 8, "news": 6}
LAUNCHER = "capsnmt.launch"
MARK = "CAPSNMT_TESTED_LAUNCH"
HANGS = 300.0  # seconds


def write_sources(folder: Path) -> None:
    """Write a corpus, its recipe and the configuration of a row."""
    (folder / "corpus").mkdir(parents=True)
    chance = random.Random(1)
    for split, lines in LINES.items():
        sentences = [draw_sentence(chance, WORDS, 3, 8) for _ in range(lines)]
        for language, step in (("en", 1), ("de", -1)):
            text = "".join(" ".join(each.split()[::step]) + "\n" for each in sentences)
            (folder / "corpus" / f"{split}.{language}").write_text(text, encoding="utf-8")
    recipe = recipe_of(folder / "corpus")
    splits = {"train": "train", "valid": "val", "news": "news"}
    recipe["splits"] = {name: [{"file": f"{stem}.{{language}}"}] for name, stem in splits.items()}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    row = yaml.safe_load(SMALL)
    row["data"]["recipe"] = str(folder / "recipe.yaml")
    row["train"].update({"max-update": UPDATES, "keep-interval-updates": 2})
    row.update(average={"last-updates": 2}, generate={"beam": 2, "batch-size": 8})
    (folder / "tiny.yaml").write_text(yaml.safe_dump(row), encoding="utf-8")


def command(sources: Path, output: Path) -> List[str]:
    """Return the arguments of the launcher for the row of `write_sources`."""
    return [
        *("--config", str(sources / "tiny.yaml"), "--data", str(sources / "corpus")),
        *("--cpu", "--threads", "1", "--prepared", str(output / "prepared")),
        *("--output", str(output / "runs")),
    ]


class Launch:
    """``python -m MODULE ARGUMENTS`` as a process, and the lines that it has printed so far."""

    def __init__(self, module: str, arguments: List[str], folder: Path) -> None:
        output, self.error_file, self.mark = folder / "output", folder / "errors", uuid.uuid4().hex
        os.mkfifo(output)
        os.mkfifo(self.error_file)
        self.lines: List[str] = []
        self.times: List[float] = []  # of each line
        self.errors: List[str] = []
        self.readers = [
            threading.Thread(target=self._read, args=(output, self.lines, self.times), daemon=True),
            threading.Thread(target=self._read, args=(self.error_file, self.errors), daemon=True),
        ]
        for reader in self.readers:
            reader.start()
        variables = {**environment(), MARK: self.mark}
        streams = [Path(os.devnull), output, self.error_file]
        self.process = start(module, arguments, variables, streams)

    @staticmethod
    def _read(path: Path, lines: List[str], times: Optional[List[float]] = None) -> None:
        with path.open(encoding="utf-8") as stream:
            for line in stream:
                if times is not None:
                    times.append(time.monotonic())
                lines.append(line.rstrip("\n"))

    def reaches(self, text: str) -> bool:
        """Wait until it prints a line with the text; return whether it did before it ended."""
        deadline = time.monotonic() + HANGS
        while not any(text in line for line in self.lines):
            if not self.process.is_alive():
                self.end()
                return any(text in line for line in self.lines)
            assert time.monotonic() < deadline, f"{text!r} does not appear: {self.lines}"
            time.sleep(0.005)
        return True

    def send(self, signum: int) -> None:
        """Send it a signal, if it still runs."""
        assert self.process.pid is not None
        if self.process.is_alive():
            os.kill(self.process.pid, signum)

    def end(self) -> Optional[int]:
        """Wait for its end; return the exit status."""
        self.process.join(HANGS)
        assert self.process.exitcode is not None, f"it hangs: {self.lines}"
        for reader in self.readers:
            reader.join(HANGS)
        return self.process.exitcode

    def fill_disk(self) -> None:
        """Let every write to a file fail, of it and of all processes that it starts."""
        assert self.process.pid is not None
        for pid in [self.process.pid, *self.started()]:
            try:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))
            except ProcessLookupError:
                continue

    def started(self) -> List[int]:
        """Return the running processes that it, or one of these, has started."""
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                if f"{MARK}={self.mark}".encode() not in (folder / "environ").read_bytes():
                    continue
                state = (folder / "stat").read_text("utf-8").rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state != "Z":  # nobody reaps it in a container
                found.append(int(folder.name))
        return found


@contextmanager
def started(module: str, arguments: List[str]) -> Iterator[Launch]:
    """Start a process; kill it if the block fails before its end."""
    with TemporaryDirectory() as folder:
        launch = Launch(module, arguments, Path(folder))
        try:
            yield launch
        finally:
            launch.process.kill()
            launch.process.join()


def results(output: Path) -> Dict[str, Any]:
    """The results of a launch, without the times and speeds that fairseq records with them."""
    row = output / "runs" / "tiny"
    folder = row / "seed-1"
    generated = (folder / "generate-news.txt").read_text(encoding="utf-8").splitlines()
    averaged = load_checkpoint(folder / "averaged.pt")["model"]
    return {
        "averaged": {
            name: averaged[name].numpy().tobytes()
            for name in averaged
            if not name.endswith("_float_tensor")  # uninitialised memory in fairseq 0.12.2
        },
        "generated": [line for line in generated if re.match(r"[STHDP]-\d+\t", line)],
        "scores": (folder / "scores.json").read_text("utf-8").replace(str(output), "OUTPUT"),
        "summary": (row / "summary.json").read_bytes(),
        "prepared": {
            name: content.replace(os.fsencode(output), b"OUTPUT")
            for name, content in tree(output / "prepared").items()
        },
    }
