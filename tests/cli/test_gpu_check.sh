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
    if command -v xxhsum >/dev/null; then
        has "$dir/out" " kept rows have the digests that xxhsum gives their bytes"
        rm "$dir/out.d/digests-xxhsum.step"
        for row in "$dir"/out.d/rows/*; do break; done
        [ "$(xxhsum -H3 <"$row" | grep -oE '[0-9a-f]{16}' | head -n 1)" = "${row##*/}" ]
    else
        has "$dir/out" "digests-xxhsum     skipped      0  no xxhsum here"
    fi
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
goals = {g["name"]: g for g in j["goals"]}
assert len(goals) == 5 and all(g["state"] in ("met", "missed", "unknown") for g in goals.values()), goals
assert goals["share of all digests in a pass"]["state"] == "unknown" and goals["share of all digests in a pass"]["worst"] is None
tc = [r["ratio_to_vendor"] for s in ("bench-matmul", "bench-large") for r in steps[s]["output"]["rows"]
      if r["variant"] == "pinned-tc" and r["dtype"] == "bf16" and r["rows"] >= 8]
g = goals["pinned-tc, bf16, beside the vendor"]
assert g["of"] == len(tc) and g["met"] == sum(x >= 0.8 for x in tc) and abs(g["worst"] / min(tc) - 1) < 1e-3, (g, tc)
few = [r["ratio_to_vendor"] for r in steps["bench-matmul"]["output"]["rows"]
       if r["variant"] == "pinned" and r["dtype"] == "f32" and r["rows"] <= 16]
g = goals["pinned, f32, 1 to 16 rows, beside the vendor"]
assert g["of"] == len(few) and abs(g["worst"] / min(few) - 1) < 1e-3, (g, few)
rows = [r for r in steps["bench-digest"]["output"]["rows"] if r["variant"] == "xxh3"]
most = [r["ratio_to_vendor"] for r in rows if r["rows"] == max(r["rows"] for r in rows)]
g = goals["digests beside a copy, the largest array"]
assert g["of"] == len(most) and abs(g["worst"] / min(most) - 1) < 1e-3, (g, most)
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

all="pinned-ops pinned-experts pinned-ranks pinned-graph pinned-model digests-run digests digests-xxhsum bench-matmul bench-large \
    bench-digest bench-pass vendor-choices repeats vendor-classes vendor-order vendor-order-bf16 tensor-core-order vendor-pinned claims-matmul \
    claims-rmsnorm claims-graph claims-attention bench-graph"
# done_but STEPS: a folder of results in which all steps but these have passed.
done_but() {
    mkdir "$dir/out.d"
    for name in $all; do
        case " $1 " in *" $name "*) continue ;; esac
        printf '%s\037passed\0370\0371\037it was \\"so\\"\037driftscope run\n' "$name" >"$dir/out.d/$name.step"
    done
}

# A step that fails is a failure whatever the others are.
test_a_failed_step() {
    done_but none
    sed -i 's/passed/failed/' "$dir/out.d/pinned-ranks.step"
    check --device sim
    expect 1
    has "$dir/out" "gpu-check: failed on sim: 1 failed, 0 not run"
    need python3
    python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); assert j["failed"] == 1 and j["steps"][0]["says"] == "it was \"so\""' \
        "$dir/out.d/gpu-check.json"
}

# hanging: a driftscope whose step pinned-ranks never ends, and says which process it is.
hanging() {
    cat >"$dir/driftscope" <<END
#!/bin/sh
case "\$*" in *" --tp "*) echo \$\$ >$dir/hangs; exec sleep 100000 ;; esac
exec "$driftscope" "\$@"
END
    chmod +x "$dir/driftscope"
}
is_gone() { ! kill -0 "$1" 2>/dev/null; }

