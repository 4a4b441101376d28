# SPDX-License-Identifier: Apache-2.0
# Ops of the cuda backend against the cpu backend, on a GPU; skipped, with the reason, where there is none.
if HAVE_CUDA
GPU_TESTS = tests/gpu/test_attention
check_PROGRAMS += $(GPU_TESTS)
TESTS += $(GPU_TESTS)
tests_gpu_test_attention_SOURCES = tests/gpu/test_attention.c
tests_gpu_test_attention_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_gpu_test_attention_LDADD = $(CMOCKA_LIBS)
endif
EXTRA_DIST += tests/gpu/peer_bf16.py
