# test_storm.sh: storm and replay: completions of equal requests, schedules from outside, and the same bits again.
. tests/cli/lib.sh

# Experts whose router rows are almost equal: any drift chooses other ones, and so turns tokens over, on every machine.
flips="-m random:qwen3moe,layers=2,hidden=256,heads=4,kv_heads=2,experts=8,top_k=1,ffn=128,vocab=256,router_scale=1e-7 --dtype f32
    --tokens 5,9,1,44,23,8,2 --tokens 60,31,11,12,13 --tokens 7,77,70,17,1,2,3,4,5,6 --threads 2 --max-batch 6 --chunk 14 -n 10"
small="-m random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=2 --threads 1"

test_split_parts_and_pinned_does_not() {
    ds storm $flips --requests 18 --rate 0.7 -o "$dir/a.h5" --compare split,pinned --json -q
    expect 1
    need python3
    python3 - "$dir/out" <<'PY'
import json, sys
v = json.load(open(sys.argv[1], encoding="utf-8"))
split, pinned = v["sets"]
assert v["schema"] == "driftscope.storm/1" and v["result"] == "drift" and v["worst"] == "split", v
assert split["unique_completions"] > 3 and split["had_power"] is True, split
assert sum(c["size"] for c in split["completions"]) == 18, split
assert len(split["completions"]) == split["unique_completions"] == v["unique_completions"], split
assert split["parted"] > 0 and split["first_parting"]["a"] != split["first_parting"]["b"], split
first = split["first_divergence"]
assert first["variant"] in ("split-k", "split", "split-kv"), first
assert first["batch"] != first["reference_batch"], first
assert pinned["unique_completions"] == 3 and pinned["drifting"] == 0 and pinned["had_power"] is None, pinned
assert pinned["first_divergence"] is None and pinned["digests_compared"] > 1000, pinned
assert all(c["size"] == 6 for c in pinned["completions"]), pinned
PY
    ds storm $flips --requests 18 --rate 0.7 -o "$dir/b.h5" --compare split,pinned
    expect 1
    has "$dir/out" "first drift   split: "
    has "$dir/out" "first parting split: request "
    has "$dir/out" "next          "
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "storm: drift: 3 prompts had "
    has "$dir/last" "3 completions with pinned"
    ds diff "$dir/a.h5" "$dir/b.h5"
    expect 0
    ds show "$dir/a.h5"
    expect 1
}

test_one_completion_is_exit_0_and_no_power_is_said() {
    ds storm $small --requests 8 -n 4 --compare pinned,vendor+matmul=pinned+rmsnorm=pinned --max-batch 1 --no-reuse -o "$dir/a.h5"
    expect 0
    has "$dir/out" "no power      vendor+matmul=pinned+rmsnorm=pinned does not claim to be batch-invariant"
    hasnt "$dir/out" "no power      pinned"
    has "$dir/out" "8 requests of 8 prompts"
    has "$dir/out" "storm: recorded: 8 prompts had 8 completions with pinned"
    has "$dir/out" "with vendor+matmul=pinned+rmsnorm=pinned; no two requests have a prompt in common"
    ds report "$dir/a.h5" -o "$dir/a.html"
    has "$dir/a.html" "recorded: 8 prompts had 8 completions with pinned"
    ds storm $small --requests 9 -n 4 --compare pinned --json -o "$dir/b.h5"
    expect 0
    has "$dir/out" '"result": "same"'
}

