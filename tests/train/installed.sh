#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# installed.sh BINDIR - the specs that were installed run from an empty folder, with their data. Part of make
# installcheck.
strata=$(cd "${1:?usage: installed.sh BINDIR}" && pwd)/strata
. "$ST_SRCDIR/tests/build/tap.sh"

unset STRATA_PLUGIN_PATH STRATA_PLUGIN_PATH_ONLY
XDG_DATA_HOME=$scratch/data
export XDG_DATA_HOME
mkdir "$scratch/empty"
cd "$scratch/empty" || exit 99
must 'the embedded spec trains' "$strata" train receipts-tiny --set run.steps=2 --set eval.samples=16 \
    --set eval.permute_media=no --set eval.show=1
must 'from its own data' grep -q 'data 700 training samples, 96 for evaluation' runs/receipts-tiny/log
must 'and writes a checkpoint' test -f runs/receipts-tiny/checkpoints/step-000000002/tokenizer.json
must 'which can be trained on' "$strata" train runs/receipts-tiny/checkpoints/step-000000002 --resume \
    --set run.steps=3 --set eval.samples=16 --set eval.permute_media=no --set eval.show=0
must_not 'the other spec lacks its picture alone' 'test_receipt_00004.png: cannot open' "$strata" check cord-sample
tap_done
