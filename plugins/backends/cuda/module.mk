# SPDX-License-Identifier: Apache-2.0
# Module cuda: plain C, built everywhere. Kernel module cuda-cuda: with CUDA only.
cuda_dir = plugins/backends/cuda
plugins_LTLIBRARIES += plugins/cuda.la
plugins_cuda_la_SOURCES = $(cuda_dir)/cuda.c $(cuda_dir)/cuda.h $(cuda_dir)/ops.h $(cuda_dir)/ops_point.c
plugins_cuda_la_LDFLAGS = $(MODULE_LDFLAGS)

cuda_kernels = $(cuda_dir)/point.cu
cuda_kernel_headers = $(cuda_dir)/cuda.h $(cuda_dir)/device_cuda.h $(cuda_dir)/kernel.h
EXTRA_DIST += $(cuda_kernel_headers)
if HAVE_CUDA
plugins_LTLIBRARIES += plugins/cuda-cuda.la
plugins_cuda_cuda_la_SOURCES = $(cuda_dir)/device_cuda.c $(cuda_dir)/module_cuda.c $(cuda_kernels)
plugins_cuda_cuda_la_CPPFLAGS = $(CUDA_MODULE_CPPFLAGS)
plugins_cuda_cuda_la_LDFLAGS = $(MODULE_LDFLAGS) $(CUDA_LDFLAGS)
plugins_cuda_cuda_la_LIBADD = $(CUDA_LIBS)
$(cuda_kernels:.cu=.lo): $(cuda_kernel_headers) $(CUDA_NEEDS)
endif
