#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# coverage.sh [FOLDER=PERCENT]...: line coverage of what was compiled with --enable-coverage below the current folder,
# as far as it has run: a line for each folder, and all unexecuted lines in coverage.txt. A line counts as executed
# when any of the objects that hold it executed it. Fails when a FOLDER, such as framework or plugins/layers, has less
# than PERCENT.
set -eu
unset LC_ALL LANGUAGE
export LC_MESSAGES=C LC_NUMERIC=C
find . -name '*.gcno' ! -path './fuzz/*' | sort > coverage.objects
[ -s coverage.objects ] || { echo 'nothing here was compiled for coverage: configure with --enable-coverage' >&2; exit 2; }

# Each source as gcov lists it, "count: line: text"; sources of tests and of the system are left out.
xargs gcov -t < coverage.objects 2> coverage.errors | awk -v least="$*" '
    /^ *-: +0:Source:/ {
        file = $0
        sub(/^[^:]*: *0:Source:/, "", file)
        inside = match(file, /(^|\/)(framework|plugins)\/[^.]*\.[ch]$/) && file !~ /(^|\/)(tests|templates)\//
        file = substr(file, RSTART)
        sub(/^\//, "", file)
        next
    }
    !inside { next }
    {
        colon = index($0, ":")
        count = substr($0, 1, colon - 1)
        gsub(/[ *]/, "", count)
        rest = substr($0, colon + 1)
        line = rest + 0
        if (count == "-" || line == 0) next
        key = file SUBSEP line
        if (!(key in executed)) {
            executed[key] = 0
            text[key] = substr(rest, index(rest, ":") + 1)
        }
        if (count !~ /^[#=]/) executed[key] = 1
    }
    END {
        for (key in executed) {
            split(key, at, SUBSEP)
            n = split(at[1], part, "/")
            name = ""
            for (i = 1; i < n; i++) {
                name = name (i > 1 ? "/" : "") part[i]
                lines[name]++
                done[name] += executed[key]
            }
            if (!executed[key]) printf "%s:%d:%s\n", at[1], at[2], text[key] | "sort -t: -k1,1 -k2,2n > coverage.txt"
        }
        close("sort -t: -k1,1 -k2,2n > coverage.txt")
        sorted = "sort"
        for (name in lines) printf "%-40s %6d lines %6.1f %%\n", name, lines[name], 100 * done[name] / lines[name] | sorted
        close(sorted)
        n = split(least, want, " ")
        for (i = 1; i <= n; i++) {
            split(want[i], pair, "=")
            name = pair[1]
            if (!(name in lines)) { printf "%s has no lines at all\n", name; wrong = 1 }
            else if (100 * done[name] < pair[2] * lines[name]) {
                printf "%s: %.1f %% of its lines are executed, it should be %s %%\n", name, 100 * done[name] / lines[name], pair[2]
                wrong = 1
            }
        }
        exit wrong
    }'
