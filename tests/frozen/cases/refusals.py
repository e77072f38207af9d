"""Help, and command lines that are refused in one line."""

import importlib
import os
import shlex
import shutil
from itertools import product
from pathlib import Path
from typing import List

import torch
import yaml
from fairseq.criterions import build_criterion
from fairseq.optim import build_optimizer

from capsnmt import modules, routing
from tests.corpora.conftest import recipe_of, write_recipe
from tests.corpora.miniatures import lines as lines_of
from tests.corpora.miniatures import write_own
from tests.evaluation.outputs import REFERENCE, element, sgm, wmt_xml, write_outputs
from tests.frozen.kit import DATA, World, frozen
from tests.interpreter import COMMANDS
from tests.report.finished_runs import write_run
from tests.sentences import systems
from tests.small_row import SMALL
from tests.support import SMALL as SMALL_MODEL
from tests.support import TASK, parse

REFUSED = DATA / "refusals.txt"
SCRIPTS = (
    *("demo", "test", "run_evidence", "run_experiment", "evaluate"),
    *("check_gpu", "benchmark_gpu"),
)
SCRIPTS_REFUSE = ("demo", "run_evidence", "run_experiment")

# what a command cannot do without, if it is not an input and --output
NEEDED = {
    "capsnmt-run": [],
    "capsnmt-evaluate": ["x", "--reference", "x"],
    "capsnmt-translate": ["x"],
}


def script(world: World, name: str, flag: str) -> List[str]:
    done = world.script(f"{name}.sh", flag)
    text = (done.stdout + done.stderr).rstrip()
    return [f"== {name}.sh {flag}: status {done.returncode}", text]


@frozen("every command and script has this help")
def help_texts(world: World) -> str:
    lines: List[str] = []
    for command in COMMANDS:
        done = world.call(command, "--help")
        lines += [f"== {command} --help: status {done.returncode or 0}", done.stdout.rstrip()]
    for name in SCRIPTS:
        lines += script(world, name, "--help")
    return "\n".join(lines)


@frozen("a flag that no command has is refused in one line with status 2 (1 by a script)")
def unknown_flags(world: World) -> str:
    lines: List[str] = []
    for command in COMMANDS:
        done = world.call(command, *NEEDED.get(command, ["x", "--output", "x"]), "--no-such-flag")
        lines += [f"== {command}: status {done.returncode}", done.stderr.rstrip()]
    for name in SCRIPTS_REFUSE:
        lines += script(world, name, "--no-such-flag")
    return "\n".join(lines)


def spoilt(folder: Path) -> None:
    """Write the inputs that the rows name: outputs, a row, and weights without settings."""
    write_outputs(folder)
    (folder / "huge").write_bytes((folder / "good").read_bytes() + b"H-2000000000\t-1\ta\n")
    (folder / "cut").write_text("H-0\tMr Smith\n", "utf-8")
    for name, ids in {
        "again": "H0 H1 H0",
        "targetless": "S0 H0 S1",
        "sourceless": "S1 H1 H0",
    }.items():
        numbered = (f"{kind}-{number}\t-1\ta\n" for kind, number in ids.split())
        (folder / name).write_text("".join(numbered), "utf-8")
    (folder / "tiny.yaml").write_text(SMALL, "utf-8")
    for name, rate in (("one", "0.1"), ("two", "0.2")):
        (folder / name).mkdir()
        (folder / name / "em.yaml").write_text(SMALL.replace("0.005", rate), "utf-8")
    lengths = [*(5 + number % 20 for number in range(400)), 29, 29]
    sentences = ("word " * length + f"{number}\n" for number, length in enumerate(lengths))
    (folder / "words").write_text("".join(sentences), "utf-8")
    spoilt_recipes(folder / "recipes")
    spoilt_text(folder / "own")
    spoilt_test_sets(folder / "own")
    write_run(folder / "runs", "baseline")
    shutil.copytree(folder / "runs/baseline/seed-1", folder / "unfinished/seed-1")
    (folder / "unfinished/seed-1/scores.json").unlink()
    spoilt_checkpoints(folder / "saved")
    shutil.copytree(REFUSED.with_name("rows"), folder / "rows")
    shutil.copy(folder / "tiny.yaml", folder / "rows" / "base.yaml")
    (folder / "data").mkdir()
    (folder / "dangling").symlink_to("nowhere")
    torch.save({"model": {"weight": torch.ones(1)}}, folder / "weights.pt")


