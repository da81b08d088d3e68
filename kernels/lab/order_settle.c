/* order_settle.c: a tree that questions about three terms showed, held against whole sums, and what is tried
 * where it does not give them. Launches nothing itself. */
#include "kernels/lab/order_recover.h"

typedef int (*finish_fn)(void *self, struct ds_tree *t, struct ds_error *err);

/* 1: it gives the samples; 0: it does not; -1: an error, and *t is released. */
static int gives(const struct ds_sum_samples *s, finish_fn finish, struct ds_tree *t,
                 struct ds_error *err)
{
    const int rc = finish && finish(s->self, t, err) != 0 ? -1 : s->fits(s->self, t, err);
    if (rc < 0)
        ds_tree_free(t);
    return rc;
}

/* All questions, instead of the few that made *t. */
static int ask_all(const struct ds_triples *q, const struct ds_sum_samples *s, finish_fn finish,
                   struct ds_tree *t, struct ds_error *why, struct ds_error *err)
{
    ds_tree_free(t);
    const int none = ds_recover_triples_fully(q, t, why);
    if (none < 0)
        *err = *why;
    if (none != 0)
        return none < 0 ? -1 : DS_SETTLED_NONE;
    const int given = gives(s, finish, t, err);
    return given < 0 ? -1 : given ? DS_SETTLED_FITS : DS_SETTLED_UNFIT;
}

int ds_order_settle(const struct ds_triples *q, const struct ds_sum_samples *s, finish_fn finish,
                    int found, struct ds_tree *t, struct ds_error *why, struct ds_error *err)
{
    struct ds_tree other;
    int state = found ? gives(s, finish, t, err) : DS_SETTLED_NONE;
    if (state < 0 || (found && state == 1))
        return state < 0 ? -1 : DS_SETTLED_FITS;
    if (found)
        state = ds_triples_are_sampled(q->terms) ? ask_all(q, s, finish, t, why, err)
                                                 : DS_SETTLED_UNFIT;
    if (state < 0 || state == DS_SETTLED_FITS)
        return state;
    const int compensated = ds_recover_compensated(s, &other, err);
    if (compensated == 0)
        return state;
    if (state == DS_SETTLED_UNFIT)
        ds_tree_free(t);
    if (compensated < 0)
        return -1;
    *t = other;
    return DS_SETTLED_FITS;
}
