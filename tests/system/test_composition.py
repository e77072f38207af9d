"""The suite of made-up tasks: SCAN against its published rules and splits, and the table."""

import shutil
import statistics
import sys
from itertools import product
from pathlib import Path
from typing import Iterator, List, Set

import pytest
import scipy.stats

from capsnmt.cli import ConfigurationError
from data_prep.composition import TASKS, commands
from scripts.composition import outcomes_below
from tests.commands import command, is_refusal, succeed
from tests.interpreter import ran
from tests.report.finished_runs import REFERENCES, TEST_SET, add_seeds, write_generated, write_run
from tests.support import REPO

TURN = {"left": ["LTURN"], "right": ["RTURN"]}


def acted(phrase: str) -> List[str]:
    """The double brackets of Lake and Baroni (2018), rule by rule."""
    for word in (" and ", " after "):
        if word in phrase:
            x, y = phrase.split(word)
            return acted(x) + acted(y) if word == " and " else acted(y) + acted(x)
    *start, last = phrase.split()
    if last in ("twice", "thrice"):
        return acted(" ".join(start)) * (2 if last == "twice" else 3)
    if last not in TURN:
        return [phrase.upper()]
    action = [] if start[0] == "turn" else acted(start[0])
    if start[-1] == "opposite":
        return TURN[last] + TURN[last] + action
    if start[-1] == "around":
        return (TURN[last] + action) * 4
    return TURN[last] + action


def derived() -> Iterator[str]:
    """Every sentence of the grammar, by its nonterminals U, D, V, S and C."""
    U = ["walk", "look", "run", "jump"]
    D = [f"{verb} {side}" for verb in (*U, "turn") for side in TURN]
    V = [*U, *D, *(d.replace(" ", f" {how} ") for d in D for how in ("opposite", "around"))]
    S = [*V, *(f"{v} {times}" for v in V for times in ("twice", "thrice"))]
    yield from S
    yield from (f"{x} {word} {y}" for x, y in product(S, repeat=2) for word in ("and", "after"))


def test_scan_is_every_command_of_the_grammar_with_its_actions() -> None:
    found = commands()
    assert sorted(found) == sorted(derived())
    assert len(found) == 20_910
    assert all(actions.split() == acted(phrase) for phrase, actions in found.items())


@pytest.mark.parametrize(
    ("task", "train", "test"), [("scan_length", 16_990, 3_920), ("scan_jump", 14_670, 7_706)]
)
def test_a_split_of_scan_has_the_published_sizes(task: str, train: int, test: int) -> None:
    """But for a twentieth of the training pairs, which is for validation."""
    splits = TASKS[task]()
    assert (len(splits["train"]) + len(splits["valid"]), len(splits["test"])) == (train, test)
    known, held_out, new = ({*splits[name]} for name in ("train", "valid", "test"))
    assert known | held_out | new == {*commands().items()}
    assert len(known) + len(held_out) + len(new) == len(commands())
    assert 19 <= len(known) / len(held_out) < 20
    lengths: List[Set[int]] = [{len(y.split()) for _, y in pairs} for pairs in (known, new)]
    if task == "scan_length":
        assert (max(lengths[0]), min(lengths[1]), max(lengths[1])) == (22, 24, 48)
    if task == "scan_jump":
        assert [x for x, _ in known | held_out if "jump" in x] == ["jump"]
        assert splits["train"].count(("jump", "JUMP")) == 1_467  # a tenth
        assert all("jump" in x for x, _ in new)


@pytest.mark.parametrize(("task", "step"), [("copy", 1), ("reversal", -1), ("demo", -1)])
def test_a_sequence_is_copied_or_reversed_beyond_the_trained_length(task: str, step: int) -> None:
    splits = TASKS[task]()
    lengths = {}
    for name, pairs in splits.items():
        assert all(y.split() == x.split()[::step] for x, y in pairs)
        lengths[name] = {len(x.split()) for x, _ in pairs}
    assert task == "demo" or max(lengths["train"]) < min(lengths["test"])
    assert TASKS[task]() == splits  # the same each time


def test_text_that_the_disk_does_not_hold_is_one_line_and_absent(tmp_path: Path) -> None:
    """Files of at most 40 KiB stand for a full disk."""
    limited = ("bash", "-c", 'ulimit -f 40; exec "$@"', "-", sys.executable)
    program = REPO / "data_prep" / "composition.py"
    done = ran([*limited, program, "--task", "demo", "--output", tmp_path / "text"])
    is_refusal(done.returncode, done.stderr, ".tgt: File too large", status=1)
    assert not [*(tmp_path / "text").iterdir()]


