/* verdict_mask.c: heads and channels of a finding from the masks that the probe gathered, which know
 * every drifting row and not only those that are dumped. A mask is believed where it is of just the rows
 * that the finding is about: the probe calls a row an origin before it can know what repeats do. */
#include "dumps/evidence.h"

#include <stdlib.h>

/* The rows of a trial that are meant; phases: bits of the phases of their calls. */
static uint64_t count_rows(const struct ds_analysis *a, const struct ds_trial_data *d,
                           const struct ds_finding *f, const struct chosen *c, unsigned *phases)
{
    uint64_t n = 0;
    *phases = 0;
    for (size_t i = 0; i < d->n_drifts; i++)
        if (chosen_row(a, d, &d->drifts[i], f->arm, f->ref_arm, f->site, c) != NONE) {
            *phases |= 1u << d->calls[d->rows[d->drifts[i].row].call].phase;
            n++;
        }
    return n;
}

static int is_wanted(const struct ds_mask *m, const struct ds_finding *f, unsigned phases)
{
    return m->site == f->site && m->ref_arm == f->ref_arm && phases >> m->phase & 1u;
}

static void add_bits(const uint64_t *words, uint32_t width, uint32_t *counts)
{
    for (uint32_t i = 0; i < width; i++)
        counts[i] += words[i / 64] >> i % 64 & 1u;
}

/* Adds up a trial's masks of the finding into differ and beyond, [width] each: of how many rows; 0 there
 * are none, or of other rows. */
static uint64_t add_masks(const struct ds_analysis *a, const struct ds_trial_data *d,
                          const struct ds_finding *f, const struct chosen *c, uint32_t *differ,
                          uint32_t *beyond)
{
    const uint32_t width = a->h->sites[f->site].width;
    unsigned phases;
    const uint64_t want = count_rows(a, d, f, c, &phases);
    uint64_t rows = 0;
    for (size_t i = 0; i < d->n_masks; i++)
        if (is_wanted(&d->masks[i], f, phases)) {
            rows += d->masks[i].rows;
            if (d->masks[i].width != width)
                return 0;
        }
    if (rows != want)
        return 0;
    for (size_t i = 0; i < d->n_masks; i++) {
        const struct ds_mask *m = &d->masks[i];
        if (!is_wanted(m, f, phases))
            continue;
        add_bits(d->mask_words + m->first, width, differ);
        if (m->planes > 1)
            add_bits(d->mask_words + m->first + ds_mask_words(width), width, beyond);
    }
    return rows;
}

int profile_masks(const struct evidence *e, const struct ds_trial_data *d, const struct chosen *c,
                  struct ds_finding *f, struct ds_error *err)
{
    const struct ds_analysis *a = e->a;
    const uint32_t width = a->h->sites[f->site].width, heads = ds_site_heads(a->h, f->site);
    if (!d || d->n_masks == 0 || width == 0)
        return 0;
    uint32_t *counts = ds_calloc(2 * (size_t)width, sizeof *counts, "profile", err);
    if (!counts)
        return -1;
    uint32_t any = 0;
    uint64_t rows = add_masks(a, d, f, c, counts, counts + width);
    for (uint32_t k = 0; k < width; k++)
        any |= counts[width + k];
    if (rows) {
        f->mask_rows = (uint32_t)rows;
        f->beyond_rounding = any != 0;
        profile_ends(counts, width, f);
        ds_profile_elements(any ? counts + width : counts, width,
                            heads ? (uint32_t)a->h->head_dim : 0, f->heads, f->channels);
    }
    free(counts);
    return 0;
}
