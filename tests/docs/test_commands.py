"""The commands in the documentation exist, and their own parsers accept them."""

import argparse
import importlib
import importlib.util
import itertools
import re
import runpy
import shlex
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence

import pytest
from fairseq import options

from capsnmt.cli import ConfigurationError
from tests.docs.pages import PAGES, REPO, Block, blocks, name
from tests.interpreter import COMMANDS

ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")
# scripts with flags of their own
PLANNING_SCRIPTS = r"scripts/(demo|run_evidence|benchmark_cpu)\.sh"
PARSERS: Dict[str, Callable[[str], argparse.ArgumentParser]] = {
    "train": options.get_training_parser,
    "generate": lambda task: options.get_generation_parser(),
    "interactive": lambda task: options.get_interactive_generation_parser(),
}


# the files that docs/development.md adds
NEW = ("capsnmt/modules/layer_aggregation/attention.py", "configs/wmt14_en_de/depth_attention.yaml")


class Command(NamedTuple):
    """A command line of a page."""

    page: Path
    words: List[str]
    refused: bool  # the page shows the error

    def __str__(self) -> str:
        return f"{name(self.page)}: {' '.join(self.words[:6])}"


def commands() -> Iterator[Command]:
    """Every simple command of the pages' shell blocks, without assignments and redirections."""
    for page in PAGES:
        for block in blocks(page):
            if block.language not in ("bash", "console"):
                continue
            for line in re.sub(r"\\\n", " ", block.text).splitlines():
                if block.language == "console" and not line.startswith("$ "):
                    continue
                words = _simple(line[2:] if block.language == "console" else line)
                if words:
                    yield Command(page, words, refused=block.language == "console")


def _simple(line: str) -> List[str]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # a quotation of several lines
        return []
    while words and (ASSIGNMENT.fullmatch(words[0]) or words[0] == "bash"):
        del words[0]
    return list(itertools.takewhile(lambda word: word not in ("<", ">"), words))


class Parsed(Exception):  # noqa: N818  not an error
    """The command's parser accepted its command line."""


def main_of(command: str) -> Callable[[Sequence[str]], Any]:
    module, _, function = COMMANDS[command].partition(":")
    return getattr(importlib.import_module(module), function)


def runs(command: Command) -> List[str]:
    """The installed command that a line runs, also through a script, and its flags; or nothing."""
    program, *flags = command.words
    if program in COMMANDS:
        return [program, *flags]
    if re.fullmatch(r"data_prep/\w+\.sh", program):
        recipe = Path(program).stem
        return ["capsnmt-prepare", *([] if recipe == "prepare" else [recipe]), *flags]
    if re.fullmatch(r"scripts/run_\w+\.sh", program):
        text = (REPO / program).read_text(encoding="utf-8")
        dataset = re.search(r"\.sh\" --dataset ([\w-]+)", text)
        return ["capsnmt-run", "--dataset", dataset[1], *flags] if dataset else []
    return []


ALL = list(commands())
# kind -> the commands of the pages; fairseq-KIND is of fairseq
KINDS: Dict[str, List[Command]] = {
    # a file of settings is written by the command before
    "run": [x for x in ALL if runs(x)[:1] == ["capsnmt-run"] and "mine.yaml" not in x.words],
    "ours": [command for command in ALL if runs(command) and runs(command)[0] != "capsnmt-run"],
    "module": [command for command in ALL if command.words[:2] == ["python", "-m"]],
    "script": [command for command in ALL if re.fullmatch(PLANNING_SCRIPTS, command.words[0])],
    **{
        kind: [command for command in ALL if command.words[0] == f"fairseq-{kind}"]
        for kind in PARSERS
    },
}
EXAMPLES_IN_PYTHON = [
    block for page in PAGES for block in blocks(page) if block.language == "python"
]


def test_the_pages_have_commands_of_every_kind() -> None:
    assert all([*KINDS.values(), EXAMPLES_IN_PYTHON])


