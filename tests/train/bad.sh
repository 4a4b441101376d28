#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Samples that cannot be used: each is named once, in the folder of the run and some on the screen; the others train.
. "$ST_SRCDIR/tests/train/train.sh"

mkdir -p set/train set/valid
cp "$ST_SRCDIR/tests/golden/pictures/png_rgb8.png" "$ST_SRCDIR/tests/golden/pictures/jpg_truncated.jpg" set/train/
cp "$ST_SRCDIR/tests/golden/pictures/png_rgb8.png" set/valid/
awk '/^\[/ { section = $0; print; if (/^\[dataset/) print "plugin = cord_v2\npath = set"; next }
    section ~ /^\[dataset/ || /^permute_media/ || /^show/ { next } { print }' micro.ini > cord.ini
record() { printf '{"file_name": "%s", "ground_truth": "{\\"gt_parse\\": {\\"nm\\": \\"%s\\"}}"}\n' "$1" "$2"; }
# set_of COUNT: five good records, COUNT that lack their picture, and some of other kinds
set_of() {
    for word in SOTO TEH NASI ROTI KOPI; do record png_rgb8.png $word; done
    i=0
    while [ $i -lt "$1" ]; do record "none$i.png" X; i=$((i + 1)); done
    record jpg_truncated.jpg X
    echo '{broken'
    record png_rgb8.png '' | sed 's/{[^{}]*}}"/{}}"/'
}
set_of 6 > set/train/metadata.jsonl
{ record png_rgb8.png SOTO; record gone.png SOTO; } > set/valid/metadata.jsonl
cord() { # DIR OPTION...
    cord_out=$1
    shift
    "$strata" train cord.ini -o "$cord_out" --set run.threads=1 "$@"
}
lines() { [ "$(wc -l < "$2")" = "$1" ] || { echo "$2 has other lines:"; cat "$2"; return 1; }; }
# named FILE SECTION RECORD ID WORDS: it has such a line, and no second one for the record
named() {
    grep -F "\"section\": \"$2\", \"record\": $3," "$1" > found
    [ "$(wc -l < found)" = 1 ] && grep -qF "\"id\": \"$4\"" found && grep -qF "$5" found || { cat "$1"; return 1; }
}
said() { grep -qF -e "$1" said || { cat said; return 1; }; }

must 'the others train' sh -c '"$@" > said 2>&1' sh "$strata" train cord.ini -o a --set run.threads=1
must 'all are named once' lines 10 a/bad_samples.jsonl
must 'a picture that is not there' named a/bad_samples.jsonl dataset.train 5 none0.png 'none0.png: cannot open'
must 'a damaged picture' named a/bad_samples.jsonl dataset.train 11 jpg_truncated.jpg 'damaged JPEG'
must 'a damaged line' named a/bad_samples.jsonl dataset.train 12 '' 'metadata.jsonl:13: not valid JSON'
must 'a record that trains nothing' named a/bad_samples.jsonl dataset.train 13 png_rgb8.png 'nothing to train on'
must 'one that is held out' named a/bad_samples.jsonl dataset.valid 1 gone.png 'gone.png'
must 'five of them are told on the screen' test "$(grep -c 'dataset.train: warning: set aside' said)" = 5
must 'then it is told that there are more' said 'from here on they are only counted'
must 'how many there were is told at the end' said \
    'set aside: 9 of 14 training samples, 1 of 2 held out; named in a/bad_samples.jsonl'

must 'other threads' cord threads --set run.threads=2 --set data.workers=3
must 'name them in the same order' cmp a/bad_samples.jsonl threads/bad_samples.jsonl

# ---- broken off behind step 4, in the middle of a line ----
cp -r a b
rm -r b/checkpoints/step-000000008 b/checkpoints/step-000000010
printf '{"section": "dataset.train", "rec' >> b/bad_samples.jsonl
must 'a run that was broken off goes on' sh -c '"$@" > said 2>&1' sh "$strata" train cord.ini -o b --resume \
    --set run.threads=1
must 'it ends as the unbroken one' same a b
must 'and names none twice' cmp a/bad_samples.jsonl b/bad_samples.jsonl
must 'what it named before is not told again' sh -c "! grep 'set aside: record' said"

# ---- limits ----
must 'max_bad ends the run, with the last one' exits 1 '4 samples set aside, [data] max_bad = 3; the last: record' \
    cord c --set data.max_bad=3
must 'all of them are named' lines 4 c/bad_samples.jsonl
must 'with on_bad = stop the first one does' exits 1 'dataset.train: record' \
    cord d --set data.on_bad=stop --set dataset.train.limit=6 --set run.seed=2
must 'it is named' lines 1 d/bad_samples.jsonl
must 'a run without any has no such file' sh -c '"$@" && test ! -e e/bad_samples.jsonl' sh \
    "$strata" train micro.ini -o e --set run.steps=2

# ---- seen before a run ----
must 'a check looks at the first records' exits 0 'cannot be used:' "$strata" check cord.ini --set batch.tokens=2048
must 'as many as there are' grep -q '^looked at  14 of 14 samples, 9 cannot be used:' "$scratch/said"
must 'tells the first with their reasons' test "$(grep -c '^             record [0-9]*.*: ' "$scratch/said")" -ge 4
must 'how many more' grep -q '^             and 6 more' "$scratch/said"
must 'and those that are held out' grep -q '^           2 of 2 held out, 1 cannot be used:' "$scratch/said"
must 'a damaged line is named as in a run' sh -c 'tail -n 2 set/train/metadata.jsonl > line && mkdir -p one/train &&
    cp set/train/*.* one/train/ && { echo "{broken"; head -n 1 set/train/metadata.jsonl; } > one/train/metadata.jsonl &&
    "$0" check cord.ini --set dataset.train.path=one | grep "record 0: .*metadata.jsonl:1: not valid JSON"' "$strata"
must 'max_bad holds for a check' exits 1 '4 samples set aside, [data] max_bad = 3; the last: record' \
    "$strata" check cord.ini --set batch.tokens=2048 --set data.max_bad=3
must 'so does on_bad' exits 1 '[data] on_bad = skip sets such samples aside' \
    "$strata" check cord.ini --set batch.tokens=2048 --set data.on_bad=stop
for i in 1 2 3 4 5; do record "none$i.png" X; done > one/train/metadata.jsonl
for command in check train; do
    must "$command tells that no record can be used, and why" exits 1 \
        'dataset.train: none of its 5 records can be used: record ' \
        "$strata" $command cord.ini --set dataset.train.path=one --set run.output=nothing
    must 'for the first three' test "$(grep -o 'none[0-9].png: cannot open' "$scratch/said" | wc -l)" = 3
done
must 'no folder was made for that' test ! -e nothing
i=0
while [ $i -lt 70 ]; do record "none$i.png" X; i=$((i + 1)); done > one/train/metadata.jsonl
must 'a check ends after 64 records' exits 1 'none of the first 64 of its 70 records can be used' \
    "$strata" check cord.ini --set dataset.train.path=one

# ---- many ----
set_of 200 > set/train/metadata.jsonl
must 'many do not flood the screen' exits 0 'of 208 training samples' cord f --set data.max_bad=1000
must 'in all a few lines' test "$(wc -l < "$scratch/said")" -lt 40

# ---- too long for a row ----
{ record png_rgb8.png "$(printf 'SATE AYAM %.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26)"
  record png_rgb8.png TEH; } > set/train/metadata.jsonl
must 'a sample that is cut is told, with both lengths' exits 0 'tokens, cut to 64' cord g --set batch.max_len=64
must 'and is not set aside' test ! -e g/bad_samples.jsonl -o "$(grep -c train g/bad_samples.jsonl)" = 0

# ---- held out ----
record gone.png SOTO > set/valid/metadata.jsonl
must 'held-out samples of which none can be used are told' exits 0 \
    'no token of [dataset.valid] is a trained target: nothing to evaluate' cord h --set run.steps=2
record png_rgb8.png SOTO >> set/valid/metadata.jsonl
must 'text is written for the first that can' exits 0 'wrong png_rgb8.png' \
    cord i --set run.steps=2 --set eval.show=1 --set eval.show_tokens=2

# ---- bytes that are no text ----
odd=$(printf 'caf\351')
mkdir "$odd" && cp -r set tokenizer.json cord.ini "$odd"
must 'a folder whose name is not UTF-8 is refused, a checkpoint could not name it' exits 1 \
    '/cord.ini: a path of it is not UTF-8' env LC_ALL=C "$strata" train "$odd/cord.ini" -o k
odd=$(printf 'esc\033')
mkdir "$odd" && cp -r set tokenizer.json cord.ini "$odd"
must 'so is one with a control character' exits 1 'cord.ini: a path of it has a control character' \
    "$strata" train "$odd/cord.ini" -o k
must 'before anything is made' test ! -e k
tap_done