def spoilt_recipes(folder: Path) -> None:
    """Write a corpus, and the recipes of it that are wrong."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    for split, side in product(("train", "val", "test"), ("en", "de")):
        (corpus / f"{split}.{side}").write_bytes(lines_of(range(3), side))
    wrong = yaml.safe_load(REFUSED.with_name("recipes.yaml").read_text("utf-8"))
    for name, change in wrong.items():
        recipe = recipe_of(corpus)
        for key, value in change.items():
            recipe[key] = {**recipe[key], **value} if key in ("splits", "files") else value
        recipe["splits"] = {split: parts for split, parts in recipe["splits"].items() if parts}
        write_recipe(folder / f"{name}.yaml", recipe)


def spoilt_text(folder: Path) -> None:
    folder.mkdir()
    write_own(folder)
    (folder / "one.tsv").write_text("no tab\n" * 60, "utf-8")
    (folder / "numbered.tsv").write_text("1\tA house.\tEin Haus.\n" * 60, "utf-8")
    (folder / "empty.en").touch()
    (folder / "empty.de").touch()
    (folder / "short.de").write_bytes(lines_of(range(59), "de"))
    (folder / "few.en").write_bytes(lines_of(range(19), "en"))
    (folder / "few.de").write_bytes(lines_of(range(19), "de"))
    (folder / "latin.en").write_bytes("schön\n".encode("latin-1") * 60)
    (folder / "wide.en").write_text("a house\n" * 60, "utf-16")


def spoilt_test_sets(folder: Path) -> None:
    """Write test sets in markup, text where preparation writes its own, and what is no file."""
    segments = (folder / "v.de").read_text("utf-8").splitlines()
    side = "<{0}set><doc><seg>a &amp; b</seg></doc></{0}set>\n"
    unit = "<tmx>\n<tu><tuv><seg>a</seg></tuv><tuv><seg>b</seg></tuv></tu>\n</tmx>\n"
    for name, text in {
        "both.xml": wmt_xml(segments, segments, source=segments),
        "references.sgm": sgm(segments, segments, key="sysid"),
        "v.tmx": f"<?xml version='1.0'?>\n{unit}",
        "tmx.xml": unit,
        "marked.en": side.format("src"),
        "marked.de": f"\n{side.format('ref')}",
        "part.xml": wmt_xml(REFERENCE, REFERENCE, documents=1),
        "source.xml": element("src", segments),
        "none.en.sgm": "just text\n",
        "blank.en.sgm": "",
        "cut.en.sgm": '<seg id="1">a</seg>\n<seg id="2">cut of',
        "lost.en.sgm": "<seg>a\n<seg>b</seg>\n<seg>c</seg>",
        "two.en.sgm": "<src>\n<seg>a</seg></src>\n<ref><seg>b</seg></ref>",
        "v.de.sgm": side.format("ref"),
    }.items():
        (folder / name).write_text(text, "utf-8")
    shutil.copytree(folder, folder.parent / "my/raw", ignore=lambda *_: ["my"])
    for side in ("en", "de"):
        (folder.parent / f"my/raw/a.{side}").rename(folder.parent / f"my/raw/train.{side}")
    (folder.parent / "link").symlink_to("my")
    os.mkfifo(folder / "pipe.de")


def spoilt_checkpoints(folder: Path) -> None:
    """Write checkpoints of one model, and of others. fairseq never sets ``_float_tensor``."""
    folder.mkdir()
    unset = {"embed_positions._float_tensor": torch.tensor([float("nan")])}
    alone, both = {"w": torch.zeros(2)}, {"v": torch.zeros(1), "w": torch.zeros(2)}
    models = {
        **{f"checkpoint{epoch}": both for epoch in (1, 2, 3)},
        **{f"checkpoint.best_{best}": both for best in ("bleu_27.3102", "loss_3.1004")},
        "other": alone,
        "wide": {**both, "w": torch.zeros(3)},
        "nan": {**both, "w": torch.tensor([0, float("inf")])},
    }
    for name, model in models.items():
        torch.save({"model": {**unset, **model}}, folder / f"{name}.pt")


def built(kind: str, flags: List[str]) -> str:
    """Build what fairseq-train builds of its flags, up to the model; return the refusal."""
    try:
        if kind == "classifier":
            args = systems.parse("probing_transformer", *systems.SMALL, *flags)
        else:
            args = parse("capsnmt_transformer", *SMALL_MODEL, *flags)
        if "--criterion" in flags:
            build_criterion(args, TASK)
        if "--optimizer" in flags:
            build_optimizer(args, [torch.nn.Parameter(torch.ones(1))])
    except (SystemExit, ValueError) as error:
        return str(error)
    return "accepted"


@frozen("each of these command lines is refused with this line and writes nothing")
def refusals(world: World) -> str:
    importlib.import_module("scripts.benchmark")  # torch 2.2 prints there that it finds no GPU
    folder = world.once("refused", spoilt)
    files = {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}
    lines: List[str] = []
    for line in REFUSED.read_text("utf-8").splitlines():
        command, *arguments = shlex.split(line)
        if command in ("model", "classifier"):
            answer = world.normalise(built(command, arguments))
        else:
            run = world.script if command.endswith(".sh") else world.call
            done = run(command, *arguments, cwd=folder)
            answer = f"{done.returncode}: {done.stdout}{done.stderr}".rstrip()
            answer = answer.replace("HERE/refused", "HERE")
        lines += [f"$ {line}", f"  {answer}"]
    assert {path: path.lstat().st_mtime_ns for path in folder.rglob("*")} == files
    return "\n".join(lines)


@frozen("each of these calls of an operator or a module is refused in this line")
def calls(_: World) -> str:
    names = {**vars(routing), **vars(modules), "torch": torch, "x": torch.zeros(3, 2, 8)}
    names.update(votes=torch.zeros(2, 3, 4, 5), ones=torch.ones(4))
    lines: List[str] = []
    for line in (DATA / "calls.txt").read_text("utf-8").splitlines():
        try:
            answer = f"accepted: {eval(line, names)}"
        except ValueError as error:
            answer = str(error)
        lines += [f">>> {line}", f"  {answer}"]
    return "\n".join(lines)
