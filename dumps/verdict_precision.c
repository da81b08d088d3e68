/* verdict_precision.c: the same comparison in several formats. Where a difference comes from rounding it
 * shrinks with the format's step, from bf16 to f32 by some thousands; where wrong data is read it is as
 * large in every format. What is held against each other is the relative rms at the last stage that both
 * formats show: logits, else the last residual. */
#include "dumps/verdict_internal.h"

#include "base/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of the coarser format's error the finer one's is at most this share, and at most the root of what their
 * steps are apart (8 from bf16 to f16, 8192 from f16 to f32), where it shrinks; at least so much where it
 * does not. */
#define SHRUNK 0.25
#define ALIKE  0.5

static int factor_of(const struct ds_analysis *a, const char *name, size_t *f)
{
    for (*f = 0; *f < a->h->n_factors; ++*f)
        if (strcmp(a->h->factors[*f], name) == 0)
            return 1;
    return 0;
}

static uint32_t last_site(const struct ds_analysis *a)
{
    uint32_t last = NONE;
    for (uint32_t s = 0; s < a->n_sites; s++)
        if (strcmp(a->h->sites[s].stage, "resid_ffn") == 0 ||
            strcmp(a->h->sites[s].stage, "logits") == 0)
            last = s;
    return last;
}

/* All arms with this format that have a reference in factor f. */
static struct ds_precision at_format(const struct ds_analysis *a, size_t f, size_t dtype,
                                     uint32_t value, uint32_t site)
{
    struct ds_precision p = {.dtype = a->values[dtype][value]};
    double diff_sq = 0, ref_sq = 0;
    for (uint32_t arm = 0; arm < a->h->n_arms; arm++) {
        const int64_t ref = ds_arm_reference(a->h, arm, (uint32_t)f);
        const struct arm_table *t = &a->arms[arm];
        if (ref < 0 || a->value[arm * a->h->n_factors + dtype] != value || !t->n_trials ||
            !a->arms[ref].n_trials)
            continue;
        p.arms++;
        for (size_t i = 0; i < t->rep->n_drifts; i++) {
            const struct ds_drift *x = &t->rep->drifts[i];
            if (x->site != site || x->ref_arm != (uint32_t)ref)
                continue;
            p.rows++;
            diff_sq += x->diff_sq;
            ref_sq += x->ref_sq;
        }
    }
    p.relative_rms = ref_sq > 0 ? sqrt(diff_sq / ref_sq) : 0;
    return p;
}

static double step_of(const char *dtype)
{
    return strcmp(dtype, "bf16") == 0 ? 0x1p-8 : strcmp(dtype, "f16") == 0 ? 0x1p-11 : 0x1p-24;
}

/* The finest against the coarsest. */
static int judge(const struct ds_precision *x, uint32_t n)
{
    const struct ds_precision *fine = &x[0], *coarse = &x[0];
    for (uint32_t i = 1; i < n; i++) {
        fine = step_of(x[i].dtype) < step_of(fine->dtype) ? &x[i] : fine;
        coarse = step_of(x[i].dtype) > step_of(coarse->dtype) ? &x[i] : coarse;
    }
    if (fine == coarse || !(fine->relative_rms > 0) || !(coarse->relative_rms > 0))
        return DS_PRECISION_UNKNOWN; /* storage may hide what is small */
    const double steps = sqrt(step_of(fine->dtype) / step_of(coarse->dtype));
    if (fine->relative_rms <= coarse->relative_rms * fmin(SHRUNK, steps))
        return DS_PRECISION_SHRINKS;
    return fine->relative_rms >= ALIKE * coarse->relative_rms ? DS_PRECISION_ALIKE
                                                              : DS_PRECISION_UNKNOWN;
}

int find_precisions(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    size_t dtype;
    const uint32_t site = last_site(a);
    if (site == NONE || a->options.only_factor || !factor_of(a, "dtype", &dtype) ||
        a->n_values[dtype] < 2)
        return 0;
    if (!(v->precisions = ds_calloc(a->h->n_factors, sizeof *v->precisions, "formats", err)))
        return -1;
    for (size_t f = 0; f < a->h->n_factors; f++) {
        if (f == dtype || !v->factors[f + 1].phase[DS_VERDICT_ALL].drifted)
            continue;
        struct ds_precisions *x = &v->precisions[v->n_precisions];
        x->factor = a->h->factors[f];
        x->site = site;
        for (uint32_t k = 0; k < a->n_values[dtype] && x->n < DS_MOST_FORMATS; k++) {
            x->of[x->n] = at_format(a, f, dtype, k, site);
            x->n += x->of[x->n].arms != 0;
        }
        if (x->n < 2)
            continue;
        x->verdict = judge(x->of, x->n);
        v->n_precisions++;
    }
    return 0;
}
