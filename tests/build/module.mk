# SPDX-License-Identifier: Apache-2.0
build_tests = \
  tests/build/headers.sh \
  tests/build/exports.sh \
  tests/build/includes.sh \
  tests/build/no_cuda.sh
TESTS += $(build_tests)
EXTRA_DIST += $(build_tests) tests/build/tap.sh
