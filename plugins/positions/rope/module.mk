# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/rope.la plugins/rope-cpu.la
plugins_rope_la_SOURCES = plugins/positions/rope/rope.c plugins/positions/rotary/rotary.h
plugins_rope_la_LDFLAGS = $(MODULE_LDFLAGS)
plugins_rope_cpu_la_SOURCES = plugins/positions/rotary/rotary_cpu.c plugins/positions/rotary/rotary.h
plugins_rope_cpu_la_CPPFLAGS = $(AM_CPPFLAGS) -DROTARY_PLUGIN='"rope"'
plugins_rope_cpu_la_LDFLAGS = $(MODULE_LDFLAGS)
