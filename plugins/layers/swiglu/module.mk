# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/swiglu.la
plugins_swiglu_la_SOURCES = plugins/layers/swiglu/swiglu.c
plugins_swiglu_la_LDFLAGS = $(MODULE_LDFLAGS)
