# test_scores.sh: run --scores from outside: beside every schedule, resumed, compared, refused.
. tests/cli/lib.sh

small=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512,ctx=96
plain="--tokens 5,9,1,44,23,8,2,60,31 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill -n 3"

# sweep ARGUMENT...
sweep() {
    # shellcheck disable=SC2086
    ds run -q -m $small $plain "$@"
}

test_pinned_scores_are_the_same_in_every_schedule() {
    sweep --repeat 2 --scores --kernels pinned --dtype f32,f16 --batch 1,4 --threads 1,2 --chunk 0,2 --prefix 0,4 --rollback 0,2 \
        --padding 0,3,3r --place 'one,layers=0:cpu0;1:cpu1' --mode prefill,decode --poison -o "$dir/a.h5"
    expect 0
    has "$dir/out" "custom/recomputed"
    has "$dir/out" "the answer is the same without them"
    ds show "$dir/a.h5" --site 1,attn_probs
    expect 0
    has "$dir/out" "layer 1 attn_probs (custom, f32, 48 wide)"
}

test_they_change_no_other_row() {
    sweep --repeat 1 --kernels vendor --dtype f16 -o "$dir/without.h5"
    sweep --repeat 1 --kernels vendor --dtype f16 --scores -o "$dir/with.h5"
    ds diff "$dir/without.h5" "$dir/with.h5"
    expect 0
    has "$dir/out" "layer 0 attn_scores: none in A, recorded in B"
    # Of other steps: their rows are of another width, and the rest is compared.
    sweep --repeat 1 --kernels vendor --dtype f16 --scores -n 5 -o "$dir/longer.h5"
    ds diff "$dir/with.h5" "$dir/longer.h5" --partial
    expect 0
    has "$dir/out" "layer 1 attn_probs: rows of 48 in A, rows of 56 in B"
}

test_resume_and_refusals() {
    sweep --repeat 2 --kernels pinned --scores --batch 1,2 -o "$dir/a.h5"
    expect 0
    ds run -q --resume "$dir/a.h5" -m $small --scores
    expect 2
    has "$dir/err" "--scores cannot be given with --resume"
    ds run -q --resume "$dir/a.h5" -m $small
    expect 0
    has "$dir/out" "custom/recomputed"
    sweep --scores --sites resid -o "$dir/b.h5"
    expect 2
    has "$dir/err" "--scores and --sites resid exclude each other"
    [ ! -e "$dir/b.h5" ]
}

run_tests
