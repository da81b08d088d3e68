/* option_table.c: the one table of options. Owns their names, defaults, limits and help texts, and which verbs
 * take them (verbs.c); parser, --help, man page, completions and the table of docs/OPTIONS.md are made from it. */
#include "cli/options.h"

#include "engine/load.h"
#include "engine/serve.h"
#include "engine/sweep.h"

#include <string.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define RUN         (RUN_ALONE | BISECT | LOCK) /* whatever sets up a sweep */
#define RUN_ALONE   (1u << DS_VERB_RUN)
#define BISECT      (1u << DS_VERB_BISECT)
#define SHOW        (1u << DS_VERB_SHOW)
#define DIFF        (1u << DS_VERB_DIFF)
#define TUI         (1u << DS_VERB_TUI)
#define BENCH       (1u << DS_VERB_BENCH)
#define CHECK       (1u << DS_VERB_CHECK)
#define ORDER       (1u << DS_VERB_ORDER)
#define SELFTEST    (1u << DS_VERB_SELFTEST)
#define EXPLAIN     (1u << DS_VERB_EXPLAIN)
#define KERNELS     (1u << DS_VERB_KERNELS)
#define STORM       (1u << DS_VERB_STORM)
#define REPLAY      (1u << DS_VERB_REPLAY)
#define TABLE       (1u << DS_VERB_TABLE)
#define ONPOLICY    (1u << DS_VERB_ONPOLICY)
#define LOCK        (1u << DS_VERB_LOCK)
#define VERIFY      (1u << DS_VERB_VERIFY)
#define REPORT      (1u << DS_VERB_REPORT)
#define RISK        (1u << DS_VERB_RISK)
#define DOCTOR      (1u << DS_VERB_DOCTOR)
#define FINGERPRINT (1u << DS_VERB_FINGERPRINT)
#define HELP        (1u << DS_VERB_HELP)
/* What runs kernels that were chosen before: bisect looks for those that do not claim it. */
#define STRICT      (RUN_ALONE | STORM | LOCK | VERIFY | ONPOLICY | REPLAY)
#define FACTOR      (DS_OPT_LIST | DS_OPT_DISTINCT)

