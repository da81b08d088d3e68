/* steps.c: the tokens of two arms as text. See steps.h. */
#include "report/steps.h"

#include "report/report_internal.h"
#include "report/value.h"

#include "base/plural.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one step -------------------------------------------------------------------------------- */

static void put(char out[DS_STEP_TEXT], const char *text)
{
    snprintf(out, DS_STEP_TEXT, "%s", text);
}

void ds_step_drift_text(const struct ds_step_pair *s, char out[DS_STEP_TEXT])
{
    if (!ds_step_both(s) || s->label == DS_LABEL_ABSENT)
        put(out, ".");
    else if (s->label == DS_LABEL_SAME || s->label == DS_LABEL_HEALED)
        put(out, "=");
    else if (!s->sized)
        put(out, s->label == DS_LABEL_WITHIN ? "within" : "?");
    else
        ds_size_text(s->max_abs, out, DS_STEP_TEXT);
}

void ds_step_room_text(const struct ds_step_pair *s, char out[DS_STEP_TEXT])
{
    double room = ds_step_room(s);
    if (isnan(room))
        put(out, ".");
    else if (ds_step_other_token(s))
        put(out, "flipped");
    else if (isinf(room))
        put(out, s->sized ? "0 drift" : "=");
    else if (room <= 1)
        put(out, "within");
    else
        snprintf(out, DS_STEP_TEXT, "%.3gx", room);
}

void ds_step_note_text(const struct ds_step_pair *s, const char *const names[2],
                       char out[DS_STEP_TEXT])
{
    out[0] = '\0';
    if (!ds_step_both(s))
        snprintf(out, DS_STEP_TEXT, "%s only", names[s->mine.request != DS_UNKNOWN]);
    else if (s->is & DS_STEP_AFTER)
        put(out, "after other tokens");
    else if (s->is & DS_STEP_FIRST)
        put(out, "first other token");
    else if (ds_step_other_token(s))
        put(out, "other token");
    else if (s->label == DS_LABEL_ABSENT)
        put(out, "logits not compared");
    else if (s->ref.ties > 1 || s->mine.ties > 1)
        put(out, "tied");
    else if (ds_step_room(s) <= 1)
        put(out, "can flip");
}

