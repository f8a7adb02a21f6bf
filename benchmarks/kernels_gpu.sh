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
#                             seems slower is measured again at the end (bench-again.json), when the GPU has another clock
#     matrix.json             every argument beside torch, by matrix_gpu.py: JOBS processes compile all of it before
#                             anything is timed
#     random-S.json           DRAWS calls (default 40) drawn at random, SEEDS seeds (default 3) from SEED on (default: fresh
#                             ones), by the same call of matrix_gpu.py
#     ways.json, ways.txt     ways of the kernels that can be switched: ways_gpu.py fit, later and sums
#     summary.txt             one line per result
#
# All but the ways takes about 700 seconds on an H200 with 16 cores. What cannot end before SECONDS is not begun.
# Whoever cuts it off keeps what was written until then. The same command continues: a case that was timed is not timed
# again. DRY_RUN=1 prints the commands instead. Compiled kernels are shared through TRITON_CACHE_DIR.
# Checks and compiling may share the GPU with other work, the times may not: lines that begin with "measuring" and
# "measured" stand around them, for
#
#     python benchmarks/quiet_gpu.py grid_gpu.py --from measuring --until measured -- benchmarks/kernels_gpu.sh OUT
#
# ONLY=checks ends after the checks, ONLY=times leaves them out.
set -uo pipefail
out=${1:?OUT} seconds=${2:-540} jobs=${3:-15}
check_seconds=${CHECK_SECONDS:-$([ "${ONLY:-}" = checks ] && echo 420 || echo 150)}
draws=${DRAWS:-40} n_seeds=${SEEDS:-3} seed=${SEED:-$(($(date +%s) % 100000))}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
export PYTHONPATH="$here/../src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
export TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-/tmp/kernels-gpu/triton}
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-/tmp/kernels-gpu/inductor}
# Every process compiles for itself: pools of compilers of each would be hundreds of processes.
export TORCHINDUCTOR_COMPILE_THREADS=1
child=
exec 3>&1
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
ways=("$python" "$here/ways_gpu.py" fit later sums)
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
    warm
    [ "${#pids[@]}" -eq 0 ] || wait "${pids[@]}"
}

# What is timed alone afterwards is compiled beside the checks; adds to pids.
warm() {
    [ -f "$out/host.json" ] || { within "${NEEDS:-20}" 150 warm-host "${host[@]}" --repeats 1 & pids+=($!); }
    [ -f "$out/ends.json" ] || { within "${NEEDS:-20}" 150 warm-ends "${ends[@]}" --seconds 0.001 & pids+=($!); }
    [ -s "$out/compare.txt" ] || { within "${NEEDS:-20}" 150 warm-bench "${bench[@]}" --seconds 0.01 & pids+=($!); }
}

# All that is timed against torch and not complete yet, in one call. Its lines go to matrix.txt, and those for
# quiet_gpu.py also to the output of this script.
matrix() {
    local file number seeds=() rest=()
    for file in "$out"/random-*.json; do  # what a cut has left comes first
        number=${file##*/random-}
        [ -f "$file" ] && ! complete "$file" && seeds+=("${number%.json}")
    done
    for ((number = seed; $(drawn) + ${#seeds[@]} < n_seeds; number++)); do
        [ -f "$out/random-$number.json" ] || seeds+=("$number")
    done
    if complete "$out/matrix.json"; then
        [ "${#seeds[@]}" -eq 0 ] && return
        rest=(--no-matrix)
    fi
    within "${NEEDS:-90}" "$seconds" matrix \
        bash -o pipefail -c '"$@" 2>&1 | tee >(grep --line-buffered "^measur" >&3)' lines \
        "$python" "$here/matrix_gpu.py" "$out" --continue --seeds "$(IFS=,; echo "${seeds[*]}")" --draws "$draws" \
        --jobs "$compilers" "${rest[@]}"
}

# Eight processes compile what one then times.
ways() {
    local i pids=()
    [ -f "$out/ways.json" ] && return
    for i in 1 2 3 4 5 6 7 8; do
        within "${NEEDS:-120}" 120 "warm-ways-$i" "${ways[@]}" --seconds 0.001 --share "$i/8" &
        pids+=($!)
    done
    wait "${pids[@]}"
    echo "measuring ways"
    within "${NEEDS:-60}" 120 ways "${ways[@]}" --seconds 0.2 --out "$out/ways.json"
    echo "measured ways"
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

summary() {
    {
        echo "checks: $(cat "$out"/check-*.txt 2>/dev/null | grep -c '^ok ') hold, $(
            cat "$out"/check-*.txt 2>/dev/null | grep -c '^FAIL') fail, $(
            cat "$out"/check-*.txt 2>/dev/null | grep -c '^all parts ran') of $jobs parts ran to their end"
        cat "$out"/check-*.txt 2>/dev/null | grep '^FAIL'
        [ -f "$out/host.txt" ] && cut -c 1-80 "$out/host.txt"
        [ -f "$out/ends.txt" ] && cat "$out/ends.txt"
        [ -f "$out/ways.txt" ] && cat "$out/ways.txt"
        [ -f "$out/compare.txt" ] && { grep SLOWER "$out/compare.txt"; tail -n 1 "$out/compare.txt"; }
        "$python" "$here/matrix_gpu.py" "$out" --show  # in a few seconds, also when the time is over
    } >"$out/summary.txt"
    cat "$out/summary.txt"
}
finish() {
    [ -n "${DRY_RUN:-}" ] && return
    summary
}
trap finish EXIT
trap 'kill $child 2>/dev/null; exit 143' TERM INT

if [ "${ONLY:-}" = times ]; then
    pids=()
    warm
    [ "${#pids[@]}" -eq 0 ] || wait "${pids[@]}"
else
    checks
fi
[ "${ONLY:-}" = checks ] && exit 0
echo "measuring host, ends and bench"
[ -f "$out/host.json" ] || within "${NEEDS:-30}" 60 host "${host[@]}" --out "$out/host.json"
[ -f "$out/ends.json" ] || within "${NEEDS:-10}" 30 ends "${ends[@]}" --out "$out/ends.json"
if [ ! -s "$out/compare.txt" ]; then
    within "${NEEDS:-30}" 70 bench "${bench[@]}" --seconds 0.3 --out "$out/bench.json" && compared
fi
echo "measured host, ends and bench"
matrix
echo "measured against torch"  # also where it was cut
if grep -qs SLOWER "$out/compare.txt" && [ ! -f "$out/bench-again.json" ]; then
    echo "measuring bench again"
    within "${NEEDS:-30}" 70 bench-again "${bench[@]}" --seconds 0.3 --out "$out/bench-again.json" &&
        compared --again "$out/bench-again.json"
    echo "measured bench again"
fi
ways
