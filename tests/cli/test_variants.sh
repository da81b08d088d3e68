# test_variants.sh: the kernels that drift on purpose, from outside.
. tests/cli/lib.sh

small=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512

test_split_drifts_with_the_batch() {
    ds run -m $small --kernels split --threads 1 --no-record -q
    expect 1
    grep -Eq '^matmul/split-k +same +1-4\|8\|16 +same +same ' "$dir/out"
    has "$dir/out" "switches      matmul/split-k gives other bits from M = 8, 16 rows in the call"
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "rounding-order; stable over 3 repeats"
}

test_atomic_is_unstable_and_no_batch_drift() {
    # The rest of the vendor's set needs no library once its matmul is another.
    ds run -m $small --kernels vendor+matmul=atomic --threads 1,2 --no-record -q
    expect 1
    grep -Eq '^matmul/atomic +unstable +unstable ' "$dir/out"
    has "$dir/out" "unstable"
    hasnt "$dir/out" "switches"
    if grep -q '^batch .*digests differ' "$dir/out"; then
        say "batch is blamed:"
        cat "$dir/out" >&2
        return 1
    fi
}

test_ticket_is_stable_for_one_number_of_threads() {
    ds run -m $small --kernels vendor+matmul=ticket --threads 1 --no-record -q
    expect 0
    ds run -m $small --kernels vendor+matmul=ticket --threads 2 --no-record -q
    expect 0
    ds run -m $small --kernels vendor+matmul=ticket --threads 1,2 --no-record -q
    expect 1
    grep -Eq '^matmul/ticket +same +same +same +same +1\|2 ' "$dir/out"
}

run_tests
