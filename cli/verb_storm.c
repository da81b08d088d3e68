/* verb_storm.c: `driftscope storm`: requests through a continuous-batching scheduler, once a kernel set; the
 * record; how many completions each prompt got. Owns the record's life; scheduling and running are the
 * engine's, what the trials mean is dumps/storm's. */
#include "cli/cli.h"
#include "cli/require.h"
#include "cli/storm.h"
#include "cli/verdict.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct storm {
    const struct ds_options *o;
    struct ds_storm_setup setup;
    struct ds_storm_hit *hits;
    size_t n_hits;
    char path[4096];
    struct ds_writer *writer;
    struct ds_storm_result result;
};

/* ---- an arm ---------------------------------------------------------------------------------- */

/* The texts of the completions, while their tokens are at hand. */
static int take_texts(const struct storm *st, const struct ds_trial_data *t, struct ds_storm_arm *a,
                      struct ds_error *err)
{
    const struct ds_tokenizer *tokenizer = st->setup.plan.tokenizer;
    size_t *begin;
    const struct ds_step **steps;
    if (!tokenizer)
        return 0;
    if (!(a->texts = ds_calloc(a->s.n_completions, sizeof *a->texts, "completions", err)) ||
        ds_storm_steps(t, a->s.n_requests, &begin, &steps, err) != 0)
        return -1;
    int rc = 0;
    for (size_t c = 0; rc == 0 && c < a->s.n_completions; c++) {
        const size_t request = (size_t)a->s.completions[c].request;
        struct ds_buf raw = {0}, text = {0};
        for (size_t k = begin[request]; rc == 0 && k < begin[request + 1]; k++)
            rc = ds_tokenizer_decode(tokenizer, steps[k]->token, 1, &raw, err);
        ds_buf_puts(&text, "");
        ds_buf_escape(&text, raw.data ? raw.data : "", raw.len);
        a->texts[c] = text.data;
        if (rc == 0 && (raw.failed || text.failed))
            rc = ds_fail(err, "out of memory for a completion");
        ds_buf_free(&raw);
    }
    free(begin);
    free(steps);
    return rc;
}

static int take_trial(void *ctx, const struct ds_trial_data *t, const double *seconds,
                      struct ds_error *err)
{
    struct storm *st = ctx;
    const struct ds_header *h = &st->setup.plan.header;
    struct ds_storm_arm *a = &st->result.arms[st->result.n_arms];
    if (ds_writer_add(st->writer, t, err) != 0)
        return -1;
    *a = (struct ds_storm_arm){
        .arm = t->info.arm, .rows = t->n_rows, .tokens = t->n_steps, .seconds = t->info.steps_s};
    st->result.n_arms++;
    for (size_t i = 0; i < st->setup.serve.n_steps; i++)
        a->scheduler += seconds[st->setup.serve.n_steps + i];
    if (ds_storm_make(h, t, (size_t)st->setup.serve.n_requests, st->hits, st->n_hits, &a->s, err) !=
        0)
        return -1;
    if (a->s.first_drift >= 0)
        a->launch = t->launches[a->s.requests[a->s.first_drift].place.launch];
    if (take_texts(st, t, a, err) != 0 ||
        ds_serve_waits(&st->setup.serve, seconds, &a->wait, err) != 0 ||
        (st->setup.plan.inputs.calls &&
         ds_inputs_judge(st->setup.plan.inputs.calls, st->setup.plan.inputs.n_calls, t,
                         (size_t)st->setup.serve.n_requests, &a->followed, &a->n_followed,
                         err) != 0))
        return -1;
    return ds_storm_invariant(h, t->info.arm, &a->invariant, err);
}

static void progress(void *ctx, double done, double total)
{
    const struct storm *st = ctx;
    ds_cli_progress(st->o, "kernel sets", done, total);
}

/* ---- all ------------------------------------------------------------------------------------- */

