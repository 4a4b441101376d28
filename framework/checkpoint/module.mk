# SPDX-License-Identifier: Apache-2.0
framework_libstrata_la_SOURCES +=
