/* run_plan.c: see run_plan.h. */
#include "cli/run_plan_internal.h"

#include "cli/lock.h"
#include "cli/options.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/team.h"
#include "dumps/census.h"
#include "engine/forward.h"
#include "engine/load.h"
#include "engine/mutate.h"
#include "engine/site_map.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *const ds_plan_weights[] = {"f32", "file"};
static const char *const dump_names[] = {"none", "first", "origins", "all"};

const struct ds_plan_kept ds_plan_kept[] = {
    {"steps", offsetof(struct ds_sweep_options, steps)},
    {"free", offsetof(struct ds_sweep_options, free_run)},
    {"dump", offsetof(struct ds_sweep_options, dump)},
    {"dump_rows", offsetof(struct ds_sweep_options, dump_rows)},
    {"resid_only", offsetof(struct ds_sweep_options, resid_only)},
    {"page_size", offsetof(struct ds_sweep_options, page_size)},
    {"poison", offsetof(struct ds_sweep_options, poison)},
    {"until_stable", offsetof(struct ds_sweep_options, until_stable)},
    {"load", offsetof(struct ds_sweep_options, load)},
    {"heal", offsetof(struct ds_sweep_options, heal)},
    {"digest_packed", offsetof(struct ds_sweep_options, digest_packed)},
    {"position_offset", offsetof(struct ds_sweep_options, position_offset)},
    {"all_logits", offsetof(struct ds_sweep_options, all_logits)},
    {"scores", offsetof(struct ds_sweep_options, scores)},
};
enum { MOST_REPEATS = 100000 };
_Static_assert(sizeof ds_plan_kept / sizeof ds_plan_kept[0] == DS_PLAN_KEPT, "all that are kept");

int32_t *ds_plan_option(struct ds_sweep_options *s, size_t i)
{
    return (int32_t *)((char *)s + ds_plan_kept[i].offset);
}

/* Some options are those of `run` alone. */
static int takes(const struct ds_options *o, const char *name)
{
    return ds_option_find(o->verb, name, strlen(name)) != NULL;
}

int ds_plan_limits(const struct ds_options *o, struct ds_sweep_options *s, struct ds_error *err)
{
    int64_t seconds;
    if (ds_opt_size(o, "hold", &s->hold, err) != 0 ||
        ds_opt_int(o, "trial-timeout", 0, 1000000, &seconds, err) != 0)
        return -1;
    s->trial_timeout = (int32_t)seconds;
    return 0;
}

/* --until-stable P: as many trials as exclude a flake rate above P, if --repeat allows them; an arm
 * whose trials disagree ends sooner. */
static int read_until_stable(const struct ds_options *o, struct ds_sweep_options *s,
                             struct ds_error *err)
{
    const char *text = takes(o, "until-stable") ? ds_opt_text(o, "until-stable") : NULL;
    char *end;
    if (!text)
        return 0;
    double rate = strtod(text, &end);
    if (end != text && strcmp(end, "%") == 0)
        rate /= 100;
    else if (end == text || *end)
        rate = -1;
    uint32_t trials = ds_flake_trials(rate);
    if (!(rate > 0 && rate < 1)) {
        ds_fail(err, "--until-stable '%s' is no rate between 0 and 1", text);
        return ds_hint(err, "0.05 and 5%% mean: go on until a flake rate above 5 %% is excluded");
    }
    if (!ds_opt_given(o, "repeat") && trials > MOST_REPEATS)
        return ds_fail(err, "--until-stable %s takes %u trials of every arm; the most is %d", text,
                       trials, MOST_REPEATS);
    if (ds_opt_given(o, "repeat") && trials > (uint32_t)s->repeats)
        ds_cli_note(o,
                    "to exclude a flake rate above %s takes %u equal trials; --repeat %d excludes "
                    "one above %.3g",
                    text, trials, s->repeats, ds_flake_excluded((uint32_t)s->repeats));
    else
        s->repeats = (int32_t)trials;
    s->until_stable = (int32_t)(rate * 1e6 + 0.5);
    if (s->until_stable < 2) /* 1 is what records said before they held the rate */
        s->until_stable = 2;
    return 0;
}

