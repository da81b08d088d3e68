#!/bin/sh
# test_bench.sh: `driftscope bench`: what is measured and how it is told; never how fast it is.
. tests/cli/lib.sh

need_json() { need python3; }

test_bench_of_one_op() {
    ds bench add --seconds 0 --shape width=64 --rows 1,4 --threads 1
    expect 0
    has "$dir/out" "add width=64, given, 1 thread"
    has "$dir/out" "add/pinned"
    has "$dir/out" "add/pinned: "
    empty "$dir/err"
}

test_bench_json_has_a_row_for_each_setting() {
    need_json
    ds bench matmul --seconds 0 --shape n=32,k=64 --shape n=16,k=32 --rows 1,3 --threads 1,2 --json
    expect 0
    python3 - "$dir/out" <<'PY'
import json, math, sys
top = json.load(open(sys.argv[1]))
assert top["schema"] == "driftscope.bench/1", top["schema"]
rows = top["rows"]
variants = {r["variant"] for r in rows}
assert {"pinned", "reference"} <= variants, variants
assert len(rows) == len(variants) * 2 * 2 * 2, len(rows)
assert {(r["shape"], r["rows"], r["threads"]) for r in rows} == {
    (s, m, t) for s in ("n=32,k=64", "n=16,k=32") for m in (1, 3) for t in (1, 2)}
for r in rows:
    assert r["op"] == "matmul" and r["rounds"] >= 5
    assert 0 < r["min"] <= r["median"] <= r["max"] and r["ratio_to_vendor"] > 0
    assert r["ratio_low"] <= r["ratio_to_vendor"] <= r["ratio_high"]
    assert r["noisy"] == (not r["noise"] < 0.1)
    if r["vendor"]:
        assert r["ratio_to_vendor"] == 1
    assert (r["prepare_s"] > 0) == (r["variant"] not in ("openblas", "reference", "cblas")) or r["prepare_s"] >= 0
PY
}

test_bench_of_a_variant_keeps_the_vendor_beside_it() {
    ds bench rmsnorm/pinned --seconds 0 --shape width=96 --rows 2 --threads 1
    expect 0
    has "$dir/out" "rmsnorm/rows"
    has "$dir/out" "rmsnorm/pinned"
    hasnt "$dir/out" "rmsnorm/reference"
}

# Who does nothing is fastest: no figure and no ratio of it is told. One is idle from the second call on.
test_results_are_looked_at() {
    need gcc
    need_json
    cat >"$dir/idle.c" <<'END'
#include "driftscope_kernel.h"
static int launch(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    (void)args, (void)exec, (void)why, (void)size;
    return 0;
}
static int twice(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_add_args *a = args;
    (void)exec, (void)why, (void)size;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++)
            a->y[r * a->ldy + i] = 2 * (a->a[r * a->lda + i] + a->b[r * a->ldb + i]);
    return 0;
}
static int once(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    static int calls;
    return calls++ ? 0 : twice(args, exec, why, size);
}
static const struct ds_kernel idle = {
    .abi = DS_KERNEL_ABI, .op = DS_OP_ADD, .name = "idle", .launch = launch};
static const struct ds_kernel doubled = {
    .abi = DS_KERNEL_ABI, .op = DS_OP_ADD, .name = "doubled", .launch = twice};
static const struct ds_kernel kept = {
    .abi = DS_KERNEL_ABI, .op = DS_OP_ADD, .name = "kept", .launch = once};
static const struct ds_kernel *const all[] = {&idle, &doubled, &kept, NULL};
const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi)
{
    return abi == DS_KERNEL_ABI ? all : NULL;
}
END
    gcc -std=c11 -O1 -fPIC -shared -Ikernels -o "$dir/idle.so" "$dir/idle.c"
    ds bench add --plugin "$dir/idle.so" --seconds 0 --shape width=64 --rows 3 --threads 1
    expect 0
    has "$dir/out" "wrong: leaves y unwritten at row 0, element 0"
    has "$dir/out" "wrong: gives other results than reference"
    has "$dir/out" "add/idle: not judged; its results are wrong in 1"
    has "$dir/out" "add/doubled: not judged; its results are wrong in 1"
    has "$dir/out" "add/kept: not judged; its results are wrong in 1"
    hasnt "$dir/out" "add/pinned: not judged; its results"
    ds bench add --plugin "$dir/idle.so" --seconds 0 --shape width=64 --rows 3 --threads 1 --json
    expect 0
    python3 - "$dir/out" <<'PY'
import json, sys
wrong = {r["variant"] for r in json.load(open(sys.argv[1]))["rows"] if r["wrong"]}
assert wrong == {"idle", "doubled", "kept"}, wrong
PY
}

test_bench_of_attention_has_prefill_and_decode() {
    ds bench attention/pinned --seconds 0 --shape heads=2,kv_heads=1,head_dim=16 --rows 2 --threads 1
    expect 0
    has "$dir/out" "given, prefill"
    has "$dir/out" "given, decode at KV 64"
    has "$dir/out" "given, decode at KV 4096"
}

