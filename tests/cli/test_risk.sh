# test_risk.sh: margins, drift and expected flips of records; what to pin first; what a storm foretells of others.
. tests/cli/lib.sh

# Experts whose router rows are almost equal: any drift chooses other ones, and so turns tokens over, on every machine.
moe="random:qwen3moe,layers=2,hidden=256,heads=4,kv_heads=2,experts=8,top_k=1,ffn=128,vocab=256,router_scale=1e-7"
storm="storm -m $moe --dtype f32 --threads 2 --max-batch 6 --chunk 14 --sites resid"

# Fifty prompts of unlike lengths.
fifty() {
    awk 'BEGIN { s = 5; for (p = 0; p < 50; p++) { t = ""; for (i = 0; i < 3 + p % 6; i++) { s = (s * 1103 + 12345) % 65536; t = t (i ? "," : "") int(s / 256) }
        printf " --tokens %s", t } }'
}

# The forecast is of one seed's arrivals, and is held against others that it has not seen. Here drift chooses other experts, so that
# all logits are others at once, which is no noise around a mean: whether the count lies in the interval is asked in
# tests/unit/dumps/test_partings.c, of runs that are the same on every machine.
test_fifty_prompts_of_other_storms_are_foretold() {
    for seed in 1 2 3; do
        # shellcheck disable=SC2046,SC2086
        ds $storm $(fifty) --requests 200 -n 6 --seed $seed --compare split,pinned -o "$dir/$seed.h5" -q
        expect 1
    done
    ds risk "$dir/1.h5" "$dir/2.h5" "$dir/3.h5" --json
    expect 1
    need python3
    python3 - "$dir/out" <<'PY'
import json, sys
v = json.load(open(sys.argv[1], encoding="utf-8"))
split, pinned = v["groups"]
assert v["schema"] == "driftscope.risk/1" and v["prompts"] == 50 and v["result"] == "drift", v
assert split["seen"] > 50 and split["low_per_1000"] < split["expected_per_1000"] < split["high_per_1000"], split
assert split["drift_max"] > 0 and split["within"]["drift_max"] > 0 and len(split["at_risk"]) == 5, split
assert all(a["chance"] >= b["chance"] for a, b in zip(split["at_risk"], split["at_risk"][1:])), split
assert pinned["seen"] == 0 and pinned["expected_per_1000"] == 0 and pinned["drift_max"] == 0, pinned
tests = v["foretold"]
assert [t["kernels"] for t in tests] == ["split", "pinned"] * 2, tests
for t in tests:
    assert t["requests"] == 150 and t["within"] is (t["low"] <= t["seen"] <= t["high"]), t
    if t["kernels"] == "split":
        assert t["seen"] > 50 and 0 < t["low"] < t["expected"] < t["high"] < 150, t
    else:
        assert t["seen"] == 0 and t["expected"] == 0 and t["high"] == 0, t
PY
    ds risk "$dir/1.h5" "$dir/2.h5"
    expect 1
    has "$dir/out" "50 prompts"
    has "$dir/out" "by layer      split: relative drift measured"
    grep -q "^              final_norm  .* times, at prompt [0-9]*, token [0-5])$" "$dir/out"
    has "$dir/out" "by layer      pinned: no logits drifted"
    # Beyond all drift the nearest choices are told, with their candidates.
    has "$dir/out" "nearest       pinned: beyond the drift"
    grep -A 1 "^nearest       pinned" "$dir/out" | grep -q "prompt [0-9]*, token [0-9]: token [0-9]* before token [0-9]* by "
    has "$dir/out" "split: of 150 requests "
    has "$dir/out" "did: "
    ds risk "$dir/1.h5" --most 0
    hasnt "$dir/out" "at risk"
    ! grep -q "^nearest" "$dir/out"
    ds risk "$dir/1.h5" -m "$moe"
    expect 1
}

