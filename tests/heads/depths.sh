#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A pattern with depths through the commands: checked, trained, evaluated, resumed, timed, its layers against differences.
. "$ST_SRCDIR/tests/train/train.sh"

two='stack.pattern=G-*-/*-/G-*'
has() { grep -qF -- "$2" "$1" || { echo "$1 has no $2"; return 1; }; }

must 'check lists the layers of a depth' exits 0 'head.mtp.2.layers.0' "$strata" check micro.ini --set "$two"
trained a --set "$two" --set run.threads=1
trained b --set "$two" --set run.threads=2 --set head.mtp.loss_weight=0.1 --set run.output=elsewhere
must 'written defaults, one thread or two: the same bytes' same a b
must 'each depth logs its loss' has a/metrics.jsonl '"mtp.2.loss": '
must 'and what it loses on held-out data' has a/metrics.jsonl '"eval_mtp.1.loss": '
must 'a checkpoint holds the depths' has a/checkpoints/step-000000010/model.safetensors head.mtp.2.layers.2.qkv
must 'and says which head they have' has a/checkpoints/step-000000010/spec.ini '[head.mtp]'

cp -r a broken
rm -r broken/checkpoints/step-000000008 broken/checkpoints/step-000000010
must 'it is resumed' run broken --resume --set "$two"
must 'to the same bytes' same a broken
must 'another number of depths is another model' exits 1 pattern run broken --resume --set stack.pattern=G-*-/*-

must 'bench runs depths' exits 0 'matrix products' "$strata" bench micro.ini --set "$two" --steps 2
sed '/^\[layer.G\]/,/^value_dim/d' micro.ini > plain.ini
must 'selftest runs their layers' exits 0 head.mtp.2.layers.1.down "$strata" selftest plain.ini \
    --set stack.pattern=*-/*/*-

sed '/^\[position\]/,/^\[encoder\]/c\
[position]\
plugin = learned_absolute\
max_positions = 192\
[encoder]' micro.ini > learned.ini
must 'learned_absolute trains' exits 0 'can train' "$strata" check learned.ini
must 'but not with depths' exits 1 'head mtp needs a position whose slots may hold another token' \
    "$strata" check learned.ini --set "$two"
tap_done
