# SPDX-License-Identifier: Apache-2.0
framework_libstrata_la_SOURCES += \
  framework/parallel/groups.h \
  framework/parallel/groups.c
