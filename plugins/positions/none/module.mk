# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/none.la
plugins_none_la_SOURCES = plugins/positions/none/none.c
plugins_none_la_LDFLAGS = $(MODULE_LDFLAGS)
