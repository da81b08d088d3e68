# test_sim.sh: the device sim from outside: --device of run, kernels, check, order, explain; its kernels as
# nvcc sees them.
. tests/cli/lib.sh

small=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512,seed=7
one="--repeat 2 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill"

test_pinned_of_both_devices() {
    # shellcheck disable=SC2086
    ds run -m $small $one -n 3 --batch 1,3 --device cpu,sim --kernels pinned --dtype f32,bf16,f16 --no-record
    expect 0
    has "$dir/out" "device        no difference over"
    has "$dir/out" "same: no difference over"
    # shellcheck disable=SC2086
    ds run -m random:qwen3moe,layers=2,hidden=64,experts=8,top_k=2 $one -n 2 --batch 1 --device cpu,sim --kernels pinned \
        --tp 1,2 --place one,layers=0:cpu0,1:cpu1 --no-record
    expect 1 # the number of ranks changes bits, on every device
    has "$dir/out" "device        no difference over"
    has "$dir/out" "place         no difference over"
}

# Layers on devices of two kinds: rows go through the host's memory and are hashed on both sides of each border.
test_layers_on_several_devices() {
    local model=random:llama,layers=3,hidden=32,heads=2,kv_heads=1,ffn=48,vocab=64
    # shellcheck disable=SC2086
    ds run -m $model $one -n 2 --tokens 1,2,3 --batch 1,3 --kernels pinned --dtype f32,bf16 \
        --place 'one,layers=0:sim;1-:cpu,layers=0:cpu;1:sim;2-:cpu0' -o "$dir/a.h5"
    expect 0
    has "$dir/out" "place         no difference over"
    has "$dir/out" "transfer/copy "
    ds show "$dir/a.h5" --site 1,transfer/src
    expect 0
    # shellcheck disable=SC2086
    ds run -m $model $one -n 2 --tokens 1,2,3 --batch 1 --kernels split --place 'one,layers=0:cpu;1-:sim' -o "$dir/b.h5"
    expect 1
    has "$dir/out" "place layers=0:cpu;1-:sim"
    ds explain -m $model "$dir/b.h5"
    expect 0
    has "$dir/out" "on sim"
    ds run -m $model --place 'layers=0:sim;1-:cpu' --kernels fused --no-record
    expect 2
    has "$dir/err" "--kernels on sim, where --place has layers: kernel set 'fused': unknown set 'fused'"
}

test_the_record_says_which_device() {
    # shellcheck disable=SC2086
    ds run -m $small $one -n 1 --batch 1 --device sim --kernels pinned -o "$dir/a.h5"
    expect 0
    ds show "$dir/a.h5" --environment
    expect 0
    has "$dir/out" "device_sim_0"
    has "$dir/out" "simulated on the CPU, 64 multiprocessors"
    ds run --resume "$dir/a.h5" -m $small
    expect 0
    # shellcheck disable=SC2086
    ds run -m $small $one -n 1 --batch 1 --kernels pinned -o "$dir/b.h5"
    ds show "$dir/b.h5" --environment
    hasnt "$dir/out" "device_"
}

test_split_drifts_by_rows() {
    # shellcheck disable=SC2086
    ds run -m $small $one -n 2 --batch 1,8 --device sim -o "$dir/a.h5"
    expect 1
    has "$dir/out" "first drift   layer 0 attn_norm, rmsnorm/split: origin"
    has "$dir/out" "rounding-order"
    ds explain -m $small "$dir/a.h5"
    expect 0
    has "$dir/out" "split on sim"
    has "$dir/out" "give every bit of both sides"
    ds explain -m $small "$dir/a.h5" --device cpu --json
    expect 0
    has "$dir/out" '"device":"cpu"'
    has "$dir/out" '"device":"sim"'
}

test_atomic_is_unstable() {
    # shellcheck disable=SC2086
    ds run -m $small --repeat 5 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill --batch 1 --device sim \
        --kernels atomic --no-record
    expect 1
    has "$dir/out" "drift: unstable, first at layer 0 down, matmul/atomic"
}

# On tensor cores as on sim's model of them: one order at every number of rows.
test_tensor_cores() {
    ds order matmul/pinned-tc --device sim --shape n=9,k=64 --rows 1,17
    expect 1 # a replay rounds to nearest; tensor cores cut off
    has "$dir/out" "one chain of 64 k in ascending order, 16 at a time in fused sums rounded once, mul+add, factors rounded to bf16"
    has "$dir/out" "row 0        1,17 "
    # shellcheck disable=SC2086
    ds run -m $small $one -n 2 --batch 1,6 --device sim --kernels pinned-tc --dtype bf16 --no-record
    expect 0
    has "$dir/out" "batch         no difference over"
}

