# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Sourced by the tests of this folder: points of the test protocol, a scratch folder, compilers.
#
# A test takes ST_SRCDIR and ST_BUILDDIR from make check. "must COMMAND" and "must_not COMMAND" run a checker; what it prints is
# shown when the outcome is the wrong one. Every checker is also run on an input it has to refuse.

tap_count=0
tap_failed=0
scratch=$(mktemp -d "${TMPDIR:-/tmp}/strata-test.XXXXXX") || exit 99
trap 'rm -rf "$scratch"' EXIT
trap 'exit 99' INT TERM HUP

# tap_point STATUS NAME: one point; the text of a failure is read from $scratch/output
tap_point() {
    tap_count=$((tap_count + 1))
    if [ "$1" = 0 ]; then
        echo "ok $tap_count - $2"
    else
        echo "not ok $tap_count - $2"
        tap_failed=$((tap_failed + 1))
        sed 's/^/# /' "$scratch/output"
    fi
}

# must NAME COMMAND...: the command succeeds
must() {
    tap_name=$1
    shift
    "$@" > "$scratch/output" 2>&1
    tap_point $? "$tap_name"
}

# must_not NAME TEXT COMMAND...: the command fails, and TEXT is in what it says
must_not() {
    tap_name=$1 tap_text=$2
    shift 2
    if "$@" > "$scratch/output" 2>&1; then
        echo "this should have failed: $*" >> "$scratch/output"
        tap_point 1 "$tap_name"
    elif ! grep -qF -- "$tap_text" "$scratch/output"; then
        echo "this should have been in the message: $tap_text" >> "$scratch/output"
        tap_point 1 "$tap_name"
    else
        tap_point 0 "$tap_name"
    fi
}

tap_done() {
    echo "1..$tap_count"
    [ "$tap_failed" = 0 ]
}

# compilers NAME...: those that are there, each once
compilers() {
    for compiler in "$@"; do
        command -v "${compiler%% *}" > /dev/null && echo "$compiler"
    done | awk '!seen[$0]++'
}

# built_modules: the plugin modules of this build, one a line
built_modules() {
    find "$ST_BUILDDIR/plugins/.libs" -maxdepth 1 -name '*.so' 2> /dev/null | sort
}
