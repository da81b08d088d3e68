/* verdict_fixture.h: what the tests of the verdict share: the usual sweep, and short texts for what a
 * verdict says. */
#ifndef DS_TESTS_VERDICT_FIXTURE_H
#define DS_TESTS_VERDICT_FIXTURE_H

#include "tests/unit/testing.h"

#include "tests/unit/dumps/synthetic_sweep.h"

static inline void run_verdict(struct sweep *s, struct ds_verdict *v)
{
    struct ds_error err;
    struct ds_source src = sweep_source(s);
    assert_ok(ds_verdict_make(&src, v, &err), err);
}

static inline const struct ds_factor_verdict *factor(const struct ds_verdict *v, const char *name)
{
    for (size_t i = 0; i < v->n_factors; i++)
        if (strcmp(v->factors[i].name, name) == 0)
            return &v->factors[i];
    fail_msg("no factor %s", name);
    return NULL;
}

static inline const struct ds_kernel_verdict *kernel(const struct ds_verdict *v, const char *op)
{
    for (size_t i = 0; i < v->n_kernels; i++)
        if (strcmp(v->kernels[i].op, op) == 0)
            return &v->kernels[i];
    fail_msg("no kernel %s", op);
    return NULL;
}

static inline int condition(const struct ds_verdict *v, const char *op, const char *name)
{
    return kernel(v, op)->condition[factor(v, name) - v->factors];
}

/* Classes as "1 2|4", values of one class apart by spaces. */
static inline const char *classes(const struct ds_verdict *v, const char *name, int phase)
{
    static char text[256];
    const struct ds_factor_verdict *f = factor(v, name);
    text[0] = '\0';
    for (uint32_t c = 0; c < f->phase[phase].n_classes; c++) {
        int first = 1;
        for (uint32_t i = 0; i < f->n_values; i++)
            if (f->phase[phase].class_of[i] == c) {
                strcat(text, c && first ? "|" : first ? "" : " ");
                strcat(text, f->values[i]);
                first = 0;
            }
    }
    return text;
}

static inline const char *switches(const struct ds_verdict *v, const char *op)
{
    static char text[256];
    const struct ds_kernel_verdict *k = kernel(v, op);
    text[0] = '\0';
    for (uint32_t s = 0; s < k->n_switches; s++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s:", s ? " " : "",
                 k->switches[s].setting);
        for (uint32_t i = 0; i < k->switches[s].n; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%u", i ? "," : "",
                     k->switches[s].rows[i]);
    }
    return text;
}

/* The default sweep in small: batch at every thread count, slot at the largest batch, chunk and
 * mode. */
static inline void usual_arms(struct sweep *s)
{
    sweep_init(s, "batch slot threads chunk mode", 2);
    static const char *const arms[] = {
        "1 first 1 0 prefill", "2 first 1 0 prefill",  "3 first 1 0 prefill",
        "4 first 1 0 prefill", "8 first 1 0 prefill",  "16 first 1 0 prefill",
        "16 last 1 0 prefill", "1 first 2 0 prefill",  "2 first 2 0 prefill",
        "4 first 2 0 prefill", "16 first 2 0 prefill", "1 first 1 4 prefill",
        "1 first 1 0 decode"};
    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++)
        sweep_arm(s, arms[i]);
}

static inline uint32_t is_matmul(const struct cell *c)
{
    return strcmp(c->site->op, "matmul") == 0;
}

/* What OpenBLAS does on one thread: other code from M = 4, 8 and 12 on. */
static inline uint32_t openblas_one_thread(const struct cell *c)
{
    return !is_matmul(c) ? 0 : c->m < 4 ? 0 : c->m < 8 ? 1 : c->m < 12 ? 2 : 3;
}

/* A naive verdict compares every arm with the base arm and would blame slot, and threads at batch
 * 4, for what batch does. */
static inline uint32_t batch_only(const struct cell *c)
{
    return is_matmul(c) && cell_number(c, "batch", 1) >= 4;
}

/* One unstable arm (two threads) beside true batch drift at one thread: both are named, each at its
 * place. */
static inline uint32_t racy_threads_and_batch(const struct cell *c)
{
    if (cell_number(c, "threads", 1) > 1 && cell_is(c, 0, "attn_out"))
        return 1 + (uint32_t)(sweep_mix(c->arm + 7, c->repeat * 64 + (uint64_t)c->position) % 5);
    return openblas_one_thread(c);
}

#endif
