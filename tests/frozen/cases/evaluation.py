"""``capsnmt-evaluate`` and ``capsnmt-report``: every number and every line they print."""

import json
import random
import re
from pathlib import Path
from typing import Dict

from tests.evaluation.outputs import REFERENCE, TOKENS, generated, write_lines, write_outputs
from tests.frozen.kit import World, digest, frozen, outline, tree
from tests.html_pages import without_images
from tests.report.finished_runs import add_seeds, write_classifiers, write_run, write_swept

WARNED = Path(__file__).parents[1] / "data" / "warnings.txt"
# the lengths at which buckets begin, and one below
SOURCE = ["a " * 9, "a " * 10, "a " * 20] * 4


def files(world: World) -> Dict[str, Path]:
    """A reference of twelve lines, outputs of four systems, and scores of each segment."""

    def make(folder: Path) -> None:
        chance = random.Random(1)
        for name, wrong in (("g", 0.2), ("t", 0.3), ("h", 0.5), ("u", 0.6)):
            lines = [" ".join(word for word in line.split() if chance.random() >= wrong)
                     for line in TOKENS]  # fmt: skip
            write_lines(folder / name, generated(lines))
            scores = [round(1 - wrong + chance.random() / 10, 3) for _ in lines]
            write_lines(folder / f"{name}.scores", map(str, scores))
        write_lines(folder / "r", REFERENCE)
        write_lines(folder / "src", SOURCE)
        write_lines(folder / "zh", ["你好，世界。", "我 喜欢 路由！", "胶囊，和 Transformer。"] * 4)
        write_lines(folder / "zh-h", ["你好，世界！", "我喜欢路由！", "胶囊和路由。"] * 4)

    folder = world.once("evaluated", make)
    return {path.name: path for path in folder.iterdir()}


def scored(world: World, *flags: object) -> str:
    document = world.folder / f"{digest(list(map(str, flags)))}.json"
    done = world.call("capsnmt-evaluate", *flags, "--json", document)
    assert done.returncode == 0, done.stderr
    lines = outline(json.loads(document.read_text("utf-8")))
    return done.stdout + world.normalise("\n".join(["== JSON", *lines]))


@frozen("scores, seeds, the bootstrap and given scores of segments, printed and as JSON", True)
def evaluate(world: World) -> str:
    f = files(world)
    return scored(
        world,
        *(f"good={f['g']},{f['t']}", "--baseline", f"base={f['h']},{f['u']}"),
        *("--reference", f["r"], "--seed", "7", "--samples", "50", "--target-lang", "en"),
        *("--segment-scores", "M", f"good={f['g.scores']},{f['t.scores']}"),
        f"base={f['h.scores']},{f['u.scores']}",
    )


@frozen("approximate randomisation, German compounds and a given source", True)
def evaluate_by_randomization(world: World) -> str:
    f = files(world)
    return scored(
        world,
        *(f"good={f['g']}", "--baseline", f"base={f['h']}", "--reference", f["r"], "--seed", "7"),
        *("--significance", "approximate-randomization", "--samples", "50"),
        *("--target-lang", "de", "--source", f["src"]),
    )


@frozen("plain text in Chinese is cut into characters by sacreBLEU", True)
def evaluate_plain(world: World) -> str:
    f = files(world)
    return scored(
        world,
        *(f"good={f['zh-h']}", "--reference", f["zh"], "--target-lang", "zh", "--input", "plain"),
    )


MARKED = {
    "subword_nmt": "th@@ ere",
    "sentencepiece": "▁th ere",
    "wordpiece": "th ##ere",
    "end-marks": "th ere</w>",
    "joiners": "the ￭re",
    "bytes": "th<0xC3><0xA4>re",
    "symbols": "there </s>",
}


def doubtful(folder: Path) -> None:
    """Outputs and references that do not fit; marks are in one line of twelve, or in more."""
    write_outputs(folder)
    unescaped = [f"it 's {line}" for line in REFERENCE]
    escaped = [line.replace("'", "&apos;") for line in unescaped]
    thai = "ผม ชอบ การ แปล ภาษา ด้วย เครื่อง มาก"
    many = [f"word{n} of{n % 7} line{n}" for n in range(400)]
    for name, lines in {
        "three": generated(["a house"] * 3),
        "empty": generated([*TOKENS[:-2], "", ""]),
        "blanks": ["a house", "", " "],
        "tokens": generated(["a house ."] * 60),
        "long": ["a house."] * 60,
        "spaced": ["a house ."] * 60,
        "hindi": ["एक घर ।"] * 60,
        "lower": [line.lower() for line in REFERENCE],
        "copy": generated(TOKENS),
        "moved": generated([*TOKENS[1:], *TOKENS[:1]]),
        "other": [line.replace("\tx", "\tx@@ y") for line in generated(TOKENS)],
        "many": many,
        "lost": [*many[:200], *many[201:], "a word"],
        "escaped": escaped,
        "escaped-log": generated(escaped),
        "unescaped": unescaped,
        "poor": generated(["A <unk> , <unk>"] * 11 + ["A sea"]),
        "thai": [thai] * 12,
        "thai-x": [f"{thai}ๆ"] * 12,
        "thai-joined": [thai.replace(" ", "")] * 12,
        "thai-joined-x": [f"{thai.replace(' ', '')}ๆ"] * 12,
        **dict.fromkeys(("out.A", "out.B", "out.C"), generated(TOKENS)),
        **{"ref.A": REFERENCE, "ref.B": REFERENCE, "ref.C": REFERENCE[::-1]},
    }.items():
        write_lines(folder / name, lines)
    for name, marked in MARKED.items():
        others = ["a </s>" if name == "symbols" else "a"] * 11
        write_lines(folder / f"{name}-few", generated([f"go {marked}", *["a"] * 11]))
        many = [f"go {marked}", f"or {marked} now", *others[1:]]
        write_lines(folder / f"{name}-many", generated(many))


@frozen("what makes a score doubtful is said or refused, and nothing of a score that is not")
def warnings(world: World) -> str:
    folder, lines = world.once("doubtful", doubtful), []
    for line in WARNED.read_text("utf-8").splitlines():
        done = world.call("capsnmt-evaluate", *line.split(), cwd=folder)
        said = f"{done.returncode}: {done.stderr}" if done.returncode else done.stderr
        lines += [f"$ {line}", *(f"  {each}" for each in said.splitlines())]
    return "\n".join(lines)


@frozen("reports of seeds, a sweep and classifiers say this, and scores.csv has it", floats=True)
def reports(world: World) -> str:
    output = world.folder / "seeds"
    write_run(output, "baseline")
    write_run(output, "em_routing", "baseline")
    add_seeds(output, "baseline", [20.0, 22.0, 24.0], [1, 1, 1])
    add_seeds(output, "em_routing", [23.0, 24.0, 25.5], [0.02, 0.001, 0.001])
    write_swept(world.folder / "sweep")
    write_classifiers(world.folder / "classifiers")
    lines = []
    for name in ("seeds", "sweep", "classifiers"):
        page = world.folder / f"report of {name}"
        given = [world.folder / name, "--output", page, "--samples", "2"]
        with without_images(laid_out=True):
            lines += [f"== {name}", world.call("capsnmt-report", *given).stdout]
        lines += [*tree(page), (page / "report.md").read_text("utf-8")]
        lines.append((page / "scores.csv").read_text("utf-8"))
    text = re.sub(r"(?m)^(\| (?:capsnmt|python|sacre\w+) \|) .*", r"\1 V |", "\n".join(lines))
    return world.normalise(text)
