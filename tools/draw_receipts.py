#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the receipts of specs/receipts-tiny and writes their labels and tokenizer.

    tools/draw_receipts.py specs/receipts-tiny

Needs Pillow, numpy and the DejaVu and Liberation fonts (Debian: fonts-dejavu-core fonts-liberation). The result is
kept in the repository, so nobody needs to run this to train. Layout of the folder: train/ and valid/, each with
metadata.jsonl (file_name, ground_truth as in CORD-V2) and pictures; tokenizer.json in HuggingFace's format.
"""
import collections
import io
import json
import os
import random
import re
import shutil
import sys

import numpy as np
from PIL import Image, ImageDraw, ImageFont

WIDTH, LINE, PITCH = 256, 32, 16          # pixels: receipt, text line, character
TRAIN, VALID = 700, 96
FOLDER = "/usr/share/fonts/truetype/"
FONTS = [FOLDER + name for name in ("dejavu/DejaVuSansMono.ttf", "dejavu/DejaVuSansMono-Bold.ttf",
                                    "liberation/LiberationMono-Regular.ttf", "liberation/LiberationMono-Bold.ttf")]
ADVANCE = 0.602                           # width of a character of these fonts, in units of their size
NAMES = ("AYAM BAKSO CUMI DONAT GULAI IKAN JUS KERANG KOPI LATTE MIE MOCHA "
         "NASI PEMPEK RAWON ROTI SATE SAYUR SOTO SUSU TAHU TEH TEMPE UDANG").split()
TAGS = ["<s_menu>", "</s_menu>", "<s_nm>", "</s_nm>", "<s_cnt>", "</s_cnt>", "<s_price>", "</s_price>", "<sep/>"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
PROMPT = "Read the receipt."
MERGES = 72
# the family's pre-tokeniser (model card of the tokenizer): words, single digits, punctuation, line ends, blanks
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def draw(rng):
    """One receipt: (picture, items)."""
    count = rng.randint(1, 2)
    items = [dict(nm=name, cnt=str(rng.randint(1, 3)), price=f"{rng.randint(2, 99) * 1000:,}")
             for name in rng.sample(NAMES, count)]
    paper, ink = rng.randint(225, 255), rng.randint(0, 60)
    font = ImageFont.truetype(rng.choice(FONTS), round(PITCH / ADVANCE))
    picture = Image.new("L", (WIDTH, 2 * LINE), paper)
    pen = ImageDraw.Draw(picture)
    left = rng.randint(-2, 2)
    columns = WIDTH // PITCH
    for row, item in enumerate(items):
        text = f"{item['cnt']} {item['nm']}"
        text += item["price"].rjust(columns - len(text))
        top = row * LINE + rng.randint(-2, 2)
        for column, letter in enumerate(text):
            pen.text((column * PITCH + left, top), letter, font=font, fill=ink)
    picture = picture.rotate(rng.uniform(-0.5, 0.5), resample=Image.BICUBIC, fillcolor=paper)
    noise = np.random.RandomState(rng.randrange(2 ** 31)).randn(2 * LINE, WIDTH) * rng.uniform(0, 6)
    return Image.fromarray(np.clip(np.asarray(picture, np.float64) + noise, 0, 255).astype(np.uint8)), items


def encode(picture, rng):
    """Nine in ten JPEG, the rest PNG: (bytes, ending)."""
    out = io.BytesIO()
    if rng.random() < 0.9:
        picture.convert("RGB").save(out, "JPEG", quality=rng.randint(65, 80))
        return out.getvalue(), "jpg"
    picture.save(out, "PNG", optimize=True)
    return out.getvalue(), "png"


def label_text(items):
    def one(item):
        return "".join(f"<s_{key}>{value}</s_{key}>" for key, value in item.items())
    return "<s_menu>" + "<sep/>".join(one(i) for i in items) + "</s_menu>"


def write_split(folder, number, seed):
    rng = random.Random(seed)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    texts, size = [], 0
    with open(os.path.join(folder, "metadata.jsonl"), "w", encoding="utf-8") as lines:
        for index in range(number):
            picture, items = draw(rng)
            data, ending = encode(picture, rng)
            name = f"receipt_{index:05d}.{ending}"
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
            size += len(data)
            truth = {"gt_parse": {"menu": items if len(items) > 1 else items[0]}}
            lines.write(json.dumps({"file_name": name, "ground_truth": json.dumps(truth)}) + "\n")
            texts.append(label_text(items))
    return texts, size


def byte_letters():
    """The printable stand-in of every byte in byte-level BPE files."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in kept}
    for b in range(256):
        if b not in letters:
            letters[b] = chr(256 + len(letters) - len(kept))
    return letters


def train_merges(texts, letters):
    """Plain byte-pair merging over words, most frequent pair first, ties by text."""
    words = collections.Counter()
    for text in texts:
        for piece in re.split("(" + "|".join(map(re.escape, TAGS)) + ")", text):
            if piece not in TAGS:
                words.update(re.findall(r" ?[A-Za-z]+| ?[^\sA-Za-z0-9]+|\s*\n+", piece))
    parts = {w: [letters[b] for b in w.encode()] for w in words}
    merges = []
    while len(merges) < MERGES:
        pairs = collections.Counter()
        for word, number in words.items():
            for pair in zip(parts[word], parts[word][1:]):
                pairs[pair] += number
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        for word, old in parts.items():
            new, i = [], 0
            while i < len(old):
                if tuple(old[i:i + 2]) == best:
                    new.append(old[i] + old[i + 1])
                    i += 2
                else:
                    new.append(old[i])
                    i += 1
            parts[word] = new
    return merges


def write_tokenizer(path, texts):
    letters = byte_letters()
    frame = ["user\n", "assistant\n", "\n\n", PROMPT] * (len(texts) // 2)
    merges = train_merges(texts + frame, letters)
    vocabulary = {letters[b]: i for i, b in enumerate(sorted(letters))}
    for left, right in merges:
        vocabulary.setdefault(left + right, len(vocabulary))
    added = []
    for token in SPECIAL + ["<think>", "</think>"] + TAGS:
        added.append(dict(id=len(vocabulary) + len(added), content=token, single_word=False, lstrip=False, rstrip=False,
                          normalized=False, special=token in SPECIAL))
    document = dict(
        version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=dict(type="NFC"),
        pre_tokenizer=dict(type="Sequence", pretokenizers=[
            dict(type="Split", pattern=dict(Regex=SPLIT), behavior="Isolated", invert=False),
            dict(type="ByteLevel", add_prefix_space=False, trim_offsets=False, use_regex=False)]),
        post_processor=None,
        decoder=dict(type="ByteLevel", add_prefix_space=False, trim_offsets=False, use_regex=False),
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix="", end_of_word_suffix="",
                   fuse_unk=False, byte_fallback=False, vocab=vocabulary, merges=[f"{a} {b}" for a, b in merges]))
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file, ensure_ascii=False, indent=1)
        file.write("\n")
    return len(vocabulary) + len(added)


def main():
    root = sys.argv[1]
    texts, size = write_split(os.path.join(root, "train"), TRAIN, seed=1)
    size += write_split(os.path.join(root, "valid"), VALID, seed=2)[1]
    words = write_tokenizer(os.path.join(root, "tokenizer.json"), texts)
    print(f"{TRAIN} + {VALID} receipts, {size / 1e6:.1f} MB, {words} words in the tokenizer")


if __name__ == "__main__":
    main()