# Prefix hits, preemption, chunks and any arrivals: each request of each storm has its bits again.
test_twenty_random_storms_replay_bit_for_bit() {
    for seed in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        set -- --requests $((4 + seed % 7)) -n $((2 + seed % 5)) --max-batch $((1 + seed % 4)) --chunk $((seed % 3 * 7)) --rate "$((seed % 3)).5" --seed $seed
        [ $((seed % 2)) -eq 0 ] || set -- "$@" --cache-rows $((14 + seed))
        ds storm $small --tokens 5,9,1,44,23,8,2 --tokens 5,9,1,44,7 "$@" -o "$dir/$seed.h5" --json -q
        [ "$code" -le 1 ] || expect 0
        cat "$dir/out" >>"$dir/all"
        ds replay "$dir/$seed.h5" -m random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=2
        expect 0
        has "$dir/out" "replay: same: the storm has the bits of the record, every digest and token"
        hasnt "$dir/out" "no partner"
    done
    grep -q '"preemptions": [1-9]' "$dir/all" # what no storm had was not tested
    grep -q '"prefix_hits": [1-9]' "$dir/all"
}

test_one_thing_changed() {
    ds storm $flips --requests 12 --rate 0 -o "$dir/a.h5" --compare split,pinned --json -q
    expect 1
    model=$(set -- $flips; echo "$2")
    request=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["sets"][0]["first_divergence"]["request"])' "$dir/out")
    ds replay "$dir/a.h5" -m "$model" --request "$request"
    expect 0
    has "$dir/out" "replay: same: request $request has the bits of the record"
    ds replay "$dir/a.h5" -m "$model" --arm 0 --request "$request" --kernels pinned
    expect 1
    has "$dir/out" "replay: drift: request $request with kernels pinned gives "
    ds replay "$dir/a.h5" -m "$model" --arm 1 --alone --request "$request"
    expect 0
    ds replay "$dir/a.h5" -m "$model" --arm 1 --threads 1
    expect 0
    [ "$(grep -c 'first other bits' "$dir/out")" -eq 0 ]
    parted=0
    for request in 0 3 6 9; do # equal prompts
        ds replay "$dir/a.h5" -m "$model" --arm 0 --alone --request $request
        [ "$code" -le 1 ] || expect 0
        [ "$code" -eq 0 ] || { parted=1; has "$dir/out" "the neighbours of step "; }
    done
    [ "$parted" -eq 1 ]
}

# Neighbours are blamed where nothing else was changed: other kernels differ beside the same neighbours, too.
test_more_than_one_thing_changed_blames_none() {
    need python3
    ds storm $flips --requests 12 --rate 0 -o "$dir/a.h5" --compare split,pinned --json -q
    expect 1
    model=$(set -- $flips; echo "$2")
    request=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["sets"][0]["first_parting"]["request"])' "$dir/out")
    set -- "$dir/a.h5" -m "$model" --arm 0 --request "$request"
    for change in "--alone --kernels pinned" "--alone --threads 1" "--other-neighbours --kernels vendor" "--alone --temperature 0.9"; do
        ds replay "$@" $change
        expect 1
        tail -n 1 "$dir/out" >"$dir/last"
        hasnt "$dir/last" "made the difference"
        has "$dir/last" "; which of the 2 changes made it was not tried"
        ds replay "$@" $change --json
        has "$dir/out" '"cause": null'
    done
    # Words that change nothing are no change.
    ds replay "$@" --alone --kernels split --threads 2
    expect 1
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "the neighbours of step "
    ds replay "$@" --alone --json
    has "$dir/out" '"cause": "neighbours"'
    ds replay "$@" --kernels pinned --json
    has "$dir/out" '"cause": "kernels"'
    ds replay "$@" --json
    expect 0
    has "$dir/out" '"cause": null'
    # Nor where the process is in another environment.
    run env OMP_DYNAMIC=TRUE "$driftscope" replay "$@" --alone --force --json
    expect 1
    has "$dir/out" '"other_environment": true'
    has "$dir/out" '"cause": null'
}

