#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a run refuses, and what it says; what it does when values are not finite; how many checkpoints it keeps.
. "$ST_SRCDIR/tests/train/train.sh"

trained a
cp -r a kept
newest=a/checkpoints/step-000000010

# ---- folders ----
must 'a folder that holds a run is not written over' exits 1 'the output folder a already holds a run' run a
must 'with the way on' exits 1 '--resume' run a
must 'a run that is not there is not resumed' exits 1 'nowhere holds no checkpoint to resume from' run nowhere --resume
must 'and no folder was made' test ! -e nowhere
mkdir -p begun/checkpoints/step-000000004.part && : > begun/metrics.jsonl
must 'a run that broke off before its first checkpoint was whole is not resumed' exits 1 \
    'remove it and start without --resume' run begun --resume
must 'nor written over' exits 1 'it has no checkpoint to go on from: remove it' run begun
mkdir mine && : > mine/notes
must 'a folder with other things in it is fine' run mine --set run.steps=3
: > file
must 'a file in the place of the folder is refused' exits 3 'file: cannot write into the folder: Not a directory' run file
must 'and in that of a folder above it' exits 3 'file: cannot write into the folder: Not a directory' run file/deeper
for name in '' . .. ../up a/../../up /tmp/up a//b a/; do
    must "the name '$name' leads to no folder below runs/" exits 1 \
        "--set: error: [run] name = $name: must name a folder below runs/" "$strata" train micro.ini --set "run.name=$name"
done
must 'a name of two folders does' "$strata" train micro.ini --set run.name=.a../b --set run.steps=2
must 'they are there' test -s runs/.a../b/metrics.jsonl
must 'an empty output is refused' exits 1 '[run] output names no folder' "$strata" train micro.ini --set run.output=
must 'in a command too' exits 1 '--output names no folder' run ''
must 'none of these made a folder' test ! -e ../up -a ! -e /tmp/up -a ! -e metrics.jsonl
mkdir locked && chmod 555 locked
if [ -w locked ]; then # the superuser may write everywhere but here
    must 'a folder that cannot be written is refused' exits 3 'cannot make the folder' run /proc/strata/run
else
    must 'a folder that cannot be written is refused' exits 3 'locked: cannot write into the folder' run locked/deeper
fi

# ---- another model ----
must 'another width is refused by key and both values' exits 1 \
    '[layer.-] width is 48, but the checkpoint was made with 32' run a --resume --set layer.-.width=48
must 'with the place' exits 1 '--set: error: [layer.-] width' run a --resume --set layer.-.width=48
must 'another default too' exits 1 '[layer.*] qk_norm is no, but the checkpoint was made with yes' \
    run a --resume --set 'layer.*.qk_norm=no'
must 'another pattern' exits 1 '[stack] pattern is G-*-*-, but the checkpoint was made with G-*-' \
    run a --resume --set 'stack.pattern=G-*-*-'
must 'another precision' exits 1 '[run] precision is f64, but the checkpoint was made with f32' \
    run a --resume --set run.precision=f64
sed 's/^plugin = mrope/plugin = rope/; /^section/d' micro.ini > rope.ini
must 'another plugin' exits 1 '[position] plugin is rope, but the checkpoint was made with mrope' \
    "$strata" train rope.ini -o a --resume
must 'more steps than are left' exits 1 'steps = 6, but 10 steps are already done' run a --resume --set run.steps=6
cp tokenizer.json whole.json
printf '\n' >> tokenizer.json
must 'another tokenizer' exits 1 'not the one the checkpoint was made with' run a --resume
mv whole.json tokenizer.json
must 'all this changed nothing' diff -r a/checkpoints kept/checkpoints
must 'another spelling of the same is no difference' run a --resume --set 'stack.pattern=(G-)x1*-' \
    --set layer.-.width=32
must 'nor is the plugin that is there without being named' run a --resume --set parallel.plugin=self
must 'nor is blocks and cadence instead of the pattern' "$strata" train micro.ini -o a --resume \
    --set stack.blocks=2 --set stack.cadence=2