static int read_options(const struct ds_options *o, struct ds_sweep_options *s,
                        struct ds_error *err)
{
    int64_t repeat, steps, dump_rows = 0, page, load, offset;
    if (ds_plan_limits(o, s, err) != 0)
        return -1;
    if (ds_opt_int(o, "repeat", 1, MOST_REPEATS, &repeat, err) != 0 ||
        ds_opt_int(o, "load", 0, DS_MOST_LOAD, &load, err) != 0 ||
        ds_opt_int(o, "steps", 0, 1000000, &steps, err) != 0 ||
        (takes(o, "dump-rows") && ds_opt_int(o, "dump-rows", 0, 1000000, &dump_rows, err) != 0) ||
        ds_opt_int(o, "page-size", 0, 1000000, &page, err) != 0 ||
        ds_opt_int(o, "position-offset", 0, 1000000, &offset, err) != 0)
        return -1;
    s->repeats = (int32_t)repeat;
    s->load = (int32_t)load;
    s->steps = (int32_t)steps;
    s->dump_rows = (int32_t)dump_rows;
    s->page_size = (int32_t)page;
    s->position_offset = (int32_t)offset;
    s->all_logits = ds_opt_flag(o, "all-logits");
    s->scores = takes(o, "scores") && ds_opt_flag(o, "scores");
    s->free_run = takes(o, "free") && ds_opt_flag(o, "free");
    s->poison = ds_opt_flag(o, "poison");
    s->heal = takes(o, "no-heal") && !ds_opt_flag(o, "no-heal");
    s->digest_packed = takes(o, "digest-packed") && ds_opt_flag(o, "digest-packed");
    s->weights = strcmp(ds_opt_text(o, "weights"), "file") == 0 ? DS_WEIGHTS_FILE : DS_WEIGHTS_F32;
    s->resid_only = takes(o, "sites") && strcmp(ds_opt_text(o, "sites"), "resid") == 0;
    for (int i = 0; takes(o, "dump") && i < 4; i++)
        if (strcmp(ds_opt_text(o, "dump"), dump_names[i]) == 0)
            s->dump = i;
    if (s->scores && s->resid_only)
        return ds_fail(err, "--scores and --sites resid exclude each other: with the latter, "
                            "nothing within a layer is digested");
    const char *at = takes(o, "dtype-at") ? ds_opt_text(o, "dtype-at") : NULL;
    if (at && ds_stages_parse(at, &s->f32_at, err) != 0)
        return ds_prefix(err, "--dtype-at");
    return ds_cli_sampler(o, &s->sampler, err) != 0 ? -1 : read_until_stable(o, s, err);
}

/* ---- header ---------------------------------------------------------------------------------- */

static int read_arms(const struct ds_options *o, const char *kernels, struct ds_header *h,
                     struct ds_error *err)
{
    struct ds_factor_values values[DS_FACTOR_COUNT];
    memset(values, 0, sizeof values);
    int rc = 0;
    for (int f = 0; f < DS_FACTOR_COUNT && rc == 0; f++)
        rc = ds_factor_parse(
            f, f == DS_FACTOR_KERNELS && kernels ? kernels : ds_opt_text(o, ds_factor_names[f]),
            &values[f], err);
    if (rc == 0)
        rc = ds_plan_arms(values, takes(o, "full") && ds_opt_flag(o, "full"), &h->arms, &h->n_arms,
                          err);
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        ds_factor_free(&values[f]);
    return rc == 0 ? ds_plan_factors(h, err) : -1;
}

int ds_plan_factors(struct ds_header *h, struct ds_error *err)
{
    if (!(h->factors = ds_calloc(DS_FACTOR_COUNT, sizeof *h->factors, "factors", err)))
        return -1;
    for (; h->n_factors < DS_FACTOR_COUNT; h->n_factors++)
        if (!(h->factors[h->n_factors] = strdup(ds_factor_names[h->n_factors])))
            return ds_fail(err, "out of memory");
    return 0;
}

