"""fairseq's flags beside ours: an update or two and a translation each, by its commands.

One table of trainings, one of generations. A row runs with every commit beside all mechanisms at
once, or beside the system that it names; at night beside every preset.

Not here, because no command of fairseq can do it, with its own ``transformer`` either: on a CPU
``--fp16`` in training and ``--ddp-backend pytorch_ddp``; ``--encoder-layers-to-keep`` in training
(pruning is a setting of generation); an adaptive softmax beside ``--share-all-embeddings``; and
``--num-shards``, which fairseq-generate does not read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

from tests.commands import (
    DISAGREEMENT,
    ON_CPU,
    SYSTEMS,
    command,
    hypotheses,
    in_two,
    succeed,
    training,
)
from tests.support import PLUGIN, half_precision_on_cpu

# a training of each flag on both hosts takes long: on the second at night
pytestmark = [pytest.mark.system, pytest.mark.one_host]

LAST = "checkpoint_last.pt"
TRAINED = object()  # stands for the checkpoint of the system's plain training
GATED = ("capsnmt_transformer_tiny", ["--head-aggregation", "gated"])
BESIDE: Dict[str, Tuple[str, Any]] = {**SYSTEMS, "gated heads": GATED}
# what reads or names single layers
LAYERED = (
    *("everything", "transformer_em_routing", "transformer_dlcl_routing", "transformer_dlcl"),
    "transformer_mlmha",
)


@dataclass(frozen=True)
class Row:
    """fairseq's flags beside one of our systems.

    Attributes:
        flags: of the command.
        system: the one that runs with every commit, if there is one.
        refused: the systems beside which the flags are refused in one line.
        sign: an expression that the output must have.
        criterion: whether the flags choose a criterion, so that the system's own goes.
        generates: whether a translation follows with every commit; at night it always does.
        processes: of a training.
        half: whether fp16 runs, which an older torch cannot on a CPU.
        source: the standard input: the command is then fairseq-interactive.
    """

    flags: Tuple[object, ...]
    system: str = "everything"
    refused: Tuple[str, ...] = ()
    sign: str = ""
    criterion: bool = False
    generates: bool = False
    processes: int = 1
    half: bool = False
    source: str = ""


ADAPTIVE = (
    *("--criterion", "adaptive_loss", "--adaptive-softmax-cutoff", "6,10"),
    *("--ddp-backend", "legacy_ddp"),
)
LOADED = r"Loaded checkpoint"
PRINTED = ("everything", "transformer_dlcl")
TRAININGS: Dict[str, Row] = {
    "layer drop": Row(
        ("--encoder-layerdrop", "0.5", "--decoder-layerdrop", "0.5", "--seed", "2"), generates=True
    ),
    "checkpointing with attention dropout": Row(
        ("--checkpoint-activations", "--attention-dropout", "0.3")
    ),
    "offloading": Row(("--checkpoint-activations", "--offload-activations")),
    "adaptive softmax": Row(ADAPTIVE, criterion=True, generates=True),
    "adaptive softmax in bf16": Row((*ADAPTIVE, "--autocast", "bf16"), criterion=True),
    "memory-efficient fp16": Row(
        ("--memory-efficient-fp16", "--fp16-init-scale", "8"),
        sign=r"loss_scale[ =]8",
        half=True,
        refused=("transformer_dlcl",),  # its gradients exceed the range of fp16
    ),
    "several batches an update": Row(("--update-freq", "2"), sign=r"bsz[ =]16"),
    "no_c10d": Row(
        ("--ddp-backend", "no_c10d"), system="", sign=r"distributed init \(rank 0", processes=2
    ),
    "product quantisation noise": Row(
        ("--quant-noise-pq", "0.2", "--quant-noise-pq-block-size", "4"),
        system="gated heads",
        refused=("everything", "transformer_em_routing", "transformer_mlmha"),
        generates=True,
    ),
    "embeddings": Row(
        ("--layernorm-embedding", "--encoder-learned-pos", "--decoder-learned-pos"), generates=True
    ),
    "epochs": Row(
        (
            *("--batch-size", "64", "--max-update", "3", "--keep-last-epochs", "1", "--patience"),
            *("5", "--store-ema", "--eval-bleu", "--eval-bleu-args"),
            '{"beam": 2, "max_len_b": 4}',
        ),
        sign=r"bleu[ =]\d",
    ),
    "resume": Row(("--restore-file", TRAINED, "--max-update", "3"), sign=LOADED),
    "without the optimizer": Row(
        (
            *("--restore-file", TRAINED, "--reset-optimizer", "--reset-lr-scheduler"),
            *("--reset-meters", "--reset-dataloader"),
        ),
        sign=LOADED,
    ),
    "finetune": Row(("--finetune-from-model", TRAINED), sign="loading pretrained model from"),
}
SHORT = ("--beam", "2", "--max-len-b", "6")
GENERATIONS: Dict[str, Row] = {
    "score the reference": Row(("--score-reference",)),
    "ensemble with alignments": Row(("--print-alignment", *SHORT), sign=r"(?m)^A-\d"),
    "prefix": Row(("--prefix-size", "1", *SHORT)),
    "diverse groups": Row(
        ("--diverse-beam-groups", "2", "--beam", "4", "--max-len-b", "6"), system=""
    ),
    "constraints": Row(
        ("--constraints", *SHORT), source="routing by\tvote\n", sign=r"(?m)^H-0\t.*\bvote\b"
    ),
    "fp16": Row(("--fp16", *SHORT), half=True),
    "pruned": Row(
        (
            *SHORT,
            "--model-overrides",
            "{'encoder_layers_to_keep': '0,2', 'decoder_layers_to_keep': '0,1'}",
        ),
        system="capsule_transformer",
        refused=LAYERED,
    ),
}


def cases(table: Dict[str, Row]) -> List[Any]:
    """Return each row with its systems: its own with every commit, the others at night."""
    return [
        pytest.param(name, system, marks=[] if system == row.system else [pytest.mark.nightly])
        for name, row in table.items()
        for system in sorted({*SYSTEMS, row.system} - {""})
    ]


def arguments_of(data: Path, save: Path, system: str, row: Row, updates: int = 2) -> List[object]:
    arch, flags = BESIDE[system]
    own = list(flags)
    if row.criterion and own[-len(DISAGREEMENT) :] == DISAGREEMENT:
        own = own[: -len(DISAGREEMENT)]
    arguments = training(data, save, arch, updates, *own, *row.flags)
    if row.criterion:  # fairseq loads no adaptive softmax beside shared embeddings
        arguments.remove("--share-all-embeddings")
    return arguments


@pytest.fixture(scope="module")
def trained(
    data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Tuple[Path, str]]:
    """Train each system plainly once; return its checkpoint and its log."""
    done: Dict[str, Tuple[Path, str]] = {}

    def checkpoint_of(system: str) -> Tuple[Path, str]:
        if system not in done:
            folder = tmp_path_factory.mktemp("plain")
            arguments = arguments_of(data, folder, system, Row(()))
            done[system] = folder / LAST, checked("fairseq_cli.train", *arguments)
        return done[system]

    return checkpoint_of


def checked(module: str, *arguments: object, stdin: str = "") -> str:
    """Run a command that must succeed; return all of its output."""
    ran = command(module, *arguments, stdin=stdin)
    if "has no bf16 instructions" in ran.stderr:
        pytest.skip("this CPU has no bf16 instructions")
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout + ran.stderr


def assert_refused(module: str, *arguments: object) -> None:
    ran = command(module, *arguments)
    assert ran.returncode != 0
    assert "Traceback" not in ran.stderr
    assert ran.stderr.splitlines()[-1].startswith("--")


@pytest.mark.parametrize(("name", "system"), cases(TRAININGS))
def test_a_flag_of_training(
    name: str,
    system: str,
    data: Path,
    trained: Callable[[str], Tuple[Path, str]],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    row, save = TRAININGS[name], tmp_path / "run"
    if row.half and not half_precision_on_cpu():
        pytest.skip("this torch has no fp16 on a CPU")
    arguments = arguments_of(data, save, system, row)
    if TRAINED in arguments:
        path, _ = trained(system)
        arguments = [path if argument is TRAINED else argument for argument in arguments]
    if system in row.refused:
        assert_refused("fairseq_cli.train", *arguments)
        return
    if row.processes == 2:
        log = in_two("fairseq_cli.train", arguments, save)
    else:
        log = checked("fairseq_cli.train", *arguments)
    assert re.search(row.sign, log)
    assert "nan" not in re.findall(r"\| loss[ =]? ?(\S+)", log)
    assert (save / LAST).is_file()
    if "--keep-last-epochs" in row.flags:
        epochs = [path.name for path in save.glob("checkpoint?.pt")]
        assert epochs == ["checkpoint3.pt"]
    if row.generates or request.node.get_closest_marker("nightly"):
        flags = ["--user-dir", PLUGIN, "--path", save / LAST, *SHORT, *ON_CPU]
        assert len(hypotheses(succeed("fairseq_cli.generate", data, *flags))) == 8


@pytest.mark.parametrize(("name", "system"), cases(GENERATIONS))
def test_a_flag_of_generation(
    name: str,
    system: str,
    data: Path,
    trained: Callable[[str], Tuple[Path, str]],
    tmp_path: Path,
) -> None:
    row = GENERATIONS[name]
    if row.half and not half_precision_on_cpu():
        pytest.skip("this torch has no fp16 on a CPU")
    path, _ = trained(system)
    flags = [data, "--user-dir", PLUGIN, *ON_CPU, *row.flags]
    if name == "ensemble with alignments":
        flags += ["--path", f"{path}:{path}", "--results-path", tmp_path]
    else:
        flags += ["--path", path]
    if system in row.refused:
        assert_refused("fairseq_cli.generate", *flags)
        return
    if row.source:
        languages = ["-s", "en", "-t", "de"]
        output = checked("fairseq_cli.interactive", *flags, *languages, stdin=row.source)
    else:
        output = checked("fairseq_cli.generate", *flags)
    if "--results-path" in flags:
        output = (tmp_path / "generate-test.txt").read_text("utf-8")
    assert re.search(row.sign, output)
    found = dict(re.findall(r"(?m)^H-(\d+)\t\S+\t(.*)$", output))
    target = dict(re.findall(r"(?m)^T-(\d+)\t(.*)$", output))
    assert len(found) == (1 if row.source else 8)
    if name == "score the reference":
        assert found == target
    if "--prefix-size" in flags:
        assert all(found[number].split()[0] == target[number].split()[0] for number in found)


@pytest.mark.nightly
@pytest.mark.parametrize("arch", ["transformer_tiny", "capsnmt_transformer_tiny"])
def test_diverse_groups_fail_in_several_batches(arch: str, data: Path, tmp_path: Path) -> None:
    """fairseq's own defect, with its own Transformer, too; mended there, these are a row."""
    checked("fairseq_cli.train", *training(data, tmp_path, arch, 1))
    flags = ["--user-dir", PLUGIN, "--path", tmp_path / LAST, "--batch-size", "2", *ON_CPU]
    groups = GENERATIONS["diverse groups"].flags
    ran = command("fairseq_cli.generate", data, *flags, *groups)
    assert "IndexError" in ran.stderr


@pytest.mark.parametrize(
    "system",
    [
        pytest.param(name, marks=[] if name in PRINTED else [pytest.mark.nightly])
        for name in SYSTEMS
    ],
)
def test_the_log_of_a_training_has_every_layer(
    system: str, trained: Callable[[str], Tuple[Path, str]]
) -> None:
    _, log = trained(system)
    assert len(re.findall(r"\(fc2\): Linear", log)) >= 2  # torch prints like layers once
