#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training on a GPU with what adamw keeps in bf16: it learns, the same seed gives the same bytes, a run that was broken off goes on to
# the same bits, and the checkpoint holds what the run held. Skipped where there is no GPU.
. "$ST_SRCDIR/tests/train/train.sh"

sed '/^backend = cpu/d' micro.ini > m && mv m micro.ini
"$strata" check micro.ini > said 2>&1
grep -q '^backend    cuda' said || { sed -n 's/^backend  *\(.*\)/1..0 # SKIP \1/p' said | grep . || cat said; exit 0; }

narrow() { dir=$1; shift; run "$dir" --set optimizer.moments=bf16 --set optimizer.masters=none "$@"; }
must 'it trains' narrow a
must 'and says how' grep -q 'bf16 (auto), moments in bf16, no masters' a/log
must 'again' narrow b --set data.workers=3
must 'to the same bytes' same a b
cp -r a broken
rm -r broken/checkpoints/step-000000008 broken/checkpoints/step-000000010
must 'broken off, it goes on' exits 0 'at step 4' narrow broken --resume
must 'to the same bits' same a broken
must 'with masters it does not' exits 1 '[optimizer] masters is f32, but the checkpoint was made with none' \
    narrow a --resume --set optimizer.masters=f32
must 'another seed' narrow c --set run.seed=2
must 'gives other bits' differ a c

losses() { sed -n 's/^{"step": [0-9]*, "loss": \([0-9.e+-]*\),.*/\1/p' "$1/metrics.jsonl"; }
falls() { losses "$1" | awk '{v[NR] = $1} END {print v[1], v[NR]; exit !(NR == 10 && v[NR] < 0.9 * v[1])}'; }
must 'the loss falls' falls a
# header DIR FILE TEXT: of a tensor file, which begins with its list of tensors
header() { head -c 20000 "$1/checkpoints/$(newest "$1")/$2" | grep -qa -- "$3"; }
must 'weights are stored as they are' header a model.safetensors '"embed":{"dtype":"BF16"'
must 'so are moments' header a optimizer.safetensors '"v:embed":{"dtype":"BF16"'
tap_done
