#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make check-valgrind: unit tests that are quick, and three steps of a small model on one thread, under valgrind. Any
# invalid access, any value used before it is set and any block that is lost is a fault.
# VALGRIND_TESTS names the programs.
. "$ST_SRCDIR/tests/train/train.sh"

command -v valgrind > /dev/null || { echo 'valgrind is not here (on Debian: apt-get install valgrind)' >&2; exit 1; }
[ -z "${VALGRIND_TESTS:-}" ] && { echo 'no tests named' >&2; exit 1; }
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

# clean COMMAND...: without a fault; modules are never unloaded, so what they hold is still reachable
clean() {
    "$ST_BUILDDIR/libtool" --mode=execute valgrind --quiet --error-exitcode=9 --leak-check=full \
        --errors-for-leak-kinds=definite,indirect --show-leak-kinds=definite,indirect --num-callers=24 \
        --suppressions="$ST_SRCDIR/tests/valgrind.supp" "$@"
}

for test in $VALGRIND_TESTS; do must "$test" clean "$ST_BUILDDIR/$test"; done
must 'three steps, evaluated and kept' clean "$strata" train micro.ini -o run --set run.steps=3 --set run.threads=1 --set data.prefetch=no \
    --set eval.every=3 --set checkpoint.every=3
must 'a step more, from what was kept' clean "$strata" train micro.ini -o run --resume --set run.steps=4 --set run.threads=1 --set data.prefetch=no
tap_done
