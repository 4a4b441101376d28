#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `strata export`: weights go out under HuggingFace's names and come back as they were; what cannot go out is named.
. "$ST_SRCDIR/tests/train/train.sh"

# kept SPEC OUT OPTION...: a step that is too small to change a bit of an f32 weight
kept() {
    spec=$1 out=$2
    shift 2
    "$strata" train "$spec" -o "$out" --set run.steps=1 --set run.precision=f32 --set schedule.lr=1e-30 --set batch.tokens=64 \
        --set batch.rows=1 --set dataset.train.max_tokens=48 --set dataset.train.min_tokens=8 "$@"
}

# again CONFIG WEIGHTS: published weights, trained for such a step, exported, trained from there and exported once more
again() {
    rm -rf published first second one two spec.ini
    mkdir published && cp "$1" published/config.json && cp "$2" published/model.safetensors || return 1
    "$strata" spec from-hf published -o spec.ini && kept spec.ini one --set dataset.train.vocab=64 &&
        "$strata" export one first --dtype f32 && rm spec.ini && "$strata" spec from-hf first -o spec.ini &&
        kept spec.ini two --set dataset.train.vocab=64 && "$strata" export two second --dtype f32 &&
        cmp first/model.safetensors second/model.safetensors && cmp first/config.json second/config.json
}
golden=$ST_SRCDIR/tests/golden
must 'a dense model goes out and comes back, bit for bit' again "$golden/dense-vl/config.json" "$golden/dense-vl/weights.safetensors"
must 'with convolutions of one channel' grep -aq 'conv1d.weight":{"dtype":"F32","shape":\[[0-9]*,1,4\]' first/model.safetensors
must 'and patches of a picture' grep -aq 'patch_embed.proj.weight":{"dtype":"F32","shape":\[[0-9]*,3,2,[0-9]*,[0-9]*\]' \
    first/model.safetensors
must 'one with experts' again "$golden/moe-small/config.json" "$golden/moe-small/weights.safetensors"
must 'one with a tied head' again "$golden/dense-tied/config.json" "$golden/dense-tied/weights.safetensors"

trained a
must 'the newest checkpoint of a run is taken, as bf16' exits 0 'a/checkpoints/step-000000010 in out' "$strata" export a out
must 'with the tokenizer' cmp tokenizer.json out/tokenizer.json
must 'in half the bytes' test "$(($(wc -c < out/model.safetensors) * 2))" -lt \
    "$(($(wc -c < a/checkpoints/step-000000010/model.safetensors) + 20000))"
must 'nothing else is left' test ! -e out.part
must 'a folder with something in it is refused' exits 1 'out is not empty' "$strata" export a out
must 'a name may end in a slash' exits 0 'step-000000010 in slash' "$strata" export a slash//
must 'and the folder has that name' cmp out/model.safetensors slash/model.safetensors
mkdir empty
must 'an empty folder is filled' exits 0 'in empty' "$strata" export a empty/
must 'this folder is refused' exits 1 "'.' is not the name of a folder" "$strata" export a .
mkdir own.part && echo mine > own.part/data
must 'what lies beside it is not removed' exits 1 'own.part is there' "$strata" export a own
must 'nor written to' test "$(ls own.part; cat own.part/data; ls -d own 2> /dev/null)" = "data
mine"
must 'a checkpoint that is not there too' exits 3 'nowhere/state.json: cannot open' "$strata" export nowhere out2
must 'and makes nothing' test ! -e out2 -a ! -e out2.part
must 'a type that is none' exits 2 '--dtype f16: bf16 or f32' "$strata" export a out2 --dtype f16

sed 's/^pattern = G-\*-/&\/*-/' micro.ini > depth.ini
must 'a model with a depth is trained' "$strata" train depth.ini -o d --set run.steps=1 --set eval.show=0
must 'and goes out' exits 0 'in depth' "$strata" export d depth
must 'with the depth' grep -aq '"mtp.layers.0.self_attn.q_proj.weight"' depth/model.safetensors
must 'into a spec' "$strata" spec from-hf depth -o depth-back.ini
must 'that takes its weights' exits 0 'G-*-/*-' "$strata" check depth-back.ini

# A config.json that says less than the spec would be one of another model
other() {
    rm -rf other other-out
    "$strata" train micro.ini -o other --set run.steps=1 --set eval.show=0 --set "$1" || return 1
    exits 0 "without a config.json: $2" "$strata" export other other-out && test ! -e other-out/config.json
}
must 'no config.json of other norms' other stack.norm=rms '[stack] has norm = rms,'
must 'of attention without a gate' other 'layer.*.gate=no' 'layers.2 has gate = no,'
must 'of attention without rotation' other 'layer.*.rotary=no' 'layers.2 has rotary = no,'
must 'of an encoder with another activation' other layer.F.act=gelu_erf 'encoder.blocks.1 has act = gelu_erf,'
must 'of an encoder with another base' other encoder.base=5000 'encoder has base = 5000,'
must 'of an encoder with wider heads' other layer.V.head_dim=32 'heads x head_dim of encoder.blocks.0'

"$strata" new layer tilt > said && make -C tilt > said 2>&1 && "$strata" train tilt/spec.ini -o b --set run.steps=2 > said 2>&1
must 'a weight without such a name is named' exits 1 'has no HuggingFace name' "$strata" export b out3
must 'and nothing half is left' test ! -e out3 -a ! -e out3.part
tap_done
