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
