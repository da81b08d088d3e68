# test_onpolicy.sh: the path that generates against the path that scores: zero with pinned, a named kernel with split.
. tests/cli/lib.sh

model="random:llama,layers=2,hidden=64,ffn=96,vocab=256,seed=3"
few="--tokens 5,9,1,44,23,8,2 --tokens 60,31,11 --requests 5 -n 7 --threads 1 --max-batch 3 --chunk 9 --rate 0.5"

test_pinned_is_zero_and_split_is_named() {
    # shellcheck disable=SC2086
    ds onpolicy -m "$model" $few --compare split,pinned --dtype f32 --json -o "$dir/a.h5"
    expect 1
    need python3
    python3 - "$dir/out" <<'PY'
import json, sys
v = json.load(open(sys.argv[1], encoding="utf-8"))
split, pinned = v["sets"]
assert v["schema"] == "driftscope.onpolicy/1" and v["result"] == "drift" and v["sampler"]["temperature"] == 1, v
for s in (split, pinned):
    assert s["tokens"] == 35 and s["digests_compared"] > 1000, s
assert split["tokens_different"] > 0 and split["digests_different"] > 0 and split["dlogprob_max"] > 0, split
assert 0 < split["k3"] < 1e-6 and 0 < split["kl"] < 1e-6 and split["ratio_min"] < 1 < split["ratio_max"], split
assert split["first_divergence"]["variant"] in ("split-k", "split", "split-kv"), split
for name in ("tokens_different", "digests_different", "choices_different", "kl", "kl_max", "k1", "k3", "dlogprob_max", "sequence_dlogprob_max"):
    assert pinned[name] == 0, (name, pinned)
assert pinned["first_divergence"] is None and pinned["claims_invariance"] is True and split["claims_invariance"] is False, pinned
PY
    ds show "$dir/a.h5"
    expect 1
    has "$dir/out" "decode|prefill"
    ds diff "$dir/a.h5" "$dir/a.h5"
    expect 0
    ds tui "$dir/a.h5"
    expect 0
    ds replay "$dir/a.h5" -m "$model"
    expect 2
    has "$dir/err" "texts that were scored"
}

# Logits that are NaN have the same bits in both paths, and are no agreement.
test_nan_is_no_agreement() {
    gcc -std=c11 -D_GNU_SOURCE -O1 -fPIC -shared -Ikernels -DFAULT_NAN_FROM=256 -o "$dir/nan.so" tests/plugins/fault.c
    # shellcheck disable=SC2086
    ds onpolicy -m "$model" $few --compare pinned+matmul=mine --plugin "$dir/nan.so" -o "$dir/a.h5"
    expect 2
    has "$dir/out" "35 of 35 tokens have no log-probability: NaN among the logits"
    has "$dir/out" "onpolicy: incomparable: pinned+matmul=mine every bit the same, NaN among them"
    hasnt "$dir/out" "-nan"
    # shellcheck disable=SC2086
    ds onpolicy -m "$model" $few --compare pinned+matmul=mine --plugin "$dir/nan.so" -o "$dir/b.h5" --json
    expect 2
    has "$dir/out" '"result": "incomparable"'
    # Greedy choices of such logits have no margin.
    # shellcheck disable=SC2086
    ds storm -m "$model" $few --compare pinned+matmul=mine --plugin "$dir/nan.so" -o "$dir/c.h5"
    expect 2
    has "$dir/out" "NaN           pinned+matmul=mine: 35 of 35 choices were made among NaN, and say nothing"
    has "$dir/out" "storm: incomparable: 35 choices among NaN; "
    # shellcheck disable=SC2086
    ds storm -m "$model" $few --compare pinned+matmul=mine --plugin "$dir/nan.so" -o "$dir/d.h5" --json --error-exit=125
    expect 125
    has "$dir/out" '"result": "incomparable"'
    has "$dir/out" '"choices_among_nan": 35'
    ds risk "$dir/c.h5"
    expect 2
    has "$dir/out" "14 choices, and no margin: their logits are NaN"
    has "$dir/out" "risk: incomparable: NaN among the logits of choices: pinned+matmul=mine 14 of 14"
}

# Prefix hits, preemption, a sampler with everything on, and temperature 0.
test_pinned_is_zero_whatever_the_traffic() {
    for how in "--cache-rows 30" "--no-reuse --max-batch 1" "--temperature 0" "--temperature 0.7 --top-k 9 --top-p 0.8 --repetition-penalty 1.2" "--dtype f32"; do
        # shellcheck disable=SC2086
        ds onpolicy -m "$model" $few --compare pinned $how -o "$dir/a.h5" --force
        expect 0
        has "$dir/out" "onpolicy: same: pinned every bit the same"
        has "$dir/out" "pinned        35       0  0 "
    done
}

test_no_power_is_said() {
    ds onpolicy -m "$model" --tokens 5,9,1 --requests 1 -n 1 --threads 1 --compare split -o "$dir/a.h5"
    expect 0
    has "$dir/out" "no power      split does not claim"
    ds onpolicy -m "$model" --tokens 5,9,1 --requests 0
    expect 2
    has "$dir/err" "requests"
}

run_tests
