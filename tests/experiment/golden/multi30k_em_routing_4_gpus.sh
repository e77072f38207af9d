#!/usr/bin/env bash
# em_routing, seed 7, 4 GPUs
# 4,096 tokens per update = 1,024 tokens x 4 device(s) x 1 accumulated
# data      out/data (manifest.json says how each file was made)
# training  out/em_routing/seed-7/checkpoints, train.log
# model     out/em_routing/seed-7/averaged.pt
# results   out/em_routing/seed-7/scores.json, out/em_routing/summary.json
set -euo pipefail
export PYTHONPATH=ROOT

# prepare
#   Multi30k task 1, English-German image descriptions (Elliott et al. 2016)
#   fetch train.en.gz, train.de.gz, val.en.gz, val.de.gz, test_2016_flickr.en.gz,
#     test_2016_flickr.de.gz, test_2017_flickr.en.gz, test_2017_flickr.de.gz
#   tokenise en by moses, de by moses; clean by max_length 250, max_ratio 9.0
#   segment by bpe of 10,000, one model
#   binarise train, valid, test_2016_flickr, test_2017_flickr to out/data/bin
python -m capsnmt.corpora multi30k --pair en-de --output out/data --data corpus

# train
python -m torch.distributed.run --standalone --nproc_per_node=4 -m capsnmt.experiment.training out/data/bin --user-dir ROOT/capsnmt --source-lang en --target-lang de --required-batch-size-multiple 1 --arch transformer_em_routing_tiny --task translation --criterion chunked_label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer fused_adam --adam-betas '(0.9, 0.98)' --lr 0.003 --lr-scheduler inverse_sqrt --warmup-updates 2000 --warmup-init-lr 1e-7 --dropout 0.3 --share-all-embeddings --max-update 4000 --save-interval-updates 100 --keep-interval-updates 10 --no-epoch-checkpoints --log-interval 50 --max-tokens 1024 --update-freq 1 --distributed-world-size 4 --load-checkpoint-on-all-dp-ranks --fp16 --seed 7 --save-dir out/em_routing/seed-7/checkpoints --log-format json

# average
python -m capsnmt.checkpoints.average out/em_routing/seed-7/checkpoints --output out/em_routing/seed-7/averaged.pt --last-updates 10

# generate test_2016_flickr
python -m fairseq_cli.generate out/data/bin --user-dir ROOT/capsnmt --source-lang en --target-lang de --required-batch-size-multiple 1 --path out/em_routing/seed-7/averaged.pt --gen-subset test --beam 5 --lenpen 1.0 --batch-size 128 --seed 7 --log-format none >out/em_routing/seed-7/generate-test_2016_flickr.txt.part && mv out/em_routing/seed-7/generate-test_2016_flickr.txt.part out/em_routing/seed-7/generate-test_2016_flickr.txt

# score test_2016_flickr
python -m capsnmt.evaluation em_routing=out/em_routing/seed-7/generate-test_2016_flickr.txt --baseline baseline=out/baseline/seed-7/generate-test_2016_flickr.txt --reference out/data/raw/test_2016_flickr.de --remove-bpe subword_nmt --detokenize moses --target-lang de --json out/em_routing/seed-7/scores-test_2016_flickr.json

# generate test_2017_flickr
python -m fairseq_cli.generate out/data/bin --user-dir ROOT/capsnmt --source-lang en --target-lang de --required-batch-size-multiple 1 --path out/em_routing/seed-7/averaged.pt --gen-subset test1 --beam 5 --lenpen 1.0 --batch-size 128 --seed 7 --log-format none >out/em_routing/seed-7/generate-test_2017_flickr.txt.part && mv out/em_routing/seed-7/generate-test_2017_flickr.txt.part out/em_routing/seed-7/generate-test_2017_flickr.txt

# score test_2017_flickr
python -m capsnmt.evaluation em_routing=out/em_routing/seed-7/generate-test_2017_flickr.txt --baseline baseline=out/baseline/seed-7/generate-test_2017_flickr.txt --reference out/data/raw/test_2017_flickr.de --remove-bpe subword_nmt --detokenize moses --target-lang de --json out/em_routing/seed-7/scores-test_2017_flickr.json