/* One more line of text; takes ownership of value. */
int ds_plan_add_option(struct ds_header *h, const char *name, char *value, struct ds_error *err)
{
    struct ds_text *grown = realloc(h->options, (h->n_options + 1) * sizeof *grown);
    if (grown)
        h->options = grown;
    char *copy = strdup(name);
    if (!grown || !copy || !value) {
        free(copy);
        free(value);
        return ds_fail(err, "out of memory");
    }
    struct ds_text *t = &h->options[h->n_options++];
    t->name = copy;
    t->value = value;
    return 0;
}

/* The options, and the tokens forced from outside if there are any ("" = the base arm's own). */
int ds_plan_keep_options(struct ds_run_plan *p, struct ds_error *err)
{
    for (size_t i = 0; i < DS_PLAN_KEPT; i++) {
        char *value = NULL;
        if (asprintf(&value, "%d", *ds_plan_option(&p->options, i)) < 0)
            value = NULL;
        if (ds_plan_add_option(&p->header, ds_plan_kept[i].name, value, err) != 0)
            return -1;
    }
    if (ds_plan_add_option(&p->header, "weights", strdup(ds_plan_weights[p->options.weights]),
                           err) != 0 ||
        ds_sampler_keep(&p->header, &p->options.sampler, err) != 0 ||
        (p->dtype_at && ds_plan_add_option(&p->header, "dtype_at", strdup(p->dtype_at), err) != 0))
        return -1;
    struct ds_buf list = {0};
    ds_buf_puts(&list, "");
    for (int32_t i = 0; i < p->n_forced; i++)
        ds_buf_printf(&list, i ? ",%d" : "%d", p->forced[i]);
    if (list.failed)
        ds_buf_free(&list);
    return ds_plan_add_option(&p->header, "forced_tokens", list.data, err);
}

