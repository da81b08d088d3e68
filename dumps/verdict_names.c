/* verdict_names.c: the words of the verdict (DESIGN section 7), and freeing it. */
#include "dumps/census.h"
#include "dumps/validity.h"
#include "dumps/verdict_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ds_site_words(const struct ds_site *s, char *out, size_t size)
{
    char layer[32] = "";
    if (s->layer >= 0) /* before the layers there is none */
        snprintf(layer, sizeof layer, "layer %d ", s->layer);
    snprintf(out, size, "%s%s%s%s", layer, s->stage, s->part[0] ? "/" : "", s->part);
}

const char *ds_row_kind_name(uint32_t kind)
{
    static const char *const names[] = {"prompt", "generated", "pad"};
    return kind <= DS_ROW_PAD ? names[kind] : "unknown";
}

const char *ds_phase_name(uint32_t phase)
{
    return phase == DS_PHASE_DECODE ? "decode" : "prefill";
}

const char *ds_label_name(int label)
{
    static const char *const names[] = {"absent", "same",      "healed",  "within",
                                        "origin", "inherited", "unknown", "unstable"};
    return label >= 0 && label < (int)(sizeof names / sizeof *names) ? names[label] : "unknown";
}

const char *ds_kind_name(int kind)
{
    static const char *const names[] = {
        "unknown",    "rounding-order", "lower-precision", "different-algorithm",
        "wrong-data", "non-finite",     "selection-only",  "same-values"};
    return kind >= 0 && kind < (int)(sizeof names / sizeof *names) ? names[kind] : "unknown";
}

const char *ds_result_name(int result)
{
    static const char *const names[] = {"same", "drift", "recorded", "incomparable"};
    return result >= 0 && result < (int)(sizeof names / sizeof *names) ? names[result]
                                                                       : "incomparable";
}

const char *ds_precision_name(int verdict)
{
    return verdict == DS_PRECISION_SHRINKS ? "shrinks"
           : verdict == DS_PRECISION_ALIKE ? "alike"
                                           : "unknown";
}

const char *ds_condition_name(int condition)
{
    static const char *const names[] = {"not-run",  "same",    "drift",
                                        "unstable", "unknown", "within"};
    return condition >= 0 && condition < (int)(sizeof names / sizeof *names) ? names[condition]
                                                                             : "unknown";
}

int ds_verdict_exit(const struct ds_verdict *v)
{
    if (v->result == DS_RESULT_SAME && v->census && v->census->arms_short)
        return 2;
    return v->result == DS_RESULT_DRIFT ? 1 : v->result == DS_RESULT_INCOMPARABLE ? 2 : 0;
}

static char *keep(char ***list, size_t *n, const char *text, struct ds_error *err)
{
    size_t len = strlen(text) + 1;
    char *copy = ds_calloc(len, 1, "verdict text", err);
    if (!copy)
        return NULL;
    if (ds_grow_by_one(list, *n, sizeof **list, "verdict text", err) != 0) {
        free(copy);
        return NULL;
    }
    memcpy(copy, text, len);
    (*list)[(*n)++] = copy;
    return copy;
}

char *verdict_own(struct ds_verdict *v, const char *text, struct ds_error *err)
{
    return keep(&v->owned, &v->n_owned, text, err);
}

int verdict_note(struct ds_verdict *v, struct ds_error *err, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return keep(&v->notes, &v->n_notes, text, err) ? 0 : -1;
}

static void free_kernel(const struct ds_verdict *v, struct ds_kernel_verdict *kv)
{
    for (size_t f = 0; kv->class_of && f < v->n_factors; f++)
        free(kv->class_of[f]);
    for (uint32_t i = 0; i < kv->n_switches; i++)
        free(kv->switches[i].rows);
    free(kv->class_of);
    free(kv->first);
    free(kv->count);
    free(kv->condition);
    free(kv->switches);
}

void verdict_drop_kernel(struct ds_verdict *v, size_t k)
{
    free_kernel(v, &v->kernels[k]);
    v->n_kernels--;
    memmove(&v->kernels[k], &v->kernels[k + 1], (v->n_kernels - k) * sizeof *v->kernels);
}

void ds_verdict_free(struct ds_verdict *v)
{
    ds_census_free(v->census);
    ds_validity_free(v->validity);
    for (size_t f = 0; v->factors && f < v->n_factors; f++) {
        for (int p = 0; p < DS_VERDICT_PHASES; p++)
            free(v->factors[f].phase[p].class_of);
        free(v->factors[f].values);
    }
    for (size_t k = 0; v->kernels && k < v->n_kernels; k++)
        free_kernel(v, &v->kernels[k]);
    for (size_t i = 0; i < v->n_notes; i++)
        free(v->notes[i]);
    for (size_t i = 0; i < v->n_owned; i++)
        free(v->owned[i]);
    free(v->factors);
    free(v->kernels);
    free(v->growth);
    free(v->added);
    free(v->origins);
    free(v->bands);
    free(v->precisions);
    free(v->failed);
    free(v->ranges);
    free(v->notes);
    free(v->owned);
    memset(v, 0, sizeof *v);
}

const char *ds_check_name(int check)
{
    static const char *const names[] = {"not-run",  "agrees", "differs", "agrees-with-a-repeat",
                                        "unstable", "parted"};
    return check >= 0 && check <= DS_CHECK_PARTED ? names[check] : "unknown";
}

int ds_threads_used(const struct ds_trial *t)
{
    if (t->threads_asked < 1 || t->threads_seen < 0)
        return DS_THREADS_UNKNOWN;
    return t->threads_seen < t->threads_asked                          ? DS_THREADS_FEWER
           : t->threads_seen - t->threads_asked > t->threads_asked - 1 ? DS_THREADS_MORE
                                                                       : DS_THREADS_AS_ASKED;
}