static int start(struct storm *st, struct ds_error *err)
{
    if (ds_storm_setup_new(st->o, NULL, &st->setup, err) != 0 ||
        ds_cli_require(st->o, &st->setup.plan.header, "--compare", err) != 0 ||
        ds_storm_hits(&st->setup.serve, &st->hits, &st->n_hits, err) != 0)
        return -1;
    const struct ds_header *h = &st->setup.plan.header;
    st->result.arms = ds_calloc(h->n_arms, sizeof *st->result.arms, "arms", err);
    return st->result.arms
               ? ds_cli_create_record(st->o, h, st->path, sizeof st->path, &st->writer, err)
               : -1;
}

static int run(struct storm *st, int *interrupted, struct ds_error *err)
{
    const struct ds_serve_run s = {.model = st->setup.plan.model,
                                   .header = &st->setup.plan.header,
                                   .plan = &st->setup.serve,
                                   .prompts = st->setup.prompts,
                                   .n_prompts = st->setup.n_prompts,
                                   .f32_at = st->setup.plan.options.f32_at,
                                   .resid_only = st->setup.resid_only,
                                   .sampler = st->setup.plan.options.sampler,
                                   .n_arms = (int32_t)st->setup.plan.header.n_arms,
                                   .last = 1,
                                   .ctx = st,
                                   .sink = take_trial,
                                   .progress = progress,
                                   .stop = ds_cli_stop()};
    ds_cli_progress(st->o, "kernel sets", 0, s.n_arms);
    int rc = ds_serve_run(&s, interrupted, err);
    ds_cli_progress(st->o, "", -1, 0);
    return ds_cli_close_record(&st->writer, st->path, st->result.n_arms > 0, rc, err);
}

/* They were run in whatever order needs the least memory. */
static int by_arm(const void *pa, const void *pb)
{
    const struct ds_storm_arm *a = pa, *b = pb;
    return a->arm < b->arm ? -1 : a->arm > b->arm;
}

static int report(struct storm *st, struct ds_error *err)
{
    if (st->result.n_arms > 0)
        qsort(st->result.arms, st->result.n_arms, sizeof *st->result.arms, by_arm);
    struct ds_buf out = {0};
    st->result.o = st->o;
    st->result.setup = &st->setup;
    st->result.path = st->path;
    int rc = 0;
    if (ds_opt_flag(st->o, "json"))
        rc = ds_storm_json(&out, &st->result, err);
    else
        ds_storm_text(&out, &st->result);
    if (rc == 0)
        rc = ds_cli_emit(st->o, &out, err);
    ds_buf_free(&out);
    return rc;
}

static void free_arm(struct ds_storm_arm *a)
{
    for (size_t c = 0; a->texts && c < a->s.n_completions; c++)
        free(a->texts[c]);
    free(a->texts);
    free(a->followed);
    ds_storm_free(&a->s);
}

int ds_verb_storm(const struct ds_options *o)
{
    struct storm st = {.o = o};
    struct ds_error err = {{0}, {0}};
    int interrupted = 0, code;
    ds_cli_stop_on_signal();
    if (start(&st, &err) != 0 || run(&st, &interrupted, &err) != 0)
        code = ds_cli_error(o, &err);
    else if (interrupted) {
        ds_cli_note(o, "interrupted: %zu of %zu kernel sets are saved in %s", st.result.n_arms,
                    st.setup.plan.header.n_arms, st.path);
        code = DS_EXIT_INTERRUPTED;
    } else {
        code = report(&st, &err) != 0 ? ds_cli_error(o, &err)
                                      : ds_cli_exit(o, ds_storm_code(&st.result));
    }
    if (st.writer)
        ds_writer_close(st.writer, NULL);
    for (size_t i = 0; i < st.result.n_arms; i++)
        free_arm(&st.result.arms[i]);
    free(st.result.arms);
    free(st.hits);
    ds_storm_setup_free(&st.setup);
    return code;
}