int ds_plan_identity(const struct ds_options *o, struct ds_header *h, struct ds_error *err)
{
    time_t t = time(NULL);
    struct tm tm;
    snprintf(h->tool_version, sizeof h->tool_version, "%s", ds_cli_version());
    snprintf(h->build, sizeof h->build, "%s", ds_cli_build());
    if (gmtime_r(&t, &tm))
        strftime(h->start, sizeof h->start, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return (h->command = strdup(ds_opt_command(o))) ? 0 : ds_fail(err, "out of memory");
}

/* ---- model ----------------------------------------------------------------------------------- */

int ds_plan_model(const struct ds_options *o, const struct ds_recorded_model *recorded,
                  struct ds_run_plan *p, struct ds_error *err)
{
    const int cpus = ds_team_cpus(), threads = cpus > 16 ? 16 : cpus;
    const char *name;
    if (ds_cli_model(o, recorded, &name, err) != 0)
        return -1;
    ds_cli_at_once(o, 1);
    const int rc = ds_model_open_as(name, p->options.weights, threads, &p->model, err);
    ds_cli_at_once(o, 0);
    if (rc != 0)
        return -1;
    if (p->model->gguf && ds_tokenizer_new(p->model->gguf, &p->tokenizer, err) != 0) {
        /* Ids still work without one; a text prompt will say why not. */
        ds_cli_note(o, "%s", err->msg);
        p->tokenizer = NULL;
    }
    return 0;
}

int ds_plan_requests(struct ds_run_plan *p, struct ds_error *err)
{
    p->requests = ds_calloc(p->header.n_prompts, sizeof *p->requests, "requests", err);
    if (!p->requests)
        return -1;
    for (size_t i = 0; i < p->header.n_prompts; i++)
        p->requests[i] = (struct ds_sweep_request){p->header.prompts[i].tokens,
                                                   (int32_t)p->header.prompts[i].n_tokens};
    p->n_requests = (int32_t)p->header.n_prompts;
    return 0;
}

static int check_kernels(int weights, const struct ds_kernel_set *set, struct ds_error *err)
{
    const struct ds_kernel *k;
    for (int32_t i = 0; (k = ds_kernel_set_used(set, DS_OP_MATMUL, i)); i++)
        if (ds_model_check_kernel(weights, k, err) != 0)
            return -1;
    return 0;
}

int ds_plan_neighbours(const struct ds_header *h, int weights, int32_t *neighbours, int *dtype,
                       struct ds_error *err)
{
    *neighbours = 0;
    for (size_t a = 0; a < h->n_arms; a++) {
        struct ds_setting s;
        if (ds_setting_parse(h->arms[a].values, &s, err) != 0 ||
            check_kernels(weights, &s.kernels, err) != 0)
            return -1;
        if (s.neighbours == DS_NEIGHBOURS_VARIED && s.batch - 1 > *neighbours)
            *neighbours = s.batch - 1;
        if (s.slot >= s.batch)
            return ds_fail(err, "--slot %d does not exist in a batch of %d", s.slot, s.batch);
        if (a == 0)
            *dtype = s.dtype;
    }
    return 0;
}

int ds_run_tokens_of(struct ds_record *r, int32_t **tokens, int32_t *n, struct ds_error *err)
{
    *n = 0;
    *tokens = NULL;
    for (size_t i = 0; i < ds_record_trial_count(r); i++) {
        const struct ds_trial *t = ds_record_trial(r, i);
        if (t->arm != 0 || t->repeat != 0 || t->pass != DS_PASS_NATURAL)
            continue;
        const struct ds_trial_data *d = ds_record_load(r, i, err);
        if (!d)
            return -1;
        if (!(*tokens = ds_calloc(d->n_steps, sizeof **tokens, "tokens", err)))
            return -1;
        for (size_t k = 0; k < d->n_steps; k++)
            if (d->steps[k].step == *n)
                (*tokens)[(*n)++] =
                    d->steps[k].forced >= 0 ? d->steps[k].forced : d->steps[k].token;
        return 0;
    }
    return 0;
}

/* --expect: what the lock's arms were fed. */
static int tokens_of_lock(const struct ds_options *o, struct ds_run_plan *p, struct ds_error *err)
{
    const char *path = takes(o, "expect") ? ds_opt_text(o, "expect") : NULL;
    struct ds_lock l;
    if (!path)
        return 0;
    int rc = ds_lock_read(path, &l, err);
    rc = rc ? rc : ds_lock_check_model(&l, p->model->digest, p->model->name, NULL, 0, err);
    rc = rc ? rc : ds_lock_forced(&l, p->model->hp.vocab, &p->forced, &p->n_forced, err);
    ds_lock_free(&l);
    return rc;
}

static int tokens_from(const struct ds_options *o, struct ds_run_plan *p, struct ds_error *err)
{
    const char *path = ds_opt_text(o, "tokens-from");
    if (!path)
        return tokens_of_lock(o, p, err);
    struct ds_record *r;
    if (ds_record_open(path, &r, err) != 0)
        return -1;
    int rc = ds_run_tokens_of(r, &p->forced, &p->n_forced, err);
    ds_record_close(r);
    if (rc == 0 && p->n_forced == 0)
        rc = ds_fail(err, "%s: has no base trial to take tokens from", path);
    for (int32_t i = 0; rc == 0 && i < p->n_forced; i++)
        if (p->forced[i] < 0 || p->forced[i] >= p->model->hp.vocab)
            rc =
                ds_fail(err, "%s: token %d is outside this model's vocabulary", path, p->forced[i]);
    return rc;
}

/* --mutate: whether this model and prompt could show a fault, before the first trial. */
static int check_fixture(const struct ds_options *o, struct ds_run_plan *p, int dtype,
                         struct ds_error *err)
{
    struct ds_mutate_result r;
    char *counts = NULL;
    if (!takes(o, "mutate") || !ds_opt_flag(o, "mutate"))
        return 0;
    const int cpus = ds_team_cpus();
    if (ds_mutate_fixture(p->model, p->requests[0].tokens, p->requests[0].n_prompt, dtype,
                          cpus > 16 ? 16 : cpus, &r, err) != 0)
        return -1;
    if (asprintf(&counts, "%u of %u", r.seen, r.made) < 0)
        counts = NULL;
    if (ds_plan_add_option(&p->header, "inert", r.inert, err) != 0) {
        free(counts);
        return -1;
    }
    return ds_plan_add_option(&p->header, "mutations", counts, err);
}

/* Keys in a row of scores: all tokens that the subject ever has. */
static int32_t score_keys(const struct ds_run_plan *p)
{
    return p->options.scores ? p->requests[0].n_prompt + p->options.steps : 0;
}

/* Before a record is begun. */
static int check_fit(const struct ds_run_plan *p, struct ds_error *err)
{
    const struct ds_sweep s = {.model = p->model,
                               .options = p->options,
                               .header = &p->header,
                               .requests = p->requests,
                               .n_requests = p->n_requests};
    int64_t positions;
    return ds_sweep_fits(&s, &positions, err);
}

/* Stages that no arm rounds are f32 in the list of sites, too. */
int ds_plan_keep_f32(struct ds_run_plan *p, int dtype, struct ds_error *err)
{
    struct ds_header *h = &p->header;
    if (!p->options.f32_at)
        return 0;
    struct ds_site *sites = ds_site_stored_as(h->sites, h->n_sites, dtype, p->options.f32_at, err);
    if (!sites)
        return -1;
    free(h->sites);
    h->sites = sites;
    return 0;
}

int ds_run_plan_new(const struct ds_options *o, struct ds_run_plan *p, struct ds_error *err)
{
    return ds_run_plan_with(o, NULL, p, err);
}

int ds_run_plan_with(const struct ds_options *o, const char *kernels, struct ds_run_plan *p,
                     struct ds_error *err)
{
    memset(p, 0, sizeof *p);
    p->owns_header = 1;
    p->dtype_at = takes(o, "dtype-at") ? ds_opt_text(o, "dtype-at") : NULL;
    int32_t neighbours;
    int dtype;
    if (read_options(o, &p->options, err) != 0 || read_arms(o, kernels, &p->header, err) != 0 ||
        ds_plan_neighbours(&p->header, p->options.weights, &neighbours, &dtype, err) != 0 ||
        ds_sampler_fits(&p->header, &p->options.sampler, err) != 0)
        return -1;
    p->header.repeats = (uint32_t)p->options.repeats;
    if ((takes(o, "inputs") && ds_plan_inputs_read(o, &p->inputs, err) != 0) ||
        ds_plan_model(o, NULL, p, err) != 0 || ds_run_prompts(o, p, neighbours, err) != 0 ||
        ds_plan_requests(p, err) != 0 || check_fit(p, err) != 0)
        return -1;
    if (tokens_from(o, p, err) != 0 ||
        ds_sweep_describe_model(p->model, dtype, score_keys(p), &p->header, err) != 0)
        return -1;
    if (ds_plan_keep_f32(p, dtype, err) != 0)
        return -1;
    if (ds_cli_environment(&p->header.environment, &p->header.n_environment, err) != 0 ||
        ds_cli_environment_devices(&p->header, &p->header.environment, &p->header.n_environment,
                                   err) != 0)
        return -1;
    if (ds_plan_identity(o, &p->header, err) != 0 || ds_plan_keep_options(p, err) != 0 ||
        ds_plan_inputs_keep(o, p, err) != 0)
        return -1;
    return check_fixture(o, p, dtype, err);
}

void ds_run_plan_free(struct ds_run_plan *p)
{
    free(p->requests);
    free(p->forced);
    if (p->owns_header)
        ds_header_free(&p->header);
    ds_plan_inputs_free(&p->inputs);
    ds_tokenizer_free(p->tokenizer);
    if (p->model)
        ds_model_close(p->model);
    memset(p, 0, sizeof *p);
}
