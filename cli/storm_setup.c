/* storm_setup.c: from the options of `storm`, or from a record of it, to a serving run: model, prompts,
 * schedule, header. See storm.h. */
#include "cli/storm.h"

#include "base/clock.h"
#include "base/mem.h"
#include "cli/run_plan_internal.h"
#include "engine/site_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------- */

/* "0.5": in millionths, exactly. */
static int parse_rate(const char *text, int64_t *out, struct ds_error *err)
{
    int64_t whole = 0, part = 0, unit = DS_SERVE_RATE_UNIT;
    const char *p = text;
    for (; *p >= '0' && *p <= '9' && whole <= DS_SERVE_MOST_RATE; p++)
        whole = whole * 10 + (*p - '0');
    int digits = p > text;
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9' && unit > 1; p++, digits = 1) {
            unit /= 10;
            part += unit * (*p - '0');
        }
    *out = whole * DS_SERVE_RATE_UNIT + part;
    if (!digits || *p || *out > (int64_t)DS_SERVE_MOST_RATE * DS_SERVE_RATE_UNIT)
        return ds_fail(err,
                       "--rate '%.40s' is no number of requests a step from 0 to %d, with 6 "
                       "digits after the point at most",
                       text, DS_SERVE_MOST_RATE);
    return 0;
}

