/* verb_replay.c: `driftscope replay RECORD`: a recorded serving run, or one of its requests, run again and
 * held against the record; then with one thing changed. See storm.h; what differs is dumps/storm's to say. */
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/require.h"
#include "cli/run_plan_internal.h"
#include "cli/storm.h"
#include "cli/verdict.h"

#include "base/mem.h"
#include "base/plural.h"

#include <stdlib.h>
#include <string.h>

struct replay {
    const struct ds_options *o;
    struct ds_record *record;
    struct ds_storm_setup setup;
    struct ds_serve_plan alone;   /* with --alone */
    struct ds_changed_run others; /* with --other-neighbours */
    struct ds_header header;      /* the arms that are run; all else is the record's */
    uint32_t *arms;               /* [n_arms] whose trials of the record they are held against */
    size_t n_arms;
    int64_t request;           /* -1 = all */
    struct ds_storm_hit *hits; /* of the recorded schedule; not NULL */
    size_t n_hits;
    struct ds_storm_match *matches;
    struct ds_launch *launches; /* of the first differing digest */
    struct ds_inputs_followed *
        *followed; /* with inputs in the record, where all of the storm is run */
    size_t *n_followed;
    size_t n_matches; /* arms that were run: all, unless it was interrupted */
};

/* ---- what is run ----------------------------------------------------------------------------- */

static void free_arms(struct ds_arm *arms, size_t n)
{
    for (size_t a = 0; arms && a < n; a++) {
        for (int f = 0; arms[a].values && f < DS_FACTOR_COUNT; f++)
            free(arms[a].values[f]);
        free(arms[a].values);
    }
    free(arms);
}

/* An arm of the record, with what is to be another one. */
static int add_arm(struct replay *r, uint32_t arm, struct ds_error *err)
{
    const struct ds_header *h = ds_record_header(r->record);
    struct ds_arm *to = &r->header.arms[r->header.n_arms];
    if (!(to->values = ds_calloc(DS_FACTOR_COUNT, sizeof *to->values, "arm", err)))
        return -1;
    r->header.n_arms++;
    for (int f = 0; f < DS_FACTOR_COUNT; f++) {
        const char *value = h->arms[arm].values[f],
                   *other = f == DS_FACTOR_KERNELS   ? ds_opt_text(r->o, "kernels")
                            : f == DS_FACTOR_THREADS ? ds_opt_text(r->o, "threads")
                                                     : NULL;
        struct ds_factor_values v = {0};
        if (ds_factor_parse(f, other ? other : value, &v, err) != 0)
            return -1;
        to->values[f] = strdup(v.value[0]);
        ds_factor_free(&v);
        if (!to->values[f])
            return ds_fail(err, "out of memory");
    }
    r->arms[r->n_arms++] = arm;
    return 0;
}

static int choose_arms(struct replay *r, struct ds_error *err)
{
    const struct ds_header *h = ds_record_header(r->record);
    int64_t only = -1;
    if (h->n_factors != DS_FACTOR_COUNT)
        return ds_fail(err, "the record has %zu factors; this version knows %d", h->n_factors,
                       DS_FACTOR_COUNT);
    if (ds_opt_given(r->o, "arm") && ds_opt_int(r->o, "arm", 0, INT32_MAX, &only, err) != 0)
        return -1;
    if (only >= (int64_t)h->n_arms)
        return ds_fail(err, "unknown arm %lld: the record has 0..%lld", (long long)only,
                       (long long)h->n_arms - 1);
    r->header = *h;
    r->header.n_arms = 0;
    r->header.arms = ds_calloc(h->n_arms, sizeof *r->header.arms, "arms", err);
    r->arms = ds_calloc(h->n_arms, sizeof *r->arms, "arms", err);
    r->matches = ds_calloc(h->n_arms, sizeof *r->matches, "arms", err);
    r->launches = ds_calloc(h->n_arms, sizeof *r->launches, "arms", err);
    r->followed = ds_calloc(h->n_arms, sizeof *r->followed, "arms", err);
    r->n_followed = ds_calloc(h->n_arms, sizeof *r->n_followed, "arms", err);
    if (!r->header.arms || !r->arms || !r->matches || !r->launches || !r->followed ||
        !r->n_followed)
        return -1;
    for (uint32_t a = 0; a < h->n_arms; a++)
        if ((only < 0 || only == (int64_t)a) && add_arm(r, a, err) != 0)
            return -1;
    return 0;
}

