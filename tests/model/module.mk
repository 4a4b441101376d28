# SPDX-License-Identifier: Apache-2.0
model_tests = tests/model/test_ahead tests/model/test_build tests/model/test_experts tests/model/test_family tests/model/test_groups tests/model/test_images tests/model/test_older \
  tests/model/test_ranges tests/model/test_shares tests/model/test_step tests/model/test_wrong
model_fixture = tests/model/fixture.c tests/model/fixture.h
if HAVE_CMOCKA
check_PROGRAMS += $(model_tests)
TESTS += $(model_tests)
tests_model_test_ahead_SOURCES = tests/model/test_ahead.c $(model_fixture)
tests_model_test_ahead_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_model_test_ahead_LDADD = $(TEST_LIBS)
tests_model_test_build_SOURCES = tests/model/test_build.c $(model_fixture)
tests_model_test_build_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_model_test_build_LDADD = $(TEST_LIBS)
tests_model_test_experts_SOURCES = tests/model/test_experts.c $(model_fixture)
tests_model_test_experts_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_model_test_experts_LDADD = $(TEST_LIBS)
tests_model_test_family_SOURCES = tests/model/test_family.c $(model_fixture)
tests_model_test_family_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_model_test_family_LDADD = $(TEST_LIBS)
tests_model_test_groups_SOURCES = tests/model/test_groups.c $(model_fixture)
tests_model_test_groups_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_model_test_groups_LDADD = $(TEST_LIBS)
tests_model_test_images_SOURCES = tests/model/test_images.c $(model_fixture)
tests_model_test_images_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_model_test_images_LDADD = $(TEST_LIBS)
tests_model_test_older_SOURCES = tests/model/test_older.c $(model_fixture)
tests_model_test_older_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_model_test_older_LDADD = $(TEST_LIBS)
tests_model_test_shares_SOURCES = tests/model/test_shares.c $(model_fixture)
tests_model_test_shares_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_model_test_shares_LDADD = $(TEST_LIBS)
tests_model_test_step_SOURCES = tests/model/test_step.c $(model_fixture)
tests_model_test_step_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_model_test_step_LDADD = $(TEST_LIBS)
tests_model_test_ranges_SOURCES = tests/model/test_ranges.c $(model_fixture)
tests_model_test_ranges_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_model_test_ranges_LDADD = $(TEST_LIBS)
tests_model_test_wrong_SOURCES = tests/model/test_wrong.c $(model_fixture)
tests_model_test_wrong_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_model_test_wrong_LDADD = $(TEST_LIBS)
endif

# Plugins for these tests alone, never installed; their manifests lie beside the sources.
MODEL_PART_LDFLAGS = -module -avoid-version -shared -rpath /nowhere
EXTRA_DIST += tests/model/parts/grouped.ini tests/model/parts/older.ini tests/model/parts/older_head.ini \
  tests/model/parts/scaling.ini tests/model/parts/wrong.ini
check_LTLIBRARIES += tests/model/parts/grouped.la tests/model/parts/older.la tests/model/parts/older_head.la \
  tests/model/parts/scaling.la tests/model/parts/wrong.la
tests_model_parts_grouped_la_SOURCES = tests/model/parts/grouped.c
tests_model_parts_grouped_la_CPPFLAGS = $(AM_CPPFLAGS)
tests_model_parts_grouped_la_LDFLAGS = $(MODEL_PART_LDFLAGS)
tests_model_parts_scaling_la_SOURCES = tests/model/parts/scaling.c
tests_model_parts_scaling_la_CPPFLAGS = $(AM_CPPFLAGS)
tests_model_parts_scaling_la_LDFLAGS = $(MODEL_PART_LDFLAGS)
tests_model_parts_older_la_SOURCES = tests/model/parts/older.c
tests_model_parts_older_la_CPPFLAGS = $(AM_CPPFLAGS)
tests_model_parts_older_la_LDFLAGS = $(MODEL_PART_LDFLAGS)
tests_model_parts_older_head_la_SOURCES = tests/model/parts/older_head.c
tests_model_parts_older_head_la_CPPFLAGS = $(AM_CPPFLAGS)
tests_model_parts_older_head_la_LDFLAGS = $(MODEL_PART_LDFLAGS)
tests_model_parts_wrong_la_SOURCES = tests/model/parts/wrong.c
tests_model_parts_wrong_la_CPPFLAGS = $(AM_CPPFLAGS)
tests_model_parts_wrong_la_LDFLAGS = $(MODEL_PART_LDFLAGS)
