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
must 'whose folder is read back, and its weights lack the depths' exits 1 \
    "$model: no tensor mtp.pre_fc_norm_embedding.weight" "$strata" check whole.ini --explain
must 'it can be planned' exits 0 'head.mtp.2.layers.0' "$strata" plan whole.ini
sed -i 's/"mtp_num_hidden_layers": 2/"mtp_num_hidden_layers": -2/' "$model/config.json"
must 'a wrong number is refused' exits 1 'mtp_num_hidden_layers must be' "$strata" spec from-hf "$model"

# ---- layers of one kind ----
# can_train PATTERN: what is written has that pattern, and the check finds nothing wrong but the weights of another
can_train() {
    rm -f kind.ini
    "$strata" spec from-hf "$model" -o kind.ini && grep -qx "pattern = $1" kind.ini &&
        "$strata" check kind.ini --set checkpoint.from_hf=
}
golden=$ST_SRCDIR/tests/golden/dense-vl/config.json
sed 's/"linear_attention"/"full_attention"/' "$golden" > "$model/config.json"
must 'without linear layers there is no section for them' can_train '\*-\*-\*-\*-'
sed -i '/"linear_/d' "$model/config.json"
must 'nor are their keys needed' can_train '\*-\*-\*-\*-'
sed 's/"full_attention"/"linear_attention"/' "$golden" > "$model/config.json"
must 'without attention there is none for it' can_train 'G-G-G-G-'
sed -i 's/"num_hidden_layers": 4,/&\n"mtp_num_hidden_layers": 1,/' "$model/config.json"
must 'depths have attention' can_train 'G-G-G-G-/\*-'
sed -i '/"linear_num_key_heads"/d' "$model/config.json"
must 'keys of layers that are there are needed' exits 1 'text_config has no linear_num_key_heads' "$strata" spec from-hf "$model"

# ---- the family ----
cp "$golden" "$model/config.json"
must 'the family is named' writes 'family = qwen3.5'
must 'as it is for experts' exits 0 'family = qwen3.5' "$strata" spec from-hf "$ST_SRCDIR/tests/golden/moe-small"
sed -i 's/"model_type": "qwen3_5_text"/"model_type": "other"/' "$model/config.json"
must 'no other' sh -c '! "$0" spec from-hf "$1" | grep family' "$strata" "$model"

# ---- values of another type ----
# A default, or the part left out, in the place of what cannot be read would be another model.
# wrong KEY VALUE TEXT [CONFIG]: KEY of a config with that value is refused with TEXT
wrong() {
    tr '\n' ' ' < "${4:-$golden}" | sed "s/\"$1\": *\(\[[^]]*\]\|[^],}[]*\)/\"$1\": $2/g" > "$model/config.json"
    must "$1 = $2" exits 1 "config.json: $3" "$strata" spec from-hf "$model"
}
wrong rms_norm_eps '"small"' 'rms_norm_eps must be a number above 0 and at most 1'
wrong rms_norm_eps -1 'rms_norm_eps must be a number above 0 and at most 1'
wrong rope_theta 0 'rope_theta must be a number above 0 and at most 1e+12'
wrong rope_theta '"1e4"' 'rope_theta must be a number above 0'
wrong partial_rotary_factor 2 'partial_rotary_factor must be a number above 0 and at most 1'
wrong tie_word_embeddings '"yes"' 'tie_word_embeddings must be true or false'
wrong attention_bias 1 'attention_bias must be true or false'
wrong mrope_interleaved 0 'mrope_interleaved must be true or false'
wrong mrope_section '[2, 2]' 'mrope_section must be three whole numbers from 0'
wrong mrope_section '[5, -1, 0]' 'mrope_section must be three whole numbers from 0'
wrong mrope_section '[2.0, 1, 1]' 'mrope_section must be three whole numbers from 0'
wrong hidden_act 3 'hidden_act must be a text'
wrong hidden_act '"relu"' 'hidden_act "relu": only silu is known'
wrong rope_type '"yarn"' 'rope_type "yarn": only default is known'
wrong layer_types '"all"' 'layer_types must be a list'
moe=$ST_SRCDIR/tests/golden/moe-small/config.json
wrong num_experts '"8"' 'text_config.num_experts must be a whole number' "$moe"
wrong num_experts 7.5 'text_config.num_experts must be a whole number' "$moe"
wrong num_experts -8 'text_config.num_experts must be a whole number' "$moe"
wrong router_aux_loss_coef 1e9 'router_aux_loss_coef must be a number from 0 to 1000' "$moe"
echo '{"vision_config": 5, "hidden_size": 8}' > "$model/config.json"
must 'a vision tower that is no object is not left out' exits 1 'vision_config must be an object' \
    "$strata" spec from-hf "$model"
