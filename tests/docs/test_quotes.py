"""Scores that the README quotes, and what tables and prose quote from the code."""

import argparse
import json
import re
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import pytest

import capsnmt.analysis.__main__
import capsnmt.corpora.__main__
import capsnmt.evaluation.__main__
import capsnmt.launch.__main__
import capsnmt.translate.__main__
from capsnmt.corpora.own import own_recipe
from capsnmt.corpora.recipe import load_recipe
from capsnmt.evaluation.planning import detectable, power
from capsnmt.launch.own_data import BUDGETS
from capsnmt.models.architectures import SIZES
from tests.docs.pages import REPO, numbers, rows, section


def cell(page: str, title: str, row: str, column: int, place: int = 0) -> List[float]:
    """The numbers in a cell of the tables that begin with a title; ``place``: of which such row."""
    text = (REPO / "docs" / page).read_text("utf-8")
    tables = re.findall(rf"(?m)^\| {re.escape(title)} \|.*\n\|[-:| ]+\n((?:\|.*\n)+)", text)
    named = [cells for cells in rows("".join(tables)) if cells[0].strip("`") == row]
    return numbers(named[place][column])


# a system of README's results -> its row
SYSTEMS = {
    "our baseline": "baseline",
    "EM routing": "em_routing",
    "talking heads": "shazeer2020_talking",
    "dense connections": "pagliardini2024_dense",
    "multi-layer attention": "mlmha",
    "a wider baseline with EM routing's parameters": "baseline_wider",
    "EM routing without agreement": "em_routing_uniform",
    "inverted routing": "tsai2020_inverted",
    "a pre-norm baseline": "baseline_prenorm",
    "attention residuals": "chen2026_attention_residuals",
    "DropHead": "zhou2020_drop_head",
    "orthogonality": "yun2021_orthogonality",
    "HSIC": "yun2021_hsic",
    "SurfaceFusion": "liu2021_surface_fusion",
    "composed heads": "xiao2024_composed",
}


def scored(system: str, seeds: str) -> List[float]:
    """The score of a system, and its deviation over seeds, in the results."""
    if system == "published":
        text = " ".join((REPO / "docs" / "results.md").read_text("utf-8").split())
        return numbers(re.findall(r"the published (\S+) BLEU on test_2016_flickr", text)[0])
    place = 0 if seeds == "1" else int(seeds)  # the seeds, and their mean
    return cell("results.md", "row | seed", SYSTEMS[system], 4, place=place)


def test_the_scores_of_the_readme_are_those_of_the_rows_that_it_names() -> None:
    table = rows(section(REPO / "README.md", "results").partition("\nWMT")[0])[2:]
    assert len(table) == 2
    for title, seeds, found in table:
        systems = re.split("[;,] ", title.replace(" (no routing)", ""))
        quoted, counts = found.split("; "), seeds.split("; ")
        assert len(systems) == len(quoted) == len(counts)
        for system, count, score in zip(systems, counts, quoted):
            known = scored(system, count)
            places = len(score.partition(" ")[0].partition(".")[2])
            assert numbers(score) == pytest.approx(known, rel=0, abs=0.501 / 10**places), system


def test_the_hours_and_the_power_of_seeds_that_prose_says_are_reckoned() -> None:
    pages = ("results", "results_archive", "evaluation")
    text = " ".join("".join((REPO / f"docs/{x}.md").read_text("utf-8") for x in pages).split())
    kept = (REPO / "results" / "multi30k_lowercase").glob("*/seed-*/facts.json")
    hours = [json.loads(path.read_text("utf-8"))["seconds"] / 3600 for path in kept]
    powers = [power(0.5, (n, n), deviation**2) for deviation in (0.25, 0.4) for n in (3, 6)]
    title, rows_of_means = "mean of seeds 1, 2, 3", ("baseline", "em_routing")
    deviations = [cell("results_archive.md", title, row, 1)[1] for row in rows_of_means]
    shown = detectable((3, 3), sum(x**2 for x in deviations) / 2, 0.0)
    for said, known in (
        (r"A training took (\S+) to (\S+) hours", [min(hours), max(hours)]),
        (r"six with (\S+); at 0.4, with (\S+) and (\S+)\.", powers[1:]),
        (r"three seeds show a true difference of (\S+) BLEU", [shown]),
    ):
        (found,) = re.finditer(said, text)
        for each, number in zip(found.groups(), known):
            assert each == f"{number:.{len(each.partition('.')[2])}f}", said


