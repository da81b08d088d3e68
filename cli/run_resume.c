/* run_resume.c: for `run --resume`: from a record, which is believed in nothing, to the rest of its
 * sweep. See run_plan.h. */
#include "cli/run_plan_internal.h"

#include "base/mem.h"
#include "engine/load.h"
#include "engine/site_map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *kept_option(const struct ds_header *h, const char *name)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, name) == 0)
            return h->options[i].value;
    return NULL;
}

static int options_from_record(const struct ds_header *h, struct ds_sweep_options *s,
                               struct ds_error *err)
{
    s->repeats = (int32_t)h->repeats;
    for (size_t i = 0; i < DS_PLAN_KEPT; i++) {
        const char *text = kept_option(h, ds_plan_kept[i].name);
        char *end;
        if (!text && i >= DS_PLAN_FIRST_NEWER) { /* a record of a version that did not have it */
            *ds_plan_option(s, i) = 0;
            continue;
        }
        long v = text ? strtol(text, &end, 10) : 0;
        if (!text || end == text || *end || v < 0 || v > 1000000)
            return ds_fail(err, "the record does not say its option %s: it cannot be resumed",
                           ds_plan_kept[i].name);
        *ds_plan_option(s, i) = (int32_t)v;
    }
    const char *at = kept_option(h, "dtype_at");
    if (ds_sampler_recorded(h, &s->sampler, err) != 0)
        return -1;
    if (at && ds_stages_parse(at, &s->f32_at, err) != 0)
        return ds_prefix(err, "the record's option dtype_at");
    const char *weights = kept_option(h, "weights");
    s->weights = weights && strcmp(weights, "file") == 0 ? DS_WEIGHTS_FILE : DS_WEIGHTS_F32;
    return s->repeats >= 1 && s->dump <= DS_DUMP_ALL && s->load <= DS_MOST_LOAD &&
                   (!weights || strcmp(weights, ds_plan_weights[s->weights]) == 0)
               ? 0
               : ds_fail(err, "the record's options are out of range");
}

/* "1,2,3" */
static int parse_tokens(const char *text, struct ds_run_plan *p, struct ds_error *err)
{
    size_t cap = 0;
    for (const char *s = text;; s++) {
        char *end;
        errno = 0;
        long v = strtol(s, &end, 10);
        if (end == s || errno || v < 0 || v > INT32_MAX || (*end && *end != ',') ||
            p->n_forced >= 1000001)
            return ds_fail(err, "the record's forced tokens are no token ids");
        if (ds_grow(&p->forced, &cap, (size_t)p->n_forced + 1, sizeof *p->forced, "forced tokens",
                    err) != 0)
            return -1;
        p->forced[p->n_forced++] = (int32_t)v;
        s = end;
        if (!*s)
            return 0;
    }
}

/* What helps where an environment differs in `name`. */
static int environment_hint(const char *name, const char *what, struct ds_error *err)
{
    if (strncmp(name, "plugin_", 7) == 0)
        return ds_hint(err, "give the files that it was made with, in the same order: --plugin "
                            "FILE.so; --force does without");
    if (strcmp(name, "cblas") == 0)
        return ds_hint(err, "give the library that it was made with: --blas FILE.so; --force does "
                            "without");
    return strcmp(what, "replayed") == 0
               ? ds_hint(err, "--force replays it all the same")
               : ds_hint(err, "run it anew and use diff, or give --force to mix them in one "
                              "record");
}

static const char *value_of(const struct ds_header *h, const char *name)
{
    const char *value = NULL;
    for (size_t i = 0; i < h->n_environment; i++)
        value = strcmp(h->environment[i].name, name) == 0 ? h->environment[i].value : value;
    return value;
}

static int is_clock(const char *name)
{
    const size_t len = strlen(name), end = strlen(DS_CLI_CLOCKS);
    return len > end && strcmp(name + len - end, DS_CLI_CLOCKS) == 0;
}

/* "A was x, is y; B was ...", each name once; the first of them comes to *first. With --force each in a note, and their
 * number is returned. */
static size_t differences(const struct ds_options *o, const struct ds_header *h,
                          const struct ds_header *now, const char *what, struct ds_buf *out,
                          const char **first)
{
    size_t notes = 0;
    for (size_t i = 0; i < now->n_environment + h->n_environment; i++) {
        const int old = i >= now->n_environment;
        const char *name =
                       old ? h->environment[i - now->n_environment].name : now->environment[i].name,
                   *was = value_of(h, name), *is = value_of(now, name);
        if ((was && is && (old || strcmp(was, is) == 0)) || is_clock(name))
            continue;
        if (ds_opt_flag(o, "force")) {
            ds_cli_note(o, "%s in another environment: %s was %.100s, is %.100s", what, name,
                        was ? was : "unset", is ? is : "unset");
            notes++;
            continue;
        }
        *first = *first ? *first : name;
        ds_buf_printf(out, "%s%.60s was %.200s, is %.200s", out->len ? "; " : "", name,
                      was ? was : "unset", is ? is : "unset");
    }
    return notes;
}

/* Trials of another machine, build or library would show as instability: a resumed record is made
 * in one environment. */
