/* test_doctor.c: every rule of the table with every outcome that it has; files of settings, what the model brings
 * along; workers beside each other; code that sets flush-to-zero. test_doctor_shell.c: how lines are read. */
#include "tests/unit/cli/doctor_lines.h"

#include <sys/stat.h>
#include <unistd.h>

/* ---- every rule, every outcome ------------------------------------------------------------------- */

struct rule_case {
    const char *line; /* "machine A=b": this process with such variables */
    const char *check;
    int status;
    const char *text; /* part of what is said */
};

#define F DS_DOCTOR_FOUND
#define U DS_DOCTOR_UNKNOWN
#define X DS_DOCTOR_FIXED
#define V "vllm serve m "
#define I "VLLM_BATCH_INVARIANT=1 vllm serve m "
#define S "python -m sglang.launch_server --model-path m "
#define D S "--enable-deterministic-inference "
#define L "llama-server -m m "
#define C "llama-cli -m m "

/* clang-format off */
static const struct rule_case rule_cases[] = {
    {V, "sampler.filters", X, "vLLM ignores its top-k, top-p and min-p"}, {S, "sampler.filters", X, "top-k 1"},
    {V "-tp 2 --port 1", "options", X, "known"}, {V "--temprature 0 --foo", "options", U, "--temprature, --foo; --temprature is spelled like --temperature"},
    {V "--max-num-se 3 --speculative-config.method ngram", "options", X, "known"}, {L "-ub 64 --see 7", "options", U, "--see; --see is spelled like --seed"},
    {"source x/env.sh; " V "-tp 2", "ranks.nccl-algo", U, "x/env.sh may set it: it was not read"}, {". env.sh; " I, "batch.size", X, "INVARIANT"},
    {"source env.sh; " V, "batch.size", U, "harmless if env.sh sets VLLM_BATCH_INVARIANT"}, {"source env.sh; " V "--max-num-seqs 1", "batch.size", X, "one request"}, {"source env.sh; bash -c '" V "-tp 2'", "ranks.nccl-algo", U, "env.sh may set it"},
    {"machine NCCL_ALGO=Ring", "ranks.nccl-algo", X, "NCCL_ALGO=Ring"}, {"machine NCCL_PROTO=LL", "ranks.nccl-proto", X, "NCCL_PROTO=LL"},
    {"machine", "sampler", U, "no command is given"}, {"machine", "seed", U, "an engine's seed"},
    {V, "seed", X, "seed 0"}, {V "--seed 4", "seed", X, "seed 4"}, {V "--seed $RANK_IS_OPEN", "seed", U, "$RANK_IS_OPEN"},
    {S, "seed", F, "every start draws"}, {S "--random-seed 0", "seed", X, "seed 0"},
    {L, "seed", F, "every start draws"}, {L "-s -1", "seed", F, "seed -1"}, {L "--seed 3", "seed", X, "seed 3"},
    {L "--temp 0", "seed", X, "nothing is drawn"}, {C "--temp 0.0", "seed", X, "nothing is drawn"},
    {L, "temperature", F, "0.8"}, {C "--temp 0", "temperature", X, "0"}, {L "--temperature 0.5", "temperature", F, "0.5"},
    {L "--temp -1", "temperature", X, "temperature -1: the largest logit"}, {L "--temp -1", "seed", X, "below temperature 0"},
    {V "--spec-method ngram", "batch.speculation", F, "drafts"}, {V "-sc '{}'", "batch.speculation", F, "drafts"},
    {V "-cc '{\"mode\": \"max_autotune\"}'", "autotune", F, "max_autotune"},
    {"LLAMA_ARG_TEMPERATURE=0 " L, "temperature", X, "0"}, {"LLAMA_ARG_TEMPERATURE=0 " L "--temp 1", "temperature", F, "1"},
    {L, "sampler.top-k", F, "40"}, {L "--top-k 0", "sampler.top-k", X, "off"}, {L "--top-k 5", "sampler.top-k", F, "top-k 5"},
    {L "--samplers temperature", "sampler.top-k", X, "no other sampler runs"}, {L "--samplers 'top_k;temperature'", "sampler.top-k", F, "40"},
    {L, "sampler.top-p", F, "0.95"}, {L "--top-p 1.0", "sampler.top-p", X, "off"}, {L "--top-p 0.9", "sampler.top-p", F, "0.9"},
    {L, "sampler.min-p", F, "0.05"}, {L "--min-p 0", "sampler.min-p", X, "off"}, {L "--min-p 0.1", "sampler.min-p", F, "0.1"},
    {L, "sampler.repeat-penalty", X, "no"}, {L "--repeat-penalty 1.00", "sampler.repeat-penalty", X, "no"},
    {C "--temp 0 --repeat-penalty 1.1", "sampler.repeat-penalty", F, "1.1 changes the choice at temperature 0"},
    {L, "sampler.presence-penalty", X, "no"}, {L "--presence-penalty 0", "sampler.presence-penalty", X, "no"}, {L "--presence-penalty 1", "sampler.presence-penalty", F, "1"},
    {L, "sampler.frequency-penalty", X, "no"}, {L "--frequency-penalty 0", "sampler.frequency-penalty", X, "no"}, {L "--frequency-penalty 1", "sampler.frequency-penalty", F, "1"},
    {L, "sampler.dry", X, "no"}, {L "--dry-multiplier 0", "sampler.dry", X, "no"}, {L "--dry-multiplier 0.8", "sampler.dry", F, "0.8"},
    {L, "sampler.xtc", X, "no"}, {L "--xtc-probability 0", "sampler.xtc", X, "no"}, {L "--xtc-probability 0.5", "sampler.xtc", F, "0.5"},
    {L, "sampler.typical", X, "off"}, {L "--typical 1", "sampler.typical", X, "off"}, {L "--typical-p 0.9", "sampler.typical", F, "0.9"},
    {L, "sampler.top-n-sigma", X, "off"}, {L "--top-nsigma -1", "sampler.top-n-sigma", X, "off"}, {L "--top-n-sigma 1", "sampler.top-n-sigma", F, "1 stays active"},
    {L, "sampler.adaptive", X, "no"}, {L "--adaptive-target -1", "sampler.adaptive", X, "no"}, {L "--adaptive-target 0.5", "sampler.adaptive", F, "0.5 draws"},
    {L "--sampler-seq t", "sampler.top-k", X, "no other sampler runs"}, {L "--sampling-seq kt", "sampler.top-k", F, "40"},
    /* what nobody knows but the shell that starts it, and what stands for other settings, may set them */
    {V "$EXTRA_IS_OPEN", "batch.speculation", U, "$EXTRA_IS_OPEN may set it"}, {V "--port $PORT_IS_OPEN", "batch.speculation", X, "no drafts"},
    {V "--enforce-eager $EXTRA_IS_OPEN", "seed", U, "$EXTRA_IS_OPEN may set it"}, {V "--seed 3 $EXTRA_IS_OPEN", "seed", X, "3"}, {V "\"$@\"", "ranks", U, "$@"},
    {V "--tool \"${ARGS[@]}\"", "ranks", U, "ARGS"}, {V "$(cat flags)", "logprobs", U, "cat flags"}, {"vllm serve $MODEL_IS_OPEN", "batch.speculation", X, "no drafts"},
    {"python -m sglang.launch_server $EXTRA_IS_OPEN", "batch.speculation", U, "$EXTRA_IS_OPEN"}, {L "$EXTRA_IS_OPEN", "sampler.repeat-penalty", U, "$EXTRA_IS_OPEN"},
    {L "--gpt-oss-20b-default", "batch.speculation", U, "--gpt-oss-20b-default may set it"}, {L "--fim-qwen-7b-spec", "batch.chunk", U, "settings of its own"}, {L "--models-preset p.ini", "sampler.dry", U, "p.ini"},
    {"docker run --env-file e vllm/vllm-openai --model m", "preload", U, "--env-file may set it"}, {"docker run --env-file=e -e LD_PRELOAD= vllm/vllm-openai --model m", "preload", X, "empty"},
    {V "--enforce-eager=maybe", "batch.padding", U, "'maybe' is not understood"}, {V "--dtype", "dtype", U, "without a value"}, {"NCCL_ALGO= " V "-tp 2", "ranks.nccl-algo", U, "without a value"},
    {V "--speculative-config.method ngram", "batch.speculation", F, "drafts"}, {V "-cc.inductor_compile_config.max_autotune true", "autotune", F, "max_autotune"},
    {L "--spec-default", "batch.speculation", F, "drafts"}, {L "-lcd cache.bin", "batch.speculation", F, "drafts"}, {"LLAMA_ARG_SPEC_DRAFT_HF_REPO=a/b " L, "batch.speculation", F, "drafts"},
    {L, "batch.reuse", X, "default"}, {L "--cache-reuse 0", "batch.reuse", X, "not reused"}, {L "--cache-reuse 256", "batch.reuse", F, "pieces of 256 tokens"},
    {L, "sampler.dynamic-temperature", X, "no"}, {L "--dynatemp-range 0", "sampler.dynamic-temperature", X, "no"},
    {L "--temp 0 --dynatemp-range 0.5", "sampler.dynamic-temperature", F, "0.5"},
    {L, "sampler.mirostat", X, "no"}, {L "--mirostat 0", "sampler.mirostat", X, "no"}, {L "--mirostat 2", "sampler.mirostat", F, "2"},
    {L, "sampler.logit-bias", X, "no"}, {L "-l 15043+1", "sampler.logit-bias", F, "15043+1"},
    /* what the command does not say, its file of settings may: flags go before it, variables do not stand in it */
    {V "--config c.yaml", "seed", U, "c.yaml may set it"}, {V "--config c.yaml --seed 3", "seed", X, "seed 3"},
    {V "--config=c.yaml", "batch.speculation", U, "c.yaml"}, {V "--config c.yaml", "batch.size", U, "c.yaml"}, {I "--config c.yaml", "batch.size", X, "VLLM_BATCH_INVARIANT=1"},
    {V "--config c.yaml", "ranks", U, "c.yaml"}, {V "--config c.yaml", "ranks.nccl-algo", F, "NCCL_ALGO is not set"},
    {S "--config c.yaml", "seed", U, "c.yaml"}, {S "--config c.yaml", "autotune", U, "c.yaml"}, {S "--config c.yaml --enable-deterministic-inference", "batch.prefix", X, "deterministic"},
    {V, "logprobs", X, "raw"}, {V "--logprobs-mode raw_logits", "logprobs", X, "raw_logits"}, {V "--logprobs-mode processed_logprobs", "logprobs", F, "processed"},

    {V, "batch.size", F, "other requests"}, {V "--max-num-seqs 1", "batch.size", X, "one request"}, {V "--max-num-seqs 64", "batch.size", F, "up to 64"}, {I, "batch.size", X, "VLLM_BATCH_INVARIANT=1"},
    {S, "batch.size", F, "other requests"}, {S "--max-running-requests 1", "batch.size", X, "one request"}, {S "--max-running-requests 8", "batch.size", F, "up to 8"}, {D, "batch.size", X, "--enable-deterministic-inference"},
    {L, "batch.size", F, "slots"}, {L "-np 1", "batch.size", X, "one slot"}, {"LLAMA_ARG_N_PARALLEL=4 " L, "batch.size", F, "4 slots"},
    {V, "batch.rows", U, "follows the GPU"}, {V "--max-num-batched-tokens 8192", "batch.rows", X, "steps of 8192 rows"}, {I, "batch.rows", X, "INVARIANT"},
    {S, "batch.rows", X, "default number"}, {S "--max-prefill-tokens 4096", "batch.rows", X, "4096 rows"},
    {L, "batch.rows", X, "2048"}, {L "-b 512", "batch.rows", X, "512 rows"}, {"LLAMA_ARG_BATCH=256 " C, "batch.rows", X, "256 rows"},
    {V, "batch.preemption", U, "preempted"}, {V "--num-gpu-blocks-override 900", "batch.preemption", X, "900 pages"}, {I, "batch.preemption", X, "INVARIANT"},
    {S, "batch.preemption", U, "retracted"}, {S "--max-total-tokens 9000", "batch.preemption", X, "9000 tokens"}, {D, "batch.preemption", X, "deterministic"},
    {L, "batch.continuous", F, "by default"}, {L "-cb", "batch.continuous", F, "others that run"}, {L "-nocb", "batch.continuous", X, "do not join"}, {L "-np 1", "batch.continuous", X, "one slot"},
    {V, "ranks.pipeline", X, "one stage"}, {S "--pp-size 1", "ranks.pipeline", X, "one stage"}, {V "-pp 2", "ranks.pipeline", U, "2 stages"},
    {V, "ranks.expert-parallel", X, "every expert"}, {V "-tp 2 --enable-expert-parallel", "ranks.expert-parallel", F, "spread over the ranks"}, {V "--enable-expert-parallel", "ranks.expert-parallel", X, "one rank"},
    {S, "ranks.expert-parallel", X, "every expert"}, {S "--ep-size 1", "ranks.expert-parallel", X, "every expert"}, {S "--ep 4", "ranks.expert-parallel", F, "over 4 ranks"},
    {L, "device.share", U, "memory"}, {L "-ts 3,1", "device.share", X, "3,1"}, {C "-ngl 0", "device.share", X, "no layer is on a GPU"}, {L, "device.tensors", X, "by name"}, {L "-ot exps=CPU", "device.tensors", X, "exps=CPU"},
    {L, "device.experts", X, "where their layer is"}, {L "-ncmoe 4", "device.experts", X, "of 4 layers"},
    {V, "kernel.pages", U, "follows"}, {V "--block-size 16", "kernel.pages", X, "16 tokens"}, {S, "kernel.pages", U, "follows"}, {S "--page-size 64", "kernel.pages", X, "64 tokens"},
    {L, "kernel.cache", U, "slots is given"}, {L "-kvu", "kernel.cache", F, "keys of others"}, {L "-no-kvu", "kernel.cache", X, "each sequence"}, {L "-np 1", "kernel.cache", X, "one slot"},
    {L, "kernel.window", X, "the window"}, {L "--swa-full", "kernel.window", X, "all keys"}, {V, "kernel.compile", X, "level 2"}, {V "-O3", "kernel.compile", X, "level is given"},
    {L, "threads.batch", X, "default"}, {L "-tb 4", "threads.batch", X, "4 threads"}, {L, "threads.numa", X, "not placed"}, {L "--numa isolate", "threads.numa", X, "isolate"},
    {V "--gpu-memory-utilization 0.9 --async-scheduling", "options", X, "known"}, {S "--mem-fraction-static 0.8 --cuda-graph-max-bs 64", "options", X, "known"},
    {L "-b 512 -tb 2 -cb -ts 1,1 --numa isolate --swa-full -kvu -ot a=CPU", "options", X, "known"},
    {V, "batch.chunk", F, "by default"}, {V "--no-enable-chunked-prefill", "batch.chunk", X, "not cut"}, {V "--enable-chunked-prefill", "batch.chunk", F, "leave room"}, {I, "batch.chunk", X, "INVARIANT"},
    {S, "batch.chunk", F, "memory"}, {S "--chunked-prefill-size -1", "batch.chunk", X, "not cut"}, {S "--chunked-prefill-size 4096", "batch.chunk", F, "4096"},
    {L, "batch.chunk", X, "512"}, {L "-ub 64", "batch.chunk", X, "64"},
    {V, "batch.overlap", X, "one call"}, {V "--enable-dbo", "batch.overlap", F, "two calls"}, {I "--enable-dbo", "batch.overlap", X, "INVARIANT"},
    {S, "batch.overlap", X, "one call"}, {S "--enable-two-batch-overlap", "batch.overlap", F, "two calls"},
    {V, "ranks.context", X, "all keys"}, {V "-dcp 1", "ranks.context", X, "all keys"}, {V "-dcp 4", "ranks.context", F, "4 ranks"}, {V "--prefill-context-parallel-size=2", "ranks.context", F, "2 ranks"},
    {V, "ranks.experts", X, "stay"}, {S "--enable-eplb", "ranks.experts", F, "move"}, {V "--enable-eplb", "ranks.experts", F, "move"},
    {S, "batch.mixed", X, "do not share"}, {S "--enable-mixed-chunk", "batch.mixed", F, "share"},
    {V, "batch.prefix", F, "by default"}, {V "--enable-prefix-caching", "batch.prefix", F, "begins like"}, {V "--no-enable-prefix-caching", "batch.prefix", X, "no prefix cache"}, {I, "batch.prefix", X, "INVARIANT"},
    {S, "batch.prefix", F, "begins like"}, {S "--disable-radix-cache", "batch.prefix", X, "no prefix cache"},
    {L, "batch.prefix", F, "by default"}, {L "--no-cache-prompt", "batch.prefix", X, "no prompt cache"}, {L "--cache-prompt", "batch.prefix", F, "README"},
    {V, "batch.padding", U, "padded"}, {V "--enforce-eager", "batch.padding", X, "no CUDA graphs"},
    {S, "batch.padding", U, "padded"}, {S "--disable-cuda-graph-padding", "batch.padding", X, "no padding"},
    {V, "batch.speculation", X, "no drafts"}, {V "--speculative-config '{\"method\":\"ngram\"}'", "batch.speculation", F, "drafts"},
    {S, "batch.speculation", X, "no drafts"}, {S "--speculative-algorithm EAGLE", "batch.speculation", F, "EAGLE"},
    {L, "batch.speculation", X, "no drafts"}, {L "--spec-type none", "batch.speculation", X, "no drafts"}, {L "-md d.gguf", "batch.speculation", F, "drafts"},
    {L, "batch.shift", X, "default"}, {L "--no-context-shift", "batch.shift", X, "no context"}, {L "--context-shift", "batch.shift", F, "moved"},

    {V, "dtype", U, "auto"}, {S "--dtype auto", "dtype", U, "auto"}, {V "--dtype bfloat16", "dtype", X, "bfloat16"},
    {V, "dtype.cache", X, "model's"}, {S "--kv-cache-dtype auto", "dtype.cache", X, "auto"}, {V "--kv-cache-dtype fp8_e4m3", "dtype.cache", F, "fp8_e4m3"},
    {L, "dtype.cache-k", X, "f16"}, {L "-ctk bf16", "dtype.cache-k", X, "bf16"}, {L "-ctk q8_0", "dtype.cache-k", F, "q8_0"},
    {L, "dtype.cache-v", X, "f16"}, {L "-ctv f32", "dtype.cache-v", X, "f32"}, {L "--cache-type-v q4_0", "dtype.cache-v", F, "q4_0"},

    {V, "ranks", X, "one rank"}, {V "-tp 1", "ranks", X, "one rank"}, {V "--tensor-parallel-size=4", "ranks", F, "4 ranks"},
    {S, "ranks", X, "one rank"}, {S "--tp-size 1", "ranks", X, "one rank"}, {S "--tp 2", "ranks", F, "2 ranks"},
    {V, "ranks.all-reduce", X, "one rank"}, {V "-tp 2", "ranks.all-reduce", F, "follows the size"}, {V "-tp 2 --disable-custom-all-reduce", "ranks.all-reduce", X, "NCCL"},
    {I "-tp 2", "ranks.all-reduce", X, "INVARIANT"}, {S "--tp 1", "ranks.all-reduce", X, "one rank"}, {V "-tp 1", "ranks.all-reduce", X, "one rank"}, {S, "ranks.all-reduce", X, "one rank"},
    {V "-tp 2", "ranks.nccl-algo", F, "NCCL_ALGO"}, {"NCCL_ALGO=Ring " V "-tp 2", "ranks.nccl-algo", X, "Ring"}, {D "--tp 2", "ranks.nccl-algo", X, "deterministic"},
    {S "--tp 2", "ranks.nccl-proto", F, "NCCL_PROTO"}, {"NCCL_PROTO=Simple " S "--tp 2", "ranks.nccl-proto", X, "Simple"},
    {V, "ranks.replicas", X, "one replica"}, {V "-dp 1", "ranks.replicas", X, "one replica"}, {V "-dp 2", "ranks.replicas", F, "2 replicas"},
    {S, "ranks.replicas", X, "one replica"}, {S "--dp 1", "ranks.replicas", X, "one replica"}, {S "--dp-size 3", "ranks.replicas", F, "3 replicas"},
    {L, "device.layers", F, "free memory"}, {L "-ngl auto", "device.layers", F, "free memory"}, {L "-ngl 99", "device.layers", X, "99"},
    {L, "device.split", X, "default"}, {L "-sm none", "device.split", X, "none"}, {L "--split-mode row", "device.split", F, "row"},

    {V, "kernel.attention", U, "chosen"}, {"VLLM_ATTENTION_BACKEND=FLASH_ATTN " V, "kernel.attention", X, "FLASH_ATTN"},
    {S, "kernel.attention", U, "chosen"}, {S "--attention-backend fa3", "kernel.attention", X, "fa3"},
    {L, "kernel.attention", U, "auto"}, {L "-fa auto", "kernel.attention", U, "auto"}, {L "-fa off", "kernel.attention", X, "off"}, {L "-fa on", "kernel.attention", X, "on"},
    {L, "kernel.repack", U, "repacked"}, {L "--repack", "kernel.repack", U, "repacked"}, {L "-nr", "kernel.repack", X, "as the file"},
    {S, "kernel.compile", X, "no torch"}, {S "--enable-torch-compile", "kernel.compile", F, "compiled"},
    {V, "autotune", X, "no kernel"}, {V "-O '{\"inductor_compile_config\":{\"max_autotune\":true}}'", "autotune", F, "timing"}, {V "-O 3", "autotune", X, "no kernel"},
    {S, "autotune", F, "FlashInfer"}, {S "--disable-flashinfer-autotune", "autotune", X, "without timing"},
    {V, "autotune.inductor", X, "not set"}, {"TORCHINDUCTOR_MAX_AUTOTUNE=1 " V, "autotune.inductor", F, "timing"}, {"TORCHINDUCTOR_MAX_AUTOTUNE=0 " V, "autotune.inductor", X, "0"},
    {S, "autotune.tunableop", X, "not set"}, {"PYTORCH_TUNABLEOP_ENABLED=1 " S, "autotune.tunableop", F, "timing"}, {"PYTORCH_TUNABLEOP_ENABLED=0 " S, "autotune.tunableop", X, "0"},
    {V, "cublas.workspace", U, "not set"}, {"CUBLAS_WORKSPACE_CONFIG=:4096:8 " V, "cublas.workspace", X, ":4096:8"}, {"CUBLAS_WORKSPACE_CONFIG=:16:2 " V, "cublas.workspace", U, ":16:2"},
    {V, "tf32", U, "not set"}, {"NVIDIA_TF32_OVERRIDE=0 " V, "tf32", X, "no TF32"}, {"NVIDIA_TF32_OVERRIDE=1 " V, "tf32", U, "only 0"},
    {V, "tf32.torch", X, "not set"}, {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 " V, "tf32.torch", F, "TF32"}, {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=0 " V, "tf32.torch", X, "0"},
    {V, "preload", X, "not set"}, {"LD_PRELOAD= " V, "preload", X, "empty"}, {"LD_PRELOAD=/x.so " L, "preload", F, "/x.so"},
    {L, "dispatch.glibc", X, "not set"}, {"machine GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2", "dispatch.glibc", F, "hwcaps"}, {"GLIBC_TUNABLES=glibc.malloc.check=1 " L, "dispatch.glibc", X, "nothing of arithmetic"},
    {"machine", "dispatch.aten", U, "not set"}, {"machine ATEN_CPU_CAPABILITY=avx2", "dispatch.aten", X, "avx2"},
    {"machine", "dispatch.onednn", U, "not set"}, {"machine DNNL_MAX_CPU_ISA=AVX2", "dispatch.onednn", X, "AVX2"},
    {"machine", "dispatch.onednn-math", X, "not set"}, {"machine ONEDNN_DEFAULT_FPMATH_MODE=strict", "dispatch.onednn-math", X, "strict"}, {"machine ONEDNN_DEFAULT_FPMATH_MODE=bf16", "dispatch.onednn-math", F, "bf16"},
    {"machine", "dispatch.mkl", U, "not set"}, {"machine MKL_CBWR=AUTO", "dispatch.mkl", U, "AUTO"}, {"machine MKL_CBWR=COMPATIBLE", "dispatch.mkl", X, "COMPATIBLE"},
    {"machine", "dispatch.mkl-instructions", X, "not set"}, {"machine MKL_ENABLE_INSTRUCTIONS=AVX2", "dispatch.mkl-instructions", X, "AVX2"},
    {L, "threads", F, "this machine"}, {L "-t -1", "threads", F, "this machine"}, {"LLAMA_ARG_THREADS=8 " L, "threads", X, "8 threads"},
    {"machine", "threads.openmp", U, "not set"}, {"machine OMP_NUM_THREADS=2", "threads.openmp", X, "2"},
    {"machine", "threads.openmp-dynamic", X, "not set"}, {"machine OMP_DYNAMIC=TRUE", "threads.openmp-dynamic", F, "load"}, {"machine OMP_DYNAMIC=false", "threads.openmp-dynamic", X, "false"},
    {"machine", "threads.mkl-dynamic", U, "not set"}, {"machine MKL_DYNAMIC=FALSE", "threads.mkl-dynamic", X, "FALSE"}, {"machine MKL_DYNAMIC=TRUE", "threads.mkl-dynamic", U, "TRUE"},
};
/* clang-format on */

