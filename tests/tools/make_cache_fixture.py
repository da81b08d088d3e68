#!/usr/bin/env python3
"""Writes tests/unit/kernels/cache_fixture.h: rows and what GGUF's Q8_0 and Q4_0 keep of them, by the
quantisers of the Python package gguf (needs gguf and numpy; not run by the tests)."""
import sys

import gguf
import numpy as np
from gguf.quants import dequantize, quantize


def words(a):
    u = np.ascontiguousarray(a, dtype=np.float32).view(np.uint32).ravel()
    return ",\n".join("    " + ", ".join(f"0x{v:08x}" for v in u[i:i + 8]) for i in range(0, u.size, 8))


def rows():
    rng = np.random.default_rng(20240217)
    x = rng.standard_normal((4, 64)).astype(np.float32)
    x[1] *= np.float32(1e-3)
    x[1, 5] = np.float32(50)  # an outlier in its block
    x[2, :32] = 0
    x[2, 32:] = np.float32(-3.25)
    x[3] *= np.exp2(np.arange(64, dtype=np.float32) / 2 - 20)
    x[3, 3] = np.float32(-0.0)
    return x


def main():
    x = rows()
    out = ["/* cache_fixture.h: made by tests/tools/make_cache_fixture.py; bits of f32. */",
           "#ifndef DS_TEST_CACHE_FIXTURE_H", "#define DS_TEST_CACHE_FIXTURE_H", "",
           "#include <stdint.h>", "",
           "enum { FIXTURE_ROWS = %d, FIXTURE_WIDTH = %d };" % x.shape, "",
           "static const uint32_t fixture_x[] = {", words(x) + "};"]
    for name, kind in (("q8", gguf.GGMLQuantizationType.Q8_0), ("q4", gguf.GGMLQuantizationType.Q4_0)):
        out += ["", f"static const uint32_t fixture_{name}[] = {{", words(dequantize(quantize(x, kind), kind)) + "};"]
    out += ["", "#endif", ""]
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write("\n".join(out))


main()