# Whose tensor cores: a factor as any other, and each side is explained with its own.
test_tensor_cores_of_an_architecture() {
    local model=random:llama,layers=1,hidden=64,heads=2,kv_heads=1,ffn=64,vocab=64
    # shellcheck disable=SC2086
    ds run -m $model --tokens 1,2,3,4 $one -n 2 --batch 1 --device sim:80,sim:90,sim --kernels pinned-tc --dtype bf16 -o "$dir/a.h5"
    expect 1
    has "$dir/out" "device        prefill sim:80|sim:90,sim "
    ds show "$dir/a.h5" --environment
    has "$dir/out" "tensor cores as of architecture 80"
    has "$dir/out" "tensor cores as of architecture 90"
    ds explain -m $model "$dir/a.h5"
    expect 0
    has "$dir/out" "pinned-tc on sim   A all, B none            A none, B all"
    ds order matmul/pinned-tc --device sim:80 --shape n=9,k=64 --rows 1,17
    has "$dir/out" "one chain of 64 k in ascending order, 8 at a time in fused sums"
    ds bench add --device sim:100 --shape width=64 --rows 1 --seconds 0 --json
    expect 0
    has "$dir/out" "architecture 100"
    ds check add --device sim:70
    expect 2
    has "$dir/err" "unknown device 'sim:70'"
    has "$dir/err" "sim:80, sim:89"
}

# Tokens are drawn on the host, from the device's logits: as on the CPU.
test_tokens_drawn() {
    # shellcheck disable=SC2086
    ds run -m $small $one -n 5 --batch 1,3 --device cpu,sim --kernels pinned --temperature 1.5 --sample-seed 3 -o "$dir/a.h5"
    expect 0
    has "$dir/out" "device        no difference over"
    ds show "$dir/a.h5" --site 2,token --arm 2 --long
    has "$dir/out" "on the host"
}

# A scheduler's calls, slots and rows taken over from other requests; again from the record; sampled and scored.
test_serving() {
    local model=random:llama,layers=2,hidden=32,heads=2,kv_heads=1,ffn=48,vocab=128
    set -- -m $model --threads 1 --tokens 5,9,1,44,7,8 --tokens 5,9,1,44,7,3 --requests 6 -n 4 --rate 0 --max-batch 3
    ds storm "$@" --device sim -o "$dir/a.h5"
    expect 0
    has "$dir/out" "3 began with cached rows"
    ds show "$dir/a.h5" --environment
    has "$dir/out" "device_sim_0"
    ds replay -m $model "$dir/a.h5"
    expect 0
    has "$dir/out" "replay: same: the storm has the bits of the record"
    ds storm "$@" --compare pinned -o "$dir/b.h5"
    ds diff "$dir/b.h5" "$dir/a.h5" --partial
    expect 0
    has "$dir/out" "same: no difference over 1554 comparisons"
    ds onpolicy "$@" --device sim --compare pinned --dtype f32 -o "$dir/c.h5"
    expect 0
    has "$dir/out" "pinned every bit the same"
    ds storm "$@" --device sim --pin-each --compare split -o "$dir/d.h5"
    has "$dir/out" "split+attention=pinned"
}

# Digests made by the device's kernel are what another program gives the bytes of the rows.
test_digests_are_those_of_xxhsum() {
    # shellcheck disable=SC2086
    ds run -m $small $one -n 1 --batch 1,8 --kernels split --device sim --dtype f32,bf16 -o "$dir/a.h5"
    expect 1
    ds show "$dir/a.h5" --rows-to "$dir/no/folder"
    expect 2
    has "$dir/err" "no/folder: No such file or directory"
    ds show "$dir/a.h5" --rows-to "$dir/rows"
    expect 1
    [ "$(find "$dir/rows" -name '????????????????' -size +0 | wc -l)" -gt 10 ]
    need xxhsum
    for row in "$dir"/rows/*; do
        sum=$(xxhsum -H3 <"$row" | grep -oE '[0-9a-f]{16}' | head -n 1)
        [ "$sum" = "${row##*/}" ] || { say "$row has $sum"; return 1; }
    done
}

