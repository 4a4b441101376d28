# SPDX-License-Identifier: Apache-2.0
if HAVE_CMOCKA
BASE_TESTS = tests/base/test_text tests/base/test_rng tests/base/test_system tests/base/test_errors
check_PROGRAMS += $(BASE_TESTS)
TESTS += $(BASE_TESTS)
tests_base_test_text_SOURCES = tests/base/test_text.c
tests_base_test_text_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_base_test_text_LDADD = $(TEST_LIBS)
tests_base_test_rng_SOURCES = tests/base/test_rng.c
tests_base_test_rng_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_base_test_rng_LDADD = $(TEST_LIBS)
tests_base_test_system_SOURCES = tests/base/test_system.c
tests_base_test_system_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_base_test_system_LDADD = $(TEST_LIBS)
tests_base_test_errors_SOURCES = tests/base/test_errors.c
tests_base_test_errors_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_base_test_errors_LDADD = $(TEST_LIBS)
endif
