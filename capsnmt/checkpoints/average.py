"""``capsnmt-average``: one checkpoint whose parameters are the mean of several checkpoints.

It averages checkpoints that fairseq-train wrote during one run: the last by update, the last by
epoch, or the best by the validation metric. Vaswani et al. (2017, section 6.1) report their
Transformers with the last checkpoints averaged.

fairseq's own script (``scripts/average_checkpoints.py``) is not part of its wheels, and cannot load
checkpoints on torch >= 2.6.
"""

import argparse
import os
import re
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from capsnmt.cli import ConfigurationError, OneLineParser, check_output_file, command, positive, say

# The names that fairseq.checkpoint_utils.save_checkpoint gives; shards of a model match none.
# **D**: as in fairseq's script, "by update" means the files named by update. If an epoch ends at a
# multiple of --save-interval-updates, fairseq names that checkpoint by epoch only.
NAMES = {
    "last-updates": (r"checkpoint_\d+_(\d+)\.pt", "N", "the last N checkpoint_EPOCH_UPDATE.pt"),
    "last-epochs": (r"checkpoint(\d+)\.pt", "N", "the last N checkpointEPOCH.pt"),
    "best": (
        r"checkpoint\.best_(.+)_(-?\d+\.\d+)\.pt",
        "K",
        "the best K checkpoint.best_METRIC_VALUE.pt",
    ),
}
RATHER = "average earlier checkpoints, or train again with a lower learning rate"
# Settings that tell one training from another: by some, the same tensors compute something else.
TRAINING = re.compile(
    r"arch|seed|(source|target)_lang|(head|layer|capsule)_.+|mlmha(_sources)?|surface_fusion|"
    r"routing_(iterations|coefficients)"
)


def choose(folder: Path, kind: str, count: int) -> List[Path]:
    """Return the last or best checkpoints in a ``--save-dir``, the last or best one last.

    ``kind`` is a key of ``NAMES``.
    """
    matches = ((re.fullmatch(NAMES[kind][0], path.name), path) for path in folder.iterdir())
    found = [(match.groups(), path) for match, path in matches if match]
    ranked = sorted((float(numbers[-1]), path) for numbers, path in found)
    if kind == "best" and ranked:
        metrics = sorted({metric for (metric, _), _ in found})
        if len(metrics) > 1:
            raise ConfigurationError(
                f"{folder} has the best by {' and by '.join(metrics)}; name the checkpoints of one "
                f"in place of --best, as {folder}/checkpoint.best_{metrics[0]}_*.pt"
            )
        from capsnmt.checkpoints.load import load_trained, settings_of

        if not settings_of(load_trained(ranked[0][1]))["maximize_best_checkpoint_metric"]:
            ranked.reverse()
    if len(ranked) < count:
        raise ConfigurationError(
            f"{folder} has {len(ranked)} checkpoints for --{kind} {count}: ask for fewer, or keep "
            "more when training (--keep-interval-updates, --keep-last-epochs, "
            "--keep-best-checkpoints)"
        )
    if kind != "best":
        _warn_of_leftovers(folder / "checkpoint_last.pt", kind, *ranked[-1])
    return [path for _, path in ranked[-count:]]


def _warn_of_leftovers(last: Path, kind: str, number: float, newest: Path) -> None:
    """Say if the newest checkpoint, by its number, is later than the last one of the training."""
    if not last.is_file():
        return
    from capsnmt.checkpoints.load import load_checkpoint

    state, unit = load_checkpoint(last), kind.partition("-")[2]
    place = (state.get("extra_state") or {}).get("train_iterator") or {}
    history = (state.get("optimizer_history") or [{}])[-1]
    end = place.get("epoch", number) if unit == "epochs" else history.get("num_updates", number)
    if number > end:
        say(
            f"warning: {newest} is later than {last.name}, which is of {end:,} {unit}, as of an "
            f"earlier training in this folder; name the checkpoints of one"
        )


