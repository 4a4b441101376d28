#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A second optimizer through all of training: the loss falls, the same seed gives the same bytes, a resume goes on as if
# nothing had been, and a checkpoint of the other optimizer is refused.
. "$ST_SRCDIR/tests/train/train.sh"

sed 's/^plugin = adamw/plugin = muon/' micro.ini > m && mv m micro.ini
trained a --set run.threads=1
trained b --set run.threads=2 --set data.workers=3
must 'two runs, one thread and two: the same bytes' same a b
must 'momenta of matrices are in the checkpoint' grep -qa '"momentum:layers.0.in"' \
    a/checkpoints/step-000000010/optimizer.safetensors
must 'and both means of the rest' grep -qa '"v:embed"' a/checkpoints/step-000000010/optimizer.safetensors

losses() { sed -n 's/^{"step": [0-9]*, "loss": \([0-9.e+-]*\),.*/\1/p' "$1/metrics.jsonl"; }
falls() { losses "$1" | awk '{v[NR] = $1} END {print v[1], v[NR]; exit !(NR == 10 && v[NR] < 0.9 * v[1])}'; }
must 'the loss falls' falls a

cp -r a broken
rm -r broken/checkpoints/step-000000008 broken/checkpoints/step-000000010
must 'a run that was broken off goes on' exits 0 'goes on from broken/checkpoints/step-000000004 at step 4' \
    run broken --resume
must 'to the same bits' same a broken
must 'the other optimizer does not go on from here' exits 1 \
    '[optimizer] plugin is adamw, but the checkpoint was made with muon' run a --resume --set optimizer.plugin=adamw

must 'its keys are told' exits 0 'iterations' "$strata" inspect muon
must 'momentum = 1 is refused at the key' exits 1 '[optimizer] momentum = 1: must be below 1, or it never forgets' \
    run x --set optimizer.momentum=1
must 'and other numbers than three' exits 1 '[optimizer] coefficients has 2 numbers: give three' \
    run x --set optimizer.coefficients=1,2
must 'none of these made a folder' test ! -e x
tap_done