static int choose_request(struct replay *r, struct ds_error *err)
{
    const int alone = ds_opt_flag(r->o, "alone"), others = ds_opt_flag(r->o, "other-neighbours");
    r->request = -1;
    if (ds_opt_given(r->o, "request") &&
        ds_opt_int(r->o, "request", 0, DS_SERVE_MOST_REQUESTS, &r->request, err) != 0)
        return -1;
    if (r->request >= r->setup.serve.n_requests)
        return ds_fail(err, "unknown request %lld: the record has 0..%d", (long long)r->request,
                       r->setup.serve.n_requests - 1);
    if (alone && others)
        return ds_fail(err, "--alone and --other-neighbours: one of them");
    if ((alone || others) && r->request < 0)
        return ds_fail(err, "--%s: which request? give --request N",
                       alone ? "alone" : "other-neighbours");
    if (others)
        return ds_replay_neighbours(&r->setup, (int32_t)r->request, r->setup.plan.model->hp.vocab,
                                    &r->others, err);
    return alone ? ds_serve_only(&r->setup.serve, (int32_t)r->request, r->setup.prompts,
                                 r->setup.n_prompts, &r->alone, err)
                 : 0;
}

static int start(struct replay *r, struct ds_error *err)
{
    const char *path = ds_opt_operand(r->o, 0);
    if (ds_record_open(path, &r->record, err) != 0)
        return -1;
    if (ds_storm_setup_record(r->o, r->record, &r->setup, err) != 0)
        return ds_prefix(err, "%s", path);
    if (ds_storm_hits(&r->setup.serve, &r->hits, &r->n_hits, err) != 0)
        return -1;
    return choose_arms(r, err) != 0 || ds_cli_require(r->o, &r->header, "--kernels", err) != 0
               ? -1
               : choose_request(r, err);
}

/* ---- running and comparing ------------------------------------------------------------------- */

static const struct ds_trial_data *recorded(struct replay *r, uint32_t arm, struct ds_error *err)
{
    for (size_t i = 0; i < ds_record_trial_count(r->record); i++) {
        const struct ds_trial *t = ds_record_trial(r->record, i);
        if (t->arm == arm && t->pass == DS_PASS_NATURAL)
            return ds_record_load(r->record, i, err);
    }
    ds_fail(err, "the record has no trial of arm %u", arm);
    return NULL;
}

static int take_trial(void *ctx, const struct ds_trial_data *t, const double *seconds,
                      struct ds_error *err)
{
    struct replay *r = ctx;
    const size_t arm = t->info.arm;
    const struct ds_trial_data *was = recorded(r, r->arms[arm], err);
    struct ds_storm_match *m = &r->matches[arm];
    const int alone = r->alone.n_steps > 0;
    (void)seconds;
    if (!was || ds_storm_match(&r->header, t, was, (size_t)r->setup.serve.n_requests, r->request,
                               alone ? r->hits : NULL, alone ? r->n_hits : 0, m, err) != 0)
        return -1;
    if (m->differs)
        r->launches[arm] = t->launches[m->launch];
    if (r->setup.plan.inputs.calls && !alone && !r->others.changed &&
        ds_inputs_judge(r->setup.plan.inputs.calls, r->setup.plan.inputs.n_calls, t,
                        (size_t)r->setup.serve.n_requests, &r->followed[arm], &r->n_followed[arm],
                        err) != 0)
        return -1;
    r->n_matches++;
    return m->compared ? 0 : ds_fail(err, "nothing could be compared");
}

static int run(struct replay *r, int *interrupted, struct ds_error *err)
{
    const int others = r->others.plan.n_steps > 0;
    const struct ds_serve_run s = {.model = r->setup.plan.model,
                                   .header = &r->header,
                                   .plan = others             ? &r->others.plan
                                           : r->alone.n_steps ? &r->alone
                                                              : &r->setup.serve,
                                   .prompts = others ? r->others.prompts : r->setup.prompts,
                                   .n_prompts = others ? r->others.n_prompts : r->setup.n_prompts,
                                   .f32_at = r->setup.plan.options.f32_at,
                                   .resid_only = r->setup.resid_only,
                                   .sampler = r->setup.plan.options.sampler,
                                   .n_arms = (int32_t)r->header.n_arms,
                                   .last = 1,
                                   .ctx = r,
                                   .sink = take_trial,
                                   .stop = ds_cli_stop()};
    return ds_serve_run(&s, interrupted, err);
}

/* ---- telling --------------------------------------------------------------------------------- */

