# SPDX-License-Identifier: Apache-2.0
# Ops of the cuda backend against the cpu backend, on a GPU; skipped, with the reason, where there is none.
if HAVE_CUDA
GPU_TESTS = tests/gpu/test_attention tests/gpu/test_loss
check_PROGRAMS += $(GPU_TESTS)
TESTS += $(GPU_TESTS)
tests_gpu_test_attention_SOURCES = tests/gpu/test_attention.c
tests_gpu_test_attention_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_gpu_test_attention_LDADD = $(CMOCKA_LIBS)
tests_gpu_test_loss_SOURCES = tests/gpu/test_loss.c tests/gpu/pairs.c tests/gpu/pairs.h
tests_gpu_test_loss_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_gpu_test_loss_LDADD = $(CMOCKA_LIBS)
endif
EXTRA_DIST += tests/gpu/peer_bf16.py
