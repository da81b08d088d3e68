/* verdict_checks.h: sweeps around a kernel set and what a verdict must say, for the tests of kernels
 * that drift. Include once, in a test of tests/whole. */
#ifndef DS_TESTS_VERDICT_CHECKS_H
#define DS_TESTS_VERDICT_CHECKS_H

#include "tests/whole/sweep_in_memory.h"

/* Every factor varied, one at a time, around `kernels`. */
static inline struct ask wide(const char *kernels)
{
    return (struct ask){.dump = DS_DUMP_ORIGINS,
                        .factor = {[DS_FACTOR_BATCH] = "1,2,3,4,5,8",
                                   [DS_FACTOR_SLOT] = "first,last",
                                   [DS_FACTOR_NEIGHBOURS] = "copies,varied",
                                   [DS_FACTOR_PADDING] = "0,3",
                                   [DS_FACTOR_THREADS] = "1,2",
                                   [DS_FACTOR_CHUNK] = "0,4",
                                   [DS_FACTOR_MODE] = "prefill,decode",
                                   [DS_FACTOR_KERNELS] = kernels}};
}

static inline struct ask only_kernels(const char *kernels)
{
    return (struct ask){.dump = DS_DUMP_ORIGINS, .factor = {[DS_FACTOR_KERNELS] = kernels}};
}

struct culprit {
    const char *op, *variant;
    const char *drifts;      /* " batch chunk ": factors in which its own bits change */
    const char *unstable_in; /* factors in which its repeats' disagreement hides everything */
};

static inline int named(const char *list, const char *name)
{
    char word[40];
    snprintf(word, sizeof word, " %s ", name);
    return list && strstr(list, word) != NULL;
}

/* Nothing is blamed but the culprits, and they in their conditions only. */
static inline void only_blames(const struct outcome *x, const char *what, const struct culprit *c,
                               size_t n)
{
    const struct ds_verdict *v = &x->v;
    for (size_t k = 0; k < v->n_kernels; k++) {
        const struct ds_kernel_verdict *kv = &v->kernels[k];
        const struct culprit *guilty = NULL;
        for (size_t i = 0; i < n; i++)
            if (strcmp(c[i].op, kv->op) == 0 && strcmp(c[i].variant, kv->variant) == 0)
                guilty = &c[i];
        for (size_t f = 0; f < v->n_factors; f++) {
            int got = kv->condition[f], drift = got == DS_COND_DRIFT,
                unstable = got == DS_COND_UNSTABLE;
            if (drift != (guilty && named(guilty->drifts, v->factors[f].name)) ||
                unstable != (guilty && named(guilty->unstable_in, v->factors[f].name))) {
                print_error("%s: %s/%s is %s on %s\n", what, kv->op, kv->variant,
                            ds_condition_name(got), v->factors[f].name);
                cut_short = 1;
            }
        }
        check(what, guilty || kv->origins == 0);
        check(what, guilty || kv->unknown == 0);
        for (size_t s = 0; !guilty && s < kv->n_switches; s++)
            check(what, kv->switches[s].n == 0);
    }
}

struct place {
    int32_t layer;
    const char *stage, *factor, *value;
    uint32_t phase, rows_in_call;
    int32_t step, position;
    uint32_t rows;
    int kind;
};

static inline void first_is(const struct outcome *x, const char *what, const struct ds_finding *f,
                            const struct place *p)
{
    check(what, f->found);
    if (!f->found)
        return;
    check(what, f->layer == p->layer);
    check_text(what, f->stage, p->stage);
    check_text(what, f->factor, p->factor);
    check_text(what, f->value, p->value);
    check(what, f->label == DS_LABEL_ORIGIN);
    check(what, f->phase == p->phase);
    check(what, f->rows_in_call == p->rows_in_call);
    check(what, f->step == p->step);
    check(what, f->position == p->position);
    check(what, f->rows == p->rows);
    check_text(what, ds_kind_name(f->kind), ds_kind_name(p->kind));
    (void)x;
}

/* "4,8" of the switches at the base setting. */
static inline void switches_are(const struct outcome *x, const char *what, const char *op,
                                const char *variant, const char *want)
{
    const struct ds_kernel_verdict *k = kernel_of(&x->v, op, variant);
    char got[128] = "";
    for (size_t s = 0; s < k->n_switches; s++)
        for (uint32_t i = 0; !k->switches[s].setting[0] && i < k->switches[s].n; i++)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%u", *got ? "," : "",
                     k->switches[s].rows[i]);
    check_text(what, got, want);
}

/* Classes of a factor as "1,2|4", over all phases. */
static inline void classes_are(const struct outcome *x, const char *what, const char *factor,
                               int phase, const char *want)
{
    const struct ds_factor_verdict *f = factor_of(&x->v, factor);
    char got[256] = "";
    for (uint32_t c = 0; c < f->phase[phase].n_classes; c++) {
        int some = 0;
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s", c ? "|" : "");
        for (uint32_t i = 0; i < f->n_values; i++)
            if (f->phase[phase].class_of[i] == c)
                snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", some++ ? "," : "",
                         f->values[i]);
    }
    check_text(what, got, want);
}

static inline void healthy_words(const struct outcome *x, const char *what)
{
    char *text = verdict_text(x);
    struct ds_buf json = {0};
    struct ds_error err;
    struct ds_report r = {.header = &x->header, .v = &x->v};
    assert_ok(ds_render_verdict_json(&r, &json, &err), err);
    ds_buf_add(&json, "", 1);
    check(what, !strstr(text, "invariant"));
    check(what, !strstr(json.data, "invariant"));
    ds_buf_free(&json);
    free(text);
}

#endif
