# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/attention.la
plugins_attention_la_SOURCES = plugins/layers/attention/attention.c
plugins_attention_la_LDFLAGS = $(MODULE_LDFLAGS)
plugins_attention_la_LIBADD = -lm
