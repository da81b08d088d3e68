# test_schedules.sh: prefix hits, rejected drafts, padding and far positions from outside: what is refused, what a
# record keeps.
. tests/cli/lib.sh

small=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512,ctx=96
tokens=5,9,1,44,23,8,2,60,31,7,12,3
plain="--slot first --neighbours copies --threads 1 --chunk 0 --mode prefill --repeat 2 -n 3"

# sweep ARGUMENT...: one over the new factors.
sweep() {
    # shellcheck disable=SC2086
    ds run -q -m $small --tokens $tokens $plain "$@"
}

test_pinned_is_the_same_in_all_of_them() {
    sweep --kernels pinned --batch 1,4 --prefix 0,4,11 --rollback 0,2 --padding 0,3,3r --all-logits --position-offset 40 -o "$dir/a.h5"
    expect 0
    for factor in prefix rollback padding; do has "$dir/out" "$factor "; done
    has "$dir/out" "same: no difference"
    ds show "$dir/a.h5" --json
    expect 0
    for factor in prefix rollback padding; do has "$dir/out" "\"factor\": \"$factor\""; done
}

test_what_does_not_fit_is_refused_before_a_record_is_begun() {
    sweep --prefix 0,12 -o "$dir/a.h5"
    expect 2
    has "$dir/err" "--prefix 12: the subject's prompt has 12 tokens"
    has "$dir/err" "up to 11"
    sweep --padding 0,4x -o "$dir/a.h5"
    expect 2
    has "$dir/err" "--padding"
    sweep --rollback 0,9999 -o "$dir/a.h5"
    expect 2
    has "$dir/err" "--rollback"
    sweep --position-offset 90 -o "$dir/a.h5"
    expect 2
    has "$dir/err" "behind --position-offset"
    sweep --rollback 0,90 -o "$dir/a.h5"
    expect 2
    has "$dir/err" "105 positions; the model's context is 96"
    [ ! -e "$dir/a.h5" ]
}

run_tests
