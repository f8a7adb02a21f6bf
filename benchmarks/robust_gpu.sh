#!/usr/bin/env bash
# Robustness and out-of-distribution detection on one GPU: trains, attacks and collects. What is finished is not done
# twice: the same command continues after an interruption, or after --seconds.
#
#   benchmarks/robust_gpu.sh --data ~/data --out runs/robust --seconds 560 --only attack
#
#   --data DIR        the data directory (default: ENCOURAGING_DATA)
#   --out DIR         run directories, and timings.txt (default: runs/robust)
#   --results DIR     the folder for the records (default: OUT-records)
#   --seconds N       stop everything after N seconds and collect what there is (default: when all is done)
#   --only STEP       may be repeated (default: attack, training and autoattack)
#       attack        mnist-attack: the attack network under FGSM and PGD
#       training      mnist-adversarial-training: each model under the attack that it was trained with
#       autoattack    mnist-autoattack: FGSM, PGD and AutoAttack on a part of the test images
#       ood           mnist-ood: needs Fashion-MNIST and the test images of CIFAR-10
#       large-margin  mnist-large-margin-attack: the authors' attack on L-Softmax; PGD on a part of the test images
#       cifar         cifar10-attack: PGD at 1/255 to 8/255, AutoAttack at 8/255, on a part of the test images
#   --device NAME     cuda, cpu or auto (default: auto)
#   --jobs N          runs side by side (default: 8)
#   --seeds N         seeds of the recipe (default: 8 of attack, 5 of training, ood and large-margin, 3 of the others)
#   --examples N      only the first test images for FGSM and PGD (default: all; 1000 of large-margin, 500 of cifar)
#   --judged N        test images for AutoAttack (default: 1000; 500 of cifar)
#   --recorded DIR    with ood: train only what has no record in this folder, such as results
#   --steps N         stop every training after N updates (default: the recipe's epochs)
#   --eps LIST, --eps-l2 LIST    other epsilons than the step's
#   --set KEY=VALUE   override a setting of the recipes; may be repeated
#   --python PROGRAM  (default: python3)
set -euo pipefail

data="" out=runs/robust results="" device=auto jobs=8 python=python3 seconds=1000000000
seeds="" judged="" examples="" eps="" eps_l2="" recorded=""
settings=() only=()
while (($#)); do
    case "$1" in
        -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    esac
    (($# > 1)) || { echo "$0: $1 needs a value; see --help" >&2; exit 2; }
    case "$1" in
        --data) data=$2 ;;
        --out) out=$2 ;;
        --results) results=$2 ;;
        --seconds) seconds=$2 ;;
        --device) device=$2 ;;
        --jobs) jobs=$2 ;;
        --seeds) seeds=$2 ;;
        --examples) examples=$2 ;;
        --judged) judged=$2 ;;
        --steps) settings+=(--set "train.max_steps=$2") ;;
        --set) settings+=(--set "$2") ;;
        --recorded) recorded=$2 ;;
        --eps) eps=$2 ;;
        --eps-l2) eps_l2=$2 ;;
        --only) only+=("$2") ;;
        --python) python=$2 ;;
        *) echo "$0: unknown option $1; see --help" >&2; exit 2 ;;
    esac
    shift 2
done
((${#only[@]})) || only=(attack training autoattack)
for step in "${only[@]}"; do
    case "$step" in
        attack | training | autoattack | ood | large-margin | cifar) ;;
        *) echo "$0: --only $step: expected attack, training, autoattack, ood, large-margin or cifar" >&2; exit 2 ;;
    esac
done
out=${out%/} results=${results:-$out-records} data=${data:-${ENCOURAGING_DATA:?give --data}}
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/../src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
mkdir -p "$out"
source "$here/share_gpu.sh"
share_gpu "$python" "$device"

unfinished=0 failed=0 child=""
trap 'unfinished=1; [[ -z $child ]] || kill -TERM "$child" 2>/dev/null' TERM INT
# The words of a part and its command, which is asked to stop when the time is over; and how long it took. After a
# failure the others go on: a run that diverges keeps no other from being attacked.
timed() {
    local words=$1 start=$SECONDS left=$((seconds - SECONDS)) code=0
    shift
    if ((left <= 0)); then
        unfinished=1
        return
    fi
    echo "== $words"
    timeout --foreground --signal TERM "$left" "$@" &
    child=$!
    wait "$child" || code=$?
    while kill -0 "$child" 2>/dev/null; do  # a signal ends the first wait before its command has stopped
        code=0
        wait "$child" || code=$?
    done
    child=""
    printf '%6d s  %s\n' $((SECONDS - start)) "$words (exit $code)" | tee -a "$out/timings.txt"
    case $code in
        0) ;;
        124 | 130 | 143) unfinished=1 ;;
        *) failed=1 ;;
    esac
}

