#!/usr/bin/env bash
# Multi30k De-En and Fr-En: 27 trainings on one GPU, several at once, and what training and translating cost.
#
#     benchmarks/translation_gpu.sh DATA OUT [SECONDS] [JOBS] [DEVICE] [OPTION ...]
#
# DATA holds multi30k/. De-En: four seeds of ce_ls, el_05_ls, el_1_ls and el_1_ls_matched, two of ce and el_05, three of
# el_075_ls for the claim about its gradient. Fr-En: two seeds of ce_ls and el_05_ls. Runs go to OUT, records to
# OUT-records, one file per run. After SECONDS (default: when all is done) every run writes a checkpoint and stops; the
# same command continues. JOBS runs are trained at once, 9 by default on a GPU and one per core on DEVICE cpu. OPTIONs go
# to grid_gpu.py, such as --set train.epochs=2 to try it out. First OUT-records/bench/translation.json and .txt are
# measured alone, about a minute: tokens per second beside a bare loop, 1000 sentences with beam search, and the
# profiler's table of it; benchmarks/show.py --translation puts them into docs/performance.md.
#
# What it costs: a training has 60 epochs of 127 updates (Fr-En: 133) of 4096 tokens each, 7620 updates or 26 million
# target tokens, and after each epoch the scores and greedy translations of 1000 validation sentences. The network has
# 2.6 million parameters, so an update is about 800 short kernels, one after another: CUDA graphs (12 shapes) spare the
# host's part of them, JOBS at once fill the GPU. Estimated, not yet measured: 3 ms per update, so half a minute of the
# GPU per training and a quarter of an hour for all where the GPU serves one process at a time; 2 GiB of memory for each
# that runs. On a CPU core, where an update takes 1.5 s, a training takes three hours: try it there with --set
# train.epochs=1 --set options.vocabulary=2000. Where ce_ls does not reach 37 BLEU on De-En, find the reason first.
set -euo pipefail
data=${1:?DATA} out=${2:?OUT} seconds=${3:-1000000000} device=${5:-cuda}
jobs=${4:-$([ "$device" = cpu ] && nproc --all || echo 9)}
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/../src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
export TOKENIZERS_PARALLELISM=false
python=${PYTHON:-python3}
options=("${@:6}")

if [ "$device" != cpu ] && [ ! -f "$out-records/bench/translation.json" ]; then
    timeout 180 "$python" "$here/translation_speed.py" --data "$data" --device "$device" \
        --out "$out-records/bench/translation.json" || echo "translation_speed.py failed: run it by itself" >&2
fi
source "$here/share_gpu.sh"
share_gpu "$python" "$device"
# SECONDS counts those of this script. The arms with four seeds come first, seed by seed.
"$python" "$here/grid_gpu.py" "$out" multi30k-de-en:4:ce_ls,el_05_ls,el_1_ls,el_1_ls_matched \
    multi30k-fr-en:2:ce_ls,el_05_ls multi30k-de-en:2:ce,el_05 multi30k-de-en:3:el_075_ls --data "$data" \
    --device "$device" --jobs "$jobs" --lean --seconds $((seconds > SECONDS ? seconds - SECONDS : 1)) "${options[@]}"
