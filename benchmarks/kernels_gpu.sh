#!/usr/bin/env bash
# All that is to be known of the kernels on one GPU, in nine minutes: are they right, what do they cost, is any slower.
#
#     benchmarks/kernels_gpu.sh OUT [SECONDS] [JOBS]
#
# In this order, each within its share of SECONDS (default 540), each result written to OUT as soon as it is there:
#
#     check-I.txt             all checks of check_gpu*.py, in JOBS processes (default 15), two minutes (CHECK_SECONDS at most,
#                             default 150, or 420 with ONLY=checks)
#     host.json, host.txt     the host's time per path and torch's cross-entropy in turn, with all launches
#     ends.json, ends.txt     rows of float32 that are not aligned: element by element, or in vectors with two ends
#     bench.json, compare.txt our times at the benchmark's shapes, and the comparison with results/bench/h200.json; what
#                             seems slower is measured again at the end (again.json), when the GPU has another clock
#     matrix-I.json           every argument beside torch, in PARTS parts (default 3); JOBS processes compile ahead of
#                             the timing, so that few large parts take less time than many small ones
#     random-S.json           calls drawn at random, seeds from SEED on (default: three fresh ones)
#     matrix.json             what there is of the parts, merged; summary.txt: one line per result
#
# All of it takes about 700 seconds on an H200 with 16 cores. What cannot end before SECONDS is not begun.
# Whoever cuts it off keeps what was written until then. The same command continues: a result that is complete is not
# measured again. DRY_RUN=1 prints the commands instead. Compiled kernels are shared through TRITON_CACHE_DIR.
# ONLY=checks ends after the checks and compiles what is timed later: both may share the GPU with other work. quiet_gpu.py
# suspends that work for the times.
set -uo pipefail
out=${1:?OUT} seconds=${2:-540} jobs=${3:-15}
check_seconds=${CHECK_SECONDS:-$([ "${ONLY:-}" = checks ] && echo 420 || echo 150)}
parts=${PARTS:-3} draws=${DRAWS:-40} seed=${SEED:-$(($(date +%s) % 100000))}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
export PYTHONPATH="$here/../src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
export TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-/tmp/kernels-gpu/triton}
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-/tmp/kernels-gpu/inductor}
# Every process compiles for itself: pools of compilers of each would be hundreds of processes.
export TORCHINDUCTOR_COMPILE_THREADS=1
child=
mkdir -p "$out"

# within NEEDS LIMIT NAME COMMAND...: run it for at most LIMIT seconds and until the end of all, with its words in
# NAME.txt; not at all where fewer than NEEDS are left.
within() {
    local needs=$1 limit=$2 name=$3 left=$((seconds - SECONDS)) start=$SECONDS status=0
    shift 3
    if [ -n "${DRY_RUN:-}" ]; then
        echo "$name ($limit s): $*"
        return 0
    fi
    if [ "$left" -lt "$needs" ]; then
        echo "$name: no time left"
        return 1
    fi
    timeout --kill-after=5 "$((limit < left ? limit : left))" "$@" >"$out/$name.txt" 2>&1 &
    child=$!  # in the background, so that a signal need not wait for its end
    wait "$child" || status=$?
    echo "$name: status $status after $((SECONDS - start)) s, at $SECONDS s"
    return "$status"
}

host=("$python" "$here/host_time.py" --cuda --shape 65536x1000)
ends=("$python" "$here/ends_gpu.py")
bench=("$python" -m encouraging bench --only ours)
# More processes than that would not find the memory for their largest cases at once.
compilers=$((jobs < 14 ? jobs : 14))

# A record that was measured to its end; bench writes the worst ratio last.
complete() { [ -f "$1" ] && grep -q '"worst_ratio"' "$1"; }

checks() {
    local i pids=()
    for ((i = 1; i <= jobs; i++)); do
        [ -f "$out/check-$i.txt" ] && grep -q "^all parts ran" "$out/check-$i.txt" && continue
        within "${NEEDS:-20}" "$check_seconds" "check-$i" bash -c '"$0" "$1/check_gpu_all.py" --part "$2"; status=$?
            echo "all parts ran: $status"; exit $status' \
            "$python" "$here" "$i/$jobs" &
        pids+=($!)
    done
    # What is timed alone afterwards is compiled beside the checks.
    [ -f "$out/host.json" ] || { within "${NEEDS:-20}" 150 warm-host "${host[@]}" --repeats 1 & pids+=($!); }
    [ -f "$out/ends.json" ] || { within "${NEEDS:-20}" 150 warm-ends "${ends[@]}" --seconds 0.001 & pids+=($!); }
    [ -s "$out/compare.txt" ] || { within "${NEEDS:-20}" 150 warm-bench "${bench[@]}" --seconds 0.01 & pids+=($!); }
    [ "${#pids[@]}" -eq 0 ] || wait "${pids[@]}"
}

