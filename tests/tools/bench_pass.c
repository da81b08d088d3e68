/* bench_pass.c: runs forward passes on command and says how long each took, so that another program
 * can time them in turn with those of another engine (bench_llama.py). Developers only; built with
 * `make build/tests/tools/bench_pass`.
 *
 * usage: bench_pass MODEL [f32|file], as --weights. Each line of stdin is
 *     prefill TOKENS THREADS SET      one prompt in one call, logits of its last token
 *     decode BATCH THREADS SET        STEPS calls with one token of every request, after one before
 * and is answered by one line: seconds on the clock, CPU seconds of all threads; or "error TEXT". */
#include "base/clock.h"
#include "base/mem.h"
#include "engine/forward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 8, MAX_ROWS = 512, MAX_BATCH = 64 };

/* What a pass needs; kept from line to line while the line stays the same. */
struct subject {
    char line[128];
    struct ds_forward *forward;
    int decode, n, threads;
};

static int32_t tokens[MAX_ROWS];

static int set_up(struct subject *s, struct ds_model *m, const char *line, struct ds_error *err)
{
    char verb[16], set[64];
    if (strcmp(line, s->line) == 0)
        return 0;
    ds_forward_free(s->forward);
    memset(s, 0, sizeof *s);
    if (sscanf(line, "%15s %d %d %63s", verb, &s->n, &s->threads, set) != 4 || s->n < 1)
        return ds_fail(err, "not understood: %s", line);
    s->decode = strcmp(verb, "decode") == 0;
    if (s->n > (s->decode ? MAX_BATCH : MAX_ROWS))
        return ds_fail(err, "%s %d is too much", verb, s->n);
    struct ds_forward_config c = {.threads = s->threads,
                                  .n_requests = s->decode ? s->n : 1,
                                  .max_rows = s->n,
                                  .capacity = s->decode ? STEPS + 1 : s->n};
    if (ds_kernel_set_parse(set, &c.kernels, err) != 0)
        return -1;
    if (strcmp(c.kernels.op[DS_OP_MATMUL]->name, "openblas") == 0 && ds_blas_open(NULL, err) != 0)
        return -1;
    if (ds_forward_new(m, &c, &s->forward, err) != 0)
        return -1;
    snprintf(s->line, sizeof s->line, "%s", line);
    return 0;
}

static int one_call(struct subject *s, struct ds_error *err)
{
    struct ds_batch_seq seqs[MAX_BATCH];
    const float *logits;
    const int32_t *chosen;
    int32_t n, count = s->decode ? s->n : 1;
    for (int32_t i = 0; i < count; i++)
        seqs[i] = (struct ds_batch_seq){.request = i,
                                        .tokens = tokens + (s->decode ? i : 0),
                                        .n_tokens = s->decode ? 1 : s->n,
                                        .logits_from = s->decode ? 0 : s->n - 1};
    struct ds_batch batch = {seqs, count, s->decode ? DS_PHASE_DECODE : DS_PHASE_PREFILL};
    return ds_forward_run(s->forward, &batch, NULL, &logits, &chosen, &n, err);
}

static int measure(struct subject *s, struct ds_error *err)
{
    ds_forward_reset(s->forward);
    if (s->decode && one_call(s, err) != 0)
        return -1;
    double cpu = ds_seconds(CLOCK_PROCESS_CPUTIME_ID), wall = ds_seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < (s->decode ? STEPS : 1); i++)
        if (one_call(s, err) != 0)
            return -1;
    wall = ds_seconds(CLOCK_MONOTONIC) - wall;
    printf("%.9f %.9f\n", wall, ds_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    return 0;
}

int main(int argc, char **argv)
{
    struct ds_error err;
    struct ds_model *m = NULL;
    struct subject s = {.line = ""};
    char line[128];
    if (argc < 2 || argc > 3)
        return fprintf(stderr, "usage: bench_pass MODEL [f32|file]\n"), 2;
    int keep = argc == 3 && strcmp(argv[2], "file") == 0 ? DS_WEIGHTS_FILE : DS_WEIGHTS_F32;
    if (ds_model_open_as(argv[1], keep, (int)sysconf(_SC_NPROCESSORS_ONLN), &m, &err) != 0)
        return fprintf(stderr, "%s\n", err.msg), 2;
    for (int i = 0; i < MAX_ROWS; i++)
        tokens[i] = (int32_t)((uint32_t)i * 2654435761u % (uint32_t)m->hp.vocab);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (set_up(&s, m, line, &err) != 0 || measure(&s, &err) != 0)
            printf("error %s\n", err.msg);
        fflush(stdout);
    }
    ds_forward_free(s.forward);
    ds_model_close(m);
    return 0;
}
