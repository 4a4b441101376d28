# SPDX-License-Identifier: Apache-2.0
framework_libstrata_la_SOURCES += framework/spec/spec.h framework/spec/ini.h framework/spec/store.h framework/spec/param.h framework/spec/ini.c \
  framework/spec/store.c framework/spec/write.c framework/spec/load.c framework/spec/report.c framework/spec/bind.c framework/spec/param.c \
  framework/spec/pattern.c