# Lines of a file repeat their prompts in any order: the same storm told otherwise is foretold alike, and foretells the other.
test_prompts_that_are_given_again() {
    # shellcheck disable=SC2086
    ds $storm --tokens 5,9,1,44,23 --tokens 60,31,11,12 --requests 12 -n 6 --compare split -o "$dir/a.h5"
    cp "$dir/out" "$dir/one"
    # shellcheck disable=SC2086
    ds $storm --tokens 5,9,1,44,23 --tokens 60,31,11,12 --tokens 5,9,1,44,23 --tokens 60,31,11,12 --requests 12 -n 6 --compare split -o "$dir/b.h5"
    grep -E '^expected|requests of|^storm: ' "$dir/one" >"$dir/want"
    [ "$(wc -l <"$dir/want")" -eq 3 ] # it drifts, else nothing is compared here
    grep -E '^expected|requests of|^storm: ' "$dir/out" >"$dir/is"
    same_files "$dir/want" "$dir/is"
    ds risk "$dir/a.h5"
    cp "$dir/out" "$dir/one"
    has "$dir/one" ", 2 prompts"
    has "$dir/one" "by layer      split: relative drift"
    ds risk "$dir/b.h5"
    same_files "$dir/one" "$dir/out"
    ds risk "$dir/a.h5" "$dir/b.h5"
    has "$dir/out" "foretold      "
    ds risk "$dir/b.h5" "$dir/a.h5"
    has "$dir/out" "foretold      "
    # In another order they are the same prompts, but other numbers.
    # shellcheck disable=SC2086
    ds $storm --tokens 60,31,11,12 --tokens 5,9,1,44,23 --requests 12 -n 6 --compare split -o "$dir/c.h5"
    ds risk "$dir/a.h5" "$dir/c.h5"
    expect 2
    has "$dir/err" "a serving run foretells one of the same prompts"
}

test_what_to_pin_first_is_measured() {
    # shellcheck disable=SC2086
    ds $storm --tokens 5,9,1,44,23,8,2 --tokens 60,31,11,12,13 --requests 18 -n 10 --compare split --pin-each -o "$dir/a.h5" -q
    expect 1
    ds risk "$dir/a.h5"
    has "$dir/out" "pin first     "
    has "$dir/out" "matmul=pinned: "
    has "$dir/out" "attention=pinned: "
    # An op whose exchange leaves no drift is told so by its bits, whatever the number of flips.
    one="storm -m random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512 --dtype f32 --threads 1 --max-batch 6 --chunk 14 --sites resid"
    # shellcheck disable=SC2086
    ds $one --tokens 5,9,1,44,23,8,2 --tokens 60,31,11,12,13 --requests 18 -n 10 --compare pinned+matmul=split-k --pin-each -o "$dir/one.h5" -q
    ds risk "$dir/one.h5" --json
    has "$dir/out" '"helps": "nothing_moves"'
    ds risk "$dir/one.h5"
    grep -q "^pin first     matmul=pinned: .*: no choice is moved$" "$dir/out"
}

test_what_stages_in_f32_change() {
    bf16="storm -m $moe --threads 2 --max-batch 6 --chunk 14 --sites resid --dtype bf16 --tokens 5,9,1,44,23,8,2 --tokens 60,31,11,12,13 --requests 18 -n 8"
    for at in final_norm,logits logits; do
        # shellcheck disable=SC2086
        ds $bf16 --compare split,pinned --dtype-at $at=f32 -o "$dir/$at.h5" -q
        [ "$code" -le 1 ] || expect 0
    done
    # shellcheck disable=SC2086
    ds $bf16 --compare split,pinned -o "$dir/a.h5" -q
    ds risk "$dir/a.h5" "$dir/final_norm,logits.h5" "$dir/logits.h5"
    has "$dir/out" "precision     split, final_norm,logits=f32 ($dir/final_norm,logits.h5): "
    has "$dir/out" "split, logits=f32 ($dir/logits.h5): "
    ds risk "$dir/a.h5" "$dir/final_norm,logits.h5" --json
    has "$dir/out" '"exchanged": "final_norm,logits=f32"'
    # Back again: what the first one has and the second one has not.
    ds risk "$dir/final_norm,logits.h5" "$dir/a.h5"
    has "$dir/out" "split, none in f32 ("
    cp "$dir/a.h5" "$dir/b.h5"
    ds risk "$dir/a.h5" "$dir/b.h5"
    hasnt "$dir/out" "precision "
}

test_a_sweep_has_layers() {
    ds run -m random:llama,layers=2,hidden=64,vocab=512 --batch 1,4 --threads 1 -n 4 --kernels split --chunk 0,8 --mode prefill -o "$dir/a.h5" -q
    ds risk "$dir/a.h5"
    [ "$code" -le 1 ] || expect 0
    has "$dir/out" "margins       split: 5 choices"
    has "$dir/out" "one prompt: no interval"
    has "$dir/out" "by layer      split"
    has "$dir/out" "final_norm"
    ds run -m random:llama,layers=2,hidden=64,vocab=512 --batch 1 --threads 1 -n 4 --kernels pinned --chunk 0 --mode prefill --repeat 1 -o "$dir/b.h5" -q
    ds risk "$dir/b.h5"
    expect 0
    has "$dir/out" "no drift is known"
}

