# SPDX-License-Identifier: Apache-2.0
# Module cuda: plain C, built everywhere. Kernel module cuda-cuda: with CUDA only.
cuda_dir = plugins/backends/cuda
plugins_LTLIBRARIES += plugins/cuda.la
plugins_cuda_la_SOURCES = \
  plugins/backends/check/adamw.c \
  plugins/backends/check/adamw.h \
  plugins/backends/check/attention.c \
  plugins/backends/check/attention.h \
  plugins/backends/check/check.c \
  plugins/backends/check/check.h \
  $(cuda_dir)/cuda.c \
  $(cuda_dir)/cuda.h \
  $(cuda_dir)/ops.h \
  $(cuda_dir)/ops_attention.c \
  $(cuda_dir)/ops_check.c \
  $(cuda_dir)/ops_gemm.c \
  $(cuda_dir)/ops_lookup.c \
  $(cuda_dir)/ops_norm.c \
  $(cuda_dir)/ops_point.c \
  $(cuda_dir)/ops_xent.c
plugins_cuda_la_CPPFLAGS = $(AM_CPPFLAGS)
plugins_cuda_la_LDFLAGS = $(MODULE_LDFLAGS)

cuda_kernels = \
  $(cuda_dir)/adamw.cu \
  $(cuda_dir)/attention.cu \
  $(cuda_dir)/attention_delta.cu \
  $(cuda_dir)/attention_dkv.cu \
  $(cuda_dir)/attention_dq.cu \
  $(cuda_dir)/attention_forward.cu \
  $(cuda_dir)/attention_group_dkv.cu \
  $(cuda_dir)/attention_group_dq.cu \
  $(cuda_dir)/attention_lists.cu \
  $(cuda_dir)/attention_narrow.cu \
  $(cuda_dir)/attention_plain.cu \
  $(cuda_dir)/copy.cu \
  $(cuda_dir)/finish.cu \
  $(cuda_dir)/grouped.cu \
  $(cuda_dir)/lookup.cu \
  $(cuda_dir)/move.cu \
  $(cuda_dir)/norm.cu \
  $(cuda_dir)/point.cu \
  $(cuda_dir)/qk_norm.cu \
  $(cuda_dir)/rows.cu \
  $(cuda_dir)/sums.cu \
  $(cuda_dir)/xent.cu
cuda_kernel_headers = \
  $(cuda_dir)/attention.h \
  $(cuda_dir)/attention_group.h \
  $(cuda_dir)/attention_lists.h \
  $(cuda_dir)/attention_tile.h \
  $(cuda_dir)/cudnn_plan.h \
  $(cuda_dir)/cuda.h \
  $(cuda_dir)/device_cuda.h \
  $(cuda_dir)/kernel.h \
  $(cuda_dir)/pack.h \
  $(cuda_dir)/walk.h \
  $(cuda_dir)/wide.h
EXTRA_DIST += $(cuda_kernel_headers)
if HAVE_CUDA
plugins_LTLIBRARIES += plugins/cuda-cuda.la
plugins_cuda_cuda_la_SOURCES = $(cuda_dir)/device_cuda.c $(cuda_dir)/module_cuda.c $(cuda_dir)/product_cuda.c $(cuda_kernels)
plugins_cuda_cuda_la_CPPFLAGS = $(CUDA_MODULE_CPPFLAGS)
if HAVE_CUDNN
plugins_cuda_cuda_la_SOURCES += $(cuda_dir)/attention_cudnn.c $(cuda_dir)/cudnn_plan.c
endif
plugins_cuda_cuda_la_LDFLAGS = $(MODULE_LDFLAGS) $(CUDA_LDFLAGS)
plugins_cuda_cuda_la_LIBADD = $(CUDA_LIBS)
$(cuda_kernels:.cu=.lo): $(cuda_kernel_headers) plugins/backends/check/adamw.h $(CUDA_NEEDS)
endif
