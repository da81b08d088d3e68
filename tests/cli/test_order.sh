# test_order.sh: driftscope order: what it prints, its JSON and graphviz text, its exit codes, what it refuses.
. tests/cli/lib.sh

test_pinned_in_words() {
    ds order matmul/pinned --shape n=24,k=576 --rows 1-3,9
    expect 0
    has "$dir/out" "matmul/pinned  n=24,k=576, 1 thread"
    has "$dir/out" "3 blocks of 256 (last 64) k, each one chain in ascending order, FMA, block sums added in ascending order"
    has "$dir/out" "row 0        1-3,9   (row counts"
    has "$dir/out" "replay       100 % of "
    [ "$(tail -n 1 "$dir/out")" = "order: matmul/pinned: 1 tree; replaying them gives 100 % of the outputs bit for bit" ]
    empty "$dir/err"
}

test_every_op() {
    ds order rmsnorm --shape width=40
    expect 0
    has "$dir/out" "16 interleaved lanes, FMA, pairwise, halves apart"
    has "$dir/out" "4 interleaved lanes, mul+add, pairwise"
    ds order attention/pinned --shape heads=2,kv_heads=1,head_dim=16 --kv 300
    expect 0
    has "$dir/out" "2 chains of 256 and 44 slots in ascending order, then 1 add"
    has "$dir/out" "denominator  sum of 300 slots"
    has "$dir/out" "outputs      on random scores, the pinned exp, values FMA, one maximum"
    hasnt "$dir/out" "not replayed"
    has "$dir/out" "16 interleaved lanes"
}

# Tiles of 32 slots for one new token, of 64 for more than two.
test_prefill() {
    ds order attention/tile-by-qlen --shape heads=2,kv_heads=1,head_dim=16 --kv 192
    expect 0
    has "$dir/out" "denominator  sum of 192 slots"
    has "$dir/out" "6 blocks of 32 slots, each 8 interleaved lanes"
    ds order attention/tile-by-qlen --shape heads=2,kv_heads=1,head_dim=16 --kv 192 --qlen 3 --rows 1,2
    expect 0
    has "$dir/out" "192 KV slots, 3 new tokens each"
    has "$dir/out" "3 blocks of 64 slots, each 8 interleaved lanes"
    has "$dir/out" "scores       sum of 16 channels"
    ds order attention/pinned --shape heads=2,kv_heads=1,head_dim=16 --kv 40 --qlen 40 --json
    expect 0
    has "$dir/out" '"kv":40,"qlen":40'
}

test_softmax_combine_allreduce() {
    ds order softmax --shape width=64 --rows 1,3
    expect 0
    has "$dir/out" "denominator  sum of 64 terms (replayed with the exp that its outputs show)"
    has "$dir/out" "16 interleaved lanes, pairwise, halves apart"
    has "$dir/out" "one chain of 64 terms in ascending order"
    [ "$(tail -n 1 "$dir/out")" = "order: softmax: 2 trees; replaying them gives 100 % of the outputs bit for bit" ]
    ds order combine --shape width=20,top_k=4 --rows 2
    expect 0
    has "$dir/out" "one chain of 4 experts in ascending order, FMA"
    has "$dir/out" "one chain of 4 experts in ascending order, mul+add"
    ds order allreduce/pinned --shape width=20,ranks=8 --json
    expect 0
    has "$dir/out" '"sum":"ranks","note":"","terms":8,"fixed":true'
    has "$dir/out" '"reproduced":1.0'
}

# The tests' own library adds in descending k, product and sum rounded.
test_blas_of_ones_own() {
    need gcc
    gcc -std=c11 -D_GNU_SOURCE -O1 -ffp-contract=off -fPIC -shared -o "$dir/mine.so" tests/plugins/cblas.c
    ds order matmul/cblas --blas "$dir/mine.so" --shape n=20,k=60 --rows 1,4
    expect 0
    has "$dir/out" "one chain of 60 k in descending order, mul+add"
    has "$dir/out" "100 % of"
    ds order matmul/cblas --shape n=20,k=60
    expect 2
    has "$dir/err" "no library was given (--blas FILE.so)"
}

