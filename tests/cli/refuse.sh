#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What several commands refuse or warn of alike: settings of a run, files that are none, output that has no room.
. "$ST_SRCDIR/tests/train/train.sh"

check() { "$strata" check micro.ini "$@"; }

# ---- settings ----
must 'warm-up and decay that exceed the run' exits 1 \
    'warmup = 6 and decay = 5 together exceed the 10 steps of the run' \
    check --set schedule.kind=wsd --set schedule.warmup=6 --set schedule.decay=5
must 'a warm-up that alone exceeds it is told, not refused' exits 0 '--set: warning: ' check --set schedule.warmup=11
must 'and is told by a run' exits 0 'spec: warning: --set: warmup = 11' run warned --set schedule.warmup=11
must 'two places to start from' exits 1 'give one of them' check --set checkpoint.from=a --set checkpoint.from_hf=b
awk '/^\[/ { section = $0 } section != "[dataset.train]"' micro.ini > nothing.ini
must 'no data to train on' exits 1 'there is no [dataset.train]' "$strata" check nothing.ini
must 'with what to add' exits 1 'add [dataset.train] with plugin = cord_v2' "$strata" check nothing.ini
must 'a list that is too long' exits 1 'a list has at most' check --set \
    "position.section=$(echo 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 |
        tr ' ' ,)"
must 'a part that is frozen is counted apart' exits 0 ', of which trained ' check --set part.vision.freeze=yes
mkdir -p void/train && : > void/train/metadata.jsonl
must 'a data set without records' exits 1 '[dataset.train] the data set has no records' check --set dataset.train.plugin=cord_v2 --set dataset.train.path=void
{ echo '[run]'; yes '; a comment that only takes room' | head -n 140000; } > large.ini
must 'a spec without end' exits 1 'large.ini: 4620006 bytes; a spec file has at most 4194304' "$strata" check large.ini

must 'an empty folder of weights is none' run bare --set checkpoint.from= --set run.steps=2
must 'an empty folder of data is not the root' exits 1 '--set: error: [dataset.train] path is empty, a path is needed' \
    check --set dataset.train.plugin=cord_v2 --set dataset.train.path=

# ---- files that are none ----
mkdir folder.json
must 'a folder in the place of a tokenizer' exits 3 'folder.json: a folder, not a regular file' \
    "$strata" tokenize folder.json x
must 'in a spec too' exits 1 '[tokenizer] path: folder.json: a folder, not a regular file' check --set tokenizer.path=folder.json
must 'a folder is no spec' exits 1 'there is no spec folder.json' "$strata" check folder.json

# ---- no room ----
large="$strata plan qwen35-vl-27b --json"
must 'a plan that cannot be written' exits 3 'standard output' sh -c "$large > /dev/full"
must 'is not told as one without memory' sh -c '! grep memory "$0"' "$scratch/said"
# shellcheck disable=SC3045 # dash has it
must 'a layer that has no room' exits 3 'cannot write: File too large' sh -c \
    'trap "" XFSZ; ulimit -f 1 && exec "$0" new layer wave' "$strata"
must 'leaves nothing behind' test ! -e wave
must 'nor one whose folder cannot be made' exits 3 'wave: cannot make this folder' sh -c \
    'cd /proc && exec "$0" new layer wave' "$strata"

# ---- one name, two kinds ----
mkdir twins
for kind in layer head; do
    printf '[manifest]\nformat = 1\n[plugin]\nname = twin\nkind = %s\nmodule = m\nabi = 1\nversion = 1\n' $kind \
        > twins/$kind.ini
done
must 'a name of two kinds asks which' exits 1 'twin is the name of plugins of kind head and of kind layer' \
    "$strata" inspect twin --plugin-path twins
must 'and how to say it' exits 1 'say which by --kind' "$strata" inspect twin --plugin-path twins
must 'what patterns are built with is no symbol, and no section is suggested' exits 1 'hint: one visible ASCII character' \
    "$strata" inspect --symbol '('
must 'a kind that the name has not' exits 1 'there is no encoder twin' \
    "$strata" inspect twin --plugin-path twins --kind encoder

# ---- a published model ----
mkdir hf && cp "$ST_SRCDIR/tests/golden/dense-vl/config.json" tokenizer.json hf/
chmod u+w hf/*
must 'a tokenizer beside the config is named' exits 0 '[tokenizer]' "$strata" spec from-hf hf
must 'a broken config is told by its place' exits 1 'config.json:1:' sh -c \
    'echo "{]" > hf/config.json && exec "$0" spec from-hf hf' "$strata"
must 'and one that is no object' exits 1 'config.json: no JSON object' sh -c \
    'echo "[]" > hf/config.json && exec "$0" spec from-hf hf' "$strata"
must 'an output in a folder that is not there' exits 3 'none/x.ini' sh -c \
    'cp "$1/config.json" hf/ && exec "$0" spec from-hf hf -o none/x.ini' "$strata" "$ST_SRCDIR/tests/golden/dense-vl"
tap_done