# What is written is the record's: what would change a run is refused.
test_an_export_runs_nothing() {
    ds storm $small --tokens 5,9 --requests 2 -n 2 --compare pinned -o "$dir/a.h5"
    expect 0
    for more in "--request 1" --alone --other-neighbours "--kernels pinned" "--threads 1" "--arm 0" "--top-k 3"; do
        ds replay "$dir/a.h5" --export-schedule "$dir/s.jsonl" $more
        expect 2
        has "$dir/err" "--export-schedule and ${more%% *}: nothing is run"
    done
    ds replay "$dir/a.h5" --export-inputs "$dir/s.jsonl" --export-schedule "$dir/s.jsonl"
    expect 2
    [ ! -e "$dir/s.jsonl" ]
}

# A stage that is not rounded: it stands in the record, and is replayed.
test_one_stage_in_f32() {
    need python3
    for at in "" "--dtype-at final_norm=f32"; do
        ds storm $small --tokens 5,9,1,44,23 --requests 3 -n 3 --dtype bf16 --compare pinned $at -o "$dir/a.h5" --force --json -q
        expect 0
        grep -o '"dtype_at": .*' "$dir/out" >>"$dir/at"
        ds replay "$dir/a.h5" -m random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=2
        expect 0
        ds table "$dir/a.h5" --tsv
        cut -f "$(head -n 1 "$dir/out" | tr '\t' '\n' | grep -n '^run_digest$' | cut -d: -f1)" "$dir/out" | sed 1d | sort -u >>"$dir/digests"
    done
    printf '"dtype_at": null,\n"dtype_at": "final_norm=f32",\n' >"$dir/want"
    same_files "$dir/want" "$dir/at"
    [ "$(sort -u "$dir/digests" | wc -l)" -eq 2 ] # it changes bits
    ds storm $small --tokens 5,9 --dtype-at nothing=f32 -o "$dir/b.h5"
    expect 2
    has "$dir/err" "--dtype-at"
}

# All that differs is named, not only the first of it, before anything runs.
test_another_environment_is_named_first() {
    ds storm $small --tokens 5,9 --requests 2 -n 2 --compare pinned -o "$dir/a.h5"
    expect 0
    model=random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=2
    run env OMP_DYNAMIC=TRUE OMP_PROC_BIND=false "$driftscope" replay "$dir/a.h5" -m $model
    expect 2
    empty "$dir/out"
    has "$dir/err" "the record was made in another environment: "
    has "$dir/err" "OMP_DYNAMIC was unset, is TRUE"
    has "$dir/err" "OMP_PROC_BIND was unset, is false"
    has "$dir/err" "hint: --force replays it all the same"
    run env OMP_DYNAMIC=TRUE OMP_PROC_BIND=false "$driftscope" replay "$dir/a.h5" -m $model --force
    expect 0
    [ "$(grep -c 'replayed in another environment: OMP_' "$dir/err")" -eq 2 ]
    # A model of the same shape is named, too.
    ds replay "$dir/a.h5" -m random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=3
    expect 2
    has "$dir/err" "the record was made with another model"
    ds replay "$dir/a.h5" -m $model --request 2
    expect 2
    has "$dir/err" "unknown request 2: the record has 0..1"
}

# What neighbours hold changes no kernel here, only how many they are: with the same shapes every bit is the same.
test_other_neighbours_in_the_same_calls() {
    ds storm $flips --requests 12 --rate 0.7 -o "$dir/a.h5" --compare split -q
    expect 1
    model=$(set -- $flips; echo "$2")
    dense=random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=2
    ds storm -m $dense --tokens 5,9,1,44,23,8,2 --tokens 5,9,1,44,7 --requests 9 --rate 0.7 -n 4 --max-batch 3 --threads 1 --compare vendor+matmul=split-k -o "$dir/b.h5"
    [ "$code" -le 1 ]
    for request in 0 4; do
        ds replay "$dir/b.h5" -m $dense --request $request --other-neighbours
        expect 0
        has "$dir/out" "replay: same: request $request with other neighbours has the bits of the record"
        hasnt "$dir/out" "no partner"
    done
    # A router deals rows to experts by what they hold: so neighbours that hold something else change how many rows an expert has.
    ds replay "$dir/a.h5" -m "$model" --request 3 --other-neighbours
    [ "$code" -le 1 ] || expect 0
    ds replay "$dir/a.h5" -m "$model" --other-neighbours
    expect 2
    has "$dir/err" "--other-neighbours: which request? give --request N"
    ds replay "$dir/a.h5" -m "$model" --request 99999
    expect 2
    has "$dir/err" "unknown request 99999: the record has 0.."
    ds replay "$dir/a.h5" -m "$model" --arm 77
    expect 2
    has "$dir/err" "unknown arm 77: the record has 0.."
    ds replay "$dir/a.h5" -m "$model" --request 3 --other-neighbours --alone
    expect 2
    ds storm -m $dense --tokens 5,9 --requests 1 -n 2 --threads 1 --compare pinned -o "$dir/c.h5"
    expect 0
    ds replay "$dir/c.h5" -m $dense --request 0 --other-neighbours
    expect 2
    has "$dir/err" "the request has no neighbours"
}

