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

# Every op, also where inputs differ: each side's kernel gives its bits on its own inputs.
test_every_op() {
    record --kernels pinned,split+rope=fused+silu_mul=fused --batch 3 --slot middle --dump all --dump-rows 1000 --page-size 4 \
        --no-heal
    for site in 0,attn_norm 1,q_proj 1,q_rope 1,kv_write/k 1,attn_out 1,resid_attn 1,act 1,down logits; do
        ds explain "$dir/r.h5" $site -m $model --json
        expect 0
        has "$dir/out" '"reproduced_a":true,"reproduced_b":true'
    done
    has "$dir/out" '"inputs_equal":false'
    ds explain "$dir/r.h5" 1,attn_out -m $model
    expect 0
    has "$dir/out" "values: "
    [ "$(tail -n 1 "$dir/out")" = "explain: layer 1 attn_out: its inputs differ already; each side's own kernel gives its bits on its own inputs" ]
}

test_lower_precision() {
    record --kernels pinned,pinned+matmul=tf32 --batch 1
    ds explain "$dir/r.h5" -m $model
    expect 0
    [ "$(tail -n 1 "$dir/out")" = "explain: layer 0 q_proj: lower-precision: the measured orders give every bit of both sides, and B's has inputs rounded to TF32" ]
    record --kernels pinned,pinned+matmul=q8 --batch 1 --force
    ds explain "$dir/r.h5" -m $model
    has "$dir/out" "B is "
    has "$dir/out" "with x and weights in 8-bit blocks of 32"
}

# Sums over ranks; parts of a sum.
test_ranks() {
    four=random:llama,layers=2,hidden=64,heads=4,kv_heads=4,ffn=128,vocab=512
    record -m $four --kernels pinned,pinned+matmul=split-k --tp 2 --batch 1 --dump all --dump-rows 100
    ds explain "$dir/r.h5" 0,o_proj/r1 -m $four --json
    expect 0
    has "$dir/out" '"reproduced_a":true,"reproduced_b":true'
    ds explain "$dir/r.h5" 0,allreduce/o_proj -m $four --json
    expect 0
    has "$dir/out" '"reproduced_a":true,"reproduced_b":true'
    has "$dir/out" '"words":"'
}

# A sum on one rank against the same on two: both sides' inputs are dumped, though only one has ranks.
test_one_rank_against_two() {
    four=random:llama,layers=1,hidden=64,heads=4,kv_heads=4,ffn=128,vocab=512
    for ranks in 1,2 2,1; do
        record -m $four --kernels pinned --tp $ranks --batch 1 --force
        ds explain "$dir/r.h5" -m $four
        expect 0
        has "$dir/out" "layer 0 o_proj: origin"
        has "$dir/out" "their inputs are equal"
        has "$dir/out" "explain: layer 0 o_proj: rounding-order: "
    done
    record -m $four --kernels pinned --tp 1,2 --batch 1 --dtype bf16 --force
    ds explain "$dir/r.h5" -m $four
    expect 0
    has "$dir/out" "explain: layer 0 o_proj: lower-precision: the measured orders give every bit of both sides"
    has "$dir/out" ", and B's has partial sums of ranks rounded to bf16"
}

# A cache of blocks of few bits.
test_blocks_of_few_bits() {
    two=random:llama,layers=1,hidden=64,heads=2,kv_heads=2,ffn=128,vocab=512
    for bits in 8 4; do
        record -m $two --kernels pinned,pinned+cache=q$bits --batch 1 --force
        ds explain "$dir/r.h5" -m $two
        expect 0
        has "$dir/out" "explain: layer 0 kv_write/k: lower-precision: every value of B is a whole number of steps of its block's scale, $bits bits in blocks of 32"
    done
}

# One scale for the whole call: the row alone does not tell.
test_row_depends_on_others() {
    plugin=$(dirname "$driftscope")/specimens/specimens.so
    [ -f "$plugin" ] || skip "the specimens are not built"
    record --plugin "$plugin" --kernels pinned+matmul=call-scale --batch 1,2 --neighbours varied --tokens 30,31,32
    ds explain "$dir/r.h5" -m $model --plugin "$plugin"
    expect 0
    has "$dir/out" "explain: layer 0 q_proj: wrong-data: a row of B depends on what the other rows of its call hold"
    ds explain "$dir/r.h5" -m $model --plugin "$plugin" --json
    has "$dir/out" '"kind":"wrong-data","why":"a row of B depends on'
}