/* What a schedule says is not asked of the scheduler. */
static int check_scheduled(const struct ds_options *o, struct ds_error *err)
{
    static const char *const names[] = {"requests", "new-tokens", "rate",     "max-batch",
                                        "chunk",    "cache-rows", "no-reuse", "seed"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (ds_opt_given(o, names[i]))
            return ds_fail(err,
                           "--%s cannot be given with --schedule: the schedule says what is run",
                           names[i]);
    return 0;
}

static int read_config(const struct ds_options *o, struct ds_storm_setup *s, int32_t *requests,
                       struct ds_error *err)
{
    int64_t n, tokens, batch, chunk, rows, seed;
    if (ds_opt_int(o, "requests", 1, DS_SERVE_MOST_REQUESTS, &n, err) != 0 ||
        ds_opt_int(o, "new-tokens", 1, DS_SERVE_MOST_TOKENS, &tokens, err) != 0 ||
        ds_opt_int(o, "max-batch", 1, DS_SERVE_MOST_BATCH, &batch, err) != 0 ||
        ds_opt_int(o, "chunk", 0, DS_MOST_CHUNK, &chunk, err) != 0 ||
        ds_opt_int(o, "cache-rows", 0, INT32_MAX / 2, &rows, err) != 0 ||
        ds_opt_int(o, "seed", 0, INT32_MAX, &seed, err) != 0 ||
        parse_rate(ds_opt_text(o, "rate"), &s->config.rate, err) != 0)
        return -1;
    *requests = (int32_t)n;
    s->config.tokens = (int32_t)tokens;
    s->config.max_batch = (int32_t)batch;
    s->config.chunk = (int32_t)chunk;
    s->config.cache_rows = (int32_t)rows;
    s->config.seed = (uint64_t)seed;
    s->config.reuse = !ds_opt_flag(o, "no-reuse");
    s->resid_only = strcmp(ds_opt_text(o, "sites"), "resid") == 0;
    s->plan.options.weights =
        strcmp(ds_opt_text(o, "weights"), "file") == 0 ? DS_WEIGHTS_FILE : DS_WEIGHTS_F32;
    s->plan.options.steps = s->config.tokens - 1;
    s->plan.dtype_at = ds_opt_text(o, "dtype-at");
    if (s->plan.dtype_at && ds_stages_parse(s->plan.dtype_at, &s->plan.options.f32_at, err) != 0)
        return ds_prefix(err, "--dtype-at");
    return ds_cli_sampler(o, &s->plan.options.sampler, err);
}

/* Whether a kernel that runs for an op, in any layer, may depend on the batch. */
static int needs_pin(const struct ds_kernel_set *set, int op)
{
    const uint32_t wanted = DS_CLAIM_BATCH | DS_CLAIM_SLOT | DS_CLAIM_CHUNK;
    const struct ds_kernel *k;
    for (int32_t i = 0; (k = ds_kernel_set_used(set, op, i)); i++)
        if ((k->claims & wanted) != wanted)
            return 1;
    return 0;
}

/* The set without what it says of the op, and then pinned: an op is given a variant once. */
static void add_pinned(struct ds_buf *out, const char *set, const char *op)
{
    const size_t len = strlen(op);
    ds_buf_puts(out, ",");
    for (size_t n; *set; set += n + (set[n] == '+')) {
        n = strcspn(set, "+");
        if (strncmp(set, op, len) == 0 && set[len] == '=')
            continue;
        ds_buf_add(out, set, n);
        ds_buf_puts(out, "+");
    }
    ds_buf_printf(out, "%s=pinned", op);
}

/* The sets of --compare; with --pin-each the first one again with one op pinned, for each that needs it. */
static int compared_sets(const struct ds_options *o, struct ds_buf *out, struct ds_error *err)
{
    const char *sets = ds_opt_text(o, "compare");
    const size_t first = strcspn(sets, ",");
    struct ds_kernel_set set;
    const int device = ds_device_parse(ds_opt_text(o, "device"), err);
    if (device < 0)
        return ds_prefix(err, "--device");
    ds_buf_add(out, sets, first);
    if (ds_opt_flag(o, "pin-each")) {
        char *name = strndup(sets, first);
        if (!name || ds_kernel_set_parse_on(device, name, &set, err) != 0) {
            free(name);
            return name ? -1 : ds_fail(err, "out of memory");
        }
        for (int op = 0; op < DS_OP_COUNT; op++)
            if (needs_pin(&set, op) && ds_kernel_find_on(device, op, "pinned"))
                add_pinned(out, name, ds_op_name(op));
        free(name);
    }
    ds_buf_puts(out, sets + first);
    return out->failed ? ds_fail(err, "out of memory") : 0;
}

/* An arm for each kernel set, and for each mode if there are several; batch is the largest number of requests
 * that are served at a time. */
static int make_arms(const struct ds_options *o, const char *modes, struct ds_header *h,
                     struct ds_error *err)
{
    struct ds_buf kernels = {0};
    if (compared_sets(o, &kernels, err) != 0) {
        ds_buf_free(&kernels);
        return -1;
    }
    const char *text[DS_FACTOR_COUNT] = {[DS_FACTOR_BATCH] = ds_opt_text(o, "max-batch"),
                                         [DS_FACTOR_KERNELS] = kernels.data,
                                         [DS_FACTOR_MODE] = modes,
                                         [DS_FACTOR_DEVICE] = ds_opt_text(o, "device"),
                                         [DS_FACTOR_DTYPE] = ds_opt_text(o, "dtype"),
                                         [DS_FACTOR_THREADS] = ds_opt_text(o, "threads")};
    struct ds_factor_values values[DS_FACTOR_COUNT];
    int rc = 0;
    memset(values, 0, sizeof values);
    for (int f = 0; f < DS_FACTOR_COUNT && rc == 0; f++)
        rc = ds_factor_parse(f, text[f] ? text[f] : "", &values[f], err);
    if (rc == 0)
        rc = ds_plan_arms(values, modes != NULL, &h->arms, &h->n_arms, err);
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        ds_factor_free(&values[f]);
    ds_buf_free(&kernels);
    return rc == 0 ? ds_plan_factors(h, err) : -1;
}

static int make_prompts(struct ds_storm_setup *s, struct ds_error *err)
{
    const struct ds_header *h = &s->plan.header;
    s->n_prompts = (int32_t)h->n_prompts;
    if (!(s->prompts = ds_calloc(h->n_prompts, sizeof *s->prompts, "prompts", err)))
        return -1;
    for (size_t i = 0; i < h->n_prompts; i++) {
        s->prompts[i] = (struct ds_serve_prompt){.tokens = h->prompts[i].tokens,
                                                 .n = (int32_t)h->prompts[i].n_tokens};
        if (s->plan.inputs.calls) {
            const struct ds_inputs_call *c = &s->plan.inputs.calls[i];
            s->prompts[i].generates = (int32_t)c->n_expect;
            s->prompts[i].follows = c->first != (int32_t)i;
        }
    }
    return 0;
}

/* A schedule from outside says which line it fails in: a step is a line. */
static int check_schedule(const char *name, struct ds_storm_setup *s, struct ds_error *err)
{
    size_t step = 0;
    if (ds_serve_check(&s->serve, s->prompts, s->n_prompts, &step, err) != 0)
        return ds_prefix(err, "%s, line %zu", name, step + 1);
    s->config.tokens = s->serve.tokens > 0 ? s->serve.tokens : 1;
    s->scheduled = 1;
    return 0;
}

/* ---- the header ------------------------------------------------------------------------------ */

static int add_number(struct ds_header *h, const char *name, int64_t value, struct ds_error *err)
{
    char *text = NULL;
    if (asprintf(&text, "%lld", (long long)value) < 0)
        text = NULL;
    return ds_plan_add_option(h, name, text, err);
}

static int keep_options(struct ds_storm_setup *s, struct ds_error *err)
{
    struct ds_header *h = &s->plan.header;
    const struct {
        const char *name;
        int64_t value;
    } kept[] = {
        {"serve_requests", s->serve.n_requests},
        {"serve_tokens", s->config.tokens},
        {"serve_max_batch", s->config.max_batch},
        {"serve_chunk", s->config.chunk},
        {"serve_rate_millionths", s->config.rate},
        {"serve_seed", (int64_t)s->config.seed},
        {"serve_cache_rows", s->config.cache_rows},
        {"serve_reuse", s->config.reuse},
        {"serve_scored", s->scored},
        {"resid_only", s->resid_only},
        {"free", 1},
        {"steps", s->config.tokens - 1},
    };
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (add_number(h, kept[i].name, kept[i].value, err) != 0)
            return -1;
    if (ds_plan_add_option(h, "weights", strdup(ds_plan_weights[s->plan.options.weights]), err) !=
            0 ||
        ds_sampler_keep(h, &s->plan.options.sampler, err) != 0 ||
        (s->plan.dtype_at && ds_plan_add_option(h, "dtype_at", strdup(s->plan.dtype_at), err) != 0))
        return -1;
    struct ds_buf text = {0};
    ds_schedule_text(&s->serve, &text);
    if (text.failed)
        ds_buf_free(&text);
    return ds_plan_add_option(h, "serve_schedule", text.data, err);
}

/* Built-in prompts beside the first, where none is given: one alone may have no choice that is close. */
static int32_t default_prompts(const struct ds_options *o)
{
    enum { MORE = 7 };
    return ds_opt_count(o, "prompt") + ds_opt_count(o, "file") + ds_opt_count(o, "tokens") ? 0
                                                                                           : MORE;
}

/* The prompts, and how many requests there are of them: with --inputs, each call of the file once, with --requests-from
 * each line once, unless it is said. */
static int choose_prompts(const struct ds_options *o, struct ds_storm_setup *s, int32_t *requests,
                          struct ds_error *err)
{
    struct ds_run_plan *p = &s->plan;
    const char *lines = s->scored ? NULL : ds_opt_text(o, "requests-from");
    if (lines) {
        if (ds_run_requests(o, p, lines, err) != 0)
            return -1;
        if (!ds_opt_given(o, "requests"))
            *requests = (int32_t)p->header.n_prompts;
        return make_prompts(s, err);
    }
    if (!p->inputs.file.doc)
        return ds_run_prompts(o, p, default_prompts(o), err) != 0 ? -1 : make_prompts(s, err);
    if (ds_plan_inputs_prompts(o, p, 0, 0, err) != 0)
        return -1;
    if (p->inputs.n_calls > DS_SERVE_MOST_REQUESTS)
        return ds_fail(err, "the inputs have %zu calls; the most is %d", p->inputs.n_calls,
                       DS_SERVE_MOST_REQUESTS);
    if (!ds_opt_given(o, "requests"))
        *requests = (int32_t)p->inputs.n_calls;
    return make_prompts(s, err);
}

int ds_storm_setup_new(const struct ds_options *o, const char *modes, struct ds_storm_setup *s,
                       struct ds_error *err)
{
    struct ds_header *h = &s->plan.header;
    const char *schedule = modes ? NULL : ds_opt_text(o, "schedule");
    int32_t requests, neighbours;
    int dtype;
    memset(s, 0, sizeof *s);
    s->plan.owns_header = 1;
    s->scored = modes != NULL;
    if ((schedule && check_scheduled(o, err) != 0) || read_config(o, s, &requests, err) != 0 ||
        make_arms(o, modes, h, err) != 0 ||
        ds_plan_neighbours(h, s->plan.options.weights, &neighbours, &dtype, err) != 0 ||
        ds_sampler_fits(h, &s->plan.options.sampler, err) != 0 ||
        (schedule && ds_schedule_read(schedule, &s->serve, err) != 0) ||
        (!modes && ds_plan_inputs_read(o, &s->plan.inputs, err) != 0))
        return -1;
    h->repeats = 1;
    if (ds_plan_model(o, NULL, &s->plan, err) != 0 || choose_prompts(o, s, &requests, err) != 0)
        return -1;
    const double before = ds_seconds(CLOCK_MONOTONIC);
    if (schedule
            ? check_schedule(schedule, s, err)
            : ds_serve_plan_new(&s->config, s->prompts, s->n_prompts, requests, &s->serve, err))
        return -1;
    s->planning = schedule ? 0 : ds_seconds(CLOCK_MONOTONIC) - before;
    if (s->plan.inputs.calls)
        s->config.tokens = s->serve.tokens;
    if (ds_sweep_describe_model(s->plan.model, dtype, 0, h, err) != 0 ||
        ds_plan_keep_f32(&s->plan, dtype, err) != 0 ||
        ds_cli_environment(&h->environment, &h->n_environment, err) != 0 ||
        ds_cli_environment_devices(h, &h->environment, &h->n_environment, err) != 0)
        return -1;
    if (ds_storm_asked(h, &s->serve, &s->asked, &s->distinct, err) != 0)
        return -1;
    return ds_plan_identity(o, h, err) != 0 || keep_options(s, err) != 0 ||
                   ds_plan_inputs_keep(o, &s->plan, err) != 0
               ? -1
               : ds_plan_attach(o, h, err);
}

void ds_storm_setup_free(struct ds_storm_setup *s)
{
    ds_serve_plan_free(&s->serve);
    free(s->prompts);
    ds_run_plan_free(&s->plan);
}

/* ---- a record -------------------------------------------------------------------------------- */

static const char *option_of(const struct ds_header *h, const char *name)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, name) == 0)
            return h->options[i].value;
    return NULL;
}

