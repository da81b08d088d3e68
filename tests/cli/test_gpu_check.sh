# test_gpu_check.sh: the script for machines with a GPU, tried on sim; without a GPU it says so.
. tests/cli/lib.sh

check() { run "$root/tests/gpu/gpu-check" --program "$driftscope" --out "$dir/out.d" "$@"; }

test_all_steps_on_sim() {
    need python3
    check --device sim
    expect 0
    has "$dir/out" "gpu-check: passed on sim: 0 failed, 0 not run"
    has "$dir/out" "pinned-ops         passed"
    has "$dir/out" "pinned-model       skipped      0  no --model"
    has "$dir/err" "gpu-check: simulated on the CPU, results in"
    python3 - "$dir/out.d/gpu-check.json" <<'PY'
import json, sys
j = json.load(open(sys.argv[1]))
assert j["schema"] == "driftscope.gpu-check/1" and j["result"] == "passed" and j["small"] is True
assert j["bench"]["device"]["device"] == "sim"
steps = {s["name"]: s for s in j["steps"]}
assert steps["pinned-ops"]["says"].startswith("same: no difference over"), steps["pinned-ops"]
choices = steps["vendor-choices"]["output"]["rows"]
assert {r["rows"] for r in choices if r["variant"] == "split-k"} == set(range(1, 9))
assert all(r["launch"]["split"] >= 1 for r in choices if r["variant"] == "split-k")
assert {(r["l2"]) for r in steps["bench-matmul"]["output"]["rows"]} == {"warm", "flushed"}
PY
    # What is there is kept: the second time only the step that is missing runs.
    cp "$dir/out.d/repeats.step" "$dir/was"
    rm "$dir/out.d/pinned-ranks.step"
    check --device sim
    expect 0
    has "$dir/err" "gpu-check: pinned-ranks"
    hasnt "$dir/err" "gpu-check: repeats"
    same_files "$dir/was" "$dir/out.d/repeats.step"
    # Out of time: what was not run is told, and nothing is claimed of it.
    rm "$dir/out.d/pinned-ranks.step"
    check --device sim --minutes 0
    expect 2
    has "$dir/out" "pinned-ranks       not run"
    has "$dir/out" "gpu-check: incomplete on sim: 0 failed, 1 not run"
}

# A step that fails is a failure whatever the others are.
test_a_failed_step() {
    mkdir "$dir/out.d"
    for name in pinned-ops pinned-experts pinned-ranks pinned-graph digests-run digests claims-matmul claims-rmsnorm claims-graph vendor-classes \
        vendor-choices vendor-order tensor-core-order repeats bench-matmul bench-digest bench-graph; do
        printf '%s\037passed\0370\0371\037it was \\"so\\"\037driftscope run\n' $name >"$dir/out.d/$name.step"
    done
    sed -i 's/passed/failed/' "$dir/out.d/pinned-ranks.step"
    check --device sim
    expect 1
    has "$dir/out" "gpu-check: failed on sim: 1 failed, 0 not run"
    need python3
    python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); assert j["failed"] == 1 and j["steps"][0]["says"] == "it was \"so\""' \
        "$dir/out.d/gpu-check.json"
}

test_without_a_gpu() {
    check --library "$dir/no.so"
    expect 2
    empty "$dir/out"
    has "$dir/err" "gpu-check: --device: device cuda: $dir/no.so: "
    [ "$(grep -c . "$dir/err")" -eq 1 ]
    check --device
    expect 2
    has "$dir/err" "gpu-check: --device needs a value"
    check --model "$dir/no.gguf"
    expect 2
    run "$root/tests/gpu/gpu-check" --help
    expect 0
}

run_tests
