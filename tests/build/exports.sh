#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A module exports one symbol, its entry point, and finds everything it uses in the libraries it names.
. "$ST_SRCDIR/tests/build/tap.sh"

# exports_entry MODULE: nothing but st_plugin_v1, or st_kernels_v1 where the file is named NAME-BACKEND.so
exports_entry() {
    case ${1##*/} in
    *-*.so) entry=st_kernels_v1 ;;
    *) entry=st_plugin_v1 ;;
    esac
    symbols=$(nm -D --defined-only "$1" | awk '{ print $NF }' | sort | tr '\n' ' ')
    [ "$symbols" = "$entry " ] || { echo "${1##*/} exports: ${symbols:-nothing}; it should export $entry"; return 1; }
}

# resolves MODULE: the dynamic linker finds every symbol without a host
resolves() {
    ldd -r "$1" > "$scratch/ldd" 2>&1
    if grep -E 'undefined symbol|not found' "$scratch/ldd" > "$scratch/undefined"; then
        echo "${1##*/} uses what none of its libraries has:"
        cat "$scratch/undefined"
        return 1
    fi
}

# module FILE TEXT: compiles one
module() {
    echo "$2" > "$scratch/module.c"
    ${ST_CC:-cc} -shared -fPIC -o "$scratch/$1" "$scratch/module.c"
}

built_modules > "$scratch/modules"
must 'there are modules' test -s "$scratch/modules"
while read -r file; do
    must "${file##*/} exports its entry only" exports_entry "$file"
    must "${file##*/} needs no host symbol" resolves "$file"
done < "$scratch/modules"

module good.so 'const void *st_plugin_v1(void) { return 0; }'
must 'a clean module is accepted' exports_entry "$scratch/good.so"
module extra.so 'int helper; const void *st_plugin_v1(void) { return &helper; }'
must_not 'a second exported symbol is found' 'exports: helper st_plugin_v1' exports_entry "$scratch/extra.so"
module none.so 'int helper;'
must_not 'a missing entry is found' 'it should export st_plugin_v1' exports_entry "$scratch/none.so"
module layer-cpu.so 'const void *st_plugin_v1(void) { return 0; }'
must_not 'a kernel module with the wrong entry is found' 'it should export st_kernels_v1' exports_entry "$scratch/layer-cpu.so"
module host.so 'extern int st_host_secret; const void *st_plugin_v1(void) { return &st_host_secret; }'
must_not 'an undefined symbol is found' 'st_host_secret' resolves "$scratch/host.so"
tap_done