static int option_number(const struct ds_header *h, const char *name, int64_t most, int64_t *out,
                         struct ds_error *err)
{
    const char *text = option_of(h, name);
    char *end = NULL;
    *out = text ? strtoll(text, &end, 10) : -1;
    return text && end != text && !*end && *out >= 0 && *out <= most
               ? 0
               : ds_fail(err, "the record does not say its option %s", name);
}

int ds_storm_setup_record(const struct ds_options *o, struct ds_record *r, struct ds_storm_setup *s,
                          struct ds_error *err)
{
    memset(s, 0, sizeof *s);
    const struct ds_header *h = ds_record_header(r);
    const char *schedule = option_of(h, "serve_schedule"), *weights = option_of(h, "weights");
    const char *at = option_of(h, "dtype_at");
    const struct ds_recorded_model model = ds_recorded_model_of(h);
    int64_t requests, resid;
    int32_t neighbours;
    int dtype;
    if (!schedule) {
        ds_fail(err, "the record holds no serving run");
        return ds_hint(err, "replay takes a record that storm wrote");
    }
    const char *scored = option_of(h, "serve_scored");
    if (scored && strcmp(scored, "0") != 0) {
        ds_fail(err, "the record holds texts that were scored, which replay does not do again");
        return ds_hint(err, "run onpolicy again: the same options give the same record");
    }
    if (option_number(h, "serve_requests", DS_SERVE_MOST_REQUESTS, &requests, err) != 0 ||
        option_number(h, "resid_only", 1, &resid, err) != 0)
        return -1;
    s->resid_only = (int)resid;
    if (at && ds_stages_parse(at, &s->plan.options.f32_at, err) != 0)
        return ds_prefix(err, "the record's option dtype_at");
    s->plan.options.weights =
        weights && strcmp(weights, "file") == 0 ? DS_WEIGHTS_FILE : DS_WEIGHTS_F32;
    if (ds_sampler_recorded(h, &s->plan.options.sampler, err) != 0 ||
        ds_cli_sampler(o, &s->plan.options.sampler, err) != 0 ||
        ds_plan_check_environment(o, h, "replayed", &s->environment, err) != 0 ||
        ds_plan_model(o, &model, &s->plan, err) != 0 ||
        ds_plan_check_model(h, s->plan.model, err) != 0)
        return -1;
    s->plan.header = *h; /* borrowed from the record: see ds_run_plan_free */
    if (ds_plan_neighbours(h, s->plan.options.weights, &neighbours, &dtype, err) != 0 ||
        ds_plan_check_prompts(&s->plan, 0, err) != 0 ||
        ds_plan_inputs_recorded(&s->plan, err) != 0 ||
        ds_plan_inputs_compare(o, &s->plan, err) != 0 || make_prompts(s, err) != 0 ||
        ds_schedule_parse("the record's schedule", schedule, strlen(schedule), &s->serve, err) != 0)
        return -1;
    s->serve.n_requests = (int32_t)requests;
    return check_schedule("the record's schedule", s, err);
}

