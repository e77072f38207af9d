"""Real launches on small data, and what is made of their runs."""

import html as html_library
import json
import re
from pathlib import Path
from typing import Any, Dict, List

import torch
import yaml

from tests.commands import ON_CPU, TINY
from tests.frozen.cases import training
from tests.frozen.cases.preparation import prepared
from tests.frozen.kit import World, frozen, load, outline, rounded, tree
from tests.html_pages import without_images
from tests.interpreter import ROOT
from tests.small_row import SMALL
from tests.support import PLUGIN

LANGUAGES = ["--source-lang", "en", "--target-lang", "vi"]
# in the records: what the machine, and not the launch, decides
OF_THE_MACHINE = {"versions", "device-name", "device_name", "peak_memory_gib", "key"}


def data(world: World) -> Path:
    return prepared(world, "iwslt15_en_vi") / "data"


def start(world: World) -> Path:
    """A checkpoint of the row's model with the weights of the formula."""
    row = yaml.safe_load(SMALL)
    flags: List[object] = ["--arch", row["arch"], *LANGUAGES]
    for key in ("max-update", "save-interval-updates", "num-workers", "optimizer"):
        del row["train"][key]
    for key, value in row["train"].items():
        flags += [f"--{key}"] if value is True else [f"--{key}", value]
    return training.started(world, "row", data(world) / "bin", *flags)


def row(world: World) -> Dict[str, Any]:
    """The row that is launched: four updates from ``start.pt``, two checkpoints averaged."""
    settings: Dict[str, Any] = yaml.safe_load(SMALL)
    settings["data"].update({"target-lang": "vi", "test-sets": {"test": "test"}})
    settings["train"].update({"init-from": str(start(world)), "save-interval-updates": 1})
    settings["train"].update({"keep-interval-updates": 2, "log-interval": 1})
    settings["train"].update({"train-subset": "test", "curriculum": 99})
    settings["batch"] = {"tokens-per-update": 64, "max-tokens": 64}
    settings.update(average={"last-updates": 2}, generate={"beam": 3, "max-len-b": 8})
    return settings


def launched(world: World) -> Path:
    """A launch, the same again, more updates, and other settings; ``said`` has their output."""

    def make(folder: Path) -> None:
        (folder / "tiny.yaml").write_text(yaml.safe_dump(row(world)), "utf-8")
        given = ["--config", folder / "tiny.yaml", "--prepared", data(world), "--cpu"]
        given += ["--threads", "1", "--output", folder / "runs"]
        said = []
        for more in (
            [],
            [],
            ["--max-update", "8"],
            ["--max-update", "8", "--set", "train.lr=0.01"],
        ):
            done = world.start("capsnmt-run", *given, *more)
            said += [f"== {' '.join(more) or 'the launch'}: status {done.returncode}"]
            said += [done.stdout, done.stderr]
        (folder / "said").write_text("\n".join(said), "utf-8")

    return world.once("launched", make)


