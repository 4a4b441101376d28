#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The same seed gives the same bytes: twice, by one thread or two, broken off and resumed, and from a checkpoint alone.
. "$ST_SRCDIR/tests/train/train.sh"

trained a --set run.threads=1
trained b --set run.threads=2 --set data.workers=3 --set data.prefetch=no --set run.output=elsewhere
must 'two runs, one seed, one thread and two: the same bytes' same a b
must 'no other file is in a checkpoint' test "$(ls a/checkpoints/step-000000010 | tr '\n' ' ')" = \
    'model.safetensors optimizer.safetensors spec.ini state.json tokenizer.json '
state=a/checkpoints/step-000000010/state.json
must 'its state has the seed as the guide says' grep -q '"seed": "0000000000000001"' $state
must 'the epoch too: it is the second' grep -q '"epoch": "0000000000000001"' $state
must 'and no field that the guide does not name' sh -c 'sed -n "s/^ *\"\([a-z_]*\)\":.*/\1/p" "$1" > fields
    test "$(wc -l < fields)" = 14 && for field in $(cat fields); do grep -q "\`$field\`" "$2" || { echo "$field"; exit 1; }; done' \
    sh $state "$ST_SRCDIR/docs/spec.md"
trained c --set run.seed=2
must 'another seed gives other bytes' differ a c

# ---- broken off between checkpoints: later lines of metrics, a torn one, a folder that was being written ----
cp -r a broken
rm -r broken/checkpoints/step-000000008 broken/checkpoints/step-000000010
printf '{"step": 11, "lo' >> broken/metrics.jsonl
cp -r broken/checkpoints/step-000000004 broken/checkpoints/step-000000008.part
must 'the newest whole checkpoint is taken' exits 0 'goes on from broken/checkpoints/step-000000004 at step 4' \
    run broken --resume
must 'the resumed run ends as the unbroken one' same a broken
must 'it tells what it trained itself, beside its seconds' \
    grep -Eq '10 steps, [0-9]+ tokens .*, of which this part [1-9] steps, [0-9]+ tokens in [0-9]+ s, ' broken/log
must 'the unbroken one all of it' grep -Eq '10 steps, [0-9]+ tokens \([0-9]+ trained\) in [0-9]+ s, [1-9]' a/log
must 'what was being written is gone' checkpoints broken step-000000004 step-000000008 step-000000010

# ---- broken off in the evaluation behind the last step ----
cp -r a late
grep -v permuted a/metrics.jsonl > late/metrics.jsonl
must 'a run that lacks only its last evaluation is finished' exits 0 'What the model reads' run late --resume
must 'and is as the unbroken one' same a late
must 'a finished run may be resumed' run late --resume
must 'its tokens are not set against the seconds of this part' sh -c \
    'tail -n 3 late/log | grep -q "10 steps, [0-9]* tokens ([0-9]* trained), of which this part 0 steps, 0 tokens; output in late"'
must 'and stays as it is' same a late

# ---- broken off by real signals, at whatever step they come ----
terminated() {
    started "$@" || return 1
    kill -TERM $pid
    wait $pid
    code=$?
    cat said
    [ $code = 0 ] && grep -q 'stopped by SIGTERM after step [0-9]*, saved' said
}
killed() {
    started "$@" || return 1
    kill -KILL $pid
    wait $pid
    [ $? = 137 ]
}
must 'SIGTERM saves and ends with success' terminated hit
must 'kill -9 ends the resumed run somewhere' killed hit --resume
steps=$(newest hit | sed 's/step-0*//')
steps=$((steps + 7))
must 'it is resumed to its end' finish hit --resume --set run.steps=$steps
must 'a run of the same length in one piece' finish whole --set run.steps=$steps
must 'both end with the same bytes' same hit whole

# ---- a checkpoint alone makes the model ----
mkdir alone there
cp -r a/checkpoints/step-000000010 alone/
mkdir spec && mv micro.ini tokenizer.json spec/
cd spec || exit 99
described() { "$strata" check "$1" | sed '1d; s/ (auto)//'; }
described micro.ini > ../before
"$strata" check micro.ini --explain | sed -n '/^\[position\]/,/^$/s/ *;.*//p' > ../position
cd .. && rm -r spec
described alone/step-000000010 > after
"$strata" check alone/step-000000010 --explain | sed -n '/^\[position\]/,/^$/s/ *;.*//p' | sort > position.after
sort position > position.before
must 'the same pattern, layers, parameters and memory' cmp before after
must 'there is something in it' grep -q 'pattern    G-\*-' after
must 'the same positions, with their section' cmp position.before position.after
must 'and it is in there' grep -q 'section = 4,2,2' position.after
mkdir -p moved/checkpoints && cp -r a/checkpoints/step-000000010 moved/checkpoints/
grep -v eval_permuted a/metrics.jsonl | sed '$d' > moved/metrics.jsonl
must 'it is evaluated with neither spec nor tokenizer where they were' \
    "$strata" train moved/checkpoints/step-000000010 -o moved --resume
must 'with the same losses and accuracies' cmp a/metrics.jsonl moved/metrics.jsonl
tap_done
