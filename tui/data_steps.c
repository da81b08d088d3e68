/* data_steps.c: the tokens that an arm chose beside those of another (dumps/steps.h). Runs in the worker's
 * thread. */
#include "tui/data_internal.h"

int make_steps(struct judged *j, const struct want *w, struct result *out, struct ds_error *err)
{
    struct ds_step_pair *steps;
    if (ds_steps_make(j->analysis, j->source.header, w->arm, w->ref, &steps, &out->u.steps.n,
                      err) != 0)
        return -1;
    out->u.steps.steps = steps;
    out->bytes = out->u.steps.n * sizeof *steps;
    return 0;
}
