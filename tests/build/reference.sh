#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/reference.md is what the program tells, and the program tells of every key that specs use; the guide's spec is one.
. "$ST_SRCDIR/tests/build/tap.sh"

strata=$ST_BUILDDIR/strata

# fresh FILE: it is what the program prints now
fresh() {
    "$ST_SRCDIR/tools/make-reference.sh" "$strata" "$ST_SRCDIR/registry" > "$scratch/reference.md" || return 1
    diff -u "$1" "$scratch/reference.md" || { echo 'it is stale: run make reference'; return 1; }
}

# keys SPEC OPTION...: "section key" for each value that reading it takes, given or default
keys() {
    "$strata" check "$@" --explain > "$scratch/explained" || return 1
    awk '/^\[/ { section = substr($1, 2, length($1) - 2) } section && / = / && /;/ { print section, $1 }' "$scratch/explained"
}

# told REFERENCE: "section key" lines on standard input are in the tables of the reference; those of a section that holds
# a plugin's keys may stand with any plugin
told() {
    awk -v reference="$1" '
        BEGIN {
            while ((getline line < reference) > 0) {
                if (line ~ /^### /) { name = substr(line, 5); host = name ~ /^\[/ }
                if (line ~ /^\| `/) {
                    split(line, part, "`")
                    if (host) known[name, part[2]] = 1
                    else plugin[part[2]] = 1
                    if (part[2] == "plugin" || name == "[run]") open[name] = 1
                }
            }
        }
        {
            name = "[" $1 "]"
            if ($1 ~ /^layer\../) name = "[layer.X]"
            else if ($1 ~ /^(part|head|dataset)\./) { sub(/\..*/, ".NAME", $1); name = "[" $1 "]" }
            if (name == "[init.rules]" || (name, $2) in known || (name in open && $2 in plugin)) next
            print name " " $2 " is not told of"
            missing = 1
        }
        END { exit missing }'
}

reference=$ST_SRCDIR/docs/reference.md
must 'the reference is what the program prints' fresh "$reference"
sed '/peak learning rate/d' "$reference" > "$scratch/stale.md"
must_not 'a stale reference is found' 'it is stale' fresh "$scratch/stale.md"

mkdir "$scratch/receipt" # another picture in the place of the one that is not distributed
cp "$ST_SRCDIR/specs/cord-sample/metadata.jsonl" "$scratch/receipt/"
cp "$ST_SRCDIR/tests/golden/pictures/png_rgb8.png" "$scratch/receipt/test_receipt_00004.png"
for spec in "$ST_SRCDIR"/specs/*.ini; do
    set --
    [ "${spec##*/}" != cord-sample.ini ] || set -- --set "dataset.train.path=$scratch/receipt" \
        --set "dataset.valid.path=$scratch/receipt"
    keys "$spec" "$@" > "$scratch/keys"
    must "${spec##*/} can train" test -s "$scratch/keys"
    must "it tells of all keys of ${spec##*/}" told "$reference" < "$scratch/keys"
done
awk '/^```ini/ { on = 1; next } /^```/ { if (on) exit } on' "$ST_SRCDIR/docs/spec.md" > "$scratch/guide.ini"
must 'the spec of the guide can train' "$strata" check "$scratch/guide.ini"
must_not 'a key left out is found' '[schedule] lr is not told of' told "$scratch/stale.md" < "$scratch/keys"
tap_done
