# test_sampler.sh: tokens drawn: what is recorded and printed, the same draws in every batch and again, temperature 0, mistakes.
. tests/cli/lib.sh

tiny="random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=2"
draws="--temperature 0.8 --top-k 20 --top-p 0.95 --min-p 0.01 --repetition-penalty 1.1 --sample-seed 7"

# The tokens of request 0 of arm 0, from a record.
tokens() { ds show "$1" --tokens --arm "${2:-1}" --against 0 && sed -n 's/^ *0:[0-9]* *\([0-9]*\) .*/\1/p' "$dir/out"; }

test_settings_are_printed_and_recorded() {
    ds run -m "$tiny" --batch 1,3 --threads 1 --slot first --neighbours copies --chunk 0 --mode prefill -n 6 --kernels pinned $draws -o "$dir/a.h5"
    expect 0
    has "$dir/out" "sampler       temperature 0.8; penalty, temperature, top-k, top-p, min-p act in this order, then the draw"
    has "$dir/out" "              repetition penalty 1.1, top-k 20, top-p 0.95, min-p 0.01, seed 7"
    has "$dir/out" "process/pinned"
    has "$dir/out" "sample/pinned"
    ds show "$dir/a.h5"
    expect 0
    has "$dir/out" "sampler       temperature 0.8;"
    ds show "$dir/a.h5" --json
    has "$dir/out" '"draws": true'
    has "$dir/out" '"repetition_penalty": 1.1'
    ds show "$dir/a.h5" --environment
    has "$dir/out" "top_p"
    ds show "$dir/a.h5" --site 1,logits_processed
    expect 0
    has "$dir/out" "logits_processed (process, f32, 64 wide)"
    ds run -m "$tiny" --batch 1 --threads 1 --chunk 0 --mode prefill -n 2 --repeat 1 --no-record
    expect 0
    has "$dir/out" "sampler       temperature 0: the largest logit, of equal ones the lowest id"
    has "$dir/out" "              repetition penalty 1, top-k 0, top-p 1, min-p 0, seed 1: nothing of it acts"
}

# -infinity where a token is filtered out is no finding.
test_filters_are_not_non_finite() {
    ds run -m "$tiny" --batch 1,2 --threads 1 -n 3 --temperature 1 --top-k 3 --json --no-record
    has "$dir/out" '"first_nonfinite": null'
}

test_draws_come_again_and_depend_on_the_seed() {
    for seed in 1 1 2; do
        ds run -m "$tiny" --batch 1,4 --threads 1 --slot first --neighbours copies --chunk 0 --mode prefill -n 20 --kernels pinned --temperature 2 --sample-seed $seed -o "$dir/$seed.h5" --force -q
        expect 0
        tokens "$dir/$seed.h5" >"$dir/tokens-$seed-$(ls "$dir" | grep -c tokens-)"
    done
    same_files "$dir/tokens-1-0" "$dir/tokens-1-1"
    [ "$(wc -l <"$dir/tokens-1-0")" -eq 21 ]
    ! cmp -s "$dir/tokens-1-0" "$dir/tokens-2-2"
    ds diff "$dir/1.h5" "$dir/2.h5"
    has "$dir/out" "sample_seed: 1 in A, 2 in B"
}

# At temperature 0 nothing else acts; the same bits as without it.
test_temperature_0_is_the_largest_logit() {
    ds run -m "$tiny" --batch 1 --threads 1 -n 12 --repeat 1 --kernels pinned -o "$dir/a.h5" -q
    ds run -m "$tiny" --batch 1 --threads 1 -n 12 --repeat 1 --kernels pinned --top-k 2 --top-p 0.1 --min-p 0.9 --repetition-penalty 5 --sample-seed 3 -o "$dir/b.h5"
    has "$dir/out" "repetition penalty 5, top-k 2, top-p 0.1, min-p 0.9, seed 3: nothing of it acts"
    ds diff "$dir/a.h5" "$dir/b.h5"
    expect 0
    # and a temperature with top-k 1 is the largest logit, too
    ds run -m "$tiny" --batch 1 --threads 1 -n 12 --repeat 1 --kernels pinned --temperature 1 --top-k 1 -o "$dir/c.h5" -q
    ds diff "$dir/a.h5" "$dir/c.h5" --only stages=token
    expect 0
}

test_resume_goes_on_with_the_same_sampler() {
    ds run -m "$tiny" --batch 1,2 --threads 1 -n 5 --kernels pinned --repeat 2 $draws -o "$dir/a.h5" -q
    expect 0
    ds run -m "$tiny" --resume "$dir/a.h5" --temperature 0.5
    expect 2
    has "$dir/err" "--temperature cannot be given with --resume"
    ds run -m "$tiny" --resume "$dir/a.h5"
    expect 0
    has "$dir/out" "sampler       temperature 0.8;"
}