test_lab() {
    ds kernels --device sim
    expect 0
    has "$dir/out" "matmul/atomic "
    has "$dir/out" "0 of them cannot run here"
    hasnt "$dir/out" "openblas"
    ds check rmsnorm --device sim --shape width=40 --threads 1
    expect 0
    has "$dir/out" "rmsnorm/split            holds  no"
    has "$dir/out" "rmsnorm/pinned           holds  holds"
    ds order matmul/pinned --device sim --shape n=20,k=512 --rows 1,9
    expect 0
    has "$dir/out" "1 tree; replaying them gives 100 % of the outputs bit for bit"
    # What would take longer than all others is left out, and told.
    ds order matmul/pinned --device sim --rows 1
    expect 0
    has "$dir/err" "matmul without the logits' n=49152,k=576"
    hasnt "$dir/out" "n=49152"
    # shellcheck disable=SC2086
    ds bisect -m $small --device sim --batch 1,8
    expect 1
    has "$dir/out" "shown by --device sim --kernels pinned+rmsnorm=split"
    ds bench rmsnorm --device sim --shape width=64 --rows 2 --threads 1 --seconds 1
    expect 0
    has "$dir/out" "pinned"
    # Rows of 16 bits, with weights that have them, too; who takes none is not timed.
    ds bench matmul --device sim --shape n=16,k=64 --rows 2 --dtype f32,f16 --seconds 0
    expect 0
    has "$dir/out" "matmul n=16,k=64, given, on sim, L2 warm, f16 rows and weights"
    [ "$(grep -c '^  matmul/pinned-tc ' "$dir/out")" -eq 2 ]
    [ "$(grep -c '^  matmul/atomic ' "$dir/out")" -eq 1 ]
    ds bench matmul --shape n=16,k=64 --rows 2 --dtype f16
    expect 2
    has "$dir/err" "--dtype is for a device: kernels of the CPU have f32 rows"
    ds order matmul --device sim --shape n=9,k=64 --rows 1 --dtype bf16
    expect 1 # tensor cores cut off
    has "$dir/out" "matmul/split-k  n=9,k=64, bf16 rows"
    hasnt "$dir/out" "matmul/atomic"
    ds order matmul/atomic --device sim --shape n=9,k=64 --rows 1 --dtype bf16
    expect 2
    has "$dir/err" "matmul/atomic takes no rows of 16 bits"
    ds order rmsnorm --device sim --dtype bf16
    expect 2
    has "$dir/err" "--dtype bf16 is for matmul on a device"
}

# A sanitized program would turn signals into reports of its own.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}handle_segv=0
export ASAN_OPTIONS

# A plugin with an add of sim's: FAULT=1 reads the device's rows on the host, 2 never ends, 3 refuses.
sim_plugin() {
    cat >"$dir/wild.c" <<'END'
#include "driftscope_kernel.h"
#include <stdio.h>
static int launch(const void *args, const struct ds_exec *exec, char *why, size_t size)
{
    const struct ds_add_args *a = args;
    volatile int on = FAULT == 2;
    while (on)
        ;
    snprintf(why, size, "memory space %d", exec->memory);
    return FAULT == 1 && a->a[0] == 0.5f ? 0 : -1;
}
static const struct ds_kernel wild = {.abi = DS_KERNEL_ABI, .op = DS_OP_ADD, .name = "wild",
    .summary = "a fault", .launch = launch, .device = DS_DEVICE_SIM};
const struct ds_kernel *const *ds_plugin_kernels(uint32_t abi)
{
    static const struct ds_kernel *const all[] = {&wild, 0};
    return abi == DS_KERNEL_ABI ? all : 0;
}
END
    ${CC:-cc} -shared -fPIC -DFAULT="$1" -Ikernels -o "$dir/wild.so" "$dir/wild.c"
}

