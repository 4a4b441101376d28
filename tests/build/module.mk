# SPDX-License-Identifier: Apache-2.0
build_tests = \
  tests/build/headers.sh \
  tests/build/exports.sh \
  tests/build/includes.sh \
  tests/build/no_cuda.sh \
  tests/build/archs.sh \
  tests/build/registers.sh \
  tests/build/manual.sh tests/build/width.sh \
  tests/build/megatron.sh \
  tests/build/reference.sh
TESTS += $(build_tests)
EXTRA_DIST += $(build_tests) tests/build/tap.sh

# A layer from outside against what make install made.
dropin = tests/build/dropin.sh
EXTRA_DIST += $(dropin) tests/build/dropin/glu.c tests/build/dropin/glu.ini tests/build/dropin/spec.ini
installcheck-local:
	ST_SRCDIR='$(abs_top_srcdir)' ST_CC='$(CC)' \
	  $(SHELL) $(srcdir)/$(dropin) '$(DESTDIR)$(bindir)' '$(DESTDIR)$(pkgconfigdir)'
	ST_SRCDIR='$(abs_top_srcdir)' $(SHELL) $(srcdir)/$(installed_specs) '$(DESTDIR)$(bindir)'
