/* render_storm.c: a storm in words. Owns how it is told; judges nothing. */
#include "cli/storm.h"
#include "cli/verdict.h"

#include "base/plural.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *ds_storm_kernels(const struct ds_header *h, uint32_t arm)
{
    return h->arms[arm].values[DS_FACTOR_KERNELS];
}

int ds_storm_drifts(const struct ds_storm_arm *a)
{
    return a->s.n_completions > a->s.n_prompts;
}

void ds_storm_site_text(const struct ds_header *h, uint32_t site, const struct ds_launch *l,
                        struct ds_buf *out)
{
    const struct ds_site *s = &h->sites[site];
    if (s->layer >= 0 && s->layer < h->n_layers)
        ds_buf_printf(out, "L%02d ", s->layer);
    ds_buf_escape(out, s->stage, (size_t)-1);
    if (s->part[0]) {
        ds_buf_puts(out, "/");
        ds_buf_escape(out, s->part, (size_t)-1);
    }
    ds_buf_puts(out, " ");
    ds_buf_escape(out, l->op, (size_t)-1);
    ds_buf_puts(out, "/");
    ds_buf_escape(out, l->variant, (size_t)-1);
}

static void head(struct ds_buf *out, const struct ds_storm_result *r, const char *name)
{
    ds_buf_printf(out, "%s%-14s%s", ds_cli_color(r->o, DS_ROLE_HEAD), name,
                  ds_cli_color(r->o, DS_ROLE_PLAIN));
}

static void begin(struct ds_buf *out, const struct ds_storm_result *r)
{
    const struct ds_header *h = &r->setup->plan.header;
    const struct ds_serve_plan *p = &r->setup->serve;
    const struct ds_serve_config *c = &r->setup->config;
    head(out, r, "storm");
    ds_buf_escape(out, h->model_name, (size_t)-1);
    ds_buf_printf(out, ", %s%s%s, %s thread%s\n", h->arms[0].values[DS_FACTOR_DTYPE],
                  r->setup->plan.dtype_at ? " but for " : "",
                  r->setup->plan.dtype_at ? r->setup->plan.dtype_at : "",
                  h->arms[0].values[DS_FACTOR_THREADS],
                  strcmp(h->arms[0].values[DS_FACTOR_THREADS], "1") == 0 ? "" : "s");
    ds_buf_printf(out,
                  "%-14s%d request%s of %d prompt%s, %s%d token%s each: %zu step%s of %d row%s at "
                  "most\n",
                  "", r->setup->asked, ds_plural(r->setup->asked), r->setup->distinct,
                  ds_plural(r->setup->distinct),
                  r->setup->plan.inputs.calls || r->setup->scheduled ? "up to " : "", c->tokens,
                  ds_plural(c->tokens), p->n_steps, ds_plural((long long)p->n_steps), p->max_rows,
                  ds_plural(p->max_rows));
    if (r->setup->scheduled)
        ds_buf_printf(out, "%-14sas the schedule says\n", "");
    else
        ds_buf_printf(out,
                      "%-14s%.6g arrive a step (seed %llu), %d at a time; %d began with cached "
                      "rows, %d preempted\n",
                      "", (double)c->rate / DS_SERVE_RATE_UNIT, (unsigned long long)c->seed,
                      c->max_batch, p->hits, p->preemptions);
    ds_inputs_head_text(r->setup, out);
    head(out, r, "sampler");
    ds_report_sampler(h, out);
    ds_buf_puts(out, "\n");
}

/* The commonest completions' sizes: "40+12+8+4" */
static void sizes(const struct ds_storm *s, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < s->n_completions && i < 6 && at < size; i++) {
        const struct ds_storm_completion *c = &s->completions[i];
        const char *between = i == 0 ? "" : c->prompt == s->completions[i - 1].prompt ? "+" : " ";
        at += (size_t)snprintf(out + at, size - at, "%s%u", between, c->size);
    }
    if (s->n_completions > 6 && at < size)
        snprintf(out + at, size - at, "..");
}

static void scheduler(struct ds_buf *out, const struct ds_storm_result *r);

