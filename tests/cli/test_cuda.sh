# test_cuda.sh: the library of the device cuda from outside, built by the C++ compiler against the CUDA runtime and the cublasLt of
# tests/cuda, which are made of sim: what it does with a driver's answers, and all of the path of the device cuda but the GPU.
. tests/cli/lib.sh

build=$(dirname "$driftscope")/tests/cuda
LD_LIBRARY_PATH=$build
export LD_LIBRARY_PATH
small=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=256,vocab=128,seed=7
one="--tokens 5,1,40,7 --repeat 2 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill"

# cuda WHAT ARGUMENT...: driftscope with the library, and what goes wrong there.
cuda() {
    what=$1
    shift
    run env DS_TEST_CUDA="$what" "$driftscope" "$@" --device-library "$build/libdriftscope_cuda.so"
}
# trial WHAT ARGUMENT...: a run on cuda.
trial() {
    what=$1
    shift
    # shellcheck disable=SC2086
    cuda "$what" run -m $small $one -n 2 --batch 1 --device cuda --kernels pinned --no-record "$@"
}

# A sanitized program has other objects, and libraries that must come first.
with_library() {
    [ -f "$build/libdriftscope_cuda.so" ] || skip "no library of tests/cuda here"
    ldd "$driftscope" >"$dir/libraries"
    ! grep -q -e libasan -e libubsan "$dir/libraries" || skip "the library is for programs without sanitizers"
}

test_pinned_gives_the_bits_of_the_cpu() {
    with_library
    # shellcheck disable=SC2086
    cuda '' run -m $small $one -n 3 --batch 1,3 --device cpu,cuda --kernels pinned --dtype f32,bf16,f16 --no-record
    expect 0
    has "$dir/out" "device        no difference over"
    # shellcheck disable=SC2086
    cuda '' run -m random:qwen2moe,layers=1,hidden=32,heads=2,kv_heads=1,ffn=24,vocab=101,experts=4,top_k=2,shared_ffn=40 $one -n 2 \
        --batch 1,3 --device cpu,cuda --kernels pinned --dtype f32,f16 --tp 1,2 --no-record
    expect 1 # ranks
    has "$dir/out" "device        no difference over"
    # Graphs, from the first call on.
    trial '' -n 4 --graph on,off
    expect 0
    has "$dir/out" "graph         no difference over"
    # One kernel with more shared memory than it has without asking, and with little in the same capture.
    cuda '' run -m random:llama,layers=1,hidden=16,heads=1,kv_heads=1,ffn=4096,vocab=40 --tokens 5,1 --repeat 2 --slot first \
        --neighbours copies --threads 1 --chunk 0 --mode prefill -n 3 --batch 1 --device cuda --kernels pinned --graph off,on --no-record
    expect 0
    has "$dir/out" "graph         no difference over"
    # The library of matmuls is opened before a call is captured.
    trial '' -n 3 --graph on --kernels vendor
    expect 0
    # Healed rows go up, and two devices of one kind have memories that no kernel reads both of.
    # shellcheck disable=SC2086
    cuda devices=2 run -m $small $one -n 2 --batch 1 --kernels pinned --place 'one,layers=0:cuda;1-:cpu,layers=0:cpu;1:cuda:1' \
        --dtype f32,bf16 --no-record
    expect 0
    has "$dir/out" "place         no difference over"
}

