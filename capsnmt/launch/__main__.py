"""``capsnmt-run``: its flags; print, submit or execute the runs of a launch."""

import argparse
import functools
from pathlib import Path
from typing import List, Sequence, Tuple

from capsnmt import cli
from capsnmt.process import stoppable
from capsnmt.records import as_number
from capsnmt.sentences.senteval import TASKS

# no settings of a row
OF_RUNS = {
    *("--seeds", "--seed", "--slurm", "--jobs", "--dry-run", "--baseline", "--sweep", "--tasks"),
    *("--output", "--data", "--mirror"),
}


@functools.partial(cli.command, interrupted=cli.RESUMES)
def main(argv: List[str]) -> None:
    """Run ``capsnmt-run`` and return the exit status."""
    options = parse(argv)
    cli.require("fairseq")
    with cli.quiet(), stoppable():
        # Importing torch and fairseq takes seconds; --help and a bad flag do not need them.
        from capsnmt.launch.dispatch import dispatch

        dispatch(options)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the flags; `build_parser` describes each. ``command`` has all words."""
    for flag, value in zip(("capsnmt-run", *argv), argv):
        cli.check_line(value, flag)
    options = build_parser().parse_args(argv)
    options.command = ("capsnmt-run", *argv)
    if options.resume is not None and sum(word.startswith("--") for word in argv) > 1:
        raise cli.ConfigurationError(
            f"--resume {options.resume} takes no other flag: the run's config.json has all "
            f"settings; drop the others"
        )
    of_runs = {word.partition("=")[0] for word in argv} & OF_RUNS
    if options.write_config is not None and of_runs:
        raise cli.ConfigurationError(
            f"--write-config {options.write_config} runs nothing, and {min(of_runs)} is of runs; "
            f"drop one of them"
        )
    return options


def build_parser() -> cli.OneLineParser:
    """Return the launcher's parser; a bad flag raises a ``ConfigurationError`` of one line."""
    parser = cli.OneLineParser(
        prog="capsnmt-run",
        description="Prepare data, train, and evaluate rows of a table: translation, probing or "
        "logical inference. Completed steps are skipped and training resumes: to continue, run "
        "the same command again.",
        allow_abbrev=False,
    )
    what = parser.add_argument_group("what to run")
    add, add_rows = what.add_argument, what.add_mutually_exclusive_group().add_argument
    add_rows("--config", metavar="ROW", help="DATASET/ROW or a YAML file")
    several = "several rows of --dataset"
    add_rows("--rows", type=cli.comma_list(), metavar="ROW,ROW|all", help=several)
    dataset = "the data set of --config, --rows and --arch; alone: its row 'baseline'"
    add("--dataset", help=dataset)
    arch = "the architecture; alone: with the settings of the data set, or of --prepared data"
    add("--arch", help=arch)
    tasks = "probing tasks (default: all of the data)"
    add("--tasks", type=cli.comma_list(TASKS), metavar="TASK,TASK", help=tasks)
    lr = "e.g. train.lr=0.003"
    add("--set", action="append", default=[], dest="assignments", metavar="KEY=VALUE", help=lr)
    add("--max-update", type=cli.positive, metavar="N", help="updates of the training")
    add("--name", help="name of the row (default: of the configuration or --arch)")
    baseline = (
        "test the significance against this row; with --arch and --prepared data alone, an "
        "architecture, which is trained as well"
    )
    add("--baseline", metavar="ROW", help=baseline)
    sweep = (
        "a row per value of a flag, e.g. layer-capsules=1,8,64,512, and a figure of BLEU over the "
        "values; the row of --baseline is not changed"
    )
    add("--sweep", type=_sweep, metavar="FLAG=V,V,...", help=sweep)
    seeds = "a run per seed (default 1)"
    add("--seeds", "--seed", type=_seeds, default=[1], metavar="S,S,...", help=seeds)
    add("--write-config", type=Path, metavar="FILE", help="write the settings as YAML, to edit")
    add("--resume", type=Path, metavar="DIR", help="the run of DIR, by its config.json")
    where = parser.add_argument_group("where")
    add, source = where.add_argument, where.add_mutually_exclusive_group()
    add("--output", type=Path, metavar="DIR", help="default runs/DATASET")
    source.add_argument("--data", type=Path, metavar="DIR", help="the raw data, if you have it")
    cli.add_mirrors(source)
    prepared = "the prepared data (default OUTPUT/data)"
    add("--prepared", type=Path, metavar="DIR", help=prepared)
    device = parser.add_argument_group("device (default: one GPU if there is one, else the CPU)")
    add, add_kind = device.add_argument, device.add_mutually_exclusive_group().add_argument
    add_kind("--gpus", type=cli.positive, metavar="N", help="GPUs per node")
    cpu = "no GPU; N processes per node"
    add_kind("--cpu", nargs="?", const=1, type=cli.positive, metavar="N", help=cpu)
    nodes = "nodes of the job that --slurm submits, or of your SLURM allocation"
    add("--nodes", type=cli.positive, default=1, metavar="N", help=nodes)
    add("--threads", type=cli.positive, metavar="N", help="threads per process")
    add_place = device.add_mutually_exclusive_group().add_argument
    jobs = "runs side by side on this machine"
    add_place("--jobs", type=cli.positive, default=1, metavar="N", help=jobs)
    slurm = (
        "submit a job for each run; sbatch takes other options from variables such as "
        "SBATCH_TIMELIMIT, SBATCH_ACCOUNT and SBATCH_QOS"
    )
    any_partition = ""  # the default
    add_place("--slurm", nargs="?", const=any_partition, metavar="PARTITION", help=slurm)
    printed = "print the plan, as a script, and run nothing"
    parser.add_argument("--dry-run", action="store_true", help=printed)
    return parser


def _sweep(text: str) -> Tuple[str, List[str]]:
    """Return a flag of fairseq-train, without dashes, and its values, each a row."""
    flag, _, listed = text.partition("=")
    flag = flag.strip().lstrip("-").replace("_", "-")
    texts = [value.strip() for value in listed.split(",")]
    if not flag or not all(texts) or len(set(map(as_number, texts))) < len(texts):
        raise argparse.ArgumentTypeError(
            f"{cli.shown(text)} is not a flag with different values; give them, such as "
            f"layer-capsules=1,8,64,512"
        )
    return flag, texts


def _seeds(text: str) -> List[int]:
    seeds = [cli.seed(part) for part in text.split(",")]
    if len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"{text!r} has a seed twice; give different seeds")
    return seeds


if __name__ == "__main__":
    raise SystemExit(main())