static void table(struct ds_buf *out, const struct ds_storm_result *r)
{
    int wide = 8;
    for (size_t i = 0; i < r->n_arms; i++) {
        int n = (int)strlen(ds_storm_kernels(&r->setup->plan.header, r->arms[i].arm));
        wide = n > wide ? n : wide;
    }
    wide = wide > 40 ? 40 : wide;
    ds_buf_printf(out,
                  "%s%-*s  completions  %-20s drifting  parted  tokens/s  first token after%s\n",
                  ds_cli_color(r->o, DS_ROLE_HEAD), wide, "kernels", "sizes",
                  ds_cli_color(r->o, DS_ROLE_PLAIN));
    for (size_t i = 0; i < r->n_arms; i++) {
        const struct ds_storm_arm *a = &r->arms[i];
        const enum ds_role role = ds_storm_drifts(a) ? DS_ROLE_DRIFT : DS_ROLE_SAME;
        char text[64];
        sizes(&a->s, text, sizeof text);
        ds_buf_puts(out, ds_cli_color(r->o, role));
        ds_buf_printf(out, "%-*.40s", wide, ds_storm_kernels(&r->setup->plan.header, a->arm));
        ds_buf_puts(out, ds_cli_color(r->o, DS_ROLE_PLAIN));
        ds_buf_printf(out, "  %11zu  %-20s %8zu  %6zu  %8.0f  %.0f step%s, %.0f ms\n",
                      a->s.n_completions, text, a->s.drifting, a->s.parted,
                      a->seconds > 0 ? (double)a->tokens / a->seconds : 0.0, a->wait.median_steps,
                      ds_plural(a->wait.median_steps), 1e3 * a->wait.median_s);
    }
    scheduler(out, r);
}

/* What the scheduler itself costs: its plan is made once, its steps in every set. */
static void scheduler(struct ds_buf *out, const struct ds_storm_result *r)
{
    const double steps = (double)r->setup->serve.n_steps;
    double most = 0, each = 0;
    for (size_t i = 0; i < r->n_arms; i++) {
        const double share = ds_storm_scheduler_share(r->setup, &r->arms[i]);
        most = share > most ? share : most;
        each = r->arms[i].scheduler > each ? r->arms[i].scheduler : each;
    }
    head(out, r, "scheduler");
    ds_buf_printf(out, "%.2g %% of a step at most: %.2g us in it", 100 * most, 1e6 * each / steps);
    if (r->setup->planning > 0)
        ds_buf_printf(out, ", %.2g us to plan it", 1e6 * r->setup->planning / steps);
    ds_buf_puts(out, "\n\n");
}

double ds_storm_scheduler_share(const struct ds_storm_setup *s, const struct ds_storm_arm *a)
{
    return a->seconds > 0 ? (a->scheduler + s->planning) / (a->seconds + s->planning) : 0;
}

static void batch(struct ds_buf *out, int32_t m, int32_t requests)
{
    ds_buf_printf(out, "%d row%s of %d request%s", m, ds_plural(m), requests, ds_plural(requests));
}

/* Where a request first had other bits, and in what company. */
static void first_drift(struct ds_buf *out, const struct ds_storm_result *r,
                        const struct ds_storm_arm *a)
{
    const int64_t request = a->s.first_drift;
    if (request < 0)
        return;
    const struct ds_storm_request *q = &a->s.requests[request];
    const struct ds_storm_place *p = &q->place;
    head(out, r, "first drift");
    ds_buf_printf(out, "%s: ", ds_storm_kernels(&r->setup->plan.header, a->arm));
    ds_storm_site_text(&r->setup->plan.header, p->site, &a->launch, out);
    ds_buf_printf(out, "\n%-14srequest %lld at position %d, in step %u among ", "",
                  (long long)request, p->position, p->call);
    batch(out, p->m, p->requests);
    ds_buf_printf(out, ";\n%-14srequest %d at the same one, in step %u among ", "", q->reference,
                  p->other_call);
    batch(out, p->other_m, p->other_requests);
    ds_buf_puts(out, "\n");
    if (p->from >= 0)
        ds_buf_printf(out, "%-14sit began with rows of request %d, which had these bits already\n",
                      "", p->from);
}

void ds_storm_token(const struct ds_storm_setup *s, int32_t id, struct ds_buf *out)
{
    struct ds_buf text = {0};
    if (s->plan.tokenizer && ds_tokenizer_decode(s->plan.tokenizer, id, 1, &text, NULL) == 0 &&
        text.data) {
        ds_buf_puts(out, "'");
        ds_buf_escape(out, text.data, text.len);
        ds_buf_puts(out, "'");
    } else {
        ds_buf_printf(out, "token %d", id);
    }
    ds_buf_free(&text);
}