# What cublasLt did stands beside the drift.
test_what_cublaslt_did() {
    with_library
    NVIDIA_TF32_OVERRIDE=0
    export NVIDIA_TF32_OVERRIDE
    # shellcheck disable=SC2086
    cuda '' run -m $small $one -n 2 --batch 1,2 --device cuda --dtype f32,bf16 --kernels vendor+rmsnorm=pinned+attention=pinned \
        -o "$dir/a.h5"
    expect 1
    has "$dir/out" "first drift   layer 0 down, matmul/cublaslt: origin"
    has "$dir/out" "split 3"
    has "$dir/out" "f32 a20 t10"
    has "$dir/out" "rounding-order"
    ds show "$dir/a.h5" --environment
    has "$dir/out" "cublasLt 130000"
    has "$dir/out" "NVIDIA_TF32_OVERRIDE"
    # Rows of 16 bits are multiplied by another algorithm than f32 rows of the same values: explain gives it such rows.
    for dtype in f32 bf16 f16; do
        # shellcheck disable=SC2086
        cuda '' run -m $small $one -n 1 --batch 1,2 --device cuda --dtype $dtype --kernels pinned+matmul=cublaslt -o "$dir/$dtype.h5"
        cuda '' explain -m $small "$dir/$dtype.h5"
        expect 0
        has "$dir/out" "cublaslt on cuda   A all, B none            A none, B all"
    done
    cuda '' order matmul/cublaslt --device cuda --shape n=24,k=384 --rows 4,5
    expect 0
    has "$dir/out" "3 blocks of 128 k, each one chain in ascending order, FMA"
    cuda '' order matmul/cublaslt --device cuda --shape n=24,k=384 --rows 4,5 --dtype bf16
    expect 0
    has "$dir/out" "n=24,k=384, bf16 rows, 1 thread"
    has "$dir/out" "3 blocks of 128 k, each one chain in ascending order, mul+add, block sums added in ascending order, factors rounded to bf16"
    cuda '' order matmul/cublaslt-pinned --device cuda --shape n=24,k=384 --rows 1,4,5,40
    expect 0
    has "$dir/out" "1 tree; replaying them gives 100 % of the outputs bit for bit"
    # Parts of K as bf16, in f32, none without a workspace; what there was to choose for 16 bits.
    for variant in cublaslt cublaslt-sums cublaslt-small cublaslt-tf32; do
        # shellcheck disable=SC2086
        cuda '' run -m $small $one -n 1 --batch 1 --device cuda --dtype bf16 --kernels pinned+matmul=$variant -o "$dir/$variant.h5"
        expect 0
        ds show "$dir/$variant.h5" --site 0,down --long
        cp "$dir/out" "$dir/$variant"
    done
    has "$dir/cublaslt" "bf16 a20 t10 s0 r4"
    has "$dir/cublaslt-sums" "bf16 a20 t10 s0 r2"
    has "$dir/cublaslt-small" "bf16 a20 t10 s0 r0"
    has "$dir/cublaslt-tf32" "bf16 a20 t10 s0 r4"
}

# The example of Triton, with a stand-in for Triton: what it writes is a variant, its hidden parameters included.
test_what_triton_emits() {
    with_library
    need python3
    mkdir -p "$dir/site/triton/backends"
    : >"$dir/site/triton/backends/__init__.py"
    cat >"$dir/site/triton/__init__.py" <<'END'
import types
def jit(f): return f
def compile(source, target, options):
    assert options["enable_fp_fusion"] is False and target == ("cuda", 90, 32)
    made = types.SimpleNamespace(name=source["fn"].__name__, num_warps=4, num_ctas=1, shared=0, global_scratch_size=0, profile_scratch_size=0)
    return types.SimpleNamespace(metadata=made, asm={"cubin": b"\x7fELF"})
END
    echo 'constexpr = int' >"$dir/site/triton/language.py"
    echo 'def GPUTarget(*a): return a' >"$dir/site/triton/backends/compiler.py"
    echo 'def ASTSource(**a): return a' >"$dir/site/triton/compiler.py"
    (cd "$dir" && PYTHONPATH="$dir/site" python3 "$root/examples/triton/add_rows.py" 90)
    cuda '' kernels --device cuda --plugin "$dir/add_rows.cubin"
    expect 0
    has "$dir/out" "add/triton             yes     yes     yes     yes     yes"
    [ "$(grep -c '"value": 0' "$dir/add_rows.json")" -eq 2 ]
}

test_there_is_no_device() {
    with_library
    while IFS='|' read -r what visible message; do
        run env DS_TEST_CUDA="$what" ${visible:+CUDA_VISIBLE_DEVICES=} "$driftscope" check add --device cuda:1 \
            --device-library "$build/libdriftscope_cuda.so"
        expect 2
        has "$dir/err" "$message"
        [ "$(grep -c . "$dir/err")" -le 2 ]
    done <<'END'
||device cuda:1: there is 1 device, from number 0 on
|empty|device cuda:1: no device: CUDA_VISIBLE_DEVICES is ''
devices=0||device cuda:1: no CUDA-capable device is detected (cudaErrorNoDevice)
driver=12020||device cuda:1: the driver is too old, or there is none: this library needs CUDA 13.0, the driver has 12.2
driver=0||this library needs CUDA 13.0, the driver has none
devices=2,nocode||test GPU made of sim is of architecture 90, this library has code for tests
END
}

