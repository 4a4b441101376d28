#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `strata bench`: every launch with its work and floor, one launch by layer and shape. Nothing here looks at how long
# anything took.
. "$ST_SRCDIR/tests/train/train.sh"

{
    sed '/^\[layer.-\]/,/^width/d; s/^plugin = adamw/plugin = muon/' micro.ini
    printf '[layer.E]\nexperts = 4\ntop_k = 2\nwidth = 8\nshared_width = 8\n'
} | sed 's/^pattern = G-.*/pattern = GE*E/' > moe.ini
bench() { spec=$1; shift; "$strata" bench "$spec" --steps 1 --warmup 0 "$@"; }
# objects SPEC OPTION...: the JSON, an object of the list in each line
objects() { bench "$@" --json | sed 's/{"seconds"/\n&/g'; }
# number NAME: its value in each line
number() { sed -n "s/.*\"$1\": \\([^,}]*\\).*/\\1/p"; }

all_work() { # no launch without bytes, and all those named are there
    objects "$1" > said.json || return 1
    shift
    grep '"calls"' said.json | grep -E '"bytes": 0(\.0)?[,}]' && return 1
    for name in "$@"; do grep -q "\"name\": \"$name\"" said.json || { cat said.json; echo "no $name"; return 1; }; done
}
must 'every launch says what it does' all_work micro.ini gdn_conv gdn_gate gdn_rule gdn_norm gdn_conv_bwd gdn_gate_bwd \
    gdn_rule_bwd gdn_norm_bwd rotary_tables vision_patchify vision_rotary vision_position vision_position_bwd adamw xent
must 'so do those of experts and of muon' all_work moe.ini moe_route moe_sort moe_glu moe_gate moe_glu_bwd \
    moe_router_bwd moe_gate_bwd moe_report muon_momentum muon_apply
bench micro.ini > text 2>&1
must 'floors stand beside them' exits 0 '    GB/s  floor ms   reached' cat text
must 'made from two rates' exits 0 'GB/s in a copy' cat text

# of one launch: 6 tokens heads key_dim value_dim operations for the rule
two='stack.pattern=G-G-*-'
bench micro.ini --kernel gdn_rule --set $two > text 2>&1
must 'one launch, by layer' exits 0 'layers.2                 G ' cat text
must_not 'and no other' 'should have been printed: gdn_norm' exits 0 gdn_norm cat text
works() {
    objects micro.ini --kernel gdn_rule --set $two | number flops > said
    [ "$(grep -c '^147456' said)" = 2 ] && [ "$(wc -l < said)" = 2 ] || { cat said; return 1; }
}
must 'with the work of its sizes' works
shapes() {
    objects micro.ini --kernel linear --set $two | grep '"layer": "layers.0"' > said
    [ "$(wc -l < said)" = 2 ] && [ "$(number flops < said | sort -u | wc -l)" = 2 ] || { cat said; return 1; }
}
must 'a layer that makes it with two shapes has two rows' shapes
floors() { # floor_seconds is the longer of both
    objects micro.ini --kernel linear > said.json || return 1
    product=$(number product_rate < said.json) copy=$(number copy_rate < said.json)
    grep '"layer"' said.json | while read -r line; do
        echo "$line" | number flops; echo "$line" | number bytes; echo "$line" | number floor_seconds
    done | paste -d' ' - - - | awk -v p="$product" -v c="$copy" \
        '{ f = $1 / p > $2 / c ? $1 / p : $2 / c; if (f <= 0 || $3 / f < 0.999 || $3 / f > 1.001) bad = 1; n++ }
         END { exit bad || n == 0 }'
}
must 'a floor is what bytes or operations need at those rates' floors
must 'an unknown launch is refused' exits 1 '--kernel rule: a step of this spec makes no such launch' \
    bench micro.ini --kernel rule
must 'with those there are' exits 1 ' gdn_rule, ' bench micro.ini --kernel rule
must_not 'not those of other specs' 'should have been printed: moe_route' exits 1 moe_route \
    bench micro.ini --kernel rule
must_not 'before a device is opened' 'should have been printed: device  ' exits 1 'device  ' \
    bench micro.ini --kernel rule
tap_done
