#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A key that is for timing only marks all that a run with it tells of and leaves behind, and what goes on from that.
. "$ST_SRCDIR/tests/train/train.sh"

{
    sed '/^\[layer.-\]/,/^width/d' micro.ini
    printf '[layer.E]\nexperts = 4\ntop_k = 2\nwidth = 8\nshared_width = 8\n'
} | sed 's/^pattern = G-.*/pattern = GE*E/' > moe.ini
forced='layer.E.force_balance=yes'
mark='[layer.E] force_balance = yes'
head='for timing only, the weights mean nothing: [layer.E] force_balance = yes'
state=checkpoints/step-000000010/state.json

train() { # DIR OPTION...
    train_out=$1
    shift
    "$strata" train moe.ini -o "$train_out" "$@"
}
has() { grep -qF -- "$2" "$1" || { cat "$1"; return 1; }; }
lacks() { ! grep -iF -- timing "$1"; }

must 'experts train' train plain
must 'without the key nothing is marked: log' lacks plain/log
must 'checkpoint' lacks plain/$state
must 'with it the run trains' train forced --set $forced
must 'its log begins with the mark' has forced/log "$head"
must 'its checkpoint holds it' has forced/$state "\"timing_only\": \"$mark\""
must 'and the first of its checkpoints too' has forced/checkpoints/step-000000004/state.json "\"timing_only\": \"$mark\""
must 'another spelling is the same key' exits 0 'force_balance = on' train on --set layer.E.force_balance=on
must 'no is no mark, however it is spelled' train off --set layer.E.force_balance=false
must 'neither in its log' lacks off/log
must 'nor in its checkpoint' lacks off/$state

must 'a resume says so again' exits 0 "$head" train forced --resume --set $forced --set run.steps=12
must 'so does its checkpoint' has forced/checkpoints/step-000000012/state.json "\"timing_only\": \"$mark\""
must 'a resume without the key is refused' exits 1 'force_balance is no, but the checkpoint was made with yes' \
    train forced --resume --set run.steps=14
must 'weights of such a run stay marked in a run without the key' exits 0 "$head" train from --set checkpoint.from=forced
must 'and in its checkpoints' has from/$state "\"timing_only\": \"$mark\""
must 'and when that is resumed' exits 0 "$head" train from --resume --set run.steps=12
must 'good weights do not take a mark away' exits 0 "$head" train good --set checkpoint.from=plain --set $forced

must 'check tells it' exits 0 "timing     only: weights mean nothing with $mark" "$strata" check moe.ini --set $forced
must 'bench tells it' exits 0 "for timing only   $mark" "$strata" bench moe.ini --steps 1 --warmup 0 --set $forced
must 'in JSON too' exits 0 "{\"timing_only\": \"$mark\", " \
    "$strata" bench moe.ini --steps 1 --warmup 0 --json --set $forced
must 'where there is nothing to tell' exits 0 '{"timing_only": null, ' "$strata" bench moe.ini --steps 1 --warmup 0 --json
must 'inspect names the flag' exits 0 '"timing"' "$strata" inspect moe --format json
must 'only experts have the key' exits 1 '[layer.G] has no key "force_balance"' "$strata" check moe.ini \
    --set layer.G.force_balance=yes
tap_done
