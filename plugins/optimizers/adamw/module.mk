# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/adamw.la
plugins_adamw_la_SOURCES = plugins/optimizers/adamw/adamw.c
plugins_adamw_la_LDFLAGS = $(MODULE_LDFLAGS)
