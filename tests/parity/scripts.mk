# SPDX-License-Identifier: Apache-2.0
TESTS += tests/parity/parity.sh
EXTRA_DIST += tests/parity/parity.sh
EXTRA_DIST += tests/golden
