"""What ``capsnmt-run --dry-run`` prints: the commands of a launch."""

import re
import subprocess
from functools import partial
from pathlib import Path

from tests.frozen.kit import World, frozen
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


# name -> what the golden promises: the commands of such a launch; its flags
PLANS = {
    "cpu": ("on a CPU with two threads", "--config multi30k/em_routing --cpu --threads 2"),
    "two_processes": ("of two processes on a CPU", "--dataset multi30k --cpu 2 --threads 1"),
    "gpu": ("on one GPU", "--dataset multi30k --gpus 1"),
    "four_gpus": (
        "on four GPUs with its own corpus, against a baseline",
        "--dataset multi30k --config em_routing --gpus 4 --seed 7 --baseline baseline "
        "--data corpus --output out --set train.lr=0.003 --max-update 4000",
    ),
    "eight_gpus": (
        "on eight GPUs with a size of the update that they do not divide",
        "--dataset multi30k --gpus 8 --set batch.tokens-per-update=25000",
    ),
    "two_nodes": (
        "of two seeds on two nodes of SLURM",
        "--dataset multi30k --slurm gpu --nodes 2 --gpus 8 --seeds 1,2 --prepared data",
    ),
    "sweep": (
        "of a sweep over two rows and two seeds, tested against the baseline",
        "--dataset wmt14_en_de --rows dou2019_em_routing,baseline --baseline baseline "
        "--sweep layer-capsules=1,8 --seeds 1,2 --cpu",
    ),
    "from_baseline": (
        "of a row that starts from another row, on SLURM",
        "--config multi30k/dlcl_routing_from_baseline --slurm gpu --gpus 1",
    ),
    "sweep_from_baseline": (
        "of a sweep whose values all start from one run",
        "--config wmt14_en_de/dou2019_em_routing_from_baseline --cpu --output runs "
        "--sweep layer-capsules=1,8",
    ),
    "corpora": (
        "of data that are prepared from some corpora, of archives that are here",
        "--dataset wmt17_zh_en --cpu --set data.corpora=news-commentary-v12 --data d",
    ),
    "mirrors": (
        "of data that are fetched from mirrors",
        "--dataset multi30k --cpu --mirror http://lab/a --mirror http://lab/b",
    ),
    "nodes_of_gpus": (
        "of three nodes that each show two GPUs, of which fairseq takes all",
        "--config multi30k/baseline --nodes 3 --gpus 2",
    ),
    "nodes_of_cpus": ("of three nodes without GPUs", "--config multi30k/baseline --nodes 3 --cpu"),
    # by default the precision is that of the machine
    "own_data": (
        "of an architecture and its baseline on data of one's own",
        "--prepared mine --arch transformer_em_routing_tiny --baseline capsnmt_transformer_tiny "
        "--cpu --set precision=fp32",
    ),
    "own_data_named": (
        "of an architecture on data of one's own, with a name",
        "--prepared mine --arch transformer_em_routing_tiny --name first --cpu "
        "--set precision=fp32",
    ),
    "own_data_sweep": (
        "of a sweep on data of one's own, which leaves the baseline as it is",
        "--prepared mine --arch transformer_dlcl_routing_tiny --baseline capsnmt_transformer_tiny "
        "--cpu --set precision=fp32 --sweep layer-capsules=8,16",
    ),
    "other_direction": (
        "of the other direction of a recipe, with tokenised BLEU",
        "--config iwslt14_en_de/em_routing --gpus 1",
    ),
    "probing": (
        "of all rows of probing with two tasks, on SLURM",
        "--dataset probing_li2019 --rows all --tasks WC,BShift --data d --slurm gpu --gpus 1",
    ),
}


def script_of(flags: str, world: World) -> str:
    text = plan(world, flags)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    return text


for _name, (_launch, _flags) in PLANS.items():
    _promise = f"a launch {_launch} runs these commands"
    frozen(_promise, name=f"plan_{_name}")(partial(script_of, _flags))


# scripts that plan, with flags
SCRIPTS = (
    "demo.sh",
    *(f"demo.sh --pair {pair} --seed 3" for pair in ("es-en", "en-vi", "zh-en")),
    "demo.sh --quick --max-update 12",
    "run_evidence.sh --jobs 2",
    "run_evidence.sh --jobs 2 --recipe published --seeds 4,5 --threads 2",
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