# Requests of a file, a line each, are those of options, and equal ones are one prompt; in a schedule as in a storm.
test_a_file_of_requests() {
    cat >"$dir/requests.jsonl" <<'END'
{"prompt": [5, 9, 1, 44, 23]}

{"custom_id": "b", "method": "POST", "body": {"prompt": [60, 31, 11], "max_tokens": 7, "temperature": 0}}
{"prompt": [5, 9, 1, 44, 23]}
END
    set -- $small -n 4 --compare pinned --max-batch 2
    ds storm "$@" --requests-from "$dir/requests.jsonl" -o "$dir/a.h5"
    expect 0
    has "$dir/out" "3 requests of 2 prompts, 4 tokens each"
    has "$dir/out" "storm: same: 2 prompts had "
    has "$dir/err" '"max_tokens" of the requests is not taken'
    ds storm "$@" --tokens 5,9,1,44,23 --tokens 60,31,11 --tokens 5,9,1,44,23 --requests 3 -o "$dir/b.h5"
    expect 0
    ds diff "$dir/a.h5" "$dir/b.h5" -q
    expect 0
    ds storm "$@" --requests-from "$dir/requests.jsonl" --requests 7 --force -o "$dir/b.h5"
    expect 0
    has "$dir/out" "7 requests of 2 prompts"
    ds replay "$dir/a.h5" -m random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=2 --export-schedule "$dir/steps.jsonl"
    expect 0
    ds storm $small --compare pinned --requests-from "$dir/requests.jsonl" --schedule "$dir/steps.jsonl" -o "$dir/c.h5"
    expect 0
    ds diff "$dir/a.h5" "$dir/c.h5" -q
    expect 0
    for line in '{"prompt": [5, 64]}|no token id from 0 to 63' '{"prompt": []}|no "prompt"' '{"prompt": [5]|no JSON object' \
        '{"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]}|not one message of a user' \
        '{"prompt": [5], "messages": []}|both "prompt" and "messages"' 'a text|no tokenizer'; do
        printf '{"prompt": [5]}\r\n\n%s\n' "${line%%|*}" >"$dir/bad.jsonl"
        ds storm $small --requests-from "$dir/bad.jsonl" -o "$dir/bad.h5"
        expect 2
        has "$dir/err" "bad.jsonl, line 3"
        has "$dir/err" "${line#*|}"
    done
    printf '\n\n' >"$dir/bad.jsonl"
    ds storm $small --requests-from "$dir/bad.jsonl" -o "$dir/bad.h5"
    expect 2
    has "$dir/err" "no line has a request"
    ds storm $small --requests-from "$dir/requests.jsonl" --tokens 5 -o "$dir/bad.h5"
    expect 2
    has "$dir/err" "--requests-from and --tokens"
    [ ! -e "$dir/bad.h5" ]
}

