# SPDX-License-Identifier: Apache-2.0
# What needs cmocka stands between if and endif; fragments of scripts come after it.
include tests/driver/module.mk
if HAVE_CMOCKA
include tests/base/module.mk
include tests/spec/module.mk
include tests/plugin/module.mk
include tests/parallel/module.mk
include tests/backend/module.mk
include tests/layers/module.mk
include tests/encoder/module.mk
include tests/data/module.mk
include tests/model/module.mk
include tests/heads/module.mk
include tests/optimizers/module.mk
include tests/checkpoint/module.mk
include tests/train/module.mk
include tests/parity/module.mk
include tests/cases/module.mk
include tests/gpu/module.mk
else
TESTS += tests/no_cmocka.sh
dist-hook:
	@echo 'make dist needs cmocka: without it the unit tests would be left out' >&2; exit 1
endif
EXTRA_DIST += tests/no_cmocka.sh
include tests/cli/module.mk
include tests/heads/scripts.mk
include tests/train/scripts.mk
include tests/parity/scripts.mk
include tests/fuzz/module.mk
include tests/build/module.mk

# Under valgrind: what is quick there, on one thread.
VALGRIND_TESTS = $(BASE_TESTS) $(SPEC_TESTS) tests/plugin/test_registry tests/plugin/test_refuse tests/plugin/test_self \
  tests/data/test_image tests/data/test_row tests/data/test_chat tests/data/test_cord tests/checkpoint/test_safetensors \
  tests/checkpoint/test_shards tests/encoder/test_positions tests/layers/test_mlps tests/model/test_build
# The tests come after `all`, which is a make of its own: side by side both would write the libraries.
check-valgrind: all
	@$(MAKE) $(AM_MAKEFLAGS) $(VALGRIND_TESTS) $(check_LTLIBRARIES)
	@$(AM_TESTS_ENVIRONMENT) VALGRIND_TESTS='$(VALGRIND_TESTS)' $(SHELL) $(srcdir)/tests/valgrind.sh
.PHONY: check-valgrind
EXTRA_DIST += tests/valgrind.sh tests/valgrind.supp
