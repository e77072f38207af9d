"""The finished runs of the translation tests."""

from tests.translation.conftest import runs

__all__ = ["runs"]
