# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/muon.la plugins/muon-cpu.la
plugins_muon_la_SOURCES = plugins/optimizers/muon/muon.c plugins/optimizers/muon/kernels.h
plugins_muon_la_LDFLAGS = $(MODULE_LDFLAGS)
plugins_muon_cpu_la_SOURCES = plugins/optimizers/muon/kernels_cpu.c \
  plugins/optimizers/muon/kernels_cpu_type.h plugins/optimizers/muon/kernels.h
plugins_muon_cpu_la_LDFLAGS = $(MODULE_LDFLAGS)

muon_cuda_sources = plugins/optimizers/muon/kernels_cuda.cu
EXTRA_DIST += plugins/optimizers/muon/kernels_cuda.h
if HAVE_CUDA
plugins_LTLIBRARIES += plugins/muon-cuda.la
plugins_muon_cuda_la_SOURCES = plugins/optimizers/muon/module_cuda.c $(muon_cuda_sources)
plugins_muon_cuda_la_CPPFLAGS = $(CUDA_MODULE_CPPFLAGS)
plugins_muon_cuda_la_LDFLAGS = $(MODULE_LDFLAGS) $(CUDA_LDFLAGS)
plugins_muon_cuda_la_LIBADD = $(CUDA_LIBS)
$(muon_cuda_sources:.cu=.lo): plugins/optimizers/muon/kernels_cuda.h plugins/optimizers/muon/kernels.h $(CUDA_NEEDS)
endif
