#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `strata spec from-hf`: what it writes is a whole spec of the model that config.json describes.
. "$ST_SRCDIR/tests/cli/cli.sh"
cd "$scratch" || exit 99

model='a "model"; #1'
mkdir "$model" && cp "$ST_SRCDIR/tests/golden/dense-vl/config.json" "$model/"

# writes TEXT: the spec has it
writes() { exits 0 "$1" "$strata" spec from-hf "$model"; }

must 'a spec is written' writes 'pattern = G-G-G-*-'
must 'with a vision tower' writes '[encoder]'
must 'no weights, none named' sh -c '! "$0" spec from-hf "$1" | grep from_hf' "$strata" "$model"
must 'to a file' "$strata" spec from-hf "$model" --output plain.ini
must 'that can train' exits 0 'can train' "$strata" check plain.ini
must 'a file that is there is kept' exits 1 'plain.ini exists already' "$strata" spec from-hf "$model" -o plain.ini

cp "$ST_SRCDIR/tests/golden/dense-vl/weights.safetensors" "$model/model.safetensors"
sed 's/"num_hidden_layers": 4,/&\n"mtp_num_hidden_layers": 2,/' "$ST_SRCDIR/tests/golden/dense-vl/config.json" \
    > "$model/config.json"
must 'depths follow' writes 'pattern = G-G-G-*-/*-/*-'
must 'weights are named, whatever the folder is called' writes 'a \"model\"; #1"'
must 'again to a file' "$strata" spec from-hf "$model" -o whole.ini
must 'whose folder is read back' exits 0 "$model" "$strata" check whole.ini --explain
must 'it can be planned' exits 0 'head.mtp.2.layers.0' "$strata" plan whole.ini
sed -i 's/"mtp_num_hidden_layers": 2/"mtp_num_hidden_layers": -2/' "$model/config.json"
must 'a wrong number is refused' exits 1 'mtp_num_hidden_layers must be' "$strata" spec from-hf "$model"

must 'a folder without config.json is refused' exits 1 '. holds no config.json' "$strata" spec from-hf .
must 'a missing folder is refused' exits 1 'there is no folder nowhere' "$strata" spec from-hf nowhere
must 'another source is wrong usage' exits 2 "not 'from-gguf'" "$strata" spec from-gguf "$model"
must 'no folder is wrong usage' exits 2 'from-hf and a folder' "$strata" spec from-hf
tap_done