# Stopped in the middle of a step: at once, with all that it started; the same command then does that step.
test_stopped() {
    hanging
    for signal in INT TERM; do
        rm -rf "$dir/out.d" "$dir/hangs"
        done_but pinned-ranks
        # A background process of a script ignores INT unless somebody gives it back.
        env --default-signal=INT "$root/tests/gpu/gpu-check" --program "$dir/driftscope" --out "$dir/out.d" --device sim \
            >"$dir/out" 2>"$dir/err" </dev/null &
        pid=$!
        there "$dir/hangs"
        eventually test -s "$dir/hangs"
        kill -$signal "$pid"
        ended
        expect 130
        has "$dir/err" "gpu-check: stopped; the same command goes on with the step that was under way"
        eventually is_gone "$(cat "$dir/hangs")"
        [ ! -f "$dir/out.d/pinned-ranks.step" ]
    done
    # Killed, it leaves its step at work, which would share the device with those to come: it is ended first.
    rm -f "$dir/hangs" "$dir/out.d/pinned-experts.step"
    "$root/tests/gpu/gpu-check" --program "$dir/driftscope" --out "$dir/out.d" --device sim >"$dir/out" 2>"$dir/err" </dev/null &
    pid=$!
    there "$dir/hangs"
    eventually test -s "$dir/hangs"
    # Two at once would take each other's results for their own.
    (check --device sim
    expect 2
    has "$dir/err" "gpu-check: another gpu-check, process $pid, is at work in ")
    kill -KILL "$pid"
    ended
    # The JSON of what was done before is whole.
    ! command -v python3 >/dev/null || python3 - "$dir/out.d/gpu-check.json" <<'PY'
import json, sys
j = json.load(open(sys.argv[1]))
assert j["result"] == "incomplete" and j["failed"] == 0, j["result"]
last = j["steps"][-1]
assert last["name"] == "pinned-experts" and last["result"] == "passed", last
PY
    check --device sim
    expect 0
    has "$dir/err" ", which a gpu-check that was killed left at work"
    is_gone "$(cat "$dir/hangs")"
    has "$dir/err" "gpu-check: pinned-ranks"
    has "$dir/out" "gpu-check: passed on sim: 0 failed, 0 not run"
    [ "$(ls "$dir/out.d" | grep -c -e '\.part$' -e '^running$')" -eq 0 ]
}

# Killed or stopped at any of several points and begun again: in the end the JSON says what it says where nothing happened, but for times.
test_resumed_says_the_same() {
    need python3
    real="digests-run digests digests-xxhsum bench-graph"
    mkfifo "$dir/go"
    # Waits where "at" says, before or after its work, or as one that still writes its record; then says so.
    cat >"$dir/driftscope" <<END
#!/bin/sh
here() { echo \$\$ >$dir/here.part; mv $dir/here.part $dir/here; read -r _ <$dir/go; }
read -r when what <$dir/at
case "\$*" in *"\$what"*) ;; *) exec "$driftscope" "\$@" ;; esac
echo none none >$dir/at
[ \$when != before ] || here
for last; do :; done
[ \$when != within ] || exec python3 -c 'import fcntl, os, sys
f = open(sys.argv[1], "ab")
fcntl.lockf(f, fcntl.LOCK_EX)
os.mkdir(sys.argv[2])
open(sys.argv[3]).read()' "\$last" $dir/here $dir/go
"$driftscope" "\$@"
code=\$?
[ \$when != after ] || here
exit \$code
END
    chmod +x "$dir/driftscope"
    begin() {
        env --default-signal=INT "$root/tests/gpu/gpu-check" --program "$dir/driftscope" --out "$dir/out.d" --device sim \
            >"$dir/out" 2>"$dir/err" </dev/null &
        pid=$!
    }
    again() {
        echo none none >"$dir/at"
        begin
        ended
        expect 0
        cp "$dir/out.d/gpu-check.json" "$dir/$1.json"
        rm -rf "$dir/out.d" "$dir/here"
    }
    done_but "$real"
    again whole
    n=0
    while read -r signal when what; do
        n=$((n + 1))
        done_but "$real"
        echo "$when $what" >"$dir/at"
        begin
        there "$dir/here"
        kill -"$signal" "$pid"
        ended
        again "$n"
    done <<'END'
KILL before bench add
INT before bench add
KILL within --force
KILL after --force
INT within --force
KILL after --rows-to
INT before bench rmsnorm
KILL before bench rmsnorm
END
    python3 - "$dir" "$n" <<'PY'
import json, sys
def plain(name):
    j = json.load(open(sys.argv[1] + "/" + name + ".json"))
    def of(x): # what is measured is another figure each time
        if isinstance(x, dict):
            return {k: of(v) for k, v in x.items()}
        if isinstance(x, list):
            return [of(v) for v in x]
        return None if isinstance(x, float) else x
    def step(s):
        return {k: (sorted(of(v)) if k == "output" and v else v) for k, v in s.items() if k != "seconds"}
    return {"steps": [step(s) for s in j["steps"]], **{k: of(v) for k, v in j.items() if k not in ("steps", "bench", "goals")},
            "goals": [g["name"] for g in j["goals"]], "bench": sorted(j["bench"])}
whole = plain("whole")
assert whole["result"] == "passed" and len(whole["steps"]) == 24, whole
for i in range(1, int(sys.argv[2]) + 1):
    assert plain(str(i)) == whole, (i, [p for p in zip(plain(str(i))["steps"], whole["steps"]) if p[0] != p[1]])
PY
}

