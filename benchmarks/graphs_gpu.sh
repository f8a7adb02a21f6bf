#!/usr/bin/env bash
# PROTEINS and NCI1: 50 splits of three arms each, 300 trainings, on one GPU or on the cores of a machine.
#
#     benchmarks/graphs_gpu.sh DATA OUT [SECONDS] [JOBS] [DEVICE] [SPLITS] [OPTION ...]
#
# DATA holds PROTEINS/raw and NCI1/raw. Runs go to OUT, records to OUT-records, one file per arm. After SECONDS (default:
# when all is done) every run writes a checkpoint and stops; the same command continues. JOBS runs are trained at once,
# by default 16 on a GPU and one per core on DEVICE cpu. First one training of each set runs alone, in OUT-alone, for
# what it costs by itself: OUT-alone.json. OPTIONs go to grid_gpu.py, such as --set train.epochs=2 to try it out. Where CE does not end
# at 70 to 74 (PROTEINS) and 66 to 72 (NCI1), find the reason first.
set -euo pipefail
data=${1:?DATA} out=${2:?OUT} seconds=${3:-1000000000} device=${5:-cuda} splits=${6:-50}
jobs=${4:-$([ "$device" = cpu ] && nproc || echo 16)}
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/../src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
source "$here/share_gpu.sh"
share_gpu "${PYTHON:-python3}" "$device"

options=("${@:7}")
grid() {
    "${PYTHON:-python3}" "$here/grid_gpu.py" "$@" --data "$data" --device "$device" --lean --by-arm "${options[@]}"
}
grid "$out-alone" proteins:1:ce nci1:1:ce --jobs 1 --seconds "$seconds"
if [ -d "$out-alone-records" ]; then
    "${PYTHON:-python3}" "$here/alone.py" "$out-alone-records" -o "$out-alone.json"
fi
# SECONDS counts those of this script.
grid "$out" "nci1:$splits" "proteins:$splits" --jobs "$jobs" --seconds $((seconds > SECONDS ? seconds - SECONDS : 1))
