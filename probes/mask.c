/* mask.c: which elements of a site's rows differ from a reference, over all rows of the trial that say
 * something of their kernel. Owns the trial's masks; works only where a row drifts. dumps/rounding.c
 * compares and judges. */
#include "probes/probe_internal.h"

#include "base/mem.h"
#include "dumps/mask.h"

#include <stdlib.h>
#include <string.h>

/* Wider rows have no profile (dumps/profile.c); a trial has at most so much of masks. */
enum { MOST_WIDTH = 65536 * 2, MOST_WORDS = 1 << 23 };

static uint32_t *numbers_of(struct ds_probe *p, struct probe_ref *ref, struct ds_error *err)
{
    if (!ref->mask)
        ref->mask = ds_calloc((size_t)p->c.n_sites * 2, sizeof *ref->mask, "masks", err);
    return ref->mask;
}

/* The mask of a site in this phase, made at its first row; *out NULL: there is no room for one. */
static int find_mask(struct ds_probe *p, struct probe_ref *ref, uint32_t site, struct ds_mask **out,
                     struct ds_error *err)
{
    struct ds_trial_data *t = &p->t;
    uint32_t *number = numbers_of(p, ref, err), width = p->site[site].width;
    size_t words = 2 * ds_mask_words(width);
    *out = NULL;
    if (!number)
        return -1;
    number += (size_t)p->phase * p->c.n_sites + site;
    if (!*number) {
        if (width > MOST_WIDTH || t->n_mask_words + words > MOST_WORDS)
            return 0;
        if (ds_grow(&t->masks, &p->cap.masks, t->n_masks + 1, sizeof *t->masks, "masks", err) ||
            ds_grow(&t->mask_words, &p->cap.mask_words, t->n_mask_words + words,
                    sizeof *t->mask_words, "masks", err))
            return -1;
        memset(t->mask_words + t->n_mask_words, 0, words * sizeof *t->mask_words);
        t->masks[t->n_masks++] = (struct ds_mask){.site = site,
                                                  .ref_arm = ref->arm,
                                                  .phase = p->phase,
                                                  .width = width,
                                                  .planes = 2,
                                                  .first = t->n_mask_words};
        t->n_mask_words += words;
        *number = (uint32_t)t->n_masks;
    }
    *out = &t->masks[*number - 1];
    return 0;
}

/* How many terms the kernel adds for one element of a row, as far as widths tell. */
static double terms_at(const struct ds_probe *p, uint32_t site, int32_t position)
{
    const char *op = p->c.sites[site].op;
    double n = p->links[site].terms;
    if (strcmp(op, "attention") == 0 || strcmp(op, "softmax") == 0)
        n += position > 0 ? (double)position + 1 : 1;
    return n;
}

int probe_mask_row(struct ds_probe *p, struct probe_ref *ref, const struct probe_rows *r,
                   uint32_t i, const void *held, const struct ds_drift *d, struct ds_error *err)
{
    struct ds_mask *m;
    if (find_mask(p, ref, r->site, &m, err))
        return -1;
    if (!m)
        return 0;
    const int op = ds_structure_op(p->c.sites[r->site].op);
    const int32_t position = p->t.rows[d->row].position;
    const struct ds_structure_site s = {
        .op = op,
        .dtype = p->site[r->site].dtype,
        .width = r->width,
        .order = ds_structure_order(op, terms_at(p, r->site, position), position)};
    uint64_t *words = p->t.mask_words + m->first;
    ds_mask_row(&s, probe_row_bytes(p, r, i), held, d, words, words + ds_mask_words(m->width));
    m->rows++;
    return 0;
}

void probe_masks_finish(struct ds_probe *p)
{
    struct ds_trial_data *t = &p->t;
    size_t end = 0;
    for (size_t i = 0; i < t->n_masks; i++) {
        struct ds_mask *m = &t->masks[i];
        size_t n = ds_mask_words(m->width), k = 0;
        const uint64_t *words = t->mask_words + m->first;
        while (k < n && words[n + k] == 0)
            k++;
        m->planes = k < n ? 2 : 1;
        memmove(t->mask_words + end, words, m->planes * n * sizeof *words);
        m->first = end;
        end += m->planes * n;
    }
    t->n_mask_words = end;
}
