#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_kernels.sh [BUILD] - the plugins' CUDA kernels against their CPU kernels, then their speed, on a machine with a GPU. BUILD:
# a folder configured with CUDA in which `make && make check TESTS=` was run [.]. Ends with the number of programs that failed.
ST_BUILDDIR=$(cd "${1:-.}" && pwd) || exit 1
export ST_BUILDDIR
failed=0
for program in test_wgmma test_gdn_kernels test_moe_kernels test_muon_kernels test_position_kernels speed_gdn; do
    echo "== $program"
    "$ST_BUILDDIR/tests/gpu/$program" || failed=$((failed + 1))
done
exit $failed
