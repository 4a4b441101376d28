#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The spec cord-sample, shortened: the label of one receipt is learnt by heart through a picture file and free-running
# text equals it. A small picture stands in for the photograph, which is not distributed.
. "$ST_SRCDIR/tests/cli/cli.sh"

cd "$scratch" || exit 99
mkdir receipt && cp "$ST_SRCDIR/specs/cord-sample/metadata.jsonl" receipt/
# learn OPTION...: the spec as it is, but for the size of the picture and the number of steps
learn() {
    "$strata" train cord-sample --set run.backend=cpu --set dataset.train.path=receipt --set dataset.valid.path=receipt \
        --set encoder.max_pixels=16384 --set encoder.min_pixels=16384 --set batch.tokens=448 --set batch.patches=128 \
        --set run.steps=40 "$@"
}

must 'without the picture it is named' exits 1 'receipt/test_receipt_00004.png: cannot open' learn -o without
must 'by a check too, and nothing else is wrong' exits 1 'none of its 1 records can be used: record 0 (test_receipt_00004.png)' \
    "$strata" check cord-sample
cp "$ST_SRCDIR/tests/golden/pictures/png_rgb8.png" receipt/test_receipt_00004.png
must 'the label is learnt' learn -o out
cp "$scratch/output" said
must 'every content token is right' grep -q '"eval_content_accuracy": 1,' out/metrics.jsonl
must 'free-running text equals the truth' grep -q 'right test_receipt_00004.png' said
must 'which is the whole receipt, in its order' grep -qF \
    'model  <s_menu><s_nm>ICE BLACKCOFFE</s_nm><s_cnt>2</s_cnt>' said
must 'to its last field' grep -qF '<s_changeprice>25,400</s_changeprice></s_total>' said
tap_done
