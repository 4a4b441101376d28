#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `strata check`: a good spec tells what it would train, a bad one all its mistakes; nothing is written.
. "$ST_SRCDIR/tests/cli/cli.sh"

cat > "$scratch/good.ini" << 'END'
[run]
steps = 20
precision = f32
[stack]
blocks = 4
hidden = 32
vocab = 64
[layer.G]
key_heads = 2
value_heads = 2
key_dim = 16
value_dim = 16
[layer.*]
heads = 2
kv_heads = 1
head_dim = 16
[layer.-]
width = 64
[position]
plugin = rope
[batch]
tokens = 128
[dataset.train]
plugin = mock
vocab = 64
[optimizer]
plugin = adamw
[schedule]
lr = 1e-3
END
good=$scratch/good.ini
cd "$scratch" || exit 99

must 'a good spec can train' exits 0 'can train' "$strata" check "$good"
must 'the pattern is expanded' exits 0 'G-G-G-*-' "$strata" check "$good"
must 'layers are named with their plugin' exits 0 'gated_delta_net' "$strata" check "$good"
must 'parameters are told by part' exits 0 'language' "$strata" check "$good"
must 'a value has its place' exits 0 "; $good:6" "$strata" check "$good" --explain
must 'an override has its place' exits 0 'hidden = 64                                      ; --set' \
    "$strata" check "$good" --explain --set stack.hidden=64
must 'a default is told' exits 0 '; default' "$strata" check "$good" --explain
must 'an embedded spec is found by name' exits 1 'name = receipts-tiny' "$strata" check receipts-tiny --explain \
    --set run.steps=x
must 'a spec that is nowhere is refused' exits 1 'there is no spec nowhere' "$strata" check nowhere
must 'all mistakes are told: the first' exits 1 '[schedule] lr = fast' "$strata" check "$good" \
    --set schedule.lr=fast --set stack.hiden=7 --set stack.blocks=0
must 'all mistakes are told: the second' exits 1 'did you mean "hidden"?' "$strata" check "$good" \
    --set schedule.lr=fast --set stack.hiden=7 --set stack.blocks=0
sed 's/^blocks = 4/pattern = G-Q/' "$good" > "$scratch/symbol.ini"
must 'a symbol that nobody claims is shown in its place' exits 1 "$scratch/symbol.ini:5:13: error: 'Q'" \
    "$strata" check "$scratch/symbol.ini"
mkdir "$scratch/abi"
printf '[manifest]\nformat = 1\n[plugin]\nname = fixture\nkind = layer\nmodule = %s\nabi = 1\nversion = 0.1\n' \
    "$ST_BUILDDIR/tests/plugin/.libs/fix_newer.so" > "$scratch/abi/fixture.ini"
must 'a module for another ABI is refused with both versions' exits 1 'plugin ABI 1.7, this host has 1.0' \
    "$strata" check "$good" --set "layer.-.plugin=fixture" --plugin-path "$scratch/abi"
cp -r "$scratch/abi" "$scratch/open" && chmod 777 "$scratch/open"
from_open() { "$strata" check "$good" --set "layer.-.plugin=fixture" --plugin-path "$scratch/$1"; }
must 'a plugin in a world-writable directory is not used' exits 1 'no layer plugin fixture' from_open open
must 'and the directory is named with the reason' exits 1 "$scratch/open is not searched: it is world-writable" \
    from_open open
must 'so is one that is not there' exits 1 'is not searched: it does not exist' from_open nowhere
sed 's/^format = 1/format = 2/' "$scratch/abi/fixture.ini" > later.ini
mkdir later && mv later.ini later/fixture.ini
must 'a manifest of a newer format is told' exits 1 'manifest format 2 is newer than 1' from_open later
must_not 'and not said to be set aside, for it is used' 'plugin ABI 1.7' \
    sh -c '"$0" check "$@" 2>&1 | tee all; grep -q "set aside" all' "$strata" "$good" --set "layer.-.plugin=fixture" \
    --plugin-path "$scratch/later"
sed 's/^steps = 20/&\nbackend = tpu/' "$good" > backend.ini
must 'a backend that is nowhere is shown in its place' exits 1 \
    'backend.ini:3:11: error: [run] there is no backend plugin tpu' "$strata" check backend.ini
must 'a plugin of [run] is no key beside its backend' exits 1 '[run] has no key "plugin"' "$strata" check "$good" \
    --set run.plugin=foo
sed 's/^\[schedule\]/[shedule]/; s/^\[layer\.-\]/[layers.-]/' "$good" > slips.ini
printf 'include = receipts-tiny\n[run]\nsteps = 50\n' > "$scratch/mine.ini"
must 'a spec that came with the program is included by its name' exits 0 'steps      50' "$strata" check "$scratch/mine.ini"
sed -i 's/receipts/receipt/' "$scratch/mine.ini"
must 'one misspelt is told, and which was meant' exits 1 'did you mean receipts-tiny, which came with the program?' \
    "$strata" check "$scratch/mine.ini"
