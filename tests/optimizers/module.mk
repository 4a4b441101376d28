# SPDX-License-Identifier: Apache-2.0
EXTRA_DIST += tests/optimizers/make_muon.py
check_PROGRAMS += tests/optimizers/test_muon
TESTS += tests/optimizers/test_muon
tests_optimizers_test_muon_SOURCES = tests/optimizers/test_muon.c tests/optimizers/muon_values.h $(model_fixture)
tests_optimizers_test_muon_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tests/model $(CMOCKA_CFLAGS)
tests_optimizers_test_muon_LDADD = $(TEST_LIBS)
