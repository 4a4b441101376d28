# SPDX-License-Identifier: Apache-2.0
# Made inputs and what must come of them. Without arguments the program makes them all and checks them.
check_PROGRAMS += tests/cases/cases
TESTS += tests/cases/cases
tests_cases_cases_SOURCES = tests/cases/main.c tests/cases/support.c tests/cases/cases.h tests/cases/make_image.c \
  tests/cases/kind_image.c tests/cases/kind_cord.c tests/cases/kind_text.c tests/cases/kind_weights.c \
  tests/cases/kind_model.c tests/cases/kind_ini.c tests/cases/kind_parts.c tests/cases/kind_gdn.c \
  tests/cases/kind_loss.c tests/cases/kind_plugin.c $(part_host)
tests_cases_cases_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS) $(PCRE2_CFLAGS) $(PNG_CFLAGS) $(JPEG_CFLAGS) \
  $(CMOCKA_CFLAGS)
tests_cases_cases_LDADD = tests/layers/libmock.la $(TEST_LIBS) $(JANSSON_LIBS) $(PNG_LIBS) $(JPEG_LIBS)
