# SPDX-License-Identifier: Apache-2.0
# libcuda.so.1, a stand-in for the driver of a GPU; tests/cli/auto.sh and tests/backend/test_cuda put it in the driver's place.
check_LTLIBRARIES += tests/driver/libcuda.la
tests_driver_libcuda_la_SOURCES = tests/driver/libcuda.c
tests_driver_libcuda_la_CPPFLAGS = $(AM_CPPFLAGS)
tests_driver_libcuda_la_LDFLAGS = -rpath /nowhere -shared -version-info 1 $(AM_LDFLAGS)
