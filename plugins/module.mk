# SPDX-License-Identifier: Apache-2.0
include plugins/backends/cpu/module.mk
include plugins/comm/self/module.mk
include plugins/layers/gated_delta_net/module.mk
include plugins/layers/attention/module.mk
include plugins/layers/swiglu/module.mk
include plugins/layers/gelu_mlp/module.mk
include plugins/positions/learned_absolute/module.mk
include plugins/layers/moe/module.mk
include plugins/positions/none/module.mk
include plugins/positions/rope/module.mk
include plugins/positions/mrope/module.mk
include plugins/encoders/qwen35_vision/module.mk
include plugins/heads/lm/module.mk
include plugins/heads/mtp/module.mk
include plugins/datasets/mock/module.mk
include plugins/datasets/cord_v2/module.mk
include plugins/optimizers/adamw/module.mk
