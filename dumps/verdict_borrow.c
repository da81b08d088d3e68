/* verdict_borrow.c: repeats that part in an arm whose rows nobody held: there are no sizes of one trial against another.
 * The same kernel's rows at the same site were held against those of the arm's reference, though: what those show is
 * told, with what they were held against. */
#include "dumps/evidence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Leaves the site's own drifts standing, or, where there are none, its unstable rows. 0: neither. */
static int keep_site(const struct ds_analysis *a, uint32_t site, uint8_t *labels)
{
    const size_t first = (size_t)site * a->n_rows, end = first + a->n_rows;
    size_t origins = 0, unstable = 0;
    for (size_t i = first; i < end; i++) {
        origins += (labels[i] & LABEL_MASK) == DS_LABEL_ORIGIN;
        unstable += (labels[i] & LABEL_MASK) == DS_LABEL_UNSTABLE;
    }
    for (size_t i = 0; i < a->cells; i++) {
        const uint8_t label = labels[i] & LABEL_MASK;
        if (i < first || i >= end || (label != DS_LABEL_ORIGIN && label != DS_LABEL_UNSTABLE) ||
            (origins && label == DS_LABEL_UNSTABLE))
            labels[i] = DS_LABEL_ABSENT;
        else
            labels[i] = DS_LABEL_ORIGIN | LABEL_JUDGED;
    }
    return origins || unstable;
}

/* What the pair shows at the finding's site. 1 if that has a kind. */
static int look(struct ds_analysis *a, const struct ds_finding *f, uint32_t ref, int phase,
                uint8_t *labels, struct ds_finding *out, struct ds_error *err)
{
    const uint64_t shapes = a->shape_mismatch, tokens = a->tokens_cut;
    label_pair(a, f->arm, ref, labels);
    a->shape_mismatch = shapes; /* counted when the pair was compared */
    a->tokens_cut = tokens;
    const int kept = keep_site(a, f->site, labels);
    if (!kept || !first_drift(a, f->arm, ref, labels, phase, out))
        return 0;
    if (size_labelled(a, labels, phase, out, err) != 0)
        return -1;
    return out->kind != DS_KIND_UNKNOWN;
}

int borrow_sizes(struct ds_analysis *a, int phase, uint8_t *labels, struct ds_finding *f,
                 struct ds_error *err)
{
    if (!f->found || f->arm != f->ref_arm || f->sized || f->kind != DS_KIND_UNKNOWN)
        return 0;
    for (uint32_t g = 0; g < a->h->n_factors; g++) {
        const int64_t ref = ds_arm_reference(a->h, f->arm, g);
        struct ds_finding other;
        if (ref < 0 || (uint32_t)ref == f->arm || !a->arms[ref].n_trials)
            continue;
        const int rc = look(a, f, (uint32_t)ref, phase, labels, &other, err);
        if (rc < 0)
            return -1;
        if (rc == 0)
            continue;
        f->kind = other.kind;
        f->basis = other.basis;
        snprintf(f->why, sizeof f->why, "against %.24s %.60s: %.190s", a->h->factors[g],
                 a->h->arms[ref].values[g], other.why);
        memcpy(f->structure, other.structure, sizeof f->structure);
        return 0;
    }
    return 0;
}