static const struct ds_doctor_rule *rule_of(const char *check, unsigned engine)
{
    for (size_t i = 0; i < ds_doctor_rule_count; i++)
        if (strcmp(ds_doctor_rules[i].check, check) == 0 && (ds_doctor_rules[i].scope & engine))
            return &ds_doctor_rules[i];
    return NULL;
}

/* Which outcomes the cases have met: by the text of the table, not by what the judge says of itself. */
static unsigned char met[256][DS_DOCTOR_MOST_OUTCOMES], guard_met[32];

static void note_met(const struct ds_doctor_rule *r, const struct ds_doctor_command *c,
                     const char *text)
{
    const char *value = ds_doctor_value(c, r->source);
    for (int i = 0; i < DS_DOCTOR_MOST_OUTCOMES && r->outcomes[i].pattern; i++)
        if (ds_doctor_fits(r->outcomes[i].pattern, value)) {
            met[r - ds_doctor_rules][i] = 1;
            break;
        }
    for (size_t g = 0; g < ds_doctor_guard_count; g++)
        if ((ds_doctor_guards[g].scope & (c ? c->engine : DS_DOCTOR_MACHINE)) &&
            strcmp(text, ds_doctor_guards[g].text) == 0 &&
            (!ds_doctor_guards[g].source ||
             ds_doctor_fits(ds_doctor_guards[g].pattern,
                            ds_doctor_value(c, ds_doctor_guards[g].source))))
            guard_met[g] = 1;
}

