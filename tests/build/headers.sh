#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every public header stands alone, as C11 and as C++17, for each compiler there is; and all of them are installed.
. "$ST_SRCDIR/tests/build/tap.sh"

public=$ST_SRCDIR/framework/include/strata

# stands_alone HEADER: includes it twice and nothing else
stands_alone() {
    header=$1
    printf '#include "%s"\n#include "%s"\nint header_test;\n' "$header" "$header" > "$scratch/alone.c"
    cp "$scratch/alone.c" "$scratch/alone.cc"
    set -- -I "$ST_SRCDIR/framework/include" -fsyntax-only -Wall -Wextra -Wno-unused-parameter -pedantic -Werror
    status=0
    compilers "${ST_CC:-cc}" gcc clang > "$scratch/c"
    compilers g++ clang++ > "$scratch/cxx"
    while read -r compiler; do
        $compiler -std=c11 "$@" "$scratch/alone.c" || { echo "$compiler -std=c11 refuses $header"; status=1; }
    done < "$scratch/c"
    while read -r compiler; do
        $compiler -std=c++17 "$@" "$scratch/alone.cc" || { echo "$compiler -std=c++17 refuses $header"; status=1; }
    done < "$scratch/cxx"
    return $status
}

# listed FOLDER FRAGMENT: every header of the folder is in the fragment that installs them
listed() {
    status=0
    for header in "$1"/*.h; do
        grep -q "strata/${header##*/}" "$2" || { echo "$2 does not install $header"; status=1; }
    done
    return $status
}

for header in "$public"/*.h; do
    must "${header##*/} stands alone" stands_alone "$header"
done
must 'all headers are installed' listed "$public" "$ST_SRCDIR/framework/include/module.mk"

echo 'typedef struct st_lonely { size_t n; } st_lonely;' > "$scratch/lonely.h"
must_not 'a header that needs another one is refused' '-std=c11 refuses' stands_alone "$scratch/lonely.h"
printf '#ifndef TWICE\n#define TWICE\nstatic inline int st_new(int new) { return new; }\n#endif\n' > "$scratch/keyword.h"
if [ -n "$(compilers g++ clang++)" ]; then
    must_not 'a header that is not C++ is refused' '-std=c++17 refuses' stands_alone "$scratch/keyword.h"
fi
printf '#ifndef TWICE\n#define TWICE\ntypedef struct st_gnu { int n, v[0]; } st_gnu;\n#endif\n' > "$scratch/gnu.h"
must_not 'a header with an extension is refused' '-std=c11 refuses' stands_alone "$scratch/gnu.h"
mkdir "$scratch/folder"
cp "$scratch/lonely.h" "$scratch/folder/"
must_not 'a header that is not installed is found' 'does not install' \
    listed "$scratch/folder" "$ST_SRCDIR/framework/include/module.mk"
tap_done
