/* verbs.c: the one table of verbs: their names, arguments, help texts and examples; what they take is in
 * option_table.c. Parser, --help, man page and completions are made from it. A verb is listed here when its
 * file exists. */
#include "cli/options.h"

#include <string.h>

#define OPS                                                                                        \
    "embed|rmsnorm|matmul|rope|cache|attention|softmax|silu_mul|add|router|combine|allreduce|"     \
    "sample|custom|transfer|process"
#define ORDER_OPS     "matmul|rmsnorm|attention|softmax|combine|allreduce"
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

static const char *const run_examples[] = {
    "driftscope run",
    "the default sweep of SmolLM2 from the cache: repeats, batch sizes, slots, neighbours, "
    "threads, chunks, modes",
    "driftscope run -m model.gguf -p 'The sky is' --batch 1,4,8 --threads 1 -o sky.h5",
    "one prompt, three batch sizes, the record in sky.h5",
    "driftscope run --kernels vendor,vendor+attention=pinned,pinned",
    "the same sweep for three kernel sets",
    "driftscope run --device cpu,sim --kernels pinned",
    "the pinned kernels of the CPU against the CUDA ones, which run on it as sim",
    "driftscope run --kernels vendor,vendor+matmul=cblas --blas ./libblis.so.4",
    "OpenBLAS against another BLAS, in one run",
    "driftscope run -m random:llama,layers=4,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512 --json",
    "a seeded random model, the verdict as JSON",
    "driftscope run -m random:qwen3moe,layers=2,hidden=64,experts=8,top_k=2 --kernels pinned",
    "a seeded model with experts; a key that does not exist lists those that do",
    "driftscope run --resume sky.h5",
    "do only the trials that an interrupted run is missing",
    "driftscope run --plugin ./mine.so --kernels vendor,vendor+matmul=mine",
    "the vendor's kernels against a matmul of one's own",
    NULL};

static const char *const show_examples[] = {
    "driftscope show sky.h5",
    "the verdict again",
    "driftscope show sky.h5 --sites",
    "the grid of layers and stages",
    "driftscope show sky.h5 --site 0,q_proj",
    "one site: its drifting rows and the values of both sides",
    NULL};

static const char *const diff_examples[] = {
    "driftscope diff haswell.h5 skylakex.h5",
    "two records of the same sites: what differs first, and in which setting",
    "driftscope diff whole.h5 part.h5 --partial",
    "fewer steps, arms or sites in one of them: what both have is compared", NULL};

static const char *const tui_examples[] = {
    "driftscope tui sky.h5",
    "walk through the record: e next drift, f first origin, Enter opens, ? help, Q quits",
    "driftscope tui haswell.h5 skylakex.h5",
    "two records",
    "driftscope tui --follow sky.h5",
    "a record that another process is still writing",
    "driftscope tui sky.h5 --script walk.txt --size 120x40",
    "keys and commands of a file, without a terminal: save-display FILE writes what is on the "
    "screen",
    NULL};

static const char *const kernels_examples[] = {
    "driftscope kernels",
    "every kernel variant: what it promises and whether it runs here",
    "driftscope kernels --json matmul",
    "the matmul variants as JSON",
    "driftscope kernels --device sim",
    "the CUDA kernels that run on this machine's CPU",
    "driftscope kernels --plugin ./mine.so",
    "the same with the variants of a plugin",
    NULL};

static const char *const explain_examples[] = {
    "driftscope explain a.h5",
    "the first drift of the record",
    "driftscope explain a.h5 3,attn_out --arm 4",
    "one site, in one arm",
    "driftscope explain a.h5 b.h5 0,q_proj",
    "one site of two records, both made with --dump all",
    "driftscope explain a.h5 --reproducer drift",
    "and a small program that shows it, in the folder drift",
    "driftscope explain a.h5 -m random:llama,layers=2,seed=9 --plugin mine.so",
    "a record of another model, made with a plugin",
    NULL};

