"""``capsnmt-export RUN --output FILE``: write a checkpoint of fairseq's own ``transformer``."""

import argparse
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, List, Mapping

from capsnmt.cli import OneLineParser, check_output_file, command, require

STOCK = "transformer"
# what only training reads; the names may be the plugin's
TRAINING = ("criterion", "optimizer", "lr_scheduler")


def stock_checkpoint(
    state: Mapping[str, Any], path: Path, overrides: Mapping[str, Any] = MappingProxyType({})
) -> Dict[str, Any]:
    """Return a checkpoint of ``capsnmt_transformer`` as one of fairseq's ``transformer``.

    The parameters are unchanged: with every switch off they have the same names and meaning.
    ``overrides`` are settings that differ from the training's, as those that a run is scored with:
    more positions, or fewer layers.

    **D**: ``--autocast`` is dropped, so other programs compute in the precision of the parameters.
    The optimizer's state is dropped, as in an average.
    """
    from fairseq.checkpoint_utils import prune_state_dict
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    from capsnmt.checkpoints.load import CheckpointError
    from capsnmt.models import config
    from capsnmt.models.architectures import MODEL
    from capsnmt.models.switches import flag

    cfg = state.get("cfg")
    if not cfg:
        raise CheckpointError(f"{path} holds no configuration: not saved by fairseq-train")
    model, task = cfg["model"], cfg.get("task") or {}
    if isinstance(model, argparse.Namespace):
        args = vars(model)
    else:  # fairseq-hydra-train keeps the task's arguments, which converters need, by themselves
        args = {**task, **model, "task": task.get("_name"), "arch": model.get("_name")}
    if ARCH_MODEL_NAME_REGISTRY.get(args.get("arch")) != MODEL:
        raise CheckpointError(
            f"{path} is a model of --arch {args.get('arch')}; give one of --arch {MODEL}"
        )
    args = {**args, **overrides}
    for name, default in config.defaults().items():
        if name not in config.NOT_OF_FUNCTION and args.get(name, default) != default:
            raise CheckpointError(
                f"{path} uses {flag(name)} {args[name]}, which fairseq's Transformer "
                "does not have; translate with it by capsnmt-translate"
            )
    stock = {name: value for name, value in args.items() if name not in config.defaults()}
    stock.update(arch=STOCK, _name=STOCK, user_dir=None)
    for side in ("encoder", "decoder"):
        if kept_layers := stock.get(f"{side}_layers_to_keep"):
            stock[f"{side}_layers"] = len(kept_layers.split(","))
    built = argparse.Namespace(**stock)
    weights = prune_state_dict(state["model"], built)  # which then keeps all
    kept = {name: section for name, section in cfg.items() if name not in TRAINING}
    common = {**(cfg.get("common") or {}), "user_dir": None}
    kept.update(common=common, model=built)
    others = {name: value for name, value in state.items() if name != "last_optimizer_state"}
    return {**others, "args": None, "cfg": kept, "model": weights}


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of ``capsnmt-export``."""
    parser = OneLineParser(
        prog="capsnmt-export",
        description="Write a model whose switches are all off as a checkpoint of fairseq's own "
        "transformer, which CTranslate2 converts.",
    )
    add = parser.add_argument
    add("model", type=Path, metavar="RUN|CHECKPOINT", help="a finished run, or a checkpoint")
    add("--output", required=True, type=Path, metavar="FILE", help="the checkpoint to write")
    return parser


@command
def main(argv: List[str]) -> None:
    """Run ``capsnmt-export`` and return the exit status."""
    args = build_parser().parse_args(argv)
    require("fairseq")
    # after parsing: --help and a mistyped flag do not wait for torch and fairseq
    import capsnmt.models  # noqa: F401  registers our architectures
    from capsnmt.checkpoints.load import check_finite, load_checkpoint, save_checkpoint
    from capsnmt.runs.finished import FinishedRun

    path: Path = args.model
    overrides: Dict[str, Any] = {}
    if not path.is_file():
        run = FinishedRun(path)
        path, overrides = run.model, run.settings.model_overrides
    check_output_file(args.output, "--output", [path])
    state = load_checkpoint(path)
    check_finite(state["model"], path)
    save_checkpoint(stock_checkpoint(state, path, overrides), args.output)
    print(f"{args.output}: the model in {path} as fairseq's own transformer")


if __name__ == "__main__":
    raise SystemExit(main())