# A library's order is not known here: only that it is found and reproduced.
test_openblas() {
    ds order matmul/openblas --shape n=40,k=96 --rows 1,4,13
    [ "$code" -ne 2 ] || skip "$(cat "$dir/err")"
    expect 0
    has "$dir/out" "100 % of the outputs bit for bit"
}

test_model_shapes() {
    ds order matmul/reference -m random:llama,layers=1,hidden=32,heads=4,kv_heads=2,ffn=48,vocab=64 -q
    expect 0
    has "$dir/out" "q_proj o_proj: n=32,k=32"
    has "$dir/out" "down: n=32,k=48"
}

test_json() {
    need python3
    ds order matmul/pinned --shape n=8,k=300 --rows 1,2 --json
    expect 0
    python3 -c '
import json, sys
d = json.load(sys.stdin)
assert d["schema"] == "driftscope.order/1" and d["result"] == "reproduced" and d["reproduced"] == 1.0
k = d["kernels"][0]
assert k["op"] == "matmul" and k["variant"] == "pinned" and k["shape"] == "n=8,k=300" and k["fixed"] is True
t = k["trees"][0]
assert len(t["digest"]) == 16 and t["terms"] == 300 and t["depth"] == 256 and t["join"] == "fma"
assert len(t["postorder"]) == 599 and sorted(x for x in t["postorder"] if x >= 0) == list(range(300))
assert [s["rows"] for s in k["sums"]] == [1, 2]
for s in k["sums"]:
    assert s["fixed"] and s["agreeing"] == s["repeats"] and s["reproduced"] == 1.0
    assert s["classes"][0]["tree"] == t["digest"] and s["compared"] == s["reproduced_outputs"] > 0
' <"$dir/out"
}

test_dot() {
    ds order rmsnorm/reference --shape width=3 --dot "$dir/t.dot"
    expect 0
    has "$dir/t.dot" 'digraph "rmsnorm/reference width=3 A" {'
    [ "$(grep -c ' -> ' "$dir/t.dot")" -eq 4 ]
    ds order rmsnorm/reference --shape width=3 --dot "$dir/no/t.dot"
    expect 2
    has "$dir/err" "no/t.dot"
}

# A kernel whose parts arrive in another order every time, as a plugin.
test_no_fixed_order_is_the_answer() {
    need gcc
    cat >"$dir/arrival.c" <<'END'
#include "driftscope_kernel.h"
static int launch(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_matmul_args *a = args;
    (void)why, (void)size;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->n; c++) {
            float part[3] = {0}, sum = 0;
            for (int64_t k = 0; k < a->k; k++)
                part[k % 3] += a->x[r * a->ldx + k] * a->w.data[c * a->k + k];
            for (uint64_t i = 0; i < 3; i++)
                sum += part[(exec->seed + i) % 3];
            a->y[r * a->ldy + c] = sum;
        }
    return 0;
}
static const struct ds_kernel arrival = {
    .abi = DS_KERNEL_ABI, .op = DS_OP_MATMUL, .name = "arrival", .launch = launch};
static const struct ds_kernel *const all[] = {&arrival, NULL};
const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi)
{
    return abi == DS_KERNEL_ABI ? all : NULL;
}
END
    gcc -std=c11 -O1 -fPIC -shared -Ikernels -o "$dir/arrival.so" "$dir/arrival.c"
    ds order matmul/arrival --plugin "$dir/arrival.so" --shape n=16,k=60 --rows 2
    expect 1
    has "$dir/out" "no fixed order at 1 of 1 row count: 2 of 5 repeats agree"
    [ "$(tail -n 1 "$dir/out")" = "order: matmul/arrival: arrival has no fixed order; 0 trees; replaying them gives none of the outputs bit for bit" ]
    ds order matmul/arrival --plugin "$dir/arrival.so" --shape n=16,k=60 --json
    expect 1
    has "$dir/out" '"result":"not-fixed"'
    has "$dir/out" '"fixed":false'
}

