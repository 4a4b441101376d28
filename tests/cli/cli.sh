# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Sourced by the tests of this folder.
. "$ST_SRCDIR/tests/build/tap.sh"
strata=$ST_BUILDDIR/strata

# exits CODE TEXT COMMAND...: the command ends with CODE, and TEXT is in what it prints
exits() {
    want=$1 text=$2
    shift 2
    "$@" > "$scratch/said" 2>&1
    got=$?
    cat "$scratch/said"
    [ $got = "$want" ] || { echo "exit status $got, it should be $want"; return 1; }
    grep -qF -- "$text" "$scratch/said" || { echo "this should have been printed: $text"; return 1; }
}
