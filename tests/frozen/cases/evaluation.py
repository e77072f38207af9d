"""``capsnmt-evaluate``: every number and every line it prints."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Dict

from tests.evaluation.outputs import REFERENCE, TOKENS, generated, write_lines
from tests.frozen.kit import World, digest, frozen, outline

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
    """What the command prints, and its JSON."""
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
