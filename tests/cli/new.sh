#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `strata new layer`: what it makes compiles, passes its checks, trains and installs; it takes nothing that is taken.
. "$ST_SRCDIR/tests/cli/cli.sh"

unset STRATA_PLUGIN_PATH STRATA_PLUGIN_PATH_ONLY MAKEFLAGS MFLAGS MAKELEVEL
PKG_CONFIG_PATH=$ST_BUILDDIR
XDG_DATA_HOME=$scratch/data
export PKG_CONFIG_PATH XDG_DATA_HOME
cd "$scratch" || exit 99

# makefile TARGET...: of the folder just made
makefile() { ${MAKE:-make} -C tilt CC="${ST_CC:-cc}" CFLAGS='-O1 -Werror' STRATA="$strata" "$@"; }

# plain: no mark of the templates is left
plain() { ! grep -rn -e '@[A-Z]*@' tilt; }

# loss_falls: over the 20 steps, the mean of the last five losses is below that of the first five
loss_falls() {
    sed -n 's/.*"loss": *\([-+.0-9e]*\).*/\1/p' out/metrics.jsonl | awk '
        NR <= 5 { first += $1 / 5 }
        NR > 15 { last += $1 / 5 }
        END { printf "%d steps, loss %.4f to %.4f\n", NR, first, last; exit !(NR == 20 && last < first) }'
}

must 'a layer is made, its symbol a letter of its name' exits 0 'symbol T' "$strata" new layer tilt
must 'all marks are replaced' plain
must 'its Makefile compiles it' makefile
must 'its own check passes' makefile check
must 'a slip in a key is not tested as the default' exits 1 'has no key "widht"' "$strata" selftest tilt/spec.ini \
    --set layer.T.widht=4
must 'selftest is green, also with its slot dropped' exits 0 'all checks passed' \
    "$strata" selftest tilt/spec.ini --set recompute.drop=T.active
must 'it trains' exits 0 '' "$strata" train tilt/spec.ini --output out
must 'the loss falls' loss_falls
must 'it is not known elsewhere' exits 1 'no plugin tilt' "$strata" inspect tilt
must 'it is installed for the user' makefile install-user
must 'then it is known by its symbol' exits 0 'tilt: plain MLP' "$strata" inspect --symbol T

sed 's/&d_up, dx, 0/\&d_active, dx, 0/' tilt/tilt.c > wrong.c && cp wrong.c tilt/tilt.c
must_not 'a wrong backward fails its check' 'BAD' makefile check

must 'a name that exists is refused' exits 1 'there is a layer tilt already' "$strata" new layer tilt
must 'a symbol can be given' exits 0 'symbol ~' "$strata" new layer wave --symbol '~'
must 'it stands in the manifest' grep -q '^symbol = ~$' wave/wave.ini
must 'a folder that is there is refused' exits 1 'wave exists already' "$strata" new layer wave
must 'a taken symbol names its holder' exits 1 'the symbol G is taken by the layer gated_delta_net' \
    "$strata" new layer other --symbol G
must 'and where that is' exits 1 '30-gated_delta_net.ini' "$strata" new layer other --symbol G
must 'a letter that is taken is not chosen' exits 0 'symbol I' "$strata" new layer tip
must 'a plugin that comes with the program keeps its name' exits 1 'there is a layer attention already' \
    "$strata" new layer attention
for name in Other 2nd ../other a-b ''; do
    must "'$name' is no name" exits 1 'a lower-case letter' "$strata" new layer "$name"
done
for symbol in '' / UU 7; do
    must "'$symbol' is no symbol" exits 1 'cannot be a pattern symbol' "$strata" new layer other --symbol "$symbol"
done
must 'a kind without a template is wrong usage' exits 2 "none for 'planet'" "$strata" new planet other
must 'no name is wrong usage' exits 2 'a kind and a name' "$strata" new layer
must 'what was refused left nothing behind' test ! -e other
tap_done
