#!/usr/bin/env bash
# Images that fit no device, on one GPU: what one image costs, the loader alone, ResNet-50 and EfficientNet-B0 in the engine.
#
#     benchmarks/imagenet_gpu.sh OUT [SECONDS] [IMAGES]
#
# Makes IMAGES (default 12288, whole batches of 256) JPEGs of 500 x 375 pixels in a folder of its own, since ImageNet's
# cannot be had everywhere, and measures each case for SECONDS (default 8): about two minutes in all. Numbers go to
# OUT/imagenet.json as they are measured. It holds when the loader delivers 4500 images per second on 16 cores, and the
# engine 0.9 of the slower of loader and network.
set -euo pipefail
out=${1:?OUT} seconds=${2:-8} images=${3:-12288}
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/../src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
python=${PYTHON:-python3}
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

mkdir -p "$out"
nproc=$(nproc --all)
lscpu | grep -E "Model name|Thread|Core|^CPU\(s\)" || true
"$python" "$here/imagenet_throughput.py" make "$files" --images "$images"
# One worker shows what a core can do. The engine has the last number: it leaves a core to the training process.
"$python" "$here/imagenet_throughput.py" train "$files" --workers 1 --workers "$nproc" --workers $((nproc - 1)) \
    --model torchvision/resnet50 --model timm/efficientnet_b0 --seconds "$seconds" --out "$out/imagenet.json"
