# SPDX-License-Identifier: Apache-2.0
dist_doc_DATA += \
  README.md \
  CONTRIBUTING.md \
  NEWS \
  LICENSE \
  docs/DECISIONS.md
dist_doc_DATA += docs/receipts-tiny.png
dist_doc_DATA += docs/spec.md docs/spec-syntax.md docs/data.md docs/from-megatron.md docs/plugin-api.md docs/performance.md docs/reference.md docs/rules.md docs/testing.md
dist_man1_MANS += docs/strata.1
EXTRA_DIST += .clang-format tools/debian-packages.txt tools/readme-command.sh tools/prove-fresh-debian.sh
EXTRA_DIST += tools/make-reference.sh tools/peer_hf_cpu.py tools/check_cases.sh

# docs/reference.md is kept in the repository; tests/build/reference.sh fails when it is stale.
reference: strata$(EXEEXT) $(plugins_LTLIBRARIES)
	STRATA_PLUGIN_PATH_ONLY='$(abs_top_srcdir)/registry:$(abs_top_builddir)/plugins/.libs' \
	  $(SHELL) $(srcdir)/tools/make-reference.sh ./strata$(EXEEXT) $(srcdir)/registry > reference.tmp
	mv reference.tmp $(srcdir)/docs/reference.md
.PHONY: reference