must 'so is one on the command line' exits 1 'did you mean receipts-tiny?' "$strata" check receipt-tiny
must 'a section misspelt is told beside what lacks in it' exits 1 'did you mean [schedule]?' "$strata" check slips.ini
must 'each of them' exits 1 'did you mean [layer.-]?' "$strata" check slips.ini
must 'and what a symbol needs, at the symbol' exits 1 'slips.ini:5:10: error: [layer.-] needs' "$strata" check slips.ini
must 'a precision does not hide a backend' exits 1 'there is no backend plugin tpu' "$strata" check "$good" \
    --set run.backend=tpu --set run.precision=fp16
must 'and in an override' exits 1 '--set: error: [run] there is no backend plugin tpu' "$strata" check "$good" \
    --set run.backend=tpu
for key in run.backend optimizer.plugin dataset.train.plugin; do
    must "an empty $key is told as that" exits 1 'plugin is named' "$strata" check "$good" --set $key=
done
for symbol in '' '(' ')' / '|' -- é; do
    must "blocks are not made with '$symbol'" exits 1 "full = *, mlp = $symbol: one symbol each" \
        "$strata" check "$good" --set "stack.mlp=$symbol"
done
must 'as many blocks as a pattern may have, and no more' exits 1 \
    '[stack] blocks = 32769: must lie between 0 and 32768 blocks' "$strata" check "$good" --set stack.blocks=32769
must 'the longest pattern is looked at in seconds, not in the square of its layers' exits 0 'can train' \
    timeout 200 "$strata" check "$good" --set stack.blocks=32768

# ---- a machine that is not enough ----
must 'a small model fits anywhere' sh -c '"$0" check "$1" | grep -qx ".*good.ini can train"' "$strata" "$good"
must 'memory that no machine has is told, with both values' exits 0 \
    'good.ini can train, but not on this machine: ' "$strata" check "$good" --set stack.vocab=268435456 \
    --set stack.hidden=65536
must 'in GiB' grep -Eq ': [0-9]{6}[.][0-9] GiB of memory are planned, it has [0-9.]+ [GM]iB$' "$scratch/said"

# ---- ids that the model does not have ----
grep -v '^vocab = 64' "$good" | sed 's/^hidden = 32/&\nvocab = 64/' > default.ini
for command in check train; do
    must "$command refuses mock's default, at its section" exits 1 \
        'default.ini:23:2: error: [dataset.train] its tokens have ids 0 to 255, the model'"'"'s vocabulary 0 to 63' \
        "$strata" $command default.ini
done
must 'with what to write' grep -q 'hint: vocab = 64, or raise' "$scratch/said"
must 'what is given at its key' exits 1 '--set: error: [dataset.train] its tokens have ids 0 to 64' \
    "$strata" check "$good" --set dataset.train.vocab=65

# ---- weights to start from ----
for key in from from_hf; do
    { cat "$good"; printf '[checkpoint]\n%s = nope\n' $key; } > from.ini
    must "weights that $key does not find are told in their place" exits 1 \
        "error: [checkpoint] $key: there is no nope" "$strata" check from.ini
    must 'with line, column' grep -q '^from.ini:31:' "$scratch/said"
    must 'and what may stand there' grep -q 'hint: a\|hint: the folder' "$scratch/said"
    must 'also from an override, beside other mistakes' exits 1 "--set: error: [checkpoint] $key: there is no nope" \
        "$strata" check "$good" --set checkpoint.$key=nope --set stack.hiden=7
    must 'which are told as well' grep -q 'did you mean "hidden"' "$scratch/said"
done
mkdir nothing
must 'a folder that holds no checkpoint' exits 1 '[checkpoint] from: nothing/state.json: cannot open' \
    "$strata" check "$good" --set checkpoint.from=nothing
must 'nor published weights' exits 1 '[checkpoint] from_hf: ' "$strata" check "$good" --set checkpoint.from_hf=nothing

# ---- the guide's first spec, and what the guide shows of it; memory and backend are a machine's own ----
awk '/^```/ { block++; next } block == 1' "$ST_SRCDIR/docs/spec.md" > first.ini
awk '/^```/ { block++; next } block == 3' "$ST_SRCDIR/docs/spec.md" | grep -E '^(pattern |samples |looked at |steps |  layers[.]|work )' > shown
must 'the guide shows enough to look at' test "$(wc -l < shown)" -ge 6
"$strata" check first.ini --set run.backend=cpu > told
must 'the guide shows what is told' sh -c 'while IFS= read -r line; do grep -qxF "$line" told || { echo "$line"; exit 1; }; done < shown'

must 'no spec is wrong usage' exits 2 'which spec?' "$strata" check
must 'two specs are wrong usage' exits 2 'too much' "$strata" check "$good" "$good"
must 'nothing was written' test ! -e "$scratch/runs"
tap_done