# What was not done is named, and done the next time.
test_out_of_time() {
    done_but pinned-ranks
    check --device sim --minutes 0
    expect 2
    has "$dir/out" "gpu-check: no time was left for pinned-ranks; the same command goes on there"
    check --device sim
    expect 0
    has "$dir/out" "0 not run"
}

# Results of one device, model or size are not taken for those of another.
test_other_settings() {
    done_but none
    check --device sim
    expect 0
    : >"$dir/m.gguf"
    check --device sim --model "$dir/m.gguf"
    expect 2
    has "$dir/err" "out.d has results of other settings (device sim, simulated on the CPU; --small; model none; driftscope "
    check --device sim
    expect 0
}

# A disk that is full: exit code 2, and no result that was not written.
test_a_full_disk() {
    [ -c /dev/full ] || skip "no /dev/full here"
    done_but none
    ln -s /dev/full "$dir/out.d/room.part"
    check --device sim
    expect 2
    has "$dir/err" "is the disk full?"
    [ ! -f "$dir/out.d/gpu-check.json" ]
    rm -f "$dir/out.d/room.part"
    check --device sim
    expect 0
    [ -f "$dir/out.d/gpu-check.json" ]
}

# The steps that a GPU has and sim has not, on the CUDA runtime and the cublasLt of tests/cuda.
test_all_steps_on_a_false_gpu() {
    library=$(dirname "$driftscope")/tests/cuda
    [ -f "$library/libdriftscope_cuda.so" ] || skip "no library of tests/cuda here"
    ldd "$driftscope" >"$dir/libraries"
    ! grep -q -e libasan -e libubsan "$dir/libraries" || skip "the library is for programs without sanitizers"
    LD_LIBRARY_PATH=$library
    export LD_LIBRARY_PATH
    # The longest ones were tried by hand: what is checked and timed there is sim again.
    done_but "pinned-ops pinned-experts pinned-ranks pinned-graph digests-run digests claims-graph vendor-choices vendor-order tensor-core-order repeats bench-large"
    check --device cuda --small --library "$library/libdriftscope_cuda.so"
    expect 0
    has "$dir/out" "gpu-check: passed on cuda: 0 failed, 0 not run"
    has "$dir/out" "order: matmul/cublaslt: 1 tree"
    has "$dir/err" "gpu-check: test GPU made of sim, results in"
    DS_TEST_CUDA=devices=0
    export DS_TEST_CUDA
    check --device cuda --small --library "$library/libdriftscope_cuda.so"
    expect 2
    has "$dir/err" "gpu-check: no GPU could be used: --device: device cuda:0: no CUDA-capable device is detected"
}

# cublasLt is looked for where Python packages have it; without it the rest runs.
test_where_cublaslt_is() {
    library=$(dirname "$driftscope")/tests/cuda
    [ -f "$library/libdriftscope_cuda.so" ] || skip "no library of tests/cuda here"
    ldd "$driftscope" >"$dir/libraries"
    ! grep -q -e libasan -e libubsan "$dir/libraries" || skip "the library is for programs without sanitizers"
    # A driftscope that finds it nowhere but there.
    there=$dir/env/lib/python3/site-packages/nvidia/cu13/lib
    cat >"$dir/driftscope" <<END
#!/bin/sh
case \$LD_LIBRARY_PATH in *$there*) exec "$driftscope" "\$@" ;; esac
"$driftscope" "\$@" >$dir/said || exit
sed 's/"cublasLt [0-9]*"/""/' $dir/said
END
    chmod +x "$dir/driftscope"
    done_but vendor-pinned
    run env LD_LIBRARY_PATH="$library" VIRTUAL_ENV="$dir/env" "$root/tests/gpu/gpu-check" --program "$dir/driftscope" --out "$dir/out.d" \
        --device cuda --small --library "$library/libdriftscope_cuda.so"
    expect 0
    has "$dir/err" "gpu-check: no cublasLt was found: what needs it is skipped"
    has "$dir/out" "vendor-pinned      skipped"
    mkdir -p "$there"
    cp "$library/libcublasLt.so.13" "$there"
    rm "$dir/out.d/vendor-pinned.step"
    run env LD_LIBRARY_PATH="$library" VIRTUAL_ENV="$dir/env" "$root/tests/gpu/gpu-check" --program "$dir/driftscope" --out "$dir/out.d" \
        --device cuda --small --library "$library/libdriftscope_cuda.so"
    expect 0
    has "$dir/err" "gpu-check: cublasLt is taken from $there"
    has "$dir/out" "vendor-pinned      passed"
}

test_without_a_gpu() {
    check --library "$dir/no.so"
    expect 2
    empty "$dir/out"
    has "$dir/err" "gpu-check: no GPU could be used: --device: device cuda: $dir/no.so: "
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