# Stages that stay f32 in a bf16 run, whatever the rest: their sites say so, and they are what f32 rows are.
test_precision_of_single_stages() {
    run="run -m random:llama,layers=2,hidden=64,vocab=512 --batch 1,4 --threads 1 -n 2 --kernels pinned --chunk 0 --mode prefill"
    # shellcheck disable=SC2086
    ds $run --dtype bf16,f32 --dtype-at final_norm,logits=f32 -o "$dir/a.h5" --json
    expect 0
    ds show "$dir/a.h5" --site 2,final_norm
    has "$dir/out" "final_norm (rmsnorm, f32, 64 wide)"
    ds show "$dir/a.h5" --site 1,down
    has "$dir/out" "down (matmul, bf16, 64 wide)"
    ds show "$dir/a.h5" --verify
    expect 0
    ds show "$dir/a.h5" --environment
    has "$dir/out" "final_norm,logits=f32"
    # shellcheck disable=SC2086
    ds $run --dtype bf16 -o "$dir/b.h5" -q
    ds diff "$dir/a.h5" "$dir/b.h5"
    expect 2
    has "$dir/out" "other formats"
    # shellcheck disable=SC2086
    ds $run --dtype f32 --dtype-at resid_ffn,down=f32 -o "$dir/c.h5" -q
    expect 0
    # shellcheck disable=SC2086
    ds $run --dtype f32 -o "$dir/d.h5" -q
    ds diff "$dir/c.h5" "$dir/d.h5"
    expect 0
    ds run --resume "$dir/a.h5" --dtype-at down=f32
    expect 2
    for mistake in "final_norm:no list of stages" "kv_write=f32:'kv_write' is no stage" "nothing=f32:'nothing' is no stage" "down=bf16:no list of stages"; do
        # shellcheck disable=SC2086
        ds $run --dtype-at "${mistake%%:*}" --no-record
        expect 2
        has "$dir/err" "${mistake#*:}"
    done
}

test_a_scored_text() {
    ds onpolicy -m random:llama,layers=2,hidden=64,vocab=512 --requests 4 -n 6 --threads 1 --dtype f32 --compare split,pinned -o "$dir/a.h5" -q
    ds risk "$dir/a.h5" --json
    has "$dir/out" '"pairs": 24'
    # Both paths differ by chunks of prompts; the layers say by how much, and no set that agrees has any.
    ds onpolicy -m random:llama,layers=2,hidden=64,vocab=512 --requests 12 -n 8 --threads 1 --chunk 7 --dtype bf16 --compare pinned+matmul=split-k,pinned -o "$dir/b.h5" -q
    expect 1
    ds risk "$dir/b.h5" --json
    need python3
    python3 - "$dir/out" <<'PY'
import json, sys
drifts, pinned = json.load(open(sys.argv[1], encoding="utf-8"))["groups"]
assert drifts["layers"][-1]["layer"] == 2 and not pinned["layers"], (drifts["layers"], pinned["layers"])
for l in drifts["layers"]:
    assert l["rows"] > 0 and l["relative_rms_median"] > 0 and l["relative_rms_needed"] > 0 and 0 <= l["step"] < 8, l
PY
    ds risk "$dir/b.h5"
    has "$dir/out" "by layer      pinned+matmul=split-k: relative drift measured"
}

test_mistakes() {
    ds risk "$dir/none.h5"
    expect 2
    has "$dir/err" "none.h5"
    for n in 1 2; do
        # shellcheck disable=SC2086
        ds $storm --tokens 5,9,$n --tokens 60,31 --requests 4 -n 2 --compare pinned -o "$dir/$n.h5" -q
        expect 0
    done
    ds risk "$dir/1.h5" "$dir/2.h5"
    expect 2
    has "$dir/err" "2.h5: a serving run foretells one of the same prompts"
    ds run -m random:llama,layers=1,hidden=32,vocab=64 --batch 1 --threads 1 -n 1 --repeat 1 --chunk 0 --mode prefill --kernels pinned -o "$dir/run.h5" -q
    ds risk "$dir/run.h5" "$dir/1.h5"
    expect 2
    ds risk "$dir/1.h5" -m random:llama,layers=1,hidden=32,vocab=64
    expect 2
    has "$dir/err" "another model"
}

run_tests
