#!/usr/bin/env python3
"""Makes tests/data/sampler/draws.txt: what a sampler gives that is not this one. Development only; the test reads the file without
Python.

usage: make_sampler_fixtures.py OUT_FILE
needs (PyPI): numpy; and llama-cpp-python==0.3.36, whose top-k, top-p and min-p must leave the same tokens in every case without ties

Written with numpy: its own Philox for the random words, its own log and exp, a sort where the kernel has a heap. A case is

    case NAME
    sampler TEMPERATURE TOP_K TOP_P MIN_P PENALTY SEED     numbers as %.9g
    logits BITS ...                                        f32, hexadecimal
    history ID ...
    processed BITS ...
    draw STREAM STEP TOKEN SCORE                           several; SCORE is that of TOKEN
"""
import ctypes
import sys

import numpy as np

VOCAB = 97
F = np.float32
LOWEST = F(-np.inf)


def process(logits, history, s):
    z = logits.astype(F).copy()
    for i in set(history):
        z[i] = F(logits[i] * F(s["penalty"])) if logits[i] < 0 else F(logits[i] / F(s["penalty"]))
    z = (z / F(s["temperature"])).astype(F)
    alive = ~np.isnan(z) & (z > LOWEST)
    if s["top_k"] and alive.sum() > s["top_k"]:
        least = np.sort(z[alive])[::-1][s["top_k"] - 1]
        z[alive & (z < least)] = LOWEST
        alive = ~np.isnan(z) & (z > LOWEST)

    def weights():
        top = z[alive].max()
        with np.errstate(invalid="ignore"):
            w = np.exp(z.astype(np.float64) - float(top))
        w[z == top] = 1.0
        w[~alive] = 0.0
        return w

    if s["top_p"] < 1 and alive.any():
        w = weights()
        order = sorted(np.flatnonzero(alive), key=lambda i: (-z[i], i))
        before = 0.0
        for i in order:
            if not before < float(F(s["top_p"])) * w.sum():
                z[i] = LOWEST
            before += w[i]
        alive = ~np.isnan(z) & (z > LOWEST)
    if s["min_p"] > 0 and alive.any():
        z[alive & (weights() < float(F(s["min_p"])))] = LOWEST
    return z


def noise(seed, stream, step, n):
    words = np.zeros(n, np.uint64)
    for block in range((n + 3) // 4):
        # numpy counts on before it gives the first words
        at = (step | block << 64) - 1
        counter = [at >> 64 * i & 0xffffffffffffffff for i in range(4)]
        got = np.random.Philox(counter=np.array(counter, np.uint64), key=np.array([seed, stream], np.uint64)).random_raw(4)
        words[4 * block:4 * block + 4] = got[:n - 4 * block]
    u = ((words >> np.uint64(12)).astype(np.float64) * 2 + 1) * 2.0**-53
    # log1p of what is missing to 1: exact, as u is
    log_u = np.where(u > 0.5, np.log1p(u - 1), np.log(u))
    return -np.log(-log_u)


def draw(z, seed, stream, step):
    with np.errstate(invalid="ignore"):
        score = (z.astype(np.float64) + noise(seed, stream, step, len(z))).astype(F)
    score[np.isnan(z) | (z == LOWEST)] = LOWEST
    token = int(np.argmax(score))
    return token, score[token]


def llama_survivors(logits, history, s):
    import llama_cpp as lib
    z = logits.copy()
    for i in set(history):
        z[i] = logits[i] * F(s["penalty"]) if logits[i] < 0 else logits[i] / F(s["penalty"])
    data = (lib.llama_token_data * len(z))(*[lib.llama_token_data(i, float(v), 0.0) for i, v in enumerate(z)])
    cur = lib.llama_token_data_array(data=data, size=len(z), selected=-1, sorted=False)
    chain = [lib.llama_sampler_init_temp(s["temperature"])]
    chain += [lib.llama_sampler_init_top_k(s["top_k"])] if s["top_k"] else []
    chain += [lib.llama_sampler_init_top_p(s["top_p"], 1)] if s["top_p"] < 1 else []
    chain += [lib.llama_sampler_init_min_p(s["min_p"], 1)] if s["min_p"] > 0 else []
    for x in chain:
        lib.llama_sampler_apply(x, ctypes.byref(cur))
    return {cur.data[i].id for i in range(cur.size) if cur.data[i].logit > -np.inf}


def cases():
    rng = np.random.default_rng(1)
    base = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "penalty": 1.0, "seed": 1}
    settings = [
        ("plain", {}), ("cold", {"temperature": 0.3}), ("hot", {"temperature": 2.5}), ("seed", {"seed": 1 << 40}),
        ("top-k-1", {"top_k": 1}), ("top-k", {"top_k": 7}), ("top-k-all", {"top_k": 500}),
        ("top-p", {"top_p": 0.9}), ("top-p-half", {"top_p": 0.5}), ("top-p-one-token", {"top_p": 1e-6}),
        ("min-p", {"min_p": 0.05}), ("min-p-1", {"min_p": 1.0}), ("penalty", {"penalty": 1.3}),
        ("penalty-below-1", {"penalty": 0.7}),
        ("all", {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.02, "penalty": 1.1}),
        ("order", {"temperature": 3.0, "top_k": 12, "top_p": 0.7, "min_p": 0.2, "penalty": 2.0}),
    ]
    for name, changed in settings:
        logits = (rng.standard_normal(VOCAB) * 3).astype(F)
        yield name, logits, [3, 17, 3, 55, 96], {**base, **changed}, False
    ties = np.round(rng.standard_normal(VOCAB) * 2).astype(F)
    yield "ties-top-k", ties, [1], {**base, "top_k": 5}, True
    yield "ties-top-p", ties, [1], {**base, "top_p": 0.6}, True
    odd = (rng.standard_normal(VOCAB) * 3).astype(F)
    odd[[0, 9, 40]] = np.nan
    odd[[5, 41]] = LOWEST
    yield "nan", odd, [0, 5, 7], {**base, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "penalty": 1.2}, True
    odd = odd.copy()
    odd[[60, 61]] = np.inf
    yield "inf", odd, [60], {**base, "temperature": 0.5, "top_p": 0.5, "min_p": 0.1, "penalty": 1.2}, True
    yield "all-nan", np.full(VOCAB, np.nan, F), [2], {**base, "top_k": 3, "top_p": 0.5, "min_p": 0.1}, True


def bits(x):
    # a NaN is a NaN: its payload is nobody's business here
    return " ".join("7fc00000" if np.isnan(v) else f"{b:08x}" for v, b in zip(x, x.view(np.uint32)))


def main():
    lines = []
    for name, logits, history, s, odd in cases():
        z = process(logits, history, s)
        if not odd:
            left = set(np.flatnonzero(z > LOWEST).tolist())
            theirs = llama_survivors(logits, history, s)
            assert left == theirs, (name, sorted(left ^ theirs))
        lines += [f"case {name}", "sampler " + " ".join(f"{s[k]:.9g}" for k in ("temperature", "top_k", "top_p", "min_p", "penalty"))
                  + f" {s['seed']}", "logits " + bits(logits), "history " + " ".join(map(str, history)), "processed " + bits(z)]
        for stream, step in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (5, 1000), (99999, 31), (2, 2147483647)]:
            token, score = draw(z, s["seed"], stream, step)
            lines.append(f"draw {stream} {step} {token} {score:.9g}")
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


main()
