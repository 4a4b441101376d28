#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Holds a folder of odd and hostile files against what tests/cases says of them: manifest.csv, whose first two columns are
# file and kind, and the files below it. Prints the cases that came out otherwise, and how many of how many came out right.
#
# usage: tools/check_cases.sh DIR [BUILD]    BUILD: where make was run, with `make check` or `make tests/cases/cases`;
#                                            default: the current folder
[ $# = 1 ] || [ $# = 2 ] || { sed -n '/^# usage/,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
ST_SRCDIR=$(cd "$(dirname "$0")/.." && pwd) || exit 2
ST_BUILDDIR=$(cd "${2:-.}" && pwd) || exit 2
program=$ST_BUILDDIR/tests/cases/cases
[ -x "$program" ] || { echo "there is no $program: run make tests/cases/cases there" >&2; exit 2; }
[ -f "$1/manifest.csv" ] || { echo "there is no $1/manifest.csv" >&2; exit 2; }
STRATA_PLUGIN_PATH_ONLY=$ST_SRCDIR/registry:$ST_BUILDDIR/plugins/.libs
CMOCKA_MESSAGE_OUTPUT=TAP OMP_WAIT_POLICY=passive OPENBLAS_NUM_THREADS=1
export ST_SRCDIR ST_BUILDDIR STRATA_PLUGIN_PATH_ONLY CMOCKA_MESSAGE_OUTPUT OMP_WAIT_POLICY OPENBLAS_NUM_THREADS

said=$("$program" check "$1" 2>&1)
status=$?
printf '%s\n' "$said" | grep -v -e '^ok' -e '^1\.\.' | sed 's/^# //'
exit $status
