# SPDX-License-Identifier: Apache-2.0
DATA_TEST_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS) $(PCRE2_CFLAGS) $(UTF8PROC_CFLAGS) $(CMOCKA_CFLAGS)

if HAVE_CMOCKA
check_PROGRAMS += tests/data/test_tokenizer
TESTS += tests/data/test_tokenizer
tests_data_test_tokenizer_SOURCES = tests/data/test_tokenizer.c
tests_data_test_tokenizer_CPPFLAGS = $(DATA_TEST_CPPFLAGS)
tests_data_test_tokenizer_LDADD = $(TEST_LIBS) $(JANSSON_LIBS) $(PCRE2_LIBS) $(UTF8PROC_LIBS)
endif

EXTRA_DIST += tests/golden/tokenizer/cases.json tests/golden/tokenizer/tokenizer.json \
  tests/golden/tokenizer/merges_pairs.json tests/golden/tokenizer/merges_strings.json tests/golden/tokenizer/truncated.json
