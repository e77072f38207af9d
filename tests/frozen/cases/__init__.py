"""The cases, by what they run; importing them registers them."""
# ruff: noqa: F401

from tests.frozen.cases import evaluation, launches, models, plans, preparation, refusals, training
