#!/usr/bin/env python3
"""Whole passes of driftscope against llama.cpp: same machine, same model, runs in turn (developers only).

Needs the PyPI packages numpy, gguf and llama-cpp-python, and `make build/tests/tools/bench_pass`. llama.cpp gets every
tensor as f32 (--theirs f32) or the file as it is (--theirs file); --weights is driftscope's own. llama.cpp runs with its defaults (flash attention, f16 KV cache); decoding
puts all sequences into one call, each in a KV stream of its own. Prints tokens per second and the ratio ours / llama.cpp: of the
fastest runs, and the median over pairs of neighbouring runs. On a shared machine only the ratios mean something.

usage: bench_llama.py [--set pinned] [--threads 1,2] [--shapes prefill:128,decode:8,...] [--seconds 6] [--f32 FILE]
                      [--weights f32|file] [--theirs f32|file] MODEL.gguf
"""
import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time

STEPS = 8  # as in bench_pass.c
SHAPES = "prefill:128,prefill:512,decode:1,decode:8,decode:32"


def write_f32(src, dst):
    """Copies metadata and tensors of `src`, tensors as f32."""
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
    from gguf.quants import dequantize

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


class Llama:
    """llama.cpp through its C interface: a pass is one call with many rows, as in driftscope."""

    def __init__(self, path):
        import llama_cpp

        self.c = llama_cpp
        self.log = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp cannot load {path}")
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def open(self, kind, n, threads):
        params = self.c.llama_context_default_params()
        params.n_seq_max = n if kind == "decode" else 1
        params.n_ctx = 64 * n if kind == "decode" else n
        params.n_batch = params.n_ubatch = max(n, 32)
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = 1
        params.no_perf = True
        self.ctx = self.c.llama_init_from_model(self.model, params)
        self.batch = self.c.llama_batch_init(n, 0, 1)

    def close(self):
        self.c.llama_batch_free(self.batch)
        self.c.llama_free(self.ctx)

    def call(self, kind, n, position):
        b = self.batch
        b.n_tokens = n
        for i in range(n):
            b.token[i] = i * 2654435761 % 2**32 % self.vocab
            b.pos[i] = position if kind == "decode" else i
            b.n_seq_id[i] = 1
            b.seq_id[i][0] = i if kind == "decode" else 0
            b.logits[i] = kind == "decode" or i == n - 1
        if self.c.llama_decode(self.ctx, b) != 0:
            sys.exit("llama_decode failed")
        self.c.llama_get_logits(self.ctx)  # waits for the result

    def run(self, kind, n):
        self.c.llama_memory_clear(self.c.llama_get_memory(self.ctx), True)
        if kind == "decode":
            self.call(kind, n, 0)
        start = time.perf_counter()
        for step in range(STEPS if kind == "decode" else 1):
            self.call(kind, n, step + 1)
        return time.perf_counter() - start


class Ours:
    def __init__(self, program, model, weights):
        self.p = subprocess.Popen([program, model, weights], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, kind, n, threads, kernels):
        print(kind, n, threads, kernels, file=self.p.stdin, flush=True)
        answer = self.p.stdout.readline().split()
        if len(answer) != 2:
            sys.exit("bench_pass: " + " ".join(answer))
        return float(answer[0])


def measure(llama, ours, kind, n, threads, kernels, seconds):
    """Runs both in turn, at least five times each; returns a list of pairs of seconds."""
    llama.open(kind, n, threads)
    llama.run(kind, n)
    ours.run(kind, n, threads, kernels)
    pairs, start = [], time.perf_counter()
    while len(pairs) < 5 or time.perf_counter() - start < seconds:
        a = llama.run(kind, n)
        time.sleep(0.02)  # its threads spin for a while after a call
        pairs.append((a, ours.run(kind, n, threads, kernels)))
    llama.close()
    return pairs


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("model")
    p.add_argument("--set", default="pinned")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--shapes", default=SHAPES)
    p.add_argument("--seconds", type=float, default=6)
    p.add_argument("--f32", default=os.path.join(tempfile.gettempdir(), "bench-f32.gguf"), help="made if it is not there")
    p.add_argument("--weights", default="f32", choices=["f32", "file"], help="how driftscope keeps its weights")
    p.add_argument("--theirs", default="f32", choices=["f32", "file"], help="what llama.cpp is given")
    p.add_argument("--program", default="build/tests/tools/bench_pass")
    o = p.parse_args()
    if o.theirs == "f32" and not os.path.exists(o.f32):
        write_f32(o.model, o.f32)
    llama, ours = Llama(o.f32 if o.theirs == "f32" else o.model), Ours(o.program, o.model, o.weights)
    print(f"{o.set}, weights {o.weights}, against llama.cpp, {o.theirs}   tok/s     llama.cpp   ratio of fastest   of pairs (quartiles)   runs")
    for threads in map(int, o.threads.split(",")):
        for shape in o.shapes.split(","):
            kind, n = shape.split(":")[0], int(shape.split(":")[1])
            pairs = measure(llama, ours, kind, n, threads, o.set, o.seconds)
            tokens = n * (STEPS if kind == "decode" else 1)
            theirs, mine = min(a for a, _ in pairs), min(b for _, b in pairs)
            q = statistics.quantiles([a / b for a, b in pairs], n=4)
            print(f"{kind:>8} {n:3}, {threads} thread{'s' if threads > 1 else ' '}   {tokens / mine:9.1f}   {tokens / theirs:9.1f}"
                  f"   {theirs / mine:16.2f}   {q[1]:8.2f} ({q[0]:.2f}..{q[2]:.2f})   {len(pairs):6}", flush=True)


if __name__ == "__main__":
    main()