# Every call of the runtime and of cublasLt that says no is told with what it was for; none is taken for a launch that follows.
test_a_call_that_fails() {
    with_library
    while read -r graph function message; do
        case $message in ok) want=0 ;; *) want=2 ;; esac
        cuda "fails=$function" run -m $small --tokens 5,1 --repeat 1 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill \
            -n 2 --batch 1 --device cuda --kernels vendor --graph "$graph" --no-record
        expect $want
        [ $want -eq 0 ] || has "$dir/err" "$message"
        hasnt "$dir/err" "died by signal"
    done <<'END'
off cudaGetDeviceCount device cuda:0: unknown error (cudaErrorUnknown)
off cudaSetDevice:5 device on cuda: unknown error (cudaErrorUnknown)
off cudaStreamCreateWithFlags device cuda:0: unknown error
off cudaGetDeviceProperties properties on cuda: unknown error
off cudaMemGetInfo memory on cuda: unknown error
off cudaDeviceGetAttribute ok
off cudaMalloc kv cache (k) on cuda: unknown error
off cudaMemcpyAsync copy to the device on cuda: unknown error
off cudaMemcpyAsync:25 copy from the device on cuda: unknown error
off cudaFree ok
off cudaStreamQuery:9 a kernel on cuda: unknown error (cudaErrorUnknown)
off cudaStreamIsCapturing:20 a graph on cuda: unknown error
off ds_test_cuda_launch:12 kernel digest_long on (1,1,1) blocks of (128,1,1), 0 bytes shared: unknown error
on cudaStreamBeginCapture a graph on cuda: unknown error
on cudaStreamEndCapture:2 a graph could not be captured on cuda: unknown error
on cudaGraphInstantiate:2 a graph could not be made ready on cuda: unknown error
on cudaGraphDestroy ok
on cudaGraphExecDestroy ok
on cudaGraphLaunch a graph on cuda: unknown error (cudaErrorUnknown): a launch from embed: embed/pinned
off cudaStreamDestroy ok
off cublasLtCreate layer 0 q_proj: matmul/cublaslt: cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED
off cublasLtMatmulDescCreate cublasLtMatmulAlgoGetHeuristic for 2 rows, n 64, k 64: CUBLAS_STATUS_NOT_INITIALIZED
off cublasLtMatmulDescCreate:2 layer 0 q_proj: matmul/cublaslt: cublasLtMatmulDescCreate: CUBLAS_STATUS_NOT_INITIALIZED
off cublasLtMatmulDescSetAttribute cublasLtMatmulAlgoGetHeuristic for 2 rows
off cublasLtMatrixLayoutCreate:3 cublasLtMatmulAlgoGetHeuristic for 2 rows
off cublasLtMatmulPreferenceCreate cublasLtMatmulAlgoGetHeuristic for 2 rows
off cublasLtMatmulPreferenceSetAttribute:4 cublasLtMatmulAlgoGetHeuristic for 2 rows
off cublasLtMatmulAlgoGetHeuristic cublasLtMatmulAlgoGetHeuristic for 2 rows, n 64, k 64: CUBLAS_STATUS_NOT_INITIALIZED
off cublasLtMatmulAlgoConfigGetAttribute ok
off cublasLtMatmul:3 layer 0 v_proj: matmul/cublaslt: cublasLtMatmul: CUBLAS_STATUS_NOT_INITIALIZED (2 rows, n 32, k 64)
END
    cuda fails=cublasLtMatmulAlgoCheck check matmul/cublaslt-pinned --device cuda --shape n=8,k=40 --threads 1
    has "$dir/out" "the algorithm that is pinned is not for this number of rows: cublasLtMatmulAlgoCheck: CUBLAS_STATUS_NOT_INITIALIZED"
}