/* ---- what both need -------------------------------------------------------------------------- */

int ds_storm_invariant(const struct ds_header *h, uint32_t arm, int *claims, struct ds_error *err)
{
    const uint32_t wanted = DS_CLAIM_BATCH | DS_CLAIM_SLOT | DS_CLAIM_CHUNK;
    struct ds_setting s;
    if (ds_setting_parse(h->arms[arm].values, &s, err) != 0)
        return -1;
    *claims = 1;
    for (int op = 0; op < DS_OP_COUNT; op++) {
        const struct ds_kernel *k;
        for (int32_t i = 0; (k = ds_kernel_set_used(&s.kernels, op, i)); i++)
            *claims &= (k->claims & wanted) == wanted;
    }
    return 0;
}

int ds_storm_asked(const struct ds_header *h, const struct ds_serve_plan *p, int32_t *requests,
                   int32_t *prompts, struct ds_error *err)
{
    int32_t *first;
    *requests = *prompts = 0;
    if (ds_storm_prompts(h, &first, err) != 0)
        return -1;
    char *runs = ds_calloc((size_t)p->n_requests, 1, "requests", err),
         *counted = runs ? ds_calloc(h->n_prompts, 1, "prompts", err) : NULL;
    for (size_t k = 0; counted && k < p->first[p->n_steps]; k++)
        runs[p->pieces[k].request] = 1;
    for (size_t r = 0; counted && r < (size_t)p->n_requests; r++) {
        char *c = &counted[first[r % h->n_prompts]];
        *requests += runs[r];
        *prompts += runs[r] && !*c;
        *c |= runs[r];
    }
    const int rc = counted ? 0 : -1;
    free(first);
    free(runs);
    free(counted);
    return rc;
}

int ds_storm_hits(const struct ds_serve_plan *p, struct ds_storm_hit **hits, size_t *n,
                  struct ds_error *err)
{
    size_t cap = 0;
    *n = 0;
    if (!(*hits = ds_calloc(1, sizeof **hits, "prefixes", err)))
        return -1;
    cap = 1;
    for (size_t step = 0; step < p->n_steps; step++)
        for (size_t k = p->first[step]; k < p->first[step + 1]; k++) {
            const struct ds_serve_piece *x = &p->pieces[k];
            if (x->from < 0)
                continue;
            if (ds_grow(hits, &cap, *n + 1, sizeof **hits, "prefixes", err) != 0)
                return -1;
            (*hits)[(*n)++] = (struct ds_storm_hit){(uint32_t)step, x->request, x->from, x->cached};
        }
    return 0;
}