def average_checkpoints(paths: Sequence[Path]) -> Dict[str, Any]:
    """Return the last checkpoint with its parameters replaced by ``(1/n) sum_i theta_i``.

    The sum is computed in fp64, and the mean is rounded once, to the dtype of the last checkpoint.
    Integers and other entries are those of the last checkpoint. One checkpoint and the sum are in
    memory at a time.

    **D**: the optimizer's state and the moving average of the weights belong to one checkpoint, so
    the result does not have them. All other entries of the last checkpoint are kept.
    """
    import torch  # here, so that --help and a mistyped flag do not wait for it

    from capsnmt.checkpoints import load

    sums: Dict[str, torch.Tensor] = {}
    shapes: Dict[str, Tuple[int, ...]] = {}
    state: Dict[str, Any] = {}
    trainings: Dict[str, Path] = {}
    known: Dict[Tuple[float, ...], Path] = {}  # by the sums of the weights
    for path in paths:
        state = {}  # frees the previous checkpoint before the next is loaded
        state = load.load_checkpoint(path)
        found = {key: tuple(getattr(each, "shape", ())) for key, each in state["model"].items()}
        shapes = shapes or found
        for key in sorted(shapes.keys() | found.keys()):
            if shapes.get(key) != found.get(key):
                raise ConfigurationError(
                    f"{path}: {_in_words(key, found)}, but {paths[0]}: {_in_words(key, shapes)}; "
                    "give checkpoints of one model"
                )
        words = load.in_group((state.get("task_state") or {}).get(load.WORDS))
        named = load.settings_of(state).items()
        telling = sorted(x for x in named if TRAINING.fullmatch(x[0]) or x[0] in load.COMPUTING)
        settings = str([*telling, *map(words.get, load.SIDES)])
        trainings.setdefault(settings, path)
        load.check_finite(state["model"], path, RATHER)
        own: List[float] = []
        for key, value in state["model"].items():
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                continue
            if key not in sums:
                sums[key] = torch.zeros(value.shape, dtype=torch.float64)
            sums[key] += value
            own.append(value.sum(dtype=torch.float64).item())
        same = known.setdefault(tuple(own), path)
        if same is not path:
            say(f"warning: {path} has the weights of {same}, which count twice; name each once")
    if len(trainings) > 1:
        say(
            f"warning: {' and '.join(map(str, trainings.values()))} are of different trainings (by "
            f"system, languages, seed, dictionaries); the mean is a model only if both began as one"
        )
    for key, total in sums.items():
        # in place, so that tied parameters stay one tensor in the file
        state["model"][key].copy_(total / len(paths))
    state.pop("last_optimizer_state", None)
    extra_state = dict(state.get("extra_state") or {})
    for of_one_checkpoint in ("ema", "ema_fp32_params"):
        extra_state.pop(of_one_checkpoint, None)
    extra_state["averaged_checkpoints"] = [path.name for path in paths]
    return {**state, "extra_state": extra_state}


def _in_words(key: str, shapes: Dict[str, Tuple[int, ...]]) -> str:
    return f"{key} has shape {list(shapes[key])}" if key in shapes else f"no {key}"


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``capsnmt-average``."""
    parser = OneLineParser(
        prog="capsnmt-average",
        description="Write a checkpoint whose parameters are the mean of several checkpoints.",
    )
    parser.add_argument(
        "inputs", nargs="+", type=Path, metavar="DIR|FILE", help="one --save-dir, or checkpoints"
    )
    parser.add_argument(
        "--output", required=True, type=Path, metavar="FILE", help="the averaged checkpoint"
    )
    choice = parser.add_mutually_exclusive_group()
    for kind, (_, metavar, text) in NAMES.items():
        choice.add_argument(f"--{kind}", type=positive, metavar=metavar, help=text)
    return parser


def chosen_paths(args: argparse.Namespace) -> List[Path]:
    """Return the checkpoints that the arguments name or choose."""
    inputs: List[Path] = args.inputs
    given = {kind: vars(args)[kind.replace("-", "_")] for kind in NAMES}
    choices = [(kind, count) for kind, count in given.items() if count is not None]
    if len(inputs) == 1 and inputs[0].is_dir():
        if not choices:
            raise ConfigurationError(
                f"{inputs[0]} is a folder; choose its checkpoints by --last-updates N, "
                "--last-epochs N or --best K"
            )
        below = inputs[0] / "checkpoints"  # where capsnmt-run saves those of a run
        is_run = below.is_dir() and not any(inputs[0].glob("checkpoint*.pt"))
        seeds = sorted(inputs[0].glob("seed-*/checkpoints"))
        if seeds and not is_run:
            raise ConfigurationError(
                f"{inputs[0]} has a folder of each seed; give one, such as {seeds[0].parent}"
            )
        return choose(below if is_run else inputs[0], *choices[0])
    if choices:
        if not inputs[0].exists():
            raise ConfigurationError(f"{inputs[0]}: no such folder; check the path")
        raise ConfigurationError(
            f"--{choices[0][0]} chooses checkpoints from one folder, and the input is "
            f"{' '.join(map(str, inputs))}; give one folder, or drop the flag"
        )
    if len({*map(os.path.realpath, inputs)}) < len(inputs):
        raise ConfigurationError("a checkpoint is given twice; name each once")
    return inputs


@command
def main(argv: List[str]) -> None:
    """Run ``capsnmt-average`` and return the exit status."""
    args = build_parser().parse_args(argv)
    paths = chosen_paths(args)
    check_output_file(args.output, "--output", paths)  # before the work, not after

    from capsnmt.checkpoints.load import save_checkpoint

    save_checkpoint(average_checkpoints(paths), args.output)
    names = " ".join(path.name for path in paths)
    print(f"{args.output}: the mean of {len(paths)} checkpoints, all weights finite: {names}")


if __name__ == "__main__":
    raise SystemExit(main())
