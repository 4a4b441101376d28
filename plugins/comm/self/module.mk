# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/self.la
plugins_self_la_SOURCES = plugins/comm/self/self.c
plugins_self_la_LDFLAGS = $(MODULE_LDFLAGS)
