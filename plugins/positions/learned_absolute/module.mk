# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/learned_absolute.la plugins/learned_absolute-cpu.la
plugins_learned_absolute_la_SOURCES = plugins/positions/learned_absolute/learned_absolute.c \
  plugins/positions/learned_absolute/kernels.h
plugins_learned_absolute_la_LDFLAGS = $(MODULE_LDFLAGS)
plugins_learned_absolute_cpu_la_SOURCES = plugins/positions/learned_absolute/kernels_cpu.c \
  plugins/positions/learned_absolute/kernels_cpu_type.h plugins/positions/learned_absolute/kernels.h
plugins_learned_absolute_cpu_la_LDFLAGS = $(MODULE_LDFLAGS)

learned_cuda_sources = plugins/positions/learned_absolute/rows_cuda.cu
EXTRA_DIST += plugins/positions/learned_absolute/kernels_cuda.h
if HAVE_CUDA
plugins_LTLIBRARIES += plugins/learned_absolute-cuda.la
plugins_learned_absolute_cuda_la_SOURCES = plugins/positions/learned_absolute/module_cuda.c $(learned_cuda_sources)
plugins_learned_absolute_cuda_la_CPPFLAGS = $(CUDA_MODULE_CPPFLAGS)
plugins_learned_absolute_cuda_la_LDFLAGS = $(MODULE_LDFLAGS) $(CUDA_LDFLAGS)
plugins_learned_absolute_cuda_la_LIBADD = $(CUDA_LIBS)
$(learned_cuda_sources:.cu=.lo): plugins/positions/learned_absolute/kernels_cuda.h plugins/positions/learned_absolute/kernels.h $(CUDA_NEEDS)
endif
