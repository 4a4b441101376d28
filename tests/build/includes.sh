#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Arrows point one way: plugins include public headers and their own, the host includes no plugin's header.
. "$ST_SRCDIR/tests/build/tap.sh"

# includes TREE FOLDER: "file form name" for each include of the C, C++ and CUDA files below the folder; form is < or "
includes() {
    (cd "$1" && find "$2" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' -o -name '*.cc') | sort |
        while read -r file; do
            sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*\([<"]\)\([^">]*\).*/\1 \2/p' "$1/$file" | sed "s|^|$file |"
        done
}

# shared TREE FILE NAME: the header lies in a folder beside FILE's that is no plugin, but what plugins of this kind share
shared() {
    header=$1/$(dirname "$2")/$3
    [ -e "$header" ] && ! grep -qsi st_plugin_v1 "$(dirname "$header")"/*
}

# plugins_are_clean TREE: "..." names a file of the same folder or of one that its kind shares; <strata/...> is public; other
# <...> are no files of the host
plugins_are_clean() {
    tree=$1
    includes "$tree" plugins > "$scratch/includes"
    status=0
    while read -r file form name; do
        case $form$name in
        '<strata/'*) [ -e "$tree/framework/include/$name" ] || why='no such public header' ;;
        '<'*) [ ! -e "$tree/framework/$name" ] || why='belongs to the host' ;;
        '"../'[a-z]*/[!/]*) shared "$tree" "$file" "$name" || why='belongs to another plugin' ;;
        *..*) why='leaves the folder' ;;
        *) [ -e "$tree/$(dirname "$file")/$name" ] || why='is not in the folder' ;;
        esac
        [ -z "${why:-}" ] || { echo "$file includes $name: $why"; status=1; why=; }
    done < "$scratch/includes"
    return $status
}

# host_is_clean TREE: no include of the host names a file below plugins/
host_is_clean() {
    tree=$1
    includes "$tree" framework > "$scratch/includes"
    status=0
    while read -r file form name; do
        case $form$name in
        '<strata/'*) [ -e "$tree/framework/include/$name" ] || why='no such public header' ;;
        *plugins/*) why='is a plugin'\''s header' ;;
        '"'*) [ -e "$tree/$(dirname "$file")/$name" ] || [ -e "$tree/framework/$name" ] || [ "$name" = config.h ] ||
            why='is not in the host' ;;
        esac
        [ -z "${why:-}" ] || { echo "$file includes $name: $why"; status=1; why=; }
    done < "$scratch/includes"
    return $status
}

# rooms_are_ordered TREE: a room of the host includes only rooms below it (a checkpoint keeps a place in the data)
rooms_are_ordered() {
    tree=$1
    includes "$tree" framework > "$scratch/includes"
    awk '
        BEGIN {
            n = split("base spec plugin parallel model data checkpoint train parity cli", rooms, " ")
            for (i = 1; i <= n; i++) height[rooms[i]] = i
        }
        {
            split($1, from, "/")
            split($3, to, "/")
            if (!(from[2] in height) || !(to[1] in height) || from[2] == to[1]) next
            if (height[to[1]] >= height[from[2]]) {
                print $1 " includes " $3 ": " to[1] " does not lie below " from[2]
                bad = 1
            }
        }
        END { exit bad }' "$scratch/includes"
}

must 'plugins include public headers and their own' plugins_are_clean "$ST_SRCDIR"
must 'the host includes no header of a plugin' host_is_clean "$ST_SRCDIR"
must 'rooms include only rooms below them' rooms_are_ordered "$ST_SRCDIR"

mkdir -p "$scratch/tree/plugins/layers/a" "$scratch/tree/plugins/layers/b" "$scratch/tree/plugins/layers/common" \
    "$scratch/tree/framework/base" "$scratch/tree/framework/include/strata"
touch "$scratch/tree/framework/include/strata/layer.h" "$scratch/tree/framework/base/base.h" \
    "$scratch/tree/plugins/layers/a/own.h" "$scratch/tree/plugins/layers/b/b.h" "$scratch/tree/plugins/layers/common/common.h"
echo 'const st_plugin *st_plugin_v1(void)' > "$scratch/tree/plugins/layers/b/b.c"

# plugin_with LINE and host_with LINE: run the checker on a tree whose one source file has that line
plugin_with() {
    echo "$1" > "$scratch/tree/plugins/layers/a/a.c"
    plugins_are_clean "$scratch/tree"
}
host_with() {
    echo "$1" > "$scratch/tree/framework/base/b.c"
    host_is_clean "$scratch/tree"
}
must 'a public header is accepted' plugin_with '#include <strata/layer.h>'
must 'an own header is accepted' plugin_with '#include "own.h"'
must 'a library is accepted' plugin_with '#include <jansson.h>'
must_not 'a header of the host is found' 'belongs to the host' plugin_with '#include <base/base.h>'
must_not 'a header of the host in quotes is found' 'is not in the folder' plugin_with '# include "base/base.h"'
must 'a header shared by the plugins of a kind is accepted' plugin_with '#include "../common/common.h"'
must_not 'a header of another plugin is found' 'belongs to another plugin' plugin_with '#include "../b/b.h"'
must_not 'a header of another kind is found' 'leaves the folder' plugin_with '#include "../../heads/b/b.h"'
must_not 'an unknown public header is found' 'no such public header' plugin_with '#include <strata/secret.h>'
must_not 'the configuration of the host is found' 'is not in the folder' plugin_with '#include "config.h"'
must 'the host includes its own' host_with '#include "base/base.h"'
must_not 'a plugin in the host is found' "is a plugin's header" host_with '#include "../../plugins/layers/a/own.h"'
must_not 'a plugin in the host by its short name is found' 'is not in the host' host_with '#include "own.h"'
room_with() {
    echo "$1" > "$scratch/tree/framework/base/b.c"
    rooms_are_ordered "$scratch/tree"
}
must 'a room includes itself' room_with '#include "base/base.h"'
must_not 'a room above is found' 'spec does not lie below base' room_with '#include "spec/spec.h"'
tap_done
