#!/usr/bin/env bash
# Robustness on MNIST: trains, attacks and collects the recipes mnist-attack, mnist-adversarial-training and
# mnist-autoattack. Run it again after an interruption: what is finished is not done twice.
#
#   benchmarks/robust_gpu.sh --data ~/data --out runs/robust --results results
#
#   --data DIR        the data directory (default: ENCOURAGING_DATA)
#   --out DIR         run directories, and timings.txt (default: runs/robust)
#   --results DIR     the folder for the records (default: OUT/records)
#   --device NAME     cuda, cpu or auto (default: auto)
#   --jobs N          runs side by side (default: 8)
#   --seeds N         seeds of mnist-attack (default: 8)
#   --training-seeds N    seeds of mnist-adversarial-training (default: 5)
#   --judged-seeds N  seeds of mnist-autoattack (default: 3)
#   --examples N      only the first test images for FGSM and PGD (default: all)
#   --judged N        test images for AutoAttack (default: 1000)
#   --steps N         stop every training after N updates (default: the recipe's 5 epochs)
#   --eps LIST, --eps-l2 LIST    other epsilons than the paper's
#   --set KEY=VALUE   override a setting of the recipes; may be repeated
#   --only STEP       attack, training or autoattack; may be repeated (default: all three)
#   --python PROGRAM  (default: python)
set -euo pipefail

data="" out=runs/robust results="" device=auto jobs=8 python=python
seeds=8 training_seeds=5 judged_seeds=3 judged=1000
examples=() settings=() eps=() only=()
while (($#)); do
    case "$1" in
        --data) data=$2 ;;
        --out) out=$2 ;;
        --results) results=$2 ;;
        --device) device=$2 ;;
        --jobs) jobs=$2 ;;
        --seeds) seeds=$2 ;;
        --training-seeds) training_seeds=$2 ;;
        --judged-seeds) judged_seeds=$2 ;;
        --examples) examples=(--examples "$2") ;;
        --judged) judged=$2 ;;
        --steps) settings+=(--set "train.max_steps=$2") ;;
        --set) settings+=(--set "$2") ;;
        --eps) eps+=(--eps "$2") ;;
        --eps-l2) eps+=(--eps-l2 "$2") ;;
        --only) only+=("$2") ;;
        --python) python=$2 ;;
        -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
        *) echo "$0: unknown option $1; see --help" >&2; exit 2 ;;
    esac
    shift 2
done
((${#only[@]})) || only=(attack training autoattack)
results=${results:-$out/records}
export PYTHONPATH="$(cd "$(dirname "$0")/.." && pwd)/src${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$out"
where=(--device "$device")
[[ -z $data ]] || where+=(--data "$data")

# The words of a step and the command: runs it, and writes down how long it took.
timed() {
    local words=$1 start=$SECONDS
    shift
    echo "== $words"
    "$@"
    printf '%6d s  %s\n' $((SECONDS - start)) "$words" | tee -a "$out/timings.txt"
}

encouraging() { "$python" -m encouraging "$@"; }

train() {  # recipe, seeds
    timed "train $1, $2 seeds" encouraging run "$1" --seeds "$2" --out "$out" --jobs "$jobs" "${where[@]}" \
        "${settings[@]}"
}

attack() {  # words, recipe, options of the command
    local words=$1 recipe=$2
    shift 2
    timed "attack $recipe: $words" encouraging attack "$out/$recipe" --jobs "$jobs" "${where[@]}" "${eps[@]}" "$@"
}

finished=()
for step in "${only[@]}"; do
    case "$step" in
        attack)
            recipe=mnist-attack
            train $recipe "$seeds"
            attack "FGSM and PGD" $recipe "${examples[@]}"
            ;;
        training)
            recipe=mnist-adversarial-training
            train $recipe "$training_seeds"
            attack "FGSM and PGD" $recipe "${examples[@]}"
            ;;
        autoattack)
            recipe=mnist-autoattack
            train $recipe "$judged_seeds"
            attack "FGSM, PGD and AutoAttack" $recipe --autoattack --examples "$judged"
            ;;
        *) echo "$0: --only $step: expected attack, training or autoattack" >&2; exit 2 ;;
    esac
    timed "collect $recipe" encouraging collect "$out/$recipe" -o "$results"
    finished+=("$out/$recipe")
done
timed "report" encouraging report "${finished[@]}" -o "$out/report.html"
echo "== timings so far"
cat "$out/timings.txt"
