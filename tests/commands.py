"""Real command lines, run as a user runs them."""

import os
import random
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Callable, Dict, List, Optional, Sequence

import pytest

from capsnmt.files import locked
from tests.forked import INTERPRETER
from tests.interpreter import PYTHON, environment, interpreter, ran, start
from tests.support import PLUGIN

TINY = [
    *("--encoder-embed-dim", "16", "--decoder-embed-dim", "16"),
    *("--encoder-ffn-embed-dim", "16", "--decoder-ffn-embed-dim", "16"),
]
ON_CPU = ["--cpu", "--num-workers", "0", "--no-progress-bar"]
# all mechanisms at all places
COMPOSED = [
    *("--head-aggregation", "em", "--head-aggregation-attention", "enc-self,enc-dec,dec-self"),
    *("--mlmha", "M-10", "--layer-aggregation", "em-routing", "--layer-aggregation-side", "both"),
    *("--capsule-routing-encoder", "both", "--capsule-routing-decoder", "horizontal"),
    *("--criterion", "label_smoothed_cross_entropy_with_disagreement", "--label-smoothing", "0.1"),
    *("--disagreement", "subspace,position,output"),
    *("--disagreement-attention", "enc-self,enc-dec,dec-self"),
]
EVERYTHING = ("capsnmt_transformer_tiny", *COMPOSED)
# pytest's folder of a test, below the temporary folder of the machine
_FOLDERS = re.compile(
    re.escape(os.path.realpath(gettempdir()))
    + r"/pytest-of-[^/]+/pytest-\d+/(popen-gw\d+/)?[^/\n]+/"
)


def command(
    module: str, *arguments: object, stdin: str = "", python: str = PYTHON
) -> subprocess.CompletedProcess:
    """Run ``python -m module arguments`` and return the completed process, output as text.

    With the interpreter of the tests, it is forked from a process with fairseq imported
    (:mod:`tests.interpreter`), and so are the commands that it starts.
    """
    words = [str(argument) for argument in arguments]
    if python != PYTHON:
        return ran([python, "-m", module, *words], stdin=stdin)
    others = module in ("capsnmt.launch", "capsnmt.corpora", "torch.distributed.run")
    starts = {INTERPRETER: str(interpreter())} if others else {}
    with TemporaryDirectory() as folder:
        streams = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
        for stream, text in zip(streams, (stdin, "", "")):
            stream.write_text(text, "utf-8")
        process = start(module, words, {**environment(), **starts}, streams)
        process.join()
        # what a command prints may name a path of any bytes
        output, errors = (stream.read_text("utf-8", "surrogateescape") for stream in streams[1:])
    return subprocess.CompletedProcess([module, *words], process.exitcode, output, errors)


def succeed(module: str, *arguments: object, stdin: str = "", python: str = PYTHON) -> str:
    """Run a command that must succeed; return its standard output."""
    done = command(module, *arguments, stdin=stdin, python=python)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def logged(module: str, *arguments: object, python: str = PYTHON) -> str:
    """Run a command that must succeed; return all that it says."""
    done = command(module, *arguments, python=python)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def printed(words: Sequence[object], cwd: Optional[Path] = None, **variables: str) -> str:
    """Run a program by itself, which must succeed; return its standard output."""
    done = ran(words, cwd, **variables)
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def is_refusal(ended: Optional[int], errors: str, *words: str, status: int = 2) -> None:
    """Check the exit status of a command, and the one line of at most 300 characters that it wrote.

    The line has the words: the value, what is allowed and the fix. How long the names of pytest's
    folders are on a machine does not count.
    """
    assert ended == status, (ended, errors[-3000:])
    assert errors.count("\n") == 1, errors[-3000:]
    assert len(_FOLDERS.sub("", errors)) <= 301, errors
    assert all(word in errors for word in words), errors


def training(data: Path, save: Path, arch: str, updates: int, *flags: object) -> List[object]:
    return [
        *(data, "--user-dir", PLUGIN, "--arch", arch, *TINY, "--save-dir", save, *ON_CPU),
        *("--optimizer", "adam", "--lr", "0.005", "--batch-size", "8", "--dropout", "0.1"),
        *("--share-all-embeddings", "--max-update", updates, "--save-interval-updates", "2"),
        *("--log-interval", "1", *flags),
    ]


def train(
    data: Path, save: Path, arch: str, updates: int, *flags: object, python: str = PYTHON
) -> str:
    """Train a small model of the architecture for some updates; return its log."""
    arguments = training(data, save, arch, updates, *flags)
    return logged("fairseq_cli.train", *arguments, python=python)


def hypotheses(generated: str) -> List[str]:
    lines = [line.split("\t") for line in generated.splitlines() if line.startswith("H-")]
    return [line[2] for line in sorted(lines, key=lambda line: int(line[0][2:]))]


def scores(generated: str) -> list:
    """Return the scores of the hypotheses of fairseq-generate in its order."""
    return [float(line.split("\t")[1]) for line in generated.splitlines() if line[:2] == "H-"]


def binarise_reversals(folder: Path, sources: Dict[str, List[str]]) -> None:
    """Write the sentences of each split and their reversals as targets; binarise into ``bin``.

    Sources and targets have the same length, so means over either weight batches equally.
    """
    for split, lines in sources.items():
        reversals = [" ".join(reversed(line.split())) for line in lines]
        for side, text in (("en", lines), ("de", reversals)):
            (folder / f"{split}.{side}").write_text("\n".join(text) + "\n", "utf-8")
    succeed(
        "fairseq_cli.preprocess",
        *("-s", "en", "-t", "de", "--joined-dictionary", "--destdir", folder / "bin"),
        *("--trainpref", folder / "train", "--validpref", folder / "valid"),
        *("--testpref", folder / "test"),
    )


def draw_sentence(draw: random.Random, words: List[str], shortest: int, longest: int) -> str:
    """Draw random words; their number is random in ``shortest..longest``."""
    return " ".join(draw.choices(words, k=draw.randint(shortest, longest)))


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder of the test run, filled by the first parallel worker that needs it."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    return filled(folder / name, make)


def filled(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return a folder, filled by the first process that needs it."""
    with locked(folder.with_suffix(".lock"), waiting=f"waiting for {folder}"):
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)  # of one that failed
            folder.mkdir()
            make(folder)
            (folder / "made").touch()
    return folder


CORPUS_WORDS = [
    *("routing", "by", "agreement", "lets", "parts"),
    *("vote", "for", "wholes", "they", "form"),
]


def write_corpus(folder: Path) -> None:
    """Write the small corpus of the fixture ``corpus``, and binarise it into ``bin``."""
    draw, sizes = random.Random(1), {"train": 48, "valid": 8, "test": 8}
    lines = {
        split: [draw_sentence(draw, CORPUS_WORDS, 2, 7) for _ in range(number)]
        for split, number in sizes.items()
    }
    binarise_reversals(folder, lines)