# A compensated sum shows no order by questions; it is found, and replayed, all the same.
test_compensated_sum() {
    need gcc
    cat >"$dir/kahan.c" <<'END'
#include "driftscope_kernel.h"
#include <math.h>
static int launch(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_softmax_args *a = args;
    (void)exec, (void)why, (void)size;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx;
        float *y = a->y + r * a->ldy, max = x[0], sum = 0, lost = 0;
        for (int64_t i = 1; i < a->width; i++)
            max = x[i] > max ? x[i] : max;
        for (int64_t i = 0; i < a->width; i++) {
            const float term = expf(x[i] - max) - lost, next = sum + term;
            lost = (next - sum) - term;
            sum = next;
        }
        for (int64_t i = 0; i < a->width; i++)
            y[i] = expf(x[i] - max) / sum;
    }
    return 0;
}
static const struct ds_kernel kahan = {
    .abi = DS_KERNEL_ABI, .op = DS_OP_SOFTMAX, .name = "kahan", .launch = launch};
static const struct ds_kernel *const all[] = {&kahan, NULL};
const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi)
{
    return abi == DS_KERNEL_ABI ? all : NULL;
}
END
    gcc -std=c11 -O1 -ffp-contract=off -fPIC -shared -Ikernels -o "$dir/kahan.so" "$dir/kahan.c" -lm
    ds order softmax/kahan --plugin "$dir/kahan.so" --shape width=300 --rows 1,2
    expect 0
    has "$dir/out" "one chain of 300 terms in ascending order, compensated: what an addition loses is taken off the next term (Kahan)"
    ds order softmax/kahan --plugin "$dir/kahan.so" --shape width=40 --json
    expect 0
    has "$dir/out" '"compensation":"kahan"'
}

# Outputs that show no exp leave the denominator's tree without a proof: that is not "reproduced".
test_what_is_not_replayed_is_not_proven() {
    need gcc
    cat >"$dir/coarse.c" <<'END'
#include "driftscope_kernel.h"
#include <math.h>
static int launch(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_softmax_args *a = args;
    (void)exec, (void)why, (void)size;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx;
        float *y = a->y + r * a->ldy, max = x[0], sum = 0;
        for (int64_t i = 1; i < a->width; i++)
            max = x[i] > max ? x[i] : max;
        for (int64_t i = 0; i < a->width; i++)
            sum += expf(x[i] - max);
        for (int64_t i = 0; i < a->width; i++)
            y[i] = nearbyintf(expf(x[i] - max) / sum * 4096.0f) / 4096.0f;
    }
    return 0;
}
static const struct ds_kernel coarse = {
    .abi = DS_KERNEL_ABI, .op = DS_OP_SOFTMAX, .name = "coarse", .launch = launch};
static const struct ds_kernel *const all[] = {&coarse, NULL};
const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi)
{
    return abi == DS_KERNEL_ABI ? all : NULL;
}
END
    gcc -std=c11 -O1 -fPIC -shared -Ikernels -o "$dir/coarse.so" "$dir/coarse.c" -lm
    ds order softmax/coarse --plugin "$dir/coarse.so" --shape width=20
    expect 1
    ds order softmax/coarse --plugin "$dir/coarse.so" --shape width=20 --json
    expect 1
    has "$dir/out" '"result":"not-reproduced"'
}

test_refused() {
    while IFS='|' read -r arguments message; do
        eval "ds order $arguments"
        expect 2
        empty "$dir/out"
        has "$dir/err" "$message"
    done <<'END'
matmull|unknown op 'matmull'
add|add adds nothing up
matmul/none|matmul has no variant 'none'
matmul/pinned --rows 0|no list of row counts
matmul/pinned --rows 5-3|no list of row counts
matmul/pinned --rows 1,|no list of row counts
matmul/pinned --rows 1-9999|no list of row counts
matmul/pinned --rows ''|empty value
matmul/pinned --shape n=0|n must be
matmul/pinned --shape n=1,k=100000|too long
matmul/openblas --blas-core Hasswell|unknown openblas core
attention --kv 0|kv
attention --kv 4 --qlen 5|5 new tokens do not fit in 4 KV slots
attention --qlen 0|qlen
softmax --shape width=70000|too long
allreduce --shape ranks=70000|too long
combine --shape ranks=2|combine has no size 'ranks'
END
    ds order
    expect 2
}

run_tests
