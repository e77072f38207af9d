"""A page shows every text as it is, loads nothing, is accessible, and its figures hide nothing."""

import html
import re
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest

from capsnmt.pages.page import Markdown, Table, code, write_page
from capsnmt.pages.plots import drawing, figure_of, finish, images, styles
from tests.corpora.conftest import tree
from tests.html_pages import Page, contrast, luminance, opened

EVIL = "</code></summary><script>alert(1)</script><img src=http://x.example> & \"'`` | *b* $x_1$"
EVIL += ' id="1'
TEMPLATE = """\
# {{ evil }}

{{ evil }} and {{ code(evil) }}

## First of {{ evil }}

{{ table }}

{{ picture("one", evil) }}
*A caption of {{ evil }}.*

{{ picture("folder/other", "The same again, in another file.") }}

<details><summary>{{ evil }}</summary>

{{ block(evil ~ "\n" ~ "`" * 5) }}

</details>

## Second

### Part

- {{ evil }}
"""


def draw(other: str = "other") -> Any:
    figure = figure_of(3)
    axes = figure.add_subplot()
    for name, style in styles([EVIL, other]).items():
        axes.plot([1, 2], [3, 4], label=name, **style)
    finish(axes)
    return figure


def write(folder: Path, other: str = "other") -> Path:
    template = folder / "test.md.j2"
    template.write_text(TEMPLATE, "utf-8")
    table = Table([EVIL, "number"], [[EVIL, 1.5], [code(EVIL), Markdown("**2**")]], numeric=1)
    extra = '<section aria-labelledby="s"><h2 id="s">Extra</h2></section>'
    return write_page(
        template,
        folder / "page",
        {"evil": EVIL, "table": table},
        {"one": partial(draw, other), "folder/other": draw},
        {"numbers.csv": "1\n"},
        extra,
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def content(path: Path) -> str:
    return path.read_text("utf-8")


def test_all_files_are_written_the_same_each_time(path: Path, tmp_path: Path) -> None:
    found = tree(path.parent)
    assert found == tree(write(tmp_path).parent)
    assert sorted(found) == [
        *("folder/other.png", "folder/other.svg", "numbers.csv", "one.png", "one.svg"),
        *("test.html", "test.md"),
    ]
    assert found["one.png"].startswith(b"\x89PNG")
    ElementTree.fromstring(found["one.svg"])
    assert b"#ffffff" in found["one.svg"]  # the file is readable on a dark page, too
    assert b"#010203" not in found["test.html"]  # where it takes the page's ink


def test_characters_that_a_picture_cannot_show_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "ü")
    assert not capsys.readouterr().err
    write(tmp_path, "漢字")
    assert "one.png has boxes for 2 character(s) that its font lacks" in capsys.readouterr().err


def test_figures_ignore_the_users_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    def figure() -> bytes:
        with drawing():
            return images(draw())["svg"]

    before = figure()
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 40)
    assert figure() == before


def test_the_page_loads_nothing_and_runs_nothing(content: str) -> None:
    page = Page(content)
    assert page.all("script") == page.all("img") == page.all("iframe") == []
    (policy,) = [each["content"] for each in page.all("meta") if "http-equiv" in each]
    assert str(policy).startswith("default-src 'none'; style-src")
    for _, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("href", "src", "xlink:href"):
                assert str(value).startswith(("#", "data:,"))
    assert "url(http" not in content
    assert "@import" not in content


def test_every_text_is_shown_as_it_is(content: str) -> None:
    """In the title, headings, navigation, text, code, table, caption, summary and list."""
    svg = re.sub(r"(?s)<svg.*?</svg>", "", content)
    shown = html.unescape(re.sub(r"<[^>]*>", "", svg)).replace("\\", "")
    assert shown.count(EVIL) == 13
    assert html.unescape(re.findall('role="img" aria-label="([^"]*)"', content)[0]) == EVIL
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", content)
    assert html.unescape(" ".join(texts)).count(EVIL) == 2


