#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a training step of receipts-tiny in HuggingFace transformers on the CPU, beside `strata bench` of the same spec.

    tools/peer_hf_cpu.py [--strata strata] [--threads 2] [--steps 12]

Same model (config below = specs/receipts-tiny.ini), same work per step: 16 receipts of 256 x 64 pixels with their text,
AdamW, clipping, f32. Needs torch and transformers with Qwen3.5; strata needs neither. Prints both medians and their ratio.
"""
import argparse
import json
import subprocess
import time

TOKENS, IMAGES, PATCHES, GRID = 64, 16, 64, (1, 4, 16)  # per sample: padded text with 16 picture tokens
IMAGE_TOKEN, START, END = 323, 321, 322


def peer_model():
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5Config
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForConditionalGeneration
    text = dict(hidden_size=96, num_hidden_layers=4, vocab_size=352, head_dim=32, num_attention_heads=4, num_key_value_heads=2,
                intermediate_size=256, linear_num_key_heads=4, linear_num_value_heads=4, linear_key_head_dim=32,
                linear_value_head_dim=32, linear_conv_kernel_dim=4,
                layer_types=["linear_attention"] * 3 + ["full_attention"],
                rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=1.0, mrope_section=[6, 5, 5],
                                     mrope_interleaved=True))
    vision = dict(depth=2, hidden_size=96, num_heads=3, intermediate_size=256, num_position_embeddings=2304, out_hidden_size=96,
                  patch_size=16, temporal_patch_size=2, spatial_merge_size=2)
    config = Qwen3_5Config(text_config=text, vision_config=vision, image_token_id=IMAGE_TOKEN, vision_start_token_id=START,
                           vision_end_token_id=END, tie_word_embeddings=False)
    return Qwen3_5ForConditionalGeneration(config).float().train()


def time_peer(steps, threads):
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = peer_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.05)
    ids = torch.randint(0, 256, (IMAGES, TOKENS))
    ids[:, 3], ids[:, 20] = START, END
    ids[:, 4:20] = IMAGE_TOKEN
    labels = ids.clone()
    labels[:, :40] = -100
    pixels = torch.randn(IMAGES * PATCHES, 3 * 2 * 16 * 16)
    grid = torch.tensor([GRID] * IMAGES)
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        out = model(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=pixels, image_grid_thw=grid,
                    mm_token_type_ids=(ids == IMAGE_TOKEN).long(), labels=labels, use_cache=False)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter() - start)
    times = sorted(times[2:])
    return times[len(times) // 2]


def time_strata(program, threads, spec):
    out = subprocess.run([program, "bench", spec, "--json", "--set", f"run.threads={threads}"], check=True, capture_output=True, text=True)
    result = json.loads(out.stdout)
    return result["seconds_per_step"], result["samples_per_step"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", default="strata")
    parser.add_argument("--spec", default="receipts-tiny")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    ours, samples = time_strata(options.strata, options.threads, options.spec)
    theirs = time_peer(options.steps, options.threads)
    print(f"transformers {IMAGES / theirs:8.1f} receipts/s  ({theirs * 1e3:.0f} ms a step of {IMAGES})")
    print(f"strata       {samples / ours:8.1f} receipts/s  ({ours * 1e3:.0f} ms a step of {samples:g})")
    print(f"ratio        {(samples / ours) / (IMAGES / theirs):8.2f}")


if __name__ == "__main__":
    main()
