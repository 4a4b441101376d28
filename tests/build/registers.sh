#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No CUDA kernel spills registers, keeps arrays in slow local memory, or has its tensor core instructions made serial on sm_90a, the
# GPU that kernels are fitted to; on others they may. What ptxas said while compiling is beside each object. The table of
# registers is shown.
. "$ST_SRCDIR/tests/build/tap.sh"

# table LOG: "registers spilled stack kernel" for each kernel
table() {
    awk '
        /Compiling entry function/ { split($0, part, "'\''"); kernel = part[2]; fitted = part[4] == "sm_90a" }
        /bytes stack frame/ { stack = $1; spilled = $5 }
        fitted && /Used [0-9]+ registers/ { sub(/.*Used /, ""); print $1, spilled, stack, kernel }' "$1"
}

# fits LOG: whether its kernels are as they should be
fits() {
    table "$1" > "$scratch/table"
    grep -q 'ptxas info' "$1" || { echo "${1##*/} holds no word of ptxas"; return 1; } # a file of entries has no kernels
    status=0
    awk '$2 + $3 > 0 { print $4 " spills " $2 " bytes, with " $3 " bytes of stack"; bad = 1 } END { exit bad }' "$scratch/table" || status=1
    if grep -E 'C75(08|1[0-58])' "$1"; then
        echo "${1##*/}: tensor core instructions are made serial, or setmaxnreg is ignored"
        status=1
    fi
    return $status
}

find "$ST_BUILDDIR/plugins" -name '*.ptxas' | sort > "$scratch/logs"
while read -r log; do
    name=${log##*/plugins/}
    must "${name%.ptxas}.cu: $(table "$log" | sort -n | awk '{ n++; most = $1 } END { print n + 0 " kernels, at most " most + 0 " registers" }')" fits "$log"
done < "$scratch/logs"

# log_with SPILLED STACK [LINE] [ARCH]: of a kernel like this
log_with() {
    cat > "$scratch/one.ptxas" <<END
ptxas info    : Compiling entry function '_Z4good' for '${4:-sm_90a}'
ptxas info    : Function properties for _Z4good
    $2 bytes stack frame, $1 bytes spill stores, $1 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers
${3:-}
END
    fits "$scratch/one.ptxas"
}
must 'a kernel without spills is accepted' log_with 0 0
must_not 'spills are found' '_Z4good spills 8 bytes' log_with 8 16
must 'code for another GPU may spill' log_with 8 16 '' sm_80
must_not 'local memory is found' '16 bytes of stack' log_with 0 16
for number in 10 13 15; do
    must_not "serial tensor core instructions are found, C75$number" 'made serial' \
        log_with 0 0 "ptxas info : (C75$number) Potential Performance Loss"
done
: > "$scratch/none.ptxas"
must_not 'a log that ptxas did not write is found' 'holds no word of ptxas' fits "$scratch/none.ptxas"
tap_done
