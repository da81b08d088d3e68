/* render_storm_json.c: a storm as JSON, schema driftscope.storm/1 (JSON.md). Owns the names only. */
#include "cli/render_json.h"
#include "cli/storm.h"

#include <string.h>

static json_t *place_json(const struct ds_header *h, const struct ds_storm_arm *a, int64_t request)
{
    if (request < 0)
        return json_null();
    const struct ds_storm_request *q = &a->s.requests[request];
    const struct ds_storm_place *p = &q->place;
    const struct ds_site *s = &h->sites[p->site];
    const int32_t prompt = (int32_t)h->prompts[q->prompt].n_tokens;
    json_t *j = json_object();
    json_object_set_new(j, "request", json_integer(request));
    json_object_set_new(j, "reference", json_integer(q->reference));
    json_object_set_new(j, "position", json_integer(p->position));
    json_object_set_new(j, "occurrence", json_integer(p->occurrence));
    json_object_set_new(j, "token",
                        json_integer(p->position < prompt ? 0 : p->position - prompt + 1));
    json_object_set_new(j, "step", json_integer(p->call));
    json_object_set_new(j, "layer", json_integer(s->layer));
    json_object_set_new(j, "stage", ds_json_text(s->stage));
    json_object_set_new(j, "part", ds_json_text(s->part));
    json_object_set_new(j, "op", ds_json_text(a->launch.op));
    json_object_set_new(j, "variant", ds_json_text(a->launch.variant));
    json_object_set_new(j, "batch", json_pack("{sisi}", "rows", p->m, "requests", p->requests));
    json_object_set_new(j, "reference_step", json_integer(p->other_call));
    json_object_set_new(j, "reference_batch",
                        json_pack("{sisi}", "rows", p->other_m, "requests", p->other_requests));
    json_object_set_new(j, "prefix_of", p->from < 0 ? json_null() : json_integer(p->from));
    return j;
}

static json_t *parting_json(const struct ds_storm_arm *a, int64_t request)
{
    if (request < 0)
        return json_null();
    const struct ds_storm_request *q = &a->s.requests[request];
    json_t *j = json_object();
    json_object_set_new(j, "request", json_integer(request));
    json_object_set_new(j, "reference", json_integer(q->reference));
    json_object_set_new(j, "token", json_integer(q->parted));
    json_object_set_new(j, "a", json_integer(q->other_token));
    json_object_set_new(j, "b", json_integer(q->token));
    json_object_set_new(j, "margin_a", ds_json_real((double)q->other_margin));
    json_object_set_new(j, "margin_b", ds_json_real((double)q->margin));
    json_object_set_new(j, "drift", ds_json_real(q->drift));
    json_object_set_new(j, "kind", json_string(q->tie ? "tie" : "confident"));
    return j;
}

static json_t *forecast_json(const struct ds_flips *f, size_t seen)
{
    json_t *j = json_object();
    json_object_set_new(j, "choices", ds_json_whole(f->choices));
    json_object_set_new(j, "expected", ds_json_real(f->expected));
    json_object_set_new(j, "low", f->bounded ? ds_json_real(f->low) : json_null());
    json_object_set_new(j, "high", f->bounded ? ds_json_real(f->high) : json_null());
    json_object_set_new(j, "seen", ds_json_whole(seen));
    json_object_set_new(j, "drift_median", ds_json_real(f->drift_median));
    json_object_set_new(j, "drift_max", ds_json_real(f->drift_most));
    return j;
}

/* What was escaped when it was made is text as it is. */
static json_t *sizes_json(const struct ds_storm_arm *a)
{
    json_t *j = json_array();
    for (size_t i = 0; i < a->s.n_completions; i++) {
        const struct ds_storm_completion *c = &a->s.completions[i];
        json_t *one =
            json_pack("{sisisi}", "prompt", c->prompt, "request", c->request, "size", (int)c->size);
        json_object_set_new(one, "text", a->texts ? json_string(a->texts[i]) : json_null());
        json_array_append_new(j, one);
    }
    return j;
}

