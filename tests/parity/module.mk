# SPDX-License-Identifier: Apache-2.0
parity_tests = tests/parity/test_refuse tests/parity/test_made
parity_fixture = tests/parity/parity_test.c tests/parity/parity_test.h
check_PROGRAMS += $(parity_tests)
TESTS += $(parity_tests)
tests_parity_test_refuse_SOURCES = tests/parity/test_refuse.c $(parity_fixture)
tests_parity_test_refuse_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_parity_test_refuse_LDADD = $(TEST_LIBS)
tests_parity_test_made_SOURCES = tests/parity/test_made.c $(parity_fixture)
tests_parity_test_made_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_parity_test_made_LDADD = $(TEST_LIBS)
