# test_check.sh: driftscope check: text, JSON, exit codes, mistakes. False kernels are judged in tests/unit/kernels/test_check.c.
. tests/cli/lib.sh

# Small enough to be quick; the thread counts are given, so that the text is the same on every machine.
small() { ds check "$@" --shape width=48 --threads 1,2; }

test_a_variant_that_is_what_it_claims() {
    small add/reference
    expect 0
    has "$dir/out" "add/reference  claims repeat batch slot threads chunk; at width=48"
    grep -Eq '^  batch         holds over [0-9]+ comparisons$' "$dir/out"
    grep -Eq '^  memory        holds over [0-9]+ comparisons$' "$dir/out"
    hasnt "$dir/out" chunk\ \ 
    grep -Eq '^  accuracy      at most 0\.[0-9]+ ULP off' "$dir/out"
    [ "$(tail -n 1 "$dir/out" | sed 's/[0-9][0-9]* comp/N comp/')" = \
        "check: 1 variant, what it claims holds over N comparisons" ]
    hasnt "$dir/out" invariant
    has "$dir/err" "checked in"
    small add/reference -q
    empty "$dir/err"
}

test_several_variants_get_a_matrix() {
    small add rmsnorm/rows
    expect 0
    has "$dir/out" "kernel                   repeat batch slot neighbours threads chunk alignment sizes memory special formats"
    has "$dir/out" "add/pinned               holds  holds holds holds      holds   -     holds     holds holds  holds"
    has "$dir/out" "rmsnorm/rows             holds"
}

test_json() {
    need python3
    small rmsnorm --json -o "$dir/json"
    expect 0
    empty "$dir/out"
    python3 - "$dir/json" <<'END_OF_PYTHON'
import json, sys
data = json.load(open(sys.argv[1]))
assert data["schema"] == "driftscope.check/1" and data["result"] == "holds", data["result"]
names = {v["variant"] for v in data["variants"]}
assert {"rows", "pinned", "reference"} <= names, names
for v in data["variants"]:
    assert v["op"] == "rmsnorm" and v["ran"] and v["failure"] is None
    properties = {p["property"]: p for p in v["properties"]}
    assert len(properties) == 11, properties
    assert properties["chunk"]["holds"] is None and properties["chunk"]["state"] == "not-applicable"
    batch = properties["batch"]
    assert batch["compared"] > 1000 and batch["not_tried"] == 0
    if v["variant"] == "pinned":
        assert batch["holds"] is True and batch["claimed"] and batch["smallest_break"] is None
        assert batch["classes"] == []
    shape = v["shapes"][0]
    assert shape["shape"] == "width=48" and shape["launches"] > 100
    assert 0 < shape["accuracy"]["rms_ulp"] <= shape["accuracy"]["max_ulp"] < 100
END_OF_PYTHON
}

# OpenBLAS chooses by rows and threads on every core known; whatever it does here is no failure, since it promises repeats only.
test_what_is_not_claimed_is_no_failure() {
    ds check matmul/openblas --shape n=192,k=576 --threads 1,2
    case $(tail -n 1 "$dir/out") in
    *"nothing could be run"*) skip "no OpenBLAS here" ;;
    esac
    expect 0
    has "$dir/out" "matmul/openblas  claims repeat; at n=192,k=576"
    has "$dir/out" "of the reorder bound"
    hasnt "$dir/out" "but it is claimed"
}

