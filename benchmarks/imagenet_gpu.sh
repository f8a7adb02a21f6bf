#!/usr/bin/env bash
# Images that fit no device, on one GPU: what one image costs, the loader alone, ResNet-50 and EfficientNet-B0 in the engine.
#
#     benchmarks/imagenet_gpu.sh OUT [SECONDS] [IMAGES]
#
# Makes IMAGES (default 20000) JPEGs of 500 x 375 pixels in a folder of its own, since ImageNet's cannot be had
# everywhere, and measures each case for SECONDS (default 20). Numbers go to OUT/imagenet-*.json. It holds when the
# loader delivers 4500 images per second on 16 cores, and the engine 0.9 of the slower of loader and network.
set -euo pipefail
out=${1:?OUT} seconds=${2:-20} images=${3:-20000}
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/../src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
python=${PYTHON:-python3}
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

mkdir -p "$out"
nproc=$(nproc --all)
lscpu | grep -E "Model name|Thread|Core|^CPU\(s\)" || true
df -h /dev/shm | tail -1
"$python" "$here/imagenet_throughput.py" make "$files" --images "$images"
# One worker shows what a core can do; more workers than cores help where some of them wait for the disk.
"$python" "$here/imagenet_throughput.py" loader "$files" --workers 1 --workers $((nproc / 2)) --workers "$nproc" \
    --workers $((nproc + nproc / 4)) --seconds "$seconds" --out "$out/imagenet-loader.json"
"$python" "$here/imagenet_throughput.py" train "$files" --workers "$nproc" --seconds "$seconds" \
    --out "$out/imagenet-resnet50.json"
"$python" "$here/imagenet_throughput.py" train "$files" --workers "$nproc" --seconds "$seconds" --batch 384 \
    --model timm/efficientnet_b0 --out "$out/imagenet-efficientnet-b0.json"
