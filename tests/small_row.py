"""The row of a table that the tests of launches train in a second."""

SMALL = """
dataset: tiny
arch: capsnmt_transformer_tiny
data: {source-lang: en, target-lang: de, test-sets: {news: test}}
batch: {tokens-per-update: 512, max-tokens: 512}
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
generate: {beam: 1, batch-size: 8}
score: {remove-bpe: subword_nmt}
"""
