# SPDX-License-Identifier: Apache-2.0
# What `strata new` starts from; a folder for each kind.
templatelayerdir = $(pkgdatadir)/template/layer
dist_templatelayer_DATA = templates/layer/layer.c templates/layer/layer.ini templates/layer/layer.mk templates/layer/spec.ini \
  templates/layer/README.md
