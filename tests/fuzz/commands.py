"""Command lines that work, with their files: what the sweep spoils."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Tuple

from fairseq_cli import generate as fairseq_generate
from fairseq_cli import train as fairseq_train

from capsnmt.analysis.__main__ import main as analyse
from capsnmt.checkpoints.average import main as average
from capsnmt.corpora.__main__ import main as prepare
from capsnmt.evaluation.__main__ import main as evaluate
from capsnmt.export import main as export
from capsnmt.launch.__main__ import main as run
from capsnmt.report.__main__ import main as report
from capsnmt.translate.__main__ import main as translate
from tests.commands import ON_CPU, TINY
from tests.fuzz import templates
from tests.support import PLUGIN


@dataclass(frozen=True)
class Command:
    """A command with its files.

    Attributes:
        main: the entry point; it takes the arguments.
        write: writes the files.
        arguments: arguments that work in the folder of the files.
        spoilt: glob patterns of the files that are worth spoiling.
        fixed: arguments before these that are not spoilt, because they are not ours.
        stdin: the file for the standard input, if the command reads any.
        is_fairseqs: a command of fairseq with our plugin. It may end with fairseq's own faults:
            a message of its parser, or a traceback without code of ours.
    """

    main: Callable[[List[str]], int]
    write: Callable[[Path], None]
    arguments: Tuple[str, ...]
    spoilt: Tuple[str, ...]
    fixed: Tuple[str, ...] = ()
    stdin: str = ""
    is_fairseqs: bool = False


def _of_fairseq(name: str, main: Callable[[], None]) -> Callable[[List[str]], int]:
    """Return an entry point of fairseq as one that takes arguments."""

    def call(argv: List[str]) -> int:
        sys.argv = [name, *argv]
        logging.basicConfig(stream=sys.stdout, level=logging.INFO, force=True)
        main()
        return 0

    return call


COMMANDS: Dict[str, Command] = {
    "evaluate": Command(
        evaluate,
        templates.write_evaluate,
        (
            *("good=good", "half=half", "--baseline", "third=third", "--reference", "reference"),
            *("--remove-bpe", "subword_nmt", "--detokenize", "moses", "--target-lang", "en"),
            *("--samples", "10", "--segment-scores", "comet", "good=s1", "half=s2", "third=s3"),
            *("--json", "scores.json"),
        ),
        ("good", "half", "third", "reference", "s1", "s2"),
    ),
    "report": Command(
        report,
        templates.write_report,
        ("runs", "--output", "page", "--samples", "2", "--title", "A title"),
        ("runs/*/seed-1/*.json", "runs/*/seed-1/*.log", "runs/*/seed-1/*.txt", "runs/data/**/*"),
    ),
    "average": Command(
        average,
        templates.write_average,
        ("saved", "--last-updates", "2", "--output", "average.pt"),
        ("saved/*.pt",),
    ),
    "run": Command(
        run,
        templates.write_row,
        (
            *("--config", "row.yaml", "--output", "out", "--cpu", "--threads", "1"),
            *("--seeds", "1,2", "--set", "train.dropout=0.2", "--name", "mine"),
            *("--max-update", "20", "--dry-run"),
        ),
        ("row.yaml",),
    ),
    "prepare": Command(
        prepare,
        templates.write_archives,
        (
            *(f"{templates.CORPUS}.yaml", "--local", "archives"),
            *("--output", "prepared", "--workers", "1"),
        ),
        ("archives/*", f"{templates.CORPUS}.yaml"),
    ),
    "analyse": Command(
        analyse,
        templates.write_trained,
        (
            *("it=model.pt", "--data", "data/bin", "--output", "page", "--sentences", "3"),
            *("--only", "attention,agreement", "--seed", "2", "--max-tokens", "100"),
            *("--device", "cpu", "--subset", "test"),
        ),
        ("model.pt",),
    ),
    "translate": Command(
        translate,
        templates.write_trained,
        (
            *("routed/seed-1", "--data", "data", "--beam", "2", "--lenpen", "0.6", "--nbest", "1"),
            *("--scores", "--max-tokens", "100", "--batch-size", "4", "--buffer-size", "5"),
            *("--device", "cpu", "--precision", "fp32"),
        ),
        (
            *("source", "routed/seed-1/*.json", "routed/seed-1/checkpoints/*", "data/*.json"),
            *("data/bpe/*", "data/bin/dict*"),
        ),
        stdin="source",
    ),
    "export": Command(
        export, templates.write_plain, ("model.pt", "--output", "transformer.pt"), ("model.pt",)
    ),
    "train": Command(
        _of_fairseq("fairseq-train", fairseq_train.cli_main),
        templates.write_trained,
        (
            *("--arch", "capsnmt_transformer_tiny", "--head-aggregation", "em"),
            *("--head-aggregation-attention", "enc-self,enc-dec", "--head-capsules", "8"),
            *("--layer-aggregation", "attention", "--layer-aggregation-side", "both"),
            *("--mlmha", "M-10", "--mlmha-sources", "2", "--capsule-routing-decoder", "horizontal"),
            *("--autocast", "none", "--init-from", "model.pt", "--optimizer", "fused_adam"),
            *("--criterion", "label_smoothed_cross_entropy_with_disagreement"),
            *("--disagreement", "subspace,output", "--disagreement-attention", "enc-self,dec-self"),
            *("--disagreement-weight", "0.5"),
        ),
        ("model.pt",),
        fixed=(
            *("data/bin", "--user-dir", PLUGIN, *TINY, *ON_CPU, "--save-dir", "saved"),
            *("--lr", "0.1"),
            *("--max-tokens", "200", "--max-update", "1", "--share-all-embeddings"),
            *("--encoder-layers", "2", "--decoder-layers", "1"),
        ),
        is_fairseqs=True,
    ),
    "generate": Command(
        _of_fairseq("fairseq-generate", fairseq_generate.cli_main),
        templates.write_trained,
        (
            "--model-overrides",
            '{"autocast": "none", "mlmha_mask_source": 0, "routing_backend": "eager"}',
            *("--tokenizer", "capsnmt", "--source-lang", "en", "--target-lang", "de"),
        ),
        ("model.pt", "data/manifest.json"),
        fixed=(
            *("data/bin", "--user-dir", PLUGIN, "--path", "model.pt", "--beam", "2", *ON_CPU),
            *("--max-len-b", "5", "--batch-size", "8"),
        ),
        is_fairseqs=True,
    ),
}