/* clang-format off */
const struct ds_option_def ds_option_defs[] = {
    {"model", 'm', "MODEL", RUN | STORM | REPLAY | ONPOLICY | VERIFY | BENCH | CHECK | ORDER | EXPLAIN | DOCTOR, "smollm2", DS_OPT_FILE, NULL, 0, 0,
     "a .gguf file, a name in the cache (smollm2), or random:llama,layers=4,hidden=64,... with seeded weights"},
    {"model", 'm', "MODEL", RISK | REPORT, NULL, DS_OPT_FILE, NULL, 0, 0,
     "the record's model, to show tokens as text; without it their ids"},
    {"weights", 0, "HOW", RUN | STORM | ONPOLICY | BENCH, "f32", 0, "f32|file", 0, 0,
     "weights in memory as f32, or as their file has them, made f32 exactly where they are used; digests are the same"},
    {"prompt", 'p', "TEXT", RUN | STORM | ONPOLICY, NULL, DS_OPT_MANY, NULL, 0, 0,
     "a prompt; the first of all prompts, files and token lists, in this order, is the subject, the others are its neighbours"},
    {"file", 'f', "FILE", RUN | STORM | ONPOLICY, NULL, DS_OPT_FILE | DS_OPT_MANY, NULL, 0, 0,
     "a file whose whole text is a prompt"},
    {"file", 'f', "FILE", DOCTOR, NULL, DS_OPT_FILE | DS_OPT_MANY, NULL, 0, 0,
     "a script whose launch lines are read; may be given several times"},
    {"tokens", 0, "IDS", RUN | STORM | ONPOLICY, NULL, DS_OPT_NUMBER | DS_OPT_LIST | DS_OPT_MANY, NULL, 0, INT32_MAX,
     "a prompt as token ids, separated by commas"},
    {"chat", 0, NULL, RUN | STORM | ONPOLICY, NULL, 0, NULL, 0, 0,
     "put each prompt into the model's chat form as a user message"},
    {"steps", 'n', "N", RUN, "8", DS_OPT_NUMBER, NULL, 0, 1000000,
     "decode steps after the prompt"},
    {"free", 0, NULL, RUN_ALONE, NULL, 0, NULL, 0, 0,
     "let each arm follow its own tokens instead of the base arm's; comparing stops at the first that differs"},
    {"temperature", 0, "X", RUN_ALONE | STORM | LOCK, "0", 0, NULL, 0, 0,
     "0: the largest logit, of equal ones the lowest id, and none of the next five does anything; above 0: logits are divided by it and tokens drawn"},
    {"top-k", 0, "N", RUN_ALONE | STORM | LOCK | ONPOLICY, "0", DS_OPT_NUMBER, NULL, 0, INT32_MAX,
     "draw among the N largest logits and those equal to the last of them; 0 = all. With 1 the largest logit after the repetition penalty"},
    {"top-p", 0, "P", RUN_ALONE | STORM | LOCK | ONPOLICY, "1", 0, NULL, 0, 0,
     "draw among the likeliest tokens that together have the share P; 1 = all"},
    {"min-p", 0, "P", RUN_ALONE | STORM | LOCK | ONPOLICY, "0", 0, NULL, 0, 0,
     "draw among tokens at least P times as likely as the likeliest; 0 = all"},
    {"repetition-penalty", 0, "R", RUN_ALONE | STORM | LOCK | ONPOLICY, "1", 0, NULL, 0, 0,
     "logits of the request's tokens so far are divided by R, or multiplied where they are negative; 1 = none"},
    {"sample-seed", 0, "N", RUN_ALONE | STORM | LOCK | ONPOLICY, "1", DS_OPT_NUMBER, NULL, 0, INT64_MAX,
     "seed of the draws, which depend on it, the request (its prompt, for storm), the step and the token, on nothing else"},
    {"temperature", 0, "X", ONPOLICY, "1", 0, NULL, 0, 0,
     "logits are divided by it and tokens drawn; log-probabilities are those of logits divided by it; 0: the largest logit, and log-probabilities as at 1"},
    {"temperature", 0, "X", REPLAY, NULL, 0, NULL, 0, 0,
     "another temperature than the record's"},
    {"top-k", 0, "N", REPLAY, NULL, DS_OPT_NUMBER, NULL, 0, INT32_MAX,
     "another top-k than the record's"},
    {"top-p", 0, "P", REPLAY, NULL, 0, NULL, 0, 0,
     "another top-p than the record's"},
    {"min-p", 0, "P", REPLAY, NULL, 0, NULL, 0, 0,
     "another min-p than the record's"},
    {"repetition-penalty", 0, "R", REPLAY, NULL, 0, NULL, 0, 0,
     "another repetition penalty than the record's"},
    {"sample-seed", 0, "N", REPLAY, NULL, DS_OPT_NUMBER, NULL, 0, INT64_MAX,
     "another seed of the draws than the record's"},
    {"tokens-from", 0, "RECORD", RUN, NULL, DS_OPT_FILE, NULL, 0, 0,
     "force the tokens of another record"},

    {"repeat", 0, "N", RUN_ALONE, "3", DS_OPT_NUMBER, NULL, 1, 100000,
     "trials of every arm"},
    {"repeat", 0, "N", BISECT | LOCK, "2", DS_OPT_NUMBER, NULL, 1, 100000,
     "passes of every arm and set: they must agree"},
    {"until-stable", 0, "P", RUN_ALONE, NULL, 0, NULL, 0, 0,
     "repeat an arm until its trials disagree, or agree so often that a flake rate above P (0.05 or 5%) is excluded at 95 %; --repeat is then the most"},
    {"load", 0, "K", RUN, "0", DS_OPT_NUMBER, NULL, 0, DS_MOST_LOAD,
     "processes that keep processors and caches busy beside the trials: a stress for races"},
    {"batch", 0, "LIST", RUN_ALONE, "1,2,3,4,8,16", FACTOR | DS_OPT_NUMBER, NULL, 1, DS_MOST_BATCH,
     "requests in the batch"},
    {"batch", 0, "LIST", BISECT, "1", FACTOR | DS_OPT_NUMBER, NULL, 1, DS_MOST_BATCH,
     "requests in the batch"},
    {"batch", 0, "LIST", LOCK, "1,4", FACTOR | DS_OPT_NUMBER, NULL, 1, DS_MOST_BATCH,
     "requests in the batch"},
    {"slot", 0, "LIST", RUN_ALONE, "first,last", FACTOR | DS_OPT_NUMBER, "first|middle|last", 0, DS_MOST_BATCH - 1,
     "where in the batch the subject sits"},
    {"slot", 0, "LIST", BISECT | LOCK, "first", FACTOR | DS_OPT_NUMBER, "first|middle|last", 0, DS_MOST_BATCH - 1,
     "where in the batch the subject sits"},
    {"neighbours", 0, "LIST", RUN_ALONE, "copies,varied", FACTOR, "copies|varied", 0, 0,
     "what the other requests are: copies of the subject, or other prompts"},
    {"neighbours", 0, "LIST", BISECT | LOCK, "copies", FACTOR, "copies|varied", 0, 0,
     "what the other requests are: copies of the subject, or other prompts"},
    {"padding", 0, "LIST", RUN, "0", FACTOR, NULL, 0, 0,
     "padding rows of the subject, before its prompt (4) or behind it (4r); the others are padded to the same length"},
    {"threads", 0, "LIST", RUN_ALONE | LOCK | BENCH, "1,all", FACTOR | DS_OPT_NUMBER, "all", 1, DS_MOST_THREADS,
     "threads of the kernels; all = the CPUs this process may use"},
    {"threads", 0, "LIST", BISECT, "all", FACTOR | DS_OPT_NUMBER, "all", 1, DS_MOST_THREADS,
     "threads of the kernels; all = the CPUs this process may use"},
    {"chunk", 0, "LIST", RUN_ALONE, "0,8", FACTOR | DS_OPT_NUMBER, NULL, 0, DS_MOST_CHUNK,
     "prompt tokens per call; 0 = the whole prompt in one"},
    {"chunk", 0, "LIST", BISECT | LOCK, "0", FACTOR | DS_OPT_NUMBER, NULL, 0, DS_MOST_CHUNK,
     "prompt tokens per call; 0 = the whole prompt in one"},
    {"mode", 0, "LIST", RUN_ALONE, "prefill,decode", FACTOR, "prefill|decode", 0, 0,
     "the prompt as prefill, or token by token as in decoding"},
    {"mode", 0, "LIST", BISECT | LOCK, "prefill", FACTOR, "prefill|decode", 0, 0,
     "the prompt as prefill, or token by token as in decoding"},
    {"prefix", 0, "LIST", RUN, "0", FACTOR | DS_OPT_NUMBER, NULL, 0, DS_MOST_PREFIX,
     "prompt tokens of the subject that an earlier pass left in the cache (a prefix cache hit)"},
    {"rollback", 0, "LIST", RUN, "0", FACTOR | DS_OPT_NUMBER, NULL, 0, DS_MOST_ROLLBACK,
     "drafts fed with the token of every decode step and then rejected (speculative decoding)"},
    {"kernels", 0, "LIST", RUN_ALONE | LOCK | BENCH, "vendor", FACTOR, NULL, 0, 0,
     "kernel sets: vendor, split, pinned, fused, reference; + overrides one op: vendor+attention=pinned (bench: those measured as passes)"},
    {"kernels", 0, "LIST", BISECT, "vendor,pinned", FACTOR, NULL, 0, 0,
     "the set that shows the difference and the one whose kernels are tried in its place; one alone: tried against pinned"},
    {"kernels", 0, "SET", DOCTOR, "vendor", 0, NULL, 0, 0,
     "the kernel set whose claims are looked at"},
    {"blas-core", 0, "LIST", RUN, NULL, FACTOR, NULL, 0, 0,
     "OpenBLAS cores, such as Haswell,SkylakeX; without it the library chooses"},
    {"dtype", 0, "LIST", RUN, "f32", FACTOR, "f32|bf16|f16", 0, 0,
     "format to which every stage's output is rounded"},
    {"dtype-at", 0, "STAGES", RUN_ALONE | LOCK | STORM | ONPOLICY, NULL, 0, NULL, 0, 0,
     "stages that are not rounded to a 16-bit --dtype, in every arm: final_norm,logits=f32 (logits always are f32)"},
    {"process", 0, "LIST", RUN, "1", FACTOR | DS_OPT_NUMBER, NULL, 1, DS_MOST_PROCESSES,
     "fresh worker processes that run the same arm"},
    {"place", 0, "LIST", RUN, "one", 0, NULL, 0, 0,
     "devices of the layers: one, or layers=0-14:cpu0;15-:cpu1 (quote the ';', or write a comma): simulated devices with buffers of their own, where the rows are copied by the transfer kernel at each border; or cpu, sim, cuda, cuda:N by name, as in layers=0-14:sim;15-:cpu, each with its own kernels"},
    {"tp", 0, "LIST", RUN, "1", FACTOR | DS_OPT_NUMBER, NULL, 1, DS_MOST_RANKS,
     "ranks of tensor parallelism: o_proj and down become partial sums, one a rank, added by the allreduce kernel"},
    {"device", 0, "LIST", RUN_ALONE | LOCK, "cpu", FACTOR, "cpu|sim|sim:N|cuda|cuda:N", 0, 0,
     "where the kernels run: cpu; cuda, a GPU, cuda:N its number; or sim: the text of the CUDA kernels on this machine's CPU, thread by thread, in memory of its own, sim:80, :89, :90 (as sim), :100 or :120 with the tensor cores of that architecture; the sets on sim are split (vendor is the same), pinned, pinned-tc and atomic"},
    {"graph", 0, "LIST", RUN, "off", FACTOR, "off|on", 0, 0,
     "on: of every shape of call the first is captured as a graph of the device, and later calls launch that again, on other ids, positions and pages; heal trials run without"},
    {"full", 0, NULL, RUN_ALONE | LOCK, NULL, 0, NULL, 0, 0,
     "the cross product of all factors instead of one at a time"},

    {"sites", 0, "WHICH", RUN_ALONE, "all", 0, "all|resid", 0, 0,
     "which sites are digested: all, or only the residual stream after each layer and what follows the layers"},
    {"hold", 0, "SIZE", RUN | VERIFY | DIFF, "2G", DS_OPT_SIZE, NULL, 0, 0,
     "memory for the reference rows; what does not fit goes to a temporary file (diff: for all that grows with the records, some 100 bytes a digest of both; with less it is an error)"},
    {"no-heal", 0, NULL, RUN_ALONE, NULL, 0, NULL, 0, 0,
     "leave out the trials in which drifting rows are overwritten with the reference's, so that each kernel is judged on equal inputs"},
    {"dump", 0, "WHICH", RUN_ALONE, "origins", 0, "none|first|origins|all", 0, 0,
     "which drifting rows are stored with their values and their kernel's inputs; all: rows of the base arm too"},
    {"dump-rows", 0, "N", RUN_ALONE, "8", DS_OPT_NUMBER, NULL, 0, 1000000,
     "so many dumped rows per site and trial; beyond it at most as many again that are far worse than all before"},
    {"page-size", 0, "N", RUN, "0", DS_OPT_NUMBER, NULL, 0, 1000000,
     "tokens per page of the KV cache; 0 = one page per request"},
    {"position-offset", 0, "N", RUN, "0", DS_OPT_NUMBER, NULL, 0, 1000000,
     "position of the first token of every request: far positions without a long prompt"},
    {"all-logits", 0, NULL, RUN, NULL, 0, NULL, 0, 0,
     "logits and tokens of every prompt row of the subject, not of the last one alone"},
    {"scores", 0, NULL, RUN_ALONE, NULL, 0, NULL, 0, 0,
     "also show attn_scores and attn_probs of every layer, recomputed beside the attention kernel, which does not read them"},
    {"poison", 0, NULL, RUN, NULL, 0, NULL, 0, 0,
     "fill buffers with NaN first, so that a read of unwritten memory shows"},
    {"mutate", 0, NULL, RUN_ALONE, NULL, 0, NULL, 0, 0,
     "first swap heads, rows and channels and shift positions at each stage in turn: a change that nobody sees would hide a fault"},
    {"digest-packed", 0, NULL, RUN_ALONE, NULL, 0, NULL, 0, 0,
     "record the digest of every weight as its matmul kernel packed it, for each trial: the run says which differ, diff lists them"},
    {"trial-timeout", 0, "N", RUN | VERIFY, "0", DS_OPT_NUMBER, NULL, 0, 1000000,
     "seconds after which a trial is ended and counts as failed; 0 = no limit"},
    {"inputs", 0, "FILE", RUN_ALONE | STORM, NULL, DS_OPT_FILE, NULL, 0, 0,
     "prompts, tool results, retrieval texts and the clock of recorded conversations, from one JSON file (cli/INPUTS.md); it is kept whole in the record"},
    {"inputs", 0, "FILE", REPLAY, NULL, DS_OPT_FILE, NULL, 0, 0,
     "name what has changed in this file since the record was made from it; the record's own inputs are replayed"},
    {"call", 0, "ID:TURN", RUN_ALONE, NULL, 0, NULL, 0, 0,
     "with --inputs: the turn of the model whose prompt is the subject, turns counted from 0; without it the first"},
    {"attach", 0, "NAME=FILE", RUN_ALONE | STORM | ONPOLICY, NULL, DS_OPT_MANY, NULL, 0, 0,
     "keep the digest of a file (chat template, retrieval index, tool schema, guardrails, evaluation set) in the record, under that name"},
    {"no-record", 0, NULL, RUN_ALONE, NULL, 0, NULL, 0, 0,
     "write no record, only print the verdict"},
    {"force", 0, NULL, RUN_ALONE, NULL, 0, NULL, 0, 0,
     "overwrite an existing record; with --resume, go on although the environment is another one"},
    {"resume", 0, "RECORD", RUN_ALONE, NULL, DS_OPT_FILE, NULL, 0, 0,
     "do the trials that this record is missing"},
    {"tui", 0, NULL, RUN_ALONE, NULL, 0, NULL, 0, 0,
     "show the record in the terminal UI while the sweep runs; what the run prints comes when the UI has ended"},

    {"requests", 0, "N", STORM, "64", DS_OPT_NUMBER, NULL, 1, DS_SERVE_MOST_REQUESTS,
     "requests; they have the prompts in turn"},
    {"requests", 0, "N", ONPOLICY, "8", DS_OPT_NUMBER, NULL, 1, DS_SERVE_MOST_REQUESTS,
     "requests; they have the prompts in turn"},
    {"requests-from", 0, "FILE", STORM, NULL, DS_OPT_FILE, NULL, 0, 0,
     "a file of requests, a line each: a text, {\"prompt\": ...}, {\"messages\": [...]}, or a batch line with one as its body; --requests repeats them in turn"},
    {"new-tokens", 'n', "N", STORM | ONPOLICY, "32", DS_OPT_NUMBER, NULL, 1, DS_SERVE_MOST_TOKENS,
     "tokens that every request generates"},
    {"compare", 0, "LIST", STORM | ONPOLICY, "vendor,split,pinned", FACTOR, NULL, 0, 0,
     "kernel sets that the same schedule is run with"},
    {"dtype", 0, "DTYPE", STORM | ONPOLICY, "bf16", 0, "f32|bf16|f16", 0, 0,
     "format to which every stage's output is rounded"},
    {"threads", 0, "N", STORM | ONPOLICY, "all", DS_OPT_NUMBER, "all", 1, DS_MOST_THREADS,
     "threads of the kernels; all = the CPUs this process may use"},
    {"device", 0, "NAME", STORM | ONPOLICY, "cpu", 0, "cpu|sim|sim:N|cuda|cuda:N", 0, 0,
     "where the kernels run: cpu; cuda, a GPU, cuda:N its number; or sim: the text of the CUDA kernels on this machine's CPU, sim:80, :89, :90 (as sim), :100 or :120 with the tensor cores of that architecture"},
    {"rate", 0, "X", STORM | ONPOLICY, "1", 0, NULL, 0, 0,
     "requests that arrive in a step, on the average (Poisson, from --seed); 0 = all at the start"},
    {"max-batch", 0, "N", STORM | ONPOLICY, "16", DS_OPT_NUMBER, NULL, 1, DS_SERVE_MOST_BATCH,
     "requests that are served at a time"},
    {"chunk", 0, "N", STORM | ONPOLICY, "64", DS_OPT_NUMBER, NULL, 0, DS_MOST_CHUNK,
     "rows of a call at most: decode rows first, then pieces of prompts; 0 = no limit"},
    {"cache-rows", 0, "N", STORM | ONPOLICY, "0", DS_OPT_NUMBER, NULL, 0, INT32_MAX / 2,
     "rows of the KV cache for all requests together; where they are used up the youngest request is preempted and computed again; 0 = enough"},
    {"no-reuse", 0, NULL, STORM | ONPOLICY, NULL, 0, NULL, 0, 0,
     "no request starts from the rows of a prompt that begins alike and that an earlier one left in the cache"},
    {"seed", 0, "N", STORM | ONPOLICY, "1", DS_OPT_NUMBER, NULL, 0, INT32_MAX,
     "seed of the arrivals"},
    {"schedule", 0, "FILE", STORM, NULL, DS_OPT_FILE, NULL, 0, 0,
     "a batch schedule instead of the scheduler's, a line a step: {\"batch\": [{\"request\": 0, \"new\": 24, \"cached\": 0}]}"},
    {"sites", 0, "WHICH", STORM | ONPOLICY, "all", 0, "all|resid", 0, 0,
     "which sites are digested: all, or only the residual stream after each layer and what follows the layers"},
    {"force", 0, NULL, STORM | ONPOLICY, NULL, 0, NULL, 0, 0,
     "overwrite an existing record"},
    {"pin-each", 0, NULL, STORM | ONPOLICY, NULL, 0, NULL, 0, 0,
     "after the first set of --compare the same with one op pinned, for each op whose kernel does not claim to be batch-invariant: risk ranks them"},
    {"most", 0, "N", RISK, "5", DS_OPT_NUMBER, NULL, 0, 1000000,
     "choices listed of each kernel set"},
    {"request", 0, "N", REPLAY, NULL, DS_OPT_NUMBER, NULL, 0, DS_SERVE_MOST_REQUESTS,
     "hold only this request against the record"},
    {"alone", 0, NULL, REPLAY, NULL, 0, NULL, 0, 0,
     "with --request: serve it without the others, in the same pieces"},
    {"other-neighbours", 0, NULL, REPLAY, NULL, 0, NULL, 0, 0,
     "with --request: give the other requests prompts of other tokens, as many as before, so that every call keeps its shape"},
    {"export-schedule", 0, "FILE", REPLAY, NULL, DS_OPT_FILE, NULL, 0, 0,
     "run nothing: write the record's schedule to FILE, as storm --schedule reads it"},
    {"export-inputs", 0, "FILE", REPLAY, NULL, DS_OPT_FILE, NULL, 0, 0,
     "run nothing: write the record's inputs to FILE, whole, as --inputs reads them, and what the model said (in --arm) where nothing was recorded"},
    {"arm", 0, "N", REPLAY, NULL, DS_OPT_NUMBER, NULL, 0, INT32_MAX,
     "the arm (kernel set) that is replayed; without it all"},
    {"kernels", 0, "SET", REPLAY, NULL, 0, NULL, 0, 0,
     "other kernels than the record's"},
    {"threads", 0, "N", REPLAY, NULL, DS_OPT_NUMBER, "all", 1, DS_MOST_THREADS,
     "another number of threads than the record's"},
    {"force", 0, NULL, REPLAY, NULL, 0, NULL, 0, 0,
     "go on although the environment is another one"},

    {"by", 0, "LIST", TABLE, "record,kernels,dtype", 0, NULL, 0, 0,
     "columns whose values tell groups apart: observations of one group and prompt are held against each other"},
    {"tsv", 0, NULL, TABLE, NULL, 0, NULL, 0, 0,
     "tab-separated values: a line for each observation"},
    {"metrics", 0, NULL, TABLE, NULL, 0, NULL, 0, 0,
     "with --tsv: a line for each group, with its figures and their intervals"},
    {"seed", 0, "N", TABLE, "1", DS_OPT_NUMBER, NULL, 0, INT32_MAX,
     "seed of the bootstrap samples"},
    {"expect", 0, "LOCK", RUN_ALONE, NULL, DS_OPT_FILE, NULL, 0, 0,
     "hold the run against this lock instead of judging it alone; it is fed the lock's tokens"},
    {"assert", 0, "WHAT", VERIFY | RUN_ALONE, "bits", 0, NULL, 0, 0,
     "what must hold: bits (all that the lock has but what it allows), tokens, text, or fields=REGEX: the lines whose beginnings match"},
    {"partial", 0, NULL, VERIFY | RUN_ALONE, NULL, 0, NULL, 0, 0,
     "hold what both have: without it arms, tensors, classes or origins of the lock that were not looked at make \"same\" exit code 2"},
    {"same-env", 0, NULL, VERIFY | RUN_ALONE, NULL, 0, NULL, 0, 0,
     "refuse if no entry of the lock has this environment, instead of judging against the nearest one"},
    {"add", 0, NULL, LOCK, NULL, 0, NULL, 0, 0,
     "one more entry in the lock that is there, for this platform"},
    {"update", 0, NULL, LOCK, NULL, 0, NULL, 0, 0,
     "make the entry with the nearest environment anew, and print what changed in it"},
    {"entry", 0, "NAME", LOCK | VERIFY | RUN_ALONE, NULL, 0, NULL, 0, 0,
     "the entry of the lock that is made, replaced or compared with"},
    {"force", 0, NULL, LOCK, NULL, 0, NULL, 0, 0,
     "write another lock over one that is there"},
    {"figure", 0, "NAME", REPORT, NULL, 0, "heat|growth|tree|time", 0, 0,
     "only this figure, as SVG"},
    {"arm", 0, "N", REPORT, NULL, DS_OPT_NUMBER, NULL, 0, INT32_MAX,
     "the arm whose heat map, or tree of completions, is drawn"},
    {"concurrency", 0, "LIST", REPORT, NULL, DS_OPT_NUMBER | DS_OPT_LIST, NULL, 1, 1000000,
     "of files of responses: how many requests were under way at a time, one number for all or one for each file in the order given"},
    {"data", 0, "DIR", REPORT, NULL, DS_OPT_FILE, NULL, 0, 0,
     "write the numbers of every figure into this folder, as tab-separated values"},

    {"eps", 0, "X", FINGERPRINT, "0.2", 0, NULL, 0, 0,
     "tokens whose ratio of probabilities lies outside of 1 - X .. 1 + X count as clipped"},
    {"require", 0, "LIST", STRICT, "run,batch,thread", FACTOR, "run|batch|slot|thread|chunk", 0, 0,
     "with --strict: what every kernel must claim not to depend on; giving it is --strict"},
    {"strict", 0, NULL, STRICT, NULL, 0, NULL, 0, 0,
     "do not start (exit code 2) if a kernel of the chosen sets does not claim what --require says"},

    {"shape", 0, "SIZES", CHECK | ORDER | BENCH, NULL, DS_OPT_MANY, NULL, 0, 0,
     "sizes instead of the model's: n=192,k=576 (matmul), width=576 (rmsnorm), heads=9,kv_heads=3,head_dim=64 (attention), top_k=2 (combine), ranks=4 (allreduce); may be repeated"},
    {"device", 0, "NAME", KERNELS | CHECK | ORDER | BENCH | BISECT, "cpu", 0, "cpu|sim|sim:N|cuda|cuda:N", 0, 0,
     "whose kernels, in whose memory: the CPU's; those of a GPU, cuda:N its number; or of sim: the text of the CUDA kernels on this machine's CPU, thread by thread, in memory of its own, sim:80, :89, :90 (as sim), :100 or :120 with the tensor cores of that architecture"},
    {"device", 0, "NAME", EXPLAIN, NULL, 0, "cpu|sim|sim:N|cuda|cuda:N", 0, 0,
     "replay through the variants of this device, too; those of the devices of both sides are"},
    {"rows", 0, "LIST", ORDER, "1", 0, NULL, 0, 0,
     "row counts, as 1-64 or 1,2,8; attention: requests"},
    {"rows", 0, "LIST", BENCH, "1,2,4,8,16,32,64,128,256,512", FACTOR | DS_OPT_NUMBER, NULL, 1, DS_MOST_BATCH,
     "row counts of a call"},
    {"threads", 0, "LIST", CHECK, NULL, FACTOR | DS_OPT_NUMBER, "all", 1, DS_MOST_THREADS,
     "thread counts; without it 1 to 4, powers of two and all CPUs that this process may use"},
    {"threads", 0, "N", ORDER, "1", DS_OPT_NUMBER, NULL, 1, DS_MOST_THREADS,
     "threads of the kernel"},
    {"kv", 0, "N", ORDER, "576", DS_OPT_NUMBER, NULL, 1, 65536,
     "attention: KV slots of every request"},
    {"qlen", 0, "N", ORDER, "1", DS_OPT_NUMBER, NULL, 1, 512,
     "attention: new tokens of each request, of which the last is measured; 1: decode"},
    {"blas-core", 0, "CORE", ORDER | BENCH, NULL, 0, NULL, 0, 0,
     "OpenBLAS core, such as Haswell; without it the library chooses"},
    {"graph", 0, "WHETHER", CHECK | ORDER, "off", 0, "off|on", 0, 0,
     "on: launches on a device are captured as graphs, and the same launch again is the capture again, on other data"},
    {"graph", 0, "LIST", BENCH, "off", FACTOR, "off|on", 0, 0,
     "on a device: launches as they are, or a captured graph of one"},
    {"dtype", 0, "LIST", BENCH, "f32", FACTOR, "f32|bf16|f16", 0, 0,
     "on a device: how activations lie in its memory, and the weights of a matmul; with 16 bits those variants that take them"},
    {"dtype", 0, "DTYPE", ORDER, "f32", 0, "f32|bf16", 0, 0,
     "matmul on a device: how rows lie in its memory; what a vendor's library does with rows of 16 bits is another algorithm"},
    {"l2", 0, "LIST", BENCH, "warm", FACTOR, "warm|flushed", 0, 0,
     "on a device: what the last launch left in its L2 cache, or memory written over before each launch"},
    {"cpus", 0, "WHICH", BENCH, "own", 0, "own|any", 0, 0,
     "while it is timed, every thread has a CPU of its own, or the system places them as it likes"},
    {"seconds", 0, "N", BENCH, NULL, DS_OPT_NUMBER, NULL, 0, 3600,
     "least time for each setting; without it 3 s for passes, 4 s for probes, 0.06 s for every variant of a kernel"},
    {"dot", 0, "FILE", ORDER, NULL, DS_OPT_FILE, NULL, 0, 0,
     "write the trees as graphviz text"},
    {"full", 0, NULL, CHECK, NULL, 0, NULL, 0, 0,
     "every setting, whatever it costs"},

    {"sites", 0, NULL, SHOW | DIFF, NULL, 0, NULL, 0, 0,
     "the grid of layers and stages"},
    {"follow", 0, NULL, TUI, NULL, 0, NULL, 0, 0,
     "go on reading a record that another process is still writing, or is about to create"},
    {"view", 0, "NAME", TUI, NULL, 0, "overview|layers|site|tensor|tokens|runs|environment", 0, 0,
     "the view to begin with"},
    {"site", 0, "SITE", TUI, NULL, 0, NULL, 0, 0,
     "the site to begin at, as LAYER,STAGE or LAYER,STAGE/PART; without it the first drift"},
    {"arm", 0, "N", TUI, NULL, DS_OPT_NUMBER, NULL, 0, INT32_MAX,
     "the arm to begin with; without it that of the first drift"},
    {"ascii", 0, NULL, TUI, NULL, 0, NULL, 0, 0,
     "draw with ASCII only, as is done where the locale is not UTF-8"},
    {"script", 0, "FILE", TUI, NULL, DS_OPT_FILE, NULL, 0, 0,
     "do the commands of a file, one a line, without a terminal: every command of the : prompt, key NAME, keys jj<Enter>"},
    {"size", 0, "SIZE", TUI, "80x24", 0, NULL, 0, 0,
     "columns and lines of the screen of a --script"},
    {"rows-to", 0, "FOLDER", SHOW, NULL, DS_OPT_FILE, NULL, 0, 0,
     "write the bytes of every dumped row to a file of FOLDER that is named by its digest, as xxhsum -H3 gives it"},
    {"verify", 0, NULL, SHOW | DIFF, NULL, 0, NULL, 0, 0,
     "first read every trial and dumped row and hold it against its digest; without it that is done behind the verdict, "
     "but for more than 256 MiB of rows only where nothing differs"},
    {"site", 0, "SITE", SHOW | DIFF, NULL, 0, NULL, 0, 0,
     "one site as LAYER,STAGE or LAYER,STAGE/PART: its drifting rows and the values of both sides"},
    {"row", 0, "ROW", SHOW | DIFF, NULL, 0, NULL, 0, 0,
     "with --site, one row as REQUEST:POSITION: every element on both sides in decimal, %a and hex, and ULP"},
    {"long", 0, NULL, SHOW | DIFF, NULL, 0, NULL, 0, 0,
     "with --sites, first a line for each site that drifts, with its sizes; with --site, for each row, with classes of all arms, "
     "launches and inputs; with --runs, for each trial"},
    {"tokens", 0, NULL, SHOW | DIFF, NULL, 0, NULL, 0, 0,
     "the tokens of both sides, step by step: margin, drift of the logits, distance to a flip, ties, top 8"},
    {"weights", 0, NULL, SHOW | DIFF, NULL, 0, NULL, 0, 0,
     "the digests of every weight: of its bytes as loaded, of its numbers as dequantised, as kernels packed it (run --digest-packed); "
     "of two records those that differ, and where"},
    {"environment", 0, NULL, SHOW | DIFF, NULL, 0, NULL, 0, 0,
     "what the record was made with: machine, build, libraries, variables, options, arms; of two what differs and what is equal"},
    {"runs", 0, NULL, SHOW, NULL, 0, NULL, 0, 0,
     "what the repeats of every arm gave: different runs, where they part, how often a trial disagrees"},
    {"ulp", 0, "N", DIFF, NULL, DS_OPT_NUMBER, NULL, 1, INT64_MAX,
     "elements up to N units of the last place of their own format apart count as equal"},
    {"atol", 0, "X", DIFF, NULL, 0, NULL, 0, 0,
     "elements with |a - b| <= X count as equal; an element passes if any of --ulp, --atol, --rtol that is given holds"},
    {"rtol", 0, "X", DIFF, NULL, 0, NULL, 0, 0,
     "elements with |a - b| <= X * |a| count as equal, a of the first record"},
    {"nmse", 0, "X", DIFF, NULL, 0, NULL, 0, 0,
     "rows with sum (a - b)^2 <= X * sum a^2 count as equal, whatever their elements"},
    {"only", 0, "WHICH", DIFF, NULL, DS_OPT_MANY, NULL, 0, 0,
     "compare only these sites: layers=0-3,7,stages=attn_out,kv_write/k,parts=k,ops=matmul; may be repeated"},
    {"ignore", 0, "WHICH", DIFF, NULL, DS_OPT_MANY, NULL, 0, 0,
     "let differences at these sites not count, in the same form; they still are inputs of what follows"},
    {"partial", 0, NULL, DIFF | TUI, NULL, 0, NULL, 0, 0,
     "compare what both have: without it arms, rows, layers or sites that only one record has make \"nothing differs\" exit code 2"},
    {"across-models", 0, NULL, DIFF | TUI, NULL, 0, NULL, 0, 0,
     "compare records of two models (no weight in common): without it that is exit code 2"},
    {"arm", 0, "N", SHOW, NULL, DS_OPT_NUMBER, NULL, 0, INT32_MAX,
     "with --site, --sites or --tokens, the arm that is looked at"},
    {"against", 0, "N", SHOW, NULL, DS_OPT_NUMBER, NULL, 0, INT32_MAX,
     "with --arm, the arm that it is held against; without it the one that the verdict compares it with"},
    {"arm", 0, "N", DIFF, NULL, DS_OPT_NUMBER, NULL, 0, INT32_MAX,
     "with --site, --sites or --tokens, the arm of the second record that is looked at"},
    {"against", 0, "N", DIFF, NULL, DS_OPT_NUMBER, NULL, 0, INT32_MAX,
     "with --arm, the arm of the first record that it is held against; without it the one with equal factor values"},

    {"explain", 0, NULL, SELFTEST, NULL, 0, NULL, 0, 0,
     "explain every finding, too: both must end in one kind, or say why the verdict's does not stand"},
    {"healthy", 0, NULL, SELFTEST, NULL, 0, NULL, 0, 0,
     "put healthy kernels in the place of every specimen: any finding is wrong"},
    {"shuffle", 0, "SEED", SELFTEST, NULL, DS_OPT_NUMBER, NULL, 0, INT32_MAX,
     "run the cases in another order"},
    {"list", 0, NULL, SELFTEST, NULL, 0, NULL, 0, 0,
     "print the cases and their commands, run nothing"},
    {"specimens", 0, "FOLDER", SELFTEST, NULL, DS_OPT_FILE, NULL, 0, 0,
     "folder of the cases and of specimens.so; without it the one that came with the program"},
    {"arm", 0, "N", EXPLAIN, NULL, DS_OPT_NUMBER, NULL, 0, INT32_MAX,
     "the arm whose drift is explained; without it the first drift, or the first arm in which SITE is an origin"},
    {"reproducer", 0, "DIR", EXPLAIN, NULL, DS_OPT_FILE, NULL, 0, 0,
     "write a C program and a small HDF5 file into DIR that show the difference with nothing else"},
    {"force", 0, NULL, EXPLAIN, NULL, 0, NULL, 0, 0,
     "write --reproducer DIR anew if it is there"},

    {"compare", 0, "WHAT", BISECT, "logits", 0, "logits|tokens", 0, 0,
     "what must agree: every bit of the logits, or the choices of tokens"},
    {"per-layer", 0, NULL, BISECT, NULL, 0, NULL, 0, 0,
     "exchange kernels layer by layer, not an op in all layers at once"},
    {"state", 0, "FILE", BISECT, NULL, DS_OPT_FILE, NULL, 0, 0,
     "keep the outcome of every tried set here, and use those that are there: an interrupted search goes on"},

    {"man", 0, NULL, HELP, NULL, 0, NULL, 0, 0,
     "print the man page"},
    {"completion", 0, "SHELL", HELP, NULL, 0, "bash|zsh|fish", 0, 0,
     "print completions for a shell"},
    {"markdown", 0, NULL, HELP, NULL, 0, NULL, 0, 0,
     "print the table of all options"},

    {"output", 'o', "FILE", DS_ANY_VERB, NULL, DS_OPT_FILE, NULL, 0, 0,
     "write the result to FILE; for run and storm, where the record goes (default ./driftscope-DATE.h5)"},
    {"plugin", 0, "FILE", DS_ANY_VERB, NULL, DS_OPT_FILE | DS_OPT_MANY, NULL, 0, 0,
     "add the kernel variants of a shared object (.so); may be given several times"},
    {"plugin-timeout", 0, "N", DS_ANY_VERB, "10", DS_OPT_NUMBER, NULL, 1, 86400,
     "seconds that loading a plugin or a BLAS library may take, and, where it is given, one call of a "
     "kernel in check, order, bench and explain"},
    {"blas", 0, "FILE", DS_ANY_VERB, NULL, DS_OPT_FILE, NULL, 0, 0,
     "the library (.so) whose cblas_sgemm is matmul/cblas: BLIS, MKL or any other, beside OpenBLAS"},
    {"device-library", 0, "FILE", DS_ANY_VERB, NULL, DS_OPT_FILE, NULL, 0, 0,
     "the libdriftscope_cuda.so of --device cuda, instead of the one beside the program"},
    {"json", 0, NULL, DS_ANY_VERB, NULL, 0, NULL, 0, 0,
     "print the result as one JSON object"},
    {"quiet", 'q', NULL, DS_ANY_VERB, NULL, 0, NULL, 0, 0,
     "no notes and no progress bar on stderr"},
    {"color", 0, "WHEN", DS_ANY_VERB, "auto", 0, "auto|always|never", 0, 0,
     "colours in text results; auto obeys NO_COLOR and wants a terminal"},
    {"error-exit", 0, "N", DS_ANY_VERB, "2", DS_OPT_NUMBER, NULL, 2, 255,
     "exit code for errors; 125 lets git bisect run skip"},
    {"help", 'h', NULL, DS_ANY_VERB, NULL, 0, NULL, 0, 0,
     "-h: short help; --help: long help with examples and exit codes"},
    {"version", 0, NULL, DS_ANY_VERB, NULL, 0, NULL, 0, 0,
     "print the version"},
};
/* clang-format on */