# Another order from 4 rows on, of which describe says nothing; sums that are rounded anew in bf16 arrays; one that is what it says.
test_describe_and_formats() {
    need gcc
    cat >"$dir/three.c" <<'END'
#include "driftscope_kernel.h"
#include <string.h>
static int shy(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_matmul_args *a = args;
    (void)exec, (void)why, (void)size;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->n; c++) {
            float sum = a->bias ? a->bias[c] : 0;
            for (int64_t k = 0; k < a->k; k++) {
                int64_t at = a->rows < 4 ? k : a->k - 1 - k;
                sum += a->x[r * a->ldx + at] * a->w.data[c * a->k + at];
            }
            a->y[r * a->ldy + c] = sum;
        }
    return 0;
}
static int shy_describe(const void *args, const struct ds_exec *exec, struct ds_launch_info *out)
{
    (void)args, (void)exec;
    memset(out, 0, sizeof *out);
    out->tile_k = 48;
    return 0;
}
static int coarse(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_add_args *a = args;
    (void)exec, (void)why, (void)size;
    if (a->stored == DS_ELEMENT_F16) {
        strcpy(why, "no f16");
        return -1;
    }
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float x[2];
            uint32_t bits[2];
            if (a->stored == DS_ELEMENT_F32) {
                a->y[r * a->ldy + i] = a->a[r * a->lda + i] + a->b[r * a->ldb + i];
                continue;
            }
            bits[0] = (uint32_t)((const uint16_t *)a->a)[r * a->lda + i] << 16;
            bits[1] = (uint32_t)((const uint16_t *)a->b)[r * a->ldb + i] << 16;
            memcpy(x, bits, sizeof x);
            x[0] += x[1];
            memcpy(bits, x, sizeof x);
            ((uint16_t *)a->y)[r * a->ldy + i] = (uint16_t)(bits[0] >> 16); /* cut, not rounded */
        }
    return 0;
}
static const struct ds_kernel shy_kernel = {.abi = DS_KERNEL_ABI, .op = DS_OP_MATMUL, .name = "shy", .launch = shy, .describe = shy_describe};
static const struct ds_kernel coarse_kernel = {.abi = DS_KERNEL_ABI, .op = DS_OP_ADD, .name = "coarse", .launch = coarse, .features = DS_FEATURE_STORED};
static const struct ds_kernel *const all[] = {&shy_kernel, &coarse_kernel, NULL};
const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi)
{
    return abi == DS_KERNEL_ABI ? all : NULL;
}
END
    gcc -std=c11 -O1 -ffp-contract=off -fPIC -shared -Ikernels -o "$dir/three.so" "$dir/three.c"
    ds check matmul/shy --plugin "$dir/three.so" --shape n=8,k=48 --threads 1
    expect 0 # it claims nothing
    has "$dir/out" "  batch         broken: row 0 alone against row 0 of 4 rows"
    has "$dir/out" "                describe says the same launch choice for both: tile k 48"
    ds check add/coarse --plugin "$dir/three.so" --shape width=48 --threads 1
    expect 1
    has "$dir/out" ", but a kernel that takes the format promises equal bits"
    has "$dir/out" "refuses"
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "check: add/coarse promises the same bits in every format that it takes, broken: row "
    has "$dir/last" "of bf16 in f32 arrays against in its own"
    ds check matmul/shy --plugin "$dir/three.so" --shape n=8,k=48 --threads 1 --json
    tr -d ' \n' <"$dir/out" >"$dir/json"
    has "$dir/json" '"launches":["tilek48","tilek48"],"same_launch":true'
    ds check rmsnorm/split --shape width=48 --threads 1,4
    expect 0
    has "$dir/out" "describe says: tile rows 1, "
}

# NaN becomes 0: no claim covers it, so it is no failure, and the last line says it all the same.
test_what_no_claim_covers_is_in_the_last_line() {
    need gcc
    cat >"$dir/quiet.c" <<'END'
#include "driftscope_kernel.h"
static int quiet(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_add_args *a = args;
    (void)exec, (void)why, (void)size;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++) {
            float sum = a->a[r * a->lda + i] + a->b[r * a->ldb + i];
            a->y[r * a->ldy + i] = sum == sum ? sum : 0;
        }
    return 0;
}
static const struct ds_kernel kernel = {.abi = DS_KERNEL_ABI, .op = DS_OP_ADD, .name = "quiet", .claims = DS_CLAIM_ALL, .launch = quiet};
const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi)
{
    static const struct ds_kernel *const all[] = {&kernel, NULL};
    return abi == DS_KERNEL_ABI ? all : NULL;
}
END
    gcc -std=c11 -O1 -ffp-contract=off -fPIC -shared -Ikernels -o "$dir/quiet.so" "$dir/quiet.c"
    small add/quiet --plugin "$dir/quiet.so"
    expect 0
    grep -q '^  special       broken: ' "$dir/out"
    tail -n 1 "$dir/out" | grep -Eq ' over [0-9]+ comparisons; under no claim, but broken: special$'
    small add/quiet add/reference --plugin "$dir/quiet.so"
    expect 0
    tail -n 1 "$dir/out" | grep -Eq ' over [0-9]+ comparisons; under no claim, but broken: special of 1$'
}

test_mistakes() {
    while read -r arguments; do
        # shellcheck disable=SC2086
        ds check $arguments
        expect 2
        empty "$dir/out"
        cat "$dir/err" >>"$dir/all"
    done <<'END_OF_LIST'
matmull
matmul/pined
add --shape n=5
add --threads 0
add --repeat 3
END_OF_LIST
    has "$dir/all" "unknown op 'matmull'"
    has "$dir/all" "did you mean 'matmul'?"
    has "$dir/all" "unknown variant of matmul 'pined'"
    has "$dir/all" "did you mean 'pinned'?"
    has "$dir/all" "add has no size 'n'"
    has "$dir/all" "--threads"
}

run_tests