@pytest.mark.parametrize("command", [*KINDS["ours"], *KINDS["module"]], ids=str)
def test_the_parser_of_a_command_of_ours_accepts_it(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse_args = argparse.ArgumentParser.parse_args

    def accept(self: Any, *args: Any, **kwargs: Any) -> None:
        raise Parsed(parse_args(self, *args, **kwargs))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", accept)
    if runs(command):
        program, *flags = runs(command)
        main = main_of(program)
    else:
        _, _, module, *flags = command.words
        main = importlib.import_module(module).main
    with pytest.raises(Parsed):
        main(flags)


@pytest.mark.one_host  # tests/launch/test_plan.py plans on both
@pytest.mark.parametrize("command", KINDS["run"], ids=str)
def test_the_launcher_plans_it(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan checks the row, every setting and every flag."""
    monkeypatch.chdir(tmp_path)
    program, *flags = runs(command)
    if "--data" in flags:
        (tmp_path / flags[flags.index("--data") + 1]).mkdir(parents=True)
    if "--prepared" in flags:
        manifest = tmp_path / flags[flags.index("--prepared") + 1] / "manifest.json"
        manifest.parent.mkdir(parents=True)
        manifest.write_text('{"pair": "en-de", "pairs": 9, "subsets": {"test": "test"}}', "utf-8")
    assert main_of(program)([*flags, "--dry-run"]) == 0


@pytest.mark.one_host
@pytest.mark.parametrize("command", KINDS["script"], ids=str)
def test_the_script_plans_it(command: Command, tmp_path: Path) -> None:
    script, *flags = command.words
    if "--data" in flags:
        (tmp_path / flags[flags.index("--data") + 1]).mkdir()
    planned = ["bash", str(REPO / script), *flags, "--dry-run"]
    done = subprocess.run(planned, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.parametrize(
    ("kind", "command"), [(kind, command) for kind in PARSERS for command in KINDS[kind]], ids=str
)
def test_the_command_of_fairseq_accepts_the_flags(kind: str, command: Command) -> None:
    flags = command.words[1:]
    if "--user-dir" in flags:  # as a path: the name is not installed here
        place = flags.index("--user-dir") + 1
        assert flags[place] == "capsnmt"
        flags[place] = str(REPO / "capsnmt")
    if "--probe-checkpoint" in flags:  # read while parsing, but missing here
        place = flags.index("--probe-checkpoint")
        del flags[place : place + 2]
    task = flags[flags.index("--task") + 1] if "--task" in flags else "translation"
    parser = PARSERS[kind](task)
    if command.refused:
        with pytest.raises(ConfigurationError) as error:
            options.parse_args_and_arch(parser, flags)
        assert f"\n{error.value}\n" in command.page.read_text(encoding="utf-8")
    else:
        options.parse_args_and_arch(parser, flags)


@pytest.mark.parametrize("block", EXAMPLES_IN_PYTHON, ids=lambda block: name(block.page))
def test_an_example_in_python_prints_the_text_of_its_comment(
    block: Block, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = re.findall(r"^print\(.*\)  # (.*)$", block.text, re.MULTILINE)
    imports = [line for line in block.text.splitlines() if re.match("(from|import) ", line)]
    if block.page.stem == "torch":  # these two need no fairseq: tests/test_imports.py
        assert set(re.findall(r"capsnmt\.(\w+)", block.text)) <= {"modules", "routing"}
    script = tmp_path / "example.py"
    # without a result it reads files that are not there
    script.write_text(block.text if expected else "\n".join(imports), encoding="utf-8")
    runpy.run_path(str(script))
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_script_module_and_path_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"\bcapsnmt-[a-z]+\b", text))
    assert named <= set(COMMANDS)
    paths = re.findall(r"(?<![\w/.])((?:scripts|data_prep|configs|tests|capsnmt)/[\w./-]+)", text)
    # capital letters and endings such as _* stand for several
    paths = [path.rstrip(".") for path in paths if not re.search(r"[A-Z]{2}|_$", path)]
    assert not [path for path in paths if not (REPO / path).exists() and path not in NEW]
    for module in re.findall(r"python -m (capsnmt[\w.]*)", text):
        assert importlib.util.find_spec(module), module
