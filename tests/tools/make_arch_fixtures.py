#!/usr/bin/env python3
"""Makes tests/data/arch/: a tiny GGUF file of every architecture, and what it gives (developers only; the results are committed).

usage: make_arch_fixtures.py OUTDIR [llama]
needs (PyPI): numpy gguf; with "llama" also llama-cpp-python, whose logits are then compared with this script's

NAME.gguf    two layers or four, seeded values, matrices as q8_0, q4_1, f16 and f32
NAME.expect  what this script's own float64 code gives for TOKENS, as text: a line "tokens ID...", then
             "LAYER STAGE ROW VALUE..." for router_logits, router_ids (whole numbers, best first) of every row, attn_out, moe_combine and
             resid_ffn of the rows KEPT, and their logits (layer = number of layers)
"""
import os
import sys
import tempfile

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize

TOKENS = [3, 61, 17, 5, 5, 40, 22, 9, 33, 50, 12, 28]
KEPT = [0, 6, 11]
LAYERS, HIDDEN, HEADS, KV, FF, VOCAB, CONTEXT = 2, 32, 4, 2, 32, 64, 48
EPS, BASE = 1e-5, 10000.0
MODELS = {
    # name: arch, and what it has
    "mixtral": dict(arch="llama", experts=4, top_k=2, expert_ff=FF, norm=True),
    "window": dict(arch="llama", window=5),
    "qwen2": dict(arch="qwen2", neox=True, bias=True),
    "qwen3": dict(arch="qwen3", neox=True, qk_norm=True, dim=16),
    "qwen2moe": dict(arch="qwen2moe", neox=True, bias=True, experts=4, top_k=3, expert_ff=32, shared_ff=64),
    "qwen3moe": dict(arch="qwen3moe", neox=True, qk_norm=True, dim=16, experts=5, top_k=2, expert_ff=32, norm=True),
    "windows": dict(arch="llama", window=4, every=2),
    "mixed": dict(arch="llama", experts=4, top_k=2, expert_ff=FF, norm=True, dense=1),
    # the tensors of "mixtral", one for each expert, as older files have them
    "split": dict(arch="llama", experts=4, top_k=2, expert_ff=FF, norm=True, split=True, seed=20),
    # experts in every other layer; a list of the layers that have a window
    "sparse": dict(arch="qwen2moe", neox=True, bias=True, experts=3, top_k=2, expert_ff=32, shared_ff=32, layers=4, step=2),
    "listed": dict(arch="llama", window=4, layers=4, listed=[False, True, True, False]),
}


# ---- the files -----------------------------------------------------------------------------------------------------------------

def has_experts(m, layer):
    return "experts" in m and layer >= m.get("dense", 0) and (layer + 1) % m.get("step", 1) == 0


