#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# dropin.sh BINDIR PKGCONFIGDIR - a layer from outside, against an installed strata.
#
# In an empty folder one C file is compiled with what pkg-config says and copied with its manifest into the user's directory. Its
# symbol then stands in a pattern, is trained, and its gradients are checked. Modules made for another ABI must be refused. Run by
# make installcheck, and so by make distcheck.
here=$(cd "$(dirname "$0")" && pwd)
bindir=$(cd "${1:?usage: dropin.sh BINDIR PKGCONFIGDIR}" && pwd)
pkgconfigdir=$(cd "${2:?usage: dropin.sh BINDIR PKGCONFIGDIR}" && pwd)
ST_SRCDIR=${ST_SRCDIR:-$here/../..}
. "$ST_SRCDIR/tests/build/tap.sh"

unset STRATA_PLUGIN_PATH STRATA_PLUGIN_PATH_ONLY STRATA_PLUGIN_DISABLE
PATH=$bindir:$PATH
PKG_CONFIG_PATH=$pkgconfigdir
XDG_DATA_HOME=$scratch/data
OPENBLAS_NUM_THREADS=1
export PATH PKG_CONFIG_PATH XDG_DATA_HOME OPENBLAS_NUM_THREADS
mkdir -p "$scratch/author" "$XDG_DATA_HOME/strata"
cp "$here/dropin/glu.c" "$here/dropin/glu.ini" "$here/dropin/spec.ini" "$scratch/author/"
cd "$scratch/author" || exit 99

# compile FLAGS...: as an author would
compile() {
    # shellcheck disable=SC2046 # these are words
    ${ST_CC:-cc} "$@" $(pkg-config --cflags strata) -Wall -Werror -shared -fPIC -O2 glu.c -o glu.so
}

install_plugin() { cp glu.so glu.ini "$XDG_DATA_HOME/strata/"; }

# loss_falls FILE: the mean of the last five losses is below that of the first five, over 20 steps
loss_falls() {
    sed -n 's/.*"loss": *\([-+.0-9e]*\).*/\1/p' "$1" > "$scratch/losses"
    awk '
        NR <= 5 { first += $1 / 5 }
        NR > 15 { last += $1 / 5 }
        END {
            printf "%d steps, loss %.4f to %.4f\n", NR, first, last
            exit !(NR == 20 && last < first)
        }' "$scratch/losses"
}

# refused NAME TEXT: training stops, and says TEXT, before anything is written
refused() {
    rm -rf out
    must_not "$1" "$2" strata train spec.ini --output out
    must "$1, and nothing was written" test ! -e out
}

must 'the layer compiles against the installed headers' compile
must 'it needs no library of the host' test -z "$(pkg-config --libs-only-l strata)"
must_not 'it is unknown before it is installed' 'there is no layer plugin glu' strata check spec.ini
install_plugin
must 'strata plugins lists it' sh -c 'strata plugins | grep glu'
must 'strata inspect shows its parameters' sh -c 'strata inspect glu | grep width'
must 'strata check accepts its symbol' strata check spec.ini
must 'it trains 20 steps' strata train spec.ini --output out
must 'the loss falls' loss_falls out/metrics.jsonl

must 'its gradients agree with differences' strata selftest spec.ini
must 'they agree when its product is dropped and computed again' strata selftest spec.ini --set recompute.drop=U.product
cp glu.c right.c
sed 's/&up, dx, ST_ADD/\&up, dx, 0/' right.c > glu.c
compile
install_plugin
must_not 'an error in its backward is found' 'BAD' strata selftest spec.ini
mv right.c glu.c

# The same layer, as compiled with the headers of a strata to come.
cp -R "$(pkg-config --variable=includedir strata)/strata" strata
plugin_h=strata/plugin.h
sed 's/^\(#define ST_ABI_MAJOR\) .*/\1 7u/' $plugin_h > major.h
sed 's/^\(#define ST_ABI_MINOR\) .*/\1 93u/' $plugin_h > minor.h
cp major.h $plugin_h
compile -I.
install_plugin
refused 'a module of another major ABI is refused' 'built for plugin ABI 7.0, this host has 1.0'
cp minor.h $plugin_h
compile -I.
install_plugin
refused 'a module of a newer minor ABI is refused' 'built for plugin ABI 1.93, this host has 1.0'
rm -r strata
compile
sed 's/^abi = 1/abi = 7/' "$here/dropin/glu.ini" > glu.ini
install_plugin
refused 'a manifest of another ABI is refused' 'made for plugin ABI 7, this host has 1'
tap_done
