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
