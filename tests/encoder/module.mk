# SPDX-License-Identifier: Apache-2.0
encoder_tests = tests/encoder/test_positions tests/encoder/test_media tests/encoder/test_vision \
  tests/encoder/test_small_parts
part_host = tests/encoder/part_host.c tests/encoder/part_host.h
if HAVE_CMOCKA
check_PROGRAMS += $(encoder_tests)
TESTS += $(encoder_tests)
tests_encoder_test_positions_SOURCES = tests/encoder/test_positions.c $(part_host)
tests_encoder_test_positions_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_encoder_test_positions_LDADD = $(CMOCKA_LIBS)
tests_encoder_test_media_SOURCES = tests/encoder/test_media.c $(part_host)
tests_encoder_test_media_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_encoder_test_media_LDADD = $(CMOCKA_LIBS)
tests_encoder_test_vision_SOURCES = tests/encoder/test_vision.c $(part_host)
tests_encoder_test_vision_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_encoder_test_vision_LDADD = $(CMOCKA_LIBS)
tests_encoder_test_small_parts_SOURCES = tests/encoder/test_small_parts.c $(part_host)
tests_encoder_test_small_parts_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_encoder_test_small_parts_LDADD = $(CMOCKA_LIBS)
endif
EXTRA_DIST += tests/golden/images.bin tests/golden/images.py
