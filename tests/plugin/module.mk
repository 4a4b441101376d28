# SPDX-License-Identifier: Apache-2.0
if HAVE_CMOCKA
check_PROGRAMS += tests/plugin/test_registry tests/plugin/test_module tests/plugin/test_self tests/plugin/test_refuse
TESTS += tests/plugin/test_registry tests/plugin/test_module tests/plugin/test_self tests/plugin/test_refuse

tests_plugin_test_registry_SOURCES = tests/plugin/test_registry.c tests/plugin/plugin_test.h
tests_plugin_test_registry_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_plugin_test_registry_LDADD = $(TEST_LIBS)

tests_plugin_test_module_SOURCES = tests/plugin/test_module.c tests/plugin/plugin_test.h
tests_plugin_test_module_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_plugin_test_module_LDADD = $(TEST_LIBS)

tests_plugin_test_self_SOURCES = tests/plugin/test_self.c tests/plugin/plugin_test.h
tests_plugin_test_self_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_plugin_test_self_LDADD = $(TEST_LIBS)

tests_plugin_test_refuse_SOURCES = tests/plugin/test_refuse.c tests/plugin/plugin_test.h
tests_plugin_test_refuse_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_plugin_test_refuse_LDADD = $(TEST_LIBS)
endif

# Modules with one thing wrong each; they are built for the tests only and never installed (libtool wants an -rpath).
FIXTURE_LDFLAGS = -module -avoid-version -shared -rpath /nowhere
check_LTLIBRARIES += tests/plugin/fix_good.la
tests_plugin_fix_good_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_good_la_CPPFLAGS = $(AM_CPPFLAGS)
tests_plugin_fix_good_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_magic.la
tests_plugin_fix_magic_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_magic_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_MAGIC=0x46464646u
tests_plugin_fix_magic_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_older.la
tests_plugin_fix_older_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_older_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_MAJOR=0
tests_plugin_fix_older_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_newer.la
tests_plugin_fix_newer_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_newer_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_MINOR=7 -DFIX_SIZE=4096
tests_plugin_fix_newer_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_short.la
tests_plugin_fix_short_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_short_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_SIZE=64
tests_plugin_fix_short_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_long.la
tests_plugin_fix_long_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_long_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_SIZE=4096
tests_plugin_fix_long_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_name.la
tests_plugin_fix_name_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_name_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_NAME='"other"'
tests_plugin_fix_name_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_kind.la
tests_plugin_fix_kind_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_kind_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_KIND=ST_KIND_POSITION
tests_plugin_fix_kind_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_layout.la
tests_plugin_fix_layout_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_layout_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_KIND=77 -DFIX_TENSOR_SIZE=8
tests_plugin_fix_layout_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_missing.la
tests_plugin_fix_missing_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_missing_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_BACKWARD=NULL
tests_plugin_fix_missing_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_small.la
tests_plugin_fix_small_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_small_la_CPPFLAGS = $(AM_CPPFLAGS) '-DFIX_OPS_SIZE=offsetof(st_layer_ops, finish_step)'
tests_plugin_fix_small_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_text.la
tests_plugin_fix_text_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_text_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_SUMMARY=NULL
tests_plugin_fix_text_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_default.la
tests_plugin_fix_default_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_default_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_DEFAULT='"eight"'
tests_plugin_fix_default_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_offset.la
tests_plugin_fix_offset_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_offset_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_OFFSET=4000
tests_plugin_fix_offset_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_undefined.la
tests_plugin_fix_undefined_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_undefined_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_UNDEFINED
tests_plugin_fix_undefined_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_twin1.la
tests_plugin_fix_twin1_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_twin1_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_GLOBAL=11
tests_plugin_fix_twin1_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_twin2.la
tests_plugin_fix_twin2_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_twin2_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_GLOBAL=22
tests_plugin_fix_twin2_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_entry.la
tests_plugin_fix_entry_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_entry_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_NO_ENTRY
tests_plugin_fix_entry_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_kernels.la
tests_plugin_fix_kernels_la_SOURCES = tests/plugin/fixture_kernels.c
tests_plugin_fix_kernels_la_CPPFLAGS = $(AM_CPPFLAGS)
tests_plugin_fix_kernels_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_kernels_old.la
tests_plugin_fix_kernels_old_la_SOURCES = tests/plugin/fixture_kernels.c
tests_plugin_fix_kernels_old_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_VERSION='"0.0"' -DFIX_TABLE_SIZE=99
tests_plugin_fix_kernels_old_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_kernels_iface.la
tests_plugin_fix_kernels_iface_la_SOURCES = tests/plugin/fixture_kernels.c
tests_plugin_fix_kernels_iface_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_IFACE=4
tests_plugin_fix_kernels_iface_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_kernels_magic.la
tests_plugin_fix_kernels_magic_la_SOURCES = tests/plugin/fixture_kernels.c
tests_plugin_fix_kernels_magic_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_MAGIC=ST_MAGIC
tests_plugin_fix_kernels_magic_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_odd.la
tests_plugin_fix_odd_la_SOURCES = tests/plugin/fixture_odd.c
tests_plugin_fix_odd_la_CPPFLAGS = $(AM_CPPFLAGS)
tests_plugin_fix_odd_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_later.la
tests_plugin_fix_later_la_SOURCES = tests/plugin/fixture.c
tests_plugin_fix_later_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_ENTRY=st_plugin_v2
tests_plugin_fix_later_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_kernels_count.la
tests_plugin_fix_kernels_count_la_SOURCES = tests/plugin/fixture_kernels.c
tests_plugin_fix_kernels_count_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_INIT=count
tests_plugin_fix_kernels_count_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_kernels_fail.la
tests_plugin_fix_kernels_fail_la_SOURCES = tests/plugin/fixture_kernels.c
tests_plugin_fix_kernels_fail_la_CPPFLAGS = $(AM_CPPFLAGS) -DFIX_INIT=fail
tests_plugin_fix_kernels_fail_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_kernels_hopper.la
tests_plugin_fix_kernels_hopper_la_SOURCES = tests/plugin/fixture_kernels.c
tests_plugin_fix_kernels_hopper_la_CPPFLAGS = $(AM_CPPFLAGS) '-DFIX_ARCHS="sm_80,compute_80,sm_90a"'
tests_plugin_fix_kernels_hopper_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_kernels_ampere.la
tests_plugin_fix_kernels_ampere_la_SOURCES = tests/plugin/fixture_kernels.c
tests_plugin_fix_kernels_ampere_la_CPPFLAGS = $(AM_CPPFLAGS) '-DFIX_ARCHS="sm_80,compute_80"'
tests_plugin_fix_kernels_ampere_la_LDFLAGS = $(FIXTURE_LDFLAGS)
check_LTLIBRARIES += tests/plugin/fix_kernels_cuda.la
tests_plugin_fix_kernels_cuda_la_SOURCES = tests/plugin/fixture_kernels.c
tests_plugin_fix_kernels_cuda_la_CPPFLAGS = $(AM_CPPFLAGS) '-DFIX_TOOLCHAIN="cuda 13.1"'
tests_plugin_fix_kernels_cuda_la_LDFLAGS = $(FIXTURE_LDFLAGS)
