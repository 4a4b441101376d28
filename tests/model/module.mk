# SPDX-License-Identifier: Apache-2.0
model_tests = tests/model/test_build tests/model/test_images tests/model/test_step
model_fixture = tests/model/fixture.c tests/model/fixture.h
if HAVE_CMOCKA
check_PROGRAMS += $(model_tests)
TESTS += $(model_tests)
tests_model_test_build_SOURCES = tests/model/test_build.c $(model_fixture)
tests_model_test_build_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_model_test_build_LDADD = $(TEST_LIBS)
tests_model_test_images_SOURCES = tests/model/test_images.c $(model_fixture)
tests_model_test_images_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_model_test_images_LDADD = $(TEST_LIBS)
tests_model_test_step_SOURCES = tests/model/test_step.c $(model_fixture)
tests_model_test_step_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_model_test_step_LDADD = $(TEST_LIBS)
endif
