"""Settings for data of one's own: ``capsnmt-run --prepared DIR --arch ARCH``, without a file.

They are those of configs/own.yaml, with the languages and test sets of the data. What depends on
the number of sentence pairs is chosen here and said in one line.
"""

from argparse import Namespace
from typing import Any, Dict, Iterator, List, Optional, Tuple

from capsnmt import configurations
from capsnmt.cli import ConfigurationError
from capsnmt.corpora.prepared import PreparedData
from capsnmt.files import bundled_folder
from capsnmt.launch import training_step
from capsnmt.launch.run import Run

# Sentence pairs, up to which -> updates, tokens per update, dropout. **D**: the 8,000 updates of
# Multi30k's known recipe are 73 epochs of its 29,000 pairs. Less text gets a quarter of them;
# 50,000 are about 50 epochs of 160,000 pairs of 25 tokens (IWSLT); from a million on, Vaswani et
# al.'s.
BUDGETS: List[Tuple[float, int, int, float]] = [
    (1e4, 2_000, 4_096, 0.3),
    (1e5, 8_000, 4_096, 0.3),
    (1e6, 50_000, 4_096, 0.3),
    (float("inf"), 100_000, 32_768, 0.1),
]
LEAST_WARMUP, MOST_WARMUP = 2_000, 4_000
FEW = 1_000  # pairs, below which the last checkpoint is evaluated
SAVES, AVERAGED = 80, 10  # over the training, as of Multi30k's recipe
SPACING = 25  # updates between two saves at least, where as many are averaged


def applies(options: Namespace) -> bool:
    """Return whether a launch names data and an architecture, and no settings."""
    named = (options.config, options.dataset, options.rows) != (None, None, None)
    return options.prepared is not None and options.arch is not None and not named


def rows(options: Namespace) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """Yield name and settings of the architecture, and of the baseline before it."""
    assert options.prepared is not None
    data = PreparedData(options.prepared)
    data.check("--prepared ")
    if options.baseline == options.arch:
        raise ConfigurationError(f"--baseline {options.arch} is the row itself; name another")
    manifest = data.read_manifest()
    if "tokenised-by" in manifest.recipe:
        raise ConfigurationError(
            f"--prepared {data.folder} has text that was published as tokens; give --dataset, or "
            f"--config with score.tokenized"
        )
    source, target = manifest.languages
    score = {"remove-bpe": manifest.subwords}
    if manifest.tokenisers.get(target, "").startswith("none"):  # the references are tokens too
        score["detokenize"] = "none"
    of_the_data = {
        "dataset": options.prepared.resolve().name,
        "data": {"source-lang": source, "target-lang": target, "test-sets": manifest.test_sets},
        "train": {"share-all-embeddings": manifest.segmentation.get("joint", True)},
        "score": score,
    }
    for arch in filter(None, (options.baseline, options.arch)):
        merged = configurations.load(bundled_folder("configs") / "own.yaml")
        configurations.merge(merged, {"arch": arch, **of_the_data})
        configurations.merge(merged, _budget(manifest.pairs, options.max_update, arch))
        yield (options.name or arch) if arch == options.arch else arch, merged


def describe(run: Run) -> str:
    """Return what was chosen by the number of pairs, in one line."""
    train, batch = run.settings.train, run.settings.batch
    return (
        f"{run.data.read_manifest().pairs:,} sentence pairs: {train['max-update']} updates of "
        f"{batch.tokens_per_update:,} tokens, warm-up {train.get('warmup-updates', 'none')}, "
        f"learning rate {train.get('lr', 'of fairseq')}, dropout "
        f"{train.get('dropout', 'of the architecture')} (--max-update and --set change them, "
        f"--write-config FILE writes them)"
    )


def _budget(pairs: int, max_update: Optional[int], arch: str) -> Dict[str, Any]:
    """Return the settings that depend on the number of sentence pairs.

    The learning rate is Vaswani et al.'s: its peak is (d warmup)^-0.5. **D**: with at least
    `LEAST_WARMUP`, as a short warm-up would make it large.
    """
    width = getattr(training_step.preset(arch), "encoder_embed_dim", 512)
    _, most, tokens, dropout = next(each for each in BUDGETS if pairs <= each[0])
    updates = max_update or most
    warmup = max(1, min(MOST_WARMUP, updates // 4))
    rate = (width * max(warmup, LEAST_WARMUP)) ** -0.5
    interval = _prime_up_to(max(1, updates // SAVES, min(SPACING, updates // AVERAGED)))
    return {
        "batch": {"tokens-per-update": tokens, "max-tokens": 4096},
        "train": {
            "lr": float(f"{rate:.2g}"),
            "warmup-updates": warmup,
            "dropout": dropout,
            "max-update": updates,
            "save-interval-updates": interval,
            "log-interval": min(100, max(1, updates // 40)),
        },
        # of so few pairs, each update may end an epoch
        "average": None if pairs < FEW else {"last-updates": min(AVERAGED, updates // interval)},
    }


def _prime_up_to(number: int) -> int:
    """Return the largest prime number up to ``number``, or 1.

    fairseq saves no checkpoint of an update that ends an epoch. If the epochs had as many updates
    as lie between two saves, or a divisor of that number, nothing would be left to average.
    """
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return number
