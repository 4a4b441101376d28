# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/learned_absolute.la plugins/learned_absolute-cpu.la
plugins_learned_absolute_la_SOURCES = plugins/positions/learned_absolute/learned_absolute.c \
  plugins/positions/learned_absolute/kernels.h
plugins_learned_absolute_la_LDFLAGS = $(MODULE_LDFLAGS)
plugins_learned_absolute_cpu_la_SOURCES = plugins/positions/learned_absolute/kernels_cpu.c \
  plugins/positions/learned_absolute/kernels_cpu_type.h plugins/positions/learned_absolute/kernels.h
plugins_learned_absolute_cpu_la_LDFLAGS = $(MODULE_LDFLAGS)
