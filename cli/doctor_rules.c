/* doctor_rules.c: the table of what can make results differ, one place: for this machine, and for the launch
 * lines of vLLM, SGLang and llama.cpp. Owns names, flags, defaults, words and remedies; must not know how a
 * value is found. tests/unit/cli/test_doctor.c has a case for every outcome here.
 *
 * Where the facts are from:
 *   [vb] docs.vllm.ai, features/batch_invariance: VLLM_BATCH_INVARIANT=1; all-reduce is fixed by it, too
 *   [vr] docs.vllm.ai, usage/reproducibility: seed defaults to 0 in V1; online only batch invariance helps
 *   [vm] vllm/config/model.py: dtype auto, generation_config auto, logprobs_mode raw_logprobs
 *   [vc] vllm/config/cache.py, scheduler.py: prefix caching and chunked prefill are on
 *   [vs] vllm/v1/sample/sampler.py, its docstring: logit bias and penalties act before the greedy choice,
 *        temperature, min-p, top-k and top-p after it
 *   [vp] vllm/sampling_params.py, __post_init__: below a temperature of 1e-5 sampling is greedy, top_p is set to 1, top_k to
 *        0 and min_p to 0
 *   [sp] sglang/srt/sampling/sampling_params.py: a temperature of 0 becomes 1 with top_k 1; sampling_batch_info.py: where all
 *        of a batch have top_k 1 the largest logit is taken; top-p and min-p keep the best token in any case
 *   [vj] vllm/utils/argparse_utils.py (FlexibleArgumentParser): "--json-arg.key1 value1 --json-arg.key2.key3 value2" stands for
 *        JSON, "+" adds to a list; it is an argparse.ArgumentParser, which takes the beginning of a flag for it
 *   [va] vllm/engine/arg_utils.py: -sc, -cc and -ac are --speculative-config, --compilation-config and
 *        --attention-config; --spec-method, --spec-model, --spec-tokens stand for keys of the first;
 *        context parallelism is -dcp and -pcp, --enable-eplb moves experts, --enable-dbo overlaps two halves of a batch
 *   [vo] docs.vllm.ai, configuration/optimization: a request that finds no free cache is preempted and computed again;
 *        --gpu-memory-utilization makes that cache; levels -O0 to -O3, the default is -O2
 *   [sa] docs.sglang.io, advanced_features/server_arguments
 *   [sh] docs.sglang.io, advanced_features/hyperparameter_tuning: where the cache is full, requests are retracted
 *   [sd] docs.sglang.io, advanced_features/deterministic_inference; server_args.py: it also sets
 *        NCCL_ALGO=allreduce:tree and leaves the custom all-reduce out; without --random-seed one is drawn
 *   [sf] docs.sglang.io, FAQ: dynamic batching, then prefix caching, differ at temperature 0
 *   [ll] github.com/ggml-org/llama.cpp, tools/server/README.md: flags, defaults, LLAMA_ARG_*, the order of
 *        the samplers, what prompt caching does to the logits; under n_probs: "for temperature < 0 the tokens are
 *        sampled greedily", as src/llama-sampling.cpp has it (temp <= 0 leaves the largest logit alone)
 *   [cu] docs.nvidia.com/cuda/cublas, "Results reproducibility": CUBLAS_WORKSPACE_CONFIG :16:8 or :4096:8
 *   [pt] docs.pytorch.org, notes/randomness, CUDA environment variables (TORCH_ALLOW_TF32_CUBLAS_OVERRIDE),
 *        torch/_inductor/config.py (TORCHINDUCTOR_MAX_AUTOTUNE), docs.pytorch.org, cuda.tunable
 *        (PYTORCH_TUNABLEOP_ENABLED); aten/src/ATen/native/DispatchStub.cpp (ATEN_CPU_CAPABILITY)
 *   [tf] NVIDIA's blog, "Accelerating AI Training with NVIDIA TF32 Tensor Cores", named by docs.monai.io,
 *        precision_accelerating; deeprec.readthedocs.io, NVIDIA-TF32: NVIDIA_TF32_OVERRIDE=0 turns TF32 off in
 *        all of NVIDIA's libraries
 *   [gl] sourceware.org, glibc manual, "Hardware Capability Tunables": glibc.cpu.hwcaps takes features from the
 *        choice of code
 *   [nc] docs.nvidia.com/deeplearning/nccl, environment variables: NCCL_ALGO, NCCL_PROTO; by default
 *        algorithm and protocol follow the message's size (github.com/NVIDIA/nccl, issue 754)
 *   [mk] intel.com, oneMKL developer guide: MKL_CBWR, and MKL_DYNAMIC, OMP_DYNAMIC under "Reproducibility
 *        Conditions"; MKL_ENABLE_INSTRUCTIONS under "Instruction Set-Specific Dispatching"
 *   [dn] oneDNN developer guide, "CPU dispatcher control", "Floating-point math mode" */
#include "cli/doctor.h"

#define FOUND   DS_DOCTOR_FOUND
#define UNKNOWN DS_DOCTOR_UNKNOWN
#define FIXED   DS_DOCTOR_FIXED
#define MACHINE DS_DOCTOR_MACHINE
#define VLLM    DS_DOCTOR_VLLM
#define SGLANG  DS_DOCTOR_SGLANG
#define LLAMA   DS_DOCTOR_LLAMA
#define SERVER  DS_DOCTOR_LLAMA_SERVER
#define TORCH   (MACHINE | VLLM | SGLANG)
#define ALL     (MACHINE | DS_DOCTOR_ENGINES)

#define TEMPERATURE "--temp=|--temperature= env:LLAMA_ARG_TEMPERATURE"
#define VLLM_RANKS  "--tensor-parallel-size=|-tp="
#define SG_RANKS    "--tensor-parallel-size=|--tp-size=|--tp="

