# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/muon.la plugins/muon-cpu.la
plugins_muon_la_SOURCES = plugins/optimizers/muon/muon.c plugins/optimizers/muon/kernels.h
plugins_muon_la_LDFLAGS = $(MODULE_LDFLAGS)
plugins_muon_cpu_la_SOURCES = plugins/optimizers/muon/kernels_cpu.c \
  plugins/optimizers/muon/kernels_cpu_type.h plugins/optimizers/muon/kernels.h
plugins_muon_cpu_la_LDFLAGS = $(MODULE_LDFLAGS)
