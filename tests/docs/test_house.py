"""The table of packages in docs/development.md is how the code imports them: upwards only."""

import ast
import re
from pathlib import Path
from typing import Dict, Iterator, List, Set

import pytest

from tests.docs.pages import REPO, rows

PACKAGE = REPO / "capsnmt"
# What fairseq or a command starts: it registers everything, and nothing imports it.
STARTED = {
    *("tasks/register.py", "launch/train.py", "launch/training_step.py", "launch/own_data.py")
}


def packages() -> Dict[str, Set[str]]:
    """Package -> what it imports, in the order of the table; what commands share is left out."""
    table = list(rows((REPO / "docs" / "development.md").read_text("utf-8")))
    ours = [cells for cells in table if cells[0].startswith("`capsnmt/") and len(cells) == 3]
    return {
        cells[0].strip("`").split("/")[1].removesuffix(".py"): set(cells[2].split())
        for cells in ours[1:]
    }


def imported(path: Path, late: bool = False) -> Iterator[str]:
    """The parts of ``capsnmt`` that a module imports when it is imported, or ``late`` as well."""
    folder = ["capsnmt", *path.relative_to(PACKAGE).parts[:-1]]
    body = ast.parse(path.read_text("utf-8")).body
    inside = () if late else (ast.FunctionDef, ast.ClassDef)
    read = [part for part in body if not isinstance(part, inside)]
    for node in (node for part in read for node in ast.walk(part)):
        modules: List[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) - node.level + 1] if node.level else []
            whole = ".".join([*above, *filter(None, [node.module])])
            several = whole == "capsnmt"
            modules = [f"capsnmt.{a.name}" for a in node.names] if several else [whole]
        for module in modules:
            if module.startswith("capsnmt."):
                yield module.split(".")[1]


def modules_of(package: str) -> List[Path]:
    single = PACKAGE / f"{package}.py"
    return [single] if single.exists() else sorted((PACKAGE / package).rglob("*.py"))


@pytest.mark.parametrize("package", packages())
def test_a_package_imports_what_the_table_says(package: str) -> None:
    table = packages()
    found: Set[str] = set()
    for path in modules_of(package):
        names = set(imported(path))
        assert "plugin" not in names or path.relative_to(PACKAGE).as_posix() in STARTED, path
        found |= names & table.keys()
    assert found - {package, "plugin"} == table[package]


def test_every_arrow_points_upwards() -> None:
    above: Set[str] = set()
    for package, imports in packages().items():
        assert imports <= above, package
        above.add(package)


def test_a_function_imports_what_is_above_its_package() -> None:
    """But for ``from_pretrained``, which is of a model; what is started loads the plugin."""
    order = list(packages())
    arrows = {
        (package, name)
        for package in order
        for path in modules_of(package)
        for name in imported(path, late=True)
        if name in order and order.index(name) > order.index(package)
    }
    assert {arrow for arrow in arrows if arrow[1] != "plugin"} == {("models", "translate")}


def test_the_table_has_every_package() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders <= packages().keys()
    table = rows((REPO / "docs" / "development.md").read_text("utf-8"))
    named = " ".join(cells[0] for cells in table if cells[0].startswith("`capsnmt/"))
    modules = {path.name for path in PACKAGE.glob("[!_]*.py")}
    assert modules <= set(re.findall(r"\w+\.py", named))


def test_nothing_but_the_plugin_imports_what_only_makes_it_faster() -> None:
    importers = {
        package
        for package in packages()
        for path in modules_of(package)
        if "fast" in imported(path, late=True)
    }
    assert importers == {"fast", "plugin"}
