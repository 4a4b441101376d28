# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/cord_v2.la
plugins_cord_v2_la_SOURCES = plugins/datasets/cord_v2/cord_v2.c plugins/datasets/cord_v2/label.c plugins/datasets/cord_v2/cord_v2.h
plugins_cord_v2_la_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
plugins_cord_v2_la_LDFLAGS = $(MODULE_LDFLAGS)
plugins_cord_v2_la_LIBADD = $(JANSSON_LIBS)
