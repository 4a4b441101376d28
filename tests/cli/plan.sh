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
must 'layers are drawn with their costs' exits 0 'layers.7                 - swiglu                267,392,000' \
    "$strata" plan qwen35-vl-27b
must 'those that come again are counted' exits 0 '  layers.8 to layers.127: the same 15 more times' "$strata" plan qwen35-vl-27b
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

# ---- ranks: one layer in f32, whose bytes are worked out here ----
cat > small.ini << 'EOF'
[run]
precision = f32
backend = cpu
steps = 1
[schedule]
lr = 1e-3
[stack]
pattern = -
hidden = 24
vocab = 100
[layer.-]
plugin = swiglu
width = 40
[batch]
tokens = 64
rows = 8
EOF
fill() { echo $((($1 + $2 - 1) / $2 * $2)); } # N UNIT: up to a multiple
all=0 # embedding, norm, two matrices, norm, output; each starts at a multiple of 64 elements
for n in 2400 24 1920 960 24 2400; do all=$((all + $(fill $n 64))); done

# counts RANKS ZERO TEXT...: each is a line of the plan as JSON
counts() {
    "$strata" plan small.ini --ranks "$1" --set parallel.zero="$2" --json > said.json || return 1
    sed 's/^ *//; s/,$//' said.json > said.lines
    shift 2
    for text in "$@"; do grep -qxF -- "$text" said.lines || { cat said.json; echo "not said: $text"; return 1; }; done
}
for ranks in 1 2 4 8; do
    share=$(fill $(((all + ranks - 1) / ranks)) 64)
    must "$ranks ranks with zero = 0 have all of it each" counts $ranks 0 "\"ranks\": $ranks" "\"data\": $ranks" \
        '"rows": 8' "\"rank_rows\": $((8 / ranks))" "\"weights\": $((all * 4))" "\"gradients\": $((all * 4))" \
        "\"optimizer\": $((2 * all * 4))"
    must "$ranks ranks with zero = 1 have their shares of the state" counts $ranks 1 \
        "\"weights\": $((ranks * share * 4))" "\"gradients\": $((ranks * share * 4))" \
        "\"optimizer\": $((2 * share * 4))"
done
must 'shares of eight are not all full' test $((8 * share)) -gt $all
must 'with zero = 0 gradients are summed' counts 8 0 "\"all_reduce\": $((2 * 7 * all * 4 / 8)).0"
must 'with zero = 1 they are scattered, weights gathered, squares of the one group summed' counts 8 1 \
    "\"reduce_scatter\": $((7 * share * 4)).0" "\"all_gather\": $((7 * share * 4)).0" "\"all_reduce\": $((2 * 7 * 4 / 8)).0"
must_not 'so none are summed whole' 'not said' counts 8 1 "\"all_reduce\": $((2 * 7 * all * 4 / 8)).0"
# weights in bf16, with a master in f32
share=$(fill $(((all + 7) / 8)) 64)
sed 's/^precision = f32/precision = bf16/; s/^backend = cpu/backend = cuda/' small.ini > half.ini && mv small.ini f32.ini && mv half.ini small.ini
must 'in bf16 masters are shared out too, and half as much is gathered' counts 8 1 "\"weights\": $((8 * share * 2))" \
    "\"gradients\": $((8 * share * 4))" "\"optimizer\": $((3 * share * 4))" "\"all_gather\": $((7 * share * 2)).0" \
    "\"reduce_scatter\": $((7 * share * 4)).0"
printf '[optimizer]\nmoments = bf16\nmasters = none\n' >> small.ini
must 'or there are none, and moments in bf16' counts 8 1 "\"weights\": $((8 * share * 2))" \
    "\"gradients\": $((8 * share * 4))" "\"optimizer\": $((2 * share * 2))" "\"all_gather\": $((7 * share * 2)).0"
mv f32.ini small.ini

# the layer: norm and two matrices; the rest: embedding, norm, output
layer=0 rest=0
for n in 24 1920 960; do layer=$((layer + $(fill $n 64))); done
for n in 2400 24 2400; do rest=$((rest + $(fill $n 64))); done
layer=$(fill $(((layer + 7) / 8)) 64) rest=$(fill $(((rest + 7) / 8)) 64)
must 'with zero = 2 a layer keeps shares of its gradients' counts 8 2 "\"weights\": $((8 * (layer + rest) * 4))" \
    "\"gradients\": $(((layer + 8 * rest) * 4))" "\"optimizer\": $((2 * (layer + rest) * 4))" \
    "\"all_gather\": $((7 * (layer + rest) * 4)).0" "\"reduce_scatter\": $((7 * (layer + rest) * 4)).0"
