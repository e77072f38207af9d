"""Evaluate a sentence classifier: ``python -m capsnmt.sentences.evaluate CHECKPOINT``."""

from argparse import Namespace
from pathlib import Path
from typing import Any, List, Optional, Tuple

import numpy as np
import torch
from omegaconf import OmegaConf

from capsnmt import records
from capsnmt.checkpoints.load import check_finite, in_group, load_trained, model_classes
from capsnmt.cli import ConfigurationError, OneLineParser, check_output_file, comma_list, command
from capsnmt.configurations import SENTENCE_TASKS
from capsnmt.host import load_plugin
from capsnmt.runs.records import ClassifierResult, Measures
from capsnmt.sentences.examples import SPLITS
from capsnmt.sentences.measures import Counts

BATCH_TOKENS = 8192


def load_classifier(path: Path, data: Optional[Path] = None) -> Tuple[Any, Any, int]:
    """Return a classifier in evaluation mode, its task, and its number of updates.

    ``data`` is the folder with the data, if it is not the one of the training.
    """
    load_plugin()
    from fairseq import tasks

    from capsnmt.sentences.classifier import SentenceClassifier

    state = load_trained(path)
    check_finite(state["model"], path)
    cfg = state.get("cfg") or {}
    settings, arguments = ({**in_group(cfg.get(group))} for group in ("task", "model"))
    name, kinds = settings.get("_name"), model_classes(arguments)
    if name not in SENTENCE_TASKS or not all(
        issubclass(kind, SentenceClassifier) for kind in kinds.values()
    ):
        raise ConfigurationError(
            f"{path} has the task {name} and the architecture {', '.join(kinds)}; give a sentence "
            f"classifier, of --task {' or '.join(SENTENCE_TASKS)}"
        )
    if data is not None:
        settings["data"] = str(data)
    task = tasks.setup_task(OmegaConf.create(settings))
    task.load_state_dict(state.get("task_state") or {})
    model = task.build_model(Namespace(**arguments))
    model.load_state_dict(state["model"], strict=True)
    updates = (state.get("optimizer_history") or [{}])[-1].get("num_updates", 0)
    return model.eval(), task, int(updates)


def count(model: Any, task: Any, split: str) -> Counts:
    """Count what the model predicts on a split, on the device of its parameters."""
    from fairseq import utils
    from fairseq.modules import LearnedPositionalEmbedding

    task.load_dataset(split)
    dataset = task.dataset(split)
    positions, longest = model.encoder.embed_positions, int(np.max(dataset.sizes))
    if isinstance(positions, LearnedPositionalEmbedding) and longest > positions.max_positions:
        raise ConfigurationError(
            f"{split} has a sentence of {longest} tokens, and the model has learned "
            f"{positions.max_positions} positions; leave it out, or train with "
            f"--max-source-positions {longest}"
        )
    most = max(BATCH_TOKENS, longest * task.num_sentences)
    outcomes: List[Any] = []
    with torch.no_grad():
        for rows in dataset.batch_by_size(dataset.ordered_indices(), max_tokens=most):
            sample = dataset.collater([dataset[row] for row in rows])
            if next(model.parameters()).is_cuda:
                sample = utils.move_to_cuda(sample)
            predicted = model(**sample["net_input"]).argmax(-1)
            outcomes.append(torch.stack([predicted, sample["target"], sample["bucket"]]).cpu())
    return Counts.of(np.concatenate(outcomes, axis=1), task.num_classes)


def describe(measures: Measures) -> str:
    """Return the measures of a split as text: a line for all examples, and one for each bucket."""
    lines = [
        f"accuracy {measures.accuracy:.2f}  macro-F1 {measures.macro_f1:.2f}  "
        f"majority {measures.majority:.2f}  ({measures.examples:,} examples)"
    ]
    for number, bucket in measures.by_bucket.items():
        lines.append(f"  {number:>3}  {bucket.accuracy:6.2f}  ({bucket.examples:,})")
    return "\n".join(lines)


@command
def main(argv: List[str]) -> None:
    """Run the command line and return the exit status."""
    parser = OneLineParser(
        prog="python -m capsnmt.sentences.evaluate", description="Evaluate a sentence classifier."
    )
    add = parser.add_argument
    add("checkpoint", type=Path, help="a checkpoint of probing or logical_inference")
    add("--data", type=Path, help="folder with the data (default: the training's)")
    add("--splits", type=comma_list(SPLITS), default=["test"], help="comma list")
    add("--json", type=Path, help="write all measures to this file")
    add("--cpu", action="store_true", help="use the CPU even if there is a GPU")
    options = parser.parse_args(argv)
    if options.json is not None:
        check_output_file(options.json, "--json", [options.checkpoint])
    model, task, updates = load_classifier(options.checkpoint, options.data)
    if torch.cuda.is_available() and not options.cpu:
        model.cuda()
    splits = {
        split: count(model, task, split).measures(task.state.classes) for split in options.splits
    }
    result = ClassifierResult(
        task=task.cfg._name,
        probing_task=getattr(task.cfg, "probing_task", None),
        updates=updates,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        splits=splits,
    )
    for split, measures in result.splits.items():
        print(f"{split}: {describe(measures)}")
    if options.json is not None:
        records.write(options.json, result)


if __name__ == "__main__":
    raise SystemExit(main())
