# SPDX-License-Identifier: Apache-2.0
build_tests = \
  tests/build/headers.sh \
  tests/build/exports.sh \
  tests/build/includes.sh \
  tests/build/no_cuda.sh \
  tests/build/manual.sh
TESTS += $(build_tests)
EXTRA_DIST += $(build_tests)
EXTRA_DIST += tests/build/tap.sh

# A layer from outside against what make install made; make distcheck runs it too.
dropin = tests/build/dropin.sh
EXTRA_DIST += $(dropin)
EXTRA_DIST += tests/build/dropin/glu.c tests/build/dropin/glu.ini tests/build/dropin/spec.ini
check_PROGRAMS += tests/build/gradients
tests_build_gradients_SOURCES = tests/build/gradients.c
tests_build_gradients_LDADD = framework/libstrata.la

installcheck-local: tests/build/gradients$(EXEEXT)
	ST_SRCDIR='$(abs_top_srcdir)' ST_BUILDDIR='$(abs_top_builddir)' ST_CC='$(CC)' \
	  $(SHELL) $(srcdir)/$(dropin) '$(DESTDIR)$(bindir)' '$(DESTDIR)$(pkgconfigdir)'
