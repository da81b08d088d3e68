/* norm.c: rmsnorm with one known fault each: squares added in ascending order, then
 * x * (1 / sqrt(mean + eps)) * weight. */
#include "specimen.h"

static float scale_of(const struct ds_rmsnorm_args *a, const float *x, float eps)
{
    return 1.0f / sqrtf(specimen_chain(x, x, 0, a->width) / (float)a->width + eps);
}

/* O-23: the normalised value is rounded to bf16 before the weight is multiplied, as one family of
 * engines does; or not, as the other. */
static int cast_launch(const void *args, int cast)
{
    const struct ds_rmsnorm_args *a = args;
    for (int64_t r = 0; r < a->rows; r++) {
        const float *x = a->x + r * a->ldx;
        float scale = scale_of(a, x, a->eps);
        for (int64_t i = 0; i < a->width; i++) {
            float v = x[i] * scale;
            a->y[r * a->ldy + i] = (cast ? specimen_short(v, 16) : v) * a->weight[i];
        }
    }
    return 0;
}

static int early_cast_launch(const void *args, const struct ds_exec *exec, char *why,
                             size_t why_size)
{
    (void)exec, (void)why, (void)why_size;
    return cast_launch(args, 1);
}

static int late_cast_launch(const void *args, const struct ds_exec *exec, char *why,
                            size_t why_size)
{
    (void)exec, (void)why, (void)why_size;
    return cast_launch(args, 0);
}

/* O-24: epsilon is 1e-6 whatever the model says. */
static int fixed_eps_launch(const void *args, const struct ds_exec *exec, char *why,
                            size_t why_size)
{
    struct ds_rmsnorm_args a = *(const struct ds_rmsnorm_args *)args;
    (void)exec, (void)why, (void)why_size;
    a.eps = 1e-6f;
    return cast_launch(&a, 0);
}

const struct ds_kernel specimen_norm[] = {
    SPECIMEN(DS_OP_RMSNORM, "early-cast", "rounded to bf16 before the weight", early_cast_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_RMSNORM, "late-cast", "rounded after the weight only", late_cast_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_RMSNORM, "late-cast-too", "the same as late-cast", late_cast_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_RMSNORM, "fixed-eps", "epsilon 1e-6 whatever the model says", fixed_eps_launch,
             .claims = DS_CLAIM_ALL),
    {.name = NULL}};