/* clang-format off */
const struct ds_doctor_guard ds_doctor_guards[] = {
    {"invariant", VLLM, "env:VLLM_BATCH_INVARIANT", "=1", "VLLM_BATCH_INVARIANT=1", NULL}, /* [vb] */
    {"invariant", SGLANG, "--enable-deterministic-inference", "=on", "--enable-deterministic-inference", NULL}, /* [sd] */
    {"greedy", LLAMA, TEMPERATURE, "=0", "at temperature 0 nothing is drawn", NULL},
    {"greedy", LLAMA, TEMPERATURE, "<0", "below temperature 0 nothing is drawn", NULL}, /* [ll] */
    {"chain", LLAMA, "--sampler-seq=|--sampling-seq=", "=t", "--sampler-seq t: no other sampler runs", NULL}, /* [ll] */
    {"chain", LLAMA, "--samplers=", "=temperature", "--samplers temperature: no other sampler runs", NULL}, /* [ll] */
    {"one-rank", VLLM, VLLM_RANKS, "unset", "one rank", NULL},
    {"one-rank", VLLM, VLLM_RANKS, "=1", "one rank", NULL},
    {"one-rank", SGLANG, SG_RANKS, "unset", "one rank", NULL},
    {"one-rank", SGLANG, SG_RANKS, "=1", "one rank", NULL},
    {"cpu-only", LLAMA, "--gpu-layers=|--n-gpu-layers=|-ngl= env:LLAMA_ARG_N_GPU_LAYERS", "=0", "no layer is on a GPU", NULL},
    {"one-slot", SERVER, "--parallel=|-np= env:LLAMA_ARG_N_PARALLEL", "=1", "one slot: one request at a time", NULL},
    {"no-gpu", MACHINE, NULL, NULL, "no NVIDIA device here", ds_doctor_no_gpu},
};