must 'another learning rate is told' exits 0 'since the checkpoint: [schedule] lr = 1e-3, was 1e-2' \
    run a --resume --set schedule.lr=1e-3

# ---- weights to start from ----
must 'a checkpoint starts a new run' exits 0 "weights from $newest, step 10" run from --set checkpoint.from=$newest
must 'the folder of a run stands for its newest' exits 0 "weights from a/checkpoints/step-000000010, step 10" \
    run from2 --set checkpoint.from=a
must 'both are the same run' cmp from/metrics.jsonl from2/metrics.jsonl
must 'another precision is read by value' run from3 --set checkpoint.from=a --set run.precision=f64 \
    --set run.steps=3
must 'another size is refused by tensor and both shapes' exits 1 \
    'tensor layers.1.gate_up is [64,16], the model'"'"'s is [96,16]' \
    run x --set checkpoint.from=a --set layer.-.width=48
for option in layer.-.width=48 'stack.pattern=G-*-*-' 'stack.pattern=G-*'; do
    run x --set checkpoint.from=a --set "$option" > trained 2>&1
    "$strata" check micro.ini --set checkpoint.from=a --set "$option" > checked 2>&1
    must "a check refuses $option in the same words" sh -c 'grep ^error: checked > a1 && grep ^error: trained | cmp - a1'
done
must 'what fits can train' exits 0 'can train' "$strata" check micro.ini --set checkpoint.from=a
must 'a tensor that is missing is named' exits 1 'no tensor layers.4.' run x --set checkpoint.from=a \
    --set 'stack.pattern=G-*-*-'
must 'a tensor that is left over is named' exits 1 'the model has no place for tensor layers.3.' \
    run x --set checkpoint.from=a --set 'stack.pattern=G-*'
must 'a checkpoint that is not there is named' exits 1 '--set: error: [checkpoint] from: there is no nowhere' \
    run x --set checkpoint.from=nowhere
must 'with its place' exits 1 '--set: error: [checkpoint] from' "$strata" check micro.ini --set checkpoint.from=nowhere
must 'so are published weights' exits 1 '--set: error: [checkpoint] from_hf: there is no nowhere' \
    "$strata" check micro.ini --set checkpoint.from_hf=nowhere
must 'a folder without one too' exits 1 '[checkpoint] from: ./state.json: cannot open' run x --set checkpoint.from=./
mkdir half && cp a/checkpoints/step-000000010/s* half/
must 'a checkpoint that lacks its weights' exits 1 '[checkpoint] from: half/model.safetensors: cannot open' \
    "$strata" check micro.ini --set checkpoint.from=half
must 'which does not matter where nothing is trained' "$strata" data show micro.ini --set checkpoint.from=half
must 'none of these made a folder' test ! -e x

