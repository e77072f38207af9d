"""Every link has a target, and the README stays short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, REPO, anchors, links, name

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


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "CHANGELOG"], ids=name)
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