int ds_plan_check_environment(const struct ds_options *o, const struct ds_header *h,
                              const char *what, size_t *forced, struct ds_error *err)
{
    size_t notes = 0;
    struct ds_header now = {0};
    struct ds_buf all = {0};
    const char *first = NULL;
    int rc = ds_cli_environment(&now.environment, &now.n_environment, err);
    if (rc == 0)
        rc = ds_cli_environment_devices(h, &now.environment, &now.n_environment, err);
    if (rc == 0)
        notes = differences(o, h, &now, what, &all, &first);
    if (forced)
        *forced = notes;
    if (rc == 0 && all.failed)
        rc = ds_fail(err, "out of memory for what differs");
    else if (rc == 0 && first) {
        ds_fail(err, "the record was made in another environment: %.940s", all.data);
        rc = environment_hint(first, what, err);
    }
    ds_buf_free(&all);
    ds_header_free(&now);
    return rc;
}

int ds_plan_check_model(const struct ds_header *h, const struct ds_model *m, struct ds_error *err)
{
    if (m->digest == h->model_digest)
        return 0;
    ds_fail(err, "the record was made with another model ('%s')", h->model_name);
    return ds_hint(err, "give that model with -m");
}

/* The record is hostile: its prompts must fit the model before they are fed to it. */
int ds_plan_check_prompts(const struct ds_run_plan *p, int32_t neighbours, struct ds_error *err)
{
    if (p->header.n_prompts == 0 || p->header.n_prompts < (size_t)neighbours + 1)
        return ds_fail(err, "the record has %zu prompts; its arms need %d", p->header.n_prompts,
                       neighbours + 1);
    for (size_t i = 0; i < p->header.n_prompts; i++) {
        const struct ds_prompt *q = &p->header.prompts[i];
        if (q->n_tokens == 0 || q->n_tokens > (uint32_t)p->model->hp.context)
            return ds_fail(err, "prompt %zu of the record has %u tokens", i, q->n_tokens);
        for (uint32_t k = 0; k < q->n_tokens; k++)
            if (q->tokens[k] < 0 || q->tokens[k] >= p->model->hp.vocab)
                return ds_fail(err, "prompt %zu of the record has token %d, outside the vocabulary",
                               i, q->tokens[k]);
    }
    return 0;
}

/* What the trials were fed, from any sound one: for a record whose base trial is damaged. */
static int tokens_fed(struct ds_record *r, int32_t **tokens, int32_t *n, struct ds_error *err)
{
    for (size_t i = 0; i < ds_record_trial_count(r); i++) {
        if (!ds_record_sound(r, i) || ds_record_trial(r, i)->pass != DS_PASS_NATURAL)
            continue;
        const struct ds_trial_data *d = ds_record_load(r, i, err);
        if (!d || !(*tokens = ds_calloc(d->n_steps, sizeof **tokens, "tokens", err)))
            return -1;
        for (size_t k = 0; k < d->n_steps; k++)
            if (d->steps[k].step == *n && d->steps[k].forced >= 0)
                (*tokens)[(*n)++] = d->steps[k].forced;
        return 0;
    }
    return 0;
}

/* The base arm's first trial, if it is there and sound. */
static int has_base_trial(struct ds_record *r)
{
    for (size_t i = 0; i < ds_record_trial_count(r); i++) {
        const struct ds_trial *t = ds_record_trial(r, i);
        if (t->arm == 0 && t->repeat == 0 && t->pass == DS_PASS_NATURAL && ds_record_sound(r, i))
            return 1;
    }
    return 0;
}

/* The tokens that the missing trials are fed, as the others were: those forced from outside, else
 * those of the base trial, else what any sound trial was fed. None at all: the base arm runs again
 * and chooses. */
static int tokens_to_resume(struct ds_record *r, struct ds_run_plan *p, struct ds_error *err)
{
    const char *text = kept_option(ds_record_header(r), "forced_tokens");
    if (!text)
        return ds_fail(err,
                       "the record does not say its option forced_tokens: it cannot be resumed");
    int rc = 0;
    if (*text)
        rc = parse_tokens(text, p, err);
    else if (has_base_trial(r))
        rc = ds_run_tokens_of(r, &p->forced, &p->n_forced, err);
    else if (!p->options.free_run)
        rc = tokens_fed(r, &p->forced, &p->n_forced, err);
    for (int32_t i = 0; rc == 0 && i < p->n_forced; i++)
        if (p->forced[i] < 0 || p->forced[i] >= p->model->hp.vocab)
            rc = ds_fail(err, "token %d of the record is outside the vocabulary", p->forced[i]);
    return rc;
}

int ds_run_plan_resume(const struct ds_options *o, struct ds_record *r, struct ds_run_plan *p,
                       struct ds_error *err)
{
    memset(p, 0, sizeof *p);
    const struct ds_header *h = ds_record_header(r);
    const struct ds_recorded_model model = ds_recorded_model_of(h);
    int32_t neighbours;
    int dtype;
    if (options_from_record(h, &p->options, err) != 0 || ds_plan_limits(o, &p->options, err) != 0 ||
        ds_plan_check_environment(o, h, "resumed", NULL, err) != 0 ||
        ds_plan_model(o, &model, p, err) != 0)
        return -1;
    if (ds_plan_check_model(h, p->model, err) != 0)
        return -1;
    p->header = *h; /* borrowed from the record: see ds_run_plan_free */
    if (ds_plan_neighbours(h, p->options.weights, &neighbours, &dtype, err) != 0 ||
        ds_plan_check_prompts(p, neighbours, err) != 0)
        return -1;
    return ds_plan_requests(p, err) != 0 ? -1 : tokens_to_resume(r, p, err);
}
