#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# readme-command.sh N [README] - print command N of the README: the code block behind the line "<!-- command N -->".
# What checks the README runs what this prints, so the README cannot drift from what is checked.
set -eu
number=${1:?usage: readme-command.sh N [README]}
readme=${2:-$(dirname "$0")/../README.md}
awk -v marker="<!-- command $number -->" '
    $0 == marker           { found = 1; next }
    found && /^```/ && in_block { done = 1; exit }
    found && /^```/        { in_block = 1; next }
    in_block               { print }
    END { if (!done) { print FILENAME ": no code block behind " marker > "/dev/stderr"; exit 1 } }
' "$readme"
