/* verdict_notes.c: what else is to be said of a finding: that the head is the embedding table, that a cache
 * hit is innocent, that heal trials are missing. Pure; each adds a note to the verdict or nothing. */
#include "dumps/verdict_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_tied(const struct ds_header *h)
{
    for (size_t i = 0; i < h->n_hparams; i++)
        if (strcmp(h->hparams[i].name, "tied") == 0)
            return strtol(h->hparams[i].value, NULL, 10) == 1;
    return 0;
}

/* A head in fewer bits that shares its numbers with the embedding. */
static int note_tied(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    for (size_t i = 0; is_tied(a->h) && i < v->n_origins; i++)
        if (strcmp(v->origins[i].stage, "logits") == 0 &&
            v->origins[i].at.kind == DS_KIND_LOWER_PRECISION)
            return verdict_note(v, err,
                                "the output head is the embedding table (tied): to keep the one in "
                                "another format is to keep the other in it");
    return 0;
}

/* Rows that an earlier pass left in the cache: shown in a call that computes nothing. */
static int note_prefix(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    uint64_t same = 0, differ = 0;
    size_t f = 0;
    while (f < a->h->n_factors && strcmp(a->h->factors[f], "prefix") != 0)
        f++;
    if (f == a->h->n_factors || !v->factors[f + 1].phase[DS_VERDICT_ALL].drifted)
        return 0;
    for (uint32_t arm = 0; arm < a->h->n_arms; arm++) {
        const int64_t ref = ds_arm_reference(a->h, arm, (uint32_t)f);
        const struct arm_table *t = &a->arms[arm];
        if (ref < 0 || !t->n_trials || !a->arms[ref].n_trials)
            continue;
        for (size_t cell = 0; cell < a->cells; cell++) {
            if (strcmp(a->h->sites[cell / a->n_rows].op, "cache") != 0 ||
                t->state[cell] == CELL_ABSENT || a->arms[ref].state[cell] == CELL_ABSENT ||
                arm_call(t, cell % a->n_rows)->m != 0)
                continue;
            if (t->digest[cell] == a->arms[ref].digest[cell])
                same++;
            else
                differ++;
        }
    }
    if (same + differ == 0)
        return 0;
    if (differ)
        return verdict_note(v, err,
                            "prefix: of what an earlier pass left in the cache %llu of %llu rows "
                            "are not those that the prompt itself gives",
                            (unsigned long long)differ, (unsigned long long)(same + differ));
    return verdict_note(v, err,
                        "prefix: what an earlier pass left in the cache is bit-identical (%llu "
                        "rows): the hit is innocent",
                        (unsigned long long)same);
}

static int heal_was_asked(const struct ds_header *h)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, "heal") == 0)
            return strcmp(h->options[i].value, "0") != 0;
    return 0;
}

/* Whether a row that is the same in all trials of each arm is not the same in both. */
static int arms_differ(const struct ds_analysis *a, uint32_t arm, uint32_t ref)
{
    const struct arm_table *t = &a->arms[arm], *r = &a->arms[ref];
    if (!t->n_trials || !r->n_trials)
        return 0;
    for (size_t cell = 0; cell < a->cells; cell++)
        if (t->state[cell] == CELL_STABLE && r->state[cell] == CELL_STABLE &&
            both_have(t, r, cell / a->n_rows) && t->digest[cell] != r->digest[cell])
            return 1;
    return 0;
}

/* Heal trials that were asked for, and are not there: the run was cut short, or they failed. */
static int note_unhealed(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    uint32_t n = 0, arm_of_first = 0, ref_of_first = 0;
    for (uint32_t arm = 0; heal_was_asked(a->h) && arm < a->h->n_arms; arm++)
        for (uint32_t f = 0; f < a->h->n_factors; f++) {
            const int64_t ref = ds_arm_reference(a->h, arm, f);
            if (ref < 0 || healed_table(a, arm, (uint32_t)ref) ||
                !arms_differ(a, arm, (uint32_t)ref))
                continue;
            if (n++ == 0) {
                arm_of_first = arm;
                ref_of_first = (uint32_t)ref;
            }
        }
    if (n == 0)
        return 0;
    char more[64] = "";
    if (n > 1)
        snprintf(more, sizeof more, " (and %u more pair%s of arms)", n - 1, n == 2 ? "" : "s");
    return verdict_note(
        v, err,
        "arm %u was not healed to arm %u, from which it drifts%s: kernels behind the "
        "first difference are judged only where their inputs agree by themselves",
        arm_of_first, ref_of_first, more);
}

int note_findings(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    return note_tied(a, v, err) != 0 || note_prefix(a, v, err) != 0 || note_unhealed(a, v, err) != 0
               ? -1
               : 0;
}
