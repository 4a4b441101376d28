# SPDX-License-Identifier: Apache-2.0
DATA_TEST_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS) $(PCRE2_CFLAGS) $(UTF8PROC_CFLAGS) $(PNG_CFLAGS) $(JPEG_CFLAGS) $(CMOCKA_CFLAGS)

if HAVE_CMOCKA
DATA_TESTS = tests/data/test_tokenizer tests/data/test_image tests/data/test_row tests/data/test_chat tests/data/test_cord \
  tests/data/test_loader tests/data/test_memory
check_PROGRAMS += $(DATA_TESTS)
TESTS += $(DATA_TESTS)
tests_data_test_tokenizer_SOURCES = tests/data/test_tokenizer.c
tests_data_test_tokenizer_CPPFLAGS = $(DATA_TEST_CPPFLAGS)
tests_data_test_tokenizer_LDADD = $(TEST_LIBS) $(JANSSON_LIBS) $(PCRE2_LIBS) $(UTF8PROC_LIBS)
tests_data_test_image_SOURCES = tests/data/test_image.c
tests_data_test_image_CPPFLAGS = $(DATA_TEST_CPPFLAGS)
tests_data_test_image_LDADD = $(TEST_LIBS) $(PNG_LIBS) $(JPEG_LIBS)
tests_data_test_row_SOURCES = tests/data/test_row.c
tests_data_test_row_CPPFLAGS = $(DATA_TEST_CPPFLAGS)
tests_data_test_row_LDADD = $(TEST_LIBS)
tests_data_test_chat_SOURCES = tests/data/test_chat.c
tests_data_test_chat_CPPFLAGS = $(DATA_TEST_CPPFLAGS)
tests_data_test_chat_LDADD = $(TEST_LIBS)
tests_data_test_cord_SOURCES = tests/data/test_cord.c plugins/datasets/cord_v2/cord_v2.c plugins/datasets/cord_v2/label.c
tests_data_test_cord_CPPFLAGS = $(DATA_TEST_CPPFLAGS)
tests_data_test_cord_LDADD = $(TEST_LIBS) $(JANSSON_LIBS)
tests_data_test_loader_SOURCES = tests/data/test_loader.c
tests_data_test_loader_CPPFLAGS = $(DATA_TEST_CPPFLAGS)
tests_data_test_loader_LDADD = $(TEST_LIBS)
tests_data_test_memory_SOURCES = tests/data/test_memory.c
tests_data_test_memory_CPPFLAGS = $(DATA_TEST_CPPFLAGS)
tests_data_test_memory_LDADD = $(TEST_LIBS)
endif

EXTRA_DIST += tests/golden/tokenizer/cases.json tests/golden/tokenizer/tokenizer.json \
  tests/golden/tokenizer/merges_pairs.json tests/golden/tokenizer/merges_strings.json tests/golden/tokenizer/truncated.json
EXTRA_DIST += tests/golden/pictures/jpg_420_odd.jpg tests/golden/pictures/jpg_arith.jpg \
  tests/golden/pictures/jpg_bad_dht.jpg tests/golden/pictures/jpg_cmyk_adobe.jpg \
  tests/golden/pictures/jpg_exif3_le.jpg tests/golden/pictures/jpg_exif6_le.jpg \
  tests/golden/pictures/jpg_exif_bad_offset.jpg tests/golden/pictures/jpg_gray.jpg \
  tests/golden/pictures/jpg_long_comment.jpg tests/golden/pictures/jpg_named.png \
  tests/golden/pictures/jpg_no_eoi.jpg tests/golden/pictures/jpg_progressive.jpg \
  tests/golden/pictures/jpg_restart.jpg tests/golden/pictures/jpg_rgb.jpg tests/golden/pictures/jpg_rgb_adobe0.jpg \
  tests/golden/pictures/jpg_truncated.jpg tests/golden/pictures/jpg_ycck_adobe.jpg tests/golden/pictures/other.bmp \
  tests/golden/pictures/other.gif tests/golden/pictures/other.webp tests/golden/pictures/png_1x1.png \
  tests/golden/pictures/png_200x1.png tests/golden/pictures/png_201x1.png tests/golden/pictures/png_5x1138.png \
  tests/golden/pictures/png_adam7.png tests/golden/pictures/png_all_filters.png \
  tests/golden/pictures/png_bomb_60000.png tests/golden/pictures/png_exif6.png tests/golden/pictures/png_ga8.png \
  tests/golden/pictures/png_gamma.png tests/golden/pictures/png_gray1.png tests/golden/pictures/png_gray8.png \
  tests/golden/pictures/png_idat_split.png tests/golden/pictures/png_no_iend.png tests/golden/pictures/png_pal2.png \
  tests/golden/pictures/png_pal8_trns.png tests/golden/pictures/png_rgb8.png tests/golden/pictures/png_rgba.png \
  tests/golden/pictures/png_truncated.png tests/golden/pictures/png_zero_width.png \
  tests/golden/pictures/text_named.png tests/golden/pictures/zero_byte.png
