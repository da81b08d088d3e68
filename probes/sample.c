/* sample.c: dumps chosen rows of a trial that has nothing to be compared with, so that its record can be
 * compared by value with one that is made elsewhere. Chooses nothing: the rows are the caller's. */
#include "probes/probe_internal.h"

/* How many of the chosen positions are dumped at a site. */
static uint32_t share_of(const struct ds_sample *s, const struct ds_site *site)
{
    return site->layer <= 0 || site->layer >= s->n_layers ? s->outer : s->inner;
}

int probe_sample(struct ds_probe *p, const struct probe_rows *r, struct ds_error *err)
{
    const struct ds_sample *s = &p->c.sample;
    const uint32_t n = share_of(s, &p->c.sites[r->site]);
    if (p->c.sites[r->site].width == 0)
        return 0; /* rows of any length: add_blob takes the site's width */
    for (uint32_t i = 0; n && i < r->n; i++) {
        const struct ds_row *row = &p->t.rows[p->call_first + probe_row_number(r, i)];
        int chosen = 0;
        for (uint32_t k = 0; k < n; k++)
            chosen |= row->position == s->position[k];
        if (chosen && row->request == 0 && row->occurrence == 0 &&
            probe_add_blob(p, r->site, r->digests[i], probe_row_bytes(p, r, i), err) != 0)
            return -1;
    }
    return 0;
}
