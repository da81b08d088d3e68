# test_json.sh: what `--json` prints against cli/JSON.md: every field of every verb is documented, with its type, and is there.
. tests/cli/lib.sh

small=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128
experts=random:qwen3moe,layers=6,hidden=32,experts=32,top_k=4,vocab=128
specimens=$(dirname "$driftscope")/specimens/specimens.so

# json FILE VERB ARGUMENT...: the JSON in $dir/FILE.json; whatever the exit code, there must be some.
json() {
    name=$1
    shift
    ds "$@" --json -q
    [ "$code" -le 2 ] && [ -s "$dir/out" ] || {
        say "driftscope $* --json: exit code $code"
        cat "$dir/err" >&2
        return 1
    }
    cp "$dir/out" "$dir/$name.json"
}

# trial FILE MODEL ARGUMENT...: a run with few arms.
trial() {
    name=$1 model=$2
    shift 2
    case " $* " in *" --tokens "*) ;; *) set -- --tokens 5,9,1,44,23,8,2,60,31 "$@" ;; esac
    json "$name" run -m "$model" -n 2 --batch 1 --threads 1 --slot first --neighbours copies \
        --chunk 0 --mode prefill --repeat 1 "$@"
}

# fields FILE PATTERN...: each is somewhere in the file, so that what it stands for was printed at all.
fields() {
    file=$1
    shift
    for pattern in "$@"; do
        grep -q "$pattern" "$dir/$file.json" || {
            say "$file.json has no $pattern"
            return 1
        }
    done
}

