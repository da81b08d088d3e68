/* other.c: silu_mul, add, sample and what is left, with one known fault each. */
#include "specimen.h"

/* O-36: the last of the largest logits wins a tie. */
static int last_tie_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_sample_args *a = args;
    (void)exec, (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->logits + r * a->ldx;
        int64_t best = 0;
        for (int64_t i = 1; i < a->vocab; i++)
            best = x[i] >= x[best] ? i : best;
        a->ids[r] = (int32_t)best;
    }
    return 0;
}

const struct ds_kernel specimen_other[] = {SPECIMEN(DS_OP_SAMPLE, "last-tie",
                                                    "the last of the largest", last_tie_launch,
                                                    .claims = DS_CLAIM_ALL),
                                           {.name = NULL}};
