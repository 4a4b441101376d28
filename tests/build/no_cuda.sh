#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The host and every module that is not a CUDA one load on a machine that never saw CUDA.
. "$ST_SRCDIR/tests/build/tap.sh"

# free_of_cuda FILE: none of the libraries it names is NVIDIA's
free_of_cuda() {
    readelf -d "$1" > "$scratch/dynamic" || return 1
    grep -q 'Dynamic section' "$scratch/dynamic" || { echo "$1 is no dynamic object"; return 1; }
    if grep -E 'NEEDED.*\[lib(cu(da|blas|dnn|fft|rand|solver|sparse)|nccl|nv)' "$scratch/dynamic"; then
        echo "${1##*/} needs a library of CUDA"
        return 1
    fi
}

# built_program FILE: the program itself, not libtool's wrapper around it
built_program() {
    if [ -e "$ST_BUILDDIR/.libs/$1" ]; then echo "$ST_BUILDDIR/.libs/$1"; else echo "$ST_BUILDDIR/$1"; fi
}

must 'the command' free_of_cuda "$(built_program strata)"
built_modules | grep -v -e '-cuda\.so$' -e '/nccl\.so$' > "$scratch/modules"
must 'there are modules' test -s "$scratch/modules"
while read -r file; do
    must "${file##*/}" free_of_cuda "$file"
done < "$scratch/modules"

echo 'int symbol;' > "$scratch/library.c"
echo 'extern int symbol; int *user(void) { return &symbol; }' > "$scratch/user.c"
# user_of LIBRARY: a module that needs a library of that name
user_of() {
    ${ST_CC:-cc} -shared -fPIC -Wl,-soname,"$1" -o "$scratch/$1" "$scratch/library.c" &&
        ${ST_CC:-cc} -shared -fPIC -o "$scratch/user.so" "$scratch/user.c" "$scratch/$1"
}
for library in libcudart.so.13 libcublasLt.so.13 libnccl.so.2 libcuda.so.1 libnvrtc.so.13; do
    user_of $library
    must_not "$library is found" 'needs a library of CUDA' free_of_cuda "$scratch/user.so"
done
user_of libcurl.so.4
must 'another library is accepted' free_of_cuda "$scratch/user.so"
must_not 'a file that is no object is refused' '' free_of_cuda "$ST_SRCDIR/tests/build/tap.sh"
tap_done
