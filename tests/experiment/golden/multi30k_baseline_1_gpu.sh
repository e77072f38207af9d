#!/usr/bin/env bash
# baseline, seed 1, 1 GPU
# 4,096 tokens per update = 4,096 tokens x 1 device(s) x 1 accumulated
# data      runs/multi30k/data (manifest.json says how each file was made)
# training  runs/multi30k/baseline/seed-1/checkpoints, train.log
# model     runs/multi30k/baseline/seed-1/averaged.pt
# results   runs/multi30k/baseline/seed-1/scores.json, runs/multi30k/baseline/summary.json
set -euo pipefail
export PYTHONPATH=ROOT

# prepare
#   Multi30k task 1, English-German image descriptions (Elliott et al. 2016)
#   fetch train.en.gz, train.de.gz, val.en.gz, val.de.gz, test_2016_flickr.en.gz,
#     test_2016_flickr.de.gz, test_2017_flickr.en.gz, test_2017_flickr.de.gz
#   tokenise en by moses, de by moses; clean by max_length 250, max_ratio 9.0
#   segment by bpe of 10,000, one model
#   binarise train, valid, test_2016_flickr, test_2017_flickr to runs/multi30k/data/bin
python -m capsnmt.corpora multi30k --pair en-de --output runs/multi30k/data

# train
python -m capsnmt.experiment.training runs/multi30k/data/bin --user-dir ROOT/capsnmt --source-lang en --target-lang de --required-batch-size-multiple 1 --arch capsnmt_transformer_tiny --task translation --criterion chunked_label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer fused_adam --adam-betas '(0.9, 0.98)' --lr 0.005 --lr-scheduler inverse_sqrt --warmup-updates 2000 --warmup-init-lr 1e-7 --dropout 0.3 --share-all-embeddings --max-update 8000 --save-interval-updates 100 --keep-interval-updates 10 --no-epoch-checkpoints --log-interval 50 --max-tokens 4096 --update-freq 1 --distributed-world-size 1 --fp16 --seed 1 --save-dir runs/multi30k/baseline/seed-1/checkpoints --log-format json

# average
python -m capsnmt.checkpoints.average runs/multi30k/baseline/seed-1/checkpoints --output runs/multi30k/baseline/seed-1/averaged.pt --last-updates 10

# generate test_2016_flickr
python -m fairseq_cli.generate runs/multi30k/data/bin --user-dir ROOT/capsnmt --source-lang en --target-lang de --required-batch-size-multiple 1 --path runs/multi30k/baseline/seed-1/averaged.pt --gen-subset test --beam 5 --lenpen 1.0 --batch-size 128 --seed 1 --log-format none >runs/multi30k/baseline/seed-1/generate-test_2016_flickr.txt.part && mv runs/multi30k/baseline/seed-1/generate-test_2016_flickr.txt.part runs/multi30k/baseline/seed-1/generate-test_2016_flickr.txt

# score test_2016_flickr
python -m capsnmt.evaluation baseline=runs/multi30k/baseline/seed-1/generate-test_2016_flickr.txt --reference runs/multi30k/data/raw/test_2016_flickr.de --remove-bpe subword_nmt --detokenize moses --target-lang de --json runs/multi30k/baseline/seed-1/scores-test_2016_flickr.json

# generate test_2017_flickr
python -m fairseq_cli.generate runs/multi30k/data/bin --user-dir ROOT/capsnmt --source-lang en --target-lang de --required-batch-size-multiple 1 --path runs/multi30k/baseline/seed-1/averaged.pt --gen-subset test1 --beam 5 --lenpen 1.0 --batch-size 128 --seed 1 --log-format none >runs/multi30k/baseline/seed-1/generate-test_2017_flickr.txt.part && mv runs/multi30k/baseline/seed-1/generate-test_2017_flickr.txt.part runs/multi30k/baseline/seed-1/generate-test_2017_flickr.txt

# score test_2017_flickr
python -m capsnmt.evaluation baseline=runs/multi30k/baseline/seed-1/generate-test_2017_flickr.txt --reference runs/multi30k/data/raw/test_2017_flickr.de --remove-bpe subword_nmt --detokenize moses --target-lang de --json runs/multi30k/baseline/seed-1/scores-test_2017_flickr.json
