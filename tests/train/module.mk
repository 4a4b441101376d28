# SPDX-License-Identifier: Apache-2.0
train_tests = tests/train/test_parts tests/train/test_run tests/train/test_locale
train_fixture = tests/train/train_test.c tests/train/train_test.h
check_PROGRAMS += $(train_tests)
TESTS += $(train_tests)
tests_train_test_parts_SOURCES = tests/train/test_parts.c $(train_fixture)
tests_train_test_parts_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_train_test_parts_LDADD = $(TEST_LIBS)
tests_train_test_run_SOURCES = tests/train/test_run.c $(train_fixture)
tests_train_test_run_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_train_test_run_LDADD = $(TEST_LIBS)
tests_train_test_locale_SOURCES = tests/train/test_locale.c $(train_fixture)
tests_train_test_locale_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_train_test_locale_LDADD = $(TEST_LIBS)
