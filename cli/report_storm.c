/* report_storm.c: the section of a serving run: what each kernel set gave, the trees of completions, environment. Its
 * schedule is read from the record, so that rows which a request began with are known. See report.h. */
#include "cli/report.h"

#include "base/mem.h"
#include "base/plural.h"
#include "cli/storm.h"
#include "cli/verdict.h"

#include <stdlib.h>
#include <string.h>

struct serving {
    struct ds_report_maker *m;
    const char *path;
    struct ds_record *record;
    const struct ds_header *h;
    struct ds_serve_prompt *prompts;
    struct ds_serve_plan plan;
    struct ds_storm_hit *hits;
    size_t n_hits;
    struct ds_buf sets, places,
        sentence;       /* a line for each kernel set; where each drifts; the verdict */
    int more;           /* some set gave more completions than prompts */
    uint64_t blind;     /* choices among NaN */
    uint64_t compared;  /* digests */
    size_t completions; /* of all sets */
    size_t n_sets;
};

static const char *option_of(const struct ds_header *h, const char *name)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, name) == 0)
            return h->options[i].value;
    return NULL;
}

int ds_report_is_serving(const struct ds_header *h)
{
    return option_of(h, "serve_schedule") != NULL;
}

/* ---- the schedule ---------------------------------------------------------------------------- */

static int read_schedule(struct serving *s, struct ds_error *err)
{
    const struct ds_header *h = s->h;
    const char *text = option_of(h, "serve_schedule"), *requests = option_of(h, "serve_requests");
    size_t step = 0;
    char *end;
    const long n = requests ? strtol(requests, &end, 10) : 0;
    if (!h->n_prompts || n < 1 || n > DS_SERVE_MOST_REQUESTS || h->n_prompts > INT32_MAX)
        return ds_fail(err, "the record does not say its prompts and requests");
    if (!(s->prompts = ds_calloc(h->n_prompts, sizeof *s->prompts, "prompts", err)))
        return -1;
    for (size_t i = 0; i < h->n_prompts; i++)
        s->prompts[i] = (struct ds_serve_prompt){.tokens = h->prompts[i].tokens,
                                                 .n = (int32_t)h->prompts[i].n_tokens};
    if (ds_schedule_parse("the record's schedule", text, strlen(text), &s->plan, err) != 0)
        return -1;
    s->plan.n_requests = (int32_t)n;
    if (ds_serve_check(&s->plan, s->prompts, (int32_t)h->n_prompts, &step, err) != 0)
        return ds_prefix(err, "the record's schedule, line %zu", step + 1);
    return ds_storm_hits(&s->plan, &s->hits, &s->n_hits, err);
}

/* ---- a kernel set ---------------------------------------------------------------------------- */

static void batch(struct ds_buf *out, int32_t m, int32_t requests)
{
    ds_buf_printf(out, "%d row%s of %d request%s", m, m == 1 ? "" : "s", requests,
                  requests == 1 ? "" : "s");
}

/* Where a set's bits first differ, and in what company. */
static void add_place(struct serving *s, const struct ds_trial_data *t,
                      const struct ds_storm *storm)
{
    struct ds_buf *out = &s->places;
    if (storm->first_drift < 0)
        return;
    const struct ds_storm_request *q = &storm->requests[storm->first_drift];
    const struct ds_storm_place *p = &q->place;
    if (!out->len)
        ds_buf_puts(out, "kernels\tfirst other bits\tin\tamong\tits reference\n");
    ds_buf_escape(out, ds_storm_kernels(s->h, t->info.arm), (size_t)-1);
    ds_buf_puts(out, "\t");
    ds_storm_site_text(s->h, p->site, &t->launches[p->launch], out);
    ds_buf_printf(out, "\trequest %lld, position %d\tstep %u: ", (long long)storm->first_drift,
                  p->position, p->call);
    batch(out, p->m, p->requests);
    ds_buf_printf(out, "\trequest %d, step %u: ", q->reference, p->other_call);
    batch(out, p->other_m, p->other_requests);
    ds_buf_puts(out, "\n");
}