test_every_field_is_documented_and_printed() {
    trial plain "$small" --kernels vendor+matmul=split-k,pinned --repeat 2 --batch 1,8 -o "$dir/a.h5"
    fields plain '"first_drift": {' '"tile_k"' '"natural": {' '"f16_headroom_bits"' '"switches_rows": \['
    trial same "$small" --kernels vendor+matmul=split-k --batch 1 -o "$dir/b.h5"
    json diff diff "$dir/a.h5" "$dir/b.h5" --ulp 4
    fields diff '"differences": \[' '"tolerance": {'
    trial unstable "$small" --kernels pinned+matmul=atomic --repeat 8 --no-record
    fields unstable '"unstable": {' '"first_differ_at": \[' '"interval95"'
    trial coarse "$experts" --tokens 5,9,1,44,23,8,2,60,31,11,12,13,14,15,16,17,18,19,20 -n 8 --kernels pinned,pinned+matmul=q8 -o "$dir/coarse.h5"
    fields coarse '"swapped": \[' '"first_divergence": {'
    trial lost "$small" --tokens 5,9,1,44,23,8,2 --kernels pinned,pinned+matmul=refuse-7 --plugin "$specimens" --no-record
    fields lost '"how": "refused"'
    trial nan "$small" --kernels pinned,pinned+attention=one-beyond --plugin "$specimens" --poison --no-record
    fields nan '"first_nonfinite": {' '"row_kind"'
    trial inert "$small" --tokens 5,5,5,5 --mutate --no-record
    fields inert '"what": "inert-fixture"'
    trial dumped "$small" --kernels pinned --dump all --dump-rows 100 -o "$dir/sound.h5"
    bend "$dir/sound.h5" "$dir/bent.h5" 2
    json damaged show "$dir/bent.h5" --verify
    json damaged_diff diff "$dir/sound.h5" "$dir/bent.h5" --verify
    fields damaged '"found": "'
    json site show "$dir/a.h5" --site 0,q_proj
    fields site '"kernels": \[' '"summary": "' '"other_build": false'
    json site_same show "$dir/b.h5" --site 0,q_proj
    json environment show "$dir/a.h5" --environment
    json environments diff "$dir/a.h5" "$dir/b.h5" --environment
    fields environments '"list": "differs: '
    trial packed "$small" --kernels pinned --digest-packed --weights f32 -o "$dir/packed.h5"
    json weights show "$dir/packed.h5" --weights
    json weights_of_two diff "$dir/packed.h5" "$dir/packed.h5" --weights
    fields weights_of_two '"stage": "packed"' '"dequantised": "'
    json explain explain "$dir/a.h5" -m "$small"
    fields explain '"noise":{' '"gamma_share"' '"in_a":{'
    json bisect bisect -m "$small" --tokens 5,9,1,44,23,8,2,60,31 -n 2 --kernels vendor,vendor+silu_mul=pinned --batch 1 --threads 1
    fields bisect '"cause": {'
    json selftest selftest O-06
    json kernels kernels --plugin "$specimens"
    json order order matmul/split-k --shape n=64,k=64 --rows 1,5
    json check check matmul/split-k --shape n=64,k=64 --threads 1,2
    fields check '"smallest_break": {'
    echo '{"batch": [{"request": 0, "new": 2, "cached": 0}, {"request": 1, "new": 2, "cached": 0}]}' >"$dir/steps.jsonl"
    json bench bench silu_mul --shape width=64 --rows 1 --threads 1
    json storm storm -m "$experts" --tokens 5,9,1,44,23,8,2 --tokens 60,31,11 --requests 8 -n 4 --max-batch 3 --dtype f32 --compare vendor+matmul=split-k,pinned \
        --threads 1 -o "$dir/storm.h5"
    json storm_file storm -m "$experts" --tokens 5,9 --schedule "$dir/steps.jsonl" --compare pinned --threads 1 -o "$dir/file.h5"
    echo '{"schema": "driftscope.inputs/1", "clock": 0, "texts": {"t": {"text": "x"}}, "requests": [{"id": "a", "turns": [{"tokens": [5, 9]}, {"expect": [1, 2]}]}]}' >"$dir/conversation"
    json storm_inputs storm -m "$experts" --inputs "$dir/conversation" --compare pinned --threads 1 -o "$dir/inputs.h5"
    fields storm_inputs '"first_parting": {' '"clock": "1970-01-01T00:00:00Z"'
    json replay_inputs replay "$dir/inputs.h5" -m "$experts"
    fields replay_inputs '"calls_judged": 1'
    json risk risk "$dir/storm.h5" "$dir/storm.h5"
    json risk_of_a_sweep risk "$dir/a.h5"
    json onpolicy onpolicy -m "$experts" --tokens 5,9,1,44,23,8,2 --requests 3 -n 3 --max-batch 2 --dtype f32 --compare vendor+matmul=split-k,pinned \
        --threads 1 -o "$dir/onpolicy.h5"
    json replay replay "$dir/storm.h5" -m "$experts" --kernels vendor+matmul=split-k+rmsnorm=reference --request 3 --alone
    fields replay '"recorded_batch": {' '"request": 3'
    json table table "$dir/storm.h5" "$dir/coarse.h5" --by record
    fields table '"div_index":[0-9]' '"Div_Index":{' '"low":[0-9]' '"low":null' '"by":{"record":'
    json lock lock -m "$small" --tokens 5,9,1,44 -n 2 --batch 1,8 --kernels vendor+matmul=split-k --threads 1 -o "$dir/a.lock"
    json verify verify "$dir/a.lock" -m "$small"
    fields verify '"p_noise"' '"first_drift": null'
    sed -i 's/^class rope.reference batch 1,8/class rope\/reference batch 1|8/; s/^env libc .*/env libc 1/; s/^\(tensor 0 q_proj [^ ]*\) .*/\1 0123456789abcdef/' "$dir/a.lock"
    json verify_drift verify "$dir/a.lock" -m "$small"
    fields verify_drift '"equal_before"' '"weight"' '"counts": true'
    json update lock --update -m "$small" -o "$dir/a.lock"
    fields update '"was": "'
    json doctor doctor -m "$small"
    fields doctor '"status": "found"' '"command": null'
    printf 'vllm serve m\nvllm serve m --seed 1\n' >"$dir/workers.sh"
    json doctor_command doctor -f "$dir/workers.sh"
    fields doctor_command '"engine": "vLLM"' '"line": 1'
    python3 tests/tools/make_logprobs.py other "$dir" --batch
    json fingerprint fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
    python3 tests/tools/make_logprobs.py top-k "$dir"
    json fingerprint_top fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
    fields fingerprint_top '"cause": "top-k-renormalised"'
    run tests/tools/check_json.py cli/JSON.md "$dir"/*.json
    cat "$dir/out" >&2
    expect 0
}

# The names that scripts rely on, from one run of each kind: they may get company, but never go.
test_fixed_names_of_the_verdict_stay() {
    trial plain "$small" --kernels vendor,pinned --no-record
    run python3 - "$dir/plain.json" <<'EOF'
import json
import sys

v = json.load(open(sys.argv[1], encoding="utf-8"))
number = (int, float)
fixed = {
    "": {"schema": str, "result": str, "stable": bool, "reference": dict, "counts": dict, "first_drift": dict, "factors": list,
         "kernels": list, "first_nonfinite": type(None), "first_discrete": (dict, type(None)), "tokens": dict, "probe": dict},
    "reference": {"arm": int, "trial": int},
    "counts": {"arms": int, "trials": int, "sites": int, "rows": int, "digests_compared": int},
    "first_drift": {"layer": int, "stage": str, "op": str, "variant": str, "factor": str, "value": str, "arm": int, "label": str,
                    "phase": str, "rows_in_call": int, "step": int, "request": int, "position": int, "rows": int, "elements": int,
                    "max_ulp": int, "max_abs": number, "kind": str},
    "factors": {"factor": str, "phase": str, "classes": list, "switches": list, "first_drift": (dict, type(None))},
    "kernels": {"op": str, "variant": str, "conditions": dict, "switches_rows": list, "origins": int, "healed": int,
                "inherited": int, "compared": int},
    "tokens": {"same": int, "first_divergence": (dict, type(None))},
    "probe": {"overhead_prefill": number, "overhead_decode": number, "disturbs": bool},
}
for name, fields in fixed.items():
    at = v[name] if name else v
    for one in at if isinstance(at, list) else [at]:
        for field, kind in fields.items():
            assert field in one, f"{name}.{field} is missing"
            assert isinstance(one[field], kind) and (kind is bool) == isinstance(one[field], bool), f"{name}.{field} is {one[field]!r}"
assert v["schema"] == "driftscope.verdict/1"
assert all(c in ("same", "drift", "unstable", "not-run", "unknown") for k in v["kernels"] for c in k["conditions"].values())
EOF
    cat "$dir/err" >&2
    expect 0
}

run_tests
