#!/usr/bin/env bash
# CIFAR with the paper's crops and optimiser on one GPU: throughput, then the quick recipes, then the full one.
#
#     benchmarks/cifar_gpu.sh PART DATA OUT [SECONDS] [JOBS] [RECORDED]
#
# PART is one of
#     throughput   images per second, bare, in the engine and of the input alone: OUT/cifar-throughput.json; needs no DATA
#     cifar100     cifar100-learning-rate-quick: the rates with five seeds, the sweep over LE with three
#     cifar10      cifar10-learning-rate-quick, -representation-quick and -label-smoothing-quick with three seeds
#     resnet50     cifar10-resnet50-quick (112 pixels, 30 epochs) with five seeds
#     quick        the runs of cifar10, cifar100 and resnet50 in one queue: a part that ends leaves no idle GPU behind
#     full         cifar10-resnet50 at 224 pixels, one seed per loss: a quarter of an hour or more per run
# or the runs themselves, as grid_gpu.py takes them: cifar10-resnet50:1:el_075 for one of full's two, and
# "cifar10-resnet50:[1]:ce cifar10-resnet50-quick:3:el_1" for seed 1 of one recipe and three seeds of another.
# DATA holds cifar-100-binary/ or cifar-10-batches-bin/, whichever the part needs (quick: both). Runs go to OUT, records to
# OUT-records. After SECONDS (default: when all is done) every run writes a checkpoint and stops; the same command
# continues. What has a record in the folder RECORDED, such as results, is not trained again.
set -euo pipefail
part=${1:?PART} data=${2:?DATA} out=${3:?OUT} seconds=${4:-1000000000} jobs=${5:-} recorded=${6:-}
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/../src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
# Runs side by side compile at the same time; by default each would start a compiler on every core.
export TORCHINDUCTOR_COMPILE_THREADS=${TORCHINDUCTOR_COMPILE_THREADS:-2}
python=${PYTHON:-python3}
grid() {  # how many runs at once; the runs
    if (($1 > 1)); then
        source "$here/share_gpu.sh"
        share_gpu "$python" cuda
    fi
    exec "$python" "$here/grid_gpu.py" "$out" --data "$data" --lean ${recorded:+--recorded "$recorded"} \
        --seconds $((seconds > SECONDS ? seconds - SECONDS : 1)) --jobs "$@"
}

cifar100=(cifar100-learning-rate-quick:5:ce,ce_2x,el_075,el_1_half,el_1,ce_4x,el_1_matched,el_075_2x
          cifar100-learning-rate-quick:3:el_05,el_0,el_025,el_09)
cifar10=(cifar10-learning-rate-quick:3:ce,el_075,el_1,ce_2x,el_1_half
         cifar10-representation-quick:3:ce,el_1
         cifar10-label-smoothing-quick:3)
resnet50=(cifar10-resnet50-quick:5:ce,el_075)

case $part in
throughput)
    exec "$python" "$here/cifar_throughput.py" --out "$out/cifar-throughput.json" ;;
cifar100) grid "${jobs:-6}" "${cifar100[@]}" ;;
cifar10)  grid "${jobs:-6}" "${cifar10[@]}" ;;
resnet50) grid "${jobs:-3}" "${resnet50[@]}" ;;
quick)    grid "${jobs:-8}" "${cifar10[@]}" "${cifar100[@]}" "${resnet50[@]}" ;;
full)     grid "${jobs:-1}" cifar10-resnet50:1:ce,el_075 ;;
*:*)
    read -ra runs <<<"$part"
    grid "${jobs:-1}" "${runs[@]}" ;;
*)
    echo "$part: expected throughput, cifar100, cifar10, resnet50, quick, full or RECIPE:SEEDS[:ARM,...]" >&2
    exit 2 ;;
esac
