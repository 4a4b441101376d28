# SPDX-License-Identifier: Apache-2.0
framework_libstrata_la_SOURCES += \
  framework/plugin/access.c \
  framework/plugin/contract.c \
  framework/plugin/elf.c \
  framework/plugin/instance.c \
  framework/plugin/manifest.c \
  framework/plugin/module.c \
  framework/plugin/private.h \
  framework/plugin/registry.c \
  framework/plugin/registry.h