int ds_step_logit(const struct ds_step *s, int32_t id, float *out)
{
    for (int i = 0; i < DS_TOP; i++)
        if (s->ids[i] == id && id >= 0) {
            *out = s->logits[i];
            return 1;
        }
    return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void add_token(const struct ds_step *s, struct ds_buf *out)
{
    if (s->request == DS_UNKNOWN)
        ds_buf_printf(out, " %9s", ".");
    else
        ds_buf_printf(out, " %9d", s->token);
}

static void add_ties(const struct ds_step_pair *s, struct ds_buf *out)
{
    char text[32];
    if (ds_step_both(s) && s->ref.ties != s->mine.ties)
        snprintf(text, sizeof text, "%d/%d", s->ref.ties, s->mine.ties);
    else
        snprintf(text, sizeof text, "%d", ds_step_side(s)->ties);
    ds_buf_printf(out, " %5s", text);
}

/* What was fed next: "=" the chosen token, another one where it was forced, nothing at the end. */
static void add_forced(const struct ds_step_pair *s, struct ds_buf *out)
{
    const struct ds_step *x = s->mine.request != DS_UNKNOWN ? &s->mine : &s->ref;
    char text[16];
    snprintf(text, sizeof text, "%d", x->forced);
    ds_buf_printf(out, " %9s", x->forced < 0 ? "." : x->forced == x->token ? "=" : text);
}

static void add_step(const struct ds_step_pair *s, struct ds_buf *out)
{
    static const char *const names[2] = {"reference", "this"};
    const struct ds_step *x = ds_step_side(s);
    char text[DS_STEP_TEXT], name[32];
    snprintf(name, sizeof name, "%d:%d", x->request, x->step);
    ds_buf_printf(out, "%8s", name);
    add_token(&s->ref, out);
    ds_buf_printf(out, " %2s", !ds_step_both(s) ? "" : ds_step_other_token(s) ? "!=" : "=");
    add_token(&s->mine, out);
    ds_size_text((double)x->margin, text, sizeof text);
    ds_buf_printf(out, " %12s", text);
    ds_step_drift_text(s, text);
    ds_buf_printf(out, " %12s", text);
    ds_step_room_text(s, text);
    ds_buf_printf(out, " %9s", text);
    add_ties(s, out);
    add_forced(s, out);
    ds_step_note_text(s, names, text);
    ds_buf_printf(out, "  %s%s%s\n", ds_label_name(s->label), text[0] ? "; " : "", text);
}

/* The prompts of the requests that chose. */
static void add_prompts(const struct ds_header *h, const struct ds_step_pair *steps, size_t n,
                        struct ds_buf *out)
{
    for (size_t i = 0; i < h->n_prompts; i++) {
        const struct ds_prompt *p = &h->prompts[i];
        size_t k = 0;
        while (k < n && ds_step_side(&steps[k])->request != p->request)
            k++;
        if (k == n)
            continue;
        ds_buf_printf(out, "request %d, %u token%s: ", p->request, p->n_tokens,
                      ds_plural(p->n_tokens));
        if (p->text && p->text[0])
            ds_buf_escape(out, p->text, (size_t)-1);
        for (uint32_t t = 0; !(p->text && p->text[0]) && t < p->n_tokens; t++)
            ds_buf_printf(out, "%s%d", t ? " " : "", p->tokens[t]);
        ds_buf_puts(out, "\n");
    }
}

/* ---- the top 8 ------------------------------------------------------------------------------- */

static void add_choice(const struct ds_step *s, int i, struct ds_buf *out)
{
    if (s->request == DS_UNKNOWN || s->ids[i] < 0)
        ds_buf_printf(out, " %9s %15s", ".", ".");
    else
        ds_buf_printf(out, " %9d %15.9g", s->ids[i], (double)s->logits[i]);
}

static void add_rank(const struct ds_step_pair *s, int i, struct ds_buf *out)
{
    float mine;
    char text[32];
    ds_buf_printf(out, "%8d", i + 1);
    add_choice(&s->ref, i, out);
    ds_buf_printf(out, " %2s", ds_step_both(s) && s->ref.ids[i] != s->mine.ids[i] ? "!" : "");
    add_choice(&s->mine, i, out);
    if (!ds_step_both(s) || s->ref.ids[i] < 0)
        put(text, "");
    else if (!ds_step_logit(&s->mine, s->ref.ids[i], &mine))
        put(text, "below top 8");
    else if (memcmp(&mine, &s->ref.logits[i], sizeof mine) == 0)
        put(text, "=");
    else
        ds_size_text((double)mine - (double)s->ref.logits[i], text, sizeof text);
    ds_buf_printf(out, "%s%s\n", text[0] ? "  " : "", text);
}

static void add_top(const struct ds_step_pair *s, struct ds_buf *out)
{
    ds_buf_printf(out, "\nstep %d:%d", ds_step_side(s)->request, ds_step_side(s)->step);
    if (ds_step_both(s))
        ds_buf_printf(out, ", margin %.9g against %.9g", (double)s->ref.margin,
                      (double)s->mine.margin);
    ds_buf_printf(out, "\n%8s %9s %15s    %9s %15s  %s\n", "top", "reference", "logit", "this",
                  "logit", "difference of the reference's");
    for (int i = 0; i < DS_TOP; i++)
        add_rank(s, i, out);
}

int ds_report_steps(const struct ds_report_view *w, struct ds_buf *out, struct ds_error *err)
{
    struct ds_step_pair *steps;
    size_t n, same = 0, both = 0;
    if (ds_steps_make(w->a, w->s->header, w->arm, w->ref, &steps, &n, err) != 0)
        return -1;
    ds_report_pair_words(w, out);
    add_prompts(w->s->header, steps, n, out);
    if (n)
        ds_buf_printf(out, "%8s %9s %2s %9s %12s %12s %9s %5s %9s  %s\n", "step", "reference", "",
                      "this", "margin", "drift", "to flip", "ties", "forced", "logits");
    for (size_t i = 0; i < n; i++) {
        add_step(&steps[i], out);
        both += (size_t)ds_step_both(&steps[i]);
        same += (size_t)(ds_step_both(&steps[i]) && !ds_step_other_token(&steps[i]));
    }
    for (size_t i = 0; i < n; i++)
        add_top(&steps[i], out);
    if (n == 0)
        ds_buf_puts(out, "neither side chose a token (run with -n N has N steps)\n");
    else
        ds_buf_printf(out, "\n%zu of %zu tokens equal", same, both);
    if (n > both)
        ds_buf_printf(out, ", %zu on one side only", n - both);
    ds_buf_puts(out, n ? "\n" : "");
    free(steps);
    return 0;
}