train() {  # recipe, seeds, further options of grid_gpu.py
    local left=$((seconds - SECONDS))
    ((unfinished)) || timed "train $1, ${seeds:-$2} seeds" "$python" "$here/grid_gpu.py" "$out" "$1:${seeds:-$2}" \
        --data "$data" --device "$device" --jobs "$jobs" --seconds $((left > 5 ? left - 5 : 1)) --lean \
        "${settings[@]}" "${@:3}"
}

attack() {  # words, epsilons (or "paper"), epsilons in L2 (or "paper"), run directories, --, options of the command
    local words=$1 near=${eps:-$2} far=${eps_l2:-$3} folders=() finished=()
    shift 3
    while [[ $1 != -- ]]; do
        folders+=("$1")
        [[ -z $(find "$1" -name final.json -print -quit 2>/dev/null) ]] || finished+=("$1")
        shift
    done
    shift
    # The command refuses a folder without a finished run: an arm that diverged would cost the other its attacks.
    ((${#finished[@]} == 0)) || folders=("${finished[@]}")
    [[ $near == paper ]] || set -- --eps "$near" "$@"
    [[ $far == paper ]] || set -- --eps-l2 "$far" "$@"
    ((unfinished)) || timed "attack $words" "$python" -m encouraging attack "${folders[@]}" --jobs "$jobs" \
        --threads 1 --device "$device" --data "$data" "$@"
}

for step in "${only[@]}"; do
    case "$step" in
        attack)
            recipe=mnist-attack
            train $recipe 8
            attack "$recipe: FGSM and PGD" paper paper "$out/$recipe" -- ${examples:+--examples "$examples"}
            ;;
        training)
            recipe=mnist-adversarial-training
            train $recipe 5
            all=(${examples:+--examples "$examples"})
            # The paper's attacks at all sizes of its table; those that the claims compare them with where they do.
            attack "$recipe: FGSM" paper 0 "$out/$recipe"/fgsm_{ce,el} -- "${all[@]}" --attack fgsm --attack fgsm_margin \
                --attack fgsm_dlr
            attack "$recipe: PGD" paper 0 "$out/$recipe"/pgd_{ce,el} -- "${all[@]}" --attack pgd
            attack "$recipe: PGD, scale-free" 0,0.1,0.2,0.3 0 "$out/$recipe"/pgd_{ce,el} -- "${all[@]}" \
                --attack pgd_margin --attack pgd_dlr
            attack "$recipe: PGD in L2" 0 paper "$out/$recipe"/pgd_l2_{ce,el} -- "${all[@]}" --attack pgd_l2_damped
            attack "$recipe: PGD in L2, scale-free" 0 0,0.3,1,3 "$out/$recipe"/pgd_l2_{ce,el} -- "${all[@]}" \
                --attack pgd_l2 --attack pgd_l2_margin --attack pgd_l2_dlr
            ;;
        autoattack)
            recipe=mnist-autoattack
            train $recipe 3
            attack "$recipe: FGSM, PGD and AutoAttack" paper paper "$out/$recipe" -- --examples "${judged:-1000}" \
                --autoattack
            ;;
        ood)
            recipe=mnist-ood
            train $recipe 5 ${recorded:+--recorded "$recorded"}
            ;;
        large-margin)
            recipe=mnist-large-margin-attack
            train $recipe 5
            attack "$recipe: FGSM" 0,0.05,0.1,0.2,0.3 0 "$out/$recipe" -- --attack fgsm_normalised --attack fgsm \
                --attack fgsm_margin --attack fgsm_dlr
            attack "$recipe: PGD" 0,0.05,0.1 0 "$out/$recipe" -- --examples "${examples:-1000}" --attack pgd \
                --attack pgd_margin --attack pgd_dlr
            ;;
        cifar)
            recipe=cifar10-attack
            train $recipe 3
            attack "$recipe: PGD" paper 0 "$out/$recipe" -- --examples "${examples:-500}" --attack pgd --attack pgd_margin \
                --attack pgd_dlr
            attack "$recipe: AutoAttack" 8/255 0 "$out/$recipe" -- --examples "${judged:-500}" --attack autoattack
            ;;
    esac
    if [[ -n $(find "$out/$recipe" -name final.json -print -quit 2>/dev/null) ]]; then
        "$python" -m encouraging collect "$out/$recipe" -o "$results" || failed=1
    fi
done
echo "== timings so far"
[[ ! -e $out/timings.txt ]] || cat "$out/timings.txt"
((failed == 0)) || { echo "something failed: see above"; exit 1; }
((unfinished == 0)) || { echo "the time is over: the same command continues"; exit 130; }
