"""What ``capsnmt-run --dry-run`` prints: the commands of a launch."""

from __future__ import annotations

import re
from pathlib import Path

from tests.frozen.interpreter import ROOT
from tests.frozen.kit import World, frozen

# configurations that need a folder of data before they can be planned
NEED_DATA = ("probing_multi30k",)


def plan(world: World, arguments: str) -> str:
    """The plan that is printed in a folder where ``corpus`` and ``d`` are."""

    def make(folder: Path) -> None:
        for name in ("corpus", "d"):
            (folder / name).mkdir()

    folder = world.once("plans", make)
    done = world.call("capsnmt-run", *arguments.split(), "--dry-run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace("HERE/plans", "HERE")


@frozen("a sweep over two seeds of two rows, tested against the baseline, runs these commands")
def plan_sweep(world: World) -> str:
    return plan(
        world,
        "--dataset wmt14_en_de --rows baseline,dou2019_em_routing --baseline baseline "
        "--sweep layer-capsules=1,8 --seeds 1,2 --cpu",
    )


@frozen("a row that starts from another row, on SLURM, runs these commands")
def plan_from_baseline(world: World) -> str:
    return plan(world, "--config multi30k/dlcl_routing_from_baseline --slurm gpu --gpus 1")


@frozen("all rows of probing, two tasks, on SLURM, run these commands")
def plan_probing(world: World) -> str:
    return plan(
        world,
        "--dataset probing_li2019 --rows all --tasks WC,BShift --data d --slurm gpu --gpus 1",
    )


@frozen("every configuration trains with these flags")
def configs(world: World) -> str:
    lines = []
    for dataset in sorted(path.name for path in (ROOT / "configs").iterdir()):
        if dataset == "hydra":  # of fairseq-hydra-train
            continue
        data = " --data d" if dataset in NEED_DATA else ""
        printed = plan(world, f"--dataset {dataset} --rows all --cpu{data}")
        trainings = [line for line in printed.splitlines() if " --save-dir " in line]
        flags = {}
        for line in trainings:
            row = re.search(rf"runs/{dataset}/(\S+?)/seed", line)
            assert row is not None, line
            words = line.partition(" --user-dir ")[2].replace(row[1], "ROW")
            flags[row[1]] = sorted(re.split(r" (?=--)", words)[1:])
        common = set.intersection(*map(set, flags.values()))
        lines += [f"== {dataset}, all rows", *(f"  {flag}" for flag in sorted(common))]
        for name, own in flags.items():
            lines.append(" ".join([f"{name}:", *(flag for flag in own if flag not in common)]))
    return "\n".join(lines)