# The trial ends, the tool goes on and says where it was.
test_faults_end_the_trial() {
    local where="layer 0 resid_attn: add/wild (plugin wild.so)"
    set -- -m random:llama,layers=1,hidden=16,heads=1,ffn=16,vocab=64 --tokens 1,2 --repeat 1 --slot first --neighbours copies \
        --threads 1 --chunk 0 --mode prefill --batch 1 --device sim --kernels pinned+add=wild --plugin "$dir/wild.so" --no-record
    sim_plugin 1
    ds run "$@"
    expect 2
    has "$dir/err" "died by signal 11"
    has "$dir/err" "$where"
    ds check add/wild --device sim --plugin "$dir/wild.so" --shape width=40 --threads 1
    expect 1
    has "$dir/out" "reads a, which is on the device, from the host's code"
    sim_plugin 2
    ds run "$@" --trial-timeout 10
    expect 2
    has "$dir/err" "$where"
    has "$dir/err" "was ended after 10 s"
    sim_plugin 3
    ds run "$@"
    expect 2
    has "$dir/err" "$where: memory space 1"
}

# build_device FLAG...: the example, built as its README says, for sim.
build_device() {
    need g++
    make -s -C examples/device CXX=g++ OUT="$dir" CPPFLAGS="-Werror $*"
}

test_device_plugin() {
    build_device
    ds check rmsnorm/warp-tree --device sim --plugin "$dir/warp_norm.so" --shape width=40 --threads 1
    expect 0
    has "$dir/out" "rmsnorm/warp-tree  claims repeat batch slot threads chunk"
    ds order rmsnorm/warp-tree --device sim --plugin "$dir/warp_norm.so" --shape width=96 --rows 1,5
    expect 0
    has "$dir/out" "1 tree; replaying them gives 100 % of the outputs bit for bit"
    # shellcheck disable=SC2086
    ds run -m $small $one -n 2 --batch 1,5 --device sim --kernels pinned,pinned+rmsnorm=warp-tree --plugin "$dir/warp_norm.so" \
        --no-record
    expect 1
    has "$dir/out" "first drift   layer 0 attn_norm, rmsnorm/warp-tree: origin"
    has "$dir/out" "batch         no difference over"
    # It belongs to sim alone.
    ds check rmsnorm/warp-tree --plugin "$dir/warp_norm.so"
    expect 2
}

test_device_plugin_without_a_barrier() {
    build_device -DWITHOUT_BARRIER
    ds check rmsnorm/warp-tree --device sim --plugin "$dir/warp_norm.so" --shape width=40 --threads 1
    expect 1
    has "$dir/out" "repeat        broken"
}

# A cubin's description is read without CUDA; the cubin itself is not.
test_module() {
    : >"$dir/k.cubin"
    ds kernels --plugin "$dir/k.cubin" --device-library "$dir/no.so"
    expect 2
    has "$dir/err" "module $dir/k.json: cannot be opened"
    echo '{"schema": "driftscope.module/1", "op": "add", "variant": "triton", "entry": "k", "arguments": ["a", "b", "x"]}' \
        >"$dir/k.json"
    ds kernels --plugin "$dir/k.cubin" --device-library "$dir/no.so"
    expect 2
    has "$dir/err" "module $dir/k.json: argument 2 is no member of add"
    sed -i 's/"x"/"y"/' "$dir/k.json"
    ds kernels --plugin "$dir/k.cubin" --device-library "$dir/no.so"
    expect 2
    has "$dir/err" "add/triton: cubin loading needs the CUDA library"
}

test_mistakes() {
    ds run -m $small --device smi --no-record
    expect 2
    has "$dir/err" "did you mean 'sim'?"
    ds run -m $small --device cuda --device-library "$dir/no.so" --no-record
    expect 2
    has "$dir/err" "driftscope: --device: device cuda: $dir/no.so: "
    [ "$(grep -c . "$dir/err")" -le 2 ]
    ds run -m $small --device cuda:x --no-record
    expect 2
    has "$dir/err" "bad value 'cuda:x'"
    printf 'int x;\n' | ${CC:-cc} -shared -fPIC -x c -o "$dir/empty.so" -
    ds run -m $small --device sim,cuda:3 --device-library "$dir/empty.so" --no-record
    expect 2
    has "$dir/err" "the library has no ds_device_library"
    ds run -m $small --device sim --kernels fused --no-record
    expect 2
    has "$dir/err" "on sim: kernel set 'fused': unknown set 'fused'"
    ds run -m $small --device cpu --kernels atomic --no-record
    expect 2
    has "$dir/err" "unknown set 'atomic'"
    for verb in "check add" "order matmul" "bench add" kernels "bisect -m $small"; do
        # shellcheck disable=SC2086
        ds $verb --device cuda --device-library "$dir/no.so"
        expect 2
        has "$dir/err" "driftscope: --device: device cuda: $dir/no.so: "
    done
    ds check matmul/openblas --device sim
    expect 2
    has "$dir/err" "unknown variant of matmul 'openblas'"
}

