# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/mrope.la plugins/mrope-cpu.la
plugins_mrope_la_SOURCES = plugins/positions/mrope/mrope.c plugins/positions/rotary/rotary.h plugins/positions/rotary/rotary_kernels.h
plugins_mrope_la_LDFLAGS = $(MODULE_LDFLAGS)
plugins_mrope_cpu_la_SOURCES = plugins/positions/rotary/rotary_cpu.c plugins/positions/rotary/rotary.h plugins/positions/rotary/rotary_kernels.h
plugins_mrope_cpu_la_CPPFLAGS = $(AM_CPPFLAGS) -DROTARY_PLUGIN='"mrope"'
plugins_mrope_cpu_la_LDFLAGS = $(MODULE_LDFLAGS)
if HAVE_CUDA
plugins_LTLIBRARIES += plugins/mrope-cuda.la
plugins_mrope_cuda_la_SOURCES = plugins/positions/rotary/module_cuda.c $(rotary_cuda_sources)
plugins_mrope_cuda_la_CPPFLAGS = $(CUDA_MODULE_CPPFLAGS) -DROTARY_PLUGIN='"mrope"'
plugins_mrope_cuda_la_LDFLAGS = $(MODULE_LDFLAGS) $(CUDA_LDFLAGS)
plugins_mrope_cuda_la_LIBADD = $(CUDA_LIBS)
endif
