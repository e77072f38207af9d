"""The small corpus of the system tests."""

from tests.system.conftest import corpus

__all__ = ["corpus"]
