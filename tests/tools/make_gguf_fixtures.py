#!/usr/bin/env python3
"""Makes every file of tests/data/gguf (developers only; the results are committed).

Needs the PyPI packages numpy and gguf, whose dequantize() is the truth that the tests hold the loader to, and libxxhash.so.0.

usage: make_gguf_fixtures.py OUTDIR [SMOLLM2.gguf]

    types.gguf types.f32    one tensor of each loadable type, with ordinary and with special scales; the f32 bytes, tensor by tensor
    tiny.gguf tiny.f32      a small llama model of mixed types, tied head; the f32 bytes in the order of the model's weight list
    full.gguf full.f32      the same with everything optional: biases, own head, rope_freqs, linear rope scaling, key_length
    meta.gguf               one metadata key of every value type
    smollm2.digests         (with the second argument) tensor, type, rows, columns, XXH3-64 of the f32 bytes of the real model

numpy leaves signalling NaNs of f16 tensors as they are or makes them quiet, depending on how it was built; the committed files
come from a build that leaves them.
"""
import ctypes
import os
import sys

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGUFReader, GGUFWriter, RopeScalingType
from gguf import GGUFValueType as V
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

# f16 scales: zeros, subnormals, smallest normal, largest, infinities, quiet and signalling NaNs.
SCALES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE12, 0x7D55, 0x3C01, 0xB555]
SPECIAL_F32 = [0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001, 0x7F800001,
               0xFFFFFFFF]


