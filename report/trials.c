/* trials.c: a line for each trial of a record: what it gave and how long it took. Judges nothing. */
#include "report/report_internal.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

static void add_seconds(double x, struct ds_buf *out)
{
    char text[32];
    snprintf(text, sizeof text, x >= 1000 ? "%.0f" : x >= 0.001 ? "%.4f" : "%.2g", x);
    ds_buf_printf(out, " %9s", text);
}

static void add_count(int64_t n, struct ds_buf *out)
{
    if (n < 0)
        ds_buf_printf(out, " %6s", "?");
    else
        ds_buf_printf(out, " %6lld", (long long)n);
}

static const struct ds_failed_arm *failure(const struct ds_report *r, const struct ds_trial *t)
{
    for (size_t i = 0; t->pass == DS_PASS_FAILED && i < r->v->n_failed; i++)
        if (r->v->failed[i].arm == t->arm && r->v->failed[i].repeat == t->repeat)
            return &r->v->failed[i];
    return NULL;
}

static void add_note(const struct ds_report *r, const struct ds_trial *t, struct ds_buf *out)
{
    const struct ds_failed_arm *f = failure(r, t);
    if (f) {
        ds_buf_printf(out, "  %s in ", ds_report_failed_how(f->at->how));
        ds_report_failed_place(f, out);
        ds_buf_puts(out, ": ");
        ds_report_name(out, f->at->why);
    } else if (t->pass != DS_PASS_FAILED) {
        ds_buf_puts(out, "  ");
        ds_report_name(out, t->blas_core[0] ? t->blas_core : "no BLAS");
        if (t->earlier_trials)
            ds_buf_printf(out, ", %u trial%s before it", t->earlier_trials,
                          t->earlier_trials == 1 ? "" : "s");
        else
            ds_buf_puts(out, ", first of its process");
    }
}

static int has_digests(const struct ds_trial *t)
{
    return t->pass == DS_PASS_NATURAL || t->pass == DS_PASS_HEAL;
}

/* What two trials of one group share: an arm, a pass, what they were healed to. */
static int same_group(const struct ds_trial *a, const struct ds_trial *b)
{
    return a->arm == b->arm && a->pass == b->pass && a->healed_to == b->healed_to;
}

/* Trials of one group that agree in every digest have one letter, in the order in which they came. classes: of the trials
 * before this one. */
static uint32_t class_of(const struct ds_source *s, const uint32_t *classes, size_t at)
{
    const struct ds_trial *t = s->info(s->ctx, at);
    uint32_t n = 0;
    for (size_t i = 0; i < at && has_digests(t); i++) {
        const struct ds_trial *x = s->info(s->ctx, i);
        if (!same_group(x, t))
            continue;
        if (x->run_digest == t->run_digest)
            return classes[i];
        n = classes[i] + 1 > n ? classes[i] + 1 : n;
    }
    return has_digests(t) ? n : UINT32_MAX;
}

static void add_trial(const struct ds_report *r, const struct ds_source *s, size_t at, uint32_t of,
                      struct ds_buf *out)
{
    const struct ds_trial *t = s->info(s->ctx, at);
    static const char *const names[] = {"natural", "heal", "bare", "lost"};
    char pass[32];
    snprintf(pass, sizeof pass, "%s", t->pass < 4 ? names[t->pass] : "?");
    if (t->pass == DS_PASS_HEAL)
        snprintf(pass, sizeof pass, "heal to %u", t->healed_to);
    ds_buf_printf(out, "%5u %6u %-3c %-10s ", t->arm, t->repeat, ds_report_class_letter(of), pass);
    if (has_digests(t))
        ds_report_digest(t->run_digest, out);
    else
        ds_buf_printf(out, "%-16s", "?");
    if (t->pass == DS_PASS_FAILED) {
        ds_buf_printf(out, " %9s %9s %6s %6s %6s", "?", "?", "?", "?", "?");
    } else {
        add_seconds(t->wall_s, out);
        add_seconds(t->cpu_s, out);
        add_count(t->threads_asked, out);
        add_count(t->threads_max, out);
        add_count(t->threads_seen, out);
    }
    add_count(t->worker, out);
    add_note(r, t, out);
    struct ds_buf arm = {0};
    ds_report_arm_values(s->header, t->arm, &arm);
    ds_buf_puts(out, "  ");
    ds_report_name(out, arm.data ? arm.data : "");
    ds_buf_free(&arm);
    ds_buf_puts(out, "\n");
}

int ds_report_trials(const struct ds_report *r, const struct ds_source *s, struct ds_buf *out,
                     struct ds_error *err)
{
    uint32_t *classes = ds_calloc(s->n_trials, sizeof *classes, "trials", err);
    if (!classes)
        return -1;
    for (size_t i = 0; i < s->n_trials; i++)
        classes[i] = class_of(s, classes, i);
    ds_buf_printf(out, "%5s %6s run %-10s %-16s %9s %9s %6s %6s %6s %6s  %s\n", "arm", "repeat",
                  "pass", "run digest", "wall s", "CPU s", "asked", "max", "seen", "worker",
                  "process; arm");
    for (uint32_t arm = 0; arm < s->header->n_arms; arm++)
        for (size_t i = 0; i < s->n_trials; i++)
            if (s->info(s->ctx, i)->arm == arm)
                add_trial(r, s, i, classes[i], out);
    ds_buf_puts(out, "\n");
    free(classes);
    return 0;
}
