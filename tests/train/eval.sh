#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `strata eval` says of a checkpoint what the run said at its end, and writes nothing.
. "$ST_SRCDIR/tests/train/train.sh"

trained a
own=$(grep -o 'step 10, held out: .*' a/log | tail -n 1)
must 'the run evaluated itself' test -n "$own"
cp -r a kept
must 'eval of the run says the same' exits 0 "$own" "$strata" eval a
must 'of the checkpoint too' exits 0 "$own" "$strata" eval a/checkpoints/step-000000010
must 'an earlier one is its own' exits 0 'step 8, held out: ' "$strata" eval a/checkpoints/step-000000008
must 'nothing was written' diff -r a kept
# or a checkpoint could not be taken where another backend is, whose section [run] has other keys
must 'a backend leaves no key of its own in a checkpoint' sh -c '! grep -w -e level -e threads "$0"' \
    a/checkpoints/step-000000010/spec.ini
must 'other data may be given' exits 0 'held out: loss' "$strata" eval a --set dataset.valid.seed=5
must 'data that are not there are refused' exits 1 'path = nowhere' "$strata" eval a --set dataset.valid.plugin=cord_v2 \
    --set dataset.valid.path=nowhere
must 'a folder without a checkpoint too' exits 1 'there is no spec' "$strata" eval nowhere
tap_done