# A recorded schedule goes out as text, comes in again and gives every bit of the storm that made it.
test_a_schedule_goes_out_and_comes_back() {
    set -- $small --tokens 5,9,1,44,23,8,2 --tokens 5,9,1,44,7 --compare pinned,vendor+matmul=split-k
    ds storm "$@" -n 5 --requests 9 --rate 1.5 --max-batch 3 --chunk 7 --cache-rows 20 --seed 3 -o "$dir/a.h5"
    [ "$code" -le 1 ]
    ds replay "$dir/a.h5" --export-schedule "$dir/steps.jsonl"
    expect 0
    empty "$dir/out"
    has "$dir/steps.jsonl" '"begins":true'
    ds storm "$@" --schedule "$dir/steps.jsonl" -o "$dir/b.h5"
    [ "$code" -le 1 ]
    ds diff "$dir/a.h5" "$dir/b.h5" --json -q
    expect 0
    ds replay "$dir/b.h5" --export-schedule "$dir/again.jsonl"
    expect 0
    same_files "$dir/steps.jsonl" "$dir/again.jsonl"
    ds run -m random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=2 -n 1 --batch 1 --threads 1 --kernels pinned -o "$dir/run.h5" --repeat 1
    ds replay "$dir/run.h5" --export-schedule "$dir/none.jsonl"
    expect 2
    has "$dir/err" "the record holds no serving run"
    [ ! -e "$dir/none.jsonl" ]
}

test_a_schedule_from_a_file() {
    cat >"$dir/s.jsonl" <<'END'
{"batch": [{"request": 0, "new": 4, "cached": 0}]}
{"batch": [{"request": 0, "new": 1, "cached": 4}, {"request": 1, "new": 2, "cached": 2}]}
{"batch": [{"request": 1, "new": 1, "cached": 4}]}
END
    ds storm $small --tokens 3,4,5,6 --schedule "$dir/s.jsonl" -o "$dir/a.h5" --compare pinned
    expect 0
    has "$dir/out" "2 requests of 1 prompt, up to 2 tokens each: 3 steps of 4 rows at most"
    ds replay "$dir/a.h5" -m random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=2
    expect 0
}

# A schedule need not run every request up to its last, nor all of a prompt: what did not run is not counted.
test_what_a_schedule_does_not_run_is_not_counted() {
    echo '{"batch": [{"request": 9, "new": 4, "cached": 0}, {"request": 3, "new": 4, "cached": 0}]}' >"$dir/s.jsonl"
    set -- $small --tokens 3,4,5,6 --tokens 3,4,5,6 --compare pinned,split --force -o "$dir/a.h5"
    ds storm "$@" --schedule "$dir/s.jsonl"
    expect 0
    has "$dir/out" "2 requests of 1 prompt, up to 1 token each: 1 step of 8 rows at most"
    has "$dir/out" "storm: same: 1 prompt had 1 completion"
    ds storm "$@" --schedule "$dir/s.jsonl" --json
    has "$dir/out" '"requests_run": 2'
    has "$dir/out" '"prompts_distinct": 1'
    ds report "$dir/a.h5" -o "$dir/a.html"
    has "$dir/a.html" "2 requests of 1 prompt, "
    echo '{"batch": [{"request": 0, "new": 2, "cached": 0}, {"request": 1, "new": 2, "cached": 0}]}' >"$dir/s.jsonl"
    ds storm "$@" --schedule "$dir/s.jsonl"
    expect 0
    hasnt "$dir/out" "one completion"
    hasnt "$dir/out" "prompt in common"
    has "$dir/out" "storm: recorded: 0 prompts had 0 completions with pinned, 0 completions with split; no request chose a token"
    ds report "$dir/a.h5" -o "$dir/a.html"
    has "$dir/a.html" "; no request chose a token"
    ds storm $small --tokens 3,4 --tokens 5,6 --tokens 7,8 --requests 2 -n 1 --compare pinned -o "$dir/b.h5"
    has "$dir/out" "2 requests of 2 prompts"
}

