#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Reference values in tests/golden computed again, f64 and f32; and that strata parity fails when it should.
. "$ST_SRCDIR/tests/cli/cli.sh"

golden=$ST_SRCDIR/tests/golden

for name in dense-vl dense-tied moe-small gdn merger adamw tokenizer; do
    must "$name is within its gates" "$strata" parity "$golden/$name"
done

# copy NAME: a writable copy in the scratch folder
copy() {
    rm -rf "${scratch:?}/$1"
    mkdir "$scratch/$1"
    cp "$golden/$1"/* "$scratch/$1/"
    chmod -R u+w "$scratch/$1"
}

copy adamw
size=$(wc -c < "$scratch/adamw/io.safetensors")
printf '\377\377\377\377\377\377\377\077' | dd of="$scratch/adamw/io.safetensors" bs=1 seek=$((size - 1024)) conv=notrunc 2> /dev/null
must 'a value that is off fails' exits 1 BAD "$strata" parity "$scratch/adamw"
must 'the row tells which' exits 1 'adamw: 40 rows, FAILED' "$strata" parity "$scratch/adamw"
must 'folders behind it are compared, and do not hide it' exits 1 'merger: 3 rows, all within their gates' \
    "$strata" parity "$scratch/adamw" "$golden/merger"
must 'a file that is not there is named' exits 3 'none/meta.json: cannot open' sh -c \
    'mkdir "$1/none" && cp "$1/adamw/io.safetensors" "$1/none" && "$0" parity "$1/none"' "$strata" "$scratch"
must 'no folder is wrong usage' exits 2 'a folder is needed' "$strata" parity

copy gdn
LC_ALL=C sed -i 's/"9\.q"/"x.q"/' "$scratch/gdn/io.safetensors"
must_not 'keys that nothing compared fail' 'nothing compared key' "$strata" parity "$scratch/gdn"

copy merger
LC_ALL=C sed -i 's/"out_f32"/"out_fxx"/' "$scratch/merger/io.safetensors"
must_not 'a missing key is named' 'io.safetensors has no out_f32' "$strata" parity "$scratch/merger"

copy dense-vl
LC_ALL=C sed -i 's/"d2\.loss"/"d2.lost"/' "$scratch/dense-vl/mtp_io.safetensors"
must_not 'a missing key of the depths is named' 'mtp_io.safetensors has no d2.loss' "$strata" parity "$scratch/dense-vl"

mkdir "$scratch/empty"
must_not 'a folder without reference values is refused' 'no reference values of a known kind' "$strata" parity "$scratch/empty"
must_not 'a folder that is not there is refused' 'no reference values of a known kind' "$strata" parity "$scratch/nowhere"
tap_done
