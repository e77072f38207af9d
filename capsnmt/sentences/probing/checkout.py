"""What probing takes from ``data_prep``, which is part of a checkout and not of the package."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

from capsnmt.errors import ConfigurationError


@contextmanager
def preparation() -> Iterator[None]:
    """Inside the block ``data_prep`` is imported and used; its errors become ours.

    Raises:
        ConfigurationError: it is not there, or what it was asked for failed.
    """
    try:
        from capsnmt.corpora.errors import PreparationError
    except ImportError:
        raise ConfigurationError(
            "data_prep is not there: run this in the root folder of a checkout of capsnmt"
        ) from None
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(
            f"{error.name} is not installed: pip install 'capsnmt[data]'"
        ) from None
    except PreparationError as error:
        raise ConfigurationError(str(error)) from None