def test_a_copy_beside_a_seed_takes_not_its_place(tmp_path: Path) -> None:
    first = write_run(tmp_path / "copy", "baseline")
    copy = shutil.copytree(first, first.with_name("seed-1-old"))
    write_generated(copy / f"generate-{TEST_SET}.txt", REFERENCES)
    (found,) = outcomes_below(tmp_path)
    assert found.accuracy == {TEST_SET: 0}
    (first / f"generate-{TEST_SET}.txt").write_text("H-0\t-1\tx\n")  # it was the share of one
    with pytest.raises(ConfigurationError, match="seed-1 has 1 segments, but the reference"):
        [*outcomes_below(tmp_path)]


def test_the_table_counts_whole_sequences_over_seeds(tmp_path: Path) -> None:
    right = {"baseline": (3, 6, 9), "em_routing": (12, 15, 30)}
    for row, counts in right.items():
        write_run(tmp_path / "copy", row)
        for folder, count in zip(add_seeds(tmp_path / "copy", row, counts, counts), counts):
            wrong = [" ".join([*line.split()[:-1], "gut"]) for line in REFERENCES[count:]]
            found = [*REFERENCES[:count], *wrong]
            write_generated(folder / f"generate-{TEST_SET}.txt", found)
    write_run(tmp_path / "reversal", "baseline").joinpath("scores.json").unlink()  # it goes on
    header, _, *lines = succeed("scripts.composition", tmp_path).strip().splitlines()
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in (header, *lines)]
    told = ["task", "system", "parameters", "seeds", "prefix", "Δ prefix", "95%", "test", "95%"]
    assert table[0] == [*told, "Δ test", "95%", "p, Holm over 1"]
    for line, (row, counts) in zip(table[1:], right.items()):
        shares = [100 * count / len(REFERENCES) for count in counts]
        mean, std = statistics.mean(shares), statistics.stdev(shares)
        reach = 4.302653 * std / 3**0.5  # t of two degrees of freedom
        low, high = max(0, mean - reach), min(100, mean + reach)
        assert line[:4] == ["copy", f"`{row}`", "6", "3"]
        assert line[7:9] == [f"{mean:.2f} ± {std:.2f}", f"{low:.1f} to {high:.1f}"]
        # in a wrong line all words but the last are right
        parts = [len(x.split()) - 1 for x in REFERENCES]
        begun = [100 - 100 * sum(1 / (x + 1) for x in parts[n:]) / len(parts) for n in counts]
        assert line[4] == f"{statistics.mean(begun):.2f} ± {statistics.stdev(begun):.2f} (3)"
    assert table[1][5:7] == ["–", "–"]
    assert table[1][9:] == ["–", "–", "–"]
    assert table[2][9] == "+43.33"
    expected = scipy.stats.ttest_ind(*right.values(), equal_var=False).pvalue
    assert float(table[2][11]) == pytest.approx(expected, abs=5e-4)
    assert (tmp_path / "composition.md").read_text("utf-8").splitlines() == [header, _, *lines]
    kept = tmp_path / "kept" / "outcomes.tsv"
    assert succeed("scripts.composition", tmp_path, "--keep", kept) == f"{header}\n{_}\n" + "".join(
        f"{line}\n" for line in lines
    )
    shutil.rmtree(tmp_path / "copy" / "em_routing")  # a machine that was lost
    again = succeed("scripts.composition", tmp_path, "--keep", kept).strip().splitlines()
    assert again == [header, _, *lines]
    known = kept.read_text("utf-8")
    fields = [line.split("\t") for line in known.splitlines()]
    place = fields[0].index("prefix")
    kept.write_text("".join("\t".join(x[:place] + x[place + 1 :]) + "\n" for x in fields))
    older = succeed("scripts.composition", tmp_path, "--keep", kept).strip().splitlines()
    assert [line.split("|")[5].strip() for line in older[2:]] == [table[1][4], "–"]
    settings = fields[-1][fields[0].index("settings")]
    for text, words in (
        (known.replace("em_routing\t2\t6\t", "em_routing\t2\t6\t7"), "seed 2, has the updates"),
        ("others".join(known.rsplit(settings, 1)), "has the settings others, but em_routing"),
        ("task\tsystem\ncopy\tbaseline\n", "keeps no outcomes of the suite"),
    ):
        kept.write_text(text)
        is_refused(words, tmp_path, "--keep", kept)
    (tmp_path / "copy" / "data" / "raw" / f"{TEST_SET}.de").write_text("x\n" * 30, "utf-8")
    is_refused("was scored with another reference than", tmp_path)
    is_refused("has no finished runs of the suite", tmp_path / "copy")


def is_refused(words: str, *arguments: object) -> None:
    done = command("scripts.composition", *arguments)
    is_refusal(done.returncode, done.stderr, words)
