# SPDX-License-Identifier: Apache-2.0
build_tests = \
  tests/build/headers.sh \
  tests/build/exports.sh \
  tests/build/includes.sh \
  tests/build/no_cuda.sh
TESTS += $(build_tests)
dist_check_SCRIPTS += $(build_tests)
dist_check_DATA += tests/build/tap.sh
