"""The parser, argument types, errors and exit statuses of all commands."""

import argparse
import codecs
import functools
import importlib.util
import io
import logging
import math
import os
import signal
import sys
import warnings
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, Callable, Collection, Iterator, List, NoReturn, Optional, Sequence

FAILED = 1
BAD_SETTING = 2
INTERRUPTED = 130
RESUMES = "stopped: the same command resumes"
CLOSED_PIPE = 141  # as of a program that SIGPIPE ends
SHOWN = 200  # characters of a value that an error shows
LONGEST = 1000  # characters of an error; argparse lists every architecture of fairseq
# D: numpy takes seeds below 2^32, and fairseq adds the epoch and the number of the process.
LARGEST_SEED = 2**31 - 1
# What each extra installs and our code imports; of a library in several, the first extra is named.
EXTRAS = {
    "fairseq": ("fairseq", "fairseq_cli", "numpy", "omegaconf"),
    "evaluation": ("numpy", "sacrebleu", "sacremoses", "scipy", "tqdm"),
    "data": (*("jieba", "numpy", "requests", "sacremoses", "sentencepiece", "subword_nmt"), "tqdm"),
    "report": (
        *("jinja2", "markdown_it", "markupsafe", "matplotlib", "numpy", "sacrebleu", "sacremoses"),
        *("scipy", "sklearn", "tqdm"),
    ),
}


class ConfigurationError(SystemExit, ValueError):
    """A setting or an input that cannot work; the message names it, what is allowed and the fix.

    It is a ``ValueError`` for library code and a ``SystemExit`` for the command line: fairseq has
    no place that turns an exception into a message, and a mistyped flag deserves one line, not a
    traceback through the host. Our own commands exit with status 2.
    """


class ExecutionError(Exception):
    """A download or another program failed although the settings are valid: exit status 1."""


