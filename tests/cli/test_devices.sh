# test_devices.sh: --place, --tp, cache formats and --digest-packed from outside.
. tests/cli/lib.sh

small=random:llama,layers=4,hidden=64,heads=4,kv_heads=2,ffn=512,vocab=128
one="--tokens 5,1,40,7,22,9,11 -n 2 --repeat 2 --batch 1 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill"

test_two_devices() {
    for place in 'one,layers=0-1:cpu0;2-:cpu1' 'one,layers=0-1:cpu0,2-3:cpu1'; do
        # shellcheck disable=SC2086
        ds run -m $small $one --kernels pinned --place "$place" -o "$dir/a.h5" --force
        expect 0
        has "$dir/out" "place         no difference over"
        has "$dir/out" "transfer/pinned       same    same"
        hasnt "$dir/out" "transfer/none"
    done
    ds show "$dir/a.h5" --sites
    expect 0
    has "$dir/out" "layer src dst norm q"
    ds run --resume "$dir/a.h5" -m $small
    expect 0
    ds run --resume "$dir/a.h5" -m $small --place one
    expect 2
    has "$dir/err" "--place cannot be given with --resume"
}

test_ranks() {
    # shellcheck disable=SC2086
    ds run -m $small $one --kernels pinned --tp 1,2,4 -o "$dir/a.h5"
    expect 1
    has "$dir/out" "tp            prefill 1|2|4  decode 1|2|4"
    has "$dir/out" "first drift   layer 0 o_proj, matmul/pinned: origin"
    has "$dir/out" "tp 2 against 1"
    has "$dir/out" "rounding-order"
    has "$dir/out" "split 2"
    has "$dir/out" "allreduce/pinned      same"
    ds run --resume "$dir/a.h5" -m $small
    expect 1
    # shellcheck disable=SC2086
    ds run -m $small $one --kernels pinned --tp 1,2 --dtype bf16 --no-record
    expect 1
    has "$dir/out" "lower-precision: partial sums of 2 ranks are rounded to bf16"
}

# With one rank the combine reads the experts, which differ by batch here; the partial sums that lie
# between them with two ranks are no input of it.
test_what_other_ranks_have_is_no_input() {
    ds run -m random:qwen3moe,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=300,experts=6,top_k=2,seed=3 \
        --tokens 5,9,4,3,77,12,8,100,3 -n 4 --kernels split --batch 1,3 --padding 0,4r --threads 1,2 --tp 1,2 --no-record
    expect 1
    has "$dir/out" "switches      matmul/split-k gives other bits from M"
    hasnt "$dir/out" "switches      combine/pinned"
}

test_what_does_not_fit_is_refused_before_anything_runs() {
    while read -r options; do
        read -r message
        # shellcheck disable=SC2086
        ds run -m $small $one $options -o "$dir/no.h5"
        expect 2
        has "$dir/err" "$message"
        [ ! -e "$dir/no.h5" ]
    done <<'END'
--tp 3
--tp 3: does not divide 4 heads, 2 key-value heads and 512 FFN columns
--tp 3
hint: this model can have 1, 2, 4 ranks
--tp 9
--tp
--place two
hint: write one, or for example layers=0-14:cpu0;15-:cpu1
--place layers=0-1:cpu0
layers 2 to 3 have no device
--place layers=0-1:cpu0;2-9:cpu1
the model has layers 0 to 3
--place layers=0-1:cpu0;3-:cpu1
ranges must ascend from layer 0 without gaps
END
}

test_cache_formats() {
    # shellcheck disable=SC2086
    ds run -m $small $one --kernels pinned,pinned+cache=fp8-e4m3 --no-record
    expect 1
    has "$dir/out" "first drift   layer 0 kv_write/k, cache/fp8-e4m3: origin"
    has "$dir/out" "lower-precision: its values fit in a 3-bit mantissa (fp8)"
    # Heads of 16 channels are blocks of 16.
    # shellcheck disable=SC2086
    ds run -m $small $one --kernels pinned,pinned+cache=q8 -o "$dir/q8.h5"
    expect 1
    has "$dir/out" "first drift   layer 0 kv_write/k, cache/q8: origin"
    ds explain "$dir/q8.h5"
    expect 0
    has "$dir/out" "every value of B is a whole number of steps of its block's scale, 8 bits in blocks of 16"
    # Heads of 80 are blocks of 32, 32 and 16.
    # shellcheck disable=SC2086
    ds run -m random:llama,layers=2,hidden=160,heads=2,kv_heads=2,ffn=64,vocab=128 $one --kernels pinned,pinned+cache=q4 -o "$dir/q4.h5"
    expect 1
    ds explain "$dir/q4.h5"
    expect 0
    has "$dir/out" "every value of B is a whole number of steps of its block's scale, 4 bits in blocks of 32"
    ds check cache/q4 --shape width=64 --threads 1,2
    expect 0
}

test_packed_weights() {
    for set in pinned split; do
        # shellcheck disable=SC2086
        ds run -m $small $one --kernels $set --tp 2 --digest-packed -o "$dir/$set.h5"
        expect 0
        hasnt "$dir/out" "did not always pack alike"
    done
    ds diff "$dir/pinned.h5" "$dir/pinned.h5"
    expect 0
    hasnt "$dir/out" "packed weight"
    ds run --resume "$dir/pinned.h5" -m $small --digest-packed
    expect 2
    has "$dir/err" "--digest-packed cannot be given with --resume"
}

run_tests
