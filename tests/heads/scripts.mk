# SPDX-License-Identifier: Apache-2.0
TESTS += tests/heads/depths.sh
EXTRA_DIST += tests/heads/depths.sh
