#!/usr/bin/env python3
"""Makes tests/data/oracle/: what the real model gives in engines that are not this one. Development only; the tests read the
files without Python.

usage: make_oracle_fixtures.py MODEL.gguf OUT_DIR [stages|greedy]
needs (PyPI): numpy gguf; for greedy also llama-cpp-python==0.3.36

stages.bin   values of the forward pass in float64 (this script's own numpy code) for the ten ids of prompt 1. Little-endian:
             char[8] "DSORACLE", u32 version 1, u32 n_tokens, i32 tokens[n_tokens], u32 n_rows, u32 rows[n_rows] (positions kept),
             u32 n_sites, then per site: i32 layer, char stage[24] (NUL-padded), u32 width, u32 n_channels,
             u32 channels[n_channels], f32 values[n_rows][n_channels].
             All channels of layer 0 and final_norm; a spread of channels of every other layer and of the logits.
greedy.txt   per prompt: its ids, 64 greedy tokens of llama.cpp with f32 weights (every tensor dequantised) and an f32 cache, one
             thread, flash attention off; and the margin (logit of the best minus the second token) at every step.
"""
import os
import struct
import sys
import tempfile

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

PROMPTS = [
    ("short_english", "The three most important tools in a small kitchen are"),
    ("code", 'def rolling_median(values, width):\n'
     '    """Return the median of every window of `width` consecutive values."""\n'
     '    if width <= 0 or width > len(values):\n'
     '        raise ValueError("bad width")\n'
     '    out = []\n'
     '    window = sorted(values[:width])\n'
     '    for i in range(width, len(values) + 1):\n'),
    ("chat_template_system", '<|im_start|>system\n'
     'You are a terse assistant who answers in one short sentence.<|im_end|>\n'
     '<|im_start|>user\n'
     'Why do floating point sums change when the order of the terms changes?<|im_end|>\n'
     '<|im_start|>assistant\n'),
]
STAGE_TOKENS = [504, 1296, 768, 1070, 2549, 281, 253, 1165, 9902, 359]
STAGE_ROWS = [1, 5, 9]
CHANNELS = 36        # kept of a stage in layers that are not kept whole
LOGIT_CHANNELS = 1024
STEPS = 64


# ---- float64 -----------------------------------------------------------------------------------------------------------------

class Model:
    def __init__(self, path):
        reader = GGUFReader(path)
        field = lambda key: reader.fields[key].contents()
        arch = field("general.architecture")
        self.layers = field(arch + ".block_count")
        self.heads = field(arch + ".attention.head_count")
        self.kv_heads = field(arch + ".attention.head_count_kv")
        self.hidden = field(arch + ".embedding_length")
        self.dim = self.hidden // self.heads
        self.base = float(field(arch + ".rope.freq_base"))
        self.eps = float(field(arch + ".attention.layer_norm_rms_epsilon"))
        if field(arch + ".rope.dimension_count") != self.dim:
            raise SystemExit("the script knows whole-head rope only")
        self.tensors = {t.name: t for t in reader.tensors}

    def weight(self, name):
        t = self.tensors[name]
        shape = tuple(int(n) for n in reversed(t.shape))
        return np.asarray(dequantize(t.data, t.tensor_type), np.float32).astype(np.float64).reshape(shape)


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * weight


def rotate(x, heads, dim, base):
    """Pairs (2i, 2i+1) of every head as complex numbers, turned by position * base^(-2i/dim)."""
    pairs = x.reshape(len(x), heads, dim // 2, 2)
    turn = np.exp(1j * np.arange(len(x))[:, None] * base ** (-np.arange(0, dim, 2) / dim))
    z = (pairs[..., 0] + 1j * pairs[..., 1]) * turn[:, None, :]
    return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)


def attend(q, k, v, heads, kv_heads, dim):
    n = len(q)
    out = np.zeros((n, heads, dim))
    q, k, v = q.reshape(n, heads, dim), k.reshape(n, kv_heads, dim), v.reshape(n, kv_heads, dim)
    for t in range(n):
        for h in range(heads):
            g = h * kv_heads // heads
            s = k[: t + 1, g] @ q[t, h] / np.sqrt(dim)
            p = np.exp(s - s.max())
            out[t, h] = p @ v[: t + 1, g] / p.sum()
    return out.reshape(n, heads * dim)