def test_the_pipe_of_code_ends_no_cell_and_loses_no_backslash() -> None:
    from markdown_it import MarkdownIt

    texts = ["a|b", "a\\|b", "a\\\\|b"]
    table = Table(["text", "code"], [[text, code(text)] for text in texts])
    shown = MarkdownIt("commonmark").enable("table").render(str(table))
    cells = re.findall("<td.*?>(?:<code>)?(.*?)(?:</code>)?</td>", shown)
    assert cells == [text for text in texts for _ in range(2)]


def test_the_page_works_with_a_screen_reader(content: str) -> None:
    page = Page(content)
    assert page.all("html")[0]["lang"] == "en"
    assert [cell["scope"] for cell in page.all("th")] == ["col", "col", "row", "row"]
    pictures = [each for each in page.all("span") if each.get("role") == "img"]
    assert [each["aria-label"] for each in pictures] == [EVIL, "The same again, in another file."]
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert headings == [1, 2, 2, 3, 2]
    scrolling = [*page.all("div"), *(each for each in page.all("code") if "class" in each)]
    assert [each["tabindex"] for each in scrolling] == ["0", "0"]


def test_every_link_has_its_target_once(content: str) -> None:
    page = Page(content)
    identifiers = [str(each["id"]) for _, each in page.elements if "id" in each]
    assert len(identifiers) == len(set(identifiers))
    sections = [str(each["href"])[1:] for each in page.all("a")]
    assert len(sections) == 3
    assert sections[-1] == "s"
    wanted = re.findall(r'(?:href="#|url\(#)([^")]+)', content)
    assert set(sections) < set(wanted) <= set(identifiers)


@pytest.mark.system
def test_a_browser_shows_the_page_without_an_error_or_an_outside_request(
    path: Path, browser: Any
) -> None:
    """A page with a script: tests/analysis/test_page.py."""
    with opened(browser, path, width=390) as page:
        page.wait_for_load_state("networkidle")
        assert page.title() == EVIL
        # elements wider than a telephone scroll by themselves
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        boxes = page.locator(".figure svg").all()
        assert len(boxes) == 2
        for box in boxes:
            size = box.bounding_box()
            assert size["width"] > 300
            assert size["height"] > 100
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            ink, paper = page.evaluate(
                "[getComputedStyle(document.querySelector('.figure svg text')).fill,"
                " getComputedStyle(document.body).backgroundColor]"
            )
            assert contrast(ink, paper) > 7
            assert (luminance(paper) < 0.5) == (scheme == "dark")
            assert not page.locator(".figure svg [id$='patch_1']").first.is_visible()
        first, stop = page.evaluate(
            """() => {
                const { firstChild: text } = document.querySelector("td"), range = new Range();
                text.data = "שלום.";
                return [0, 4].map((at) => {
                    range.setStart(text, at);
                    range.setEnd(text, at + 1);
                    return range.getBoundingClientRect().left;
                });
            }"""
        )
        assert stop < first  # what is written from right to left ends on the left


# --- figures


def test_systems_have_different_styles() -> None:
    found = styles(f"system {number}" for number in range(49))
    assert len({tuple(style.values()) for style in found.values()}) == 49


@pytest.mark.parametrize(  # inside the plot, and below it in three columns, in two and in one
    ("count", "length"), [(2, 60), (30, 1), (30, 33), (9, 60)]
)
def test_the_names_of_many_systems_cover_no_line(count: int, length: int) -> None:
    names = [f"{number:02}" + "e" * length for number in range(count)]
    with drawing():
        figure = figure_of(4.5)
        axes = figure.add_subplot()
        for number, name in enumerate(names):
            axes.plot([0, 1], [number, 0], label=name)
        finish(axes)
        images(figure)
        (legend,) = figure.legends or [axes.get_legend()]
        assert [text.get_text() for text in legend.get_texts()] == names
        inside, plot = (each.get_window_extent() for each in (legend, axes))
    assert inside.overlaps(plot) == (count == 2)
    assert plot.height > 3 * figure.dpi  # the names do not shrink it
    assert inside.xmin >= 0
    assert inside.xmax <= figure.bbox.xmax
