# SPDX-License-Identifier: Apache-2.0
check_LTLIBRARIES += tests/layers/libmock.la
tests_layers_libmock_la_SOURCES = tests/layers/mock_host.c tests/layers/mock_host.h tests/layers/mock_ops.c \
  tests/layers/mock_cells.c tests/layers/mock_open.c \
  tests/layers/layer_checks.c tests/layers/layer_checks.h
tests_layers_libmock_la_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)

layer_tests = tests/layers/test_gated_delta_net tests/layers/test_delta_rule tests/layers/test_attention tests/layers/test_mlps \
  tests/layers/test_gdn_levels tests/layers/test_moe
check_PROGRAMS += $(layer_tests)
TESTS += $(layer_tests)
tests_layers_test_gated_delta_net_SOURCES = tests/layers/test_gated_delta_net.c
tests_layers_test_gated_delta_net_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_layers_test_gated_delta_net_LDADD = tests/layers/libmock.la $(CMOCKA_LIBS)
tests_layers_test_delta_rule_SOURCES = tests/layers/test_delta_rule.c
tests_layers_test_delta_rule_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_layers_test_delta_rule_LDADD = tests/layers/libmock.la $(CMOCKA_LIBS)
tests_layers_test_attention_SOURCES = tests/layers/test_attention.c
tests_layers_test_attention_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_layers_test_attention_LDADD = tests/layers/libmock.la $(CMOCKA_LIBS)
tests_layers_test_mlps_SOURCES = tests/layers/test_mlps.c
tests_layers_test_mlps_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_layers_test_mlps_LDADD = tests/layers/libmock.la $(CMOCKA_LIBS)
tests_layers_test_moe_SOURCES = tests/layers/test_moe.c
tests_layers_test_moe_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_layers_test_moe_LDADD = tests/layers/libmock.la $(CMOCKA_LIBS)
tests_layers_test_gdn_levels_SOURCES = tests/layers/test_gdn_levels.c
tests_layers_test_gdn_levels_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir) $(CMOCKA_CFLAGS)
tests_layers_test_gdn_levels_LDADD = $(gdn_levels) $(CMOCKA_LIBS)
EXTRA_DIST += tests/golden/gdn/io.safetensors tests/golden/gdn/meta.json
