# SPDX-License-Identifier: Apache-2.0
dist_doc_DATA += \
  README.md \
  CONTRIBUTING.md \
  NEWS \
  LICENSE \
  docs/DECISIONS.md
dist_doc_DATA += docs/spec-syntax.md docs/data.md
dist_man1_MANS += docs/strata.1
EXTRA_DIST += .clang-format tools/debian-packages.txt tools/readme-command.sh tools/prove-fresh-debian.sh
