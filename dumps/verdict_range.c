/* verdict_range.c: how near the values of each site come to the end of 16-bit formats, before
 * anything overflows. */
#include "dumps/verdict_internal.h"

#include "base/dtype.h"

#include <math.h>

double ds_headroom(double max_abs, int dtype)
{
    double most = dtype == DS_F16 ? 65504.0 : dtype == DS_BF16 ? 0x1.fep127 : 0x1.fffffep127;
    return max_abs > 0 ? log2(most / max_abs) : (double)INFINITY;
}

/* From the first trial of the reference arm that looked at its rows. */
int find_ranges(const struct ds_analysis *a, struct ds_verdict *v, struct ds_error *err)
{
    const struct arm_table *t = &a->arms[v->ref_arm];
    const struct ds_trial_data *d = NULL;
    for (uint32_t k = 0; k < t->n_trials && !(d && d->n_ranges); k++)
        d = a->src->get(a->src->ctx, t->trials[k], NULL);
    if (!d || d->n_ranges == 0)
        return 0;
    if (!(v->ranges = ds_calloc(d->n_ranges, sizeof *v->ranges, "ranges", err)))
        return -1;
    for (uint32_t s = 0; s < a->n_sites && v->n_ranges < d->n_ranges; s++)
        for (size_t i = 0; i < d->n_ranges; i++) {
            const struct ds_range *x = &d->ranges[i];
            if (x->site != s || x->row >= d->n_rows)
                continue;
            const struct ds_row *row = &d->rows[x->row];
            v->ranges[v->n_ranges++] = (struct ds_range_at){.site = s,
                                                            .request = row->request,
                                                            .position = row->position,
                                                            .step = row->step,
                                                            .max_abs = x->max_abs};
            break;
        }
    return 0;
}