# Experts: a row of one expert's call, the sum of experts, the one that every row passes; norms of each head.
test_experts() {
    sizes=layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512,experts=8,top_k=2
    record -m random:qwen3moe,$sizes --kernels pinned,split+rmsnorm=rows+combine=reference --batch 1,4
    for site in 0,q_norm 0,k_norm 0,router_logits 0,gate/e0 1,up/e1 0,expert_out/e1 0,moe_combine; do
        ds explain "$dir/r.h5" $site -m random:qwen3moe,$sizes --json
        expect 0
        has "$dir/out" '"reproduced_a":true,"reproduced_b":true'
        has "$dir/out" '"kind":"rounding-order","why":"the measured orders, in f32 on the same inputs, give every bit'
    done
    ds explain "$dir/r.h5" 0,gate/e0 -m random:qwen3moe,$sizes
    has "$dir/out" " and went to expert "
    # Many rows of one expert in a call: each in its place.
    record -m random:qwen2moe,$sizes --kernels pinned,pinned+matmul=stream-k --batch 4 --dump all --dump-rows 100 --force
    for site in 0,gate/e0 0,expert_out/e1 0,gate/shared 0,act/e0 0,expert_out/shared 0,moe_combine; do
        ds explain "$dir/r.h5" $site -m random:qwen2moe,$sizes --json
        expect 0
        has "$dir/out" '"reproduced_a":true,"reproduced_b":true'
    done
}

# Sites whose inputs differ already: B is the healed pass, and what only inherits has no reason of its own.
test_healed() {
    record --kernels pinned,split --batch 1
    for site in 1,attn_norm 1,q_proj 1,attn_out logits; do
        ds explain "$dir/r.h5" $site -m $model --json
        expect 0
        has "$dir/out" '"reproduced_a":true,"reproduced_b":true'
        has "$dir/out" '"inputs_equal":true'
        has "$dir/out" '"healed":true'
        has "$dir/out" '"kind":"rounding-order"'
    done
    # Also where the rows of the pass that was not healed are dumped, with what their kernel read.
    record --kernels pinned,split --batch 1 --dump all --dump-rows 1000 --force
    ds explain "$dir/r.h5" 1,q_proj -m $model --json
    has "$dir/out" '"healed":true'
    has "$dir/out" '"kind":"rounding-order"'
    record --kernels pinned,split --batch 1 --force
    ds explain "$dir/r.h5" 1,resid_attn -m $model
    expect 2
    has "$dir/err" "layer 1 resid_attn only inherits: in the pass that was healed"
}

specimens() {
    plugin=$(dirname "$driftscope")/specimens/specimens.so
    [ -f "$plugin" ] || skip "the specimens are not built"
}

# Choices are made again from the logits that each side read, with rounded logits and with ties either way.
test_choices() {
    specimens
    moe=random:qwen3moe,layers=2,hidden=64,heads=4,kv_heads=2,experts=8,top_k=2,expert_ffn=48,vocab=256,router_scale=0.01
    ds run -m $moe --plugin "$plugin" --tokens 5,6,7,8,9,10,11,12,13,14,15,16 -n 2 --repeat 1 --batch 1 --threads 1 --kernels pinned,pinned+router=bf16 \
        --dump all --dump-rows 100 -o "$dir/r.h5" -q
    ds explain "$dir/r.h5" 0,router_ids -m $moe --plugin "$plugin"
    expect 0
    has "$dir/out" "choice of A   the 2 largest of the logits"
    has "$dir/out" "choice of B   the 2 largest of the logits rounded to bf16"
    has "$dir/out" "explain: layer 0 router_ids: selection-only: from equal logits A chose the 2 largest of the logits, B"
    ds run -m $moe --plugin "$plugin" --tokens 5,9,1 -n 2 --repeat 1 --batch 1 --threads 1 --kernels pinned,pinned+router=raw -o "$dir/w.h5" -q
    ds explain "$dir/w.h5" 0,router_ids/weights -m $moe --plugin "$plugin"
    expect 0
    has "$dir/out" "raw                A none, B all            A none, B all"
}

