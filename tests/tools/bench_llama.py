#!/usr/bin/env python3
"""How fast llama.cpp runs the same model in f32 on this machine: a baseline for `driftscope bench` (developers only).

Needs the PyPI packages numpy, gguf and llama-cpp-python. Every tensor is dequantised to f32 first, since driftscope computes on f32
weights. Prints tokens per second for a prompt of 128 tokens and for decoding, with one and two threads; medians of several runs.

usage: bench_llama.py MODEL.gguf [F32.gguf]     (the second is made if it is not there)
"""
import os
import statistics
import sys
import tempfile
import time

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, GGUFValueType
from gguf.quants import dequantize


def write_f32(src, dst):
    """Copies metadata and tensors of `src`, tensors as f32."""
    reader = GGUFReader(src)
    arch = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(dst, arch)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        if kind == GGUFValueType.ARRAY:
            writer.add_key_value(name, field.contents(), kind, field.types[-1])
        else:
            value = 0 if name == "general.file_type" else field.contents()
            writer.add_key_value(name, value, kind)
    for t in reader.tensors:
        data = np.asarray(dequantize(t.data, t.tensor_type), np.float32)
        writer.add_tensor(t.name, data, raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def measure(path, threads, rounds=7):
    from llama_cpp import Llama

    llm = Llama(path, n_ctx=512, n_batch=512, n_ubatch=512, n_threads=threads, n_threads_batch=threads, verbose=False,
                type_k=0, type_v=0, flash_attn=True)
    ids = [(i * 2654435761 % 2**32) % llm.n_vocab() for i in range(128)]
    prefill, decode = [], []
    for _ in range(rounds):
        llm.reset()
        t = time.perf_counter()
        llm.eval(ids)
        prefill.append(128 / (time.perf_counter() - t))
        llm.reset()
        llm.eval(ids[:1])
        t = time.perf_counter()
        for i in range(16):
            llm.eval([ids[i]])
        decode.append(16 / (time.perf_counter() - t))
    return statistics.median(prefill), statistics.median(decode)


def main():
    src = sys.argv[1]
    dst = sys.argv[2] if len(sys.argv) > 2 else os.path.join(tempfile.gettempdir(), "bench-f32.gguf")
    if not os.path.exists(dst):
        write_f32(src, dst)
    for threads in (1, 2):
        prefill, decode = measure(dst, threads)
        print(f"llama.cpp f32, {threads} thread(s): prefill 128 {prefill:.1f} tok/s, decode {decode:.1f} tok/s")


if __name__ == "__main__":
    main()
