# SPDX-License-Identifier: Apache-2.0
# Ops of the cuda backend against the cpu backend, on a GPU; skipped, with the reason, where there is none. The programs link
# nothing of CUDA.
EXTRA_DIST += tests/gpu/run.sh tests/gpu/peer_bf16.py
if HAVE_CUDA
GPU_TESTS = tests/gpu/test_attention tests/gpu/test_loss tests/gpu/test_ops
check_PROGRAMS += $(GPU_TESTS)
TESTS += $(GPU_TESTS)
tests_gpu_test_attention_SOURCES = tests/gpu/test_attention.c
tests_gpu_test_attention_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_gpu_test_attention_LDADD = $(CMOCKA_LIBS)
tests_gpu_test_loss_SOURCES = tests/gpu/test_loss.c tests/gpu/pairs.c tests/gpu/pairs.h
tests_gpu_test_loss_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_gpu_test_loss_LDADD = $(CMOCKA_LIBS)
tests_gpu_test_ops_SOURCES = \
  tests/gpu/cases_attention.c \
  tests/gpu/cases_device.c \
  tests/gpu/cases_move.c \
  tests/gpu/cases_point.c \
  tests/gpu/cases_product.c \
  tests/gpu/cases_rows.c \
  tests/gpu/rig.c \
  tests/gpu/rig.h \
  tests/gpu/test_ops.c
tests_gpu_test_ops_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_gpu_test_ops_LDADD = $(CMOCKA_LIBS)
endif
