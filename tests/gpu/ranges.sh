#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a tool that draws a time line is told while a step is enqueued on a GPU: a range for every layer, by index, symbol and plugin,
# forward and backward. Skipped where there is no GPU.
. "$ST_SRCDIR/tests/train/train.sh"

sed '/^backend = cpu/d' micro.ini > m && mv m micro.ini
"$strata" check micro.ini > said 2>&1
grep -q '^backend    cuda' said || { sed -n 's/^backend  *\(.*\)/1..0 # SKIP \1/p' said | grep . || cat said; exit 0; }
listener=$ST_BUILDDIR/tests/gpu/.libs/listener.so
grep -q InitializeInjectionNvtx2 "$listener" || { echo '1..0 # SKIP built without nvtx3/nvToolsExt.h'; exit 0; }

listened() { NVTX_INJECTION64_PATH=$listener RANGES=$1 run "$2" --set run.steps=1 --set run.graph=no; }
must 'it trains under a tool' listened ranges a
for range in 'forward 0 G gated_delta_net' 'forward 1 - swiglu' 'forward 2 * attention' 'forward 3 - swiglu' \
    'backward 3 - swiglu' 'backward 2 * attention' 'backward 1 - swiglu' 'backward 0 G gated_delta_net'; do
    must "$range" grep -qxF "$range" ranges
done
backwards() { grep -E '^backward [0-9]' ranges | head -4 | cut -d' ' -f2 | tr -d '\n' | grep -qx 3210; }
must 'layers go back in their order' backwards
must 'every range ends' grep -qx '0 left open' ranges
tap_done
