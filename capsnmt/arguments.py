"""The parser, argument types, one-line errors and exit statuses of all commands."""

from __future__ import annotations

import argparse
import codecs
import io
import logging
import os
import select
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable, Collection, Iterator, List, NoReturn, Sequence, TextIO
from urllib.parse import urlsplit

from capsnmt.errors import ConfigurationError, ExecutionError, not_installed, shown
from capsnmt.files import check_output_file

FAILED = 1
BAD_SETTING = 2
INTERRUPTED = 130
CLOSED_PIPE = 141  # as of a program that SIGPIPE ends
MOST_DIGITS = 30
LONGEST_MESSAGE = 1000  # characters; argparse repeats the values that it does not know
# D: numpy takes seeds below 2^32, and fairseq adds the epoch and the number of the process.
LARGEST_SEED = 2**31 - 1


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports a bad flag in one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Raise the message, in one line of limited length, as a ``ConfigurationError``."""
        line = " ".join(message.split())
        if len(line) > LONGEST_MESSAGE:
            line = f"{line[:LONGEST_MESSAGE]}..."
        raise ConfigurationError(f"{line} (--help lists the flags)")


def at_least(minimum: int, maximum: int = 10**15) -> Callable[[str], int]:
    """Return the type of a flag that takes a whole number from ``minimum`` to ``maximum``."""

    def parse(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) < MOST_DIGITS:
            number = int(text)
            if minimum <= number <= maximum:
                return number
            if number > maximum:
                raise argparse.ArgumentTypeError(f"{text!r} is more than {maximum}")
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not a whole number of at least {minimum}"
        )

    return parse


positive = at_least(1)
seed = at_least(0, LARGEST_SEED)


def url(text: str) -> str:
    """Return the address of a flag, which must be an HTTP URL.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    parts = urlsplit(text) if text.isprintable() and " " not in text else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.netloc:
        raise argparse.ArgumentTypeError(
            f"{shown(text)}: give the http:// or https:// URL of a folder (a local folder has "
            "a flag of its own, see --help)"
        )
    return text


def add_mirrors(parser: argparse._ActionsContainer) -> None:
    """Add ``--mirror`` to a parser or a group of flags."""
    parser.add_argument(
        "--mirror",
        action="append",
        default=[],
        dest="mirrors",
        type=url,
        metavar="URL",
        help="folder on a server that is tried first for every source file; may be repeated",
    )


def check_mirrors(mirrors: Sequence[str], fetches: bool, data: str) -> None:
    """Raise if mirrors are given although nothing is fetched.

    Args:
        mirrors: the values of ``--mirror``.
        fetches: whether anything is fetched.
        data: the flag of the folder that holds the source files.

    Raises:
        ConfigurationError: a mirror has no effect.
    """
    if mirrors and not fetches:
        raise ConfigurationError(
            f"--mirror {mirrors[0]}: nothing is fetched with {data} or --offline: leave one out"
        )


def comma_list(allowed: Collection[str] = (), fix: str = "") -> Callable[[str], List[str]]:
    """Return the type of a flag that takes different names, separated by commas.

    >>> comma_list(["train", "valid"])("valid, train")
    ['valid', 'train']

    Args:
        allowed: the allowed names; empty for any.
        fix: what else to do about another name.
    """

    def parse(text: str) -> List[str]:
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if allowed and name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r}: choose from {', '.join(allowed)}{fix}")
        if not all(names) or len(set(names)) < len(names):
            raise argparse.ArgumentTypeError(f"{text!r}: give different names, separated by commas")
        return names

    return parse


def check_output(output: Path, inputs: Collection[Path]) -> None:
    """Raise unless ``--output`` can be written and is none of the files that are read.

    Raises:
        ConfigurationError: the folder is missing, or the file is one of ``inputs`` or no file.
    """
    if output.resolve() in {path.resolve() for path in inputs}:
        raise ConfigurationError(
            f"--output {output} is a checkpoint that is read: choose another name"
        )
    check_output_file(output, "--output")
    if not output.parent.is_dir():
        raise ConfigurationError(
            f"--output {output} must be a file in an existing folder: create the folder, or choose "
            "another name"
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Show no INFO messages inside the block: fairseq logs while its parsers are built."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)


def run_command(command: Callable[[], None], interrupted: str = "interrupted") -> int:
    """Run the body of a command, print its error as one line, and return the exit status.

    Args:
        command: the body.
        interrupted: what to print after Ctrl-C.

    Returns:
        0; 1 if a download, another program or the file system failed; 2 for a bad setting or a
        missing extra; 130 after Ctrl-C; 141 if the reader of the output has closed it.
    """
    return until_pipe_closes(lambda: _status(command, interrupted))


def until_pipe_closes(command: Callable[[], int]) -> int:
    """Return the exit status of a command, which ends quietly if nobody reads its output.

    ``| head`` closes the pipe when it has enough. Python would print a traceback, or another error
    when it ends and writes the rest of the output. An output that is closed from the start is
    refused.

    **D**: a terminal without UTF-8 gets other characters escaped. One with UTF-8 gets the bytes of
    a file's name, which may be any.
    """
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)  # or the next file would become the input
    if sys.stdout is None or sys.stderr is None:
        number = 1 if sys.stdout is None else 2
        text = f"error: standard {'output' if number == 1 else 'error'} is closed: redirect it to a"
        with suppress(OSError):
            os.write(3 - number, f"{text} file or to /dev/null\n".encode())
        return BAD_SETTING
    if isinstance(sys.stdout, io.TextIOWrapper):
        utf8 = codecs.lookup(sys.stdout.encoding).name == "utf-8"
        sys.stdout.reconfigure(errors="surrogateescape" if utf8 else "backslashreplace")
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()  # also after --help
    except BrokenPipeError:
        for stream in (sys.stdout, sys.stderr):
            if _is_closed(stream):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return CLOSED_PIPE


def describe(error: OSError) -> str:
    """Return an error of the file system as one line."""
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"


def _is_closed(stream: TextIO) -> bool:
    """Return whether a stream is a pipe that nobody reads."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False


def _status(command: Callable[[], None], interrupted: str) -> int:
    try:
        try:
            command()
        except ImportError as error:
            raise not_installed(error) from None
    except ConfigurationError as error:
        return _fail(str(error), BAD_SETTING)
    except ExecutionError as error:
        return _fail(str(error), FAILED)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and (
            _is_closed(sys.stdout) or _is_closed(sys.stderr)
        ):
            raise
        return _fail(describe(error), FAILED)
    except RuntimeError as error:
        if not str(error).startswith("Symlink loop"):  # raised by pathlib before Python 3.13
            raise
        return _fail(str(error), FAILED)
    except KeyboardInterrupt:
        return _fail(interrupted, INTERRUPTED)
    return 0


def _fail(message: str, status: int) -> int:
    line = message.replace("\r", "\\r").replace("\n", "\\n")  # of names in files
    if len(line) > 2 * LONGEST_MESSAGE:  # a value in a file may have any length; the fix comes last
        line = f"{line[:LONGEST_MESSAGE]} ... {line[-LONGEST_MESSAGE // 2 :]}"
    print(f"error: {line}", file=sys.stderr)
    return status
