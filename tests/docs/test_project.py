"""Links have targets, README is short, the site is built, files for hosts and tools are true."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

import capsnmt
from tests.docs.pages import PAGES, REPO, anchors, links, name
from tests.interpreter import ran

README = REPO / "README.md"
every_page = pytest.mark.parametrize("page", PAGES, ids=name)


@every_page
def test_every_relative_link_and_anchor_exists(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@every_page
def test_no_two_headings_of_a_page_have_the_same_anchor(page: Path) -> None:
    assert len(set(anchors(page))) == len(anchors(page))


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, waiting = set(), [README]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        targets = (link.partition("#")[0] for link in links(page))
        waiting += [(page.parent / target).resolve() for target in targets if target]
    assert {name(page) for page in PAGES} <= {name(page) for page in seen}


def test_the_readme_is_at_most_200_lines_and_12_kilobytes() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    assert len(text.encode()) <= 12 * 1024


def test_the_citation_is_of_this_version_and_names_the_five_papers() -> None:
    citation = yaml.safe_load((REPO / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == capsnmt.__version__
    papers = {reference["title"] for reference in citation["references"]}
    readme = " ".join((REPO / "README.md").read_text(encoding="utf-8").split())
    assert len(papers) == 5
    assert all(f"[{title}]" in readme for title in papers)
    for reference in citation["references"]:
        first = reference["authors"][0]
        assert f"{first['given-names']} {first['family-names']}" in readme


def test_no_file_of_the_checkout_is_a_link() -> None:
    """Git for Windows, whose clone may be used in WSL, makes a text file of it."""
    assert not [path for path in REPO.glob("[!.]*") if path.is_symlink()]


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


@pytest.mark.nightly  # half a minute
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(REPO / "docs", docs, ignore=shutil.ignore_patterns("api"))
    (tmp_path / "capsnmt").symlink_to(REPO / "capsnmt")
    site = tmp_path / "site"
    done = ran([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", docs, site])
    assert done.returncode == 0, done.stderr[-3000:]
    assert "em_routing" in (site / "api" / "capsnmt.routing.html").read_text("utf-8")
