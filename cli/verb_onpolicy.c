/* verb_onpolicy.c: `driftscope onpolicy`: tokens drawn as an engine serves them, and the same tokens scored in one pass
 * a request; for each kernel set two trials in one record. Owns the record's life and the logits of both; running is the
 * engine's (serve.h), what differs dumps/storm's and dumps/policy's to say. */
#include "cli/cli.h"
#include "cli/onpolicy.h"
#include "cli/require.h"

#include "base/mem.h"
#include "engine/worker.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct onpolicy {
    const struct ds_options *o;
    struct ds_storm_setup setup;
    struct ds_storm_hit *hits;
    size_t n_hits;
    char path[4096];
    struct ds_writer *writer;
    struct ds_onpolicy_result result;

    size_t *at;       /* [n_requests + 1] first row of each request's logits */
    float *logits[2]; /* [at[n_requests]][vocab] sampled, scored: shared with the workers */
    size_t bytes;     /* of one of them */

    /* The set at hand. */
    struct ds_trial_data sampled; /* its sampled trial */
    struct ds_serve_prompt *texts;
    int32_t *tokens;  /* of all texts */
    int32_t *prompts; /* [n_requests] their lengths */
    double done;
};

/* ---- before ---------------------------------------------------------------------------------- */

/* Every request generates the same number of tokens. */
static int share_logits(struct onpolicy *x, struct ds_error *err)
{
    const size_t n = (size_t)x->setup.serve.n_requests, each = (size_t)x->setup.config.tokens;
    size_t row = (size_t)x->setup.plan.model->hp.vocab * sizeof(float);
    if (!(x->at = ds_calloc(n + 1, sizeof *x->at, "requests", err)))
        return -1;
    for (size_t r = 0; r < n; r++)
        x->at[r + 1] = x->at[r] + each;
    if (__builtin_mul_overflow(row, n * each, &x->bytes))
        return ds_fail(err, "out of memory for logits");
    for (int i = 0; i < 2; i++) {
        void *p = mmap(NULL, x->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
            ds_fail(err, "out of memory for the logits of %zu tokens", n * each);
            return ds_hint(err, "fewer --requests or --new-tokens");
        }
        x->logits[i] = p;
    }
    return 0;
}

static int start(struct onpolicy *x, struct ds_error *err)
{
    if (ds_storm_setup_new(x->o, "decode,prefill", &x->setup, err) != 0 ||
        ds_cli_require(x->o, &x->setup.plan.header, "--compare", err) != 0 ||
        ds_storm_hits(&x->setup.serve, &x->hits, &x->n_hits, err) != 0 || share_logits(x, err) != 0)
        return -1;
    const struct ds_header *h = &x->setup.plan.header;
    const size_t n = (size_t)x->setup.serve.n_requests;
    x->result.sets = ds_calloc(h->n_arms, sizeof *x->result.sets, "kernel sets", err);
    x->texts = ds_calloc(n, sizeof *x->texts, "requests", err);
    x->prompts = ds_calloc(n, sizeof *x->prompts, "requests", err);
    x->tokens =
        ds_calloc(n * ((size_t)x->setup.serve.capacity + 1), sizeof *x->tokens, "tokens", err);
    return x->result.sets && x->texts && x->prompts && x->tokens
               ? ds_cli_create_record(x->o, h, x->path, sizeof x->path, &x->writer, err)
               : -1;
}

/* ---- a kernel set ---------------------------------------------------------------------------- */

static int take_sampled(void *ctx, const struct ds_trial_data *t, const double *seconds,
                        struct ds_error *err)
{
    struct onpolicy *x = ctx;
    struct ds_buf copy = {0};
    (void)seconds;
    if (ds_writer_add(x->writer, t, err) != 0)
        return -1;
    ds_trial_pack(t, &copy);
    int rc = copy.failed ? ds_fail(err, "out of memory for a trial")
                         : ds_trial_unpack(copy.data, copy.len, &x->sampled, err);
    ds_buf_free(&copy);
    return rc;
}

