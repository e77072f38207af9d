"""The files that the project's hosts and its developers' tools read."""

from __future__ import annotations

import re
from typing import Any

import yaml

import capsnmt
from tests.docs.pages import REPO


def load(path: str) -> Any:
    return yaml.safe_load((REPO / path).read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version_and_names_the_five_papers() -> None:
    citation = load("CITATION.cff")
    assert citation["version"] == capsnmt.__version__
    papers = {reference["title"] for reference in citation["references"]}
    readme = " ".join((REPO / "README.md").read_text(encoding="utf-8").split())
    assert len(papers) == 5
    assert all(f"[{title}]" in readme for title in papers)
    for reference in citation["references"]:
        first = reference["authors"][0]
        assert f"{first['given-names']} {first['family-names']}" in readme


def test_the_page_on_hosts_names_every_extra() -> None:
    text = (REPO / "setup.py").read_text(encoding="utf-8")
    extras = set(re.findall(r'^ {8}"(\w+)": [A-Z]', text, re.MULTILINE))
    page = (REPO / "docs" / "hosts.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| extra \| for \|\n((?:\|.*\n)+)", page)
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == extras


def test_the_contents_of_the_tests_name_every_file_and_no_other() -> None:
    page = (REPO / "tests" / "README.md").read_text(encoding="utf-8")
    named = set()
    for section in page.split("\n## ")[1:]:
        folder = re.match("`(.*)`", section)
        files = re.findall(r"^\| `(test_\w+\.py)` \| \S", section, re.MULTILINE)
        named |= {f"{folder[1]}/{name}" if folder else name for name in files}
    tests = REPO / "tests"
    assert named == {str(path.relative_to(tests)) for path in tests.rglob("test_*.py")}