matrix() {
    local i
    for ((i = 1; i <= parts; i++)); do
        complete "$out/matrix-$i.json" || within "${NEEDS:-90}" 200 "matrix-$i" "$python" -m encouraging bench --matrix \
            --part "$i/$parts" --jobs "$compilers" --seconds 0.06 --out "$out/matrix-$i.json"
    done
}

drawn() {  # how many seeds are complete
    local file count=0
    for file in "$out"/random-*.json; do complete "$file" && count=$((count + 1)); done
    echo "$count"
}

compared() {
    within 5 20 compare "$python" -m encouraging bench \
        --compare "$here/../results/bench/h200.json" "$out/bench.json" "$@"
}

merged() {
    local files=("$out"/matrix-[0-9]*.json)
    [ -f "${files[0]}" ] || return 0
    local arguments=()
    for file in "${files[@]}"; do arguments+=(--merge "$file"); done
    # In a few seconds, also when the time is over.
    "$python" -m encouraging bench "${arguments[@]}" --out "$out/matrix.json" >"$out/merge.txt" 2>&1 ||
        tail -n 1 "$out/merge.txt"
}

summary() {
    {
        echo "checks: $(cat "$out"/check-*.txt 2>/dev/null | grep -c '^ok ') hold, $(
            cat "$out"/check-*.txt 2>/dev/null | grep -c '^FAIL') fail, $(
            cat "$out"/check-*.txt 2>/dev/null | grep -c '^all parts ran') of $jobs parts ran to their end"
        cat "$out"/check-*.txt 2>/dev/null | grep '^FAIL'
        [ -f "$out/host.txt" ] && cut -c 1-80 "$out/host.txt"
        [ -f "$out/ends.txt" ] && cat "$out/ends.txt"
        [ -f "$out/compare.txt" ] && { grep SLOWER "$out/compare.txt"; tail -n 1 "$out/compare.txt"; }
        [ -f "$out/merge.txt" ] && { head -n 8 "$out/merge.txt"; tail -n 1 "$out/merge.txt"; }
        for file in "$out"/random-*.json; do
            complete "$file" && echo "${file##*/}: $(tail -n 1 "${file%.json}.txt")"
        done
    } >"$out/summary.txt"
    cat "$out/summary.txt"
}
finish() {
    [ -n "${DRY_RUN:-}" ] && return
    merged
    summary
}
trap finish EXIT
trap 'kill $child 2>/dev/null; exit 143' TERM INT

checks
if [ "${ONLY:-}" = checks ]; then
    mkdir -p "$out/warm"
    for ((i = 1; i <= parts; i++)); do
        within "${NEEDS:-20}" 200 "warm/matrix-$i" "$python" -m encouraging bench --matrix --part "$i/$parts" \
            --jobs "$compilers" --seconds 0.001 --out "$out/warm/matrix-$i.json"
    done
    for ((i = seed; i < seed + 3; i++)); do
        within "${NEEDS:-20}" 120 "warm/random-$i" "$python" -m encouraging bench --random "$draws" --seed "$i" \
            --jobs "$compilers" --seconds 0.001 --out "$out/warm/random-$i.json"
    done
    exit 0
fi
[ -f "$out/host.json" ] || within "${NEEDS:-30}" 60 host "${host[@]}" --out "$out/host.json"
[ -f "$out/ends.json" ] || within "${NEEDS:-10}" 30 ends "${ends[@]}" --out "$out/ends.json"
if [ ! -s "$out/compare.txt" ]; then
    within "${NEEDS:-30}" 70 bench "${bench[@]}" --seconds 0.3 --out "$out/bench.json" && compared
fi
matrix
for ((i = seed; i < seed + 3; i++)); do
    [ "$(drawn)" -ge 3 ] && break
    within "${NEEDS:-60}" 120 "random-$i" "$python" -m encouraging bench --random "$draws" --seed "$i" --jobs "$compilers" \
        --seconds 0.06 --out "$out/random-$i.json"
done
if grep -qs SLOWER "$out/compare.txt" && [ ! -f "$out/again.json" ]; then
    within "${NEEDS:-30}" 70 again "${bench[@]}" --seconds 0.3 --out "$out/again.json" &&
        compared --again "$out/again.json"
fi
