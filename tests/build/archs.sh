#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --with-cuda-arch: what configure makes of it, and what it refuses before it looks at the machine.
. "$ST_SRCDIR/tests/build/tap.sh"
source=$(cd "$ST_SRCDIR" && pwd)
cd "$scratch" || exit 99
# configure refuses a folder of sources in which it ran before, as it did where that is the build folder too
mkdir source
ln -s "$source/configure" "$source/build-aux" "$source/framework" source

# read_archs LIST: what nvcc is given, and what modules say of themselves; configure ends when it finds no compiler
read_archs() {
    source/configure CC=false --with-cuda-arch="$1" > out 2>&1 && return 1
    grep -A1 'error: --with-cuda-arch' out && return 1
    sed -n "s/^CUDA_GENCODE='\(.*\)'/\1/p; s/^CUDA_ARCHS='\(.*\)'/\1/p" config.log
}

# means LIST ARCHS [CODE...]: CODE is arch,code pairs
means() {
    read_archs "$1" > said
    cat said
    list=$2
    shift 2
    for pair in "$@"; do printf ' -gencode arch=%s,code=%s' "${pair%:*}" "${pair#*:}"; done > wanted
    [ "$(sed -n 1p said)" = "$list" ] && [ "$(sed -n 2p said)" = "$(cat wanted)" ]
}

must '90a is Hopper alone' means 90a sm_90a compute_90a:sm_90a
must '80 is it, and PTX for later ones' means 80 sm_80,compute_80 compute_80:sm_80 compute_80:compute_80
must 'both' means 80,90a sm_80,compute_80,sm_90a compute_80:sm_80 compute_80:compute_80 compute_90a:sm_90a
must 'a family' means 100f,120a sm_100f,sm_120a compute_100f:sm_100f compute_120a:sm_120a
must_not 'a list with spaces' 'must be a list without spaces' read_archs '80 90a'
must_not 'an empty one' 'must be a list without spaces' read_archs ''
must_not 'nothing behind a comma' 'must be a list without spaces' read_archs 80,
must_not 'a name of nvcc' 'must be a list without spaces' read_archs sm_80
must_not 'no' 'must be a list without spaces' read_archs no
must_not 'another letter' '90b is no number with an optional a or f behind it' read_archs 80,90b
must_not 'one digit' '8: two or three digits, as in 80 or 100' read_archs 8
must_not 'a GPU without what kernels need' '75: the kernels need 80 (Ampere) or later' read_archs 75
must_not 'the same twice' '80 stands there twice' read_archs 80,90a,80
must_not 'the way is told' '80,90a for both' read_archs 75
tap_done
