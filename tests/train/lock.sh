#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One process at a time writes in a folder, and a process that was killed leaves no lock behind.
. "$ST_SRCDIR/tests/train/train.sh"

must 'a run that goes on and on' started busy
must 'is not resumed by another, which names the folder and its process' exits 1 \
    "the output folder busy is in use by process $pid" run busy --resume
must 'with what to do' exits 1 'wait for its end or stop it' run busy --resume
must 'nor does a new one begin there' exits 1 "busy is in use by process $pid" run busy
ln -s busy link
must 'nor by another name of the folder' exits 1 "the output folder link is in use by process $pid" run link --resume
if unshare --pid --fork true 2> /dev/null; then # whoever is not seen from there has no number
    must 'nor from a container' exits 1 'in use by a process of another machine or container' \
        unshare --pid --fork "$strata" train micro.ini -o busy --resume
fi
must 'none of them wrote in its log' test "$(grep -c 'hash [0-9a-f]*$' busy/log)" = 1
must 'it is still there' kill -KILL $pid
wait $pid
must 'kill -9 leaves the folder free' finish busy --resume --set run.steps=$(($(newest busy | sed 's/step-0*//') + 3))

# ---- two that begin in one moment ----
at_once() {
    run both > one 2>&1 &
    first=$!
    run both > two 2>&1 &
    wait $first
    first=$?
    wait $!
    second=$?
    cat one two
    [ "$first $second" = '0 1' ] || [ "$first $second" = '1 0' ] || return 1
    cat one two | grep -qE 'both is in use by process [0-9]+|both already holds a run'
}
must 'one of two trains, the other is refused' at_once
trained alone
must 'and has left the first as it was' same alone both
tap_done
