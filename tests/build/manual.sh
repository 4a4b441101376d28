#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The man page and the program know the same commands, options and exit codes.
. "$ST_SRCDIR/tests/build/tap.sh"

strata=$ST_BUILDDIR/strata

# commands: as the program lists them
commands() { "$strata" --help | awk '/^commands:/ { on = 1; next } on && NF == 0 { exit } on { print $1 }'; }

# page_tells PAGE WORD: the page has it; hyphens are escaped there
page_tells() { sed 's/\\-/-/g' "$1" | grep -qwF -e "$2" || { echo "${1##*/} does not tell of $2"; return 1; }; }

# tells_all PAGE: each command, each of their long options
tells_all() {
    status=0
    commands > "$scratch/commands"
    [ -s "$scratch/commands" ] || { echo 'the program lists no command'; return 1; }
    while read -r command; do
        page_tells "$1" "$command" || status=1
        "$strata" "$command" --help | grep -o -e '--[a-z][a-z-]*' | sort -u > "$scratch/options"
        [ -s "$scratch/options" ] || { echo "strata $command --help lists no option"; status=1; }
        while read -r option; do page_tells "$1" "$option" || status=1; done < "$scratch/options"
    done < "$scratch/commands"
    return $status
}

# knows_all PAGE: each command of the page is one of the program
knows_all() {
    status=0
    awk '
        /^\.SH/ { on = $2 == "COMMANDS" }
        /^\.RS/ { inside = 1 }
        /^\.RE/ { inside = 0 }
        on && !inside && after_tp { print $2 }
        { after_tp = /^\.TP/ }' "$1" > "$scratch/told"
    while read -r command; do
        commands | grep -qx "$command" || { echo "the program does not know $command"; status=1; }
    done < "$scratch/told"
    return $status
}

page=$ST_SRCDIR/docs/strata.1
must 'the man page tells of all commands and options' tells_all "$page"
must 'the program knows all commands of the man page' knows_all "$page"

sed '/resume/d' "$page" > "$scratch/short.1"
must_not 'an option left out is found' 'does not tell of --resume' tells_all "$scratch/short.1"
sed 's/^\.BI train/.BI tame/' "$page" > "$scratch/wrong.1"
must_not 'a command that is not there is found' 'does not know tame' knows_all "$scratch/wrong.1"
tap_done
