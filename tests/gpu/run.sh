#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every check that needs a GPU, in a build folder that was configured with CUDA: sh SRC/tests/gpu/run.sh [BUILD]
# Prints a table of the ops (error against the cpu in f64, milliseconds, rates), then the same of the layers' kernels.
set -u
ST_BUILDDIR=${1:-$PWD}
ST_BUILDDIR=$(cd "$ST_BUILDDIR" && pwd) || exit 2
export ST_BUILDDIR CMOCKA_MESSAGE_OUTPUT=TAP OPENBLAS_NUM_THREADS=1
nvidia-smi --query-gpu=name,driver_version,clocks.sm,memory.used --format=csv,noheader 2>/dev/null | sed 's/^/# /'
status=0
for test in adamw attention loss ops; do
    program=$ST_BUILDDIR/tests/gpu/test_$test
    if [ -x "$program" ]; then
        "$program" || status=1
    else
        echo "$program is missing: make plugins/cuda.la plugins/cuda-cuda.la plugins/cpu.la tests/gpu/test_$test" >&2
        status=1
    fi
done
"$ST_BUILDDIR/tests/gpu/test_loss" --times || status=1
sh "$(dirname "$0")/run_kernels.sh" "$ST_BUILDDIR" || status=1
exit $status
