"""What a run trains: a translation system or a sentence classifier, a module with its steps."""

from pathlib import Path
from typing import List, Optional, Protocol, Tuple

from capsnmt.launch import classification, translation
from capsnmt.launch.run import Run
from capsnmt.steps import Step


class Kind(Protocol):
    """The functions of such a module."""

    def prepare(self, run: Run) -> Optional[Step]:
        """Return the step that makes the data; ``None`` if the user provides them."""

    def check_data(self, run: Run) -> Tuple[List[Path], List[Path]]:
        """Raise unless the data can be used.

        Return the files that identify them, and the others that a training reads.
        """

    def check_settings(self, run: Run) -> None:
        """Raise unless the commands after the training will understand their arguments."""

    def evaluation(self, run: Run) -> List[Step]:
        """Return the steps after the training."""


def kind_of(run: Run) -> Kind:
    """Return what a run trains."""
    return classification if run.settings.classifies else translation
