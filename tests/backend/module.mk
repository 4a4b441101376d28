# SPDX-License-Identifier: Apache-2.0
# Ops of the cpu backend, straight from its module; what of the cuda backend needs no GPU. `speed` prints rates; it is built only when asked for.
if HAVE_CMOCKA
BACKEND_TESTS = tests/backend/test_products \
  tests/backend/test_rows \
  tests/backend/test_attention \
  tests/backend/test_lookup \
  tests/backend/test_point \
  tests/backend/test_rounded \
  tests/backend/test_device \
  tests/backend/test_cuda
check_PROGRAMS += $(BACKEND_TESTS)
TESTS += $(BACKEND_TESTS)
EXTRA_PROGRAMS = tests/backend/speed
backend_fixture = tests/backend/fixture.c tests/backend/fixture.h
tests_backend_test_products_SOURCES = tests/backend/test_products.c $(backend_fixture)
tests_backend_test_products_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_backend_test_products_LDADD = $(CMOCKA_LIBS)
tests_backend_test_rows_SOURCES = tests/backend/test_rows.c $(backend_fixture)
tests_backend_test_rows_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_backend_test_rows_LDADD = $(CMOCKA_LIBS)
tests_backend_test_attention_SOURCES = tests/backend/test_attention.c $(backend_fixture)
tests_backend_test_attention_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_backend_test_attention_LDADD = $(CMOCKA_LIBS)
tests_backend_test_lookup_SOURCES = tests/backend/test_lookup.c $(backend_fixture)
tests_backend_test_lookup_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_backend_test_lookup_LDADD = $(CMOCKA_LIBS)
tests_backend_test_point_SOURCES = tests/backend/test_point.c $(backend_fixture)
tests_backend_test_point_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_backend_test_point_LDADD = $(CMOCKA_LIBS)
tests_backend_test_rounded_SOURCES = tests/backend/test_rounded.c $(backend_fixture)
tests_backend_test_rounded_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_backend_test_rounded_LDADD = $(CMOCKA_LIBS)
tests_backend_test_device_SOURCES = tests/backend/test_device.c $(backend_fixture)
tests_backend_test_device_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_backend_test_device_LDADD = $(CMOCKA_LIBS)
tests_backend_test_cuda_SOURCES = tests/backend/test_cuda.c
tests_backend_test_cuda_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_backend_test_cuda_LDADD = $(CMOCKA_LIBS)
tests_backend_speed_SOURCES = tests/backend/speed.c $(backend_fixture)
tests_backend_speed_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_backend_speed_LDADD = $(CMOCKA_LIBS)
endif
