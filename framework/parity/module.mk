# SPDX-License-Identifier: Apache-2.0
framework_libstrata_la_SOURCES += \
  framework/parity/parity.h framework/parity/samples.h framework/parity/parity.c framework/parity/report.c \
  framework/parity/samples.c framework/parity/model_case.c framework/parity/mtp_case.c \
  framework/parity/experts_case.c framework/parity/rule_case.c framework/parity/merger_case.c \
  framework/parity/images_case.c framework/parity/selftest.h framework/parity/selftest.c framework/parity/optimizer_case.c framework/parity/tokenizer_case.c