# Equal requests draw alike, whatever the batch; with kernels that drift they part.
test_storms_draw_alike_and_replay() {
    ds storm -m "$tiny" --threads 1 --tokens 5,9,1,44 --tokens 60,31 --requests 12 -n 8 --rate 0.7 --max-batch 4 --chunk 5 $draws --compare pinned -o "$dir/a.h5"
    expect 0
    has "$dir/out" "sampler       temperature 0.8;"
    has "$dir/out" "storm: same: 2 prompts had 2 completions with pinned"
    ds replay "$dir/a.h5" -m "$tiny"
    expect 0
    has "$dir/out" "replay: same: the storm has the bits of the record, every digest and token"
    ds replay "$dir/a.h5" -m "$tiny" --request 7 --alone
    expect 0
    ds replay "$dir/a.h5" -m "$tiny" --sample-seed 8
    expect 1
    has "$dir/out" "with seed 8"
    ds replay "$dir/a.h5" -m "$tiny" --temperature 0
    expect 1
    has "$dir/out" "with temperature 0"
    has "$dir/out" "first other bits: logits_processed process/pinned"
}

# A prompt that is given twice is one prompt: its requests draw alike, as those of one given once do.
test_equal_prompts_draw_alike_however_often_given() {
    set -- -m "$tiny" --threads 1 --requests 6 -n 8 --rate 0.7 --max-batch 4 $draws --compare pinned
    ds storm "$@" --tokens 5,9,1,44 -o "$dir/a.h5"
    expect 0
    ds storm "$@" --tokens 5,9,1,44 --tokens 5,9,1,44 --tokens 5,9,1,44 -o "$dir/b.h5"
    expect 0
    has "$dir/out" "6 requests of 1 prompt, "
    has "$dir/out" "storm: same: 1 prompt had 1 completion with pinned"
    for r in 0 1 5; do
        tokens "$dir/a.h5" $r >"$dir/a"
        tokens "$dir/b.h5" $r >"$dir/b"
        same_files "$dir/a" "$dir/b"
    done
}

# Tokens so far are those of the request, not of whoever has its number as a slot: a penalty in a storm whose requests
# outnumber the slots by far.
test_a_penalty_knows_its_request() {
    ds storm -m "$tiny" --threads 1 --tokens 5,9,1,44 --requests 30 -n 12 --rate 0 --max-batch 2 --temperature 0.01 --repetition-penalty 3 --compare pinned -o "$dir/a.h5"
    expect 0
    has "$dir/out" "1 prompt had 1 completion with pinned"
    ds storm -m "$tiny" --threads 1 --tokens 5,9,1,44 --requests 1 -n 12 --temperature 0.01 --repetition-penalty 3 --compare pinned -o "$dir/b.h5"
    tokens "$dir/a.h5" 0 >"$dir/a"
    tokens "$dir/b.h5" 0 >"$dir/b"
    same_files "$dir/a" "$dir/b"
    [ "$(wc -l <"$dir/a")" -eq 12 ]
}

# A lock asks what was asked: the same draws, and stages that stayed f32.
test_a_lock_draws_again() {
    ds lock -m "$tiny" --tokens 5,9,1,44 --batch 1,2 --threads 1 -n 6 --kernels pinned --dtype bf16 --dtype-at final_norm=f32 $draws -o "$dir/a.lock"
    expect 0
    has "$dir/a.lock" "option temperature 0.8"
    has "$dir/a.lock" "option dtype_at final_norm=f32"
    ds verify "$dir/a.lock" -m "$tiny"
    expect 0
    sed 's/^option sample_seed 7/option sample_seed 8/' "$dir/a.lock" >"$dir/b.lock"
    ds verify "$dir/b.lock" -m "$tiny"
    expect 2 # an option that was changed by hand is not what was locked
    has "$dir/err" "does not agree with itself: its key is"
    sed -i "s/^key .*/key $(sed -n 's/.*its kernels have //p' "$dir/err")/" "$dir/b.lock"
    ds verify "$dir/b.lock" -m "$tiny"
    expect 1
    sed 's/^option temperature 0.8/option temperature warm/' "$dir/a.lock" >"$dir/c.lock"
    ds verify "$dir/c.lock" -m "$tiny"
    expect 2
    has "$dir/err" "temperature"
    sed 's/^option dtype_at final_norm=f32/option dtype_at nothing=f32/' "$dir/a.lock" >"$dir/d.lock"
    ds verify "$dir/d.lock" -m "$tiny"
    expect 2
    has "$dir/err" "dtype_at"
}

test_mistakes() {
    for mistake in "--temperature -1:a temperature of -1" "--temperature warm:no number" "--temperature inf:no number" \
        "--temperature 1 --top-p 0:top-p 0; it is above 0" "--temperature 1 --top-p 1.5:top-p 1.5" "--temperature 1 --min-p 2:min-p 2" \
        "--temperature 1 --repetition-penalty 0:a repetition penalty of 0" "--top-k -1:top-k" "--top-p 1.5:top-p 1.5" "--repetition-penalty 0:a repetition penalty of 0" \
        "--temperature 1e-60:--temperature '1e-60' is no number" "--temperature 1 --device sim --graph on:tokens are drawn on the host"; do
        # shellcheck disable=SC2086
        ds run -m "$tiny" --batch 1 ${mistake%%:*} --no-record
        expect 2
        has "$dir/err" "${mistake#*:}"
    done
    ds storm -m "$tiny" --temperature 1 --top-p -3
    expect 2
    has "$dir/err" "top-p -3"
}

run_tests
