# SPDX-License-Identifier: Apache-2.0
framework_libstrata_la_SOURCES += framework/base/base.h framework/base/bf16.h framework/base/base.c framework/base/error.c framework/base/diag.c \
  framework/base/clock.c framework/base/log.c framework/base/arena.c framework/base/text.c framework/base/number.c framework/base/file.c framework/base/places.c \
  framework/base/rng.c framework/base/threads.c framework/base/json.h framework/base/json.c
