#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `strata plan` on [recompute]: what it says of a choice is what a plan with that choice finds.
. "$ST_SRCDIR/tests/cli/cli.sh"
cd "$scratch" || exit 99

spec=receipts-tiny
"$strata" plan $spec --json > plan.json
# "full drop kept added_flops added_launches own" of each choice; - for no drop
sed -n '/"recompute"/,$p' plan.json | tr -d ' ",' | awk -F: '
    $1 == "full" { full = $2 } $1 == "drop" { drop = $2 == "" ? "-" : $2 } $1 == "own" { own = $2 } $1 == "kept" { kept = $2 }
    $1 == "added_flops" { flops = $2 } $1 == "added_launches" { print full, drop, kept, flops, $2, own }' > choices
row() { grep "^$1 $2 " choices || { cat choices; return 1; }; }

must 'nothing is added by keeping all, which is the default' sh -c 'grep "^none - [0-9]* 0\.0 0 true$" choices'
for choice in 'all -' 'G -' '\* -' 'V -' 'none G\.conv' 'none G\.states' 'none encoder\.patches'; do
    # shellcheck disable=SC2086 # two words
    must "$choice is told" row $choice
done
must 'one choice is the own one' sh -c 'test "$(grep -c true choices)" = 1'
# tr took the commas of the last choice, all slots at once
must 'all slots at once too' sh -c 'grep "^none G\.[^ ]*encoder" choices'
must 'what is computed again keeps less and launches more' awk '
    NR == 1 { kept = $3; next } { if ($3 > kept || $5 <= 0 || $4 < 0) { print; bad = 1 } if ($3 < kept) less++ }
    END { exit bad || !less }' choices

kept_of() { "$strata" plan $spec --json "$@" | sed -n 's/^  "kept": \([0-9]*\),/\1/p'; }
agrees() { # FULL DROP: a plan with them keeps what was said
    said=$(grep -F -e "$1 $2 " choices | head -n 1 | cut -d' ' -f3)
    if [ "$2" = - ]; then found=$(kept_of --set "recompute.full=$1")
    else found=$(kept_of --set "recompute.full=$1" --set "recompute.drop=$2"); fi
    [ -n "$said" ] && [ "$said" = "$found" ] || { echo "said $said, found $found"; return 1; }
}
for choice in 'none -' 'all -' 'G -' '- -' 'none G.conv' 'none G.states' 'none -.product'; do
    # shellcheck disable=SC2086 # two words
    must "a plan with $choice keeps as much" agrees $choice
done
must 'in text the own choice is marked' exits 0 '> full = all ' "$strata" plan $spec --set recompute.full=all
must 'with a choice of its own as the last' exits 0 '> full = G, and drop' \
    "$strata" plan $spec --set recompute.full=G --set recompute.drop=-.product
must_not 'several plans are compared without it' 'should have been printed: trades memory' \
    exits 0 'trades memory' "$strata" plan $spec --ranks 1,1
tap_done
