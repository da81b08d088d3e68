# test_doctor.sh: doctor on this machine, on libraries and on launch lines; --strict and --require.
. tests/cli/lib.sh

small=random:llama,layers=1,hidden=32,ffn=48,vocab=64

# status CHECK: found, cannot-tell or fixed, of the JSON in $dir/out.
status() {
    python3 -c '
import json, sys
v = json.load(open(sys.argv[1], encoding="utf-8"))
print(" ".join(x["status"] for x in v["lines"] if x["check"] == sys.argv[2]))' "$dir/out" "$1"
}
is() {
    got=$(status "$1")
    [ "$got" = "$2" ] && return 0
    say "$1 is '$got', not '$2'"
    cat "$dir/out" >&2
    return 1
}

test_this_machine() {
    need python3
    ds doctor -m $small
    [ "$code" -le 1 ]
    has "$dir/out" "doctor        this machine: "
    has "$dir/out" "float.control: mxcsr is 0x1f80: subnormals are kept"
    has "$dir/out" "do: --kernels pinned"
    ds doctor -m $small --json
    expect 1 # the set vendor does not claim everything
    is kernel.batch found
    is kernel.threads found
    is kernel.run fixed
    is float.control fixed
    is float.objects fixed
    is quantization fixed
    is clock fixed
    is threads.openmp cannot-tell
    is sampler cannot-tell
    is seed cannot-tell
    [ -n "$(status ranks.nccl-algo)" ] && [ -n "$(status ranks.nccl-proto)" ]
    ds doctor -m $small --kernels pinned --json
    is kernel.batch fixed
    is kernel.threads fixed
    is threads.cpus fixed
    is dispatch.openblas fixed
    is threads.blas fixed
    run env OMP_NUM_THREADS=3 OMP_DYNAMIC=true MKL_CBWR=COMPATIBLE "$driftscope" doctor -m $small --json
    expect 1
    is threads.openmp fixed
    is threads.openmp-dynamic found
    is dispatch.mkl fixed
}

test_blas_core_chosen_and_given() {
    need python3
    ds kernels matmul
    grep -q '^matmul/openblas .*no:' "$dir/out" && skip "no OpenBLAS here"
    ds doctor -m $small --json
    is dispatch.openblas found
    [ -n "$(status threads.blas)" ]
    run env OPENBLAS_CORETYPE=Prescott "$driftscope" doctor -m $small --json
    is dispatch.openblas fixed
    has "$dir/out" "OPENBLAS_CORETYPE=Prescott: OpenBLAS"
}

# What a link with -ffast-math brings, written out: newer compilers do not bring it into shared objects.
test_objects_that_set_flush_to_zero() {
    need gcc
    cat >"$dir/bad.c" <<'END'
#include <xmmintrin.h>
__attribute__((constructor)) static void set_fast_math(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }
END
    echo 'int good(void) { return 1; }' >"$dir/good.c"
    mkdir "$dir/lib"
    gcc -O2 -shared -fPIC -o "$dir/lib/bad.so.1" "$dir/bad.c"
    gcc -O2 -shared -fPIC -o "$dir/lib/good.so" "$dir/good.c"
    ds doctor -m $small "$dir/lib/bad.so.1" --json
    expect 1
    has "$dir/out" "bad.so.1 sets mxcsr 0x9fc0: subnormals"
    ds doctor -m $small "$dir/lib/good.so" --json
    hasnt "$dir/out" "sets mxcsr"
    has "$dir/out" "good.so leaves mxcsr as it is"
    # One that cannot be loaded is known by its code.
    echo 'int needed(void); int f(void) { return needed(); }' >"$dir/open.c"
    gcc -O2 -shared -fPIC -o "$dir/open.so" "$dir/open.c" "$dir/bad.c"
    ds doctor -m $small "$dir/open.so" --json
    expect 1
    has "$dir/out" "open.so has code that sets flush-to-zero"
    ds doctor -m $small "$dir/lib" --json
    expect 1
    has "$dir/out" "1 of 2 shared objects in"
    ds doctor -m $small "$dir/bad.c"
    expect 2
    has "$dir/err" "not a shared object"
    ds doctor -m $small "$dir/nothing.so"
    expect 2
    has "$dir/err" "nothing.so: cannot be opened"
}

test_a_launch_line() {
    need python3
    ds doctor --json -- vllm serve org/model -tp 2 --seed 1
    expect 1
    is batch.size found
    is ranks found
    is seed fixed
    is version cannot-tell
    run env VLLM_BATCH_INVARIANT=1 "$driftscope" doctor --json -- vllm serve org/model
    is batch.size fixed
    ds doctor --json -- VLLM_BATCH_INVARIANT=1 vllm serve org/model
    is batch.size fixed
    # Everything that llama-cli has to say can be fixed: exit code 0. (A file of no tensors.)
    printf 'GGUF\003\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000' >"$dir/m.gguf"
    ds doctor -- "env -i llama-cli -m $dir/m.gguf --temp 0 --samplers temperature -t 2 -ngl 0 -fa off --no-repack"
    expect 0
    has "$dir/out" "doctor: nothing found that can make results differ"
    hasnt "$dir/out" "cannot be told from here"
    ds doctor -- "env -i llama-cli -m $dir/m.gguf --temp 0 --samplers temperature -t 2 -ngl 0 -fa off --no-repack --dynatemp-range 1"
    expect 1
    has "$dir/out" "doctor: 1 thing found that can make results differ"
}