# nvcc as the Makefile finds it.
nvcc_or_skip() {
    for nvcc in "$(command -v nvcc || true)" "${CUDA_HOME:-/none}/bin/nvcc" /usr/local/cuda/bin/nvcc; do
        [ ! -x "$nvcc" ] || return 0
    done
    skip "no nvcc here"
}

# Compiled without ds_fma's fused operation a kernel has none: those that it has are asked for.
ptx_without_fma() {
    "$nvcc" -std=c++20 -fmad=false -arch="compute_$1" -ptx -DDS_DEVICE_NO_FMA -I. -include base/numbers.h -o "$dir/$1.ptx" "$2"
    has "$dir/$1.ptx" ".entry "
    if grep -nE '(fma|mad)\.[a-z.]*(f16|bf16|f32|f64)' "$dir/$1.ptx"; then
        echo "$2, compute_$1: a fused operation that the source did not ask for"
        return 1
    fi
    rounded "$dir/$1.ptx"
}
# Every operation is rounded to nearest by name: else the assembler may fuse it, or flush subnormals, or come near only.
rounded() {
    if grep -nE '^[[:space:]]*(@!?%p[0-9]+ )?((add|sub|mul|div|sqrt|rcp)(\.approx|\.full)?(\.ftz)?\.f(32|64)|[a-z0-9.]+\.(approx|ftz)\.)' "$1"; then
        echo "$1: an operation that is not rounded to nearest"
        return 1
    fi
}

# No kernel spills registers on any of the architectures that there is code for.
test_nvcc_spills_nothing() {
    nvcc_or_skip
    waited=''
    for arch in 80 100 120; do
        NVCC=$nvcc tests/tools/cuda_registers $arch kernels/cuda/*.cu >"$dir/table.$arch" &
        waited="$waited $!"
    done
    NVCC=$nvcc tests/tools/cuda_registers 90 kernels/cuda/*.cu >"$dir/table"
    for pid in $waited; do wait "$pid"; done
    has "$dir/table" "attention_pinned"
    # All that are launched are in it.
    for kernel in $(grep -ohE '__global__ void( __launch_bounds__\([^)]*\))? [a-z_0-9]+' kernels/cuda/*.cu | awk '{ print $NF }' | sort -u); do
        grep -q " $kernel\b" "$dir/table" || { say "$kernel is not in the table"; cat "$dir/table"; return 1; }
    done
    for table in "$dir"/table*; do
        grep -q '^sm_[0-9]*: 0 of [1-9][0-9]* kernels spill registers$' "$table" || { cat "$table"; return 1; }
    done
}

test_nvcc_adds_no_fma() {
    nvcc_or_skip
    for source in kernels/cuda/*.cu; do
        waited=''
        for arch in 80 90 100; do
            ptx_without_fma $arch "$source" &
            waited="$waited $!"
        done
        ptx_without_fma 120 "$source"
        for pid in $waited; do wait "$pid"; done
    done
    "$nvcc" -std=c++20 -fmad=false -arch=compute_80 -ptx -I. -o "$dir/b.ptx" kernels/cuda/matmul_pinned.cu
    has "$dir/b.ptx" "fma.rn.f32" # those that were asked for
}

# Both looks see what is planted.
test_looks_at_nvcc_see() {
    nvcc_or_skip
    for arch in 80 120; do
        ! ptx_without_fma $arch tests/tools/planted.cu >"$dir/seen" || { say "planted fused operations were not seen"; return 1; }
        has "$dir/seen" "fma.rn.f32"
        has "$dir/seen" "fma.rn.f64"
    done
    for flags in "" --use_fast_math; do
        # shellcheck disable=SC2086
        "$nvcc" -std=c++20 -fmad=false $flags -arch=compute_90 -ptx -I. -o "$dir/p.ptx" tests/tools/planted.cu
        rounded "$dir/p.ptx" >"$dir/seen" && seen=0 || seen=1
        [ "${flags:+1}" = "${seen#0}" ] || { say "flags '$flags': seen $seen"; cat "$dir/seen"; return 1; }
    done
    NVCC=$nvcc tests/tools/cuda_registers 90 tests/tools/planted.cu >"$dir/table"
    has "$dir/table" "sm_90: 1 of 3 kernels spill registers"
}

run_tests
