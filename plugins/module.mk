# SPDX-License-Identifier: Apache-2.0
# CUDA kernels: a module's .cu files stand in its SOURCES beside a C file with the export, with CUDA_MODULE_CPPFLAGS for the C
# files, $(CUDA_LDFLAGS) and $(CUDA_LIBS); `$(its .lo files): $(its headers) $(CUDA_NEEDS)` says when to compile again. What
# ptxas says of registers and spills is kept beside the object, for tests/build/registers.sh.
SUFFIXES = .cu
CUDA_NEEDS = $(nobase_include_HEADERS) $(dist_stratainclude_HEADERS)
CUDA_MODULE_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS:-I%=-isystem %) $(CUDNN_CPPFLAGS) \
  -DST_CUDA_TOOLCHAIN='"cuda $(CUDA_VERSION)"' -DST_CUDA_ARCHS='"$(CUDA_ARCHS)"'
CUDA_COMPILE = $(LIBTOOL) $(AM_V_lt) --tag=CC --mode=compile $(NVCC) -forward-unknown-to-host-compiler $(CUDA_GENCODE) \
  -std=c++17 -O3 -lineinfo -fno-exceptions -fno-rtti -fvisibility=hidden -Wall -Xptxas $(CUDA_PTXAS) \
  $(CUDA_MODULE_CPPFLAGS) $(NVCCFLAGS)
AM_V_NVCC = $(am__v_NVCC_@AM_V@)
am__v_NVCC_ = $(am__v_NVCC_@AM_DEFAULT_V@)
am__v_NVCC_0 = @echo "  NVCC    " $@;
am__v_NVCC_1 =
.cu.lo:
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_NVCC)$(CUDA_COMPILE) -c -o $@ $< 2>$*.ptxas || { cat $*.ptxas >&2; exit 1; }
	$(AM_V_at)! grep -i -A3 warning $*.ptxas >&2 || $(NVCC_WARNED) || { rm -f $@; exit 1; }

include plugins/backends/cpu/module.mk
include plugins/backends/cuda/module.mk
include plugins/comm/self/module.mk
include plugins/layers/gated_delta_net/module.mk
include plugins/layers/attention/module.mk
include plugins/layers/swiglu/module.mk
include plugins/layers/gelu_mlp/module.mk
include plugins/positions/learned_absolute/module.mk
include plugins/layers/moe/module.mk
include plugins/positions/none/module.mk
include plugins/positions/rope/module.mk
include plugins/positions/mrope/module.mk
include plugins/encoders/qwen35_vision/module.mk
include plugins/heads/lm/module.mk
include plugins/heads/mtp/module.mk
include plugins/datasets/mock/module.mk
include plugins/datasets/cord_v2/module.mk
include plugins/optimizers/adamw/module.mk
include plugins/optimizers/muon/module.mk
CLEANFILES += plugins/*/*.ptxas plugins/*/*/*.ptxas tests/gpu/*.ptxas