# Tokens that are drawn: both sides come out again with the sampler of their own record, and what differs is told.
test_drawn() {
    for side in a:0.8:1 b:0.7:1 c:0.8:9; do
        rest=${side#*:}
        ds run -m $model --tokens 5,9,200,31,7 -n 4 --kernels pinned --batch 1 --threads 1 --repeat 1 --dump all --dump-rows 100 \
            --temperature "${rest%:*}" --sample-seed "${rest#*:}" -o "$dir/${side%%:*}.h5" -q
        expect 0
    done
    ds explain "$dir/a.h5" "$dir/b.h5" -m $model
    expect 0
    has "$dir/out" "pinned             A all, B none            A none, B all"
    has "$dir/out" "sampler of B  temperature 0.7, repetition penalty 1, top-k 0, top-p 1, min-p 0, seed 1"
    has "$dir/out" "explain: layer 2 logits_processed: wrong-data: the samplers differ: temperature 0.8 against 0.7; with each side's, its own kernel gives its bits"
    ds explain "$dir/a.h5" "$dir/c.h5" -m $model --json
    expect 0
    has "$dir/out" '"stage":"token"'
    has "$dir/out" '"reproduced_a":true,"reproduced_b":true'
    has "$dir/out" '"kind":"selection-only","why":"the samplers differ: seed 1 against 9; with each side'
}

# What is handed on between kernels: copies, counts, results.
test_between_kernels() {
    specimens
    record --plugin "$plugin" --place layers=0:cpu0,1-:cpu1 --kernels pinned,pinned+transfer=bf16-copy --batch 1
    ds explain "$dir/r.h5" -m $model --plugin "$plugin"
    expect 0
    has "$dir/out" "bf16-copy          A none, B all            A none, B all"
    has "$dir/out" "copy of A     all 512 elements are what was read"
    has "$dir/out" "explain: layer 1 transfer/dst: lower-precision: of B 512 of 512 elements are not what was read"
    record --plugin "$plugin" --kernels pinned,pinned+process=penalty --batch 1 --force
    ds explain "$dir/r.h5" -m $model --plugin "$plugin" --json
    expect 0
    has "$dir/out" '"reproduced_a":true,"reproduced_b":true'
    record --plugin "$plugin" --rollback 0,2 -n 6 --kernels pinned+schedule=trim-one --batch 1 --force
    ds explain "$dir/r.h5" -m $model --plugin "$plugin"
    expect 0
    has "$dir/out" "replay        not replayed: a schedule goes by what earlier calls left of every request"
    has "$dir/out" "as the rows stand: A in "
    has "$dir/out" "explain: positions: wrong-data: whole numbers differ"
}

# Attention along the measured trees of its scores, denominator and values: every variant, one against the other.
test_attention_orders() {
    for pair in pinned,vendor tile-by-qlen,stock split-kv,reference; do
        record --kernels "pinned+attention=${pair%,*},pinned+attention=${pair#*,}" --batch 1 --force
        ds explain "$dir/r.h5" -m $model
        expect 0
        has "$dir/out" "explain: layer 0 attn_out: rounding-order: the measured orders, in f32 on the same inputs, give every bit of both sides, A with "
        hasnt "$dir/out" "not replayed"
    done
    ds explain "$dir/r.h5" -m $model --json
    has "$dir/out" '"not_replayed":null'
}

# A sum over ranks is made again of the ranks' matmuls and their allreduce.
test_sum_over_ranks() {
    wide=random:llama,layers=2,hidden=96,heads=6,kv_heads=3,ffn=192,vocab=512
    for dtype in f32 bf16; do
        record -m $wide --tp 1,3 --batch 1 --dtype $dtype --kernels pinned --force
        ds explain "$dir/r.h5" -m $wide
        expect 0
        has "$dir/out" "1 thread, shared among 3 ranks, which allreduce/pinned adds"
        has "$dir/out" "ranks: one chain of 3 ranks in ascending order"
        has "$dir/out" "pinned             A all, B none            A none, B all"
        [ $dtype = f32 ] || has "$dir/out" "lower-precision: the measured orders give every bit of both sides, and B's has partial sums of ranks"
    done
}

# Two records: B is the second one's arm with the same setting. A run alone keeps no row, unless it is told to.
test_two_records() {
    for side in a b; do
        set -- pinned all
        [ $side = a ] || set -- pinned+matmul=split-k all
        ds run -m $model --tokens $prompt -n 2 --repeat 1 --batch 1 --threads 1 --kernels $1 --dump $2 --dump-rows 200 -o "$dir/$side.h5" -q
        ds run -m $model --tokens $prompt -n 2 --repeat 1 --batch 1 --threads 1 --kernels $1 -o "$dir/$side-bare.h5" -q
    done
    ds explain "$dir/a.h5" "$dir/b.h5" -m $model --json
    expect 0
    has "$dir/out" '"factor":"record"'
    has "$dir/out" '"reproduced_a":true,"reproduced_b":true'
    has "$dir/out" '"kind":"rounding-order","why":"the measured orders, in f32 on the same inputs, give every bit'
    ds explain "$dir/b.h5" "$dir/a.h5" 0,k_proj -m $model
    expect 0
    has "$dir/out" "A             record A: matmul/split-k, "
    has "$dir/out" "B             record B: matmul/pinned, "
    has "$dir/out" "explain: layer 0 k_proj: rounding-order"
    ds explain "$dir/a-bare.h5" "$dir/b-bare.h5" -m $model # a few rows of a run without a reference are kept
    expect 0
    has "$dir/out" "explain: layer 0 q_proj: rounding-order: the measured orders"
    ds run -m $model --tokens $prompt -n 2 --repeat 1 --batch 1 --threads 1 --kernels pinned --dump none -o "$dir/none.h5" -q
    ds explain "$dir/none.h5" "$dir/b.h5" -m $model
    expect 2
    has "$dir/err" "record both runs with --dump all"
    ds explain "$dir/a.h5" "$dir/gone.h5" 0,q_proj -m $model
    expect 2
    has "$dir/err" "gone.h5' is no record"
    ds explain "$dir/a.h5" "$dir/a.h5" -m $model
    expect 2
    has "$dir/err" "nothing to explain: no row differs"
}

# A kernel without an order: what its launches give is counted.
# Behind the first difference the inputs of both records differ; their heal trials had equal ones.
test_two_records_healed() {
    deep=random:llama,layers=3,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=128
    for threads in 1 4; do
        ds run -m $deep --tokens 5,6,7,8 --batch 1 -n 2 --repeat 1 --kernels pinned,split --threads $threads --dump all --dump-rows 1000 \
            --chunk 0 --mode prefill -o "$dir/$threads.h5" -q
        expect 1
    done
    ds explain "$dir/1.h5" "$dir/4.h5" 3,final_norm -m $deep
    expect 0
    has "$dir/out" "final_norm: inherited; here from the pass that was healed"
    has "$dir/out" "record B: rmsnorm/split, 1 row in the call, 4 threads"
    both_reproduced
    # Arms of one of the records are no pair of records, though layer 0 q_proj differs in both.
    ds explain "$dir/1.h5" "$dir/4.h5" 0,q_proj -m $deep
    expect 2
    has "$dir/err" "layer 0 q_proj: no row differs in any arm"
}

test_repeats() {
    ds run -m $model --tokens $prompt -n 2 --repeat 4 --threads 2 --slot first --chunk 0 --mode prefill --batch 1 \
        --kernels pinned+matmul=atomic --dump all -o "$dir/u.h5" -q
    expect 1
    ds explain "$dir/u.h5" -m $model
    expect 0
    has "$dir/out" "order of A    none: "
    has "$dir/out" "in 32 launches "
    has "$dir/out" "4 trials gave these "
}

real_model() {
    [ -f "${DRIFTSCOPE_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/driftscope}/SmolLM2-135M-Instruct.Q4_1.gguf" ] ||
        skip "the real model is not in the cache"
}

# real NAME OPTION...: a record of the real model; 1 when nothing drifts, or it cannot be run here.
real() {
    name=$1
    shift
    ds run --tokens 504,2365,6354,16438 -n 1 --repeat 1 --threads 1 --slot first --chunk 0 --mode prefill "$@" -o "$dir/$name.h5" -q
    [ "$code" -eq 1 ]
}

# every_bit NAME ARM SITE...: both sides of every site come out bit for bit, from the kernel and from the measured orders.
every_bit() {
    name=$1 arm=$2
    shift 2
    for site in "$@"; do
        ds explain "$dir/$name.h5" "$site" --arm "$arm" --json
        expect 0
        has "$dir/out" '"reproduced_a":true,"reproduced_b":true'
        has "$dir/out" '"kind":"rounding-order","why":"the measured orders, in f32 on the same inputs, give every bit'
    done
}

# Matmuls of the real model, some of each shape: OpenBLAS by batch on each core that this processor runs, one core against
# another, pinned against split.
test_real_model() {
    real_model
    cores=
    for core in Haswell Zen; do
        real $core --batch 1,4,8 --blas-core $core || continue
        cores="$cores $core"
        every_bit $core 1 0,q_proj
        every_bit $core 2 14,down
    done
    [ -n "$cores" ] || skip "no OpenBLAS here whose bits depend on the batch"
    ! real two --batch 1 --blas-core Haswell,Sandybridge || every_bit two 1 29,gate logits
}

test_real_model_pinned_against_split() {
    real_model
    real own --batch 1 --kernels pinned,split
    every_bit own 1 12,up 29,o_proj
}

# show SITE ARGUMENT...: the program is written, compiled with nothing but libhdf5 and run: both sides' bits come out.
show() {
    site=$1
    shift
    rm -rf "$dir/drift"
    ds explain "$dir/r.h5" "$site" --reproducer "$dir/drift" "$@"
    [ -d "$dir/drift" ]
    # shellcheck disable=SC2046
    ${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -ffp-contract=off $(pkg-config --cflags hdf5-serial) -o "$dir/reproduce" \
        "$dir/drift/reproduce.c" $(pkg-config --libs hdf5-serial) -ldl -lm
    run "$dir/reproduce" "$dir/drift/reproduce.h5"
    expect 0
    hasnt "$dir/out" "not reproduced"
}

# gives SIDE: all its elements.
gives() {
    elements=$(sed -n "s/^.* gives $1 bit for bit in \([0-9]*\) of \([0-9]*\) elements\$/\1 \2/p" "$dir/out")
    [ -n "$elements" ] && [ "${elements% *}" -gt 0 ] && [ "${elements% *}" = "${elements#* }" ]
}

# Four parts of two slots, of which a row of seven sees three and a half: what merging them leaves looks like sums in 16 bits.
test_real_model_attention_in_parts() {
    real_model
    ds run -m smollm2 --tokens 504,2365,6354,16438,28,411,9,1200 -n 0 --repeat 1 --threads 1 --slot first --chunk 0 --mode prefill --batch 1 \
        --kernels pinned+attention=stock,pinned+attention=tile-by-qlen -o "$dir/parts.h5" -q
    expect 1
    every_bit parts 1 0,attn_out
}

test_reproducer() {
    need pkg-config
    record --kernels pinned,pinned+matmul=split-k --batch 1
    show 0,q_proj -m $model
    [ "$(ls "$dir/drift")" = "reproduce.c
reproduce.h5" ]
    has "$dir/out" "A: kernels pinned: matmul/pinned, 9 rows in the call, 1 thread"
    gives A
    gives B
    # Other data, and it says so.
    run "$dir/reproduce" "$dir/r.h5"
    expect 2
    has "$dir/err" "the file lacks 'op'"
    # It notices bits that are not those of its terms.
    need h5dump
    cp "$dir/drift/reproduce.h5" "$dir/other.h5"
    at=$(h5dump -H -p -d /b "$dir/other.h5" | sed -n 's/.*OFFSET \([0-9]*\).*/\1/p')
    printf '\001\002' | dd of="$dir/other.h5" bs=1 seek="$at" conv=notrunc 2>/dev/null
    run "$dir/reproduce" "$dir/other.h5"
    expect 1
    has "$dir/out" "not reproduced"
}

# Attention: scores, weights and values by their orders, of every way to merge parts; also a window.
test_reproducer_of_attention() {
    need pkg-config
    for pair in split-kv,pinned vendor,pinned tile-by-qlen,stock; do
        record --kernels "pinned+attention=${pair%,*},pinned+attention=${pair#*,}" --batch 1 --force
        show 0,attn_out -m $model
        gives A
        gives B
    done
    specimens
    short=$model,window=4
    record -m $short --plugin "$plugin" --kernels pinned,pinned+attention=window-4-too --batch 1 --force
    show 0,attn_out -m $short --plugin "$plugin"
    gives A
    gives B
}

test_reproducer_of_every_sum() {
    need pkg-config
    four=random:llama,layers=2,hidden=64,heads=4,kv_heads=4,ffn=128,vocab=512
    for dtype in f32 bf16; do
        record -m $four --tp 1,2 --batch 1 --dtype $dtype --kernels pinned --force
        show 0,o_proj -m $four
        gives A
        gives B
    done
    record --kernels pinned,pinned+rmsnorm=rows --batch 1 --force
    show 0,attn_norm -m $model
    gives A
    gives B
    moe=random:qwen3moe,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512,experts=8,top_k=3
    record -m $moe --kernels pinned,pinned+combine=reference --batch 1 --force
    show 0,moe_combine -m $moe
    gives A
    gives B
}

# Elements that stand alone: the ways to compute them.
test_reproducer_of_elements() {
    need pkg-config
    record --kernels pinned,pinned+rope=reference+silu_mul=reference --batch 1
    ds explain "$dir/r.h5" 0,q_rope -m $model
    expect 0
    has "$dir/out" "formula of A  FMA(own channel, cos, other channel * sin)"
    has "$dir/out" "explain: layer 0 q_rope: different-algorithm: every bit of both sides comes out when A is FMA(own channel, cos, other channel * sin), B both products rounded, then their sum"
    show 0,q_rope -m $model
    gives A
    gives B
    show 0,act -m $model
    gives A
    gives B
}

# Wrong data: what should have been read gives A, what is thought to have been read gives B, bit for bit or nearly.
test_reproducer_of_wrong_data() {
    need pkg-config
    specimens
    record --plugin "$plugin" --kernels pinned+matmul=inner-product,pinned+matmul=transposed --batch 1
    show 0,q_proj -m $model --plugin "$plugin"
    has "$dir/out" "B: the weights are read the other way round (transposed)"
    gives A
    gives B
    record --plugin "$plugin" --kernels pinned,pinned+matmul=lost-product --batch 1 --dump all --dump-rows 100 --force
    show 0,q_proj -m $model --plugin "$plugin"
    has "$dir/out" "B: when the terms k = 63..63 are missing in 9 of 12 rows, the exact result is within "
    gives A
    hasnt "$dir/out" "gives B bit for bit"
    record --plugin "$plugin" --kernels pinned,pinned+rope=other-pairs+silu_mul=clamped-gate+attention=keys-as-values --batch 1 --force
    for site in 0,q_rope 0,attn_out 0,act; do
        show $site -m $model --plugin "$plugin"
        has "$dir/out" "B: its arithmetic is not known: "
        gives A
    done
    record --kernels pinned,pinned+matmul=q8 --batch 1 --force
    show 0,q_proj -m $model
    has "$dir/out" "B: when x and the weights are rounded to 8-bit blocks of 32, the exact result is within "
    gives A
}

test_reproducer_is_refused() {
    specimens
    moe=random:qwen3moe,layers=2,hidden=64,heads=4,kv_heads=2,experts=8,top_k=2,expert_ffn=48,vocab=256,router_scale=0.01
    ds run -m $moe --plugin "$plugin" --tokens 5,6,7,8,9,10,11,12,13,14,15,16 -n 2 --repeat 1 --batch 1 --threads 1 --kernels pinned,pinned+router=bf16 \
        --dump all --dump-rows 100 -o "$dir/r.h5" -q
    ds explain "$dir/r.h5" 0,router_ids -m $moe --plugin "$plugin" --reproducer "$dir/drift"
    expect 2
    has "$dir/err" "--reproducer: outputs of this op are choices, not values"
    record --kernels pinned,split --batch 1 --no-heal --dump all --dump-rows 100 --force
    ds explain "$dir/r.h5" 1,q_proj -m $model --reproducer "$dir/drift"
    expect 2
    has "$dir/err" "--reproducer: the inputs of both sides differ already"
    [ ! -e "$dir/drift" ]
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

# A limit on file sizes stands for a full disk: the reason is told, and nothing of the folder stays.
test_reproducer_on_a_full_disk() {
    record --kernels pinned,pinned+matmul=split-k --batch 1
    for blocks in 2 48; do # the program does not fit; it does, and the data does not
        code=0
        (ulimit -f $blocks; exec "$driftscope" explain "$dir/r.h5" -m $model --reproducer "$dir/drift") >/dev/null 2>"$dir/err" ||
            code=$?
        expect 2
        grep -Eqi "cannot write '.*/reproduce\.(c|h5)': file too large" "$dir/err"
        set -- "$dir"/drift*
        [ ! -e "$1" ]
    done
}

run_tests
