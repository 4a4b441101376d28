# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += tests/parallel/test_groups
TESTS += tests/parallel/test_groups
tests_parallel_test_groups_SOURCES = tests/parallel/test_groups.c
tests_parallel_test_groups_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_parallel_test_groups_LDADD = $(TEST_LIBS)
