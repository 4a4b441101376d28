# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/gelu_mlp.la
plugins_gelu_mlp_la_SOURCES = plugins/layers/gelu_mlp/gelu_mlp.c
plugins_gelu_mlp_la_LDFLAGS = $(MODULE_LDFLAGS)
