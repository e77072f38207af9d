"""Command lines that work, with their files: what the sweep spoils."""

from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Tuple

from tests.commands import ON_CPU, TINY
from tests.fuzz import templates
from tests.interpreter import COMMANDS as INSTALLED
from tests.support import PLUGIN


@dataclass(frozen=True)
class Command:
    """A command with its files."""

    entry: str  # module:function
    write: Callable[[Path], None]  # writes the files
    arguments: Tuple[str, ...]  # that work in the folder of the files
    spoilt: Tuple[str, ...]  # glob patterns of the files that are worth spoiling
    fixed: Tuple[str, ...] = ()  # arguments before these that are not spoilt: they are not ours
    stdin: str = ""  # the file for the standard input, if the command reads any

    @property
    def is_fairseqs(self) -> bool:
        """Whether it is fairseq's, and may end with a message, or a traceback, of fairseq alone."""
        return self.entry.startswith("fairseq_cli.")


COMMANDS: Dict[str, Command] = {
    "evaluate": Command(
        INSTALLED["capsnmt-evaluate"],
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
        INSTALLED["capsnmt-report"],
        templates.write_report,
        ("runs", "--output", "page", "--samples", "2", "--title", "A title"),
        ("runs/*/seed-1/*.json", "runs/*/seed-1/*.log", "runs/*/seed-1/*.txt", "runs/data/**/*"),
    ),
    "average": Command(
        INSTALLED["capsnmt-average"],
        templates.write_average,
        ("saved", "--last-updates", "2", "--output", "average.pt"),
        ("saved/*.pt",),
    ),
    "run": Command(
        INSTALLED["capsnmt-run"],
        templates.write_row,
        (
            *("--config", "row.yaml", "--output", "out", "--cpu", "--threads", "1"),
            *("--seeds", "1,2", "--set", "train.dropout=0.2", "--name", "mine"),
            *("--max-update", "20", "--dry-run"),
        ),
        ("row.yaml",),
    ),
    "prepare": Command(
        INSTALLED["capsnmt-prepare"],
        templates.write_archives,
        (
            *(f"{templates.CORPUS}.yaml", "--local", "archives"),
            *("--output", "prepared", "--workers", "1"),
        ),
        ("archives/*", f"{templates.CORPUS}.yaml"),
    ),
    "analyse": Command(
        INSTALLED["capsnmt-analyse"],
        templates.write_trained,
        (
            *("it=model.pt", "--data", "data/bin", "--output", "page", "--sentences", "3"),
            *("--only", "attention,agreement", "--seed", "2", "--max-tokens", "100"),
            *("--device", "cpu", "--subset", "test"),
        ),
        ("model.pt",),
    ),
    "translate": Command(
        INSTALLED["capsnmt-translate"],
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
        INSTALLED["capsnmt-export"],
        templates.write_plain,
        ("model.pt", "--output", "transformer.pt"),
        ("model.pt",),
    ),
    "train": Command(
        "fairseq_cli.train:cli_main",
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
    ),
    "generate": Command(
        "fairseq_cli.generate:cli_main",
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
    ),
}
