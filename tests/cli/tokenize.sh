#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `strata tokenize`: ids, bytes and pieces, of a text or the standard input, by a spec or a file.
. "$ST_SRCDIR/tests/cli/cli.sh"

json=$ST_SRCDIR/tests/golden/tokenizer/merges_strings.json
cd "$scratch" || exit 99
mkdir 'a folder'
cp "$json" 'a folder/tokenizer.json'
printf '[tokenizer]\npath = tokenizer.json\n[layer.Q]\nwrong = 1\n' > 'a folder/spec.ini'
# prints TEXT COMMAND...: its output is exactly this
prints() {
    want=$1
    shift
    got=$("$@" 2>&1)
    [ "$got" = "$want" ] || { printf 'got:\n%s\nwant:\n%s\n' "$got" "$want"; return 1; }
}

must 'ids, bytes and pieces' prints "$(printf '%8d %8d %8d  %s\n' 259 0 5 '"hello"' 264 5 11 '" world"')" \
    "$strata" tokenize "$json" 'hello world'
must 'by the tokenizer of a spec, whatever else is in it' exits 0 '"hello"' \
    "$strata" tokenize 'a folder/spec.ini' 'hello world'
must 'only ids' prints '259 264' "$strata" tokenize --ids "$json" 'hello world'
must 'the standard input' prints '259 10 119 261 263' sh -c 'printf "hello\nworld" | "$0" tokenize --ids "$1" -' \
    "$strata" "$json"
must 'bytes are of the text as it was given' prints \
    "$(printf '%8d %8d %8d  %s\n' 99 0 1 '"c"' 97 1 2 '"a"' 102 2 3 '"f"' 266 3 6 '"é"')" \
    "$strata" tokenize "$json" "$(printf 'cafe\314\201')"
must 'a part of a character and a line feed stay on their line' prints \
    "$(printf '%8d %8d %8d  %s\n' 195 0 1 '"\xc3"' 188 1 2 '"\xbc"' 10 2 3 '"\n"')" \
    sh -c 'printf "\303\274\n" | "$0" tokenize "$1" -' "$strata" "$json"
must 'a special token is one' prints 267 "$strata" tokenize --ids "$json" '<|im_end|>'
must 'but not in text of data' exits 0 '60 124 105' "$strata" tokenize --ids --data "$json" '<|im_end|>'
must 'nothing has no ids' prints '' "$strata" tokenize "$json" ''
must 'text that is not UTF-8 is refused by its place' exits 1 'standard input: the text is not UTF-8: byte 3 is 0xE9' \
    sh -c 'printf "caf\351 x" | "$0" tokenize "$1" -' "$strata" "$json"
head -c 2000 "$json" > cut.json
must 'a damaged tokenizer is refused by line' exits 1 'cut.json:' "$strata" tokenize cut.json x
must 'one that is not there is named' exits 3 'none.json: cannot open' "$strata" tokenize none.json x
printf '[run]\nsteps = 1\n' > no.ini
must 'a spec without one is refused' exits 1 'the spec has no [tokenizer] path' "$strata" tokenize no.ini x
must 'an override counts' exits 0 '"hello"' "$strata" tokenize no.ini hello --set tokenizer.path="$json"
must 'a missing text is wrong usage' exits 2 '1 words were given' "$strata" tokenize "$json"
tap_done