static void changed_sampler(const struct replay *r, const char *between, struct ds_buf *out)
{
    static const struct {
        const char *option, *name;
    } settings[] = {{"temperature", "temperature"},
                    {"top-k", "top-k"},
                    {"top-p", "top-p"},
                    {"min-p", "min-p"},
                    {"repetition-penalty", "repetition penalty"},
                    {"sample-seed", "seed"}};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        if (ds_opt_given(r->o, settings[i].option)) {
            ds_buf_printf(out, "%swith %s ", between, settings[i].name);
            ds_buf_escape(out, ds_opt_text(r->o, settings[i].option), (size_t)-1);
            between = ", ";
        }
}

/* What was changed, as the start of a sentence; "" = nothing. */
static void changed(const struct replay *r, struct ds_buf *out)
{
    const char *kernels = ds_opt_text(r->o, "kernels"), *threads = ds_opt_text(r->o, "threads");
    const char *between = "";
    if (ds_opt_flag(r->o, "alone")) {
        ds_buf_puts(out, "alone");
        between = ", ";
    }
    if (ds_opt_flag(r->o, "other-neighbours")) {
        ds_buf_puts(out, "with other neighbours");
        between = ", ";
    }
    if (kernels) {
        ds_buf_printf(out, "%swith kernels ", between);
        ds_buf_escape(out, kernels, (size_t)-1);
        between = ", ";
    }
    const char *n = r->header.arms[0].values[DS_FACTOR_THREADS];
    if (threads) {
        ds_buf_printf(out, "%swith %s thread%s", between, n, strcmp(n, "1") == 0 ? "" : "s");
        between = ", ";
    }
    changed_sampler(r, between, out);
}

static void subject(const struct replay *r, struct ds_buf *out)
{
    if (r->request >= 0)
        ds_buf_printf(out, "request %lld", (long long)r->request);
    else
        ds_buf_puts(out, "the storm");
}

static void arm_text(const struct replay *r, size_t i, struct ds_buf *out)
{
    const struct ds_storm_match *m = &r->matches[i];
    const struct ds_header *h = ds_record_header(r->record);
    ds_buf_printf(out, "%-14s%s, arm %u: %llu digests and %llu tokens held against the record",
                  i ? "" : "replay", ds_storm_kernels(h, r->arms[i]), r->arms[i],
                  (unsigned long long)m->compared, (unsigned long long)m->tokens);
    if (m->missing)
        ds_buf_printf(out, ", %llu row%s without a partner", (unsigned long long)m->missing,
                      ds_plural((long long)m->missing));
    ds_buf_puts(out, "\n");
    if (!m->differs)
        return;
    ds_buf_printf(out, "%-14sfirst other bits: ", "");
    ds_storm_site_text(h, m->site, &r->launches[i], out);
    ds_buf_printf(out, ", request %d at position %d\n", m->request, m->position);
    ds_buf_printf(out, "%-14srecorded in step %u, %d row%s of %d request%s; now %d of %d\n", "",
                  m->other_call, m->other_m, ds_plural(m->other_m), m->other_requests,
                  ds_plural(m->other_requests), m->m, m->requests);
    if (m->parted_request < 0)
        return;
    ds_buf_printf(out, "%-14sfirst other token: request %lld's token %d is ", "",
                  (long long)m->parted_request, m->parted_step);
    ds_storm_token(&r->setup, m->token, out);
    ds_buf_puts(out, ", recorded ");
    ds_storm_token(&r->setup, m->other_token, out);
    ds_inputs_call_text(&r->setup, m->parted_request, out);
    ds_buf_puts(out, "\n");
}

static const struct ds_storm_match *first_different(const struct replay *r, size_t *arm)
{
    for (size_t i = 0; i < r->n_matches; i++)
        if (r->matches[i].differs || r->matches[i].tokens_differ) {
            *arm = i;
            return &r->matches[i];
        }
    return NULL;
}

static void verdict_text(const struct replay *r, struct ds_buf *out)
{
    const struct ds_header *h = ds_record_header(r->record);
    struct ds_buf what = {0};
    size_t arm = 0;
    const struct ds_storm_match *m = first_different(r, &arm);
    changed(r, &what);
    ds_buf_printf(out, "replay: %s: ", m ? "drift" : "same");
    subject(r, out);
    if (what.data)
        ds_buf_printf(out, " %s", what.data);
    if (!m) {
        ds_buf_printf(out, " has the bits of the record%s\n",
                      what.data ? "" : ", every digest and token");
    } else {
        ds_buf_printf(out, " gives %s: ",
                      m->tokens_differ ? "other tokens" : "other bits and the same tokens");
        if (ds_opt_flag(r->o, "alone") && m->differs)
            ds_buf_printf(out, "the neighbours of step %u made the difference, in ", m->other_call);
        if (r->others.changed && m->differs)
            ds_buf_printf(out, "what the neighbours of step %u hold made the difference, in ",
                          m->other_call);
        if (m->differs)
            ds_storm_site_text(h, m->site, &r->launches[arm], out);
        ds_buf_puts(out, "\n");
    }
    ds_buf_free(&what);
}

