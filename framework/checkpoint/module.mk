# SPDX-License-Identifier: Apache-2.0
framework_libstrata_la_SOURCES += \
  framework/checkpoint/checkpoint.h \
  framework/checkpoint/export.c \
  framework/checkpoint/family.c \
  framework/checkpoint/family.h \
  framework/checkpoint/folder.c \
  framework/checkpoint/hf_config.c \
  framework/checkpoint/hf_config.h \
  framework/checkpoint/hf_write.c \
  framework/checkpoint/load.c \
  framework/checkpoint/names.c \
  framework/checkpoint/safetensors.c \
  framework/checkpoint/safetensors.h \
  framework/checkpoint/safetensors_format.h \
  framework/checkpoint/safetensors_out.c \
  framework/checkpoint/save.c \
  framework/checkpoint/shards.c \
  framework/checkpoint/state.c \
  framework/checkpoint/view.h
