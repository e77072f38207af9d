"""The cases, by what they run; importing them registers them."""

from tests.frozen.cases import (  # noqa: F401
    evaluation,
    launches,
    models,
    plans,
    preparation,
    refusals,
    training,
)