static const char *const order_examples[] = {
    "driftscope order matmul/openblas --shape n=192,k=576 --rows 1-64",
    "at which row counts the library adds in another order, and in which",
    "driftscope order matmul/pinned",
    "the order at every matmul shape of the model, for one row",
    "driftscope order attention --kv 600 --threads 2",
    "all attention variants for a row that sees 600 slots",
    "driftscope order attention/tile-by-qlen --kv 200 --qlen 8",
    "the last of 8 new tokens of a prefill",
    "driftscope order softmax --shape width=576 --rows 1-8",
    "the order of the denominator, replayed with the exp that the outputs show",
    "driftscope order allreduce --shape width=64,ranks=8",
    "in which order the ranks are added",
    "driftscope order rmsnorm/rows --shape width=64 --dot tree.dot",
    "the tree as graphviz text",
    NULL};

static const char *const check_examples[] = {
    "driftscope check",
    "every variant that runs here, at the shapes of SmolLM2",
    "driftscope check matmul/openblas rmsnorm",
    "one matmul and all rmsnorm variants",
    "driftscope check matmul --shape n=4096,k=4096 --threads 1,8 --json",
    "the matmul variants at one shape, as JSON",
    "driftscope check matmul --device sim --shape n=96,k=512",
    "the CUDA matmuls, in shuffled orders of blocks, warps and threads",
    "driftscope check custom/axpy --plugin ./axpy.so",
    "a kernel of your own: exit code 1 if it is not what it claims",
    NULL};

static const char *const bench_examples[] = {
    "driftscope bench",
    "every kernel variant, whole passes, and what the probes cost, on this machine",
    "driftscope bench matmul --shape n=4096,k=4096 --rows 1,8,64 --threads 1",
    "the matmul variants at one shape",
    "driftscope bench pass --kernels vendor,split,pinned --json",
    "whole passes of three kernel sets, as JSON",
    NULL};

static const char *const bisect_examples[] = {
    "driftscope bisect --batch 1,8",
    "which kernels must be exchanged so that batch 8 gives the logits of batch 1",
    "driftscope bisect --batch 1,8 --per-layer --state search.txt",
    "and in which layers; go on where an earlier search ended",
    "driftscope bisect --kernels vendor,vendor+attention=reference+add=pinned",
    "which of the exchanged kernels changes the logits",
    NULL};
static const char *const selftest_examples[] = {
    "driftscope selftest",
    "run every specimen and say which are named right",
    "driftscope selftest O-06 O-13",
    "two of them",
    "driftscope selftest --list O-06",
    "the commands of a case, to be run by hand",
    "driftscope selftest --healthy --shuffle 1",
    "the same commands with healthy kernels in the place of the specimens: nothing may be found",
    NULL};

static const char *const storm_examples[] = {
    "driftscope storm",
    "64 requests of 8 prompts through continuous batching: how many completions does each kernel "
    "set give?",
    "driftscope storm -p 'The sky is' -p Once --requests 200 -n 64 --rate 0.5 -o storm.h5",
    "two prompts in turn, half a request a step",
    "driftscope storm --compare split,pinned --max-batch 4 --chunk 16 --cache-rows 300 --json",
    "two sets, small calls, a small cache, so that requests are preempted",
    "driftscope storm --requests-from requests.jsonl --requests 500",
    "a file of requests, a line each, over again until there are 500",
    "driftscope storm --requests-from requests.jsonl --schedule steps.jsonl",
    "those requests in a batch schedule that was recorded elsewhere",
    "driftscope storm --inputs incident.json --requests 24",
    "recorded conversations: does each call of the model give what it gave then?",
    NULL};

static const char *const replay_examples[] = {
    "driftscope replay storm.h5",
    "run it again, and hold every bit against the record",
    "driftscope replay storm.h5 --request 17",
    "the same, of one request",
    "driftscope replay storm.h5 --request 17 --alone",
    "that request without its neighbours: did they make the difference?",
    "driftscope replay storm.h5 --request 17 --kernels pinned --arm 1",
    "the schedule of arm 1 with other kernels",
    "driftscope replay storm.h5 --request 17 --other-neighbours",
    "the same calls with other requests beside it: do their tokens matter, or only their number?",
    "driftscope replay storm.h5 --export-schedule steps.jsonl",
    "the schedule as text, for storm --schedule",
    "driftscope replay storm.h5 --export-inputs incident.json",
    "prompts, tool results and clock of a record of --inputs, with what the model said: a "
    "recording",
    NULL};

