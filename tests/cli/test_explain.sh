# test_explain.sh: driftscope explain: both sides of a drift are reproduced bit for bit, by the kernels that made them.
. tests/cli/lib.sh

model=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512
prompt=5,9,200,31,7,400,77,12,3

# record ARGUMENT...: $dir/r.h5, with a drift in it.
record() {
    ds run -m $model --tokens $prompt -n 3 --repeat 1 --threads 1 --slot first --chunk 0 --mode prefill -o "$dir/r.h5" -q "$@"
    expect 1
}

# The own kernels of both sides give all drifting elements: A and B in the first two columns of results.
both_reproduced() {
    has "$dir/out" "rounding-order: the measured orders, in f32 on the same inputs, give every bit of both sides"
}

test_split_against_itself() {
    record --kernels split --batch 1,4,8
    ds explain "$dir/r.h5" -m $model
    expect 0
    has "$dir/out" "layer 0 q_proj: origin"
    has "$dir/out" "matmul/split-k"
    both_reproduced
}

test_two_kernel_sets() {
    record --kernels pinned,pinned+matmul=split-k --batch 1
    ds explain "$dir/r.h5" -m $model
    expect 0
    both_reproduced
    ds explain "$dir/r.h5" -m $model --json
    expect 0
    has "$dir/out" '"schema":"driftscope.explain/1"'
    has "$dir/out" '"reproduced_a":true,"reproduced_b":true'
}

test_openblas() {
    ds kernels matmul
    grep -q "matmul/openblas .*yes$" "$dir/out" || skip "no OpenBLAS here"
    record --kernels vendor,vendor+matmul=pinned --batch 1
    ds explain "$dir/r.h5" -m $model
    expect 0
    both_reproduced
}

test_another_model_is_refused() {
    record --kernels pinned,pinned+matmul=split-k --batch 1
    ds explain "$dir/r.h5" -m $model,seed=8
    expect 2
    has "$dir/err" "is not the record's model: token_embd.weight has other weights"
    has "$dir/err" "the record was made with '$model'"
}

test_no_values() {
    record --kernels pinned,split --batch 1 --dump none
    ds explain "$dir/r.h5" -m $model
    expect 2
    has "$dir/err" "the record has no values of both sides"
    has "$dir/err" "record with --dump origins"
}

test_no_drift() {
    ds run -m $model --tokens $prompt -n 1 --repeat 2 --threads 1 --slot first --chunk 0 --mode prefill --kernels pinned \
        --batch 1 -o "$dir/s.h5" -q
    expect 0
    ds explain "$dir/s.h5" -m $model
    expect 2
    has "$dir/err" "nothing to explain: no row differs"
}

# Compiled and run with nothing but libhdf5; what it prints are both sides' bits.
test_reproducer() {
    need pkg-config
    record --kernels pinned,pinned+matmul=split-k --batch 1
    ds explain "$dir/r.h5" -m $model --reproducer "$dir/drift"
    expect 0
    has "$dir/out" "drift/reproduce.c: its first lines say how to compile it"
    [ "$(ls "$dir/drift")" = "reproduce.c
reproduce.h5" ]
    # shellcheck disable=SC2046
    ${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -ffp-contract=off $(pkg-config --cflags hdf5-serial) -o "$dir/reproduce" \
        "$dir/drift/reproduce.c" $(pkg-config --libs hdf5-serial) -ldl -lm
    run "$dir/reproduce" "$dir/drift/reproduce.h5"
    expect 0
    has "$dir/out" "A: kernels pinned: matmul/pinned, 9 rows in the call, 1 thread"
    elements=$(sed -n 's/^adding in .* in \([0-9]*\) of \([0-9]*\) elements, .* B in \([0-9]*\)$/\1 \2 \3/p' "$dir/out")
    [ -n "$elements" ]
    # shellcheck disable=SC2086
    set -- $elements
    [ "$1" -gt 0 ] && [ "$1" = "$2" ] && [ "$1" = "$3" ]
    hasnt "$dir/out" "not reproduced"
    # Other data, and it says so.
    run "$dir/reproduce" "$dir/r.h5"
    expect 2
    has "$dir/err" "the file lacks 'op'"
}

test_reproducer_folder() {
    record --kernels pinned,pinned+rmsnorm=rows --batch 1
    mkdir "$dir/there"
    ds explain "$dir/r.h5" -m $model --reproducer "$dir/there"
    expect 2
    has "$dir/err" "is there already"
    has "$dir/err" "--force writes it anew"
    ds explain "$dir/r.h5" -m $model --reproducer "$dir/there" --force
    expect 0
    [ -s "$dir/there/reproduce.h5" ]
    echo mine >"$dir/there/notes"
    ds explain "$dir/r.h5" -m $model --reproducer "$dir/there" --force
    expect 2
    has "$dir/err" "has other files in it, such as 'notes'"
    has "$dir/there/notes" mine
    ds explain "$dir/r.h5" -m $model --force
    expect 2
    has "$dir/err" "--force is for --reproducer"
}

run_tests
