#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens per second of HuggingFace transformers on the text model of a spec, for tests/gpu/ratio.sh.

  strata check --explain SPEC | python3 tests/gpu/peer_step.py SEQUENCES LENGTH [STEPS]

Sizes come from the spec alone. Weights are random, bf16 like the moments; AdamW is torch's fused one; with
flash-linear-attention installed its kernels compute the delta rule. Prints one JSON object: tokens_per_second (median of
STEPS), gib, delta_rule, parameters.
"""
import configparser
import json
import re
import statistics
import sys
import time

import torch

from peer import delta_rule


def read(text):
    """What `strata check --explain` prints: a summary with the pattern written out, then every value with its source."""
    pattern = re.search(r"^pattern +(\S+)$", text, re.M).group(1)
    spec = configparser.RawConfigParser(delimiters=("=",), inline_comment_prefixes=(";",))
    spec.read_string(text[re.search(r"^\[", text, re.M).start():])
    return pattern, spec


def text_config(pattern, spec):
    stack, delta, full, mlp = (spec[name] for name in ("stack", "layer.G", "layer.*", "layer.-"))
    kinds = {"G": "linear_attention", "*": "full_attention"}
    layers = [kinds[c] for c in pattern.split("/")[0] if c in kinds]
    return dict(
        vocab_size=int(stack["vocab"]), hidden_size=int(stack["hidden"]), intermediate_size=int(mlp["width"]),
        num_hidden_layers=len(layers), layer_types=layers, num_attention_heads=int(full["heads"]),
        num_key_value_heads=int(full["kv_heads"]), head_dim=int(full["head_dim"]),
        linear_num_key_heads=int(delta["key_heads"]), linear_num_value_heads=int(delta["value_heads"]),
        linear_key_head_dim=int(delta["key_dim"]), linear_value_head_dim=int(delta["value_dim"]),
        tie_word_embeddings=stack["tie_embeddings"] == "yes", use_cache=False)


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def main(sequences, length, steps=10):
    used = delta_rule()
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = Qwen3_5TextConfig(**text_config(*read(sys.stdin.read())))
    model = Qwen3_5ForCausalLM._from_config(config, attn_implementation="sdpa", dtype=torch.bfloat16)
    model = model.bfloat16().to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=device == "cuda")
    ids = torch.randint(0, config.vocab_size, (int(sequences), int(length)), device=device)
    seconds = []
    for i in range(3 + int(steps)):
        wait(device)
        begin = time.perf_counter()
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait(device)
        if i >= 3:  # kernels are chosen and compiled in the first steps
            seconds.append(time.perf_counter() - begin)
    memory = torch.cuda.max_memory_reserved() / 2**30 if device == "cuda" else 0
    print(json.dumps(dict(tokens_per_second=ids.numel() / statistics.median(seconds), gib=round(memory, 1), delta_rule=used,
                          parameters=sum(p.numel() for p in model.parameters()))))


if __name__ == "__main__":
    main(*sys.argv[1:])