static void add_set(struct serving *s, const struct ds_trial_data *t, const struct ds_storm *storm)
{
    const char *kernels = ds_storm_kernels(s->h, t->info.arm);
    const struct ds_flips *f = &storm->forecast;
    struct ds_buf *out = &s->sets;
    if (s->n_sets++ == 0) {
        ds_buf_puts(out,
                    "kernels\tcompletions\tdrifting\tparted\tties\texpected partings\ttokens/s\t"
                    "first token after\n");
        ds_buf_printf(&s->sentence, "%zu prompt%s had ", storm->n_prompts,
                      storm->n_prompts == 1 ? "" : "s");
    } else
        ds_buf_puts(&s->sentence, ", ");
    ds_buf_printf(&s->sentence, "%zu completion%s with ", storm->n_completions,
                  storm->n_completions == 1 ? "" : "s");
    ds_buf_escape(&s->sentence, kernels, (size_t)-1);
    ds_buf_escape(out, kernels, (size_t)-1);
    ds_buf_printf(out, "\t%zu\t%zu\t%zu\t%zu\t%.3g", storm->n_completions, storm->drifting,
                  storm->parted, storm->ties, f->expected);
    if (f->bounded)
        ds_buf_printf(out, " (%.0f-%.0f)", f->low, f->high);
    if (t->info.steps_s > 0)
        ds_buf_printf(out, "\t%.4g\t%.3g s\n", (double)t->n_steps / t->info.steps_s,
                      t->info.first_median_s);
    else
        ds_buf_puts(out, "\t\t\n");
    add_place(s, t, storm);
    s->more |= storm->n_completions > storm->n_prompts;
    s->blind += storm->blind;
    s->compared += storm->compared;
    s->completions += storm->n_completions;
}

static void token_text(void *ctx, int32_t id, struct ds_buf *out)
{
    const struct ds_tokenizer *tokenizer = ctx;
    struct ds_buf raw = {0};
    if (ds_tokenizer_decode(tokenizer, id, 1, &raw, NULL) == 0 && raw.data)
        ds_buf_escape(out, raw.data, raw.len);
    out->failed |= raw.failed;
    ds_buf_free(&raw);
}

static int add_tree(struct serving *s, const struct ds_trial_data *t, const struct ds_storm *storm,
                    struct ds_error *err)
{
    const struct ds_run_plan *plan = &s->m->plan;
    const int own = plan->tokenizer && plan->model->digest == s->h->model_digest;
    const struct ds_figure_storm of = {.header = s->h,
                                       .trial = t,
                                       .storm = storm,
                                       .kernels = ds_storm_kernels(s->h, t->info.arm),
                                       .token = own ? token_text : NULL,
                                       .ctx = own ? plan->tokenizer : NULL};
    struct ds_figure f = {0};
    if (!ds_report_wants(s->m, "tree") || (s->m->arm >= 0 && (uint64_t)s->m->arm != t->info.arm) ||
        (s->m->figure && s->m->file.len)) /* alone: that of the first */
        return 0;
    ds_page_figure_id(&s->m->page, &f);
    int rc = ds_figure_tree(&of, &f, err);
    if (rc == 0)
        rc = ds_report_place_figure(s->m, &f, (int64_t)t->info.arm, 0, err);
    ds_figure_free(&f);
    return rc;
}

static int add_trial(struct serving *s, size_t i, struct ds_error *err)
{
    struct ds_storm storm;
    const struct ds_trial_data *t = ds_record_load(s->record, i, err);
    if (!t ||
        ds_storm_make(s->h, t, (size_t)s->plan.n_requests, s->hits, s->n_hits, &storm, err) != 0)
        return -1;
    add_set(s, t, &storm);
    int rc = add_tree(s, t, &storm, err);
    if (rc == 0 && s->m->times)
        rc = ds_report_times_trial(s->m->times, s->h, t, err);
    ds_storm_free(&storm);
    ds_record_forget(s->record, i, DS_FORGET_ALL);
    return rc;
}

/* ---- the section ----------------------------------------------------------------------------- */

