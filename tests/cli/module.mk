# SPDX-License-Identifier: Apache-2.0
cli_tests = tests/cli/program.sh tests/cli/check.sh tests/cli/new.sh tests/cli/plan.sh tests/cli/trade.sh tests/cli/spec.sh \
  tests/cli/auto.sh tests/cli/data.sh tests/cli/export.sh tests/cli/tokenize.sh tests/cli/rules.sh tests/cli/refuse.sh
TESTS += $(cli_tests)
EXTRA_DIST += $(cli_tests) tests/cli/cli.sh tests/cli/rules.ini
