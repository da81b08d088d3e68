"""add_rows.py: y = a + b as a Triton kernel, compiled for a GPU without one, with the description that driftscope wants beside it.

    python3 add_rows.py 90        # add_rows.cubin and add_rows.json, for architecture 90

Then, on a machine with such a GPU:

    driftscope check add/triton --device cuda --plugin add_rows.cubin --shape width=576
    driftscope run --device cuda --kernels pinned,pinned+add=triton --plugin add_rows.cubin
"""
import json
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

BLOCK = 256


@triton.jit
def add_rows(a, b, y, lda, ldb, ldy, width, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    x = tl.load(a + row * lda + at, mask=inside) + tl.load(b + row * ldb + at, mask=inside)
    tl.store(y + row * ldy + at, x, mask=inside)


# Types as the kernel is given them. Nothing is said of alignment or divisibility by 16 (attrs): driftscope's rows begin anywhere.
types = {"a": "*fp32", "b": "*fp32", "y": "*fp32", "lda": "i64", "ldb": "i64", "ldy": "i64", "width": "i32", "BLOCK": "constexpr"}
source = ASTSource(fn=add_rows, signature=types, constexprs={"BLOCK": BLOCK})
# Without enable_fp_fusion=False a * b + c becomes one fused operation where the compiler likes.
compiled = triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32), options={"num_warps": 4, "enable_fp_fusion": False})
made = compiled.metadata

# What Triton appends to a kernel's parameters without saying so: a pointer to scratch memory, and one to a profiler's. Both may be
# null where their size is 0; a kernel that needs such memory cannot be launched by a description.
hidden = [name for name in ("global_scratch_size", "profile_scratch_size") if hasattr(made, name)]
assert all(getattr(made, name) == 0 for name in hidden), "it needs scratch memory"
assert made.num_ctas == 1, "a cluster launch cannot be described"
arguments = ["a", "b", "y", "lda", "ldb", "ldy", {"of": "width", "as": "i32"}]
description = {
    "schema": "driftscope.module/1",
    "op": "add",
    "variant": "triton",
    "summary": "Triton, a program for 256 channels of a row",
    "claims": ["repeat", "batch", "slot", "threads", "chunk"],
    "entry": made.name,
    "grid": [{"of": "width", "per": BLOCK}, {"of": "rows"}, 1],
    "block": [made.num_warps * 32, 1, 1],
    "shared": made.shared,
    "arguments": arguments + [{"value": 0, "as": "i64"} for _ in hidden],
}
open("add_rows.cubin", "wb").write(compiled.asm["cubin"])
json.dump(description, open("add_rows.json", "w"), indent=1)