static json_t *match_json(const struct replay *r, size_t i)
{
    const struct ds_storm_match *m = &r->matches[i];
    const struct ds_header *h = ds_record_header(r->record);
    json_t *j = json_object(), *first = json_null();
    json_object_set_new(j, "arm", json_integer(r->arms[i]));
    json_object_set_new(j, "kernels", ds_json_text(ds_storm_kernels(&r->header, (uint32_t)i)));
    json_object_set_new(j, "digests_compared", ds_json_whole(m->compared));
    json_object_set_new(j, "digests_different", ds_json_whole(m->differ));
    json_object_set_new(j, "rows_missing", ds_json_whole(m->missing));
    json_object_set_new(j, "tokens_compared", ds_json_whole(m->tokens));
    json_object_set_new(j, "tokens_different", ds_json_whole(m->tokens_differ));
    if (m->differs) {
        const struct ds_site *s = &h->sites[m->site];
        first = json_object();
        json_object_set_new(first, "request", json_integer(m->request));
        json_object_set_new(first, "position", json_integer(m->position));
        json_object_set_new(first, "step", json_integer(m->other_call));
        json_object_set_new(first, "layer", json_integer(s->layer));
        json_object_set_new(first, "stage", ds_json_text(s->stage));
        json_object_set_new(first, "part", ds_json_text(s->part));
        json_object_set_new(first, "op", ds_json_text(r->launches[i].op));
        json_object_set_new(first, "variant", ds_json_text(r->launches[i].variant));
        json_object_set_new(first, "recorded_batch",
                            json_pack("{sisi}", "rows", m->other_m, "requests", m->other_requests));
        json_object_set_new(first, "batch",
                            json_pack("{sisi}", "rows", m->m, "requests", m->requests));
    }
    json_object_set_new(j, "first_divergence", first);
    json_object_set_new(j, "first_parting",
                        m->parted_request < 0
                            ? json_null()
                            : json_pack("{sIsisisi}", "request", (json_int_t)m->parted_request,
                                        "token", m->parted_step, "a", m->other_token, "b",
                                        m->token));
    json_object_set_new(j, "recorded",
                        r->followed[i]
                            ? ds_inputs_followed_json(&r->setup, r->followed[i], r->n_followed[i])
                            : json_null());
    return j;
}

static int json(const struct replay *r, struct ds_buf *out, struct ds_error *err)
{
    size_t arm;
    ds_json_begin();
    json_t *j = json_object(), *arms = json_array();
    json_object_set_new(j, "schema", json_string("driftscope.replay/1"));
    json_object_set_new(j, "result", json_string(first_different(r, &arm) ? "drift" : "same"));
    json_object_set_new(j, "record", ds_json_text(ds_opt_operand(r->o, 0)));
    json_object_set_new(j, "inputs", ds_inputs_json(&r->setup));
    json_object_set_new(j, "request", r->request < 0 ? json_null() : json_integer(r->request));
    json_object_set_new(j, "alone", json_boolean(ds_opt_flag(r->o, "alone")));
    json_object_set_new(j, "other_neighbours", json_boolean(ds_opt_flag(r->o, "other-neighbours")));
    json_object_set_new(j, "kernels", ds_json_text(ds_opt_text(r->o, "kernels")));
    json_object_set_new(j, "threads", ds_json_text(ds_opt_text(r->o, "threads")));
    for (size_t i = 0; i < r->n_matches; i++)
        json_array_append_new(arms, match_json(r, i));
    json_object_set_new(j, "arms", arms);
    return ds_json_print(j, out, err);
}

static int report(const struct replay *r, struct ds_error *err)
{
    struct ds_buf out = {0};
    int rc = 0;
    if (ds_opt_flag(r->o, "json")) {
        rc = json(r, &out, err);
    } else {
        ds_inputs_head_text(&r->setup, &out);
        for (size_t i = 0; i < r->n_matches; i++) {
            arm_text(r, i, &out);
            ds_inputs_followed_text(&r->setup, ds_storm_kernels(&r->header, (uint32_t)i),
                                    r->followed[i], r->n_followed[i], &out);
        }
        verdict_text(r, &out);
    }
    if (rc == 0)
        rc = ds_cli_emit(r->o, &out, err);
    ds_buf_free(&out);
    return rc;
}