class Stopped(BaseException):  # as KeyboardInterrupt: no handler of errors takes it for one
    """A stop signal arrived, and the program that ran has ended: exit status 128 + its number."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}: the same command resumes")
        self.status = 128 + signum


def not_installed(error: ImportError) -> ConfigurationError:
    """Return the error that a library of an extra is missing; raise any other ``error`` again."""
    library = (error.name or "").partition(".")[0]
    extra = next((name for name, libraries in EXTRAS.items() if library in libraries), None)
    if extra is None or not isinstance(error, ModuleNotFoundError):
        raise error
    return _missing(error.name or "", extra)


def require(*extras: str) -> None:
    """Raise unless extras are installed: a missing library would end a command after hours."""
    for extra in extras:
        for library in EXTRAS[extra]:
            if not importlib.util.find_spec(library):
                raise _missing(library, extra)


def _missing(library: str, extra: str) -> ConfigurationError:
    return ConfigurationError(f"{library} is not installed: pip install 'capsnmt[{extra}]'")


def shown(value: Any) -> str:
    """Return a value as an error shows it: its beginning, in one line.

    >>> shown("a\\nb"), shown("x" * 1000)[-7:]
    ("'a\\\\nb'", 'xxxx...')
    """
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def check_line(text: str, where: str) -> None:
    """Raise unless a text is one line; in a script, what follows would be a command of its own."""
    if any(end in text for end in "\0\r\n"):
        raise ConfigurationError(
            f"{where}: {shown(text)} has a line end; give printable characters in one line"
        )


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports a bad flag in one line, and a list that is given twice."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.register("type", Path, _path)
        self.register("action", None, _Store)

    def error(self, message: str) -> NoReturn:
        """Raise the message as a ``ConfigurationError``."""
        raise ConfigurationError(f"{' '.join(message.split())} (--help lists the flags)")


class _Store(argparse.Action):
    """Store the value of a flag; a list that is given twice is refused.

    argparse would take the last without a word. **D**: of single values so do we, as commands do.
    """

    def __call__(self, parser: Any, namespace: Any, value: Any, flag: Optional[str] = None) -> None:
        given = getattr(namespace, self.dest) is not self.default
        if flag is not None and isinstance(value, list) and given:
            parser.error(f"{flag} is given twice; give all of it at once")
        setattr(namespace, self.dest, value)


def _path(text: str) -> Path:
    """Return the path of a flag; an empty one, as of an unset variable, would be this folder."""
    if not text:
        raise argparse.ArgumentTypeError("'' is no path; give one, or . for this folder")
    return Path(text)


def at_least(minimum: int, maximum: int = 10**15) -> Callable[[str], int]:
    """Return the type of a flag that takes a whole number from ``minimum`` to ``maximum``."""

    def parse(text: str) -> int:
        # no more digits than are compared: a number of a million digits takes minutes
        number = int(text[:20]) if text.isascii() and text.isdigit() else minimum - 1
        if number > maximum:
            raise argparse.ArgumentTypeError(f"{shown(text)} is more than {maximum}")
        if number < minimum:
            raise argparse.ArgumentTypeError(
                f"{shown(text)} is not a whole number of at least {minimum}"
            )
        return number

    return parse


positive = at_least(1)
seed = at_least(0, LARGEST_SEED)


def finite(text: str) -> float:
    """Return the number of a flag, which is neither infinite nor nan."""
    number = float(text)
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a finite number")
    return number


def add_user_dir(parser: argparse._ActionsContainer) -> None:
    """Add ``--user-dir`` to a parser of a command that loads models."""
    text = "a plugin of your own that builds on this one, with the architecture of the model"
    parser.add_argument("--user-dir", type=Path, metavar="DIR", help=text)


def add_mirrors(parser: argparse._ActionsContainer) -> None:
    """Add ``--mirror`` to a parser or a group of flags."""
    parser.add_argument(
        "--mirror",
        action="append",
        default=[],
        dest="mirrors",
        metavar="URL",
        help="folder on a server that is tried first for every source file; may be repeated",
    )


def comma_list(allowed: Collection[str] = ()) -> Callable[[str], List[str]]:
    """Return the type of a flag that takes different names, separated by commas.

    >>> comma_list(["train", "valid"])("valid, train")
    ['valid', 'train']

    Without ``allowed``, any name is.
    """

    def parse(text: str) -> List[str]:
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if allowed and name not in allowed:
                raise argparse.ArgumentTypeError(
                    f"{name!r} is unknown; choose from {', '.join(allowed)}"
                )
        if not all(names) or len(set(names)) < len(names):
            raise argparse.ArgumentTypeError(
                f"{text!r} has a name twice or none; give names separated by commas"
            )
        return names

    return parse


def check_output_file(path: Path, where: str, inputs: Collection[Path] = ()) -> None:
    """Raise if a new file at ``path`` would replace a folder, a pipe, a device or an input."""
    if os.path.realpath(path) in {*map(os.path.realpath, inputs)}:
        raise ConfigurationError(f"{where} {path} is a file that is read; choose another name")
    if path.exists() and not path.is_file():
        raise ConfigurationError(
            f"{where} {path} must be a file, not a folder, a pipe or a device; choose another name"
        )
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise ConfigurationError(f"{where} {path} is below a file, {above}; choose another name")


@contextmanager
def quiet() -> Iterator[None]:
    """Show no INFO messages inside the block: fairseq logs while its parsers are built.

    What the block sets for warnings ends with it.
    """
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            yield
    finally:
        logging.disable(before)


@contextmanager
def exits_as_errors() -> Iterator[None]:
    """Raise a ``RuntimeError`` where a library, as subword_nmt, prints what is wrong and exits."""
    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            yield
    except ConfigurationError:  # a SystemExit too, but ours
        raise
    except SystemExit:
        raise RuntimeError(printed.getvalue().partition("\n")[0]) from None
    sys.stderr.write(printed.getvalue())


def run_command(command: Callable[[], Any], interrupted: str = "interrupted") -> int:
    """Run the body of a command, print its error as one line, and return the exit status.

    **D**: a terminal without UTF-8 gets other characters escaped. One with UTF-8 gets the bytes of
    a file's name, which may be any.

    Returns:
        0; 1 if a download, another program or the file system failed; 2 for a bad setting or a
        missing extra; 128 + n after signal n, 130 of them after Ctrl-C; 141 if the reader of the
        output, such as ``| head``, has closed it.
    """
    for stream in ("stdin", "stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed: or the next file would take its place
            setattr(sys, stream, open(os.devnull, "r+", encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        utf8 = codecs.lookup(sys.stdout.encoding).name == "utf-8"
        sys.stdout.reconfigure(errors="surrogateescape" if utf8 else "backslashreplace")
    try:
        try:
            return _status(command, interrupted)
        finally:
            sys.stdout.flush()  # also after --help
    except BrokenPipeError:
        # Python writes the rest of what was printed when it ends, to whoever still reads.
        for output in (sys.stdout, sys.stderr):
            try:
                output.flush()
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
        return CLOSED_PIPE


def command(
    body: Callable[[List[str]], None], interrupted: str = "interrupted"
) -> Callable[..., int]:
    """Make a function of the words of a command line its command, as `run_command` describes.

    Without words it takes those of the process.
    """

    @functools.wraps(body)
    def main(argv: Optional[Sequence[str]] = None) -> int:
        words = [*(sys.argv[1:] if argv is None else argv)]
        return run_command(lambda: body(words), interrupted)

    return main


def _status(command: Callable[[], Any], interrupted: str) -> int:
    try:
        command()
    except ImportError as error:
        return fail(str(not_installed(error)), BAD_SETTING)
    except ConfigurationError as error:
        return fail(str(error), BAD_SETTING)
    except ExecutionError as error:
        return fail(str(error), FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return fail(f"{place}{error.strerror or error}", FAILED)
    except KeyboardInterrupt:
        return fail(interrupted, INTERRUPTED)
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return stopped.status
    return 0


def say(message: str) -> None:
    """Print a message on standard error."""
    print(message, file=sys.stderr, flush=True)


def fail(message: str, status: int) -> int:
    """Print an error as one line and return the exit status."""
    line = message.replace("\r", "\\r").replace("\n", "\\n")  # of names in files
    if len(line) > LONGEST:  # the fix comes last
        line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 4 :]}"
    print(f"error: {line}", file=sys.stderr)
    return status