test_bench_says_what_was_pinned() {
    need_json
    need taskset
    [ "$(nproc)" -ge 2 ] || skip "one CPU"
    first=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
    ds bench matmul/pinned --seconds 0 --shape n=32,k=64 --rows 2 --threads 2
    expect 0
    has "$dir/out" "pinned while timed: every thread of a team to a CPU of its own"
    has "$dir/out" "given, 2 threads on CPUs "
    ds bench matmul/pinned --seconds 0 --shape n=32,k=64 --rows 2 --threads 2 --json
    expect 0
    cp "$dir/out" "$dir/own"
    ds bench matmul/pinned --seconds 0 --shape n=32,k=64 --rows 2 --threads 2 --json --cpus any
    expect 0
    run taskset -c "$first" "$driftscope" bench matmul/pinned --seconds 0 --shape n=32,k=64 --rows 2 --threads 2
    expect 0
    has "$dir/out" "2 threads anywhere (2 threads, 1 CPU)"
    hasnt "$dir/out" "pinned while timed"
    ds bench matmul/pinned --seconds 0 --shape n=32,k=64 --rows 2 --threads 2 --json --cpus any
    python3 - "$dir/own" "$dir/out" <<'PY'
import json, sys
own, any_ = (json.load(open(f))["rows"] for f in sys.argv[1:])
for r in own:
    p = r["pinned"]
    assert len(set(p["cpus"])) == 2 and p["own"] >= 2 and p["others"] >= 0, r
assert all(r["pinned"] is None for r in any_)
PY
    ds bench matmul --cpus all
    expect 2
}

test_bench_of_passes() {
    ds bench pass -m random:llama,layers=1,hidden=32,heads=2,kv_heads=1,ffn=64,vocab=64 \
        --kernels vendor,pinned --threads 1 --seconds 0
    [ "$code" -eq 2 ] && grep -q OpenBLAS "$dir/err" && skip "no OpenBLAS here"
    expect 0
    has "$dir/out" "pass decode, batch 8"
    has "$dir/out" "pass/pinned"
    has "$dir/out" "tok/s"
}

# Timed by the device's events, with its cache warm and flushed, as launches and as graphs.
test_bench_on_a_device() {
    need_json
    ds bench add --device sim --seconds 0 --shape width=64 --rows 2 --l2 warm,flushed --graph off,on
    expect 0
    has "$dir/out" "device simulated on the CPU, 64 multiprocessors"
    has "$dir/out" "add width=64, given, on sim, L2 warm"
    has "$dir/out" "add width=64, given, on sim, L2 flushed, in a graph"
    ds bench matmul --device sim --seconds 0 --shape n=32,k=64 --rows 2 --l2 flushed --graph on,off --json
    expect 0
    python3 - "$dir/out" <<'PY'
import json, sys
j = json.load(open(sys.argv[1]))
assert j["device"]["device"] == "sim" and j["device"]["multiprocessors"] == 64, j["device"]
variants = {r["variant"] for r in j["rows"]}
assert {"split-k", "pinned", "pinned-tc"} <= variants, variants
for r in j["rows"]:
    assert r["l2"] == "flushed" and r["threads"] == 1 and r.get("clock", "device") == "device", r
assert {r["graph"] for r in j["rows"]} == {True, False}
PY
    ds bench pass --device sim -m random:llama,layers=1,hidden=16,heads=1,ffn=16,vocab=32,ctx=16 --kernels pinned --graph off,on --seconds 0
    expect 0
    has "$dir/out" "pass decode, batch 8"
    has "$dir/out" "on sim, in a graph"
    ds bench digest --device sim --seconds 0 --l2 warm,flushed
    expect 0
    has "$dir/out" "digest width=576, f32 rows in the device's memory, on sim, L2 flushed"
    has "$dir/out" "digest/xxh3"
    ds bench digest
    expect 2
    has "$dir/err" "bench digest: the CPU digests rows while they are in its cache"
    for option in "--l2 flushed" "--graph on"; do
        # shellcheck disable=SC2086
        ds bench add --seconds 0 --shape width=8 --rows 1 $option
        expect 2
        has "$dir/err" "is for a device: the CPU's caches and launches are as they are"
    done
}

test_bench_refuses_what_it_does_not_know() {
    ds bench matmull
    expect 2
    has "$dir/err" "did you mean 'matmul'?"
    ds bench matmul/pinnned
    expect 2
    has "$dir/err" "no variant 'pinnned'"
    ds bench add --seconds 0 --shape width=8 --rows 1 matmull
    expect 2
    has "$dir/err" "did you mean 'matmul'?"
    ds bench matmul --seconds 0 --shape m=4
    expect 2
    has "$dir/err" "no size 'm'"
    ds bench matmul --rows 0
    expect 2
    ds bench matmul --threads 0
    expect 2
    empty "$dir/out"
}

run_tests
