"""The row of a table that the tests of launches train in a second."""

from pathlib import Path
from typing import List

SMALL = """
dataset: tiny
arch: capsnmt_transformer_tiny
data: {source-lang: en, target-lang: de, test-sets: {news: test}}
batch: {tokens-per-update: 128, max-tokens: 128}
precision: fp32
train:
  criterion: label_smoothed_cross_entropy
  optimizer: adam
  lr: 0.005
  head-aggregation: em
  encoder-layers: 1
  decoder-layers: 1
  encoder-embed-dim: 16
  decoder-embed-dim: 16
  encoder-ffn-embed-dim: 16
  decoder-ffn-embed-dim: 16
  encoder-attention-heads: 2
  decoder-attention-heads: 2
  share-all-embeddings: true
  num-workers: 0
  max-update: 4
  no-epoch-checkpoints: true
  save-interval-updates: 4
  log-interval: 2
generate: {beam: 1, batch-size: 8, max-len-b: 20}
score: {remove-bpe: subword_nmt}
"""
# the training ends by epochs, so that no number of updates says that it is finished
BY_EPOCHS = [
    *("--max-update", "1000", "--set", "train.max-epoch=1"),
    *("--set", "train.save-interval-updates=1", "--set", "average.last-updates=1"),
]


def arguments(data: Path, folder: Path) -> List[str]:
    """Return the arguments of ``capsnmt-run`` for the row, which is written into the folder."""
    (folder / "row.yaml").write_text(SMALL, "utf-8")
    row = ["--config", folder / "row.yaml", "--cpu", "--threads", "1", "--prepared", data]
    return list(map(str, [*row, "--output", folder / "runs"]))
