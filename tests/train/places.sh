#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where things lie and how much room there is: names with blanks and letters of other scripts, links, any current
# folder, folders that cannot be written, a disk that is full in the middle of a run.
. "$ST_SRCDIR/tests/train/train.sh"

trained plain --set run.threads=1
must_be_same() { must "$1" same "$2" "$3"; }

# ---- names ----
odd="réçus 字 (a) 'q'"
mkdir -p "$odd/sub" "$odd/set/train"
cp micro.ini tokenizer.json "$odd/"
picture="Beleg Nr. 1 ü.png"
cp "$ST_SRCDIR/tests/golden/pictures/png_rgb8.png" "$odd/set/train/$picture"
printf '{"file_name": "%s", "ground_truth": "{\\"gt_parse\\": {\\"nm\\": \\"TÉ\\"}}"}\n' "$picture" \
    > "$odd/set/train/metadata.jsonl"
awk '/^\[/ { section = $0; print; if (/^\[dataset.train/) print "plugin = cord_v2\npath = set"; next }
    section ~ /^\[dataset.train/ { next } { print }' micro.ini > "$odd/cord.ini"
must 'a spec in such a folder is checked' exits 0 "$odd/micro.ini can train" "$strata" check "$odd/micro.ini"
must 'it trains' "$strata" train "$odd/micro.ini" -o "$odd/out é" --set run.threads=1
must_be_same 'to the same bytes' plain "$odd/out é"
must 'it is resumed' "$strata" train "$odd/micro.ini" -o "$odd/out é" --resume --set run.steps=12
must 'a checkpoint there is a spec' exits 0 'can train' "$strata" check "$odd/out é/checkpoints/step-000000010"
must 'and weights to start from' exits 0 "weights from $odd/out é" "$strata" train micro.ini -o from \
    --set checkpoint.from="$odd/out é" --set run.steps=2
must 'pictures with such names are read' exits 0 'step 2/2' "$strata" train "$odd/cord.ini" -o cord --set run.steps=2
must 'none of them is set aside' test ! -e cord/bad_samples.jsonl
must 'a sample of it is shown' exits 0 "$picture" "$strata" data show "$odd/cord.ini" --image "$odd/pictures"
must 'with its picture' test -s "$odd/pictures/record-000000-0.png"
sed 's/^hidden = 16/hidden = x/' micro.ini > "$odd/wrong.ini"
must 'a mistake is told by that name' exits 1 "$odd/wrong.ini:11:10: error" "$strata" check "$odd/wrong.ini"

# ---- any current folder, links ----
here=$PWD
from_root() { (cd / && "$strata" train "$here/$1" -o "$here/$2" --set run.threads=1); }
must 'from another folder, paths of the spec count from the spec' from_root micro.ini root
must_be_same 'to the same bytes' plain root
mkdir links
ln -s ../micro.ini links/spec.ini
must 'a link to a spec is the spec' "$strata" train links/spec.ini -o linked --set run.threads=1
must_be_same 'to the same bytes' plain linked
mkdir real && ln -s real folder
must 'the output may be a link to a folder' run folder --set run.threads=1
must_be_same 'to the same bytes' plain real
must 'and is resumed by it' run folder --resume
ln -s nowhere.ini links/broken.ini
must 'a link to nothing is told by its name' exits 1 'links/broken.ini' "$strata" check links/broken.ini
ln -s loop links/loop
must 'so is one to itself' exits 1 'links/loop' "$strata" check links/loop

# ---- a full disk: files may have so many half KiB, writing more fails ----
full() { # HALF_KIB DIR OPTION...
    blocks=$1
    shift
    { (trap '' XFSZ && ulimit -f "$blocks" && run "$@" --set run.threads=1); echo $? > full.status; } 2>&1 | cat # no file, so no limit
    return "$(cat full.status)"
}
trained part --set run.threads=1 --set run.steps=10 --set checkpoint.keep=9
rm -r part/checkpoints/step-000000008 part/checkpoints/step-000000010
cp -r part kept
must 'a checkpoint that does not fit ends the run, its file named' exits 3 \
    'saving a checkpoint: part/checkpoints/step-000000008.part/model.safetensors' full 100 part --resume
must 'with the reason' exits 3 'cannot write: File too large' full 100 part --resume
must 'the log has it too' grep -q 'error   train: saving a checkpoint: part/.*: cannot write: File too large' part/log
must 'the one before is whole' diff -r kept/checkpoints part/checkpoints
must 'when there is room again it goes on' run part --resume --set run.threads=1
must 'to the bytes of an unbroken run' same plain part
must 'the first file that does not fit is named' exits 3 'new/spec.ini: cannot write: File too large' full 1 new
must 'metrics that cannot be written end the run' exits 3 'long/metrics.jsonl: cannot write: File too large' \
    full 12 long --set run.steps=2000 --set checkpoint.every=0 --set eval.every=0
must 'none of its lines is lost' sh -c 'test "$(sed "\$d" long/metrics.jsonl | grep -c "^{.*}$")" -gt 30'

# ---- streams ----
status() { want=$1; shift; "$@"; got=$?; [ $got = "$want" ] || { echo "exit status $got, it should be $want"; return 1; }; }
closed() { run closed --set run.threads=1 <&- >&- 2>&-; }
must 'closed streams are told by the exit status alone' status 3 closed
must_be_same 'no line for the screen is in a file of the run' plain closed
must 'nor in its log' sh -c '! grep -v "^[0-9-]*T[0-9:.]*Z " closed/log'
piped() {
    {
        until [ -e reader.gone ]; do sleep 0.1; done
        (run piped --set run.threads=1)
        echo $? > piped.status
    } 2> /dev/null | : > reader.gone
    return "$(cat piped.status)"
}
must 'a reader that ends does not end the run' status 3 piped
must_be_same 'it goes on to the same bytes' plain piped

# ---- something else in the place of a file of the run ----
for name in log bad_samples.jsonl; do
    mkdir -p "in-$name/$name"
    must "a folder in the place of $name is named" exits 3 "in-$name/$name: cannot" run "in-$name"
done
cp -r kept taken
rm taken/metrics.jsonl && mkdir taken/metrics.jsonl
must 'and in that of metrics.jsonl, which a resume cuts' exits 3 'taken/metrics.jsonl: a folder, not a regular file' \
    run taken --resume
mkdir dangling && ln -s nowhere/metrics dangling/metrics.jsonl
must 'a link to nowhere in its place' exits 3 'dangling/metrics.jsonl: cannot open: No such file' run dangling
mkdir flat && : > flat/checkpoints
must 'a file in the place of the checkpoints' exits 3 'flat/checkpoints: cannot list: Not a directory' run flat

# ---- folders that cannot be written ----
if [ "$(id -u)" = 0 ]; then # who may write everywhere but in such a file system
    refused=/proc/none why='/proc/none: cannot make the folder'
else
    mkdir locked && chmod 555 locked
    refused=locked/run why='locked: cannot write into the folder'
fi
must 'a folder that cannot be written is named before training' exits 3 "$why" run "$refused"
must 'and so is that of pictures' exits 3 "${refused%/run}" "$strata" data show micro.ini --image "$refused"
tap_done
