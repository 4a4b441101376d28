# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/qwen35_vision.la plugins/qwen35_vision-cpu.la
plugins_qwen35_vision_la_SOURCES = plugins/encoders/qwen35_vision/vision.c plugins/encoders/qwen35_vision/media.c \
  plugins/encoders/qwen35_vision/resize.c plugins/encoders/qwen35_vision/vision.h plugins/encoders/qwen35_vision/kernels.h
plugins_qwen35_vision_la_CFLAGS = $(AM_CFLAGS) -O3
plugins_qwen35_vision_la_LDFLAGS = $(MODULE_LDFLAGS)
plugins_qwen35_vision_cpu_la_SOURCES = plugins/encoders/qwen35_vision/kernels_cpu.c \
  plugins/encoders/qwen35_vision/kernels_cpu_type.h plugins/encoders/qwen35_vision/kernels.h
plugins_qwen35_vision_cpu_la_CFLAGS = $(AM_CFLAGS) -O3
plugins_qwen35_vision_cpu_la_LDFLAGS = $(MODULE_LDFLAGS)

vision_cuda_sources = plugins/encoders/qwen35_vision/units_cuda.cu
EXTRA_DIST += plugins/encoders/qwen35_vision/kernels_cuda.h
if HAVE_CUDA
plugins_LTLIBRARIES += plugins/qwen35_vision-cuda.la
plugins_qwen35_vision_cuda_la_SOURCES = plugins/encoders/qwen35_vision/module_cuda.c $(vision_cuda_sources)
plugins_qwen35_vision_cuda_la_CPPFLAGS = $(CUDA_MODULE_CPPFLAGS)
plugins_qwen35_vision_cuda_la_LDFLAGS = $(MODULE_LDFLAGS) $(CUDA_LDFLAGS)
plugins_qwen35_vision_cuda_la_LIBADD = $(CUDA_LIBS)
$(vision_cuda_sources:.cu=.lo): plugins/encoders/qwen35_vision/kernels_cuda.h plugins/encoders/qwen35_vision/kernels.h $(CUDA_NEEDS)
endif