# ---- damaged checkpoints ----
damage() { # FILE COMMAND...: a fresh copy of the run, its newest FILE changed by COMMAND < old > new
    rm -rf bad && cp -r kept bad
    at=bad/checkpoints/step-000000010/$1 from=kept/checkpoints/step-000000010/$1
    shift
    "$@" < "$from" > "$at"
}
refused() { exits "$1" "$2" run bad --resume; }
damage model.safetensors head -c 20000
must 'cut weights are refused by name' refused 1 'step-000000010/model.safetensors'
must 'with what to do about it' refused 1 'remove bad/checkpoints/step-000000010 to go on'
damage optimizer.safetensors head -c 100
must 'a cut optimizer is refused by name' refused 1 'step-000000010/optimizer.safetensors'
damage state.json head -c 40
must 'a cut state is refused by name and place' refused 1 'step-000000010/state.json:4'
damage state.json sed 's/"step": 10/"step": "ten"/'
must 'a wrong field is named' refused 1 'state.json: "step" is no whole number'
damage state.json sed '/"seen"/d'
must 'a missing field is named' refused 1 'state.json: "seen" is no whole number'
damage state.json sed 's/"format": 1/"format": 99/'
must 'a later format is refused with both numbers' refused 1 'checkpoint format 99, this strata reads 1'
must 'and is not advised to be removed' refused 1 'hint: use the version of strata that wrote it'
damage state.json echo '[]'
must 'a state that is no object' refused 1 'step-000000010/state.json: no JSON object'
damage state.json sed 's/"pattern": "[^"]*"/"pattern": 5/'
must 'a text that is none' refused 1 'state.json: "pattern" is no string'
damage state.json sed 's/"seed": "./"seed": "z/'
must 'a number that is none' refused 1 'state.json: "seed" is no number of 16 hexadecimal digits'
damage state.json sed 's/"train": {/"other": {/'
must 'a place in the data that is not there' refused 1 'state.json: "train" is no object'
damage optimizer.safetensors env LC_ALL=C sed 's/"F32"/"I32"/'
must 'a tensor of another type is named with both' refused 1 "is I32, the run's is F32"
damage optimizer.safetensors env LC_ALL=C sed 's/"m:embed"/"m:embex"/'
must 'a tensor of the optimizer that is missing is named' refused 1 'no tensor m:embed'
must 'with what that may mean' refused 1 'another model or optimizer, or freezes other parts'
damage spec.ini sed 's/^width = 32/width/'
must 'a damaged spec is refused by line' refused 1 'step-000000010/spec.ini:'
damage spec.ini cat
rm bad/checkpoints/step-000000010/optimizer.safetensors
must 'a missing file is named' refused 3 'optimizer.safetensors: cannot open'
must 'with what to do' refused 3 'remove bad/checkpoints/step-000000010 to go on from an older checkpoint'
rm -r bad/checkpoints/step-000000010
must 'and that works' run bad --resume
must 'as if nothing had been' same kept bad

# ---- values that are not finite ----
must 'the first bad tensor is named, and the run fails' exits 3 \
    'step 2 changed nothing: activation: residual behind layers.0' \
    run nan --set schedule.lr=1000 --set checkpoint.every=1
must 'the log ends with that' sh -c 'tail -n 1 nan/log | grep -F "error   train: step 2 changed nothing: activation"'
must 'and the screen has it once' test "$(grep -c 'step 2 changed nothing' "$scratch/said")" = 1
must 'nothing is saved after it' checkpoints nan step-000000001
must 'metrics tell which step' grep -q '"step": 2, "loss": null.*"skipped"' nan/metrics.jsonl
must 'on_nan = skip goes on' exits 0 'step 3 changed nothing' run skip --set schedule.lr=1000 --set run.on_nan=skip
must 'to the end' checkpoints skip step-000000004 step-000000008 step-000000010
rm -rf a && cp -r kept a
must 'a run that went well fails when it is resumed like that' exits 3 'step 12 changed nothing' \
    run a --resume --set run.steps=20 --set schedule.lr=1000
must 'its good checkpoints stay' diff -r a/checkpoints kept/checkpoints
must 'and it can go on from them' run a --resume --set run.steps=12

# ---- how many are kept ----
must 'as many as asked for' run one --set checkpoint.every=3 --set checkpoint.keep=2
must 'the newest' checkpoints one step-000000009 step-000000010
must 'none on the way and none at the end' run none --set checkpoint.every=0 --set checkpoint.at_end=no
must 'is none' test -z "$(ls none/checkpoints)"

# ---- nothing to train ----
mkdir -p empty/train && cp "$ST_SRCDIR/tests/golden/pictures/png_rgb8.png" empty/train/
record() { printf '{"file_name": "png_rgb8.png", "ground_truth": "{\\"gt_parse\\": %s}"}\n' "$1"; }
cord() {
    "$strata" train micro.ini -o "$@" --set dataset.train.plugin=cord_v2 --set dataset.train.path=empty \
        --set run.steps=2
}
sed '/^\[dataset.train\]/,/^$/{/images/d;/samples/d}' micro.ini > m && mv m micro.ini
record '{}' > empty/train/metadata.jsonl
must 'a sample without a trained token is told' exits 1 'nothing to train on' cord untrained
must 'and a run of such samples fails' exits 1 'none of its 1 records can be used' cord untrained2
record '{\"nm\": \"SOTO\"}' >> empty/train/metadata.jsonl
must 'one beside others is set aside' exits 0 'set aside' cord half
tap_done
