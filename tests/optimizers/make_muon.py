#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes muon_values.h: weights after two steps of Muon with AdamW beside it, by numpy alone from the published
formulas. Weights and gradients are the functions of path and index that test_muon.c has too.

    python3 make_muon.py > muon_values.h
"""
import numpy as np

LR, DECAY, STEPS = 0.02, 0.1, 2
# path: shape, rows of its sections (None: one matrix; 0: AdamW's), does it decay
WEIGHTS = {
    "embed": ((7, 6), 0, True),
    "lm_head": ((7, 6), 0, True),
    "layers.0.in": ((16, 6), (2, 2, 4, 4, 2, 2), True),
    "layers.0.conv": ((8, 4), 0, True),
    "layers.0.a_log": ((2,), 0, False),
    "layers.1.pre_norm": ((6,), 0, False),
    "layers.1.qkv": ((12, 6), (8, 2, 2), True),
    "layers.2.gate_up": ((10, 6), (5, 5), True),
    "layers.2.down": ((6, 5), None, True),
    "layers.3.router": ((2, 6), None, True),
    "layers.3.gate_up": ((2, 14, 6), (7, 7), True),
    "layers.3.down": ((2, 6, 7), None, True),
}


def seed(path):
    return sum(path.encode()) % 97


def index(shape):
    return np.arange(np.prod(shape), dtype=np.float64).reshape(shape)


def first_weight(path, shape):
    return 0.5 * np.sin(0.7 * index(shape) + seed(path))


def gradient(path, shape, step):
    return np.cos(0.3 * step * index(shape) + 0.1 * index(shape) ** 2 + seed(path))


def orthogonal(u, iterations):
    x = u / (np.sqrt((u * u).sum()) + 1e-7)
    for _ in range(iterations):
        a = x @ x.T  # the published form; the product order of tall matrices gives the same
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def step_of_matrix(u, iterations, scale):
    r, c = u.shape
    s = 0.2 * np.sqrt(max(r, c)) if scale == "rms" else np.sqrt(max(1.0, r / c))
    return s * orthogonal(u, iterations)


def muon(path, shape, sections, decay, iterations, nesterov, scale):
    w, m = first_weight(path, shape), np.zeros(shape)
    rows = sections or (shape[-2],)
    ends = np.cumsum((0,) + tuple(rows))
    for t in range(1, STEPS + 1):
        g = gradient(path, shape, t)
        m = 0.95 * m + g
        u = g + 0.95 * m if nesterov else m
        d = np.empty(shape)
        for e in np.ndindex(shape[:-2]):
            for a, b in zip(ends, ends[1:]):
                d[e][a:b] = step_of_matrix(u[e][a:b], iterations, scale)
        w = w * (1 - LR * decay) - LR * d
    return w


def adamw(path, shape, decay):
    w, m, v = first_weight(path, shape), np.zeros(shape), np.zeros(shape)
    for t in range(1, STEPS + 1):
        g = gradient(path, shape, t)
        m = 0.9 * m + 0.1 * g
        v = 0.95 * v + 0.05 * g * g
        w = w * (1 - LR * decay) - LR * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-8)
    return w


def write(name, paths, *how):
    print(f"static const struct muon_values {name}[] = {{")
    for path in paths:
        shape, sections, decays = WEIGHTS[path]
        decay = DECAY if decays else 0.0
        w = adamw(path, shape, decay) if sections == 0 else muon(path, shape, sections, decay, *how)
        print(f'    {{"{path}", {w.size}, (const double[]){{')
        flat = [f"{x:.17g}" for x in w.ravel()]
        for i in range(0, len(flat), 5):
            print("        " + ", ".join(flat[i : i + 5]) + ",")
        print("    }},")
    print("};")


print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* optimizers/muon_values.h - written by make_muon.py: weights after two steps. */")
print("struct muon_values { const char *path; int n; const double *value; };")
write("as_published", WEIGHTS, 5, True, "rms")
write("other_settings", ["layers.2.gate_up", "layers.3.gate_up"], 3, False, "shape")
