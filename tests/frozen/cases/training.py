"""fairseq's commands with the plugin: train, resume, validate, generate, average."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, Iterable, List

import pytest
import torch

from tests.commands import COMPOSED, ON_CPU, TINY, write_corpus
from tests.frozen.kit import World, frozen, load, rounded, short, state_of, tree
from tests.support import PLUGIN

LAST = "checkpoint_last.pt"
EVERYTHING = ["--arch", "capsnmt_transformer_tiny", *TINY, *COMPOSED]
OPTIMISED = ["--lr", "0.005", "--dropout", "0", "--share-all-embeddings", "--log-format", "json"]
# The hosts shuffle the training sentences in different ways: those of the test set have one order.
ORDERED = ["--train-subset", "test", "--curriculum", "99", "--save-interval-updates", "1"]
MEASURED = {"wps", "ups", "train_wall", "wall", "gb_free", "loss_scale", "valid_wps"}


def corpus(world: World) -> Path:
    """The data-bin of the reversal corpus: 48, 8 and 8 sentences."""
    return world.once("corpus", write_corpus) / "bin"


def started(world: World, name: str, data: Path, *flags: object) -> Path:
    """A checkpoint of a model with the weights of the formula; the name is that of a folder."""

    def make(folder: Path) -> None:
        given = [*flags, "--optimizer", "adam", "--batch-size", "64", *ON_CPU]
        given += ["--max-update", "1", "--disable-validation", "--save-dir", folder]
        world.run("fairseq-train", data, "--user-dir", PLUGIN, *given)
        state = load(folder / LAST)
        state["model"] = state_of(state["model"])
        torch.save(state, folder / "start.pt")
        (folder / LAST).unlink()

    return world.once(f"start-{name}", make) / "start.pt"


def start(world: World) -> Path:
    """All mechanisms at once."""
    return started(world, "everything", corpus(world), *EVERYTHING, *OPTIMISED)


def lines_of(log: str) -> Iterable[str]:
    """What fairseq logged of each update and each validation, without what was measured."""
    for line in log.splitlines():
        found = re.search(r" \| (train_inner|train|valid) \| (\{.*\})$", line)
        if found:
            terms: Dict[str, Any] = json.loads(found[2])
            named = {key[len("train_") :] if key.startswith("train_") else key: value
                     for key, value in terms.items() if key not in MEASURED}  # fmt: skip
            kept = [f"{k} {v}" for k, v in sorted(named.items()) if k not in MEASURED]
            yield f"{found[1]}: {', '.join(kept)}"


def trained(world: World) -> Path:
    """Six updates of all mechanisms at once from ``start.pt``."""

    def make(folder: Path) -> None:
        flags = ["--init-from", start(world), "--optimizer", "fused_adam", *OPTIMISED, *ON_CPU]
        flags += ["--batch-size", "4", "--max-update", "6", "--log-interval", "1"]
        flags += ["--required-batch-size-multiple", "1", "--keep-best-checkpoints", "2", *ORDERED]
        log = world.log("fairseq-train", corpus(world), "--user-dir", PLUGIN, *EVERYTHING, *flags,
                        "--save-dir", folder / "run")  # fmt: skip
        (folder / "lines").write_text("\n".join(lines_of(log)), "utf-8")

    return world.once("trained", make)


@frozen("a training logs these losses, terms and norms, and leaves these files", floats=True)
def train(world: World) -> str:
    folder = trained(world)
    return "\n".join([(folder / "lines").read_text("utf-8"), *tree(folder / "run")])


@frozen(
    "a checkpoint has these settings, weights and counters (the host's own settings are those "
    "of the main host)"
)
def checkpoint(world: World) -> str:
    if sys.version_info < (3, 11):
        pytest.skip("the checkpoint was recorded on the main host; this one has other settings")
    state = load(trained(world) / "run" / LAST)
    settings = state["cfg"]["model"]
    settings = dict(settings if isinstance(settings, dict) else vars(settings))
    del settings["device_id"]  # that of a launcher that the tests may run under
    lines = [f"keys: {' '.join(sorted(state))}", f"extra_state: {sorted(state['extra_state'])}"]
    lines += [f"cfg.model.{key}: {value}" for key, value in sorted(settings.items())]
    lines += [f"model {name}: {list(tensor.shape)}" for name, tensor in state["model"].items()]
    optimizer = state["last_optimizer_state"]
    lines.append(f"optimizer: {sorted(optimizer)}, {len(optimizer['state'])} states of "
                 f"{sorted(next(iter(optimizer['state'].values())))}")  # fmt: skip
    return world.normalise("\n".join(lines))


@frozen("a training that was stopped and resumed is the training that was not", floats=True)
def resume(world: World) -> str:
    model = ["--arch", "transformer_em_routing_tiny", *TINY, *OPTIMISED]
    flags = ["--criterion", "chunked_label_smoothed_cross_entropy", "--label-smoothing", "0.1"]
    flags += ["--update-freq", "2", "--clip-norm", "0.5", "--report-accuracy", *ON_CPU]
    flags += ["--batch-size", "2", "--max-update", "4", "--log-interval", "1", *ORDERED]
    flags += ["--optimizer", "adam", "--required-batch-size-multiple", "1"]

    def make(folder: Path) -> None:
        flags.extend(["--init-from", str(started(world, "em", corpus(world), *model))])
        for place in (folder / "through", folder / "again"):
            log = world.log("fairseq-train", corpus(world), "--user-dir", PLUGIN, *model, *flags,
                            "--save-dir", place)  # fmt: skip
            place.with_suffix(".log").write_text("\n".join(lines_of(log)), "utf-8")
            if place.name == "through":
                (folder / "again").mkdir()
                shutil.copy(place / "checkpoint_1_1.pt", folder / "again" / LAST)

    folder = world.once("resumed", make)
    through, again = (
        (folder / f"{name}.log").read_text("utf-8").splitlines() for name in ("through", "again")
    )
    models = [load(folder / name / LAST)["model"] for name in ("through", "again")]
    same = all(torch.equal(tensor, models[1][name]) for name, tensor in models[0].items()
               if not name.endswith("_float_tensor"))  # fmt: skip
    lines = [f"resumed from update 1: the last lines are equal {through[-5:] == again[-5:]}"]
    return "\n".join([*through, *lines, f"all weights are equal {same}", *tree(folder / "through")])


@frozen("a checkpoint is validated with these losses and terms", floats=True)
def validate(world: World) -> str:
    flags = ["--user-dir", PLUGIN, "--path", start(world), "--task", "translation", *ON_CPU]
    log = world.log("fairseq-validate", corpus(world), *flags, "--batch-size", "8",
                    "--log-format", "json")  # fmt: skip
    return "\n".join(lines_of(log))


def generated(world: World, *flags: object) -> List[str]:
    given = ["--user-dir", PLUGIN, "--path", start(world), *ON_CPU, "--beam", "3", *flags]
    output = world.run("fairseq-generate", corpus(world), *given, "--max-len-b", "8")
    return [rounded(line) for line in output.splitlines() if re.match(r"[STHDP]-\d", line)]


@frozen("a checkpoint has these translations with these scores", floats=True)
def generate(world: World) -> str:
    lines = generated(world, "--nbest", "2")
    return "\n".join(sorted(lines, key=lambda line: int(re.findall(r"\d+", line)[0])))


@frozen(
    "references are scored, a source is masked, and precision and backend are chosen, at "
    "generation",
    floats=True,
)
def generate_otherwise(world: World) -> str:
    lines = []
    for flags in (
        ["--score-reference"],
        ["--model-overrides", "{'mlmha_mask_source': 2}"],
        ["--model-overrides", "{'autocast': 'none', 'routing_backend': 'eager'}"],
    ):
        found = [line for line in generated(world, *flags) if line.startswith("H-")]
        lines += [f"== {' '.join(flags)}", *sorted(found)]
    return "\n".join(lines)


@frozen("an average of checkpoints is the mean of these", floats=True)
def average(world: World) -> str:
    run, lines = trained(world) / "run", []
    for flags in (["--last-updates", "2"], ["--last-epochs", "2"], ["--best", "2"]):
        output = world.folder / "mean.pt"
        lines.append(world.run("capsnmt-average", run, *flags, "--output", output).rstrip())
        state = load(output)
        # one host writes its marker of device and dtype as well
        weights = [v for name, v in state["model"].items() if not name.endswith("_float_tensor")]
        norms = [float(tensor.double().norm()) for tensor in weights]
        lines.append(f"  {' '.join(sorted(state))}: {len(norms)} weights of norm "
                     f"{short(sum(norms), 5)}")  # fmt: skip
    return "\n".join(lines)
