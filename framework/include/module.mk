# SPDX-License-Identifier: Apache-2.0
strataincludedir = $(includedir)/strata
dist_stratainclude_HEADERS = \
  framework/include/strata/backend.h \
  framework/include/strata/comm.h \
  framework/include/strata/cpu.h \
  framework/include/strata/cuda.h \
  framework/include/strata/cuda_bulk.h \
  framework/include/strata/cuda_tile.h \
  framework/include/strata/cuda_wgmma.h \
  framework/include/strata/dataset.h \
  framework/include/strata/encoder.h \
  framework/include/strata/head.h \
  framework/include/strata/layer.h \
  framework/include/strata/ops.h \
  framework/include/strata/optimizer.h \
  framework/include/strata/params.h \
  framework/include/strata/plugin.h \
  framework/include/strata/position.h \
  framework/include/strata/rounding.h \
  framework/include/strata/status.h \
  framework/include/strata/step.h \
  framework/include/strata/tensor.h \
  framework/include/strata/weight.h