# Two requests of which the second one hits the first's prefix, is preempted and resumed.
test_a_schedule_from_a_vllm_log() {
    cat >"$dir/log" <<'END'
INFO 06-01 12:00:00 [core.py:58] Initializing a V1 LLM engine
INFO 06-01 12:00:01 [w.py:9] SchedulerOutput(scheduled_new_reqs=[NewRequestData(req_id=cmpl-a,prompt_token_ids=[3, 4, 5, 6],mm_features=[],block_ids=([1],),num_computed_tokens=0,lora_request=None)], scheduled_cached_reqs=CachedRequestData(req_ids=[], resumed_req_ids=set(), new_token_ids=[], new_block_ids=[], num_computed_tokens=[], num_output_tokens=[]), num_scheduled_tokens={'cmpl-a': 4}, total_num_scheduled_tokens=4, scheduled_spec_decode_tokens={}, finished_req_ids=set())
INFO 06-01 12:00:01 [w.py:9] SchedulerOutput(scheduled_new_reqs=[NewRequestData(req_id=cmpl-b,prompt_token_ids=[3, 4, 5],mm_features=[],block_ids=([2],),num_computed_tokens=2,lora_request=None)], scheduled_cached_reqs=CachedRequestData(req_ids=['cmpl-a'], resumed_req_ids=set(), new_token_ids=[], new_block_ids=[None], num_computed_tokens=[4], num_output_tokens=[1]), num_scheduled_tokens={'cmpl-a': 1, 'cmpl-b': 1}, total_num_scheduled_tokens=2, scheduled_spec_decode_tokens={}, finished_req_ids=set())
INFO 06-01 12:00:02 [w.py:9] SchedulerOutput(scheduled_new_reqs=[], scheduled_cached_reqs=CachedRequestData(req_ids=['cmpl-b'], resumed_req_ids={'cmpl-b'}, new_token_ids=[], new_block_ids=[([7],)], num_computed_tokens=[0], num_output_tokens=[1]), num_scheduled_tokens={'cmpl-b': 4}, total_num_scheduled_tokens=4, scheduled_spec_decode_tokens={}, finished_req_ids={'cmpl-a'})
END
    run python3 tests/tools/schedule_from_vllm.py "$dir/log" --tokens "$dir/ids"
    expect 0
    cat >"$dir/want" <<'END'
{"batch": [{"request": 0, "new": 4, "cached": 0, "begins": true}]}
{"batch": [{"request": 0, "new": 1, "cached": 4}, {"request": 1, "new": 1, "cached": 2, "begins": true}]}
{"batch": [{"request": 1, "new": 4, "cached": 0, "begins": true}]}
END
    same_files "$dir/want" "$dir/out"
    cp "$dir/out" "$dir/steps.jsonl"
    ds storm $small $(sed 's/^/--tokens /' "$dir/ids") --schedule "$dir/steps.jsonl" --compare pinned -o "$dir/a.h5"
    expect 0
    has "$dir/out" "2 requests of 2 prompts, up to 2 tokens each: 3 steps of 4 rows at most"
    sed 's/scheduled_spec_decode_tokens={}/scheduled_spec_decode_tokens={1: [2]}/' "$dir/log" >"$dir/drafts"
    run python3 tests/tools/schedule_from_vllm.py "$dir/drafts"
    expect 1
    has "$dir/err" "drafts, line 2: the step has drafts"
    echo nothing >"$dir/log"
    run python3 tests/tools/schedule_from_vllm.py "$dir/log"
    expect 1
    has "$dir/err" "no line has a SchedulerOutput"
}

