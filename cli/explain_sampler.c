/* explain_sampler.c: for `explain`: logits processing and choices of a run that draws its tokens. What such a kernel
 * was told beside its logits is the sampler of its record, the request and the step; where two records have
 * other samplers, that is what differs. */
#include "cli/render_explain.h"
#include "cli/run_plan_internal.h"

#include <stdio.h>
#include <string.h>

int ds_case_samplers(struct ds_case *c, struct ds_error *err)
{
    for (int s = 0; s < DS_SIDES; s++) {
        struct ds_explain_side *side = &c->e.side[s];
        if (ds_sampler_recorded(ds_case_header(c, s == DS_SIDE_A ? c->f.ref_arm : c->f.arm),
                                &side->sampler, err) != 0)
            return -1;
        side->draws = side->sampler.temperature > 0.0f;
    }
    return 0;
}

int ds_case_is_drawn(const struct ds_case *c)
{
    return (c->e.op == DS_OP_PROCESS || c->e.op == DS_OP_SAMPLE) &&
           (c->e.side[DS_SIDE_A].draws || c->e.side[DS_SIDE_B].draws);
}

static void number_text(double v, char *text, size_t size)
{
    for (int digits = 1; digits < 10; digits++) {
        snprintf(text, size, "%.*g", digits, v);
        float back;
        if (sscanf(text, "%f", &back) == 1 && back == (float)v)
            return;
    }
}

/* Number `i` of a sampler's, as text. */
enum { NUMBERS = 6 };
static const char *number_of(const struct ds_sampler *s, int i, char *text, size_t size)
{
    static const char *const names[NUMBERS] = {
        "temperature", "repetition penalty", "top-k", "top-p", "min-p", "seed"};
    const float of[] = {s->temperature, s->repetition_penalty, 0, s->top_p, s->min_p};
    if (i == 2)
        snprintf(text, size, "%d", s->top_k);
    else if (i == 5)
        snprintf(text, size, "%llu", (unsigned long long)s->seed);
    else
        number_text((double)of[i], text, size);
    return names[i];
}

void ds_case_sampler_text(const struct ds_sampler *s, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < NUMBERS && at < size; i++) {
        char number[32];
        const char *name = number_of(s, i, number, sizeof number);
        at += (size_t)snprintf(text + at, size - at, "%s%s %s", i ? ", " : "", name, number);
    }
}

/* "temperature 0.8 against 0.7, seed 1 against 9"; "": they are alike. */
static void differences(const struct ds_case *c, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < NUMBERS && at < size; i++) {
        char a[32], b[32];
        const char *name = number_of(&c->e.side[DS_SIDE_A].sampler, i, a, sizeof a);
        number_of(&c->e.side[DS_SIDE_B].sampler, i, b, sizeof b);
        if (strcmp(a, b) != 0)
            at += (size_t)snprintf(text + at, size - at, "%s%s %s against %s", at ? ", " : "", name,
                                   a, b);
    }
}

void ds_explanation_judge_drawn(struct ds_explanation *x)
{
    const struct ds_case *c = x->c;
    const int chooses = c->e.op == DS_OP_SAMPLE, both = ds_explanation_reproduced(x, DS_SIDE_A) &&
                                                        ds_explanation_reproduced(x, DS_SIDE_B);
    struct ds_explain_verdict *v = &x->verdict;
    char other[160];
    differences(c, other, sizeof other);
    *v = (struct ds_explain_verdict){.side = -1};
    x->drawn = 1;
    if (!c->inputs_equal)
        return;
    if (other[0]) {
        v->kind = chooses ? DS_EXPLAIN_SELECTION_ONLY : DS_EXPLAIN_WRONG_DATA;
        v->basis = both ? DS_BASIS_BITS : DS_BASIS_FIT;
        snprintf(v->why, sizeof v->why, "the samplers differ: %s%s", other,
                 both ? "; with each side's, its own kernel gives its bits" : "");
    } else if (chooses) {
        v->kind = DS_EXPLAIN_SELECTION_ONLY;
        v->basis = DS_BASIS_FIT;
        snprintf(v->why, sizeof v->why,
                 "from equal logits, with one sampler, the kernels draw other tokens: their noise "
                 "or its use differs");
    }
}