static void run_case(const struct rule_case *k)
{
    struct ds_doctor d = {.o = NULL};
    struct ds_error err;
    const int machine = strncmp(k->line, "machine", 7) == 0;
    char name[64] = "";
    if (machine && k->line[7]) {
        const char *eq = strchr(k->line, '=');
        snprintf(name, sizeof name, "%.*s", (int)(eq - k->line - 8), k->line + 8);
        setenv(name, eq + 1, 1);
    } else if (!machine)
        parse(k->line, &d.commands);
    if (d.commands.n != (machine ? 0 : 1))
        print_error("%s: %zu commands\n", k->line, d.commands.n);
    assert_int_equal(d.commands.n, machine ? 0 : 1);
    const struct ds_doctor_command *c = machine ? NULL : d.commands.at;
    const struct ds_doctor_rule *r = rule_of(k->check, c ? c->engine : DS_DOCTOR_MACHINE);
    if (!r)
        print_error("%s: no rule %s\n", k->line, k->check);
    assert_non_null(r);
    assert_ok(r->source ? ds_doctor_apply(&d, r, c, &err) : r->look(&d, r, c, &err), err);
    assert_int_equal(d.n_lines, 1);
    if (d.lines[0].status != k->status || !strstr(d.lines[0].text, k->text)) {
        print_error("%s, %s: %s: %s\n", k->line, k->check, ds_doctor_status_name(d.lines[0].status),
                    d.lines[0].text);
        fail();
    }
    assert_int_equal(*d.lines[0].remedy != '\0', k->status != DS_DOCTOR_FIXED);
    if (r->source)
        note_met(r, c, d.lines[0].text);
    if (*name)
        unsetenv(name);
    ds_doctor_free(&d);
}