test_a_script_of_workers() {
    cat >"$dir/workers.sh" <<'END'
#!/bin/sh
# Two workers of a pool.
export VLLM_BATCH_INVARIANT=1
MODEL=org/model
for gpu in 0; do
    CUDA_VISIBLE_DEVICES=$gpu vllm serve $MODEL --port 8000 --seed 1 \
        --dtype bfloat16 >"worker 0.log" 2>&1 &
    CUDA_VISIBLE_DEVICES=1 vllm serve "$MODEL" --port 8001 --seed 2 --dtype half &
done
wait
END
    ds doctor -f "$dir/workers.sh"
    expect 1
    has "$dir/out" "command 1     vLLM, line 6: "
    has "$dir/out" "command 2     vLLM, line 8: "
    has "$dir/out" "workers.seed: commands 1 and 2 have the seeds 1 and 2"
    has "$dir/out" "workers.settings: commands 1 and 2 differ in dtype: bfloat16 and half"
    has "$dir/out" "batch.size: VLLM_BATCH_INVARIANT=1"
}

test_the_real_template_has_no_clock() {
    need python3
    model=${DRIFTSCOPE_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/driftscope}/SmolLM2-135M-Instruct.Q4_1.gguf
    [ -f "$model" ] || skip "no SmolLM2 here"
    ds doctor -m "$model" --json
    is clock fixed
    is quantization found
    has "$dir/out" "tensors are q8_0, q4_1"
}

test_mistakes() {
    ds doctor -- make test
    expect 2
    has "$dir/err" "no command of vLLM, SGLang or llama.cpp there (1 other command)"
    has "$dir/err" "hint: "
    echo "vllm serve 'm" >"$dir/open.sh"
    ds doctor -f "$dir/open.sh"
    expect 2
    has "$dir/err" "open.sh, line 1: a quote (') is not closed"
    ds doctor -f "$dir/nothing.sh"
    expect 2
    has "$dir/err" "nothing.sh"
    ds doctor -m "$dir/nothing.gguf"
    expect 2
    has "$dir/err" "nothing.gguf"
    ds doctor --kernels nothing -m $small
    expect 2
    has "$dir/err" "nothing"
    ds doctor some.so -- vllm serve m
    expect 2
    has "$dir/err" "without a command"
}

test_strict_refuses_what_is_not_claimed() {
    ds run -m $small -n 1 --strict -o "$dir/a.h5"
    expect 2
    has "$dir/err" "not started: matmul/openblas, attention/vendor of kernel set 'vendor' do not claim what is demanded (run, batch and thread)"
    has "$dir/err" "hint: --kernels pinned claims all of it"
    [ ! -e "$dir/a.h5" ]
    ds run -m $small -n 1 --require batch --kernels pinned,pinned+matmul=split-k -o "$dir/a.h5"
    expect 2
    has "$dir/err" "not started: matmul/split-k of kernel set 'pinned+matmul=split-k' does not claim what is demanded (batch)"
    ds run -m $small -n 1 --strict --kernels pinned --batch 1 --threads 1 --repeat 1 --no-record -q
    expect 0
    ds run -m $small -n 1 --strict --error-exit 125 --no-record
    expect 125
    ds storm -m $small --strict --compare pinned,split --requests 2 -n 1 -o "$dir/a.h5"
    expect 2
    has "$dir/err" "of kernel set 'split' do not claim what is demanded"
    [ ! -e "$dir/a.h5" ]
    ds storm -m $small --require run --compare pinned --requests 2 -n 1 -o "$dir/a.h5" -q
    expect 0
    # Every verb that runs kernels, and none that only looks at what was run.
    has "$dir/a.h5" "HDF"
    ds onpolicy -m $small --strict --tokens 5,9 --compare pinned,vendor --requests 1 -n 1 -o "$dir/b.h5"
    expect 2
    has "$dir/err" "of kernel set 'vendor' do not claim what is demanded"
    has "$dir/err" "hint: --compare pinned claims all of it"
    [ ! -e "$dir/b.h5" ]
    ds replay "$dir/a.h5" -m $small --strict
    expect 0
    ds replay "$dir/a.h5" -m $small --require batch --kernels split
    expect 2
    has "$dir/err" "not started: "
    ds lock -m $small --tokens 5,9 -n 1 --batch 1 --threads 1 --strict -o "$dir/a.lock"
    expect 2
    has "$dir/err" "not started: "
    [ ! -e "$dir/a.lock" ]
    ds lock -m $small --tokens 5,9 -n 1 --batch 1 --threads 1 -o "$dir/a.lock"
    expect 0
    ds verify "$dir/a.lock" -m $small --require batch
    expect 2
    has "$dir/err" "hint: a lock of --kernels pinned claims all of it"
    ds lock --update -m $small -o "$dir/a.lock" --require batch
    expect 2
    ds verify "$dir/a.lock" "$dir/a.lock" --strict
    expect 2
    has "$dir/err" "--strict: nothing is run, since a record or a lock is given"
    ds run -m $small --require speed
    expect 2
    has "$dir/err" "option '--require': bad value 'speed'"
}

run_tests