def without_machine(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: "..." if k in OF_THE_MACHINE else without_machine(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without_machine(each) for each in value]
    return value


def records(world: World, folder: Path) -> List[str]:
    """All JSON below the folder, except that of checkpoints."""
    lines = []
    for name in tree(folder):
        if name.endswith(".json") and not Path(name).name.startswith("."):
            value = without_machine(json.loads((folder / name).read_text("utf-8")))
            text = world.normalise("\n".join(outline(value)))
            lines += [f"== {name}", re.sub(r"\b[0-9a-f]{64}\b", "HASH", text)]
    return lines


@frozen("a launch says this, leaves these files, and is never repeated or mixed", floats=True)
def launch(world: World) -> str:
    folder = launched(world)
    return "\n".join([
        re.sub(r"[\d.]+ words/s.*", "SPEED", (folder / "said").read_text("utf-8")),
        "== files",
        *tree(folder / "runs"),
    ])  # fmt: skip


@frozen("a run has these records", floats=True)
def launch_records(world: World) -> str:
    return "\n".join(records(world, launched(world) / "runs"))


@frozen("a run translates raw text line by line, the same from a shell, Python and torch.hub", True)
def translate(world: World) -> str:
    from capsnmt.models import CapsnmtTransformer

    run = launched(world) / "runs/tiny/seed-1"
    text = (data(world) / "raw/test.en").read_text("utf-8")
    printed = world.run("capsnmt-translate", run, "--nbest", "2", "--scores", stdin=text)
    best = world.run("capsnmt-translate", run, stdin=text).splitlines()
    lines = text.splitlines()
    loaded = CapsnmtTransformer.from_pretrained(run).translate(lines)
    hub = torch.hub.load(str(ROOT), "capsnmt", source="local", run=str(run)).translate(lines)
    same = f"from_pretrained the same {loaded == best}, torch.hub the same {hub == best}"
    return "\n".join([printed.rstrip(), "== best", *best, same])


@frozen("fairseq-interactive tokenises, translates and detokenises raw text by itself", True)
def interactive(world: World) -> str:
    text = (data(world) / "raw/test.en").read_text("utf-8")
    printed = world.run(
        *("fairseq-interactive", data(world) / "bin", "--user-dir", PLUGIN, "-s", "en", "-t", "vi"),
        *("--path", start(world), "--beam", "3", "--max-len-b", "8", "--tokenizer", "capsnmt"),
        *ON_CPU,
        *("--bpe", "subword_nmt", "--bpe-codes", data(world) / "bpe/codes"),
        stdin=text,
    )
    return rounded("\n".join(line for line in printed.splitlines() if re.match(r"[SDHP]-", line)))


@frozen("the report of a folder of runs says this, in Markdown and in HTML", floats=True)
def report(world: World) -> str:
    page = world.folder / "report"
    said = world.run("capsnmt-report", launched(world) / "runs", "--output", page, "--samples", "2")
    html = (page / "report.html").read_text("utf-8")
    html = re.sub(r"(?s)<(style|script|svg)\b.*?</\1>", "", html)
    html = re.sub(r"(</t[hd]>)\n(?=<t[hd])", r"\1 ", html)  # a line for each line of a table
    words = re.sub(r"\s*\n\s*", "\n", re.sub(r"[ \t]*<[^>]+>[ \t]*", " ", html)).strip()
    training = json.loads((launched(world) / "runs/tiny/seed-1/training.json").read_text("utf-8"))
    machine = training["device-name"]
    shown = (machine, re.sub(r"([\\`*_\[\]<>|])", r"\\\1", machine), html_library.escape(machine))
    lines = [said, *tree(page)]
    for name, text in (("report.md", (page / "report.md").read_text("utf-8")), ("HTML", words)):
        text = text.rpartition("Versions and machine")[0]  # what follows is not ours
        text = re.sub(r"\b\d+:\d\d:\d\d\b", "TIME", text)
        for form in shown:
            text = text.replace(form, "MACHINE")
        text = re.sub(r"(?<= )[\d,]+/s\b", "SPEED", text)
        lines += [f"== text of {name}", re.sub(r"(TIME[ |]+)\d\.\d\d", r"\1MEMORY", text)]
    return world.normalise("\n".join(lines))


@frozen("every analysis of a model gives these numbers and these figures", floats=True)
def analyse(world: World) -> str:
    page = world.folder / "analysis"
    with without_images(laid_out=True):
        done = world.call(
            *("capsnmt-analyse", f"it={training.start(world)}", "--data", training.corpus(world)),
            *("--output", page, "--sentences", "8", "--seed", "1", "--device", "cpu"),
        )
    lines = [done.stdout, *tree(page)]
    for path in sorted(page.glob("*.csv")):
        header, *rows = path.read_text("utf-8").splitlines()
        lines += [f"== {path.name}: {len(rows)} rows", header]
        for row in rows[:: 1 + len(rows) // 200]:  # some of them, where there are thousands
            if path.name == "head_tsne.csv":  # t-SNE draws differently on other machines
                row = ",".join([*row.split(",")[:6], "x", "y", row.split(",")[8]])
            lines.append(re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda x: f"{float(x[0]):.4f}", row))
    return "\n".join(lines)


@frozen("a model without switches becomes fairseq's own transformer, with the same scores", True)
def export(world: World) -> str:
    flags = ["--arch", "capsnmt_transformer_tiny", *TINY, "--share-all-embeddings"]
    flags += ["--encoder-normalize-before", "--decoder-normalize-before"]
    plain = training.started(world, "plain", training.corpus(world), *flags)
    stock = world.folder / "stock.pt"
    lines = [world.run("capsnmt-export", plain, "--output", stock)]
    state = load(stock)
    lines.append(f"keys: {' '.join(sorted(state))}; of cfg: {' '.join(sorted(state['cfg']))}")
    lines += [f"{name}: {list(tensor.shape)}" for name, tensor in state["model"].items()
              if not name.endswith("_float_tensor")]  # fmt: skip
    # fairseq cannot load its own checkpoints with a newer torch, unless torch is told to
    without = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    for path, given, more in ((plain, ["--user-dir", PLUGIN], {}), (stock, [], without)):
        printed = world.run("fairseq-generate", training.corpus(world), "--path", path, *given,
                            *ON_CPU, "--batch-size", "1", "--beam", "3", "--max-len-b", "8",
                            "--required-batch-size-multiple", "1", **more)  # fmt: skip
        found = sorted(line for line in printed.splitlines() if line.startswith("H-"))
        lines += [f"== translations of {path.name}", *map(rounded, found)]
    return "\n".join(lines)
