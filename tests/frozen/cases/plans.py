"""What ``capsnmt-run --dry-run`` prints: the commands of a launch."""

import re
import subprocess
from functools import partial
from pathlib import Path

from tests.frozen.kit import DATA, World, frozen
from tests.interpreter import ROOT

# configurations that need a folder of data before they can be planned
NEED_DATA = ("probing_multi30k",)


def plan(world: World, arguments: str) -> str:
    """The plan that is printed in a folder where ``corpus``, ``d`` and the data ``mine`` are."""

    def make(folder: Path) -> None:
        for name in ("corpus", "d", "mine/bin", "mine/raw"):
            (folder / name).mkdir(parents=True)
        manifest = '{"pair": "en-de", "pairs": 48, "subsets": {"valid": "valid", "news": "test"}}'
        (folder / "mine" / "manifest.json").write_text(manifest, "utf-8")

    folder = world.once("plans", make)
    done = world.call("capsnmt-run", *arguments.split(), "--dry-run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace("HERE/plans", "HERE")


def script_of(flags: str, world: World) -> str:
    text = plan(world, flags)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    return text


# a line each: the name of the golden, what it promises of a launch, and the flags of the launch;
# the precision would be that of the machine on data of one's own
for _line in (DATA / "plans.txt").read_text("utf-8").splitlines():
    _name, _launch, _flags = _line.split(": ")
    _promise = f"a launch {_launch} runs these commands"
    frozen(_promise, name=f"plan_{_name}")(partial(script_of, _flags))


# scripts that plan, with flags
SCRIPTS = (
    "demo.sh",
    *(f"demo.sh --pair {pair} --seed 03" for pair in ("es-en", "en-vi", "zh-en")),
    "demo.sh --quick --max-update 12",
    "run_evidence.sh --jobs 2",
    "run_evidence.sh --jobs 2 --recipe published --seeds 04,5 --threads 2",
    "run_evidence.sh --jobs 2 --dataset logical_inference --max-update 2000",
    "run_evidence.sh --gpu",
    "run_evidence.sh --gpu --dataset logical_inference",
    "run_composition.sh --jobs 2 --seeds 1,2 --max-update 20",
    "benchmark_cpu.sh DATA/bin RUN/averaged.pt",
)


@frozen("the scripts run these commands")
def plan_scripts(world: World) -> str:
    lines = []
    for line in SCRIPTS:
        done = world.script(*line.split(), "--dry-run")
        assert done.returncode == 0, done.stderr
        lines += [f"== {line}", *(each.rstrip() for each in done.stdout.splitlines())]
    return "\n".join(lines)


@frozen("every configuration trains with these flags")
def configs(world: World) -> str:
    lines = []
    for dataset in sorted(path.name for path in (ROOT / "configs").iterdir() if path.is_dir()):
        if dataset == "hydra":  # of fairseq-hydra-train
            continue
        data = " --data d" if dataset in NEED_DATA else ""
        printed = plan(world, f"--dataset {dataset} --rows all --gpus 1{data}")
        trainings = [line for line in printed.splitlines() if " --save-dir " in line]
        flags = {}
        for line in trainings:
            row = re.search(rf"--save-dir runs/{dataset}/(\S+?)/seed", line)
            assert row is not None, line
            words = line.partition(" --user-dir ")[2].replace(f"/{row[1]}/", "/ROW/")
            flags[row[1]] = sorted(re.split(r" (?=--)", words)[1:])
        common = set.intersection(*map(set, flags.values()))
        lines += [f"== {dataset}, all rows", *(f"  {flag}" for flag in sorted(common))]
        for name, own in flags.items():
            lines.append(" ".join([f"{name}:", *(flag for flag in own if flag not in common)]))
    return "\n".join(lines)
