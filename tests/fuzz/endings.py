"""What is wrong with how a command ended."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

ALLOWED = (0, 1, 2)  # success, failed work, bad setting
LONGEST = 3000  # characters of an error: it names a value and a fix, not a file's content
# Frames of our code. Those of the patches of the host are in every call of what they wrap.
OURS = re.compile(r'File "[^"]*/capsnmt/(?!host\.py|launch/train\.py)[^"]*\.py", line \d+')


def fault_of(wait_status: int, errors: str, folder: Path, is_fairseqs: bool = False) -> str:
    """Return what is wrong with an ending; empty if nothing is.

    Args:
        wait_status: as ``os.waitpid`` returns it.
        errors: the standard error.
        folder: where the command ran.
        is_fairseqs: whether the command is fairseq's.
    """
    if os.WIFSIGNALED(wait_status):
        by = os.WTERMSIG(wait_status)
        return "it hangs" if by in (signal.SIGXCPU, signal.SIGKILL) else f"signal {by} ended it"
    left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.part"))
    if "Traceback" in errors:
        if not is_fairseqs or OURS.search(errors):
            return "it ends with a traceback"
    elif message := _fault_of_message(os.WEXITSTATUS(wait_status), errors, is_fairseqs):
        return message
    return f"it left {', '.join(left)}" if left else ""


def _fault_of_message(status: int, errors: str, is_fairseqs: bool) -> str:
    if status not in ALLOWED:
        return f"its exit status is {status}"
    last = errors.rstrip("\n").rpartition("\n")[2]
    if is_fairseqs:  # its parser names every architecture
        return "" if last or not status else f"it ends with {status} and without a word"
    if status and not last.startswith("error: "):
        return f"it ends with {status} and without a line that begins with 'error: '"
    return f"its error has {len(last)} characters" if len(last) > LONGEST else ""