static void first_parting(struct ds_buf *out, const struct ds_storm_result *r,
                          const struct ds_storm_arm *a)
{
    const int64_t request = a->s.first_parting;
    if (request < 0)
        return;
    const struct ds_storm_request *q = &a->s.requests[request];
    head(out, r, "first parting");
    ds_buf_printf(out, "%s: request %lld's token %d is ",
                  ds_storm_kernels(&r->setup->plan.header, a->arm), (long long)request, q->parted);
    ds_storm_token(r->setup, q->token, out);
    ds_buf_printf(out, ", request %d's ", q->reference);
    ds_storm_token(r->setup, q->other_token, out);
    ds_inputs_call_text(r->setup, request, out);
    ds_buf_printf(out, "\n%-14smargins %.3g and %.3g nats", "", (double)q->margin,
                  (double)q->other_margin);
    if (q->drift >= 0)
        ds_buf_printf(out, ", the logits moved by %.3g", q->drift);
    ds_buf_printf(out, "; of %zu partings %zu are ties\n", a->s.parted, a->s.ties);
}

static void forecast(struct ds_buf *out, const struct ds_storm_result *r,
                     const struct ds_storm_arm *a)
{
    const struct ds_flips *f = &a->s.forecast;
    if (a->s.drifting == 0)
        return;
    head(out, r, "expected");
    ds_buf_printf(out, "%s: %.1f partings from margins and drift",
                  ds_storm_kernels(&r->setup->plan.header, a->arm), f->expected);
    if (f->bounded)
        ds_buf_printf(out, " (95 %%: %.0f to %.0f)", f->low, f->high);
    else
        ds_buf_puts(out, " (one prompt: no interval)");
    ds_buf_printf(out, ", %zu seen; %llu choices, drift %.3g at the median, %.3g at most\n",
                  a->s.parted, (unsigned long long)f->choices, f->drift_median, f->drift_most);
}

const char *ds_storm_not_held(int32_t requests, int32_t prompts, size_t completions)
{
    return completions == 0      ? "no request chose a token"
           : requests == prompts ? "no two requests have a prompt in common"
                                 : "no two requests of a prompt computed a row of the same tokens";
}

static const char *not_held(const struct ds_storm_result *r)
{
    return ds_storm_not_held(r->setup->asked, r->setup->distinct,
                             r->n_arms ? r->arms[0].s.n_completions : 0);
}

/* A set that need not be invariant and showed nothing. */
static void power(struct ds_buf *out, const struct ds_storm_result *r, const struct ds_storm_arm *a)
{
    if (a->invariant || ds_storm_drifts(a) || a->s.blind)
        return;
    head(out, r, "no power");
    ds_buf_printf(out, "%s does not claim to be batch-invariant, and yet %s:\n%-14s",
                  ds_storm_kernels(&r->setup->plan.header, a->arm),
                  a->s.n_completions ? "each prompt got one completion" : "showed nothing", "");
    if (a->s.compared == 0)
        ds_buf_printf(out, "%s, so none was held against another\n", not_held(r));
    else if (a->s.drifting)
        ds_buf_printf(out,
                      "%zu request%s drifted, but no token turned over; more tokens, prompts or a "
                      "coarser --dtype may show it\n",
                      a->s.drifting, ds_plural((long long)a->s.drifting));
    else
        ds_buf_puts(out, "no request drifted; calls of more unlike sizes (--max-batch, --rate, "
                         "--chunk) may show it\n");
}

static const struct ds_storm_arm *worst_of(const struct ds_storm_result *r)
{
    const struct ds_storm_arm *worst = NULL;
    for (size_t i = 0; i < r->n_arms; i++)
        if (!worst || r->arms[i].s.n_completions > worst->s.n_completions)
            worst = &r->arms[i];
    return worst;
}

static void next(struct ds_buf *out, const struct ds_storm_result *r)
{
    const struct ds_storm_arm *worst = worst_of(r);
    const int64_t request = !worst                        ? -1
                            : worst->s.first_parting >= 0 ? worst->s.first_parting
                                                          : worst->s.first_drift;
    head(out, r, "next");
    ds_cli_caller.begin(out, "replay", r->setup->plan.header.model_name);
    ds_buf_quote(out, r->path);
    if (request >= 0)
        ds_buf_printf(out, " --arm %u --request %lld --alone", worst->arm, (long long)request);
    ds_buf_puts(out, "\n");
}

/* Choices among NaN: the lowest id, whatever the input was. */
static void blind(struct ds_buf *out, const struct ds_storm_result *r, const struct ds_storm_arm *a)
{
    if (a->s.blind == 0)
        return;
    head(out, r, "NaN");
    ds_buf_printf(out, "%s: %llu of %llu choices were made among NaN, and say nothing\n",
                  ds_storm_kernels(&r->setup->plan.header, a->arm), (unsigned long long)a->s.blind,
                  (unsigned long long)a->tokens);
}