# A device that reads the host's memory itself, when the copy's turn comes: nothing of it changes before.
test_memory_that_the_device_reads_later() {
    with_library
    # shellcheck disable=SC2086
    cuda pageable run -m $small $one -n 3 --batch 1,3 --device cpu,cuda --kernels pinned --dtype f32,bf16 --no-record
    expect 0
    has "$dir/out" "device        no difference over"
}

test_too_little_memory() {
    with_library
    trial memory=100000
    expect 2
    has "$dir/err" "out of memory on cuda: "
    has "$dir/err" " bytes, "
    has "$dir/err" " of 100000 are free"
}

# A fault shows when something waits: the sites since the last wait, with their kernels; with --poison the one.
test_a_kernel_at_an_illegal_address() {
    with_library
    trial fault=rope
    expect 2
    has "$dir/err" "an illegal memory access was encountered (cudaErrorIllegalAddress): a launch from embed: embed/pinned, 4 rows to layer 0 "
    has "$dir/err" "hint: run --poison waits for every launch"
    trial fault=rope --poison
    expect 2
    has "$dir/err" "layer 0 q_rope: rope/pinned: a kernel on cuda: an illegal memory access was encountered"
    trial fault=rope --graph on
    expect 2
    has "$dir/err" "an illegal memory access was encountered (cudaErrorIllegalAddress): a launch from embed: embed/pinned, 4 rows to a captured call of 4 rows"
    # The other arm is not lost.
    # shellcheck disable=SC2086
    cuda fault=attention_part run -m $small $one -n 2 --batch 1 --device cuda --kernels pinned,split --no-record
    expect 2
    has "$dir/out" "repeat        no difference over"
    has "$dir/err" "attention/split-kv"
    cuda fault=softmax_pinned order softmax/pinned --device cuda --shape width=40 --rows 1
    expect 2
    has "$dir/err" "illegal memory access was encountered (cudaErrorIllegalAddress): softmax/pinned"
    cuda fault=softmax_pinned check softmax/pinned --device cuda --shape width=40 --threads 1
    expect 1
    has "$dir/out" "illegal memory access was encountered (cudaErrorIllegalAddress): softmax/pinned"
    cuda fault=softmax_pinned bench softmax --device cuda --shape width=40 --rows 1 --seconds 0
    expect 2
    has "$dir/err" "softmax, 1 row: "
    # While requests are served, too.
    cuda fault=rope storm -m $small --tokens 5,1,40,7 --requests 2 -n 2 --threads 1 --compare pinned --device cuda -o "$dir/s.h5"
    expect 2
    has "$dir/err" "layer 0 q_rope: rope/pinned"
}

# A launch that is not made is that kernel's, and no fault of one before it.
test_a_kernel_with_too_many_registers() {
    with_library
    trial resources=rope
    expect 2
    has "$dir/err" "layer 0 q_rope: rope/pinned: kernel rope_pinned<T> on ("
    has "$dir/err" "too many resources requested for launch (cudaErrorLaunchOutOfResources)"
    hasnt "$dir/err" "a kernel before"
    # The device is as good as before.
    cuda resources=softmax_pinned check softmax/pinned --device cuda --shape width=40 --threads 1
    hasnt "$dir/out" "a kernel before"
    has "$dir/out" "too many resources requested for launch"
}

test_a_kernel_that_never_ends() {
    with_library
    trial hang=attention_pinned
    expect 2
    has "$dir/err" "cuda does not come to an end in 2 seconds: a launch from "
    trial hang=attention_pinned --poison
    expect 2
    has "$dir/err" "layer 0 attn_out: attention/pinned: cuda does not come to an end in 2 seconds: layer 0 attn_out: attention/pinned"
    hasnt "$dir/err" "died by signal" # nothing was asked that would wait for ever
    # The lab asks such a kernel once.
    cuda hang=softmax_pinned check softmax/pinned --device cuda --shape width=40 --threads 1
    expect 1
    has "$dir/out" "cuda does not come to an end in 2 seconds: softmax/pinned"
    has "$dir/out" "batch         not run; a launch did not come to an end"
    cuda hang=softmax_pinned bench softmax --device cuda --shape width=40 --rows 1 --seconds 0
    expect 2
    has "$dir/err" "cuda does not come to an end in 2 seconds: softmax/pinned"
}

run_tests