def raw_blocks(rng, qtype, rows, cols):
    """Random blocks; every scale of SCALES is there, in q4_1 each with each of a few minima."""
    block, size = GGML_QUANT_SIZES[qtype]
    raw = rng.integers(0, 256, (rows, cols // block, size), dtype=np.uint8)
    halves = rng.standard_normal((rows, cols // block, 2)).astype(np.float16)
    flat = raw.reshape(-1, size)
    scales = halves.reshape(-1, 2).copy().view(np.uint16)
    for i in range(len(flat)):
        if i < 14 * 7:
            scales[i] = (SCALES[i % 14], SCALES[(i // 14) * 2])
        n = 4 if qtype == T.Q4_1 else 2
        flat[i, :n] = np.frombuffer(scales[i].tobytes()[:n], dtype=np.uint8)
    return flat.reshape(rows, -1)


def raw_tensor(rng, qtype, rows, cols):
    """Bytes of a tensor as they lie in the file."""
    if qtype == T.F32:
        a = rng.integers(0, 2**32, (rows, cols), dtype=np.uint32)
        a.ravel()[:len(SPECIAL_F32)] = SPECIAL_F32
        return a.view(np.uint8).reshape(rows, -1)
    if qtype == T.F16 or qtype == T.BF16:
        a = (np.arange(rows * cols, dtype=np.uint32) * 0x9E37 & 0xFFFF).astype(np.uint16).reshape(rows, cols)
        return a.view(np.uint8).reshape(rows, -1)
    return raw_blocks(rng, qtype, rows, cols)


def truth(raw, qtype):
    with np.errstate(all="ignore"):
        if qtype == T.F32:
            return raw.view(np.float32)
        if qtype == T.F16:
            return dequantize(raw.view(np.float16), qtype)
        return dequantize(raw, qtype)


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def types(out):
    rng = np.random.default_rng(1)
    w = GGUFWriter(f"{out}/types.gguf", "none")
    with open(f"{out}/types.f32", "wb") as f:
        for name, qtype, rows, cols in [("f32", T.F32, 3, 7), ("f16", T.F16, 8, 96), ("bf16", T.BF16, 8, 96),
                                        ("q8_0", T.Q8_0, 4, 128), ("q4_0", T.Q4_0, 4, 128), ("q4_1", T.Q4_1, 13, 256)]:
            raw = raw_tensor(rng, qtype, rows, cols)
            if qtype == T.F32:
                w.add_tensor(name, raw.view(np.float32))
            else:
                w.add_tensor(name, raw, raw_dtype=qtype)
            f.write(truth(raw, qtype).astype("<f4", copy=False).tobytes())
    write(w)


def model(out, name, extra):
    rng = np.random.default_rng(2)
    layers, hidden, heads, kv, dim, ff, vocab = 2, 32, 4, 2, 16 if extra else 8, 64, 48
    w = GGUFWriter(f"{out}/{name}.gguf", "llama")
    w.add_block_count(layers)
    w.add_context_length(128)
    w.add_embedding_length(hidden)
    w.add_feed_forward_length(ff)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_layer_norm_rms_eps(1e-6)
    if extra:
        w.add_key_length(dim)
        w.add_value_length(dim)
        w.add_rope_dimension_count(dim // 2)
        w.add_rope_freq_base(50000.0)
        w.add_rope_scaling_type(RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(2.0)
    tensors = [("token_embd.weight", (vocab, hidden), T.Q8_0)]
    for i in range(layers):
        b = f"blk.{i}."
        kind = [T.Q4_1, T.Q4_0][i]
        tensors += [(b + "attn_norm.weight", (hidden,), T.F32)]
        for part, rows, cols, qtype in [("attn_q", heads * dim, hidden, kind), ("attn_k", kv * dim, hidden, T.F16),
                                        ("attn_v", kv * dim, hidden, T.BF16), ("attn_output", hidden, heads * dim, T.Q8_0)]:
            tensors += [(b + part + ".weight", (rows, cols), qtype)] + ([(b + part + ".bias", (rows,), T.F32)] if extra else [])
        tensors += [(b + "ffn_norm.weight", (hidden,), T.F32)]
        for part, rows, cols, qtype in [("ffn_gate", ff, hidden, kind), ("ffn_up", ff, hidden, T.F32), ("ffn_down", hidden, ff, kind)]:
            tensors += [(b + part + ".weight", (rows, cols), qtype)] + ([(b + part + ".bias", (rows,), T.F16)] if extra else [])
    tensors += [("output_norm.weight", (hidden,), T.F32)]
    if extra:
        tensors += [("output.weight", (vocab, hidden), T.F16), ("rope_freqs.weight", (dim // 4,), T.F32)]
    made = {}
    with open(f"{out}/{name}.f32", "wb") as f:
        for tensor, shape, qtype in tensors:
            values = rng.standard_normal(shape).astype(np.float32)
            if tensor == "rope_freqs.weight":
                values = np.array([1.0, 1.5, 2.0, 8.0], dtype=np.float32)
            raw = quantize(values, qtype)
            made[tensor] = (raw, qtype)
            f.write(truth(raw.view(np.uint8), qtype).astype("<f4", copy=False).tobytes())
    # In another order than the model's list, as converters do.
    for tensor in sorted(made, key=lambda t: t[::-1]):
        raw, qtype = made[tensor]
        w.add_tensor(tensor, raw, raw_dtype=None if qtype in (T.F32, T.F16) else qtype)
    if not extra:
        w.add_custom_alignment(64)
    write(w)


def meta(out):
    w = GGUFWriter(f"{out}/meta.gguf", "none")
    for name, value, kind in [("u8", 200, V.UINT8), ("i8", -100, V.INT8), ("u16", 60000, V.UINT16), ("i16", -30000, V.INT16),
                              ("u32", 4000000000, V.UINT32), ("i32", -2000000000, V.INT32), ("u64", 2**64 - 1, V.UINT64),
                              ("i64", -2**63, V.INT64), ("f32", 0.1, V.FLOAT32), ("f64", 0.1, V.FLOAT64),
                              ("yes", True, V.BOOL), ("no", False, V.BOOL), ("text", "a\n\x1b[31m\u00e9 b", V.STRING)]:
        w.add_key_value("t." + name, value, kind)
    w.add_array("t.words", ["", "one", "zwei\u00e9", "x" * 300])
    w.add_array("t.numbers", [3, -1, 2147483647])
    w.add_array("t.reals", [0.5, -2.0])
    w.add_array("t.flags", [True, False, True])
    write(w)


def digests(out, path):
    xxh = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    xxh.restype, xxh.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    with open(f"{out}/smollm2.digests", "w") as f:
        for t in GGUFReader(path).tensors:
            values = dequantize(t.data, t.tensor_type)
            raw = np.ascontiguousarray(values, dtype="<f4").tobytes()
            rows = values.shape[0] if values.ndim == 2 else 1
            f.write(f"{t.name} {t.tensor_type.name.lower()} {rows} {values.shape[-1]} {xxh(raw, len(raw)):016x}\n")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    types(sys.argv[1])
    model(sys.argv[1], "tiny", False)
    model(sys.argv[1], "full", True)
    meta(sys.argv[1])
    if len(sys.argv) == 3:
        digests(sys.argv[1], sys.argv[2])
