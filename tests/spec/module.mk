# SPDX-License-Identifier: Apache-2.0
if HAVE_CMOCKA
SPEC_TESTS = tests/spec/test_ini tests/spec/test_load tests/spec/test_bind tests/spec/test_pattern \
  tests/spec/test_write
check_PROGRAMS += $(SPEC_TESTS)
TESTS += $(SPEC_TESTS)
tests_spec_test_ini_SOURCES = tests/spec/test_ini.c tests/spec/spec_test.h
tests_spec_test_ini_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_spec_test_ini_LDADD = $(TEST_LIBS)
tests_spec_test_load_SOURCES = tests/spec/test_load.c tests/spec/spec_test.h
tests_spec_test_load_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_spec_test_load_LDADD = $(TEST_LIBS)
tests_spec_test_bind_SOURCES = tests/spec/test_bind.c tests/spec/spec_test.h
tests_spec_test_bind_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_spec_test_bind_LDADD = $(TEST_LIBS)
tests_spec_test_pattern_SOURCES = tests/spec/test_pattern.c tests/spec/spec_test.h
tests_spec_test_pattern_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_spec_test_pattern_LDADD = $(TEST_LIBS)
tests_spec_test_write_SOURCES = tests/spec/test_write.c tests/spec/spec_test.h
tests_spec_test_write_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_spec_test_write_LDADD = $(TEST_LIBS)
endif
