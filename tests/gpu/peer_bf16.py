#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far HuggingFace transformers in bf16 is from the float64 values of reference folders.

  python3 tests/gpu/peer_bf16.py OUT.json DIR        (DIR as for `strata parity`)

Writes {"NAME": |a - b| / |b|, ...} for every value that `strata parity` compares by name, so that
`strata parity --backend cuda --peer OUT.json DIR` can hold our bf16 to 1.25 times the library's. Weights, rows and the
loss (mean over all trained tokens of all samples) are those of the folder; sums are the library's own. With
flash-linear-attention installed its kernels compute the delta rule in bf16, as the library does for whoever trains with
it; without, the library's reference computes it in f32, which is a stricter measure. What was used is printed.

Rounding decides single values: the library's own two ways to compute attention differ from each other by more than 1.25
where few numbers make a value. Both are run; OUT.json holds the larger error of each value, and how many values of the
one way are more than 1.25 times as far off as those of the other is printed.
"""
import json
import sys

import torch


def first_configuration_only():
    """Kernels tuned by time would take minutes and could differ between runs: each takes its first configuration."""
    try:
        import triton
    except ImportError:
        return
    tune = triton.autotune
    triton.autotune = lambda configs, *rest, **more: tune(configs[:1], *rest, **more)


first_configuration_only()
import torch.nn.functional as F
from peer import delta_rule
from safetensors.torch import load_file


def build(folder, device, attention):
    config = json.load(open(f"{folder}/config.json"))
    if "moe" in config["model_type"]:
        from transformers import Qwen3_5MoeConfig as Config
        from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeForConditionalGeneration as Model
    else:
        from transformers import Qwen3_5Config as Config
        from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForConditionalGeneration as Model
    model = Model._from_config(Config(**config), attn_implementation=attention, dtype=torch.bfloat16)
    weights = load_file(f"{folder}/weights.safetensors")
    missing, unexpected = model.load_state_dict({k: v.bfloat16() for k, v in weights.items()}, strict=False)
    assert not unexpected and all("lm_head" in k for k in missing), (missing, unexpected)
    model.tie_weights()
    return model.bfloat16().to(device).train()


def error(got, want):
    want, got = want.double().flatten(), got.detach().double().cpu().flatten()
    size = want.norm()
    return float((got - want).norm() / size) if size > 0 else float((got - want).norm())


def measure(folder, io, attention):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build(folder, device, attention)
    errors, total, trained = {}, 0.0, 0
    for i in range(sum(k.endswith(".input_ids") for k in io)):
        ids, labels = io[f"s{i}.input_ids"].to(device), io[f"s{i}.labels"].to(device)
        more = {}
        if f"s{i}.pixel_values" in io:
            pixels = io[f"s{i}.pixel_values"].bfloat16().to(device)
            grid = io[f"s{i}.grid_thw"].to(device)
            more = dict(pixel_values=pixels, image_grid_thw=grid)
            vision = model.model.visual(pixels, grid_thw=grid)
            errors[f"s{i}.vision"] = error(getattr(vision, "pooler_output", vision), io[f"s{i}.vision"])
        result = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False, output_hidden_states=True,
                       mm_token_type_ids=io[f"s{i}.token_type"].to(device), **more)
        for layer, hidden in enumerate(result.hidden_states):
            errors[f"s{i}.hidden.{layer}"] = error(hidden, io[f"s{i}.hidden.{layer}"])
        errors[f"s{i}.logits"] = error(result.logits, io[f"s{i}.logits"])
        target = labels[:, 1:].reshape(-1)
        logits = result.logits[:, :-1].float()
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target, ignore_index=-100, reduction="sum")
        count = int((target != -100).sum())
        errors[f"s{i}.loss"] = error(loss / max(count, 1), io[f"s{i}.loss"])
        total, trained = total + loss, trained + count
    loss = total / trained
    errors["loss"] = error(loss, io["loss"])
    loss.backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and f"grad.{name}" in io:
            errors[f"grad.{name}"] = error(parameter.grad, io[f"grad.{name}"])
    return errors


def main(out, folder):
    io = load_file(f"{folder}/io.safetensors")
    used = delta_rule()
    one, other = (measure(folder, io, attention) for attention in ("sdpa", "eager"))
    apart = sum(max(one[name], other[name]) > 1.25 * min(one[name], other[name]) for name in one)
    largest = {name: max(one[name], other[name]) for name in one}
    json.dump(largest, open(out, "w"), indent=1)
    print(f"{folder}: {len(one)} values, largest error {max(largest.values()):.2e}; delta rule: {used}; {apart} values differ "
          "by more than 1.25 between sdpa and eager attention")


if __name__ == "__main__":
    main(*sys.argv[1:])