static const char *const table_examples[] = {
    "driftscope table storm.h5",
    "for each kernel set: unique completions, Div_Index, Avg_Std@top1_prob, flips per decode step, "
    "with intervals",
    "driftscope table monday.h5 tuesday.h5 --by start,kernels --tsv --metrics",
    "the same figures for each record's time, as tab-separated values",
    "driftscope table *.h5 --tsv -o all.tsv",
    "what every request of every trial chose, with all factors as columns",
    NULL};

static const char *const onpolicy_examples[] = {
    "driftscope onpolicy",
    "draw 8 requests of 32 tokens as an engine serves them, then score the same tokens in one pass "
    "each",
    "driftscope onpolicy -m model.gguf -f prompts.txt --requests 64 -n 128 --compare vendor",
    "one kernel set, more tokens",
    "driftscope onpolicy --temperature 0.7 --top-p 0.9 --json",
    "another policy; the result as JSON",
    NULL};

static const char *const lock_examples[] = {
    "driftscope lock -o drift.lock",
    "the golden digests of SmolLM2 on this machine, for git",
    "driftscope lock -m model.gguf -p 'The sky is' --batch 1,8 --threads 1 -o sky.lock",
    "of another model, prompt and arms",
    "driftscope lock --add -o drift.lock",
    "one more entry, made on another platform",
    "driftscope lock --update -o drift.lock",
    "this platform's entry anew: prints what changed",
    "driftscope lock sky.h5 -o sky.lock",
    "of a record",
    NULL};

static const char *const verify_examples[] = {
    "driftscope verify drift.lock",
    "ask again what the lock asked: exit code 0, or 1 and what moved",
    "driftscope verify drift.lock --assert tokens",
    "only the tokens must be the same",
    "driftscope verify drift.lock --assert 'fields=^class matmul'",
    "only the lines that begin so",
    "driftscope verify drift.lock sky.h5",
    "hold a record against it: one without some of the lock's arms is no pass",
    "driftscope verify drift.lock part.h5 --partial",
    "what both have will do",
    "driftscope verify old.lock new.lock",
    "two locks of one question, without a run",
    "driftscope verify drift.lock --plugin ./mine.so --error-exit 125",
    "behind git bisect run: which commit brought the drift in",
    NULL};

static const char *const report_examples[] = {
    "driftscope report sky.h5 -o sky.html",
    "verdict, matrix, heat map, growth and environment of a run as one page",
    "driftscope report monday.h5 tuesday.h5 wednesday.h5 -o week.html",
    "several records on one page, and their answers over time",
    "driftscope report monday.jsonl tuesday.jsonl wednesday.jsonl -o week.html",
    "what another system answered, over time: files of responses as fingerprint reads them",
    "driftscope report storm.h5 --figure tree --arm 1 -o tree.svg",
    "the completions of the second kernel set as a drawing alone",
    "driftscope report storm.h5 -o storm.html --data numbers",
    "the page, and the numbers behind its figures as files in the folder numbers",
    NULL};

static const char *const risk_examples[] = {
    "driftscope risk run.h5 -m smollm2",
    "margins, drift, expected flips, the choices most at risk with their tokens, drift that each "
    "layer could bear",
    "driftscope risk pins.h5",
    "of a storm --compare vendor --pin-each: which kernel to pin first, measured with each op "
    "pinned alone",
    "driftscope risk monday.h5 tuesday.h5",
    "what one storm foretells of another of the same prompts, and what was seen there",
    NULL};

static const char *const doctor_examples[] = {
    "driftscope doctor",
    "what on this machine can make results differ, and what to do",
    "driftscope doctor --kernels pinned libmine.so ~/venv/lib",
    "another kernel set; do these libraries set flush-to-zero when they are loaded?",
    "driftscope doctor -- VLLM_BATCH_INVARIANT=1 vllm serve ./model --seed 1",
    "what in this launch line can",
    "driftscope doctor -f workers.sh --json",
    "every launch line of a script, and workers beside each other, as JSON",
    NULL};

