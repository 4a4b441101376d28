# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Sourced by the tests of this folder: a small spec in the scratch folder, and ways to compare runs.
. "$ST_SRCDIR/tests/cli/cli.sh"

cp "$ST_SRCDIR/tests/train/micro.ini" "$ST_SRCDIR/specs/receipts-tiny/tokenizer.json" "$scratch/"
chmod u+w "$scratch"/*
cd "$scratch" || exit 99

# run DIR OPTION...: trains the micro spec into DIR
run() {
    run_out=$1
    shift
    "$strata" train micro.ini -o "$run_out" "$@"
}

# trained DIR OPTION...: the same, as a point of its own
trained() { must "trained into $*" run "$@"; }

# same A B: metrics and the newest checkpoints of two runs are the same bytes, and there is something in them
same() {
    [ -s "$1/metrics.jsonl" ] || { echo "$1/metrics.jsonl is empty"; return 1; }
    cmp "$1/metrics.jsonl" "$2/metrics.jsonl" || return 1
    newest=$(newest "$1")
    [ "$newest" = "$(newest "$2")" ] || { echo "other newest checkpoints"; return 1; }
    for file in model.safetensors optimizer.safetensors spec.ini state.json tokenizer.json; do
        cmp "$1/checkpoints/$newest/$file" "$2/checkpoints/$newest/$file" || return 1
    done
    diff -r "$1/checkpoints/$newest" "$2/checkpoints/$newest"
}

differ() { ! same "$@"; }

newest() { ls "$1/checkpoints" | grep -v part | tail -n 1; }

# checkpoints DIR NAME...: exactly these are there
checkpoints() {
    there=$(ls "$1/checkpoints" | tr '\n' ' ')
    shift
    [ "$there" = "$* " ] || { echo "there are $there"; return 1; }
}

# started DIR OPTION...: an endless run in the background, $pid, until DIR has a checkpoint that is not in $had
started() {
    dir=$1
    shift
    had=$(newest "$dir" 2> /dev/null)
    "$strata" train micro.ini -o "$dir" --set run.steps=1000000 --set schedule.kind=constant \
        --set checkpoint.keep=1000 --set eval.every=6 "$@" > said 2>&1 &
    pid=$!
    tries=0
    until [ -d "$dir/checkpoints" ] && [ -n "$(newest "$dir")" ] && [ "$(newest "$dir")" != "$had" ]; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] && kill -0 $pid || { cat said; kill -KILL $pid; return 1; }
        sleep 0.1
    done
}

# finish DIR OPTION...: such a run to an end
finish() {
    run "$@" --set schedule.kind=constant --set checkpoint.keep=1000 --set eval.every=6
}
