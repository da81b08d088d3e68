# test_sim_faults.sh: kernels of sim with one fault each (tests/tools/faulty_kernels.cu): check and run name it, and the process goes on.
. tests/cli/lib.sh

# A sanitized program would turn signals into reports of its own.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}handle_segv=0:handle_sigill=0
export ASAN_OPTIONS

# As examples/device builds its plugin; once for all tests.
plugin=$(dirname "$driftscope")/tests/faulty_kernels.so
build() {
    need g++
    [ ! "$plugin" -nt tests/tools/faulty_kernels.cu ] || [ ! "$plugin" -nt "$driftscope" ] || return 0
    make -s -f examples/device/Makefile CXX=g++ HERE=tests/tools OUT="$dir" CPPFLAGS=-Werror "$dir/faulty_kernels.so"
    mkdir -p "$(dirname "$plugin")"
    mv "$dir/faulty_kernels.so" "$plugin"
}

# What check finds: of each variant its property and the words.
test_check() {
    build
    while IFS='|' read -r kernel shape words; do
        ds check "$kernel" --device sim --plugin "$plugin" --shape "$shape" --threads 1
        { expect 1 && has "$dir/out" "$words"; } || { say "$kernel"; return 1; }
    done <<'END'
add/outside|width=42|memory        broken: reads past the end of a (1 element behind it)
add/overflow|width=42|memory        broken: writes outside of y, at row 0, element 42, with 1 row
add/input|width=42|memory        broken: writes into its input a, at row 0, element 41
add/tail|width=42|memory        broken: leaves y unwritten at row 0, element 0
add/vector|width=42|stops at a trap: a misaligned address
add/null|width=42|reads at an illegal address, 0
add/stream|width=42|is launched on another stream than the call's
rmsnorm/barrier|width=150|check: rmsnorm/barrier claims repeat, broken
rmsnorm/mask|width=150|a shuffle at tests/tools/faulty_kernels.cu:
rmsnorm/divergent|width=150|divergent __syncthreads: 32 of 64 threads wait at
rmsnorm/race|width=150|check: rmsnorm/race claims repeat, broken
rmsnorm/arrival|width=150|check: rmsnorm/arrival claims repeat, broken
rmsnorm/unwritten|width=150|check: rmsnorm/unwritten fails sizes: width=1: row 0 of 1, element 0 is nan
rmsnorm/by-rows|width=150|rows 1 3-10 22-32 | 2 11-21 | 33-
matmul/layout|n=16,k=64|sizes         broken: n=1,k=1: row 0 of 1, element 0 is 0.00725483894 where 0.00723595741 is exact
END
    # Accuracy is no claim: it is told.
    ds check rmsnorm/low --device sim --plugin "$plugin" --shape width=150 --threads 1
    expect 0
    has "$dir/out" "accuracy      at most 4.24e+03 ULP off"
    # A launch that no device takes is a refusal; its reason is not lost where there is nothing else.
    ds check add/block --device sim --plugin "$plugin" --shape width=42 --threads 1
    expect 2
    has "$dir/out" "refusal       refuses: kernel add_faulty: no device takes this block: grid (1,1,1), block (2048,1,1)"
}

# In a pass: the site, the kernel, its launch, which memory. The base arm's fault is all there is to tell.
test_run() {
    build
    set -- -m random:llama,layers=1,hidden=48,heads=2,ffn=80,vocab=64 --tokens 1,2,3 --repeat 2 --slot first --neighbours copies --threads 1 \
        --chunk 0 --mode prefill -n 1 --device sim --no-record --plugin "$plugin"
    while IFS='|' read -r kernel words; do
        ds run "$@" --batch 1 --kernels "pinned+$kernel"
        { expect 2 && has "$dir/err" "$words"; } || { say "$kernel"; return 1; }
    done <<'END'
add=far-outside|layer 0 resid_attn: add/far-outside (plugin faulty_kernels.so): kernel add_faulty, block (
add=far-outside|reads at an illegal address: byte
add=before|of (4,1,1) blocks of (64,1,1) reads at an illegal address: byte -
add=overflow|kernel add_faulty on (4,1,1) blocks of (64,1,1) threads wrote byte 576 of residual rows, which has 576
add=null|reads at an illegal address, 0x
add=input|the kernel wrote into its input a
add=stream|is launched on another stream than the call's
add=block|no device takes this block
rmsnorm=mask|with mask 0000ffff is called by lane
rmsnorm=divergent|divergent __syncthreads
END
    # Graphs run the same launches: the fault is that of the call.
    ds run "$@" --batch 1 -n 3 --kernels pinned+add=overflow --graph on
    expect 2
    has "$dir/err" "kernel add_faulty on (4,1,1) blocks of (64,1,1) threads wrote byte 576 of residual rows, which has 576"
    # Another arm is not lost.
    ds run "$@" --batch 1 --kernels pinned,pinned+add=before
    expect 2
    has "$dir/out" "repeat        no difference over"
    has "$dir/err" "reads at an illegal address: byte -"
    while IFS='|' read -r want kernel words; do
        ds run "$@" --batch 1,3 --kernels "pinned+$kernel"
        { expect "$want" && has "$dir/out" "$words"; } || { say "$kernel"; return 1; }
    done <<'END'
1|add=tail|first at layer 0 resid_attn, position 0
2|rmsnorm=barrier|NaN or Inf from layer 0 attn_norm
2|rmsnorm=unwritten|NaN or Inf from layer 0 attn_norm
1|rmsnorm=race|drift: unstable, first at layer 0
1|rmsnorm=arrival|drift: unstable, first at layer 0
1|rmsnorm=by-rows|rmsnorm/by-rows, batch 3 (prefill, 9 rows in the call): rounding-order
END
}

# A kernel that never ends is ended.
test_never_ends() {
    build
    ds run -m random:llama,layers=1,hidden=16,heads=1,ffn=16,vocab=64 --tokens 1,2 --repeat 1 --slot first --neighbours copies --threads 1 \
        --chunk 0 --mode prefill --batch 1 --device sim --kernels pinned+add=forever --plugin "$plugin" --no-record --trial-timeout 3
    expect 2
    has "$dir/err" "layer 0 resid_attn: add/forever (plugin faulty_kernels.so)"
    has "$dir/err" "was ended after 3 s"
}

run_tests
