#!/usr/bin/env bash
# bccd-retinanet: focal loss and its two halted forms with three seeds each, on one GPU.
#
#     benchmarks/detection_gpu.sh DATA OUT [SECONDS] [JOBS] [DEVICE] [SEEDS] [ARMS] [OPTION ...]
#
# DATA holds BCCD/. Runs go to OUT, records with their pictures to OUT-records, one file per run. After SECONDS (default:
# when all is done) every run writes a checkpoint of half a gigabyte and stops: leave it half a minute for that. The same
# command continues. JOBS runs are trained at once, by default 6; each keeps the images on the GPU and needs about one
# core and 10 GB of GPU memory. ARMS are words with commas between them; after a space come those that wait until these
# have started. OPTIONs go to grid_gpu.py: --set train.max_steps=52 tries everything out and tells the time of an update.
# Set a floor for the AP from the first seed and hold the others to it; AP50 above 80 is usual on this set with
# pretrained backbones.
set -euo pipefail
data=${1:?DATA} out=${2:?OUT} seconds=${3:-1000000000} jobs=${4:-6} device=${5:-cuda} seeds=${6:-3}
arms=${7:-focal,halted_logit halted}
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/../src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
"${PYTHON:-python3}" -c "import torchvision.models.detection, pycocotools.cocoeval" || {
    echo "needs pycocotools, and the torchvision that belongs to the installed torch: pip install them, or put folders" \
        "that have them on PYTHONPATH" >&2
    exit 2
}
source "$here/share_gpu.sh"
share_gpu "${PYTHON:-python3}" "$device"
plan=()
for group in $arms; do plan+=("bccd-retinanet:$seeds:$group"); done
"${PYTHON:-python3}" "$here/grid_gpu.py" "$out" "${plan[@]}" --data "$data" --device "$device" \
    --jobs "$jobs" --seconds $((seconds > SECONDS ? seconds - SECONDS : 1)) --checkpoint 300 --lean "${@:8}"