static json_t *arm_json(const struct ds_header *h, const struct ds_storm_arm *a)
{
    json_t *j = json_object();
    json_object_set_new(j, "arm", json_integer(a->arm));
    json_object_set_new(j, "kernels", ds_json_text(ds_storm_kernels(h, a->arm)));
    json_object_set_new(j, "unique_completions", ds_json_whole(a->s.n_completions));
    json_object_set_new(j, "prompts", ds_json_whole(a->s.n_prompts));
    json_object_set_new(j, "completions", sizes_json(a));
    json_object_set_new(j, "drifting", ds_json_whole(a->s.drifting));
    json_object_set_new(j, "parted", ds_json_whole(a->s.parted));
    json_object_set_new(j, "ties", ds_json_whole(a->s.ties));
    json_object_set_new(j, "choices_among_nan", ds_json_whole(a->s.blind));
    json_object_set_new(j, "claims_invariance", json_boolean(a->invariant));
    json_object_set_new(j, "had_power",
                        a->invariant ? json_null() : json_boolean(ds_storm_drifts(a)));
    json_object_set_new(j, "digests_compared", ds_json_whole(a->s.compared));
    json_object_set_new(j, "first_divergence", place_json(h, a, a->s.first_drift));
    json_object_set_new(j, "first_parting", parting_json(a, a->s.first_parting));
    json_object_set_new(j, "forecast", forecast_json(&a->s.forecast, a->s.parted));
    json_object_set_new(j, "seconds", ds_json_real(a->seconds));
    json_object_set_new(j, "tokens_per_second",
                        ds_json_real(a->seconds > 0 ? (double)a->tokens / a->seconds : 0));
    json_object_set_new(j, "first_token",
                        json_pack("{sosososo}", "median_steps", ds_json_real(a->wait.median_steps),
                                  "max_steps", ds_json_real(a->wait.most_steps), "median_seconds",
                                  ds_json_real(a->wait.median_s), "max_seconds",
                                  ds_json_real(a->wait.most_s)));
    return j;
}

json_t *ds_storm_schedule_json(const struct ds_storm_setup *s)
{
    json_t *j = json_object();
    json_object_set_new(j, "requests", json_integer(s->serve.n_requests));
    json_object_set_new(j, "prompts", json_integer(s->n_prompts));
    json_object_set_new(j, "requests_run", json_integer(s->asked));
    json_object_set_new(j, "prompts_distinct", json_integer(s->distinct));
    json_object_set_new(j, "new_tokens", json_integer(s->config.tokens));
    json_object_set_new(j, "steps", ds_json_whole(s->serve.n_steps));
    json_object_set_new(j, "max_rows", json_integer(s->serve.max_rows));
    json_object_set_new(j, "planning_seconds", ds_json_real(s->planning));
    json_object_set_new(j, "from_file", json_boolean(s->scheduled));
    if (s->scheduled)
        return j;
    json_object_set_new(j, "rate", ds_json_real((double)s->config.rate / DS_SERVE_RATE_UNIT));
    json_object_set_new(j, "max_batch", json_integer(s->config.max_batch));
    json_object_set_new(j, "chunk", json_integer(s->config.chunk));
    json_object_set_new(j, "cache_rows", json_integer(s->config.cache_rows));
    json_object_set_new(j, "seed", ds_json_whole(s->config.seed));
    json_object_set_new(j, "prefix_hits", json_integer(s->serve.hits));
    json_object_set_new(j, "preemptions", json_integer(s->serve.preemptions));
    return j;
}

int ds_storm_json(struct ds_buf *out, const struct ds_storm_result *r, struct ds_error *err)
{
    const struct ds_header *h = &r->setup->plan.header;
    const struct ds_storm_arm *worst = r->arms;
    ds_json_begin();
    json_t *j = json_object(), *sets = json_array();
    for (size_t i = 0; i < r->n_arms; i++) {
        worst = r->arms[i].s.n_completions > worst->s.n_completions ? &r->arms[i] : worst;
        json_t *set = arm_json(h, &r->arms[i]);
        json_object_set_new(set, "scheduler_seconds", ds_json_real(r->arms[i].scheduler));
        json_object_set_new(set, "scheduler_share",
                            ds_json_real(ds_storm_scheduler_share(r->setup, &r->arms[i])));
        json_object_set_new(
            set, "recorded",
            ds_inputs_followed_json(r->setup, r->arms[i].followed, r->arms[i].n_followed));
        json_array_append_new(sets, set);
    }
    json_object_set_new(j, "schema", json_string("driftscope.storm/1"));
    json_object_set_new(j, "result", json_string(ds_storm_verdict(r)));
    json_object_set_new(j, "model", ds_json_text(h->model_name));
    json_object_set_new(j, "dtype", ds_json_text(h->arms[0].values[DS_FACTOR_DTYPE]));
    json_object_set_new(j, "dtype_at", ds_json_text(r->setup->plan.dtype_at));
    json_object_set_new(j, "threads", ds_json_text(h->arms[0].values[DS_FACTOR_THREADS]));
    json_object_set_new(j, "schedule", ds_storm_schedule_json(r->setup));
    json_object_set_new(j, "inputs", ds_inputs_json(r->setup));
    json_object_set_new(j, "sampler", ds_json_sampler(h));
    json_object_set_new(j, "worst", ds_json_text(ds_storm_kernels(h, worst->arm)));
    json_object_set_new(j, "unique_completions", ds_json_whole(worst->s.n_completions));
    json_object_set_new(j, "first_divergence", place_json(h, worst, worst->s.first_drift));
    json_object_set_new(j, "sets", sets);
    json_object_set_new(j, "record", ds_json_text(r->path));
    return ds_json_print(j, out, err);
}
