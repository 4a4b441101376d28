# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/lm.la
plugins_lm_la_SOURCES = plugins/heads/lm/lm.c
plugins_lm_la_LDFLAGS = $(MODULE_LDFLAGS)
