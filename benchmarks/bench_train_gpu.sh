#!/bin/sh
# Training speed of the old code and the new, in under three minutes on one GPU. Before, here:
#   gryphone data pack CROHME/train.tar.xz --out runs/gputrain/train.parquet
#   mkdir -p runs/gputrain/base && git archive 4a15dc3 gryphone | tar x -C runs/gputrain/base
cd "$(dirname "$0")/.." || exit 1
export PYTHONUNBUFFERED=1
timeout --kill-after=3 175 python3 benchmarks/bench_train_gpu.py "$@"
