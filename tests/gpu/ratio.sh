#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sh tests/gpu/ratio.sh SPEC [SEQUENCES] [LENGTH] - a training step of SPEC by strata and by HuggingFace transformers, one after the
# other on this GPU, and how many times as many tokens a second strata does. strata: AdamW with f32 masters and moments; the library:
# bf16 ones. STRATA names the program, PYTHON one with torch and transformers (flash-linear-attention is used if it has it).
set -eu
spec=$1 sequences=${2:-4} length=${3:-4096}
strata=${STRATA:-strata} python=${PYTHON:-python3} here=$(dirname "$0") out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
tokens=$((sequences * length))
"$strata" bench "$spec" --json --warmup 3 --steps 20 --set run.backend=cuda --set run.precision=bf16 --set stack.mtp_depths=0 \
    --set batch.rows=1 --set batch.tokens=$tokens --set batch.sequences="$sequences" --set batch.max_len="$length" \
    --set batch.images=1 --set batch.patches=64 --set dataset.train.min_tokens="$length" \
    --set dataset.train.max_tokens="$length" > "$out/own"
"$strata" check --explain --set stack.mtp_depths=0 "$spec" > "$out/spec"
"$python" "$here/peer_step.py" "$sequences" "$length" < "$out/spec" > "$out/peer"
"$python" - "$out/own" "$out/peer" << 'END'
import json, sys
own, peer = (json.load(open(f)) for f in sys.argv[1:])
a, b = own["tokens_per_second"], peer["tokens_per_second"]
print(f"strata {a:,.0f} tokens/s, transformers ({peer['delta_rule']}) {b:,.0f} tokens/s in {peer['gib']} GiB: {a / b:.2f} times")
END
