#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No line of C or CUDA is longer than CONTRIBUTING.md allows, and no file than 600 lines.
. "$ST_SRCDIR/tests/build/tap.sh"

sources() { find "$ST_SRCDIR/framework" "$ST_SRCDIR/plugins" "$ST_SRCDIR/tests" -name '*.[ch]' -o -name '*.cu' | tr '\n' '\0'; }
# narrow, short: file names come on the standard input, and what is too long is printed
narrow() { xargs -0 awk 'length > 132 { print FILENAME ":" FNR ": " length " columns"; bad = 1 } END { exit bad }'; }
short() { xargs -0 awk 'FNR == 601 { print FILENAME " has more than 600 lines"; bad = 1 } END { exit bad }'; }
all() { sources | "$1"; }
one() { printf '%s\0' "$scratch/long.c" | "$1"; }

must 'there are sources' test "$(sources | tr '\0' '\n' | wc -l)" -gt 300
must 'no line is too long' all narrow
must 'no file is' all short
printf '%0133d\n' 0 > "$scratch/long.c"
must_not 'a line that is too long is found' '133 columns' one narrow
yes | head -n 601 > "$scratch/long.c"
must_not 'so is a file' 'has more than 600 lines' one short
tap_done
