# SPDX-License-Identifier: Apache-2.0
plugins_LTLIBRARIES += plugins/mock.la
plugins_mock_la_SOURCES = plugins/datasets/mock/mock.c
plugins_mock_la_LDFLAGS = $(MODULE_LDFLAGS)
