#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh SECONDS JOBS TARGET...: runs fuzz targets that `make fuzz-build` made below fuzz/, JOBS at a time, each for
# SECONDS, and prints a line for each. Fails when one of them found a fault; the input is then in fuzz/faults.
# The corpus of a target grows in fuzz/corpus from run to run; the seeds are made anew.
set -eu
seconds=$1 jobs=$2
shift 2
top=$PWD/fuzz
mkdir -p "$top/corpus" "$top/faults" "$top/log"
sh "$ST_SRCDIR/tests/fuzz/seeds.sh" "$top/seeds"
scratch=${TMPDIR:-/tmp}
[ ! -w /dev/shm ] || scratch=/dev/shm # each input becomes a file
export FUZZ_TOKENIZER="$ST_SRCDIR/tests/golden/tokenizer/tokenizer.json"

one() {
    name=$1
    FUZZ_DIR=$(mktemp -d "$scratch/strata-fuzz-XXXXXX")
    export FUZZ_DIR
    mkdir -p "$top/corpus/$name"
    status=0
    "$top/fuzz_$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=1500 -max_len=16384 -print_final_stats=1 \
        -artifact_prefix="$top/faults/$name-" "$top/corpus/$name" "$top/seeds/$name" \
        > "$top/log/$name" 2>&1 || status=$?
    rm -rf "$FUZZ_DIR"
    awk -v name="$name" -v status="$status" '
        /^stat::number_of_executed_units/ { runs = $2 }
        /^stat::average_exec_per_sec/     { rate = $2 }
        /^stat::peak_rss_mb/              { memory = $2 }
        / cov: / { for (i = 1; i < NF; i++) { if ($i == "cov:") edges = $(i + 1); if ($i == "corp:") inputs = $(i + 1) } }
        END { printf "%-12s %10d inputs tried, %6d a second, %5d edges, corpus %-12s %4d MB  %s\n", name, runs, rate, edges,
                     inputs, memory, status == 0 ? "clean" : "FAULT, see fuzz/log/" name }' "$top/log/$name" |
        tee "$top/log/$name.line"
    return $status
}

pids='' running=0 failed=0
for target; do
    one "$target" &
    pids="$pids $!"
    running=$((running + 1))
    if [ $running -ge "$jobs" ]; then
        for pid in $pids; do wait "$pid" || failed=1; done
        pids='' running=0
    fi
done
for pid in $pids; do wait "$pid" || failed=1; done
exit $failed
