#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model shaped as 35b-a3b, rounds of three delta nets and one attention with experts behind each, a shared expert and a
# depth, only small: trained on the CPU it learns, and two runs of it are the same bytes.
. "$ST_SRCDIR/tests/train/train.sh"

{
    sed '/^\[layer.-\]/,/^width/d' micro.ini
    printf '[layer.E]\nexperts = 16\ntop_k = 4\nwidth = 8\nshared_width = 8\n'
} | sed 's/^pattern = G-.*/pattern = (GEGEGE*E)x2\/*E/; s/^steps = .*/steps = 24/; s/^every = 4/every = 12/
    s/^permute_media = .*//; s/^show = .*/show = 0/' > mixture.ini

train() { # DIR OPTION...
    train_out=$1
    shift
    "$strata" train mixture.ini -o "$train_out" "$@"
}
has() { grep -qF -- "$2" "$1" || { head -n 2 "$1"; echo "no $2"; return 1; }; }

# falls FILE KEY: the mean of its last four values is below four fifths of the mean of its first four
falls() {
    sed -n "s/.*[{ ]\"$2\": \\([0-9.e+-]*\\).*/\\1/p" "$1" | awk '
        { v[NR] = $1 }
        END {
            for (i = 1; i <= 4; i++) { first += v[i]; last += v[NR - 4 + i] }
            print "from", first / 4, "to", last / 4, "in", NR, "lines"
            exit !(NR >= 8 && first > 0 && last < 0.8 * first)
        }'
}

must 'it trains on one thread' train a --set run.threads=1
must 'and on two' train b --set run.threads=2
must 'to the same bytes' same a b
must 'the loss falls' falls a/metrics.jsonl loss
must 'so does that of the depth' falls a/metrics.jsonl mtp.1.loss
must_not 'a loss that stays is found' 'from' falls a/metrics.jsonl tokens
must 'loads of experts are logged by layer' has a/metrics.jsonl '"layers.15.load_max": '
must 'and over all layers' has a/metrics.jsonl '"balance_loss": '
must 'those of the depth too' has a/metrics.jsonl '"head.mtp.1.layers.1.violation": '
must 'a checkpoint holds all experts of a layer together' has a/checkpoints/step-000000024/model.safetensors \
    '"layers.1.gate_up":{"dtype":"F32","shape":[16,16,16]'

must 'it is a spec too, with its depth' exits 0 '/*E' "$strata" check a/checkpoints/step-000000024
must 'and is evaluated as the run was' exits 0 "$(grep -o 'step 24, held out: .*' a/log | tail -n 1)" "$strata" eval a

cp -r a broken
rm -r broken/checkpoints/step-000000024
must 'a run that broke off is resumed' train broken --resume
must 'as if nothing had been' same a broken
must 'another number of experts is another model' exits 1 'experts is 8, but the checkpoint was made with 16' \
    train broken --resume --set layer.E.experts=8
must 'recompute of experts changes nothing' train recomputed --set recompute.full=E
must 'not a bit of it' cmp a/metrics.jsonl recomputed/metrics.jsonl
tap_done
