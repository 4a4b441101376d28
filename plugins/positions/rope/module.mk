# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/rope.la plugins/rope-cpu.la
plugins_rope_la_SOURCES = plugins/positions/rope/rope.c plugins/positions/rotary/rotary.h plugins/positions/rotary/rotary_kernels.h
plugins_rope_la_LDFLAGS = $(MODULE_LDFLAGS)
plugins_rope_cpu_la_SOURCES = plugins/positions/rotary/rotary_cpu.c plugins/positions/rotary/rotary.h plugins/positions/rotary/rotary_kernels.h
plugins_rope_cpu_la_CPPFLAGS = $(AM_CPPFLAGS) -DROTARY_PLUGIN='"rope"'
plugins_rope_cpu_la_LDFLAGS = $(MODULE_LDFLAGS)

rotary_cuda_sources = plugins/positions/rotary/rotary_cuda.cu
EXTRA_DIST += plugins/positions/rotary/rotary_cuda.h
if HAVE_CUDA
plugins_LTLIBRARIES += plugins/rope-cuda.la
plugins_rope_cuda_la_SOURCES = plugins/positions/rotary/module_cuda.c $(rotary_cuda_sources)
plugins_rope_cuda_la_CPPFLAGS = $(CUDA_MODULE_CPPFLAGS) -DROTARY_PLUGIN='"rope"'
plugins_rope_cuda_la_LDFLAGS = $(MODULE_LDFLAGS) $(CUDA_LDFLAGS)
plugins_rope_cuda_la_LIBADD = $(CUDA_LIBS)
$(rotary_cuda_sources:.cu=.lo): plugins/positions/rotary/rotary_cuda.h plugins/positions/rotary/rotary_kernels.h $(CUDA_NEEDS)
endif