def forward(m, tokens):
    """Yields (layer, stage, values) in execution order."""
    w = m.weight
    table = w("token_embd.weight")
    x = table[tokens]
    yield -1, "embed", x
    for layer in range(m.layers):
        at = lambda name: w(f"blk.{layer}.{name}.weight")
        h = norm(x, at("attn_norm"), m.eps)
        q, k, v = h @ at("attn_q").T, h @ at("attn_k").T, h @ at("attn_v").T
        yield layer, "attn_norm", h
        yield layer, "q_proj", q
        yield layer, "k_proj", k
        yield layer, "v_proj", v
        q, k = rotate(q, m.heads, m.dim, m.base), rotate(k, m.kv_heads, m.dim, m.base)
        yield layer, "q_rope", q
        yield layer, "k_rope", k
        a = attend(q, k, v, m.heads, m.kv_heads, m.dim)
        yield layer, "attn_out", a
        a = a @ at("attn_output").T
        yield layer, "o_proj", a
        x = x + a
        yield layer, "resid_attn", x
        h = norm(x, at("ffn_norm"), m.eps)
        yield layer, "ffn_norm", h
        gate, up = h @ at("ffn_gate").T, h @ at("ffn_up").T
        yield layer, "gate", gate
        yield layer, "up", up
        h = gate / (1.0 + np.exp(-gate)) * up
        yield layer, "act", h
        h = h @ at("ffn_down").T
        yield layer, "down", h
        x = x + h
        yield layer, "resid_ffn", x
    x = norm(x, w("output_norm.weight"), m.eps)
    yield m.layers, "final_norm", x
    head = w("output.weight") if "output.weight" in m.tensors else table
    yield m.layers, "logits", x @ head.T


def channels_of(layer, stage, width):
    if layer == 0 or stage in ("embed", "final_norm"):
        return np.arange(width)
    n = LOGIT_CHANNELS if stage == "logits" else CHANNELS
    # Spread over all heads and all places within a head: a step that shares no factor with the width.
    step = next(s for s in range(int(width * 0.618), width) if np.gcd(s, width) == 1)
    return np.sort(np.arange(n) * step % width)


def make_stages(model, path):
    sites = []
    for layer, stage, values in forward(Model(model), STAGE_TOKENS):
        width = values.shape[1]
        channels = channels_of(layer, stage, width)
        sites.append(struct.pack("<i24sII", layer, stage.encode(), width, len(channels)) + channels.astype("<u4").tobytes() +
                     values[np.ix_(STAGE_ROWS, channels)].astype("<f4").tobytes())
    with open(path, "wb") as out:
        out.write(b"DSORACLE" + struct.pack("<II", 1, len(STAGE_TOKENS)) + np.array(STAGE_TOKENS, "<i4").tobytes())
        out.write(struct.pack("<I", len(STAGE_ROWS)) + np.array(STAGE_ROWS, "<u4").tobytes())
        out.write(struct.pack("<I", len(sites)) + b"".join(sites))


# ---- llama.cpp ---------------------------------------------------------------------------------------------------------------

def write_f32(model, path):
    """The same model with every tensor dequantised."""
    reader = GGUFReader(model)
    writer = GGUFWriter(path, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kind = field.types[0]
        value = field.contents()
        if key == "general.file_type":
            value = 0
        writer.add_key_value(key, value, kind, field.types[-1] if kind == GGUFValueType.ARRAY else None)
    for t in reader.tensors:
        shape = tuple(int(n) for n in reversed(t.shape))
        writer.add_tensor(t.name, np.ascontiguousarray(dequantize(t.data, t.tensor_type), np.float32).reshape(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_greedy(model, path):
    import llama_cpp

    with tempfile.TemporaryDirectory() as folder:
        plain = os.path.join(folder, "f32.gguf")
        write_f32(model, plain)
        engine = llama_cpp.Llama(plain, n_ctx=2048, n_batch=2048, n_ubatch=512, n_threads=1, n_threads_batch=1,
                                 flash_attn=False, type_k=0, type_v=0, logits_all=False, verbose=False)
        lines = ["# greedy continuations of llama.cpp, f32; made by tests/tools/make_oracle_fixtures.py",
                 f"# llama-cpp-python {llama_cpp.__version__}"]
        for name, text in PROMPTS:
            ids = engine.tokenize(text.encode(), add_bos=True, special=True)
            engine.reset()
            engine.eval(ids)
            tokens, margins = [], []
            for _ in range(STEPS):
                logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(engine.ctx, -1), (engine.n_vocab(),))
                second, best = np.sort(logits)[-2:]
                tokens.append(int(logits.argmax()))
                margins.append(float(best) - float(second))
                engine.eval([tokens[-1]])
            lines += [f"prompt {name}", "ids " + " ".join(map(str, ids)), "greedy " + " ".join(map(str, tokens)),
                      "margin " + " ".join(f"{m:.6g}" for m in margins)]
    with open(path, "w") as out:
        out.write("\n".join(lines) + "\n")


def main():
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    model, folder = sys.argv[1:3]
    what = sys.argv[3] if len(sys.argv) == 4 else "all"
    if what in ("all", "stages"):
        make_stages(model, os.path.join(folder, "stages.bin"))
    if what in ("all", "greedy"):
        make_greedy(model, os.path.join(folder, "greedy.txt"))


if __name__ == "__main__":
    main()
