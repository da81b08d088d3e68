/* verdict_notes.c: what else is to be said of a finding: that the head is the embedding table, that a cache
 * hit is innocent. Pure; each adds a note to the verdict or nothing. */
#include "dumps/verdict_internal.h"

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

int note_findings(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    return note_tied(a, v, err) != 0 || note_prefix(a, v, err) != 0 ? -1 : 0;
}