static int finish(struct serving *s, struct ds_buf *trees, struct ds_error *err)
{
    struct ds_page *p = &s->m->page;
    struct ds_buf line = {0};
    int32_t asked, prompts;
    if (ds_storm_asked(s->h, &s->plan, &asked, &prompts, err) != 0)
        return -1;
    const struct ds_report r = {.header = s->h,
                                .path = s->path,
                                .incomplete = ds_record_incomplete(s->record),
                                .damaged = ds_record_damaged(s->record)};
    ds_buf_printf(&line, "%s: %s",
                  s->more       ? "drift"
                  : s->blind    ? "incomparable"
                  : s->compared ? "same"
                                : "recorded",
                  s->sentence.data ? s->sentence.data : "");
    if (!s->more && !s->blind && !s->compared)
        ds_buf_printf(&line, "; %s", ds_storm_not_held(asked, prompts, s->completions));
    if (s->blind)
        ds_buf_printf(&line, "; %llu choices were made among NaN, and say nothing",
                      (unsigned long long)s->blind);
    if (line.failed || s->sentence.failed || s->sets.failed || s->places.failed)
        return ds_fail(err, "out of memory for the page");
    ds_page_begin_record(p, s->path, s->h, line.data,
                         s->more || s->blind ? DS_ROLE_DRIFT
                         : s->compared       ? DS_ROLE_SAME
                                             : DS_ROLE_PLAIN);
    line.len = 0;
    ds_buf_printf(&line,
                  "%d request%s of %d prompt%s, %d tokens each at most, in %zu steps of %d rows at "
                  "most. Every kernel "
                  "set ran this schedule, each request on its own tokens. Drifting: requests with "
                  "any bit unlike "
                  "their reference, the first one of those with the commonest completion of their "
                  "prompt; parted: with a "
                  "token unlike it; expected partings: from margins and measured drift, with a 95 "
                  "%% interval.",
                  asked, ds_plural(asked), prompts, ds_plural(prompts), s->plan.tokens,
                  s->plan.n_steps, s->plan.max_rows);
    ds_page_table(p, "What traffic did to the answers", line.data ? line.data : "", &s->sets, 0);
    if (s->places.len)
        ds_page_table(p, "Where it begins",
                      "The first row of each kernel set with other bits than its reference has.",
                      &s->places, 0);
    p->body.failed |= line.failed;
    ds_buf_free(&line);
    ds_buf_add(&p->body, trees->data ? trees->data : "", trees->len);
    p->body.failed |= trees->failed;
    if (ds_report_machine(s->m, &r, s->record, err) != 0)
        return -1;
    ds_page_end_record(p);
    return 0;
}

static int add_all(struct serving *s, struct ds_error *err)
{
    const size_t n = ds_record_trial_count(s->record);
    struct ds_buf before = s->m->page.body, trees;
    if (read_schedule(s, err) != 0)
        return -1;
    s->m->page.body = (struct ds_buf){0}; /* figures come behind a table that is not known yet */
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (ds_record_trial(s->record, i)->pass == DS_PASS_NATURAL)
            rc = add_trial(s, i, err);
    trees = s->m->page.body;
    s->m->page.body = before;
    if (rc == 0 && ds_record_damaged(s->record) > 0)
        rc = ds_fail(err, "%zu of its trials are damaged", ds_record_damaged(s->record));
    if (rc == 0 && s->n_sets == 0)
        rc = ds_fail(err, "the record has no complete trial");
    if (rc == 0)
        rc = finish(s, &trees, err);
    ds_buf_free(&trees);
    return rc;
}

int ds_report_serving(struct ds_report_maker *m, const char *path, struct ds_record *r,
                      struct ds_error *err)
{
    struct serving s = {.m = m, .path = path, .record = r, .h = ds_record_header(r)};
    const int rc = add_all(&s, err);
    m->drifts |= s.more;
    free(s.prompts);
    free(s.hits);
    ds_serve_plan_free(&s.plan);
    ds_buf_free(&s.sets);
    ds_buf_free(&s.places);
    ds_buf_free(&s.sentence);
    return rc;
}
