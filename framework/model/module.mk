# SPDX-License-Identifier: Apache-2.0
framework_libstrata_la_SOURCES += \
  framework/model/model.h \
  framework/model/private.h \
  framework/model/ahead.c \
  framework/model/build.c \
  framework/model/choose.c \
  framework/model/collective.c \
  framework/model/copy_rate.c \
  framework/model/cost.c \
  framework/model/env.c \
  framework/model/graph.c \
  framework/model/guard.c \
  framework/model/init.c \
  framework/model/keys.c \
  framework/model/linear.c \
  framework/model/memory.c \
  framework/model/mesh.c \
  framework/model/names.c \
  framework/model/optim.c \
  framework/model/pack.c \
  framework/model/parts.c \
  framework/model/plan.c \
  framework/model/rate.c \
  framework/model/row.h \
  framework/model/row.c \
  framework/model/rows.c \
  framework/model/rules.c \
  framework/model/services.c \
  framework/model/shares.c \
  framework/model/stack.c \
  framework/model/step.c \
  framework/model/step_api.c \
  framework/model/units.c \
  framework/model/timer.c \
  framework/model/trade.c \
  framework/model/weights.c