static void test_every_outcome_of_every_rule(void **state)
{
    (void)state;
    int missing = 0;
    assert_true(ds_doctor_rule_count < ARRAY_SIZE(met) &&
                ds_doctor_guard_count < ARRAY_SIZE(guard_met));
    for (size_t i = 0; i < ARRAY_SIZE(rule_cases); i++)
        run_case(&rule_cases[i]);
    for (size_t r = 0; r < ds_doctor_rule_count; r++)
        for (int i = 0; i < DS_DOCTOR_MOST_OUTCOMES && ds_doctor_rules[r].outcomes[i].pattern; i++)
            if (!met[r][i]) {
                print_error("no case for %s, %s\n", ds_doctor_rules[r].check,
                            ds_doctor_rules[r].outcomes[i].pattern);
                missing = 1;
            }
    for (size_t g = 0; g < ds_doctor_guard_count; g++)
        if (!guard_met[g] && ds_doctor_guards[g].source) {
            print_error("no case for the guard %s of %s\n", ds_doctor_guards[g].name,
                        ds_doctor_guards[g].text);
            missing = 1;
        }
    assert_false(missing);
}

/* A rule that could never say anything else than another one before it would be noise. */
static void test_the_table_is_sound(void **state)
{
    (void)state;
    for (size_t i = 0; i < ds_doctor_rule_count; i++) {
        const struct ds_doctor_rule *r = &ds_doctor_rules[i];
        assert_true((r->source != NULL) + (r->look != NULL) + (r->scope == 0) == 1);
        assert_true(r->remedy[0] != '\0');
        for (size_t k = 0; k < i; k++)
            if (strcmp(r->check, ds_doctor_rules[k].check) == 0 && r->scope)
                assert_int_equal(r->scope & ds_doctor_rules[k].scope, 0);
        for (const char *w = r->unless; w && *w; w += strcspn(w, " "), w += *w == ' ') {
            int known = 0;
            for (size_t g = 0; g < ds_doctor_guard_count; g++)
                known |= strncmp(w, ds_doctor_guards[g].name, strcspn(w, " ")) == 0 &&
                         (ds_doctor_guards[g].scope & r->scope);
            assert_true(known);
        }
    }
}

