# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/mtp.la
plugins_mtp_la_SOURCES = plugins/heads/mtp/mtp.c
plugins_mtp_la_LDFLAGS = $(MODULE_LDFLAGS)