# Older logs have an object for each known request, or flags for the resumed ones; workers each print all steps.
test_vllm_logs_of_other_versions() {
    need python3
    tail="total_num_scheduled_tokens=9, scheduled_spec_decode_tokens={}, finished_req_ids=[])"
    new="scheduled_new_reqs=[NewRequestData(req_id=a,prompt_token_ids_len=2,mm_inputs=[],sampling_params=SamplingParams(n=1, stop=[]),block_ids=[[8]],num_computed_tokens=0,lora_request=None)]"
    one="CachedRequestData(req_id='b', resumed_from_preemption=false, new_token_ids=[7], new_block_ids=[[86]], num_computed_tokens=256)"
    two="CachedRequestData(req_id='c', resumed_from_preemption=true, new_token_ids=[], new_block_ids=[[9]], num_computed_tokens=0)"
    counts="num_scheduled_tokens={a: 2, b: 1, c: 6}, $tail"
    cat >"$dir/want" <<'END'
{"batch": [{"request": 0, "new": 2, "cached": 0, "begins": true}, {"request": 1, "new": 1, "cached": 256}, {"request": 2, "new": 6, "cached": 0, "begins": true}]}
END
    echo "ERROR 05-30 [dump_input.py:79] SchedulerOutput($new, scheduled_cached_reqs=[$one, $two], $counts" >"$dir/log"
    flags="CachedRequestData(req_ids=['b', 'c'], resumed_from_preemption=[false, true], new_token_ids=[], new_block_ids=[null,null], num_computed_tokens=[256, 0])"
    echo "(EngineCore_DP0 pid=1) ERROR 11-25 [dump_input.py:76] SchedulerOutput($new, scheduled_cached_reqs=$flags, $counts" >"$dir/log2"
    set="CachedRequestData(req_ids=['b', 'c'],resumed_req_ids={'c'},new_token_ids_lens=[],all_token_ids_lens={},new_block_ids=[None, None],num_computed_tokens=[256, 0],num_output_tokens=[9, 0])"
    for w in 0 1; do echo "(EngineCore pid=1) (Worker_TP$w pid=$w) INFO 08-31 [w.py:9] SchedulerOutput($new, scheduled_cached_reqs=$set, $counts"; done >"$dir/log3"
    for log in log log2 log3; do
        run python3 tests/tools/schedule_from_vllm.py "$dir/$log"
        expect 0
        same_files "$dir/want" "$dir/out"
    done
    # Engines of their own have steps of their own.
    sed -i '2s/c: 6/c: 5/' "$dir/log3"
    run python3 tests/tools/schedule_from_vllm.py "$dir/log3"
    expect 1
    empty "$dir/out"
    has "$dir/err" "'Worker_TP0 pid=0' and 'Worker_TP1 pid=1' have other steps"
    run python3 tests/tools/schedule_from_vllm.py "$dir/log3" --process "Worker_TP0 pid=0"
    expect 0
    same_files "$dir/want" "$dir/out"
    run python3 tests/tools/schedule_from_vllm.py "$dir/nothing"
    expect 1
    hasnt "$dir/err" Traceback
}

# bad LINE TEXT: a schedule of two good lines and LINE is refused with TEXT, naming line 3.
bad() {
    printf '%s\n' '{"batch": [{"request": 0, "new": 2, "cached": 0}]}' '{"batch": [{"request": 0, "new": 2, "cached": 2}]}' "$1" >"$dir/bad.jsonl"
    ds storm $small --tokens 3,4,5,6 --schedule "$dir/bad.jsonl" -o "$dir/bad.h5"
    expect 2
    has "$dir/err" "bad.jsonl, line 3: "
    has "$dir/err" "$2"
    [ ! -e "$dir/bad.h5" ]
}

