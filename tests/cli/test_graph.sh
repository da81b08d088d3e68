# test_graph.sh: --graph: calls captured as graphs of the device sim and launched again.
. tests/cli/lib.sh

small=random:llama,layers=2,hidden=32,heads=2,kv_heads=1,ffn=48,vocab=64
one="--tokens 5,1,40,7,22,9,11,3,60,2,18,33,27,6,50,14,45,8 --repeat 2 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill --device sim"

test_pinned_is_the_same() {
    # shellcheck disable=SC2086
    ds run -m $small $one -n 5 --batch 1,3 --kernels pinned --graph off,on --dtype f32,bf16 --no-record
    expect 0
    has "$dir/out" "graph         no difference over"
    # Chunks and padding are shapes of their own.
    # shellcheck disable=SC2086
    ds run -m $small $one -n 3 --batch 2 --kernels pinned --graph on --chunk 0,7 --padding 0,3 --neighbours varied --slot first,last \
        --no-record
    expect 0
}

# A call that is captured says that its sequences may grow as long as the cache: more parts of KV than one that is not.
test_split_kv_is_cut_otherwise() {
    # shellcheck disable=SC2086
    ds run -m $small $one -n 24 --batch 1 --kernels split --graph off,on --no-record
    expect 1
    has "$dir/out" "graph on against off"
    has "$dir/out" "attention/split-kv"
    has "$dir/out" "attention/split-kv: origin"
    has "$dir/err" "arm 1 is not healed: in a captured call no row can be changed between kernels"
}

test_atomics_stay_unstable() {
    # shellcheck disable=SC2086
    ds run -m random:llama,layers=1,hidden=64,heads=2,ffn=128,vocab=64 $one -n 2 --repeat 5 --batch 1 --kernels atomic --graph on --no-record
    expect 1
    has "$dir/out" "drift: unstable, first at layer 0 down, matmul/atomic"
}

# What a launch function takes from the host is that of the capture: right at the first decode step, wrong from the second on.
test_stale_values_show() {
    need g++
    g++ -std=c++20 -O2 -fPIC -ffp-contract=off -fno-exceptions -fno-rtti -I. -shared -x c++ -o "$dir/stale.so" tests/tools/stale_attention.cu
    # shellcheck disable=SC2086
    ds run -m $small $one -n 4 --batch 1,2 --kernels pinned+attention=fresh --graph off,on --plugin "$dir/stale.so" --no-record
    expect 0
    has "$dir/out" "graph         no difference over"
    # shellcheck disable=SC2086
    ds run -m $small $one -n 4 --batch 1 --kernels pinned+attention=stale --graph off,on --plugin "$dir/stale.so" -o "$dir/a.h5"
    expect 1
    has "$dir/out" "first drift   layer 0 attn_out, attention/stale: origin"
    has "$dir/out" "graph on against off; decode"
    has "$dir/out" "from step 2, request 0, position 19 on"
    # One decode step is a capture; the second launches it again.
    # shellcheck disable=SC2086
    ds run -m $small $one -n 1 --batch 1 --kernels pinned+attention=stale --graph off,on --plugin "$dir/stale.so" --no-record
    expect 0
}

# The lab's launches, as graphs.
test_the_lab() {
    ds check rmsnorm/pinned --device sim --graph on --shape width=40 --threads 1
    expect 0
    has "$dir/out" "holds over"
    hasnt "$dir/out" "broken"
    ds order matmul/split-k --device sim --graph on --shape n=20,k=512 --rows 1,9
    expect 0
    has "$dir/out" "replaying them gives 100 % of the outputs bit for bit"
    ds order attention/pinned --device sim --graph on --shape heads=2,kv_heads=1,head_dim=16 --kv 40
    expect 0
    ds check add --graph on --shape width=8 --threads 1
    expect 2
    has "$dir/err" "--graph on: the CPU has no graphs"
}

test_what_cannot_be_captured() {
    while read -r options; do
        read -r message
        # shellcheck disable=SC2086
        ds run $one -m $small $options --no-record
        expect 2
        has "$dir/err" "$message"
    done <<'END'
--graph on --device cpu
--graph on: the CPU has no graphs
--graph on --place layers=0:sim;1-:cpu0 --kernels pinned
--graph on: a call cannot be captured: --place copies rows
--graph on --poison
--graph on: a call cannot be captured: --poison waits for every launch
--graph maybe
option '--graph': bad value 'maybe'
END
    # shellcheck disable=SC2086
    ds run $one -m random:qwen3moe,layers=1,hidden=32,heads=2,experts=4,top_k=2,vocab=64 --graph on --no-record
    expect 2
    has "$dir/err" "the host sorts the rows of experts"
}

run_tests
