# SPDX-License-Identifier: Apache-2.0
bin_PROGRAMS += strata
strata_SOURCES = \
  framework/cli/bench.c \
  framework/cli/check.c \
  framework/cli/commands.h \
  framework/cli/common.c \
  framework/cli/data.c \
  framework/cli/eval.c \
  framework/cli/export.c \
  framework/cli/inspect.c \
  framework/cli/inspect.h \
  framework/cli/inspect_print.c \
  framework/cli/inspect_spec.c \
  framework/cli/main.c \
  framework/cli/new.c \
  framework/cli/parity.c \
  framework/cli/plan.c \
  framework/cli/plan_stack.c framework/cli/plan_stack.h \
  framework/cli/plan_trade.c \
  framework/cli/plan_trade.h \
  framework/cli/plugins.c \
  framework/cli/selftest.c \
  framework/cli/spec.c \
  framework/cli/summary.c \
  framework/cli/summary.h \
  framework/cli/tokenize.c \
  framework/cli/train.c
strata_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
strata_LDADD = framework/libstrata.la