test_mistakes_name_the_place() {
    bad '{"batch": [' 'no JSON object'
    bad '{}' 'no "batch" with at least one request'
    bad '{"batch": []}' 'no "batch" with at least one request'
    bad '{"batch": [7]}' 'no object'
    bad '{"batch": [{"request": 0, "new": 1, "cached": 4, "begins": 1}]}' '"begins" is neither true nor false'
    bad '{"batch": [{"request": 0, "new": 1, "cached": 4, "begin": true}]}' '"begin" is not known here'
    has "$dir/err" "hint: known are: request|new|cached|slot|begins"
    bad '{"batch": [{"request": 0, "new": 1}]}' 'has no "cached"'
    bad '{"batch": [{"request": 0, "new": 1.5, "cached": 4}]}' '"new" is no whole number'
    bad '{"batch": [{"request": 0, "new": 1, "cached": 9}]}' '9 tokens are said to be cached; it has 4'
    bad '{"batch": [{"request": 0, "new": 9, "cached": 4}]}' '9 new tokens after 4 cached ones; it has 5'
    bad '{"batch": [{"request": 999999999, "new": 1, "cached": 0}]}' 'requests are numbered from 0'
    : >"$dir/empty.jsonl"
    ds storm $small --schedule "$dir/empty.jsonl" -o "$dir/bad.h5"
    expect 2
    has "$dir/err" "the schedule has no steps"
    echo '{"batch": [{"request": 0, "new": 4, "cached": 0}]}' >"$dir/one.jsonl"
    for option in "--requests 5" "--new-tokens 3" "--rate 2" "--max-batch 3" "--chunk 0" "--cache-rows 9" --no-reuse "--seed 2"; do
        # shellcheck disable=SC2086
        ds storm $small --tokens 3,4,5,6 --schedule "$dir/one.jsonl" $option -o "$dir/bad.h5"
        expect 2
        has "$dir/err" "${option% *} cannot be given with --schedule"
    done
    ds storm $small --rate 1.0000001 -o "$dir/bad.h5"
    expect 2
    has "$dir/err" "--rate '1.0000001' is no number of requests a step"
    ds storm $small --cache-rows 3 -o "$dir/bad.h5"
    expect 2
    has "$dir/err" "the longest request alone needs"
    ds storm $small --requests 2 -n 1 --compare pinned -o "$dir/a.h5"
    expect 0
    ds replay "$dir/a.h5" -m random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=3
    expect 2
    has "$dir/err" "the record was made with another model"
    ds replay "$dir/a.h5" -m random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=2 --request 2
    expect 2
    has "$dir/err" "unknown request 2: the record has 0..1"
    ds replay "$dir/a.h5" -m random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=2 --alone
    expect 2
    has "$dir/err" "give --request N"
    ds run -m random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=2 -n 1 --batch 1 --threads 1 --kernels pinned -o "$dir/run.h5" --repeat 1
    ds replay "$dir/run.h5" -m random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=2
    expect 2
    has "$dir/err" "the record holds no serving run"
}

# Sets are told in the order in which they were named, and run in the one that needs the least memory: what pinned packs never lies
# beside the numbers that it was packed from, which the other set reads.
test_the_order_of_sets_costs_no_memory() {
    need python3
    large=random:llama,layers=2,hidden=1024,heads=8,kv_heads=8,ffn=3072,vocab=256
    for sets in pinned,pinned+matmul=reference pinned+matmul=reference,pinned; do
        DRIFTSCOPE="$driftscope" python3 - "$sets" "$dir/$sets.h5" $large >"$dir/$sets" <<'PY'
import json, os, resource, subprocess, sys
out = subprocess.run([os.environ["DRIFTSCOPE"], "storm", "-m", sys.argv[3], "--tokens", "5,9,1", "--requests", "2", "-n", "1",
                      "--threads", "1", "--compare", sys.argv[1], "-o", sys.argv[2], "--json", "-q"], stdout=subprocess.PIPE, check=False)
assert out.returncode in (0, 1), out.returncode
assert [a["kernels"] for a in json.loads(out.stdout)["sets"]] == sys.argv[1].split(","), out.stdout
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
PY
        ds replay "$dir/$sets.h5" -m $large
        expect 0
        head -n 1 "$dir/out" | grep -q "^replay        ${sets%,*}, arm 0: "
    done
    [ "$(cat "$dir/pinned,pinned+matmul=reference")" -lt $(($(cat "$dir/pinned+matmul=reference,pinned") * 5 / 4)) ]
}

run_tests