int ds_storm_code(const struct ds_storm_result *r)
{
    int drifts = 0, blinds = 0;
    for (size_t i = 0; i < r->n_arms; i++) {
        const struct ds_storm_arm *a = &r->arms[i];
        drifts |= ds_storm_drifts(a) || ds_inputs_parted(a->followed, a->n_followed);
        blinds |= a->s.blind > 0;
    }
    return drifts ? DS_EXIT_DRIFT : blinds ? DS_EXIT_ERROR : DS_EXIT_SAME;
}

/* Whether a request was held against another, or against a recording. */
static int was_held(const struct ds_storm_result *r)
{
    for (size_t i = 0; i < r->n_arms; i++)
        if (r->arms[i].s.compared || r->arms[i].n_followed)
            return 1;
    return 0;
}

const char *ds_storm_verdict(const struct ds_storm_result *r)
{
    const int code = ds_storm_code(r);
    return code == DS_EXIT_DRIFT  ? "drift"
           : code != DS_EXIT_SAME ? "incomparable"
           : was_held(r)          ? "same"
                                  : "recorded";
}

/* "; the recording is followed by 3 of 4 conversations with vendor, 4 with pinned" */
static void conversations(struct ds_buf *out, const struct ds_storm_result *r)
{
    for (size_t i = 0; i < r->n_arms && r->arms[i].n_followed; i++) {
        const struct ds_storm_arm *a = &r->arms[i];
        size_t copies = 0, followed = 0;
        for (size_t k = 0; k < a->n_followed; k++) {
            copies += a->followed[k].copies;
            followed += a->followed[k].followed;
        }
        ds_buf_printf(out, i ? ", %zu" : "; the recording is followed by %zu", followed);
        if (i == 0)
            ds_buf_printf(out, " of %zu conversation%s", copies, ds_plural(copies));
        ds_buf_printf(out, " with %s", ds_storm_kernels(&r->setup->plan.header, a->arm));
    }
}

/* "storm: vendor gave 4 completions of 1 prompt, split 7, pinned 1" */
static void verdict(struct ds_buf *out, const struct ds_storm_result *r)
{
    const int code = ds_storm_code(r);
    uint64_t nans = 0;
    for (size_t i = 0; i < r->n_arms; i++)
        nans += r->arms[i].s.blind;
    ds_buf_puts(out, ds_cli_color(r->o, code != DS_EXIT_SAME ? DS_ROLE_DRIFT
                                        : was_held(r)        ? DS_ROLE_SAME
                                                             : DS_ROLE_PLAIN));
    ds_buf_printf(out, "storm: %s: ", ds_storm_verdict(r));
    if (nans)
        ds_buf_printf(out, "%llu choice%s among NaN; ", (unsigned long long)nans, ds_plural(nans));
    ds_buf_printf(out, "%zu prompt%s had ", r->n_arms ? r->arms[0].s.n_prompts : 0,
                  ds_plural(r->n_arms ? r->arms[0].s.n_prompts : 0));
    for (size_t i = 0; i < r->n_arms; i++)
        ds_buf_printf(out, "%s%zu completion%s with %s", i ? ", " : "", r->arms[i].s.n_completions,
                      ds_plural(r->arms[i].s.n_completions),
                      ds_storm_kernels(&r->setup->plan.header, r->arms[i].arm));
    conversations(out, r);
    if (code == DS_EXIT_SAME && !was_held(r))
        ds_buf_printf(out, "; %s", not_held(r));
    ds_buf_printf(out, "%s\n", ds_cli_color(r->o, DS_ROLE_PLAIN));
}

void ds_storm_text(struct ds_buf *out, const struct ds_storm_result *r)
{
    begin(out, r);
    table(out, r);
    for (size_t i = 0; i < r->n_arms; i++) {
        first_drift(out, r, &r->arms[i]);
        first_parting(out, r, &r->arms[i]);
        forecast(out, r, &r->arms[i]);
        power(out, r, &r->arms[i]);
        blind(out, r, &r->arms[i]);
        ds_inputs_followed_text(r->setup, ds_storm_kernels(&r->setup->plan.header, r->arms[i].arm),
                                r->arms[i].followed, r->arms[i].n_followed, out);
    }
    next(out, r);
    verdict(out, r);
}
