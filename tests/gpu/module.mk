# SPDX-License-Identifier: Apache-2.0
# Ops of the cuda backend against the cpu backend, on a GPU; skipped, with the reason, where there is none. The programs link
# nothing of CUDA.
EXTRA_DIST += tests/gpu/narrow.sh tests/gpu/ranges.sh tests/gpu/run.sh tests/gpu/peer.py tests/gpu/peer_bf16.py tests/gpu/peer_step.py tests/gpu/ratio.sh
gpu_modules = tests/gpu/modules.c tests/gpu/modules.h
if HAVE_CUDA
GPU_TESTS = tests/gpu/test_adamw tests/gpu/test_attention tests/gpu/test_loss tests/gpu/test_ops
check_PROGRAMS += $(GPU_TESTS)
TESTS += $(GPU_TESTS) tests/gpu/narrow.sh tests/gpu/ranges.sh
check_LTLIBRARIES += tests/gpu/listener.la
tests_gpu_listener_la_SOURCES = tests/gpu/listener.c
tests_gpu_listener_la_CPPFLAGS = $(CUDA_CPPFLAGS:-I%=-isystem %)
tests_gpu_listener_la_LDFLAGS = -module -avoid-version -shared -rpath /nowhere
tests_gpu_test_adamw_SOURCES = tests/gpu/test_adamw.c tests/gpu/pairs.c tests/gpu/pairs.h $(gpu_modules)
tests_gpu_test_adamw_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_gpu_test_adamw_LDADD = $(CMOCKA_LIBS)
tests_gpu_test_attention_SOURCES = tests/gpu/test_attention.c tests/gpu/attention_sides.c tests/gpu/attention_sides.h $(gpu_modules)
tests_gpu_test_attention_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_gpu_test_attention_LDADD = $(CMOCKA_LIBS)
tests_gpu_test_loss_SOURCES = tests/gpu/test_loss.c tests/gpu/pairs.c tests/gpu/pairs.h $(gpu_modules)
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
  $(gpu_modules) \
  tests/gpu/test_ops.c
tests_gpu_test_ops_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
tests_gpu_test_ops_LDADD = $(CMOCKA_LIBS)
endif

# Kernels of layers, positions and the encoder against those of the CPU. run_kernels.sh runs them and speed_gdn by hand.
gpu_kernel_tests = tests/gpu/test_gdn_kernels tests/gpu/test_moe_kernels tests/gpu/test_muon_kernels tests/gpu/test_position_kernels
gpu_kernel_support = tests/gpu/kernels_test.c tests/gpu/kernels_test.h $(gpu_modules)
gpu_kernel_cppflags = $(AM_CPPFLAGS) -I$(top_srcdir) $(CUDA_CPPFLAGS:-I%=-isystem %) $(CMOCKA_CFLAGS)
gpu_kernel_libs = $(CMOCKA_LIBS) -lcudart -lm
if HAVE_CUDA
check_PROGRAMS += $(gpu_kernel_tests) tests/gpu/speed_gdn
TESTS += $(gpu_kernel_tests)

# The products of strata/cuda_wgmma.h, each by itself.
check_PROGRAMS += tests/gpu/test_wgmma
TESTS += tests/gpu/test_wgmma
check_LTLIBRARIES += tests/gpu/libwgmma.la
tests_gpu_libwgmma_la_SOURCES = tests/gpu/wgmma_products.cu
tests/gpu/wgmma_products.lo: tests/gpu/wgmma_products.h $(CUDA_NEEDS)
endif
EXTRA_DIST += tests/gpu/run_kernels.sh tests/gpu/wgmma_products.cu tests/gpu/wgmma_products.h
tests_gpu_test_wgmma_SOURCES = tests/gpu/test_wgmma.c tests/gpu/wgmma_products.h $(gpu_kernel_support)
tests_gpu_test_wgmma_CPPFLAGS = $(gpu_kernel_cppflags)
tests_gpu_test_wgmma_LDFLAGS = $(CUDA_LDFLAGS)
tests_gpu_test_wgmma_LDADD = tests/gpu/libwgmma.la $(gpu_kernel_libs) -lstdc++
tests_gpu_test_gdn_kernels_SOURCES = tests/gpu/test_gdn_kernels.c $(gpu_kernel_support)
tests_gpu_test_gdn_kernels_CPPFLAGS = $(gpu_kernel_cppflags)
tests_gpu_test_gdn_kernels_LDFLAGS = $(CUDA_LDFLAGS)
tests_gpu_test_gdn_kernels_LDADD = $(gpu_kernel_libs)
tests_gpu_test_moe_kernels_SOURCES = tests/gpu/test_moe_kernels.c $(gpu_kernel_support)
tests_gpu_test_moe_kernels_CPPFLAGS = $(gpu_kernel_cppflags)
tests_gpu_test_moe_kernels_LDFLAGS = $(CUDA_LDFLAGS)
tests_gpu_test_moe_kernels_LDADD = $(gpu_kernel_libs)
tests_gpu_test_muon_kernels_SOURCES = tests/gpu/test_muon_kernels.c $(gpu_kernel_support)
tests_gpu_test_muon_kernels_CPPFLAGS = $(gpu_kernel_cppflags)
tests_gpu_test_muon_kernels_LDFLAGS = $(CUDA_LDFLAGS)
tests_gpu_test_muon_kernels_LDADD = $(gpu_kernel_libs)
tests_gpu_test_position_kernels_SOURCES = tests/gpu/test_position_kernels.c $(gpu_kernel_support)
tests_gpu_test_position_kernels_CPPFLAGS = $(gpu_kernel_cppflags)
tests_gpu_test_position_kernels_LDFLAGS = $(CUDA_LDFLAGS)
tests_gpu_test_position_kernels_LDADD = $(gpu_kernel_libs)
tests_gpu_speed_gdn_SOURCES = tests/gpu/speed_gdn.c $(gpu_kernel_support)
tests_gpu_speed_gdn_CPPFLAGS = $(gpu_kernel_cppflags)
tests_gpu_speed_gdn_LDFLAGS = $(CUDA_LDFLAGS)
tests_gpu_speed_gdn_LDADD = $(gpu_kernel_libs)
