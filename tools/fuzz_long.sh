#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz_long.sh [SECONDS [JOBS]]: in a configured build folder, every fuzz target for SECONDS (600), JOBS (2) at a time,
# behind all other work of the machine. The lines it ends with are those of docs/testing.md.
set -eu
nice -n 10 make fuzz FUZZ_SECONDS="${1:-600}" FUZZ_JOBS="${2:-2}"
echo
cat fuzz/log/*.line
