#!/usr/bin/env bash
# The long tail on one GPU: CIFAR-100-LT at imbalance 100, ResNet-32, 200 epochs.
#
#     benchmarks/longtail_gpu.sh DATA OUT [SECONDS] [JOBS]
#
# DATA holds cifar-100-binary/. Runs go to OUT, records to OUT-records. After SECONDS (default: when all is done) every
# run writes a checkpoint and stops; the same command continues. Five seeds of the arms that the claims about deferred
# re-weighting and balanced softmax need, three of the rest; decoupling starts from the finished runs in OUT. Where CE
# does not end at 37.5 to 39.5 and deferred re-weighting at 40.5 to 42.5 (best epoch), find the reason first.
set -euo pipefail
data=${1:?DATA} out=${2:?OUT} seconds=${3:-1000000000} jobs=${4:-6}
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/../src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
source "$here/share_gpu.sh"
share_gpu "${PYTHON:-python3}" cuda

exec "${PYTHON:-python3}" "$here/grid_gpu.py" "$out" --data "$data" --jobs "$jobs" \
    --seconds $((seconds > SECONDS ? seconds - SECONDS : 1)) \
    cifar100-lt:5:ce,drw,drw_conservative,drw_aggressive,balanced_softmax \
    cifar100-lt:3:conservative,normal,aggressive,drw_normal,drw_authors,focal,halted_focal,balanced_aggressive \
    cifar100-lt:3:crt,crt_conservative,crt_normal,crt_aggressive,crt_moving,crt_normal_moving \
    cifar100-lt:3:ldam,ldam_drw,balanced_conservative,drw_late_conservative,drw_late_normal,drw_late_aggressive