def shapes(m):
    """(name, shape, type) of every tensor."""
    dim = m.get("dim", HIDDEN // HEADS)
    yield "token_embd.weight", (VOCAB, HIDDEN), T.Q8_0
    for i in range(m.get("layers", LAYERS)):
        b, kind = f"blk.{i}.", [T.Q8_0, T.Q4_1][i % 2]
        yield b + "attn_norm.weight", (HIDDEN,), T.F32
        for part, rows, cols, qtype in [("attn_q", HEADS * dim, HIDDEN, kind), ("attn_k", KV * dim, HIDDEN, T.F16),
                                        ("attn_v", KV * dim, HIDDEN, T.F16), ("attn_output", HIDDEN, HEADS * dim, T.Q8_0)]:
            yield b + part + ".weight", (rows, cols), qtype
            if m.get("bias") and part != "attn_output":
                yield b + part + ".bias", (rows,), T.F32
        if m.get("qk_norm"):
            yield b + "attn_q_norm.weight", (dim,), T.F32
            yield b + "attn_k_norm.weight", (dim,), T.F32
        yield b + "ffn_norm.weight", (HIDDEN,), T.F32
        if not has_experts(m, i):
            yield b + "ffn_gate.weight", (FF, HIDDEN), kind
            yield b + "ffn_up.weight", (FF, HIDDEN), kind
            yield b + "ffn_down.weight", (HIDDEN, FF), kind
            continue
        n, ff = m["experts"], m["expert_ff"]
        yield b + "ffn_gate_inp.weight", (n, HIDDEN), T.F32
        yield b + "ffn_gate_exps.weight", (n, ff, HIDDEN), kind
        yield b + "ffn_up_exps.weight", (n, ff, HIDDEN), T.Q4_0
        yield b + "ffn_down_exps.weight", (n, HIDDEN, ff), kind
        if "shared_ff" in m:
            yield b + "ffn_gate_inp_shexp.weight", (HIDDEN,), T.F32
            yield b + "ffn_gate_shexp.weight", (m["shared_ff"], HIDDEN), kind
            yield b + "ffn_up_shexp.weight", (m["shared_ff"], HIDDEN), T.Q8_0
            yield b + "ffn_down_shexp.weight", (HIDDEN, m["shared_ff"]), kind
    yield "output_norm.weight", (HIDDEN,), T.F32
    yield "output.weight", (VOCAB, HIDDEN), T.Q8_0


def values(rng, name, shape):
    if name.endswith("norm.weight"):
        return (1.0 + 0.2 * rng.standard_normal(shape)).astype(np.float32)
    if name.endswith(".bias"):
        return (0.3 * rng.standard_normal(shape)).astype(np.float32)
    return (rng.standard_normal(shape) / np.sqrt(shape[-1]) * (3.0 if "attn_q" in name or "attn_k" in name else 1.5)).astype(np.float32)


def write(path, m, seed, full=False):
    """full: the dequantised values as f32, for engines that round activations where weights are quantised."""
    rng = np.random.default_rng(seed)
    w = GGUFWriter(path, m["arch"])
    w.add_block_count(m.get("layers", LAYERS))
    w.add_context_length(CONTEXT)
    w.add_embedding_length(HIDDEN)
    w.add_feed_forward_length(FF)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV)
    w.add_layer_norm_rms_eps(EPS)
    w.add_rope_freq_base(BASE)
    w.add_vocab_size(VOCAB)
    w.add_tokenizer_model("no_vocab")
    if "dim" in m:
        w.add_key_length(m["dim"])
        w.add_value_length(m["dim"])
    if "window" in m:
        w.add_sliding_window(m["window"])
    if "every" in m:
        w.add_uint32(f"{m['arch']}.attention.sliding_window_pattern", m["every"])
    if "listed" in m:
        w.add_array(f"{m['arch']}.attention.sliding_window_pattern", m["listed"])
    if "step" in m:
        w.add_uint32(f"{m['arch']}.interleave_moe_layer_step", m["step"])
    if "experts" in m:
        w.add_expert_count(m["experts"])
        w.add_expert_used_count(m["top_k"])
        if m["arch"] != "llama":
            w.add_expert_feed_forward_length(m["expert_ff"])
    if "dense" in m:
        w.add_leading_dense_block_count(m["dense"])
    if "shared_ff" in m:
        w.add_expert_shared_feed_forward_length(m["shared_ff"])
    for name, shape, qtype in shapes(m):
        raw = quantize(values(rng, name, shape), qtype)
        if full and qtype != T.F32:
            raw, qtype = np.asarray(dequantize(raw, qtype), np.float32).reshape(shape), T.F32
        parts = [(name, raw)]
        if m.get("split") and "_exps" in name:
            parts = [(name.replace("_exps", f".{e}"), raw[e]) for e in range(m["experts"])]
        for part, data in parts:
            w.add_tensor(part, np.ascontiguousarray(data), raw_dtype=None if qtype in (T.F32, T.F16) else qtype)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# ---- float64 -------------------------------------------------------------------------------------------------------------------

def norm(x, weight):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPS) * weight


