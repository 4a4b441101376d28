# SPDX-License-Identifier: Apache-2.0
moe_dir = plugins/layers/moe
moe_kernel_sources = $(moe_dir)/kernels_cpu.c $(moe_dir)/kernels_cpu.h $(moe_dir)/kernels.h $(moe_dir)/rows_cpu.h \
  $(moe_dir)/router_cpu.h
plugins_LTLIBRARIES += plugins/moe.la plugins/moe-cpu.la
plugins_moe_la_SOURCES = $(moe_dir)/moe.c $(moe_dir)/kernels.h $(moe_dir)/cost.h
plugins_moe_la_LDFLAGS = $(MODULE_LDFLAGS)

# The kernels once per instruction-set level.
noinst_LTLIBRARIES += plugins/libmoe1.la
plugins_libmoe1_la_SOURCES = $(moe_kernel_sources)
plugins_libmoe1_la_CFLAGS = $(AM_CFLAGS) -O3
plugins_libmoe1_la_CPPFLAGS = $(AM_CPPFLAGS) -DST_CPU_LEVEL=1
moe_levels = plugins/libmoe1.la
if X86_LEVELS
noinst_LTLIBRARIES += plugins/libmoe3.la plugins/libmoe4.la
plugins_libmoe3_la_SOURCES = $(moe_kernel_sources)
plugins_libmoe3_la_CFLAGS = $(AM_CFLAGS) -O3 -march=x86-64-v3
plugins_libmoe3_la_CPPFLAGS = $(AM_CPPFLAGS) -DST_CPU_LEVEL=3
plugins_libmoe4_la_SOURCES = $(moe_kernel_sources)
plugins_libmoe4_la_CFLAGS = $(AM_CFLAGS) -O3 -march=x86-64-v4
plugins_libmoe4_la_CPPFLAGS = $(AM_CPPFLAGS) -DST_CPU_LEVEL=4
moe_levels += plugins/libmoe3.la plugins/libmoe4.la
endif
plugins_moe_cpu_la_SOURCES = $(moe_dir)/module_cpu.c
plugins_moe_cpu_la_LIBADD = $(moe_levels) -lm
plugins_moe_cpu_la_LDFLAGS = $(MODULE_LDFLAGS)

moe_cuda_sources = $(moe_dir)/router_cuda.cu $(moe_dir)/sort_cuda.cu $(moe_dir)/rows_cuda.cu
moe_cuda_headers = $(moe_dir)/kernels_cuda.h $(moe_dir)/warp_cuda.h
EXTRA_DIST += $(moe_cuda_headers)
if HAVE_CUDA
plugins_LTLIBRARIES += plugins/moe-cuda.la
plugins_moe_cuda_la_SOURCES = $(moe_dir)/module_cuda.c $(moe_cuda_sources)
plugins_moe_cuda_la_CPPFLAGS = $(CUDA_MODULE_CPPFLAGS)
plugins_moe_cuda_la_LDFLAGS = $(MODULE_LDFLAGS) $(CUDA_LDFLAGS)
plugins_moe_cuda_la_LIBADD = $(CUDA_LIBS)
$(moe_cuda_sources:.cu=.lo): $(moe_cuda_headers) $(moe_dir)/kernels.h $(CUDA_NEEDS)
endif
