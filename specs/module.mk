# SPDX-License-Identifier: Apache-2.0
# Specs to run, and the data of the embedded one: pictures too many to name, so its folder goes along as a whole.
specsdir = $(pkgdatadir)/specs
dist_specs_DATA = specs/receipts-tiny.ini specs/cord-sample.ini
cordsampledir = $(specsdir)/cord-sample
dist_cordsample_DATA = specs/cord-sample/README.md specs/cord-sample/metadata.jsonl
EXTRA_DIST += specs/receipts-tiny tools/draw_receipts.py

install-data-local:
	for folder in . train valid; do \
	  to='$(DESTDIR)$(specsdir)/receipts-tiny'/$$folder; \
	  $(MKDIR_P) "$$to" && \
	    find $(srcdir)/specs/receipts-tiny/$$folder -maxdepth 1 -type f -exec $(INSTALL_DATA) -t "$$to" {} + || exit 1; \
	done
uninstall-local:
	rm -rf '$(DESTDIR)$(specsdir)/receipts-tiny'