def rotate(x, dim, neox):
    """x: [rows][heads][dim]."""
    angle = np.arange(len(x))[:, None, None] * BASE ** (-np.arange(0, dim, 2) / dim)
    c, s, y = np.cos(angle), np.sin(angle), np.empty_like(x)
    first, second = (slice(0, dim // 2), slice(dim // 2, dim)) if neox else (slice(0, dim, 2), slice(1, dim, 2))
    y[..., first] = x[..., first] * c - x[..., second] * s
    y[..., second] = x[..., first] * s + x[..., second] * c
    return y


def softmax(x):
    p = np.exp(x - x.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def gated(x, gate, up, down):
    g = x @ gate.T
    return (g / (1.0 + np.exp(-g)) * (x @ up.T)) @ down.T


def forward(m, weight):
    """Yields (layer, stage, values) in execution order."""
    dim, n = m.get("dim", HIDDEN // HEADS), len(TOKENS)
    x = weight("token_embd.weight")[TOKENS]
    for layer in range(m.get("layers", LAYERS)):
        at = lambda name: weight(f"blk.{layer}.{name}")
        h = norm(x, at("attn_norm.weight"))
        q, k, v = (h @ at(f"attn_{c}.weight").T + (at(f"attn_{c}.bias") if m.get("bias") else 0.0) for c in "qkv")
        q, k, v = q.reshape(n, HEADS, dim), k.reshape(n, KV, dim), v.reshape(n, KV, dim)
        if m.get("qk_norm"):
            q, k = norm(q, at("attn_q_norm.weight")), norm(k, at("attn_k_norm.weight"))
        q, k = rotate(q, dim, m.get("neox", False)), rotate(k, dim, m.get("neox", False))
        out = np.zeros((n, HEADS, dim))
        for t in range(n):
            full = "every" in m and layer % m["every"] == m["every"] - 1 or "listed" in m and not m["listed"][layer]
            begin = 0 if full else max(0, t + 1 - m.get("window", n))
            for head in range(HEADS):
                g = head * KV // HEADS
                p = softmax(k[begin:t + 1, g] @ q[t, head] / np.sqrt(dim))
                out[t, head] = p @ v[begin:t + 1, g]
        out = out.reshape(n, HEADS * dim)
        yield layer, "attn_out", out
        x = x + out @ at("attn_output.weight").T
        h = norm(x, at("ffn_norm.weight"))
        if not has_experts(m, layer):
            x = x + gated(h, at("ffn_gate.weight"), at("ffn_up.weight"), at("ffn_down.weight"))
            yield layer, "resid_ffn", x
            continue
        logits = h @ at("ffn_gate_inp.weight").T
        yield layer, "router_logits", logits
        ids = np.argsort(-logits, axis=1, kind="stable")[:, :m["top_k"]]
        yield layer, "router_ids", ids
        share = np.take_along_axis(softmax(logits), ids, axis=1)
        if m.get("norm"):
            share = share / share.sum(axis=1, keepdims=True)
        y = np.zeros_like(x)
        for row in range(n):
            for choice, e in enumerate(ids[row]):
                y[row] += share[row, choice] * gated(h[row], *(at(f"ffn_{p}_exps.weight")[e] for p in ("gate", "up", "down")))
        if "shared_ff" in m:
            open_ = 1.0 / (1.0 + np.exp(-(h @ at("ffn_gate_inp_shexp.weight").reshape(-1))))
            y += open_[:, None] * gated(h, *(at(f"ffn_{p}_shexp.weight") for p in ("gate", "up", "down")))
        yield layer, "moe_combine", y
        x = x + y
        yield layer, "resid_ffn", x
    yield m.get("layers", LAYERS), "logits", norm(x, weight("output_norm.weight")) @ weight("output.weight").T


def expect(path, m, gguf):
    tensors = {t.name: t for t in GGUFReader(gguf).tensors}

    def weight(name):
        if name not in tensors:
            return np.stack([weight(name.replace("_exps", f".{e}")) for e in range(m["experts"])])
        t = tensors[name]
        shape = tuple(int(d) for d in reversed(t.shape))
        return np.asarray(dequantize(t.data, t.tensor_type), np.float32).astype(np.float64).reshape(shape)

    logits = None
    with open(path, "w") as out:
        out.write("tokens " + " ".join(map(str, TOKENS)) + "\n")
        for layer, stage, rows in forward(m, weight):
            for row in range(len(TOKENS)):
                if stage.startswith("router") or row in KEPT:
                    text = " ".join(str(int(x)) if stage == "router_ids" else f"{x:.9g}" for x in rows[row])
                    out.write(f"{layer} {stage} {row} {text}\n")
            logits = rows
    return logits


# ---- a second opinion ----------------------------------------------------------------------------------------------------------

def llama_logits(path):
    import ctypes

    import llama_cpp as L
    L.llama_backend_init()
    quiet = L.llama_log_callback(lambda level, text, data: None)
    L.llama_log_set(quiet, None)
    model = L.llama_model_load_from_file(path.encode(), L.llama_model_default_params())
    if not model:
        return None
    p = L.llama_context_default_params()
    p.n_ctx, p.n_batch, p.n_threads, p.n_threads_batch = CONTEXT, CONTEXT, 1, 1
    p.type_k = p.type_v = 0
    p.flash_attn_type = 0
    ctx = L.llama_init_from_model(model, p)
    batch = L.llama_batch_init(len(TOKENS), 0, 1)
    batch.n_tokens = len(TOKENS)
    for i, t in enumerate(TOKENS):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = t, i, 1, 0, 1
    if L.llama_decode(ctx, batch) != 0:
        return None
    return np.stack([np.ctypeslib.as_array(L.llama_get_logits_ith(ctx, i), (VOCAB,)).copy() for i in range(len(TOKENS))])


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    for seed, (name, m) in enumerate(MODELS.items()):
        gguf = f"{sys.argv[1]}/{name}.gguf"
        write(gguf, m, m.get("seed", 20 + seed))
        logits = expect(f"{sys.argv[1]}/{name}.expect", m, gguf)
        if len(sys.argv) == 3:
            with tempfile.NamedTemporaryFile(suffix=".gguf") as plain:
                write(plain.name, m, m.get("seed", 20 + seed), full=True)
                other = llama_logits(plain.name)
            print(name, "llama.cpp does not load it" if other is None else
                  f"llama.cpp differs by at most {abs(other - logits).max():.3g} of {abs(logits).max():.3g}")
