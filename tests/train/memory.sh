#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the embedded example is planned to take, beside what the system says its process took at the most.
. "$ST_SRCDIR/tests/cli/cli.sh"
cd "$scratch" || exit 99

# run OUT OPTION...: a few steps, with little room for prepared samples, so that they fill it
run() {
    run_out=$1
    shift
    "$strata" train "$ST_SRCDIR/specs/receipts-tiny.ini" -o "$run_out" --set run.backend=cpu --set run.threads=2 --set data.cache=1MiB \
        --set eval.at_end=no --set eval.permute_media=no --set eval.show=0 "$@"
}

# figure LOG WORDS: the number in MiB that follows them
figure() { sed -n "s/.*$2 \([0-9.]*\).*/\1/p" "$1" | tail -n 1; }

# close_to LOG: the peak is within 5 % of the plan, plus the constant that the plan states
close_to() {
    peak=$(sed -n 's/.*memory \([0-9.]*\) MiB at the most.*/\1/p' "$1")
    all=$(sed -n 's/.*memory \([0-9.]*\) MiB planned.*/\1/p' "$1")
    constant=$(figure "$1" 'libraries and program about')
    echo "peak $peak, planned $all, of which constant $constant (MiB)"
    awk -v peak="$peak" -v all="$all" -v constant="$constant" 'BEGIN {
        planned = all - constant
        exit !(peak > 0.95 * planned && peak < 1.05 * planned + constant && constant > 0 && constant < 32)
    }'
}

if grep -q fsanitize=address "$ST_BUILDDIR/config.status"; then
    echo '1..0 # SKIP the address sanitizer takes memory of its own'
    exit 0
fi
must 'the example trains' run a --set run.steps=6
must 'and takes what was planned' close_to a/log
sed 's/memory [0-9.]* MiB planned/memory 30.0 MiB planned/' a/log > less.log
must_not 'a plan that is too small is found' 'planned 30.0' close_to less.log
sed 's/memory [0-9.]* MiB planned/memory 200.0 MiB planned/' a/log > more.log
must_not 'so is one that is too large' 'planned 200.0' close_to more.log
must 'plan states the constant' exits 0 'program and libraries                16,777,216' "$strata" plan receipts-tiny
must 'check adds the samples' exits 0 'prepared samples         2.0' "$strata" check receipts-tiny \
    --set data.cache=1MiB
"$strata" check receipts-tiny --set run.backend=cpu --set run.threads=2 --set data.cache=1MiB > checked
awk '/^memory / { on = 1; words = "memory " $2 " " $3 " planned: "; next }
    on && /^  libraries/ { print words "libraries and program about " $5 " " $6; exit }
    on { sub(/^ +/, ""); sub(/  +/, " "); words = words $0 "; " }' checked > words
must 'check and log tell the same, figure by figure' grep -qF "$(cat words)" a/log
must 'which are there' grep -q '; rows [1-9]' words
must 'large memory is in GiB' exits 0 "  gradients, optimizer     " "$strata" check qwen35-vl-27b
must 'as a whole and in parts' awk '/^memory/ { all = $2; unit = $3 } /^  (weights and|gradients|kept|rows|prepared)/ { sum += $NF }
    END { exit !(unit == "GiB" && sum > 0.99 * all && sum < 1.01 * all) }' "$scratch/said"
tap_done