sed 's/"rms_norm_eps": 1e-06/"rms_norm_eps": null/' "$golden" > "$model/config.json"
must 'null is as if the key were not there' writes 'norm_eps = 1e-06'

# ---- folders that a spec can hardly name ----
broken=$(printf 'two\nlines\there')
mkdir "$broken" && cp "$golden" "$broken/config.json" && printf '\002\0\0\0\0\0\0\0{}' > "$broken/model.safetensors"
must 'a name of two lines' "$strata" spec from-hf "$broken" -o lines.ini
must 'is written so that it can be read' exits 0 'name = (several lines)' "$strata" check lines.ini --explain \
    --set checkpoint.from_hf=
odd=$(printf 'esc\033here')
mkdir "$odd" && cp "$golden" "$odd/config.json"
must 'one that cannot be written is refused' exits 1 'a spec cannot name this folder' "$strata" spec from-hf "$odd"
odd=$(printf 'caf\351')
mkdir "$odd" && cp "$golden" "$odd/config.json"
must 'so is one that is not UTF-8' exits 1 'a spec cannot name this folder' "$strata" spec from-hf "$odd"

# ---- what the processor's file says of pictures ----
cp "$ST_SRCDIR/tests/golden/dense-vl/config.json" "$model/"
processor() { printf '%s\n' "$1" > "$model/preprocessor_config.json"; }
processor '{"size": {"shortest_edge": 4096, "longest_edge": 65536}, "patch_size": 16, "temporal_patch_size": 2,
    "merge_size": 2, "image_mean": [0.5, 0.25, 0.5], "image_std": [0.5, 0.5, 1]}'
must 'pixels are taken from the edges of size' writes 'max_pixels = 65536'
must 'both' writes 'min_pixels = 4096'
must 'means by channel' writes 'image_mean = 0.5,0.25,0.5'
must 'deviations' writes 'image_std = 0.5,0.5,1'
must 'the spec can train' sh -c '"$0" spec from-hf "$1" -o pictures.ini && "$0" check pictures.ini' "$strata" "$model"
processor '{"min_pixels": 8192, "max_pixels": 32768, "size": {"shortest_edge": 4096, "longest_edge": 65536}}'
must 'keys of their own go first' writes 'min_pixels = 8192'
processor '{"min_pixels": null, "max_pixels": null, "size": {"shortest_edge": 4096, "longest_edge": 65536}}'
must 'but not where they are null' writes 'min_pixels = 4096'
refuses() { exits 1 "$1" "$strata" spec from-hf "$model"; } # TEXT
processor '{"patch_size": 14}'
must 'another size of patches is refused' refuses 'vision_config.patch_size is 16, but patch_size in preprocessor_config.json is 14'
processor '{"merge_size": 4}'
must 'another merge too' refuses 'spatial_merge_size is 2, but merge_size in preprocessor_config.json is 4'
processor '{"min_pixels": 0}'
must 'no pixels are refused' refuses 'min_pixels must be a whole number from 1'
processor '{"min_pixels": 9, "max_pixels": 8}'
must 'a range without pixels is refused' refuses 'min_pixels = 9, max_pixels = 8'
processor '{"image_std": [1, 2]}'
must 'two channels are refused' refuses 'image_std must be three numbers'
processor '{"size": '
must 'a file cut short is refused by place' refuses 'preprocessor_config.json:2'
rm "$model/preprocessor_config.json"

must 'a folder without config.json is refused' exits 1 '. holds no config.json' "$strata" spec from-hf .
must 'a missing folder is refused' exits 1 'there is no folder nowhere' "$strata" spec from-hf nowhere
must 'another source is wrong usage' exits 2 "not 'from-gguf'" "$strata" spec from-gguf "$model"
must 'no folder is wrong usage' exits 2 'from-hf and a folder' "$strata" spec from-hf
tap_done
