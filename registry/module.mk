# SPDX-License-Identifier: Apache-2.0
dist_registry_DATA += registry/40-none.ini registry/41-rope.ini registry/42-mrope.ini registry/43-qwen35_vision.ini
dist_registry_DATA += registry/42-learned_absolute.ini registry/44-lm.ini registry/44-mtp.ini registry/45-adamw.ini registry/46-muon.ini
dist_registry_DATA += registry/10-self.ini
dist_registry_DATA += registry/30-gated_delta_net.ini registry/31-attention.ini registry/32-swiglu.ini registry/33-gelu_mlp.ini
dist_registry_DATA += registry/34-delta_rule.ini registry/35-moe.ini
dist_registry_DATA += registry/10-cpu.ini registry/11-cuda.ini
dist_registry_DATA += registry/60-mock.ini registry/61-cord_v2.ini
