# test_weights.sh: `--weights file` from outside: the digests of `--weights f32`, and what is refused before anything runs.
. tests/cli/lib.sh

tiny=tests/data/gguf/tiny.gguf # q8_0 (tied), q4_1, q4_0, f16, bf16, f32
full=tests/data/gguf/full.gguf # the same with biases and a head of its own
short="--repeat 2 -n 3 --tokens 5,1,40,7,22,9,11,2,30"

# A whole sweep of either form, and their diff: $1 the model, the rest options.
compare() {
    for how in f32 file; do
        ds run -m "$@" --kernels pinned --weights $how -o "$dir/$how.h5"
        expect 0
    done
    has "$dir/out" "gguf, weights as in the file"
    ds show "$dir/f32.h5"
    hasnt "$dir/out" "weights as in the file"
    ds diff "$dir/f32.h5" "$dir/file.h5"
    expect 0
    has "$dir/out" "option        weights: f32 in A, file in B"
    has "$dir/out" "matmul/pinned         same"
    has "$dir/out" "same: no difference over"
    hasnt "$dir/out" "weight        "
}

test_same_digests_tied() {
    # shellcheck disable=SC2086
    compare $tiny $short --batch 1,2,7 --threads 1,2 --chunk 0,4 --padding 0,3
}

test_same_digests_with_biases_and_head() {
    # shellcheck disable=SC2086
    compare $full $short --batch 1,5 --threads 2 --dtype bf16
}

test_same_digests_poisoned_and_paged() {
    # shellcheck disable=SC2086
    compare $full $short --batch 1,3 --threads 1 --poison --page-size 4
}

# The digests of every weight, and of two records at which stage they part: both forms are one file, packed in two ways.
test_digests_of_weights() {
    for how in f32 file; do
        # shellcheck disable=SC2086
        ds run -m $full $short --batch 1 --threads 1 --kernels pinned --weights $how --digest-packed -o "$dir/$how.h5"
        expect 0
    done
    ds show "$dir/f32.h5" --weights
    expect 0
    has "$dir/out" "blk.0.attn_norm.weight      f32    286d0b214ec2adfb 286d0b214ec2adfb"
    has "$dir/out" "blk.0.attn_q.weight         q4_1   a62791161d089fe0 b1a02bd36266596e 85fd51224477503a pinned"
    has "$dir/out" "36 weights"
    ds diff "$dir/f32.h5" "$dir/file.h5" --weights
    expect 0
    has "$dir/out" "output.weight: differs: packed"
    has "$dir/out" "as loaded 0 of 36 differ; dequantised 0 of 36 differ; packed 13 of 15 differ"
    ds diff "$dir/f32.h5" "$dir/file.h5" --weights --json
    expect 0
    has "$dir/out" '"schema": "driftscope.weights/1"'
    ds run -m $tiny $short --batch 1 --threads 1 --kernels pinned -o "$dir/tiny.h5"
    ds show "$dir/tiny.h5" --weights
    has "$dir/out" "none is recorded as packed (run --digest-packed)"
    ds diff "$dir/f32.h5" "$dir/tiny.h5" --weights
    has "$dir/out" "output.weight: in A only"
    ds show "$dir/tiny.h5" --weights --environment
    expect 2
    has "$dir/err" "are views: give one"
}

test_json_names_the_option() {
    for how in f32 file; do
        # shellcheck disable=SC2086
        ds run -m $tiny $short --kernels pinned --batch 1 --threads 1 --weights $how -o "$dir/$how.h5"
        expect 0
    done
    ds diff --json "$dir/file.h5" "$dir/f32.h5"
    expect 0
    tr -d ' \n' <"$dir/out" >"$dir/flat"
    has "$dir/flat" '"what":"option","name":"weights","a":"file","b":"f32"'
}

test_kernels_that_read_f32_are_refused() {
    ds run -m $tiny --tokens 1,2 --weights file -o "$dir/a.h5"
    expect 2
    has "$dir/err" "matmul/openblas reads f32 weights only"
    has "$dir/err" "hint: use --weights f32, or a kernel set with matmul=pinned"
    ds run -m $tiny --tokens 1,2 --weights file --kernels pinned,reference -o "$dir/a.h5"
    expect 2
    has "$dir/err" "matmul/reference reads f32 weights only"
    [ ! -e "$dir/a.h5" ]
    ds run -m $tiny --tokens 1,2 --weights file --kernels reference+matmul=pinned --no-record --batch 1 --threads 1
    expect 0
    ds bench pass -m $tiny --weights file --kernels vendor
    expect 2
    has "$dir/err" "matmul/openblas reads f32 weights only"
}

test_random_model_has_no_file() {
    ds run -m random:llama --kernels pinned --weights file --tokens 1,2 --no-record
    expect 2
    has "$dir/err" "random:llama: a random model has no file whose format its weights could keep"
    has "$dir/err" "hint: use --weights f32"
}

test_unknown_way() {
    ds run -m $tiny --tokens 1,2 --weights fil --no-record
    expect 2
    has "$dir/err" "file"
}

# The record says how its weights were kept; the rest is done in the same way.
test_resume() {
    # shellcheck disable=SC2086
    ds run -m $tiny $short --kernels pinned --batch 1,2 --threads 1 --weights file -o "$dir/a.h5"
    expect 0
    ds run --resume "$dir/a.h5" -m $tiny --weights f32
    expect 2
    has "$dir/err" "--weights cannot be given with --resume"
    ds run --resume "$dir/a.h5" -m $tiny
    expect 0
    ds run --resume "$dir/a.h5" -m random:llama,hidden=32,heads=4,kv_heads=2,ffn=64,vocab=48,layers=2
    expect 2
    has "$dir/err" "a random model has no file"
}

test_real_model() {
    model=${DRIFTSCOPE_MODEL:-smollm2}
    ds run -m "$model" --kernels pinned --weights file -p 'The sky is' --repeat 1 -n 1 --batch 1 --threads 1 --chunk 0 \
        --mode prefill --no-record
    if grep -q "not in the cache\|no cache folder" "$dir/err"; then
        skip "no real model in the cache (make model)"
    fi
    expect 0
    compare "$model" --repeat 1 -n 3 -p 'The sky is' --batch 1,9 --threads 2 --chunk 0 --mode prefill
}

run_tests