def sizes() -> List[List[str]]:
    found = []
    for suffix, size in SIZES.items():
        sides = [
            {size[f"{side}_{part}"] for side in ("encoder", "decoder")}
            for part in ("embed_dim", "ffn_embed_dim", "attention_heads", "layers")
        ]
        *same, layers = (one for (one,) in sides)
        found.append([f"`{suffix}`" if suffix else "none", *map(str, same), f"{layers} + {layers}"])
        found[-1].append(str(size.get("dropout", 0.1)))
    return found


def budgets() -> List[List[str]]:
    limits = [f"up to {limit:,.0f}" for limit, *_ in BUDGETS[:-1]] + ["more"]
    return [
        [limit, f"{updates:,}", f"{tokens:,}", str(dropout)]
        for limit, (_, updates, tokens, dropout) in zip(limits, BUDGETS)
    ]


def recipes() -> List[List[str]]:
    found = []
    for path in sorted((REPO / "data_prep" / "recipes").glob("*.yaml")):
        recipe = load_recipe(path.stem)
        joint = "joint" if recipe.segmentation.joint else "each"
        limits = [f"{recipe.cleaning.max_length} tokens"]
        limits += [f"{most} subwords" for most in [recipe.cleaning.max_subwords] if most]
        taken = ", published" if recipe.codes else ""
        subwords = f"{recipe.segmentation.size:,} {joint}{taken}"
        found.append([f"`{path.stem}`", subwords, ", ".join(limits)])
    return found


# page, the first title of a table, the columns to compare -> its rows
TABLES: Dict[Tuple[str, str, Tuple[int, ...]], Callable[[], List[List[str]]]] = {
    ("README.md", "suffix", (0, 1, 2, 3, 4, 5)): sizes,
    ("docs/launch.md", "sentence pairs", (0, 1, 2, 3)): budgets,
    ("data_prep/README.md", "recipe", (0, 5, 6)): recipes,
}


@pytest.mark.parametrize(("page", "title", "columns"), TABLES)
def test_a_table_of_a_page_is_that_of_the_code(
    page: str, title: str, columns: Tuple[int, ...]
) -> None:
    text = (REPO / page).read_text("utf-8")
    (found,) = re.findall(rf"(?m)^\| {title} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text)
    table = [[cells[column] for column in columns] for cells in rows(found)]
    assert sorted(table) == sorted(TABLES[page, title, columns]())


COMMANDS: Dict[str, Callable[[], argparse.ArgumentParser]] = {
    "analysis": capsnmt.analysis.__main__.build_parser,
    "data": capsnmt.corpora.__main__.build_parser,
    "launch": capsnmt.launch.__main__.build_parser,
    "using_models": capsnmt.translate.__main__.build_parser,
}


@pytest.mark.parametrize("page", COMMANDS)
def test_the_flags_and_defaults_of_a_command_are_those_of_its_page(page: str) -> None:
    _, *actions = COMMANDS[page]()._actions  # the first is --help
    flags = {flag: action for action in actions for flag in action.option_strings}
    text = (REPO / "docs" / f"{page}.md").read_text("utf-8")
    recipes = (REPO / "data_prep" / "README.md").read_text("utf-8") if page == "data" else ""
    documented = set(re.findall(r"--[a-z][a-z-]*", text + recipes))
    assert {name for each in actions for name in each.option_strings[:1]} <= documented
    table = [cells for cells in rows(text) if cells[0].startswith("`--") and len(cells) == 2]
    assert len(table) > 5
    for named, meaning in table:
        found = re.findall(r"--[a-z-]+", named)
        assert set(found) <= set(flags), named
        said = re.search(r"(?<!by )\bdefault (`?[\w.]+`?(?:, `?\w+`?)*)", meaning)
        for flag, default in zip(found, said[1].split(", ") if said else []):
            own = flags[flag].default
            known = re.search(r"default (\w+)", flags[flag].help or "") if own is None else None
            own = own[0] if isinstance(own, list) else known[1] if known else own
            assert default.strip("`") == str(own), flag


def test_what_the_tutorial_shows_of_prepare_is_what_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (REPO / "docs" / "tutorials" / "own_data.md").read_text("utf-8")
    pairs = int(numbers(page.partition("\n    pairs: ")[0].rpartition(" Of ")[2])[0])
    files = [tmp_path / f"corpus.{language}" for language in ("en", "de")]
    for file in files:
        file.write_text("a line\n" * pairs, "utf-8")
    own_recipe({"train": [str(file) for file in files]})
    said = capsys.readouterr()
    printed = [line for line in (said.out + said.err).splitlines() if line]
    shown = [line.strip() for line in re.findall(r"(?m)^    .*", page)]
    assert len(printed) == 2
    assert shown[:2] == printed
