# SPDX-License-Identifier: Apache-2.0
# Module cpu: entries and device once, kernels once per instruction set level.
plugins_LTLIBRARIES += plugins/cpu.la
noinst_LTLIBRARIES += plugins/backends/cpu/liblevel1.la

cpu_kernel_sources = \
  plugins/backends/check/check.h \
  plugins/backends/cpu/activation.h \
  plugins/backends/cpu/cpu.h \
  plugins/backends/cpu/kernel_attention.c \
  plugins/backends/cpu/kernel_norm.c \
  plugins/backends/cpu/kernel_panel.c \
  plugins/backends/cpu/kernel_point.c \
  plugins/backends/cpu/kernel_product.c \
  plugins/backends/cpu/kernel_rows.c \
  plugins/backends/cpu/kernel_table.c \
  plugins/backends/cpu/kernel_xent.c \
  plugins/backends/cpu/real.h \
  plugins/backends/cpu/twice.h
cpu_kernel_cflags = $(AM_CFLAGS) -O3 -fvect-cost-model=dynamic -funswitch-loops

plugins_cpu_la_SOURCES = \
  plugins/backends/check/adamw.c \
  plugins/backends/check/adamw.h \
  plugins/backends/check/attention.c \
  plugins/backends/check/attention.h \
  plugins/backends/check/check.c \
  plugins/backends/check/check.h \
  plugins/backends/cpu/check.c \
  plugins/backends/cpu/cpu.c \
  plugins/backends/cpu/cpu.h \
  plugins/backends/cpu/ops_attention.c \
  plugins/backends/cpu/ops_gemm.c \
  plugins/backends/cpu/ops_lookup.c \
  plugins/backends/cpu/ops_norm.c \
  plugins/backends/cpu/ops_point.c \
  plugins/backends/cpu/ops_rounded.c \
  plugins/backends/cpu/ops_xent.c \
  plugins/backends/cpu/product.c \
  plugins/backends/cpu/team.c \
  plugins/backends/cpu/team.h
plugins_cpu_la_CPPFLAGS = $(AM_CPPFLAGS) $(OPENBLAS_CFLAGS)
plugins_cpu_la_LDFLAGS = $(MODULE_LDFLAGS)
plugins_cpu_la_LIBADD = plugins/backends/cpu/liblevel1.la $(OPENBLAS_LIBS)

plugins_backends_cpu_liblevel1_la_SOURCES = $(cpu_kernel_sources)
plugins_backends_cpu_liblevel1_la_CPPFLAGS = $(AM_CPPFLAGS) -DST_CPU_LEVEL=1
plugins_backends_cpu_liblevel1_la_CFLAGS = $(cpu_kernel_cflags)

if X86_LEVELS
noinst_LTLIBRARIES += plugins/backends/cpu/liblevel3.la plugins/backends/cpu/liblevel4.la
plugins_cpu_la_CPPFLAGS += -DCPU_ALL_LEVELS
plugins_cpu_la_LIBADD += plugins/backends/cpu/liblevel3.la plugins/backends/cpu/liblevel4.la

plugins_backends_cpu_liblevel3_la_SOURCES = $(cpu_kernel_sources)
plugins_backends_cpu_liblevel3_la_CPPFLAGS = $(AM_CPPFLAGS) -DST_CPU_LEVEL=3
plugins_backends_cpu_liblevel3_la_CFLAGS = $(cpu_kernel_cflags) -march=x86-64-v3

plugins_backends_cpu_liblevel4_la_SOURCES = $(cpu_kernel_sources)
plugins_backends_cpu_liblevel4_la_CPPFLAGS = $(AM_CPPFLAGS) -DST_CPU_LEVEL=4
plugins_backends_cpu_liblevel4_la_CFLAGS = $(cpu_kernel_cflags) -march=x86-64-v4 -mprefer-vector-width=512
endif
