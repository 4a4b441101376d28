# SPDX-License-Identifier: Apache-2.0
gdn_dir = plugins/layers/gated_delta_net
gdn_kernel_sources = $(gdn_dir)/kernels_cpu.c $(gdn_dir)/kernels_cpu.h $(gdn_dir)/kernels.h $(gdn_dir)/template_cpu.h \
  $(gdn_dir)/math_cpu.h $(gdn_dir)/conv_cpu.h $(gdn_dir)/gate_cpu.h $(gdn_dir)/norm_cpu.h $(gdn_dir)/rule_cpu.h \
  $(gdn_dir)/rule_bwd_cpu.h
plugins_LTLIBRARIES += plugins/gated_delta_net.la plugins/delta_rule.la plugins/gated_delta_net-cpu.la plugins/delta_rule-cpu.la
plugins_gated_delta_net_la_SOURCES = $(gdn_dir)/gated_delta_net.c $(gdn_dir)/kernels.h $(gdn_dir)/work.h $(gdn_dir)/cost.h
plugins_gated_delta_net_la_LDFLAGS = $(MODULE_LDFLAGS)
plugins_delta_rule_la_SOURCES = $(gdn_dir)/delta_rule.c $(gdn_dir)/kernels.h $(gdn_dir)/work.h $(gdn_dir)/cost.h
plugins_delta_rule_la_LDFLAGS = $(MODULE_LDFLAGS)

# The kernels once per instruction-set level; both kernel modules hold the same objects.
noinst_LTLIBRARIES += plugins/libgdn1.la
plugins_libgdn1_la_SOURCES = $(gdn_kernel_sources)
plugins_libgdn1_la_CFLAGS = $(AM_CFLAGS) -O3
plugins_libgdn1_la_CPPFLAGS = $(AM_CPPFLAGS) -DST_CPU_LEVEL=1
gdn_levels = plugins/libgdn1.la
if X86_LEVELS
noinst_LTLIBRARIES += plugins/libgdn3.la plugins/libgdn4.la
plugins_libgdn3_la_SOURCES = $(gdn_kernel_sources)
plugins_libgdn3_la_CFLAGS = $(AM_CFLAGS) -O3 -march=x86-64-v3
plugins_libgdn3_la_CPPFLAGS = $(AM_CPPFLAGS) -DST_CPU_LEVEL=3
plugins_libgdn4_la_SOURCES = $(gdn_kernel_sources)
plugins_libgdn4_la_CFLAGS = $(AM_CFLAGS) -O3 -march=x86-64-v4
plugins_libgdn4_la_CPPFLAGS = $(AM_CPPFLAGS) -DST_CPU_LEVEL=4
gdn_levels += plugins/libgdn3.la plugins/libgdn4.la
endif
plugins_gated_delta_net_cpu_la_SOURCES = $(gdn_dir)/module_cpu.c
plugins_gated_delta_net_cpu_la_CPPFLAGS = $(AM_CPPFLAGS) -DGDN_PLUGIN='"gated_delta_net"'
plugins_gated_delta_net_cpu_la_LIBADD = $(gdn_levels) -lm
plugins_gated_delta_net_cpu_la_LDFLAGS = $(MODULE_LDFLAGS)
plugins_delta_rule_cpu_la_SOURCES = $(gdn_dir)/module_cpu.c
plugins_delta_rule_cpu_la_CPPFLAGS = $(AM_CPPFLAGS) -DGDN_PLUGIN='"delta_rule"'
plugins_delta_rule_cpu_la_LIBADD = $(gdn_levels) -lm
plugins_delta_rule_cpu_la_LDFLAGS = $(MODULE_LDFLAGS)

gdn_cuda_sources = $(gdn_dir)/conv_cuda.cu $(gdn_dir)/rows_cuda.cu $(gdn_dir)/rule_cuda.cu \
  $(gdn_dir)/rule_prepare_cuda.cu $(gdn_dir)/rule_prepare_bf16_cuda.cu \
  $(gdn_dir)/rule_chain_cuda.cu $(gdn_dir)/rule_chain_wgmma_cuda.cu \
  $(gdn_dir)/rule_values_cuda.cu $(gdn_dir)/rule_values_wgmma_cuda.cu \
  $(gdn_dir)/rule_chain_bwd_cuda.cu $(gdn_dir)/rule_chain_bwd_wgmma_cuda.cu \
  $(gdn_dir)/rule_local_cuda.cu $(gdn_dir)/rule_local_wgmma_cuda.cu
gdn_cuda_headers = $(gdn_dir)/kernels_cuda.h $(gdn_dir)/tile_cuda.h $(gdn_dir)/rule_cuda.h $(gdn_dir)/chain_cuda.h \
  $(gdn_dir)/chain_wgmma_cuda.h $(gdn_dir)/math_cuda.h
EXTRA_DIST += $(gdn_cuda_headers)
if HAVE_CUDA
plugins_LTLIBRARIES += plugins/gated_delta_net-cuda.la
plugins_gated_delta_net_cuda_la_SOURCES = $(gdn_dir)/module_cuda.c $(gdn_cuda_sources)
plugins_gated_delta_net_cuda_la_CPPFLAGS = $(CUDA_MODULE_CPPFLAGS) -DGDN_PLUGIN='"gated_delta_net"'
plugins_gated_delta_net_cuda_la_LDFLAGS = $(MODULE_LDFLAGS) $(CUDA_LDFLAGS)
plugins_gated_delta_net_cuda_la_LIBADD = $(CUDA_LIBS)
plugins_LTLIBRARIES += plugins/delta_rule-cuda.la
plugins_delta_rule_cuda_la_SOURCES = $(gdn_dir)/module_cuda.c $(gdn_cuda_sources)
plugins_delta_rule_cuda_la_CPPFLAGS = $(CUDA_MODULE_CPPFLAGS) -DGDN_PLUGIN='"delta_rule"'
plugins_delta_rule_cuda_la_LDFLAGS = $(MODULE_LDFLAGS) $(CUDA_LDFLAGS)
plugins_delta_rule_cuda_la_LIBADD = $(CUDA_LIBS)
$(gdn_cuda_sources:.cu=.lo): $(gdn_cuda_headers) $(gdn_dir)/kernels.h $(gdn_dir)/work.h $(CUDA_NEEDS)
endif
