#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `strata data show`: a sample as it is trained, its pictures as files, and what cannot be shown.
. "$ST_SRCDIR/tests/cli/cli.sh"

cp "$ST_SRCDIR/tests/train/micro.ini" "$ST_SRCDIR/specs/receipts-tiny/tokenizer.json" "$scratch/"
chmod u+w "$scratch"/*
cd "$scratch" || exit 99
show() { "$strata" data show micro.ini "$@"; }
# shown COUNT PATTERN: so many lines of what was shown last match
shown() {
    [ "$(grep -c "$2" "$scratch/said")" = "$1" ] || { echo "not $1 lines with $2"; cat "$scratch/said"; return 1; }
}

must 'a sample is shown' exits 0 'record 3 of 6 of [dataset.valid], mock-3' show --index 3 --split valid
must 'its segment' shown 1 '^segment 0: slots 0 to 48 of 192$'
must 'the grid and the places of its picture' shown 1 \
    '^picture 0: 64 x 64 pixels (h x w), grid 1 x 4 x 4, 1 x 2 x 2 tokens in slots 4 to 7$'
must 'its places are one line, with positions on three axes' shown 1 \
    '^  *4  *333  *4  *4\.\.5  *4\.\.5  "<|image_pad|>" to slot 7, 4 times$'
must 'trained tokens are marked' shown 8 '^[*+] '
must 'content apart' shown 4 '^+ .*"[0-9]"$'
must 'the end of the turn is trained' shown 1 '^\* .*"<|im_end|>"$'
must 'the question is not' shown 1 '^  .*"?"$'
must 'the text that is trained' shown 1 '^trained text: "[0-9 ]*"$'
must 'ready ids have no text' exits 0 'tokens, 63 trained' show -n 2 --set dataset.train.images=0
must 'and none is told' shown 0 'trained text'
must 'a picture is written' exits 0 'written to new/folder/record-000001-0.png' show -n 1 --image new/folder
must 'as PNG' sh -c 'head -c 4 new/folder/record-000001-0.png | tail -c 3 | grep -q PNG'

mkdir set
cp "$ST_SRCDIR/tests/golden/pictures/png_rgb8.png" set/
record() { printf '{"file_name": "%s", "ground_truth": "{\\"gt_parse\\": {\\"nm\\": \\"%s\\"}}"}\n' "$1" "$2"; }
{ record png_rgb8.png "$(printf 'SATE AYAM %.0s' 1 2 3 4 5 6 7 8 9)"; record none.png TEH; } > set/metadata.jsonl
awk '/^\[/ { section = $0; print; if (/^\[dataset/) print "plugin = cord_v2\npath = set"; next }
    section !~ /^\[dataset/' micro.ini > cord.ini
must 'what a row does not take is told' exits 0 'more tokens were cut off' \
    "$strata" data show cord.ini --set batch.max_len=48
must 'a sample that cannot be used is told why' exits 1 'record 1 (none.png)' "$strata" data show cord.ini -n 1
must 'with the file' shown 1 'none.png: cannot open'
must 'a record that is not there' exits 1 'there is no record 16, the records are 0 to 15' show -n 16
must 'a split that is not there' exits 1 'no [dataset.valid]' sh -c \
    'sed "/^\[dataset.valid\]/,/^seed/d" micro.ini > one.ini; "$0" data show one.ini --split valid' "$strata"
must 'a spec with a mistake is refused' exits 1 'did you mean "hidden"?' show --set stack.hiden=4
must 'a negative index is wrong usage' exits 2 '-1 is no index' show --index=-1
must 'another split is wrong usage' exits 2 "'test' is no split" show --split test
must 'another word is wrong usage' exits 2 'it is: show' "$strata" data list micro.ini
must 'nothing else was written' test "$(ls | tr '\n' ' ')" = \
    'cord.ini micro.ini new one.ini output said set tokenizer.json '
# ---- the guide's own data set, from an empty folder ----
block() { awk -v n="$1" '/^```/ { block++; next } block == 2 * n - 1' "$ST_SRCDIR/docs/data.md"; } # its N-th
mkdir own own/captions own/captions/train own/captions/valid && cd own || exit 99
block 1 > files
block 2 > captions/train/metadata.jsonl
block 3 > captions/valid/metadata.jsonl
block 4 > captions.ini
cp "$ST_SRCDIR/specs/receipts-tiny/train/receipt_00000.jpg" captions/train/tea.jpg
cp "$ST_SRCDIR/tests/golden/pictures/png_rgb8.png" captions/train/door.png
cp "$ST_SRCDIR/tests/golden/pictures/png_rgb8.png" captions/valid/cup.png
must 'the guide names the files that it takes' sh -c 'find . -type f ! -name files | sed "s|^./||" | sort > there; sed -i /there/d there
    sort files | cmp - there'
block 5 | sed "s|^strata|$strata|" > commands
must 'and three commands' test "$(wc -l < commands)" = 3
must 'the first shows the caption' exits 0 'trained text: "a red door"' sh -c "$(sed -n 1p commands)"
must 'the second that all is in order' exits 0 'looked at  2 of 2 samples, all can be used' sh -c "$(sed -n 2p commands)"
must 'the third trains' exits 0 'truth  <s_what>cup</s_what><s_count>1</s_count>' \
    sh -c "$(sed -n 3p commands) --set run.backend=cpu --set run.steps=2 --set batch.rows=1 \
        --set eval.show_tokens=60"
must 'where the guide says' test -f runs/captions/metrics.jsonl
cd ..

tap_done