/* ---- looks, workers, code ------------------------------------------------------------------------- */

static int status_of(const struct ds_doctor *d, const char *check, const char **text)
{
    for (size_t i = 0; i < d->n_lines; i++)
        if (strcmp(d->lines[i].check, check) == 0) {
            *text = d->lines[i].text;
            return d->lines[i].status;
        }
    return -1;
}

static char folder[] = "/tmp/ds-doctor-XXXXXX";

static void put_file(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* A GGUF file of one field. */
static void put_gguf(const char *name, const char *template)
{
    static const char key[] = "tokenizer.chat_template";
    char path[128];
    const uint32_t head[] = {3}, string = 8;
    const uint64_t counts[] = {0, 1}, key_len = strlen(key), len = strlen(template);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite("GGUF", 1, 4, f);
    fwrite(head, 1, sizeof head, f);
    fwrite(counts, 1, sizeof counts, f);
    fwrite(&key_len, 1, sizeof key_len, f);
    fwrite(key, 1, key_len, f);
    fwrite(&string, 1, sizeof string, f);
    fwrite(&len, 1, sizeof len, f);
    fwrite(template, 1, len, f);
    fclose(f);
}

static void expect(const char *line, const char *check, int status, const char *part)
{
    struct ds_doctor d = {.o = NULL};
    struct ds_error err;
    const char *text = "";
    parse(line, &d.commands);
    assert_int_equal(d.commands.n, 1);
    assert_ok(ds_doctor_read_config(d.commands.at, &err), err);
    assert_ok(ds_doctor_judge(&d, d.commands.at, &err), err);
    const int got = status_of(&d, check, &text);
    if (got != status || !strstr(text, part)) {
        print_error("%s, %s: %d: %s\n", line, check, got, text);
        fail();
    }
    ds_doctor_free(&d);
}

/* The command line wins; what is not plain makes the rest uncertain, and not what is. */
static void test_a_file_of_settings(void **state)
{
    (void)state;
    char line[512];
    static const char plain[] = "# made by hand\n---\nmodel: org/name\nseed: 7 # not 8\n"
                                "max_num_seqs: 1\nenforce-eager: true\r\n\n"
                                "dtype: 'bfloat16'\nkv-cache-dtype: \"fp8\"\n";
    assert_non_null(mkdtemp(folder));
    put_file("plain.yaml", plain);
    put_file("nested.yaml", "seed: 7\ncompilation-config:\n  level: 3\nmax-num-seqs: 1\n");
    put_file("off.yaml", "enable-prefix-caching: false\nseed: 7\n");
    put_file(
        "odd.yaml",
        "seed: [7]\nseed: {a: 1}\nseed: &x 7\nseed: \"a\\n\"\nseed: 'a\n- b\n: 7\nseed 7\nseed:\n");
#define WITH(file, ...)                                                                            \
    (snprintf(line, sizeof line, "vllm serve m --config %s/" file " " __VA_ARGS__, folder), line)
    expect(WITH("plain.yaml", ""), "seed", X, "seed 7");
    expect(WITH("plain.yaml", "--seed 3"), "seed", X, "seed 3");
    expect(WITH("plain.yaml", ""), "batch.size", X, "one request at a time");
    expect(WITH("plain.yaml", ""), "batch.padding", X, "no CUDA graphs");
    expect(WITH("plain.yaml", ""), "dtype", X, "bfloat16");
    expect(WITH("plain.yaml", ""), "dtype.cache", F, "fp8");
    expect(WITH("plain.yaml", ""), "ranks", X,
           "one rank"); /* it says nothing, and all of it was read */
    expect(WITH("nested.yaml", ""), "seed", X, "seed 7");
    expect(WITH("nested.yaml", ""), "batch.size", X, "one request");
    expect(WITH("nested.yaml", ""), "ranks", U, "may set it: not all of it was understood");
    expect(WITH("off.yaml", ""), "seed", X, "seed 7");
    expect(WITH("off.yaml", ""), "batch.prefix", U, "not all of it was understood");
    expect(WITH("odd.yaml", ""), "seed", U, "not all of it was understood");
    expect(WITH("nowhere.yaml", ""), "seed", U, "it was not read");
    snprintf(line, sizeof line, "vllm serve --config=%s/plain.yaml", folder);
    expect(line, "version", U, "org/name");
    snprintf(line, sizeof line, "docker run vllm/vllm-openai --config %s/plain.yaml", folder);
    expect(line, "seed", U, "it was not read"); /* the container has files of its own */
    put_file("s.yaml", "random-seed: 5\n");
    snprintf(line, sizeof line, "sglang serve --model-path m --config %s/s.yaml", folder);
    expect(line, "seed", X, "seed 5");
#undef WITH
    static const char *const names[] = {"plain", "nested", "off", "odd", "s"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(line, sizeof line, "%s/%s.yaml", folder, names[i]);
        assert_int_equal(unlink(line), 0);
    }
    assert_int_equal(rmdir(folder), 0);
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
}

static void test_what_the_model_brings_along(void **state)
{
    (void)state;
    char line[512];
    assert_non_null(mkdtemp(folder));
#define LINE(...) (snprintf(line, sizeof line, __VA_ARGS__), line)
    expect(LINE("vllm serve %s", folder), "version", X, "folder here");
    expect("vllm serve org/name", "version", U, "org/name");
    expect("vllm serve org/name --revision abc", "version", X, "abc");
    expect("llama-server -hf org/name:Q4_K_M", "version", U, "org/name:Q4_K_M");

    expect(LINE("vllm serve %s", folder), "sampler.defaults", X, "no generation_config.json");
    put_file("generation_config.json",
             "{\"temperature\": 0.7, \"top_k\": 20, \"repetition_penalty\": 1.05, \"top_p\": 1.0}");
    expect(LINE("vllm serve %s", folder), "sampler.defaults", F,
           "temperature 0.7, repetition_penalty 1.05, top_k 20");
    expect(LINE("vllm serve %s --generation-config vllm", folder), "sampler.defaults", X, "own");
    expect(LINE("vllm serve org/name --generation-config %s", folder), "sampler.defaults", F,
           "1.05");
    expect("vllm serve org/name", "sampler.defaults", U, "not here");
    expect(LINE("sglang serve --model-path %s", folder), "sampler.defaults", F, "1.05");
    expect(LINE("sglang serve --model-path %s --sampling-defaults openai", folder),
           "sampler.defaults", X, "own");

    expect("vllm serve m", "sampler.override", X, "no --override");
    expect("vllm serve m --override-generation-config '{\"repetition_penalty\": 1.2}'",
           "sampler.override", F, "repetition_penalty 1.2");
    expect("vllm serve m --override-generation-config '{\"temperature\": 0, \"top_k\": 5}'",
           "sampler.override", X, "nothing");
    expect("vllm serve m --config c.yaml", "sampler.override", U,
           "no --override-generation-config; but c.yaml may say otherwise");
    expect("vllm serve m --override-generation-config 7", "sampler.override", U, "no JSON object");

    expect("vllm serve m", "quantization", U, "not here");
    expect(LINE("vllm serve %s", folder), "quantization", U, "no config.json");
    put_file("config.json", "{\"hidden_size\": 8}");
    expect(LINE("vllm serve %s", folder), "quantization", X, "names no");
    put_file("config.json", "{\"quantization_config\": {\"quant_method\": \"awq\"}}");
    expect(LINE("vllm serve --model %s", folder), "quantization", F, "awq");
    expect("vllm serve m -q fp8", "quantization", F, "fp8");
    expect("sglang serve --model-path m --torchao-config int8wo", "quantization", F, "int8wo");
    expect("llama-server -m x-Q4_K_M.gguf", "quantization", F, "its name says");
    expect("llama-server -m x-IQ3_XS.gguf", "quantization", F, "its name says");
    expect("llama-server -m x-BF16.gguf", "quantization", U, "not here");
    expect("llama-server -m tests/data/gguf/types.gguf", "quantization", F, "tensors are");
    expect("llama-server -m tests/data/gguf/full.gguf", "version", X, "here");

    expect("vllm serve m", "clock", U, "not here");
    expect("llama-server -m m --chat-template chatml", "clock", U, "not here");
    expect("llama-server -m tests/data/gguf/tiny.gguf", "clock", X, "no chat template");
    put_gguf("a.gguf", "{{ messages }}");
    expect(LINE("llama-server -m %s/a.gguf", folder), "clock", X, "no clock");
    put_gguf("a.gguf", "{{ strftime_now('%d %b %Y') }}");
    expect(LINE("llama-cli -m %s/a.gguf", folder), "clock", F, "strftime_now");
    expect(LINE("LLAMA_ARG_MODEL=%s/a.gguf llama-cli", folder), "clock", F, "strftime_now");
    put_file("t.jinja", "{{ strftime_now('%d %b %Y') }}");
    expect(LINE("llama-server -m m --chat-template-file %s/t.jinja", folder), "clock", F,
           "strftime_now");
    expect(LINE("vllm serve m --chat-template %s/t.jinja", folder), "clock", F, "strftime_now");
    expect("vllm serve m --chat-template '{% set date_string = \"26 Jul 2024\" %}'", "clock", U,
           "date_string");
    expect("vllm serve m --chat-template '{{ messages }}'", "clock", X, "no clock");
    put_file("tokenizer_config.json",
             "{\"chat_template\": [{\"name\": \"a\", \"template\": \"{{ strftime_now('x') }}\"}]}");
    expect(LINE("sglang serve --model-path %s", folder), "clock", F, "strftime_now");
    put_file("chat_template.jinja", "{{ messages }}");
    expect(LINE("sglang serve --model-path %s", folder), "clock", X, "no clock");
#undef LINE
    static const char *const files[] = {"a.gguf",  "generation_config.json", "config.json",
                                        "t.jinja", "tokenizer_config.json",  "chat_template.jinja"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        snprintf(line, sizeof line, "%s/%s", folder, files[i]);
        unlink(line);
    }
    rmdir(folder);
}

static void test_workers_are_compared(void **state)
{
    (void)state;
    static const struct {
        const char *script, *check;
        int status;
        const char *text;
    } cases[] = {
        {V "--seed 1\n" V "--seed 01", "workers.seed", X, "commands 1 and 2 have the seed 1"},
        {V "--seed 1\n" V, "workers.seed", F, "seeds 1 and 0"},
        {V "\n" V, "workers.seed", X, "seed 0"},
        {S "--random-seed 1\n" S, "workers.seed", F, "command 2 draws its seed"},
        {S "\n" S, "workers.seed", F, "draws its seed"},
        {L "-s -1\n" L "-s 5", "workers.seed", F, "command 1 draws its seed"},
        {V "--seed $RANK_IS_OPEN\n" V, "workers.seed", U, "$RANK_IS_OPEN"},
        {V "--port 1\n" V "--port 2", "workers.settings", X, "differ in nothing"},
        {"vllm serve a\nvllm serve b", "workers.settings", F, "start other models: a and b"},
        {V "--max-model-len 64\n" V, "workers.settings", U, "differ in --max-model-len:"},
        {V "--max-model-len 64\n" V "--max-model-len=65", "workers.settings", U, "what that"},
        {V "--max-model-len 64\n" V "--max-model-len=64", "workers.settings", X, "in nothing"},
        {L "--lora a\n" L "--lora a --no-mmap", "workers.settings", U, "differ in --no-mmap:"},
        {V "$EXTRA_IS_OPEN\n" V, "workers.seed", U, "command 1 may be set by $EXTRA_IS_OPEN"},
        {V "\n" V "--config c.yaml", "workers.seed", U, "command 2 may be set by c.yaml"},
        {V "$EXTRA_IS_OPEN\n" V, "workers.settings", U, "but $EXTRA_IS_OPEN may set more"},
        {V "-tp 2\n" V "--tensor-parallel-size 2", "workers.settings", X, "differ in nothing"},
        {V "--dtype half\n" V, "workers.settings", F, "dtype: half and the default"},
        {"NCCL_ALGO=Ring " V "\n" V, "workers.settings", F, "ranks.nccl-algo"},
        {V "--seed 1\n" L "--seed 2\n" V "--seed 3", "workers.seed", F,
         "commands 1 and 3 have the seeds 1 and 3"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct ds_doctor d = {.o = NULL};
        struct ds_error err;
        const char *text = "";
        parse(cases[i].script, &d.commands);
        assert_ok(ds_doctor_compare(&d, &err), err);
        const int got = status_of(&d, cases[i].check, &text);
        if (got != cases[i].status || !strstr(text, cases[i].text)) {
            print_error("%s: %d: %s\n", cases[i].script, got, text);
            fail();
        }
        ds_doctor_free(&d);
    }
}

/* An ELF file of one executable segment with this code. */
static size_t make_object(unsigned char *out, const unsigned char *code, size_t n)
{
    static const unsigned char ident[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    memset(out, 0, 256);
    memcpy(out, ident, sizeof ident);
    out[16] = 3;  /* ET_DYN */
    out[18] = 62; /* x86-64 */
    out[32] = 64; /* e_phoff */
    out[54] = 56; /* e_phentsize */
    out[56] = 1;  /* e_phnum */
    out[64] = 1;  /* PT_LOAD */
    out[68] = 5;  /* read, execute */
    out[72] = 120;
    out[96] = (unsigned char)n; /* p_filesz */
    memcpy(out + 120, code, n);
    return 120 + n;
}

static void test_code_that_sets_flush_to_zero(void **state)
{
    (void)state;
    static const unsigned char gcc12[] = {0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0xae, 0x5c, 0x24,
                                          0xfc, 0x81, 0x4c, 0x24, 0xfc, 0x40, 0x80, 0x00,
                                          0x00, 0x0f, 0xae, 0x54, 0x24, 0xfc, 0xc3};
    unsigned char file[512], code[sizeof gcc12];
    assert_int_equal(ds_doctor_scan_object(file, make_object(file, gcc12, sizeof gcc12)), 1);
    memcpy(code, gcc12, sizeof code);
    code[14] = 0x1f; /* or 0x1f40: sets nothing of the kind */
    assert_int_equal(ds_doctor_scan_object(file, make_object(file, code, sizeof code)), 0);
    memcpy(code, gcc12, sizeof code);
    code[19] = 0x5c; /* stmxcsr again: it is only read */
    assert_int_equal(ds_doctor_scan_object(file, make_object(file, code, sizeof code)), 0);
    const size_t n = make_object(file, gcc12, sizeof gcc12);
    for (size_t i = 0; i < n; i++)
        assert_int_not_equal(ds_doctor_scan_object(file, i), 1); /* cut short */
    file[68] = 4;                                                /* not executable */
    assert_int_equal(ds_doctor_scan_object(file, n), 0);
    file[64 + 8 + 7] = 0xff; /* an offset far away */
    assert_int_equal(ds_doctor_scan_object(file, n), 0);
    file[18] = 40;
    assert_int_equal(ds_doctor_scan_object(file, n), -1);
}

int main(void)
{
    static const char *const not_ours[] = {"LD_PRELOAD",  "GLIBC_TUNABLES",  "NCCL_ALGO",
                                           "NCCL_PROTO",  "OMP_NUM_THREADS", "OMP_DYNAMIC",
                                           "MKL_DYNAMIC", "MKL_CBWR"};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_outcome_of_every_rule),
        cmocka_unit_test(test_the_table_is_sound),
        cmocka_unit_test(test_a_file_of_settings),
        cmocka_unit_test(test_what_the_model_brings_along),
        cmocka_unit_test(test_workers_are_compared),
        cmocka_unit_test(test_code_that_sets_flush_to_zero),
    };
    for (size_t i = 0; i < ARRAY_SIZE(not_ours); i++)
        unsetenv(not_ours[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
