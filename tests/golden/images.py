#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes images.bin from a folder with img*.png and io.safetensors as described in README.md: images.py FOLDER OUT

Each case: int32 in_height, in_width, out_height, out_width, rows; the picture's bytes (RGB); the first `rows` rows of the
processor's picture. Values of io are (x - 127.5) / 127.5 in merge order. Case 5 keeps the top of a large picture only: at a
scale of 2.5 its rows fall on the same places, and all but the last ones see the same neighbours."""
import json
import struct
import sys
import zlib


def png(path):
    data = open(path, "rb").read()
    at, idat = 8, b""
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + n]
        if kind == b"IHDR":
            w, h, depth, colour, _, _, lace = struct.unpack(">IIBBBBB", body)
        if kind == b"IDAT":
            idat += body
        at += 12 + n
    assert depth == 8 and colour == 2 and not lace
    raw, line, out, last = zlib.decompress(idat), w * 3, bytearray(), bytearray(w * 3)
    for y in range(h):
        kind, cur = raw[y * (line + 1)], bytearray(raw[y * (line + 1) + 1:(y + 1) * (line + 1)])
        for i in range(line):
            a = cur[i - 3] if i >= 3 else 0
            b, c = last[i], last[i - 3] if i >= 3 else 0
            p = a + b - c
            pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
            paeth = a if pa <= pb and pa <= pc else b if pb <= pc else c
            cur[i] = (cur[i] + (0, a, b, (a + b) // 2, paeth)[kind]) & 255
        out += cur
        last = cur
    return h, w, bytes(out)


def picture(values, gh, gw):
    """Patches in merge order to (16 gh, 16 gw, 3) bytes; both frames must agree."""
    out = bytearray(16 * gh * 16 * gw * 3)
    for u in range(gh * gw):
        block, q = divmod(u, 4)
        row, col = block // (gw // 2) * 2 + q // 2, block % (gw // 2) * 2 + q % 2
        for c in range(3):
            for y in range(16):
                for x in range(16):
                    at = u * 1536 + (c * 2 * 16 + y) * 16 + x
                    assert values[at] == values[at + 256]
                    out[((row * 16 + y) * gw * 16 + col * 16 + x) * 3 + c] = round(values[at] * 127.5 + 127.5)
    return bytes(out)


def main(folder, path):
    data = open(folder + "/io.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    with open(path, "wb") as f:
        for case in (0, 1, 2, 4, 5, 6, 7):
            h, w, pixels = png("%s/img%d.png" % (folder, case))
            a, b = head["%d.pil.grid_thw" % case]["data_offsets"]
            _, gh, gw = struct.unpack("<3q", data[8 + n + a:8 + n + b])
            a, b = head["%d.pil.pixel_values" % case]["data_offsets"]
            want = picture(struct.unpack("<%df" % ((b - a) // 4), data[8 + n + a:8 + n + b]), gh, gw)
            oh, ow, rows = 16 * gh, 16 * gw, 16 * gh
            if case == 5:
                assert h * 2 == oh * 5
                h, oh, rows = 80, 32, 28
            f.write(struct.pack("<5i", h, w, oh, ow, rows) + pixels[:h * w * 3] + want[:rows * ow * 3])


main(sys.argv[1], sys.argv[2])
