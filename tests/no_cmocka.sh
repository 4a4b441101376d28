#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stands in for the unit tests when configure did not find cmocka, so that make check says what it left out.
echo '1..0 # SKIP configure found no cmocka, so no unit test was built (on Debian: apt-get install libcmocka-dev)'
