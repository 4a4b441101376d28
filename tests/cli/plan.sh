#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `strata plan`: figures without data or weights, for models of any size.
. "$ST_SRCDIR/tests/cli/cli.sh"
cd "$scratch" || exit 99

# small COMMAND...: in the address space that a laptop can give; without the limit where the address sanitizer takes
# terabytes of addresses for itself
# shellcheck disable=SC3045 # dash has it
small() {
    if grep -q fsanitize=address "$ST_BUILDDIR/config.status"; then "$@"; else (ulimit -v 1048576 && exec "$@"); fi
}

must 'the largest model is planned in a GiB' exits 0 '403,397,928,944' small timeout 60 \
    "$strata" plan qwen35-vl-397b-a17b
must 'layers are drawn with their costs' exits 0 'layers.127               - swiglu                267,392,000' \
    "$strata" plan qwen35-vl-27b
must 'so are those of the depth' exits 0 'head.mtp.1.layers.0      * attention' "$strata" plan qwen35-vl-27b
# 16 rows of Megatron's figure for one sequence of 4096 tokens
must "FLOPs are Megatron's" exits 0 'as Megatron counts                  427,772,300,230,656' \
    "$strata" plan qwen35-vl-0.8b
must 'memory is told by kind' exits 0 'optimizer state' "$strata" plan qwen35-vl-0.8b
must 'as JSON' exits 0 '"megatron": 427772300230656.0' "$strata" plan qwen35-vl-0.8b --json
must 'with bytes' exits 0 '"total": ' "$strata" plan qwen35-vl-0.8b --json
must 'data need not be there' exits 0 'FLOPs of a step' "$strata" plan receipts-tiny \
    --set dataset.train.path=/nowhere --set tokenizer.path=/nowhere
must 'a wrong key is told' exits 1 'did you mean "hidden"?' "$strata" plan receipts-tiny --set stack.hiden=3
must 'more ranks than can train are refused' exits 1 'no plan of 8 ranks' "$strata" plan receipts-tiny --ranks 8
must 'one rank is not' exits 0 'none: one rank' "$strata" plan receipts-tiny --ranks 1
must 'a wrong number is wrong usage' exits 2 '--ranks many' "$strata" plan receipts-tiny --ranks many
must 'no spec is wrong usage' exits 2 'one spec is needed' "$strata" plan
tap_done