/* --export-schedule: what the record ran, as `storm --schedule` reads it; no model is asked for. */
static int export_schedule(const struct ds_options *o, struct ds_error *err)
{
    const char *path = ds_opt_operand(o, 0), *text = NULL;
    struct ds_record *r;
    struct ds_serve_plan plan;
    struct ds_buf out = {0};
    if (ds_record_open(path, &r, err) != 0)
        return -1;
    const struct ds_header *h = ds_record_header(r);
    for (size_t i = 0; i < h->n_options; i++)
        text = strcmp(h->options[i].name, "serve_schedule") == 0 ? h->options[i].value : text;
    int rc = text ? ds_schedule_parse("the record's schedule", text, strlen(text), &plan, err)
                  : ds_fail(err, "the record holds no serving run");
    if (rc == 0) {
        ds_schedule_text(&plan, &out);
        rc = out.failed ? ds_fail(err, "out of memory for the schedule")
                        : ds_cli_write_file(ds_opt_text(o, "export-schedule"), &out, err);
        ds_serve_plan_free(&plan);
    } else
        ds_prefix(err, "%s", path);
    ds_buf_free(&out);
    ds_record_close(r);
    return rc;
}

/* What was said in the record where nothing was recorded before. */
static int fill_inputs(const struct ds_options *o, struct ds_record *record, struct ds_inputs *in,
                       struct ds_error *err)
{
    struct replay r = {.o = o, .record = record};
    const struct ds_header *h = ds_record_header(record);
    int64_t arm = 0;
    int32_t requests = 0;
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, "serve_requests") == 0)
            requests = (int32_t)strtol(h->options[i].value, NULL, 10);
    if (requests < 1)
        return 0;
    if (ds_opt_given(o, "arm") && ds_opt_int(o, "arm", 0, (int64_t)h->n_arms - 1, &arm, err) != 0)
        return -1;
    const struct ds_trial_data *t = recorded(&r, (uint32_t)arm, err);
    return t ? ds_inputs_fill(in, t, (size_t)requests, err) : -1;
}

/* --export-inputs: what the record was made from, as storm and run --inputs read it: one file that needs no other. */
static int export_inputs(const struct ds_options *o, struct ds_error *err)
{
    const char *path = ds_opt_operand(o, 0);
    struct ds_record *r;
    struct ds_inputs in;
    struct ds_buf out = {0};
    if (ds_record_open(path, &r, err) != 0)
        return -1;
    int rc = ds_plan_inputs_of(ds_record_header(r), &in, err);
    if (rc == 0)
        rc = in.doc ? fill_inputs(o, r, &in, err)
                    : ds_fail(err, "the record was made without --inputs");
    if (rc != 0)
        ds_prefix(err, "%s", path);
    if (rc == 0)
        rc = ds_inputs_text(&in, &out, err);
    if (rc == 0)
        rc = ds_cli_write_file(ds_opt_text(o, "export-inputs"), &out, err);
    if (in.doc)
        ds_inputs_free(&in);
    ds_buf_free(&out);
    ds_record_close(r);
    return rc;
}

int ds_verb_replay(const struct ds_options *o)
{
    struct replay r = {.o = o};
    struct ds_error err = {{0}, {0}};
    int interrupted = 0, code;
    size_t arm;
    if (ds_opt_given(o, "export-schedule"))
        return export_schedule(o, &err) == 0 ? DS_EXIT_SAME : ds_cli_error(o, &err);
    if (ds_opt_given(o, "export-inputs"))
        return export_inputs(o, &err) == 0 ? DS_EXIT_SAME : ds_cli_error(o, &err);
    ds_cli_stop_on_signal();
    if (start(&r, &err) != 0 || run(&r, &interrupted, &err) != 0)
        code = ds_cli_error(o, &err);
    else if (interrupted) {
        ds_cli_note(o, "interrupted: nothing was compared");
        code = DS_EXIT_INTERRUPTED;
    } else if (report(&r, &err) != 0)
        code = ds_cli_error(o, &err);
    else
        code = first_different(&r, &arm) ? DS_EXIT_DRIFT : DS_EXIT_SAME;
    free_arms(r.header.arms, r.header.n_arms);
    free(r.arms);
    free(r.matches);
    free(r.launches);
    for (size_t i = 0; r.followed && i < r.header.n_arms; i++)
        free(r.followed[i]);
    free(r.followed);
    free(r.n_followed);
    free(r.hits);
    ds_serve_plan_free(&r.alone);
    ds_changed_run_free(&r.others);
    ds_storm_setup_free(&r.setup);
    if (r.record)
        ds_record_close(r.record);
    return code;
}