/* Prompt and generated tokens of every request, but for the last one, which nothing was computed from. */
static int make_texts(struct onpolicy *x, struct ds_error *err)
{
    const size_t n = (size_t)x->setup.serve.n_requests, room = (size_t)x->setup.serve.capacity + 1;
    size_t *begin;
    const struct ds_step **steps;
    if (ds_storm_steps(&x->sampled, n, &begin, &steps, err) != 0)
        return -1;
    for (size_t r = 0; r < n; r++) {
        const struct ds_serve_prompt *p = &x->setup.prompts[r % (size_t)x->setup.n_prompts];
        int32_t *to = x->tokens + r * room;
        const size_t chosen = begin[r + 1] - begin[r];
        memcpy(to, p->tokens, (size_t)p->n * sizeof *to);
        for (size_t k = 0; k + 1 < chosen && (size_t)p->n + k < room; k++)
            to[(size_t)p->n + k] = steps[begin[r] + k]->token;
        x->prompts[r] = p->n;
        x->texts[r] = (struct ds_serve_prompt){.tokens = to, .n = p->n + (int32_t)chosen - 1};
    }
    free(begin);
    free(steps);
    return 0;
}

/* Every token's log-probabilities, by request and step. */
static int measure(struct onpolicy *x, struct ds_onpolicy_set *set, struct ds_error *err)
{
    const size_t n = (size_t)x->setup.serve.n_requests, total = x->at[n];
    const uint32_t vocab = (uint32_t)x->setup.plan.model->hp.vocab;
    struct ds_policy_token *list = ds_calloc(total, sizeof *list, "tokens", err);
    if (!list)
        return -1;
    for (size_t i = 0; i < x->sampled.n_steps; i++) {
        const struct ds_step *s = &x->sampled.steps[i];
        list[x->at[s->request] + (size_t)s->step] =
            (struct ds_policy_token){.request = s->request, .step = s->step, .token = s->token};
    }
    for (size_t i = 0; i < total; i++)
        ds_policy_token(x->logits[0] + i * vocab, x->logits[1] + i * vocab, vocab,
                        (double)x->setup.plan.options.sampler.temperature, &list[i]);
    int rc = ds_policy_make(list, total, &set->p, err);
    set->worst = list[set->p.drawn.max_at];
    free(list);
    return rc;
}

static int take_scored(void *ctx, const struct ds_trial_data *t, const double *seconds,
                       struct ds_error *err)
{
    struct onpolicy *x = ctx;
    const struct ds_header *h = &x->setup.plan.header;
    struct ds_onpolicy_set *set = &x->result.sets[x->result.n_sets];
    (void)seconds;
    if (ds_writer_add(x->writer, t, err) != 0 ||
        ds_storm_match(h, t, &x->sampled, (size_t)x->setup.serve.n_requests, -1, x->hits, x->n_hits,
                       &set->match, err) != 0)
        return -1;
    if (set->match.differs)
        set->launch = t->launches[set->match.launch];
    if (measure(x, set, err) != 0 || ds_storm_invariant(h, t->info.arm, &set->invariant, err) != 0)
        return -1;
    x->result.n_sets++;
    return set->match.compared ? 0 : ds_fail(err, "nothing could be compared");
}

/* One arm: the sampled one by the schedule, the scored one text by text. */
static int run_arm(struct onpolicy *x, const struct ds_onpolicy_set *set, int scored,
                   struct ds_hold *hold, int *interrupted, struct ds_error *err)
{
    struct ds_serve_plan texts = {0};
    const int32_t n = x->setup.serve.n_requests;
    if (scored && (make_texts(x, err) != 0 || ds_serve_texts(x->texts, n, &texts, err) != 0))
        return -1;
    const struct ds_serve_run s = {.model = x->setup.plan.model,
                                   .header = &x->setup.plan.header,
                                   .plan = scored ? &texts : &x->setup.serve,
                                   .prompts = scored ? x->texts : x->setup.prompts,
                                   .n_prompts = scored ? n : x->setup.n_prompts,
                                   .f32_at = x->setup.plan.options.f32_at,
                                   .resid_only = x->setup.resid_only,
                                   .sampler = x->setup.plan.options.sampler,
                                   .scored = scored ? x->prompts : NULL,
                                   .keep = x->logits[scored],
                                   .keep_at = x->at,
                                   .hold = hold,
                                   .against = scored ? &set->sampled : NULL,
                                   .first_arm = (int32_t)(scored ? set->scored : set->sampled),
                                   .n_arms = 1,
                                   .ctx = x,
                                   .sink = scored ? take_scored : take_sampled,
                                   .stop = ds_cli_stop()};
    int rc = ds_serve_run(&s, interrupted, err);
    ds_serve_plan_free(&texts);
    ds_cli_progress(x->o, "arms", ++x->done, (double)x->setup.plan.header.n_arms);
    return rc;
}

