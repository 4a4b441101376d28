# SPDX-License-Identifier: Apache-2.0
# Specs to run, and the data of the embedded one: pictures too many to name, so its folder goes along as a whole.
specsdir = $(pkgdatadir)/specs
dist_specs_DATA = specs/receipts-tiny.ini specs/cord-sample.ini \
  specs/qwen35-vl-0.8b.ini specs/qwen35-vl-2b.ini specs/qwen35-vl-4b.ini specs/qwen35-vl-9b.ini specs/qwen35-vl-27b.ini \
  specs/qwen35-vl-35b-a3b.ini specs/qwen35-vl-122b-a10b.ini specs/qwen35-vl-397b-a17b.ini \
  specs/qwen35-vl-35b-a3b-proxy.ini
familydir = $(specsdir)/family
dist_family_DATA = specs/family/qwen35-vl.ini specs/family/qwen35-moe.ini \
  specs/family/qwen35-vision-12.ini specs/family/qwen35-vision-24.ini specs/family/qwen35-vision-27.ini
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
