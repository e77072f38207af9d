#!/usr/bin/env bash
# tiny, seed 1, CPU
# 128 tokens per update = 128 tokens x 1 device(s) x 1 accumulated
# data      @HERE@/prepared-iwslt15_en_vi/data (manifest.json says how each file was made)
# training  @HERE@/launched/runs/tiny/seed-1/checkpoints, train.log
# model     @HERE@/launched/runs/tiny/seed-1/averaged.pt
# results   @HERE@/launched/runs/tiny/seed-1/scores.json, @HERE@/launched/runs/tiny/summary.json
set -euo pipefail
export PYTHONPATH=@ROOT@
export OMP_NUM_THREADS=1
export OMP_WAIT_POLICY=PASSIVE

# train
@PYTHON@ -m capsnmt.experiment.training @HERE@/prepared-iwslt15_en_vi/data/bin --user-dir @ROOT@/capsnmt --source-lang en --target-lang vi --cpu --required-batch-size-multiple 1 --arch capsnmt_transformer_tiny --criterion label_smoothed_cross_entropy --decoder-attention-heads 2 --decoder-embed-dim 16 --decoder-ffn-embed-dim 16 --decoder-layers 1 --encoder-attention-heads 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-layers 1 --head-aggregation em --init-from @HERE@/start-row/start.pt --keep-interval-updates 2 --log-interval 1 --lr 0.005 --max-update 8 --no-epoch-checkpoints --num-workers 0 --optimizer adam --save-interval-updates 2 --share-all-embeddings --max-tokens 128 --update-freq 1 --distributed-world-size 1 --seed 1 --save-dir @HERE@/launched/runs/tiny/seed-1/checkpoints --log-format json

# average
@PYTHON@ -m capsnmt.checkpoints.average @HERE@/launched/runs/tiny/seed-1/checkpoints --output @HERE@/launched/runs/tiny/seed-1/averaged.pt --last-updates 2

# generate test
@PYTHON@ -m fairseq_cli.generate @HERE@/prepared-iwslt15_en_vi/data/bin --user-dir @ROOT@/capsnmt --source-lang en --target-lang vi --cpu --required-batch-size-multiple 1 --path @HERE@/launched/runs/tiny/seed-1/averaged.pt --gen-subset test --beam 3 --max-len-b 8 --seed 1 --log-format none >@HERE@/launched/runs/tiny/seed-1/generate-test.txt.part && mv @HERE@/launched/runs/tiny/seed-1/generate-test.txt.part @HERE@/launched/runs/tiny/seed-1/generate-test.txt

# score test
@PYTHON@ -m capsnmt.evaluation tiny=@HERE@/launched/runs/tiny/seed-1/generate-test.txt --reference @HERE@/prepared-iwslt15_en_vi/data/raw/test.vi --remove-bpe subword_nmt --target-lang vi --json @HERE@/launched/runs/tiny/seed-1/scores-test.json