const size_t ds_option_count = ARRAY_SIZE(ds_option_defs);

const char *ds_option_section(const struct ds_option_def *d)
{
    static const struct {
        const char *first, *heading;
    } sections[] = {
        {"model", "Model and prompt"},  {"repeat", "Factors"},
        {"sites", "Probes and record"}, {"requests", "Serving"},
        {"by", "Tables and reports"},   {"expect", "Golden digests"},
        {"shape", "The kernel lab"},    {"sites", "Reading"},
        {"explain", "Self test"},       {"man", "Help"},
        {"output", "Everywhere"},
    };
    const char *heading = "";
    size_t s = 0;
    for (size_t i = 0; i < ds_option_count; i++) {
        if (s < ARRAY_SIZE(sections) && strcmp(ds_option_defs[i].name, sections[s].first) == 0)
            heading = sections[s++].heading;
        if (&ds_option_defs[i] == d)
            break;
    }
    return heading;
}

int ds_option_takes(enum ds_verb_id verb, const struct ds_option_def *d)
{
    return d->verbs == DS_ANY_VERB || (verb != DS_VERB_NONE && (d->verbs >> verb & 1));
}

const struct ds_option_def *ds_option_find(enum ds_verb_id verb, const char *name, size_t n)
{
    for (size_t i = 0; i < ds_option_count; i++)
        if (ds_option_takes(verb, &ds_option_defs[i]) &&
            strncmp(ds_option_defs[i].name, name, n) == 0 && ds_option_defs[i].name[n] == '\0')
            return &ds_option_defs[i];
    return NULL;
}

const struct ds_option_def *ds_option_letter(enum ds_verb_id verb, char letter)
{
    for (size_t i = 0; letter && i < ds_option_count; i++)
        if (ds_option_takes(verb, &ds_option_defs[i]) && ds_option_defs[i].letter == letter)
            return &ds_option_defs[i];
    return NULL;
}
