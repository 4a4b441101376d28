#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make-reference.sh STRATA REGISTRY - prints docs/reference.md: what STRATA tells of its own keys and of each plugin that has a
# manifest in the folder REGISTRY. `make reference` writes the file, tests/build/reference.sh compares it.
strata=${1:?usage: make-reference.sh STRATA REGISTRY}
registry=${2:?usage: make-reference.sh STRATA REGISTRY}

# value KEY FILE: of a manifest
value() { sed -n "s/^$1 = //p" "$2"; }

cat << 'END'
# Reference

All sections and keys, printed by the program from the tables that it reads specs with. This file is made by `make reference`;
[spec.md](spec.md) is the guide. An installed strata prints the same: `strata inspect --spec`, `strata inspect PLUGIN`.

How values are written is told in [spec-syntax.md](spec-syntax.md#values). A key that is *fixed by a checkpoint* is part of what
the weights mean. *else [stack]'s* means that a missing key is taken from `[stack]`.

END
"$strata" inspect --spec --format=md | sed 's/^#/##/' || exit 1
for kind in layer position encoder head optimizer dataset backend comm; do
    printf '\n## %s plugins\n' "$(echo "$kind" | awk '{ print toupper(substr($0, 1, 1)) substr($0, 2) }')"
    for manifest in "$registry"/*.ini; do
        [ "$(value kind "$manifest")" = $kind ] || continue
        echo
        "$strata" inspect "$(value name "$manifest")" --kind=$kind --format=md | sed 's/^# /### /' || exit 1
    done
done
