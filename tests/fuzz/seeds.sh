#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# seeds.sh FOLDER: small inputs that fuzzing starts from, a folder for each target; from files of the source tree
# ($ST_SRCDIR) and from what is written here.
set -eu
top=$1
rm -rf "$top"
for target in spec safetensors shards tokenizer image label; do mkdir -p "$top/$target"; done

# put TARGET/NAME: standard input
put() { cat > "$top/$1"; }

for spec in "$ST_SRCDIR"/specs/*.ini "$ST_SRCDIR"/tests/train/micro.ini "$ST_SRCDIR"/registry/*.ini; do
    put "spec/$(basename "$spec")" < "$spec"
done
put spec/odd.ini << 'END'
include = other.ini
# a note
[run]
number = 4k
size = 512MiB  ; behind it
rate = 2.5e-1
ints = 1, 2,3
floats = 0.5,.25
text = a = b "c"
path = ../x y/ü
mode = hard
[stack]
pattern = (G-*-)x2|G-/M+/
rate = 0.5
[layer.G]
plugin = fuzz
floats = 1
flag = yes
[data]
floats = 1,0,1
numbr = 3
END
printf '\357\273\277[run]\r\nfloats = 1\r\nnumber = -1\r\n' | put spec/windows.ini
printf '[run\nx\n=\n[]\n[a]\nb\n[a]\nb = \377\n' | put spec/wrong.ini

# tensors NAME HEADER BYTES: a file with that header and as many bytes of data
tensors() {
    length=${#2}
    {
        # shellcheck disable=SC2059 # the length as bytes, the lowest first
        printf "$(printf '\\%03o' $((length % 256)) $((length / 256)) 0 0 0 0 0 0)"
        printf '%s' "$2"
        [ "$3" = 0 ] || head -c "$3" /dev/zero | tr '\0' '?'
    } | put "safetensors/$1"
}
tensors empty '{}' 0
tensors one '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' 8
tensors scalar '{"a":{"dtype":"F64","shape":[],"data_offsets":[0,8]}}' 8
tensors several '{"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},"h":{"dtype":"F16","shape":[2],"data_offsets":[12,16]},"none":{"dtype":"I64","shape":[0,4],"data_offsets":[16,16]},"i":{"dtype":"I32","shape":[1],"data_offsets":[16,20]},"b":{"dtype":"U8","shape":[3],"data_offsets":[20,23]},"q":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[23,24]}}' 24
tensors overlap '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}' 6
tensors large '{"a":{"dtype":"F64","shape":[4611686018427387904,4],"data_offsets":[0,8]}}' 8
printf 'version https://git-lfs.github.com/spec/v1\n' | put safetensors/pointer

put shards/whole << 'END'
{"metadata":{"total_size":32},"weight_map":{"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors"}}
END
put shards/wrong << 'END'
{"metadata":{"total_size":1},"weight_map":{"a":"2.safetensors","b":"1.safetensors","c":"3.safetensors","d":4}}
END
put shards/outside << 'END'
{"weight_map":{"a":"../1.safetensors","b":"/etc/passwd"}}
END

for file in merges_pairs merges_strings truncated; do
    put "tokenizer/$file" < "$ST_SRCDIR/tests/golden/tokenizer/$file.json"
done
printf 'Tea 2 x 12,000 <s_nm>caf\303\251</s_nm>\n\n <|im_start|> e\314\201 \344\270\255 don'\''t \360\237\215\265 \377\300' |
    put tokenizer/text

for file in "$ST_SRCDIR"/tests/golden/pictures/*; do
    [ "$(wc -c < "$file")" -gt 4096 ] || put "image/$(basename "$file")" < "$file"
done

put label/menu << 'END'
{"gt_parse": {"menu": [{"nm": "Tea", "cnt": "2", "price": "12,000"}, {"nm": "Pie", "sub": {"nm": "apple"}}],
 "total": {"total_price": "25,000", "cash": 1e15, "n": [1, -0, 0.1, 2.50, -3e-7, true, null, {}]}}, "meta": {"id": 4}}
END
put label/parses << 'END'
{"gt_parses": [{"text_sequence": "a \" b \u00e9 \ud83c\udf75"}, {"x": []}]}
END
printf '{"gt_parse": [1e999, 01, "\\u0000", {"": ""}]}' | put label/odd
printf '{"gt_parse": {"a": {"a": ' | put label/cut
