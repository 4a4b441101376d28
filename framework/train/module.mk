# SPDX-License-Identifier: Apache-2.0
framework_libstrata_la_SOURCES += \
  framework/train/train.h framework/train/run.h framework/train/config.c framework/train/schedule.c framework/train/metrics.c \
  framework/train/progress.c framework/train/evaluate.c framework/train/generate.c framework/train/setup.c \
  framework/train/finish.c framework/train/loop.c framework/train/bench.h framework/train/bench.c
