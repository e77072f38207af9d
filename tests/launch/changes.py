"""Changes of a finished experiment, and what the launcher should make of each.

The lists are what docs/launch.md, "What is the same", speaks of: data, settings, folders, machines.
Each change says what differs by that page; `RULE` says what follows.
"""

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, Set, Tuple

import numpy as np
import yaml

from tests.kills.launch import command

REFUSED = "refused"


@dataclass
class World:
    """A finished experiment in a folder of its own, and how it is launched again."""

    folder: Path
    words: List[str]
    environment: Dict[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> Path:
        return self.folder / "sources"

    @property
    def prepared(self) -> Path:
        return self.folder / "out" / "prepared"

    @property
    def run(self) -> Path:
        return self.folder / "out" / "runs" / "tiny" / "seed-1"

    def set(self, *assignments: str) -> None:
        self.words += [word for each in assignments for word in ("--set", each)]

    def settings(self, change: Callable[[Dict], object], name: str = "tiny") -> None:
        """Change the file of the row, or that of the recipe."""
        path = self.sources / f"{name}.yaml"
        known = yaml.safe_load(path.read_text("utf-8"))
        change(known)
        path.write_text(yaml.safe_dump(known), "utf-8")

    def flag(self, name: str, value: Path) -> None:
        self.words[self.words.index(name) + 1] = str(value)


# --- experiments: settings of the row

EXPERIMENTS: Dict[str, List[str]] = {
    "by updates": ["train.max-update=8"],
    "by epochs, one checkpoint": [
        *("train.max-update=1000", "train.max-epoch=1"),
        *("train.save-interval-updates=10", "average=null"),
    ],
    "the other direction, plateau": [
        *("data.source-lang=de", "data.target-lang=en", "train.head-aggregation=linear"),
        *("train.lr-scheduler=reduce_lr_on_plateau", "train.max-update=8"),
    ],
}


def world_of(experiment: str, folder: Path) -> World:
    """An experiment whose sources, as of `write_sources`, are in the folder."""
    world = World(folder, command(folder / "sources", folder / "out"))
    world.set(*EXPERIMENTS[experiment])
    return world


def copy(world: World, folder: Path) -> World:
    """A copy of an experiment, with other times and inodes."""
    shutil.copytree(world.folder, folder, copy_function=shutil.copyfile)
    words = [word.replace(str(world.folder), str(folder)) for word in world.words]
    copied = World(folder, words)
    recipe = str(copied.sources / "recipe.yaml")
    copied.settings(lambda row: row["data"].update(recipe=recipe))
    return copied


# --- changes


def edit(path: Path, change: Callable[[str], str]) -> None:
    text = path.read_text("utf-8")
    assert change(text) != text, path
    path.write_text(change(text), "utf-8")


def text_of(split: str) -> Callable[[World], None]:
    return lambda world: edit(
        world.sources / "corpus" / f"{split}.en", lambda text: text.replace("\n", " alpha\n", 1)
    )


def recipe(change: Callable[[Dict], object]) -> Callable[[World], None]:
    return lambda world: world.settings(change, "recipe")


def sets(*assignments: str) -> Callable[[World], None]:
    return lambda world: world.set(*assignments)


def other_text(world: World) -> None:
    """The text, with one sentence more, in another folder."""
    shutil.copytree(world.sources / "corpus", world.folder / "other")
    for language in ("en", "de"):
        edit(world.folder / "other" / f"train.{language}", lambda text: f"{text}one more\n")
    world.flag("--data", world.folder / "other")


def turned(world: World) -> None:
    source, target = reversed(languages(world))
    world.set(f"data.source-lang={source}", f"data.target-lang={target}")


def exchanged(split: str) -> Callable[[World], None]:
    """Give the binarised text of a split another order of the same sentences."""

    def change(world: World) -> None:
        from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder

        (index,) = (world.prepared / "bin").glob(f"{split}.*.en.idx")
        prefix = str(index.with_suffix(""))
        sentences = list(MMapIndexedDataset(prefix))
        first = next(n for n, each in enumerate(sentences) if list(each) != list(sentences[0]))
        sentences[0], sentences[first] = sentences[first], sentences[0]
        made = MMapIndexedDatasetBuilder(f"{prefix}.bin.new", dtype=np.uint16)
        for sentence in sentences:
            made.add_item(sentence)
        made.finalize(f"{prefix}.idx.new")
        for suffix in ("bin", "idx"):
            os.replace(f"{prefix}.{suffix}.new", f"{prefix}.{suffix}")

    return change


def reference(world: World) -> None:
    path = world.prepared / "raw" / f"news.{languages(world)[1]}"
    edit(path, lambda text: "".join(sorted(text.splitlines(keepends=True), reverse=True)))


def languages(world: World) -> Tuple[str, str]:
    return ("de", "en") if "data.target-lang=en" in world.words else ("en", "de")


def moved(folder: str, flag: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        (world.folder / folder).rename(world.folder / "moved")
        world.flag(flag, world.folder / "moved")

    return change


def linked(world: World) -> None:
    os.symlink(world.folder / "out", world.folder / "link")
    world.flag("--output", world.folder / "link" / "runs")
    world.flag("--prepared", world.folder / "link" / "prepared")


def other_times(world: World) -> None:
    for path in world.folder.rglob("*"):
        os.utime(path, (1, 1))


def without(*names: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        for name in names:
            (world.run / name).unlink(missing_ok=True)

    return change


def surroundings(**variables: str) -> Callable[[World], None]:
    return lambda world: world.environment.update(variables)


def flags(*words: str) -> Callable[[World], None]:
    return lambda world: world.words.extend(words)


# What differs by the page -> whether it is refused, or which steps must be and which may be
# repeated: what is made again may come out the same, and what follows then remains.
RULE: Dict[str, Tuple[Set[str], Set[str]]] = {
    "nothing": (set(), set()),
    "the data": ({REFUSED}, set()),
    "the training": ({REFUSED}, set()),
    "the translation": ({"generate"}, {"score"}),
    "the test set": ({"score"}, set()),
    "the data-bin": ({"prepare"}, set()),
}

CHANGES: Dict[str, Tuple[str, Callable[[World], None]]] = {
    # data
    "training text": ("the data", text_of("train")),
    "validation text": ("the data", text_of("val")),
    "text of the test set": ("the data", text_of("news")),
    "other text": ("the data", other_text),
    "direction": ("the data", turned),
    "subwords": ("the data", recipe(lambda it: it["segmentation"].update(size=31))),
    "tokeniser": ("the data", recipe(lambda it: it["tokenisers"].update(en="moses-lowercase"))),
    "limits": ("the data", recipe(lambda it: it.update(cleaning={"max-length": 5}))),
    "description": ("nothing", recipe(lambda it: it.update(description="another"))),
    "binarised training pairs": ("the training", exchanged("train")),
    "binarised validation pairs": ("the training", exchanged("valid")),
    "binarised test set": ("the translation", exchanged("test")),
    "reference": ("the test set", reference),
    # settings
    "learning rate": ("the training", sets("train.lr=0.004")),
    "dropout": ("the training", sets("train.dropout=0.2")),
    "mechanism": ("the training", sets("train.head-aggregation=simple")),
    "size": ("the training", sets("train.encoder-ffn-embed-dim=8")),
    "update": ("the training", sets("batch.tokens-per-update=96")),
    "architecture": ("the training", sets("arch=capsnmt_transformer")),
    "precision": ("the training", sets("precision=bf16")),
    "pass": ("nothing", sets("batch.max-tokens=64")),
    "log": ("nothing", sets("train.log-interval=3")),
    "loading": ("nothing", sets("train.num-workers=1")),
    "the beam": ("the translation", sets("generate.beam=3")),
    "the penalty": ("the translation", sets("generate.lenpen=0.5")),
    "detokenisation": ("the test set", sets("score.detokenize=none")),
    # folder
    "copy": ("nothing", lambda world: None),
    "no data-bin": ("the data-bin", lambda world: shutil.rmtree(world.prepared / "bin")),
    "times": ("nothing", other_times),
    "sources elsewhere": ("nothing", moved("sources/corpus", "--data")),
    "data elsewhere": ("nothing", moved("out/prepared", "--prepared")),
    "link": ("nothing", linked),
    "no translation": ("the translation", without("generate-news.txt")),
    "no score": ("the test set", without("scores-news.json")),
    "no summary": ("nothing", without("scores.json", "commands.sh")),
    # machine
    "threads": ("nothing", flags("--threads", "2")),
    "processes": ("nothing", flags("--cpu", "2")),
    "locale": ("nothing", surroundings(LC_ALL="C", OMP_NUM_THREADS="3")),
    "hashes": ("nothing", surroundings(PYTHONHASHSEED="7")),
}


def fault(what: str, status: int, printed: str) -> str:
    """Return in what a launch differs from the rule; empty if in nothing."""
    must, may = RULE[what]
    repeated = re.findall(r"(?m)^-- (\w+)(?!.*: complete)", printed)
    found = {REFUSED} if status == 2 else {*repeated}
    last = printed.splitlines()[-1]
    if status not in (0, 2) or (status and not re.match(r"error: .{,300}; give ", last)):
        return f"ended with status {status}: {printed}"
    if must <= found <= must | may:
        return ""
    return f"{what} differs, but {sorted(found) or 'nothing'} is what follows: {printed}"