static const char *const fingerprint_examples[] = {
    "driftscope fingerprint monday.jsonl tuesday.jsonl",
    "how far the log-probabilities of two collections of responses lie apart, and what simple "
    "cause shows",
    "driftscope fingerprint rollout.jsonl trainer.jsonl --eps 0.1 --json",
    "the same as JSON, with the share of tokens that clipping at 1 +- 0.1 would take", NULL};

static const char *const help_examples[] = {
    "driftscope help run",
    "all about one verb",
    "driftscope help --man > driftscope.1",
    "the man page",
    "driftscope help --completion bash > /etc/bash_completion.d/driftscope",
    "completions for a shell",
    NULL};

const char *const ds_group_headings[DS_GROUPS] = {
    [DS_GROUP_FIND] = "Find where bits differ, and why",
    [DS_GROUP_SERVE] = "What traffic and sampling do to answers",
    [DS_GROUP_ELSEWHERE] = "Other engines, and this machine",
    [DS_GROUP_HOLD] = "Keep a result, and hold later ones to it",
    [DS_GROUP_KERNEL] = "A kernel on its own",
    [DS_GROUP_SELF] = "This program",
};

/* clang-format off */
const struct ds_verb_def ds_verbs[] = {
    {DS_VERB_RUN, DS_GROUP_FIND, "run", "", NULL, 0, 0, 1,
     "run a model under varied conditions, record digests, give the verdict",
     "Runs the model once per setting (arm) and repeat, digests every row at every site, writes the record and prints the "
     "verdict. Factor options take values separated by commas; the first is the base, and one factor at a time leaves it.",
     run_examples,
     {NULL}},
    {DS_VERB_SHOW, DS_GROUP_FIND, "show", "RECORD", NULL, 1, 1, 0,
     "print the verdict of a record, its grid of sites, or the values at one site",
     "Reads a record, also one that is still growing or was cut short, and prints its verdict.",
     show_examples,
     {NULL}},
    {DS_VERB_TUI, DS_GROUP_FIND, "tui", "RECORD [RECORD]", NULL, 1, 2, 0,
     "look into a record on the terminal: from the verdict to the element",
     "Shows the verdict, the map of layers and stages, one site, both sides of a row element by element, the tokens, the runs "
     "and what the machines were; ? lists keys and commands. It only reads. Where stdout is no terminal it prints the verdict.",
     tui_examples,
     {"whatever the record holds", NULL, "an error, or two records that cannot be compared"}},
    {DS_VERB_DIFF, DS_GROUP_FIND, "diff", "RECORD RECORD", NULL, 2, 2, 0,
     "compare two records",
     "Compares two records row by row: other kernels, builds, machines, weights, hyperparameters, or parts of the work "
     "(other batches, chunks, steps, sites, layers, the beginning of the prompt). What differs in the setting is named "
     "first, then the first site whose output differs although its inputs do not; what has no partner is listed, "
     "and where nothing differs, but one record has arms, rows, layers or sites that the other lacks, that is no pass: exit code 2, "
     "unless --partial says that what both have will do. "
     "Default is bits; tolerances need the values of differing rows in both records (run with --dump all).",
     diff_examples,
     {NULL}},
    {DS_VERB_EXPLAIN, DS_GROUP_FIND, "explain", "RECORD [RECORD2] [SITE]", NULL, 1, 3, 0,
     "tell why the bits of one place differ: replay both sides",
     "Takes the dumped rows of the first drift (or of SITE, as LAYER,STAGE) and what their kernel read, and launches every variant "
     "of the op again as both sides did: the same number of rows, threads and library core. Then it measures the order in which both "
     "sides add and adds the rows' own inputs in it, holds both sides against the exact result, and their difference against what "
     "random orders and rounded inputs do to these rows. Of two records A is the first and B the second, paired as `diff` does: a run "
     "keeps a few rows of what has no reference in it, with --dump all all of them. What the record's verdict says is evidence like the "
     "rest, and the last line is the one claim from all of it.",
     explain_examples,
     {"there is one claim from all of the evidence",
      "there is none",
      "an error, or nothing that could be replayed or measured"}},
    {DS_VERB_BISECT, DS_GROUP_FIND, "bisect", "", NULL, 0, 0, 1,
     "find the kernels that bring a difference in",
     "Exchanges kernels between two sets until the two arms agree: the smallest set of kernels to exchange so that the logits "
     "are equal, and the smallest one that alone brings the difference in. With two values of one factor both arms have the "
     "same kernels and differ in that; without, the two kernel sets themselves are compared.",
     bisect_examples,
     {"there is nothing to find", "found, or some kernels disagree with themselves", "an error"}},
    {DS_VERB_STORM, DS_GROUP_SERVE, "storm", "", NULL, 0, 0, 1,
     "serve many requests at a time and count the completions of each prompt",
     "Runs requests through a continuous-batching scheduler with seeded arrivals, once for each kernel set: every "
     "request follows its own tokens, all rows are recorded. Equal prompts should give equal completions; where they do not, the first "
     "row with other bits is named with its kernel and its batch, then the first token. A set whose kernels do not claim to be "
     "batch-invariant and that still gave one completion a prompt had no power here. With --inputs conversations are held against their "
     "recording, call by call.",
     storm_examples,
     {"one completion for each prompt from every set, as it was recorded",
      "more, or another one",
      "an error, or neither, but choices among NaN"}},
    {DS_VERB_REPLAY, DS_GROUP_SERVE, "replay", "RECORD", NULL, 1, 1, 0,
     "run a recorded storm, or one of its requests, again, and change one thing",
     "Takes schedule, prompts and kernels from a record of storm, checks model and environment, which are named where they differ, "
     "runs the schedule again and holds every digest and token against the record, which has its --inputs whole. With --alone, --kernels or --threads one thing is "
     "another one, and the answer says what that changed, and where first.",
     replay_examples,
     {"the same bits", "other ones", "an error, or nothing to compare"}},
    {DS_VERB_ONPOLICY, DS_GROUP_SERVE, "onpolicy", "", NULL, 0, 0, 1,
     "hold the path that generates tokens against the one that scores them",
     "Draws tokens as an engine serves them, step by step among other requests, then feeds the same tokens through one pass a request, as a "
     "trainer scores them, with the same kernels: KL, k1, k3 and the largest difference of a token's log-probability between the two, and "
     "the first row with other bits, with its kernel and both batches. Log-probabilities are of logits divided by the temperature, without "
     "filters.",
     onpolicy_examples,
     {"every set gave the same bits", "other ones", "an error, or nothing to compare"}},
    {DS_VERB_RISK, DS_GROUP_SERVE, "risk", "RECORD [RECORD...]", NULL, 1, 1000, 0,
     "tell how near the choices of a record are to other tokens, and what to pin first",
     "Reads a record of run, storm or onpolicy: for each kernel set the margins of its choices, how far the logits drifted, the flips in 1,000 "
     "choices that both lead one to expect (with an interval from bootstrap samples of prompts) and those seen, the choices most at risk, "
     "or nearest to another token, with their candidates, and the drift of each layer that would turn one over. Sets that are the first one with an op exchanged are "
     "ranked. Of further storms of the same prompts it says how many requests will part, and how many did.",
     risk_examples,
     {"no choice has a margin within the largest measured drift",
      "some have",
      "an error, or no drift but NaN among the logits"}},
    {DS_VERB_TABLE, DS_GROUP_SERVE, "table", "RECORD...", NULL, 1, 100000, 0,
     "print what many records hold as one table, and how unlike their answers are",
     "An observation is what one request of one trial chose: --tsv prints one a line with all factors as columns, --json the same and the "
     "figures. Observations with the same prompt, model and values of the columns --by are held against the first of them: unique "
     "completions, Div_Index and Avg_Std@top1_prob (arXiv 2506.09501), flips per decode step (2605.30218), maximum probability divergence "
     "(2511.17826), each with a 95 % interval from bootstrap samples of prompts. Records are read one after another: their number costs no "
     "memory. A record that cannot be read or is damaged is an error, and nothing is printed.",
     table_examples,
     {"the table is printed, whatever it says", NULL, "an error: a record that cannot be read or is damaged"}},
    {DS_VERB_DOCTOR, DS_GROUP_ELSEWHERE, "doctor", "[FILE ...] [-- COMMAND ...]", NULL, 0, 256, 0,
     "tell what here, or in the launch line of an engine, can make results differ",
     "Looks for what is known to change results from run to run, machine to machine and with the traffic: sampler, seeds, threads, code "
     "chosen by processor, arithmetic, batches, formats, clocks in chat templates. Each line is found, fixed or cannot be told from here, "
     "with what to do. FILEs are shared objects, or folders of them. Behind -- stands a command of vLLM, SGLang or llama.cpp: it is read, "
     "not run; variables before it count, those of this process, and plain lines of the file that --config names.",
     doctor_examples,
     {"nothing found", "something found", "an error"}},
    {DS_VERB_FINGERPRINT, DS_GROUP_ELSEWHERE, "fingerprint", "A.jsonl B.jsonl", NULL, 2, 2, 0,
     "hold log-probabilities that other systems gave against each other",
     "Reads OpenAI-style responses with log-probabilities (chat and completions, vLLM's token ids), those of SGLang's /generate and of "
     "llama.cpp's /completion, one JSON a line, and pairs them by custom_id, id or order. Tokens must match first: other prompts, a missing BOS, a shift and another tokenization are named. Then, "
     "for tokens, sequences and positions: k1, k2, k3, mean exp|d|, the share that is clipped, the worst 20; and simple causes with their "
     "evidence: temperature, filters and penalties, a renormalised top-k, masked padding, a bf16 head, products of fewer bits, other weights.",
     fingerprint_examples,
     {"equal", "not equal", "an error, nothing to compare, or equal as far as both go: responses or tokens have no partner"}},
    {DS_VERB_LOCK, DS_GROUP_HOLD, "lock", "[RECORD]", NULL, 0, 1, 1,
     "write golden digests: a small text for git that verify holds a run against",
     "Runs a sweep, or reads a record, and writes what it gave: tensor digests, tokens, log-probabilities, and of every kernel the "
     "classes of each factor, the drifts that it starts, their kind and size. A lock has an entry for each platform; the model, the "
     "prompts and the arms are the same for all. -o names the lock (default drift.lock). With --add and --update "
     "the lock says what is run. The key that is printed is the "
     "same for the same model, prompts, options, arms and kernels.",
     lock_examples,
     {"the lock is written", NULL, "an error; nothing is written"}},
    {DS_VERB_VERIFY, DS_GROUP_HOLD, "verify", "LOCK [RECORD|LOCK]", NULL, 1, 2, 0,
     "hold a run, a record or another lock against golden digests",
     "Runs what the lock asks for, or takes a record or another lock, and holds it against the entry with the nearest environment. "
     "Drift that the lock knows is allowed. "
     "Of the first tensor with other "
     "bits the kernel is named, and beside it what is another one in the environment.",
     verify_examples,
     {"what is asserted holds",
      "other bits in the base arm, another token, a new border between classes, a new origin, another kind, a larger size, "
      "repeats that disagree",
      "an error, nothing to compare, some of what the lock has not looked at (a record with fewer of its arms or sites, or "
      "without heal trials; --partial says that the rest will do), or a lock that does not agree with itself: a line was "
      "lost, or its question changed"}},
    {DS_VERB_REPORT, DS_GROUP_HOLD, "report", "RECORD...", NULL, 1, 10000, 0,
     "write records as one self-contained page of HTML",
     "For people: the verdict, the matrix of kernels and conditions, the heat map of layers and stages, the growth of the error, the trees of "
     "a storm's completions and the environment, in one file that needs no network and no script, reads on paper and in the dark, and has the "
     "numbers of every figure beside it. Several are charted over time: equal prompts at equal settings; so are several files of responses "
     "with log-probabilities, by custom_id or order, and `created`. --figure draws one of them as SVG. Whatever names and texts a record holds, they are shown as text.",
     report_examples,
     {"whatever the records hold", NULL, "an error: a record that cannot be read or is damaged"}},
    {DS_VERB_KERNELS, DS_GROUP_KERNEL, "kernels", "[OP]", OPS "|schedule", 0, 1, 0,
     "list kernel variants, their claims and whether they run here",
     "Lists the variants of every op (or of one): the kernel sets that use it, the invariances it claims, what it can do "
     "beyond its op's plain form, the plugin it comes from, whether it can run here and if not why.",
     kernels_examples,
     {"the variants are listed", NULL, "an error"}},
    {DS_VERB_CHECK, DS_GROUP_KERNEL, "check", "[OP[/VARIANT]|all ...]", OPS "|all", 0, 32, 0,
     "tell whether kernels are what they claim",
     "Launches each variant in child processes with varied rows, positions, neighbours, threads, schedules, addresses, sizes "
     "and special values, its arrays between guard pages. Each property holds over so many comparisons or is broken, with "
     "the smallest breaking pair.",
     check_examples,
     {"what is claimed holds",
      "a claim is broken, a result is wrong, or a fault of memory; what is broken and not claimed is not",
      "an error, or no variant could run"}},
    {DS_VERB_ORDER, DS_GROUP_KERNEL, "order", "OP[/VARIANT]", ORDER_OPS, 1, 1, 0,
     "measure in which order a kernel adds, and prove it by replay",
     "Finds the tree by which a kernel adds its terms, from outside, for every class of outputs, and evaluates it on random "
     "inputs with scalar arithmetic: the share of outputs that come out bit for bit is printed.",
     order_examples,
     {"the replay gives all outputs bit for bit",
      "it does not give some, or repeats of one call disagree, so that there is no fixed order",
      "an error"}},
    {DS_VERB_BENCH, DS_GROUP_KERNEL, "bench", "[OP[/VARIANT]|pass|probes|digest ...]", OPS "|pass|probes|digest", 0, 32, 0,
     "measure the speed of kernels and passes, and what the probes cost",
     "Times kernel variants side by side at the model's shapes, then whole passes of kernel sets, then passes with and "
     "without probes. Machines are shared and noisy: contenders run in every round in a shuffled order, a ratio to the "
     "vendor's variant is taken within each round, the vendor's runs twice a round to measure the noise, and where "
     "that is 10 % or more nothing is said (~). One thread is measured in CPU time, more threads and kernels that wait in wall time. "
     "Each thread of a team has a CPU of its own meanwhile (--cpus). Settings that would take more than 6 s are left out and counted. "
     "digest, on a device: how fast its kernel digests rows, beside a copy that moves as many bytes.",
     bench_examples,
     {"the times are printed, whatever they are", NULL, "an error"}},
    {DS_VERB_SELFTEST, DS_GROUP_SELF, "selftest", "[CASE ...]", NULL, 0, 1000, 0,
     "run known faults and tell whether the answers name them",
     "Every case is a fault that people had to hunt by hand, rebuilt as a kernel, a model or a schedule. Its commands are run "
     "as they would be typed, and the answers are held against what is known about the fault.",
     selftest_examples,
     {"every answer is right", "some answer is wrong or blames what is innocent", "an error, or no case could run"}},
    {DS_VERB_HELP, DS_GROUP_SELF, "help", "[VERB]", NULL, 0, 1, 0,
     "explain the program or one verb; print man page and completions",
     "",
     help_examples,
     {"printed", NULL, "an error"}},
};
/* clang-format on */

const size_t ds_verb_count = ARRAY_SIZE(ds_verbs);

const struct ds_verb_def *ds_verb_find(const char *name)
{
    for (size_t i = 0; i < ds_verb_count; i++)
        if (strcmp(ds_verbs[i].name, name) == 0)
            return &ds_verbs[i];
    return NULL;
}

const struct ds_verb_def *ds_verb_by_id(enum ds_verb_id id)
{
    for (size_t i = 0; i < ds_verb_count; i++)
        if (ds_verbs[i].id == id)
            return &ds_verbs[i];
    return NULL;
}
