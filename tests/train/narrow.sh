#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What adamw keeps in bf16: refused outside bf16 runs, told where a run is, planned by the real code, fixed by a checkpoint. That such
# a run learns, and goes on to the same bits, needs a GPU: tests/gpu/narrow.sh.
. "$ST_SRCDIR/tests/train/train.sh"

# ---- outside of bf16 runs ----
must 'moments in bf16 are refused at the key' exits 1 \
    '[optimizer] moments = bf16: for runs with [run] precision = bf16, this one' run x --set optimizer.moments=bf16
must 'so are weights without masters' exits 1 "[optimizer] masters = none: for runs with [run] precision = bf16, this one's is f64" \
    run x --set optimizer.masters=none --set run.precision=f64
must 'and what is neither' exits 1 'moments = f16: must be one of f32, bf16' run x --set optimizer.moments=f16
must 'none of these made a folder' test ! -e x
must 'the defaults may be written anywhere' exits 0 'can train' "$strata" check micro.ini \
    --set optimizer.moments=f32 --set optimizer.masters=f32

# ---- a checkpoint fixes both ----
trained a --set run.steps=2 --set schedule.warmup=1
stored=a/checkpoints/$(newest a)/spec.ini
must 'the resolved spec has the keys' grep -qx 'moments = f32' "$stored"
sed 's/^moments = f32/moments = bf16/' "$stored" > s && cp s "$stored"
must 'another type of moments does not go on' exits 1 \
    '[optimizer] moments is f32, but the checkpoint was made with bf16' run a --resume --set run.steps=3
sed 's/^moments = bf16/moments = f32/; s/^masters = f32/masters = none/' s > "$stored"
must 'nor does a run with masters from one without' exits 1 \
    '[optimizer] masters is f32, but the checkpoint was made with none' run a --resume --set run.steps=3
grep -v '^masters\|^moments' s > "$stored"
must 'one from before there were such keys does' run a --resume --set run.steps=3

# ---- planned for a GPU ----
gpu() { "$strata" "$1" micro.ini --set run.backend=cuda --set run.precision=bf16 --set optimizer.moments="$2" \
    --set optimizer.masters="$3" $4; }
state() { gpu plan "$1" "$2" --json | sed -n 's/^ *"optimizer": \([0-9]*\),*$/\1/p'; }
all=$(state f32 f32)
# part MOMENTS MASTERS N: N of 12 bytes, but for a few weights that are f32 throughout and the ends of ranges
part() {
    left=$(($(state "$1" "$2") - all * $3 / 12))
    echo "$left bytes more than $3 twelfths of $all"
    [ "$all" -gt 100000 ] && [ $left -ge 0 ] && [ $left -lt $((all / 100)) ]
}
must 'with bf16 moments 8 of 12 bytes are left' part bf16 f32 8
must 'without masters as much' part f32 none 8
must 'with neither 4' part bf16 none 4
must 'the choice is told' exits 0 'bf16, moments in bf16, no masters' gpu check bf16 none
quiet() { gpu check f32 f32 > said && ! grep 'moments in\|no masters' said; }
must 'the default needs no word' quiet
tap_done
