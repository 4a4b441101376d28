# SPDX-License-Identifier: Apache-2.0
framework_libstrata_la_SOURCES += \
  framework/train/bad_samples.c \
  framework/train/bench.c \
  framework/train/bench_figures.h \
  framework/train/bench_print.c \
  framework/train/bench.h \
  framework/train/config.c \
  framework/train/evaluate.c \
  framework/train/finish.c \
  framework/train/generate.c \
  framework/train/loop.c \
  framework/train/memory.c \
  framework/train/metrics.c \
  framework/train/prepare.c \
  framework/train/progress.c \
  framework/train/resume.c \
  framework/train/run.h \
  framework/train/schedule.c \
  framework/train/start.c \
  framework/train/stop.c \
  framework/train/train.h \
  framework/train/weights.c