must 'with zero = 3 of its weights too, gathered forward and backward' counts 8 3 "\"weights\": $(((layer + 8 * rest) * 4))" \
    "\"gradients\": $(((layer + 8 * rest) * 4))" "\"all_gather\": $((7 * (2 * layer + rest) * 4)).0"
must 'for every row of a rank' counts 2 3 '"rank_rows": 4' "\"all_gather\": $(((4 * 2 * $(fill $(((24 + 40 + 1920 + 960 + 1) / 2)) 64) +
    $(fill $(((2432 + 64 + 2432 + 1) / 2)) 64)) * 4)).0"
must 'a rank has its part of the work' sh -c '"$0" plan small.ini --json > one && "$0" plan small.ini --ranks 4 --json > four &&
    awk "/\"(step|rank)_flops\"/ { getline; gsub(/[^0-9.]/, \"\"); n[++k] = \$0 + 0 }
        END { exit !(k == 4 && n[1] == n[2] && n[1] == n[3] && n[1] == 4 * n[4] && n[4] > 0) }" one four' "$strata"
columns() { printf '  %-24s' "$1"; shift; printf ' %22s' "$@"; }
must 'several numbers of ranks stand in one table' exits 0 "$(columns ranks 1 2 8)" "$strata" plan small.ini --ranks 1,2,8
must 'with rows' exits 0 "$(columns 'rows of a rank' 8 4 1)" "$strata" plan small.ini --ranks 1,2 --ranks 8
must 'the backend is told as check tells it' sh -c 'test "$("$0" plan small.ini --ranks 1,2 | grep "^backend")" = \
    "$("$0" check small.ini --set dataset.train.plugin=mock --set dataset.train.vocab=100 | grep "^backend")"' "$strata"
must 'as JSON an array' exits 0 '"plans": [' "$strata" plan small.ini --ranks 1,8 --json
must 'of as many' sh -c 'test "$("$0" plan small.ini --ranks 1,2,8 --json | grep -c "\"memory_bytes\"")" = 3' "$strata"
largest() {
    small timeout 5 "$strata" plan qwen35-vl-397b-a17b --set run.backend=cpu --set batch.rows=4096 --ranks 1,8,64,512,4096 "$@"
}
must 'five plans of the largest model take seconds' exits 0 "$(columns 'rows of a rank' 4,096 512 64 8 1)" largest
must 'loads of experts are summed over ranks' exits 0 '  tokens all_reduce ' largest
must 'one rank sends nothing' exits 0 'none: one rank' "$strata" plan small.ini --ranks 1

# ---- what cannot be had ----
refused() { text=$1; shift; exits 1 "$text" "$strata" plan "$@"; }
must 'ranks that do not divide into the axes are refused with both numbers' refused \
    '[parallel] context = 1 x tensor = 4 do not divide 6 ranks' small.ini --ranks 6 --set parallel.tensor=4
must 'so are rows of a step that do not divide' refused 'rows = 8 do not divide over the 3 ranks of group data' \
    small.ini --ranks 1,3
must 'a cut of layers is refused with all that lack it' refused \
    '[parallel] tensor = 2: ST_CAP_TENSOR lacked by swiglu of [layer.-], lm of [head.lm]' \
    small.ini --ranks 8 --set parallel.tensor=2
must 'so is one of rows' refused \
    '[parallel] context = 2: ST_CAP_CONTEXT lacked by lm of [head.lm]' \
    small.ini --ranks 8 --set parallel.context=2
must 'experts are not shared out yet' refused '[parallel] expert = 8: ST_CAP_EXPERT lacked by moe of [layer.E]' \
    qwen35-vl-35b-a3b --ranks 8 --set parallel.expert=8
must 'no run has more ranks than one' exits 1 'comm self joins 1 rank' \
    "$strata" check qwen35-vl-35b-a3b --set parallel.expert=2
for bad in many 0 -1 "1," ,1 1,,2 1x 2000000 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17; do
    must "--ranks $bad is wrong usage" exits 2 "--ranks $bad: numbers from 1" "$strata" plan small.ini --ranks "$bad"
done
must 'no spec is wrong usage' exits 2 'one spec is needed' "$strata" plan

# ---- names that JSON cannot hold as they are ----
odd=$(printf 'caf\351 "\\n.ini')
cp small.ini "$odd"
must 'a spec whose name is not UTF-8 is planned as JSON too' exits 0 '"spec": "caf? \"\\n.ini"' \
    env LC_ALL=C "$strata" plan "$odd" --json
odd=$(printf 'pl\351')
mkdir "$odd" && cp "$ST_BUILDDIR/tests/plugin/.libs/fix_good.so" "$odd/a.so"
must 'and a plugin in such a folder told' exits 0 '/pl?/a.so"' \
    env LC_ALL=C "$strata" inspect --format json "$PWD/$odd/a.so"
tap_done
