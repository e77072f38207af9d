"""What users rely on is as it was recorded: ``python -m tests.frozen --write`` records."""

import sys

import pytest

from tests.commands import made_once
from tests.frozen import cases  # noqa: F401  registers them
from tests.frozen.kit import CASES, GOLDEN, Case, World, differences

pytestmark = pytest.mark.system
# the modules of cases that run on both hosts with every commit; the others do so at night
COMPUTED_BY_THE_HOST = ("models", "training")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(made_once(tmp_path_factory, "frozen", lambda folder: None))


def _marked(case: Case) -> object:
    marks = [pytest.mark.nightly] * case.nightly
    if case.make.__module__.rpartition(".")[2] not in COMPUTED_BY_THE_HOST:
        marks.append(pytest.mark.one_host)
    if case.name == "help_texts":
        reason = "argparse of Python 3.13 lays out the same help otherwise"
        marks.append(pytest.mark.skipif(sys.version_info >= (3, 13), reason=reason))
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", map(_marked, CASES.values()))
def test_what_users_rely_on_is_as_recorded(case: Case, world: World) -> None:
    assert not (found := differences(case, case.text(world))), found


def test_every_golden_has_a_case() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(CASES)