/* Rows of the sampled arm are held until the scored one was compared with them: so sizes are known of each layer. */
static int run_set(struct onpolicy *x, const struct ds_onpolicy_set *set, int *interrupted,
                   struct ds_error *err)
{
    const size_t chosen = x->at[x->setup.serve.n_requests];
    struct ds_hold *hold;
    int rc = ds_serve_hold(&x->setup.plan.header, x->setup.plan.options.f32_at, set->sampled,
                           chosen, &hold, err);
    for (int scored = 0; scored < 2 && rc == 0 && !*interrupted; scored++)
        rc = run_arm(x, set, scored, hold, interrupted, err);
    ds_hold_free(hold);
    return rc;
}

/* The arm with the same kernels and the other mode. */
static uint32_t scored_arm(const struct ds_header *h, uint32_t sampled)
{
    uint32_t found = sampled;
    for (uint32_t a = 0; a < h->n_arms; a++)
        if (a != sampled && strcmp(h->arms[a].values[DS_FACTOR_KERNELS],
                                   h->arms[sampled].values[DS_FACTOR_KERNELS]) == 0)
            found = a;
    return found;
}

static int run(struct onpolicy *x, int *interrupted, struct ds_error *err)
{
    const struct ds_header *h = &x->setup.plan.header;
    int rc = 0;
    ds_cli_progress(x->o, "arms", 0, (double)h->n_arms);
    for (uint32_t a = 0; a < h->n_arms && rc == 0 && !*interrupted; a++) {
        if (strcmp(h->arms[a].values[DS_FACTOR_MODE], "decode") != 0)
            continue;
        struct ds_onpolicy_set *set = &x->result.sets[x->result.n_sets];
        set->sampled = a;
        set->scored = scored_arm(h, a);
        rc = run_set(x, set, interrupted, err);
        ds_trial_data_free(&x->sampled);
        memset(&x->sampled, 0, sizeof x->sampled);
    }
    ds_cli_progress(x->o, "", -1, 0);
    return ds_cli_close_record(&x->writer, x->path, x->result.n_sets > 0, rc, err);
}

/* ---- all ------------------------------------------------------------------------------------- */

static int report(struct onpolicy *x, struct ds_error *err)
{
    struct ds_buf out = {0};
    int rc = 0;
    x->result.o = x->o;
    x->result.setup = &x->setup;
    x->result.path = x->path;
    if (ds_opt_flag(x->o, "json"))
        rc = ds_onpolicy_json(&out, &x->result, err);
    else
        ds_onpolicy_text(&out, &x->result);
    if (rc == 0)
        rc = ds_cli_emit(x->o, &out, err);
    ds_buf_free(&out);
    return rc;
}

static void stop(struct onpolicy *x)
{
    if (x->writer)
        ds_writer_close(x->writer, NULL);
    for (int i = 0; i < 2; i++)
        if (x->logits[i])
            munmap(x->logits[i], x->bytes);
    ds_trial_data_free(&x->sampled);
    free(x->at);
    free(x->texts);
    free(x->prompts);
    free(x->tokens);
    free(x->hits);
    free(x->result.sets);
    ds_storm_setup_free(&x->setup);
}

int ds_verb_onpolicy(const struct ds_options *o)
{
    struct onpolicy x = {.o = o};
    struct ds_error err = {{0}, {0}};
    int interrupted = 0, code;
    ds_cli_stop_on_signal();
    if (start(&x, &err) != 0 || run(&x, &interrupted, &err) != 0)
        code = ds_cli_error(o, &err);
    else if (interrupted) {
        ds_cli_note(o, "interrupted: %zu kernel set%s complete in %s", x.result.n_sets,
                    x.result.n_sets == 1 ? " is" : "s are", x.path);
        code = DS_EXIT_INTERRUPTED;
    } else {
        code = report(&x, &err) != 0 ? ds_cli_error(o, &err)
                                     : ds_cli_exit(o, ds_onpolicy_code(&x.result));
    }
    stop(&x);
    return code;
}
