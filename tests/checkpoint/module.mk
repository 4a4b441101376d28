# SPDX-License-Identifier: Apache-2.0
if HAVE_CMOCKA
check_PROGRAMS += tests/checkpoint/test_safetensors tests/checkpoint/test_shards
TESTS += tests/checkpoint/test_safetensors tests/checkpoint/test_shards

tests_checkpoint_test_safetensors_SOURCES = tests/checkpoint/test_safetensors.c tests/checkpoint/checkpoint_test.h
tests_checkpoint_test_safetensors_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_checkpoint_test_safetensors_LDADD = $(TEST_LIBS)

tests_checkpoint_test_shards_SOURCES = tests/checkpoint/test_shards.c tests/checkpoint/checkpoint_test.h
tests_checkpoint_test_shards_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_checkpoint_test_shards_LDADD = $(TEST_LIBS)
endif
