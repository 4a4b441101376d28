# SPDX-License-Identifier: Apache-2.0
include tests/base/module.mk
include tests/spec/module.mk
include tests/plugin/module.mk
include tests/backend/module.mk
include tests/layers/module.mk
include tests/encoder/module.mk
include tests/data/module.mk
include tests/model/module.mk
include tests/checkpoint/module.mk
include tests/train/module.mk
include tests/cli/module.mk
include tests/build/module.mk
