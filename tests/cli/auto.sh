#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What [run] backend = auto and precision = auto become, on a machine whose driver is a stand-in that counts as many GPUs
# as it is told: the choice, its reason, and what the resolved spec holds.
. "$ST_SRCDIR/tests/train/train.sh"
sed -i '/^backend = cpu/d' micro.ini

driver=$ST_BUILDDIR/tests/driver/.libs

# on GPUS COMMAND...: with so many of them
on() {
    gpus=$1
    shift
    env LD_LIBRARY_PATH="$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" STAND_IN_GPUS="$gpus" "$@"
}
# old COMMAND...: with a GPU that nothing is built for
old() { STAND_IN_CAPABILITY=75 on 1 "$@"; }
check() {
    gpus=$1
    shift
    on "$gpus" "$strata" check micro.ini "$@"
}

# ---- no GPU ----
must 'without a GPU it is cpu in f32, and why' exits 0 \
    'backend    cpu (auto: not cuda, the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES may hide them)), f32 (auto)' check 0
must 'a driver that does not start is told' exits 0 'cpu (auto: not cuda, the NVIDIA driver does not start' \
    env STAND_IN_BROKEN=1 LD_LIBRARY_PATH="$driver" "$strata" check micro.ini
must 'bf16 is refused, and why there is no other backend' exits 1 \
    'precision = bf16: backend cpu (auto: not cuda, the NVIDIA driver sees no GPU' check 0 --set run.precision=bf16
must 'a plan for cuda needs no GPU' exits 0 'backend    cuda, bf16' on 0 "$strata" plan micro.ini --set run.backend=cuda
must 'a check for it tells that there is none' exits 0 \
    'micro.ini can train, but not on this machine: backend cuda has no device 0 to use: the NVIDIA driver sees no GPU' \
    check 0 --set run.backend=cuda
must 'a run is told' exits 0 'backend cpu (auto: not cuda, the NVIDIA driver sees no GPU' on 0 "$strata" train micro.ini -o a
must 'its log says so' grep -q 'train: backend cpu (auto: not cuda' a/log
must 'the resolved spec holds the choice' grep -qx 'precision = f32' a/spec.ini
must 'of both' grep -qx 'backend = cpu' a/spec.ini
must 'bench begins with it' exits 0 'backend           cpu (auto: not cuda' on 0 "$strata" bench micro.ini --steps 1

# ---- a GPU ----
must 'f64 stays on the cpu' exits 0 'backend    cpu (auto: not cuda, it does not train in f64), f64' \
    check 2 --set run.precision=f64
must 'what is said counts' exits 0 'backend    cpu, f32 (auto)' check 2 --set run.backend=cpu
if [ -f "$ST_BUILDDIR/plugins/cuda-cuda.la" ]; then
    must 'with GPUs it is cuda in bf16' exits 0 'backend    cuda (auto: 2 devices), bf16 (auto)' check 2
    must 'also in f32' exits 0 'backend    cuda (auto: 1 device), f32' check 1 --set run.precision=f32
    must 'a GPU that the kernels are not built for, and both are told' exits 0 \
        "backend    cpu (auto: not cuda, $ST_BUILDDIR/plugins/.libs/cuda-cuda.so: these kernels are built for" \
        old "$strata" check micro.ini
    must 'a run that asks for it is refused' exits 1 'device 0 is Stand-in 0 of compute capability 7.5' \
        old "$strata" train micro.ini -o c --set run.backend=cuda
    must 'with what to do' exits 1 'configure --with-cuda-arch=75 builds kernels for it' \
        old "$strata" train micro.ini -o c --set run.backend=cuda
    must 'each value with where it comes from' exits 0 \
        'precision = bf16                                 ; auto' check 1 --explain
else
    must 'without kernels it is cpu' exits 0 'its module cuda-cuda.so is nowhere' check 1
fi

# ---- a run goes on in the precision that it began in ----
must 'a run in f64' on 0 "$strata" train micro.ini -o b --set run.steps=4 --set run.precision=f64
must 'goes on in it when the spec says nothing' exits 0 'does not train in f64), f64' \
    on 0 "$strata" train micro.ini -o b --resume --set run.steps=5
must 'or auto' exits 0 'does not train in f64), f64' \
    on 0 "$strata" train micro.ini -o b --resume --set run.steps=6 --set run.precision=auto
must 'another that is said is refused' exits 1 '[run] precision is f32, but the checkpoint was made with f64' \
    on 0 "$strata" train micro.ini -o b --resume --set run.steps=7 --set run.precision=f32
tap_done