const struct ds_doctor_rule ds_doctor_rules[] = {
    /* ---- what is drawn, and what filters it --------------------------------------------------- */
    {"seed", VLLM, "--seed=", /* [vr] */
     {{"unset", FIXED, "seed 0, the default of the engine V1"}, {"*", FIXED, "seed {}"}},
     "--seed 0", NULL, NULL},
    {"seed", SGLANG, "--random-seed=", /* [sd] */
     {{"unset", FOUND, "no --random-seed: every start draws another one"}, {"*", FIXED, "seed {}"}},
     "--random-seed 0", NULL, NULL},
    {"seed", LLAMA, "--seed=|-s=", /* [ll] */
     {{"unset", FOUND, "no --seed: every start draws another one"},
      {"=-1|4294967295", FOUND, "seed {}: every start draws another one"}, {"*", FIXED, "seed {}"}},
     "--seed 0, or --temp 0", "greedy", NULL},
    {"temperature", LLAMA, TEMPERATURE, /* [ll] */
     {{"unset", FOUND, "temperature 0.8, the default: tokens are drawn at random"}, {"=0", FIXED, "temperature 0"},
      {"<0", FIXED, "temperature {}: the largest logit, as at 0"}, {"*", FOUND, "temperature {}: tokens are drawn at random"}},
     "--temp 0, and temperature 0 in requests that give one", NULL, NULL},
    {"sampler.defaults", VLLM, NULL, {{0}}, /* [vm] */
     "--generation-config vllm, and temperature 0 in every request", NULL, ds_doctor_look_defaults},
    {"sampler.defaults", SGLANG, NULL, {{0}}, /* [sa] */
     "--sampling-defaults openai, and temperature 0 in every request", NULL, ds_doctor_look_defaults},
    {"sampler.filters", VLLM | SGLANG, NULL, {{0}}, "temperature 0 in every request", NULL, ds_doctor_look_filters}, /* [vp] [sp] */
    {"sampler", MACHINE, NULL, {{0}}, "driftscope doctor -- COMMAND", NULL, ds_doctor_look_no_command},
    {"seed", MACHINE, NULL, {{0}}, "driftscope doctor -- COMMAND", NULL, ds_doctor_look_no_command},
    {"options", VLLM | SGLANG | LLAMA, NULL, {{0}}, "look them up in the engine's documentation", NULL, ds_doctor_look_options},
    {"sampler.override", VLLM, NULL, {{0}}, /* [vm] [vs] */
     "leave penalties out of --override-generation-config, and set temperature 0 there", NULL, ds_doctor_look_override},
    {"sampler.top-k", LLAMA, "--top-k= env:LLAMA_ARG_TOP_K", /* [ll] */
     {{"unset", FOUND, "top-k 40, the default, stays active at temperature 0: not the choice, but probabilities after sampling are others"},
      {"=0", FIXED, "top-k is off"},
      {"*", FOUND, "top-k {} stays active at temperature 0: not the choice, but probabilities after sampling are others"}},
     "--top-k 0", "chain", NULL},
    {"sampler.top-p", LLAMA, "--top-p= env:LLAMA_ARG_TOP_P",
     {{"unset", FOUND, "top-p 0.95, the default, stays active at temperature 0: not the choice, but probabilities after sampling are others"},
      {"=1", FIXED, "top-p is off"},
      {"*", FOUND, "top-p {} stays active at temperature 0: not the choice, but probabilities after sampling are others"}},
     "--top-p 1", "chain", NULL},
    {"sampler.min-p", LLAMA, "--min-p= env:LLAMA_ARG_MIN_P",
     {{"unset", FOUND, "min-p 0.05, the default, stays active at temperature 0: not the choice, but probabilities after sampling are others"},
      {"=0", FIXED, "min-p is off"},
      {"*", FOUND, "min-p {} stays active at temperature 0: not the choice, but probabilities after sampling are others"}},
     "--min-p 0", "chain", NULL},
    {"sampler.repeat-penalty", LLAMA, "--repeat-penalty= env:LLAMA_ARG_REPEAT_PENALTY",
     {{"unset", FIXED, "no repeat penalty, the default"}, {"=1", FIXED, "no repeat penalty"},
      {"*", FOUND, "repeat penalty {} changes the choice at temperature 0, too, by what was said before"}},
     "--repeat-penalty 1", "chain", NULL},
    {"sampler.presence-penalty", LLAMA, "--presence-penalty= env:LLAMA_ARG_PRESENCE_PENALTY",
     {{"unset", FIXED, "no presence penalty, the default"}, {"=0", FIXED, "no presence penalty"},
      {"*", FOUND, "presence penalty {} changes the choice at temperature 0, too, by what was said before"}},
     "--presence-penalty 0", "chain", NULL},
    {"sampler.frequency-penalty", LLAMA, "--frequency-penalty= env:LLAMA_ARG_FREQUENCY_PENALTY",
     {{"unset", FIXED, "no frequency penalty, the default"}, {"=0", FIXED, "no frequency penalty"},
      {"*", FOUND, "frequency penalty {} changes the choice at temperature 0, too, by what was said before"}},
     "--frequency-penalty 0", "chain", NULL},
    {"sampler.dry", LLAMA, "--dry-multiplier=",
     {{"unset", FIXED, "no DRY, the default"}, {"=0", FIXED, "no DRY"},
      {"*", FOUND, "DRY {} changes the choice at temperature 0, too, by what was said before"}},
     "--dry-multiplier 0", "chain", NULL},
    {"sampler.xtc", LLAMA, "--xtc-probability=",
     {{"unset", FIXED, "no XTC, the default"}, {"=0", FIXED, "no XTC"},
      {"*", FOUND, "XTC removes the best tokens with probability {}, at temperature 0, too"}},
     "--xtc-probability 0", "chain", NULL},
    {"sampler.typical", LLAMA, "--typical=|--typical-p=",
     {{"unset", FIXED, "typical-p is off, the default"}, {"=1", FIXED, "typical-p is off"},
      {"*", FOUND, "typical-p {} may remove the best token, at temperature 0, too"}},
     "--typical 1", "chain", NULL},
    {"sampler.top-n-sigma", LLAMA, "--top-nsigma=|--top-n-sigma=", /* [ll] */
     {{"unset", FIXED, "top-n-sigma is off, the default"}, {"<0", FIXED, "top-n-sigma is off"},
      {"*", FOUND, "top-n-sigma {} stays active at temperature 0: not the choice, but probabilities after sampling are others"}},
     "--top-nsigma -1", "chain", NULL},
    {"sampler.adaptive", LLAMA, "--adaptive-target=", /* [ll] */
     {{"unset", FIXED, "no adaptive-p, the default"}, {"<0", FIXED, "no adaptive-p"},
      {"*", FOUND, "adaptive-p {} draws by a state that follows what was said before"}},
     "--adaptive-target -1", "chain", NULL},
    {"sampler.dynamic-temperature", LLAMA, "--dynatemp-range=",
     {{"unset", FIXED, "no dynamic temperature, the default"}, {"=0", FIXED, "no dynamic temperature"},
      {"*", FOUND, "the temperature moves within {} of what was asked for: 0 is not 0"}},
     "--dynatemp-range 0", NULL, NULL},
    {"sampler.mirostat", LLAMA, "--mirostat=",
     {{"unset", FIXED, "no Mirostat, the default"}, {"=0", FIXED, "no Mirostat"},
      {"*", FOUND, "Mirostat {} draws by a state that follows what was said before"}},
     "--mirostat 0", NULL, NULL},
    {"sampler.logit-bias", LLAMA, "--logit-bias=|-l=",
     {{"unset", FIXED, "no logit bias"}, {"*", FOUND, "logit bias {} changes the choice at temperature 0, too"}},
     "leave --logit-bias out", NULL, NULL},
    {"logprobs", VLLM, "--logprobs-mode=", /* [vm] */
     {{"unset", FIXED, "raw logprobs, the default"}, {"~raw", FIXED, "{}"},
      {"*", FOUND, "{}: what is reported follows temperature, penalties, top-k and top-p"}},
     "--logprobs-mode raw_logprobs", NULL, NULL},

    /* ---- which rows share a call -------------------------------------------------------------- */
    {"batch.size", VLLM, "--max-num-seqs=", /* [vb] */
     {{"=1", FIXED, "one request at a time"}, {"unset", FOUND, "a row's bits follow the other requests of its step"},
      {"*", FOUND, "up to {} requests share a step: a row's bits follow the others"}},
     "VLLM_BATCH_INVARIANT=1, or --max-num-seqs 1", "invariant", NULL},
    {"batch.size", SGLANG, "--max-running-requests=", /* [sf] */
     {{"=1", FIXED, "one request at a time"}, {"unset", FOUND, "a row's bits follow the other requests of its step"},
      {"*", FOUND, "up to {} requests share a step: a row's bits follow the others"}},
     "--enable-deterministic-inference, or --max-running-requests 1", "invariant", NULL},
    {"batch.size", SERVER, "--parallel=|-np= env:LLAMA_ARG_N_PARALLEL", /* [ll] */
     {{"=1", FIXED, "one slot: one request at a time"},
      {"unset", FOUND, "as many slots as the server chooses share a call: a row's bits follow the others"},
      {"*", FOUND, "{} slots share a call: a row's bits follow the others"}},
     "-np 1", NULL, NULL},
    {"batch.chunk", VLLM, "--enable-chunked-prefill|!--no-enable-chunked-prefill", /* [vc] */
     {{"=off", FIXED, "prompts are not cut"}, {"*", FOUND, "prompts are cut where the step's other rows leave room"},
      {"unset", FOUND, "prompts are cut where the step's other rows leave room (on by default)"}},
     "VLLM_BATCH_INVARIANT=1, or --no-enable-chunked-prefill", "invariant", NULL},
    {"batch.chunk", SGLANG, "--chunked-prefill-size=", /* [sa] */
     {{"=-1", FIXED, "prompts are not cut"},
      {"unset", FOUND, "long prompts are cut, at a length that follows the GPU's memory"},
      {"*", FOUND, "prompts are cut where a call has {} rows, with others' among them"}},
     "--enable-deterministic-inference, or --chunked-prefill-size -1", "invariant", NULL},
    {"batch.chunk", LLAMA, "--ubatch-size=|-ub= env:LLAMA_ARG_UBATCH", /* [ll] */
     {{"unset", FIXED, "calls of 512 rows at most, the default"}, {"*", FIXED, "calls of {} rows at most: keep it equal"}},
     "-ub 512", NULL, NULL},
    {"batch.rows", VLLM, "--max-num-batched-tokens=", /* [vc] */
     {{"unset", UNKNOWN, "how many rows a step may have follows the GPU and how the engine is started"},
      {"*", FIXED, "steps of {} rows at most: keep it equal"}},
     "VLLM_BATCH_INVARIANT=1, or --max-num-batched-tokens N", "invariant", NULL},
    {"batch.rows", SGLANG, "--max-prefill-tokens=", /* [sa] */
     {{"unset", FIXED, "prefill calls of the default number of rows at most"}, {"*", FIXED, "prefill calls of {} rows at most: keep it equal"}},
     "--max-prefill-tokens N", NULL, NULL},
    {"batch.rows", LLAMA, "--batch-size=|-b= env:LLAMA_ARG_BATCH", /* [ll] */
     {{"unset", FIXED, "2048 rows a batch at most, the default"}, {"*", FIXED, "{} rows a batch at most: keep it equal"}},
     "-b 2048", NULL, NULL},
    {"batch.preemption", VLLM, "--num-gpu-blocks-override=", /* [vo] */
     {{"unset", UNKNOWN, "the cache has the memory that is free: where it is full, a request is preempted and computed again in other calls"},
      {"*", FIXED, "{} pages of cache, whatever is free"}},
     "VLLM_BATCH_INVARIANT=1, or --num-gpu-blocks-override N", "invariant", NULL},
    {"batch.preemption", SGLANG, "--max-total-tokens=", /* [sh] [sa] */
     {{"unset", UNKNOWN, "the cache has the memory that is free: where it is full, a request is retracted and computed again in other calls"},
      {"*", FIXED, "a cache of {} tokens, whatever is free"}},
     "--enable-deterministic-inference, or --max-total-tokens N", "invariant", NULL},
    {"batch.continuous", SERVER, "--cont-batching|-cb|!--no-cont-batching|!-nocb env:LLAMA_ARG_CONT_BATCHING", /* [ll] */
     {{"=off|0|false|disabled", FIXED, "requests do not join others that run"},
      {"*", FOUND, "requests join calls of others that run"},
      {"unset", FOUND, "requests join calls of others that run (on by default)"}},
     "-np 1, or --no-cont-batching", "one-slot", NULL},
    {"batch.overlap", VLLM, "--enable-dbo", /* [va] */
     {{"unset", FIXED, "a step is one call"}, {"*", FOUND, "a step of many rows is cut into two calls: a row's bits follow how many others there are"}},
     "VLLM_BATCH_INVARIANT=1, or leave --enable-dbo out", "invariant", NULL},
    {"batch.overlap", SGLANG, "--enable-two-batch-overlap", /* [sa] */
     {{"unset", FIXED, "a step is one call"}, {"*", FOUND, "a step is cut into two calls: a row's bits follow how many others there are"}},
     "--enable-deterministic-inference, or leave --enable-two-batch-overlap out", "invariant", NULL},
    {"batch.mixed", SGLANG, "--enable-mixed-chunk", /* [sa] */
     {{"unset", FIXED, "prompts and decode rows do not share calls"}, {"*", FOUND, "prompts and decode rows share calls"}},
     "leave --enable-mixed-chunk out", "invariant", NULL},
    {"batch.prefix", VLLM, "--enable-prefix-caching|!--no-enable-prefix-caching", /* [vc] */
     {{"=off", FIXED, "no prefix cache"}, {"*", FOUND, "a prompt that begins like an earlier one is computed in calls of other sizes"},
      {"unset", FOUND, "a prompt that begins like an earlier one is computed in calls of other sizes (on by default)"}},
     "VLLM_BATCH_INVARIANT=1, or --no-enable-prefix-caching", "invariant", NULL},
    {"batch.prefix", SGLANG, "--disable-radix-cache", /* [sf] */
     {{"=on", FIXED, "no prefix cache"}, {"unset", FOUND, "a prompt that begins like an earlier one is computed in calls of other sizes"}},
     "--enable-deterministic-inference, or --disable-radix-cache", "invariant", NULL},
    {"batch.prefix", SERVER, "--cache-prompt|!--no-cache-prompt env:LLAMA_ARG_CACHE_PROMPT", /* [ll] */
     {{"=off|0|false|disabled", FIXED, "no prompt cache"},
      {"*", FOUND, "a prompt that begins like an earlier one is computed in calls of other sizes: other logits, its README says"},
      {"unset", FOUND, "a prompt that begins like an earlier one is computed in calls of other sizes: other logits, its README says (on by default)"}},
     "--no-cache-prompt", NULL, NULL},
    {"batch.padding", VLLM, "--enforce-eager", /* [vm] */
     {{"=on", FIXED, "no CUDA graphs: no padding rows"}, {"unset", UNKNOWN, "CUDA graphs: a step's rows are padded up to a captured number"}},
     "VLLM_BATCH_INVARIANT=1, or --enforce-eager", "invariant", NULL},
    {"batch.padding", SGLANG, "--disable-cuda-graph|--disable-cuda-graph-padding", /* [sa] */
     {{"=on", FIXED, "no padding rows"}, {"unset", UNKNOWN, "CUDA graphs: a step's rows are padded up to a captured number"}},
     "--enable-deterministic-inference, or --disable-cuda-graph-padding", "invariant", NULL},
    {"batch.speculation", VLLM, "--speculative-config=|-sc=|--speculative-model=|--spec-method=|--spec-model=", /* [va] */
     {{"unset", FIXED, "no drafts"}, {"*", FOUND, "drafts are checked several rows at a time: other bits than one by one"}},
     "leave --speculative-config out", NULL, NULL},
    {"batch.speculation", SGLANG, "--speculative-algorithm=", /* [sa] */
     {{"unset", FIXED, "no drafts"}, {"*", FOUND, "{}: drafts are checked several rows at a time: other bits than one by one"}},
     "leave --speculative-algorithm out", NULL, NULL},
    {"batch.speculation", LLAMA, /* [ll] */
     "--spec-draft-model=|--model-draft=|-md=|--spec-type=|--spec-draft-hf=|--hf-repo-draft=|-hfd=|-hfrd=|--spec-default|"
     "--lookup-cache-static=|-lcs=|--lookup-cache-dynamic=|-lcd= "
     "env:LLAMA_ARG_SPEC_DRAFT_MODEL env:LLAMA_ARG_SPEC_DRAFT_HF_REPO env:LLAMA_ARG_SPEC_TYPE",
     {{"unset", FIXED, "no drafts"}, {"=none", FIXED, "no drafts"},
      {"*", FOUND, "drafts are checked several rows at a time: other bits than one by one"}},
     "leave the draft model out", NULL, NULL},
    {"batch.reuse", SERVER, "--cache-reuse= env:LLAMA_ARG_CACHE_REUSE", /* [ll] */
     {{"unset", FIXED, "keys are not reused at other places, the default"}, {"=0", FIXED, "keys are not reused at other places"},
      {"*", FOUND, "pieces of {} tokens or more that stood elsewhere are moved and not computed again"}},
     "--cache-reuse 0", NULL, NULL},
    {"batch.shift", LLAMA, "--context-shift|!--no-context-shift env:LLAMA_ARG_CONTEXT_SHIFT", /* [ll] */
     {{"unset", FIXED, "no context shift, the default"}, {"=off|0|false|disabled", FIXED, "no context shift"},
      {"*", FOUND, "where the context is full, old keys are moved and not computed again"}},
     "--no-context-shift", NULL, NULL},

    /* ---- formats ------------------------------------------------------------------------------ */
    {"dtype", VLLM | SGLANG, "--dtype=", /* [vm] [sa] */
     {{"unset", UNKNOWN, "auto: FP16 for FP32 and FP16 models, BF16 for BF16 models"},
      {"=auto", UNKNOWN, "auto: FP16 for FP32 and FP16 models, BF16 for BF16 models"}, {"*", FIXED, "{}"}},
     "--dtype bfloat16", NULL, NULL},
    {"dtype.cache", VLLM | SGLANG, "--kv-cache-dtype=", /* [vc] [sa] */
     {{"unset", FIXED, "keys and values have the model's format"}, {"=auto|bfloat16|float16|bf16", FIXED, "keys and values: {}"},
      {"*", FOUND, "keys and values are kept as {}"}},
     "--kv-cache-dtype auto", NULL, NULL},
    {"dtype.cache-k", LLAMA, "--cache-type-k=|-ctk= env:LLAMA_ARG_CACHE_TYPE_K", /* [ll] */
     {{"unset", FIXED, "keys are f16, the default"}, {"=f16|bf16|f32", FIXED, "keys are {}"}, {"*", FOUND, "keys are kept as {}"}},
     "-ctk f16", NULL, NULL},
    {"dtype.cache-v", LLAMA, "--cache-type-v=|-ctv= env:LLAMA_ARG_CACHE_TYPE_V", /* [ll] */
     {{"unset", FIXED, "values are f16, the default"}, {"=f16|bf16|f32", FIXED, "values are {}"}, {"*", FOUND, "values are kept as {}"}},
     "-ctv f16", NULL, NULL},
    {"quantization", MACHINE | VLLM | SGLANG | LLAMA, NULL, {{0}},
     "compare with runs of the same file and the same kernels only", NULL, ds_doctor_look_quantization},
    {"version", VLLM | SGLANG, NULL, {{0}},
     "--revision COMMIT, or a folder of one's own", NULL, ds_doctor_look_version},
    {"version", LLAMA, NULL, {{0}}, "-m FILE.gguf instead of a repository", NULL, ds_doctor_look_version},
    {"clock", ALL, NULL, {{0}},
     "give the date in the request (chat_template_kwargs), or a --chat-template without a clock", NULL, ds_doctor_look_clock},

    /* ---- ranks and devices -------------------------------------------------------------------- */
    {"ranks", VLLM, VLLM_RANKS,
     {{"unset", FIXED, "one rank"}, {"=1", FIXED, "one rank"},
      {"*", FOUND, "{} ranks add partial sums: another number of them adds in another order"}},
     "the same number of ranks everywhere", NULL, NULL},
    {"ranks", SGLANG, SG_RANKS,
     {{"unset", FIXED, "one rank"}, {"=1", FIXED, "one rank"},
      {"*", FOUND, "{} ranks add partial sums: another number of them adds in another order"}},
     "the same number of ranks everywhere", NULL, NULL},
    {"ranks.context", VLLM, "--decode-context-parallel-size=|-dcp=|--prefill-context-parallel-size=|-pcp=", /* [va] */
     {{"unset", FIXED, "a rank has all keys of its heads"}, {"=1", FIXED, "a rank has all keys of its heads"},
      {"*", FOUND, "{} ranks have a part of the keys each: attention adds the parts, another number of them in another order"}},
     "the same number of ranks everywhere", NULL, NULL},
    {"ranks.pipeline", VLLM | SGLANG, "--pipeline-parallel-size=|-pp=|--pp-size=", /* [va] [sa] */
     {{"unset", FIXED, "all layers are in one stage"}, {"=1", FIXED, "all layers are in one stage"},
      {"*", UNKNOWN, "{} stages of layers: no sum is cut, but steps hold fewer requests each"}},
     "the same number of stages everywhere", "invariant", NULL},
    {"ranks.expert-parallel", VLLM, "--enable-expert-parallel", /* [va] */
     {{"unset", FIXED, "a rank has a part of every expert"}, {"*", FOUND, "experts are spread over the ranks, by their number: sums are cut elsewhere"}},
     "the same number of ranks everywhere", "one-rank", NULL},
    {"ranks.expert-parallel", SGLANG, "--expert-parallel-size=|--ep-size=|--ep=", /* [sa] */
     {{"unset", FIXED, "a rank has a part of every expert"}, {"=1", FIXED, "a rank has a part of every expert"},
      {"*", FOUND, "experts are spread over {} ranks: another number of them cuts the sums elsewhere"}},
     "the same number of ranks everywhere", NULL, NULL},
    {"ranks.experts", VLLM | SGLANG, "--enable-eplb", /* [va] [sa] */
     {{"unset", FIXED, "experts stay on their ranks"}, {"*", FOUND, "experts move between ranks by load, while it runs: their sums are cut elsewhere"}},
     "leave --enable-eplb out", NULL, NULL},
    {"ranks.all-reduce", VLLM | SGLANG, "--disable-custom-all-reduce", /* [vb] [sd] */
     {{"=on", FIXED, "NCCL adds the ranks, whatever the size"},
      {"unset", FOUND, "which all-reduce adds the ranks follows the size, and so the rows of the step"}},
     "--disable-custom-all-reduce", "one-rank invariant", NULL},
    {"ranks.nccl-algo", VLLM | SGLANG, "env:NCCL_ALGO", /* [nc] */
     {{"unset", FOUND, "NCCL_ALGO is not set: NCCL's algorithm follows the size, and so the rows of the step"}, {"*", FIXED, "NCCL_ALGO={}"}},
     "NCCL_ALGO=allreduce:tree", "one-rank invariant", NULL},
    {"ranks.nccl-proto", VLLM | SGLANG, "env:NCCL_PROTO", /* [nc] */
     {{"unset", FOUND, "NCCL_PROTO is not set: NCCL's protocol follows the size, and so the rows of the step"}, {"*", FIXED, "NCCL_PROTO={}"}},
     "NCCL_PROTO=Simple", "one-rank invariant", NULL},
    {"ranks.nccl-algo", MACHINE, NULL, {{0}}, "NCCL_ALGO=allreduce:tree", NULL, ds_doctor_look_nccl}, /* [nc] */
    {"ranks.nccl-proto", MACHINE, NULL, {{0}}, "NCCL_PROTO=Simple", NULL, ds_doctor_look_nccl},
    {"ranks.replicas", VLLM, "--data-parallel-size=|-dp=",
     {{"unset", FIXED, "one replica"}, {"=1", FIXED, "one replica"},
      {"*", FOUND, "{} replicas share the requests: who shares a step with whom changes"}},
     "VLLM_BATCH_INVARIANT=1, or one replica", "invariant", NULL},
    {"ranks.replicas", SGLANG, "--data-parallel-size=|--dp-size=|--dp=", /* [sa] */
     {{"unset", FIXED, "one replica"}, {"=1", FIXED, "one replica"},
      {"*", FOUND, "{} replicas share the requests: who shares a step with whom changes"}},
     "--enable-deterministic-inference, or one replica", "invariant", NULL},
    {"device.layers", LLAMA, "--gpu-layers=|--n-gpu-layers=|-ngl= env:LLAMA_ARG_N_GPU_LAYERS", /* [ll] */
     {{"unset", FOUND, "as many layers as fit are on the GPU, by its free memory"},
      {"=auto", FOUND, "as many layers as fit are on the GPU, by its free memory"}, {"*", FIXED, "layers on the GPU: {}"}},
     "-ngl all, or -ngl 0", NULL, NULL},
    {"device.split", LLAMA, "--split-mode=|-sm= env:LLAMA_ARG_SPLIT_MODE", /* [ll] */
     {{"unset", FIXED, "each layer is on one GPU, the default"}, {"=none|layer", FIXED, "split mode {}"},
      {"*", FOUND, "split mode {}: sums are spread over the GPUs, by their number and share"}},
     "--split-mode layer", NULL, NULL},
    {"device.share", LLAMA, "--tensor-split=|-ts= env:LLAMA_ARG_TENSOR_SPLIT", /* [ll] */
     {{"unset", UNKNOWN, "which layers a GPU has, where there are several, follows their memory"}, {"*", FIXED, "shares of the GPUs: {}"}},
     "--tensor-split N,N, or -ngl 0", "cpu-only", NULL},
    {"device.tensors", LLAMA, "--override-tensor=|-ot= env:LLAMA_ARG_OVERRIDE_TENSOR", /* [ll] */
     {{"unset", FIXED, "no tensor is placed by name"}, {"*", FIXED, "tensors placed by name: {}: keep it equal"}},
     "leave --override-tensor out", NULL, NULL},
    {"device.experts", LLAMA, "--n-cpu-moe=|-ncmoe= env:LLAMA_ARG_N_CPU_MOE", /* [ll] */
     {{"unset", FIXED, "experts are where their layer is"}, {"*", FIXED, "experts of {} layers on the CPU: keep it equal"}},
     "leave --n-cpu-moe out", NULL, NULL},

    /* ---- which code runs ---------------------------------------------------------------------- */
    {"kernel.attention", VLLM, "--attention-backend=|--attention-config.backend= env:VLLM_ATTENTION_BACKEND",
     {{"unset", UNKNOWN, "the attention kernel is chosen by device, model and what is installed"}, {"*", FIXED, "{}"}},
     "--attention-backend NAME", NULL, NULL},
    {"kernel.attention", SGLANG, "--attention-backend=", /* [sa] [sd] */
     {{"unset", UNKNOWN, "the attention kernel is chosen by device, model and what is installed"}, {"*", FIXED, "{}"}},
     "--attention-backend flashinfer, fa3 or triton", NULL, NULL},
    {"kernel.attention", LLAMA, "--flash-attn=|-fa= env:LLAMA_ARG_FLASH_ATTN", /* [ll] */
     {{"unset", UNKNOWN, "flash attention: auto, by what the device can do"}, {"=auto|-1", UNKNOWN, "flash attention: auto, by what the device can do"},
      {"=off|0|false|disabled", FIXED, "flash attention is off"}, {"*", FIXED, "flash attention is on"}},
     "-fa on, or -fa off", NULL, NULL},
    {"kernel.repack", LLAMA, "--repack|!--no-repack|!-nr env:LLAMA_ARG_REPACK", /* [ll] */
     {{"=off|0|false|disabled", FIXED, "weights stay as the file has them"},
      {"*", UNKNOWN, "weights may be repacked for this CPU's instructions: another kernel on another CPU"},
      {"unset", UNKNOWN, "weights may be repacked for this CPU's instructions: another kernel on another CPU"}},
     "--no-repack", NULL, NULL},
    {"kernel.pages", VLLM, "--block-size=", /* [vc] */
     {{"unset", UNKNOWN, "how many tokens a page of the cache has follows the attention kernel"}, {"*", FIXED, "pages of {} tokens: keep it equal"}},
     "--block-size N", NULL, NULL},
    {"kernel.pages", SGLANG, "--page-size=", /* [sa] */
     {{"unset", UNKNOWN, "how many tokens a page of the cache has follows the attention kernel"}, {"*", FIXED, "pages of {} tokens: keep it equal"}},
     "--page-size N", NULL, NULL},
    {"kernel.cache", SERVER, "--kv-unified|-kvu|!--no-kv-unified|!-no-kvu env:LLAMA_ARG_KV_UNIFIED", /* [ll] */
     {{"unset", UNKNOWN, "one cache for all sequences, or one each: by whether the number of slots is given"},
      {"=off|0|false|disabled", FIXED, "a cache for each sequence"}, {"*", FOUND, "one cache for all sequences: attention runs over keys of others, too, masked"}},
     "--no-kv-unified, or -np 1", "one-slot", NULL},
    {"kernel.window", LLAMA, "--swa-full env:LLAMA_ARG_SWA_FULL", /* [ll] */
     {{"unset", FIXED, "layers with a window keep the keys of the window, the default"}, {"*", FIXED, "layers with a window keep all keys: keep it equal"}},
     "leave --swa-full out", NULL, NULL},
    {"kernel.compile", VLLM, "-O0|-O1|-O2|-O3|--optimization-level=", /* [vo] */
     {{"unset", FIXED, "optimization level 2, the default"}, {"*", FIXED, "an optimization level is given: another fuses other kernels, keep it equal"}},
     "leave the level out", NULL, NULL},
    {"kernel.compile", SGLANG, "--enable-torch-compile", /* [sa] */
     {{"unset", FIXED, "no torch.compile"}, {"*", FOUND, "compiled code up to --torch-compile-max-bs requests, other code beyond"}},
     "leave --enable-torch-compile out", NULL, NULL},
    {"autotune", VLLM, "--compilation-config=|-cc=|-O=", /* [pt] [va] */
     {{"unset", FIXED, "no kernel is chosen by timing that the command asks for"}, {"~max_autotune", FOUND, "max_autotune: kernels are chosen by timing them, at every start"},
      {"*", FIXED, "no kernel is chosen by timing that the command asks for"}},
     "leave max_autotune out", NULL, NULL},
    {"autotune", SGLANG, "--disable-flashinfer-autotune", /* [sa] */
     {{"=on", FIXED, "FlashInfer chooses without timing"}, {"unset", FOUND, "FlashInfer chooses kernels by timing them, at every start"}},
     "--disable-flashinfer-autotune", NULL, NULL},
    {"autotune.inductor", TORCH, "env:TORCHINDUCTOR_MAX_AUTOTUNE", /* [pt] */
     {{"=1", FOUND, "TORCHINDUCTOR_MAX_AUTOTUNE=1: kernels are chosen by timing them"}, {"unset", FIXED, "TORCHINDUCTOR_MAX_AUTOTUNE is not set"},
      {"*", FIXED, "TORCHINDUCTOR_MAX_AUTOTUNE={}"}},
     "unset TORCHINDUCTOR_MAX_AUTOTUNE", NULL, NULL},
    {"autotune.tunableop", TORCH, "env:PYTORCH_TUNABLEOP_ENABLED", /* [pt] */
     {{"=1", FOUND, "PYTORCH_TUNABLEOP_ENABLED=1: matmuls are chosen by timing them"}, {"unset", FIXED, "PYTORCH_TUNABLEOP_ENABLED is not set"},
      {"*", FIXED, "PYTORCH_TUNABLEOP_ENABLED={}"}},
     "unset PYTORCH_TUNABLEOP_ENABLED", NULL, NULL},
    {"cublas.workspace", TORCH, "env:CUBLAS_WORKSPACE_CONFIG", /* [cu] */
     {{"=:4096:8|:16:8", FIXED, "CUBLAS_WORKSPACE_CONFIG={}"},
      {"unset", UNKNOWN, "CUBLAS_WORKSPACE_CONFIG is not set: with several streams cuBLAS may take another algorithm from run to run"},
      {"*", UNKNOWN, "CUBLAS_WORKSPACE_CONFIG={}: only :4096:8 and :16:8 are documented to be repeatable"}},
     "CUBLAS_WORKSPACE_CONFIG=:4096:8", "no-gpu", NULL},
    {"tf32", TORCH, "env:NVIDIA_TF32_OVERRIDE", /* [tf] */
     {{"=0", FIXED, "NVIDIA_TF32_OVERRIDE=0: no TF32"},
      {"unset", UNKNOWN, "NVIDIA_TF32_OVERRIDE is not set: the program decides whether f32 products are rounded to TF32"},
      {"*", UNKNOWN, "NVIDIA_TF32_OVERRIDE={}: only 0 turns TF32 off"}},
     "NVIDIA_TF32_OVERRIDE=0", "no-gpu", NULL},
    {"tf32.torch", TORCH, "env:TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", /* [pt] */
     {{"=1", FOUND, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1: f32 products are rounded to TF32"}, {"unset", FIXED, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE is not set"},
      {"*", FIXED, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE={}"}},
     "unset TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "no-gpu", NULL},
    {"preload", ALL, "env:LD_PRELOAD",
     {{"unset", FIXED, "LD_PRELOAD is not set"}, {"=", FIXED, "LD_PRELOAD is empty"}, {"*", FOUND, "LD_PRELOAD={} comes before every other library"}},
     "unset LD_PRELOAD", NULL, NULL},
    {"dispatch.glibc", MACHINE | LLAMA, "env:GLIBC_TUNABLES", /* [gl] */
     {{"unset", FIXED, "GLIBC_TUNABLES is not set"}, {"~hwcaps", FOUND, "GLIBC_TUNABLES={}: exp, log, sin take other code"},
      {"*", FIXED, "GLIBC_TUNABLES={}: nothing of arithmetic"}},
     "unset GLIBC_TUNABLES", NULL, NULL},
    {"dispatch.aten", MACHINE, "env:ATEN_CPU_CAPABILITY", /* [pt] */
     {{"unset", UNKNOWN, "ATEN_CPU_CAPABILITY is not set: PyTorch's CPU kernels, if any run, follow what this CPU has"}, {"*", FIXED, "ATEN_CPU_CAPABILITY={}"}},
     "ATEN_CPU_CAPABILITY=avx2 on all machines", NULL, NULL},
    {"dispatch.onednn", MACHINE, "env:ONEDNN_MAX_CPU_ISA env:DNNL_MAX_CPU_ISA", /* [dn] */
     {{"unset", UNKNOWN, "ONEDNN_MAX_CPU_ISA is not set: oneDNN, if it runs, follows what this CPU has"}, {"*", FIXED, "ONEDNN_MAX_CPU_ISA={}"}},
     "ONEDNN_MAX_CPU_ISA=AVX2 on all machines", NULL, NULL},
    {"dispatch.onednn-math", MACHINE, "env:ONEDNN_DEFAULT_FPMATH_MODE env:DNNL_DEFAULT_FPMATH_MODE", /* [dn] */
     {{"unset", FIXED, "ONEDNN_DEFAULT_FPMATH_MODE is not set: strict"}, {"=strict", FIXED, "oneDNN: strict"},
      {"*", FOUND, "ONEDNN_DEFAULT_FPMATH_MODE={}: f32 products are rounded to fewer bits"}},
     "unset ONEDNN_DEFAULT_FPMATH_MODE", NULL, NULL},
    {"dispatch.mkl", MACHINE, "env:MKL_CBWR", /* [mk] */
     {{"unset", UNKNOWN, "MKL_CBWR is not set: MKL, if it runs, follows the CPU, the threads and the alignment of arrays"},
      {"~AUTO", UNKNOWN, "MKL_CBWR={}: MKL, if it runs, follows the CPU"}, {"*", FIXED, "MKL_CBWR={}"}},
     "MKL_CBWR=COMPATIBLE, or AVX2,STRICT where all CPUs have it", NULL, NULL},
    {"dispatch.mkl-instructions", MACHINE, "env:MKL_ENABLE_INSTRUCTIONS", /* [mk] */
     {{"unset", FIXED, "MKL_ENABLE_INSTRUCTIONS is not set"}, {"*", FIXED, "MKL_ENABLE_INSTRUCTIONS={}: keep it equal"}},
     "unset MKL_ENABLE_INSTRUCTIONS", NULL, NULL},
    {"dispatch.openblas", MACHINE, NULL, {{0}},
     "OPENBLAS_CORETYPE=Haswell on all machines, or --blas-core", NULL, ds_doctor_look_blas_core},

    /* ---- threads ------------------------------------------------------------------------------ */
    {"threads", LLAMA, "--threads=|-t= env:LLAMA_ARG_THREADS", /* [ll] */
     {{"unset", FOUND, "as many threads as this machine has cores"}, {"=-1|0", FOUND, "as many threads as this machine has cores"},
      {"*", FIXED, "{} threads"}},
     "--threads N", NULL, NULL},
    {"threads.batch", LLAMA, "--threads-batch=|-tb=", /* [ll] */
     {{"unset", FIXED, "as many threads for prompts as for tokens, the default"}, {"*", FIXED, "{} threads for prompts"}},
     "--threads-batch N", NULL, NULL},
    {"threads.numa", LLAMA, "--numa= env:LLAMA_ARG_NUMA", /* [ll] */
     {{"unset", FIXED, "threads are not placed by NUMA node"}, {"*", FIXED, "threads placed by NUMA node: {}"}},
     "leave --numa out", NULL, NULL},
    {"threads.cpus", MACHINE, NULL, {{0}}, "--threads N: the same number everywhere", NULL, ds_doctor_look_cpus},
    {"threads.quota", MACHINE, NULL, {{0}}, "ask for so many threads as the quota pays for", NULL, ds_doctor_look_quota},
    {"threads.blas", MACHINE, NULL, {{0}}, "unset OPENBLAS_NUM_THREADS, GOTO_NUM_THREADS and OMP_NUM_THREADS, or ask for as many threads",
     NULL, ds_doctor_look_blas_threads},
    {"threads.openmp", MACHINE, "env:OMP_NUM_THREADS",
     {{"unset", UNKNOWN, "OMP_NUM_THREADS is not set: programs with OpenMP take as many threads as there are CPUs"}, {"*", FIXED, "OMP_NUM_THREADS={}"}},
     "OMP_NUM_THREADS=N", NULL, NULL},
    {"threads.openmp-dynamic", MACHINE, "env:OMP_DYNAMIC", /* [mk] */
     {{"=true|1", FOUND, "OMP_DYNAMIC={}: the number of threads changes with the load"}, {"unset", FIXED, "OMP_DYNAMIC is not set"},
      {"*", FIXED, "OMP_DYNAMIC={}"}},
     "OMP_DYNAMIC=false", NULL, NULL},
    {"threads.mkl-dynamic", MACHINE, "env:MKL_DYNAMIC", /* [mk] */
     {{"=false|0", FIXED, "MKL_DYNAMIC={}"}, {"unset", UNKNOWN, "MKL_DYNAMIC is not set: MKL, if it runs, may take fewer threads than asked for"},
      {"*", UNKNOWN, "MKL_DYNAMIC={}: MKL, if it runs, may take fewer threads than asked for"}},
     "MKL_DYNAMIC=FALSE", NULL, NULL},

    /* ---- arithmetic, and the kernels of this program ------------------------------------------- */
    {"float.control", MACHINE, NULL, {{0}}, "find the library that sets it: driftscope doctor FILE.so", NULL, ds_doctor_look_control},
    {"float.objects", MACHINE, NULL, {{0}}, "link it without -ffast-math and -Ofast", NULL, ds_doctor_look_objects},
    {"kernel.run", MACHINE, NULL, {{0}}, "--kernels pinned", NULL, ds_doctor_look_run},
    {"kernel.batch", MACHINE, NULL, {{0}}, "--kernels pinned", NULL, ds_doctor_look_batch},
    {"kernel.threads", MACHINE, NULL, {{0}}, "--kernels pinned", NULL, ds_doctor_look_thread},

    /* ---- several workers (ds_doctor_compare) --------------------------------------------------- */
    {"workers.seed", 0, NULL, {{0}}, "give every worker the same seed", NULL, NULL},
    {"workers.settings", 0, NULL, {{0}}, "start every worker with the same settings", NULL, NULL},
};
/* clang-format on */

const size_t ds_doctor_rule_count = sizeof ds_doctor_rules / sizeof ds_doctor_rules[0];
const size_t ds_doctor_guard_count = sizeof ds_doctor_guards / sizeof ds_doctor_guards[0];
