/* sampler.c: see sampler.h. */
#include "engine/sampler.h"

#include "kernels/plugin.h"

#include <math.h>

static int check_numbers(const struct ds_sampler *s, struct ds_error *err)
{
    if (!(s->temperature >= 0.0f) || isinf(s->temperature))
        return ds_fail(err, "a temperature of %g; it is a number from 0 on",
                       (double)s->temperature);
    if (s->temperature == 0.0f)
        return 0; /* nothing else acts */
    if (s->top_k < 0)
        return ds_fail(err, "top-k %d; it is a number of tokens, 0 = all", s->top_k);
    if (!(s->top_p > 0.0f && s->top_p <= 1.0f))
        return ds_fail(err, "top-p %g; it is above 0 and at most 1 (all)", (double)s->top_p);
    if (!(s->min_p >= 0.0f && s->min_p <= 1.0f))
        return ds_fail(err, "min-p %g; it is from 0 (all) to 1", (double)s->min_p);
    if (!(s->repetition_penalty > 0.0f) || isinf(s->repetition_penalty))
        return ds_fail(err, "a repetition penalty of %g; it is above 0, 1 = none",
                       (double)s->repetition_penalty);
    return 0;
}

static const int ops[] = {DS_OP_PROCESS, DS_OP_SAMPLE};

const struct ds_kernel *ds_sampler_stand_in(const struct ds_kernel *k)
{
    const struct ds_kernel *host = k->device == DS_DEVICE_CPU ? k
                                   : ds_plugin_of(k)
                                       ? NULL
                                       : ds_kernel_find_on(DS_DEVICE_CPU, k->op, k->name);
    return host && host->features & DS_FEATURE_SAMPLER ? host : NULL;
}

int ds_sampler_on_host(const struct ds_sampler *s, const struct ds_kernel_set *kernels)
{
    const struct ds_kernel *k;
    int lacks = 0, can = 1;
    for (int o = 0; s->temperature > 0.0f && o < 2; o++)
        for (int32_t i = 0; (k = ds_kernel_set_used(kernels, ops[o], i)); i++) {
            lacks |= !(k->features & DS_FEATURE_SAMPLER);
            can &= ds_sampler_stand_in(k) != NULL;
        }
    return lacks && can;
}

int ds_sampler_check(const struct ds_sampler *s, const struct ds_kernel_set *kernels,
                     struct ds_error *err)
{
    const struct ds_kernel *k;
    if (check_numbers(s, err) != 0)
        return -1;
    for (int o = 0; kernels && s->temperature > 0.0f && !ds_sampler_on_host(s, kernels) && o < 2;
         o++)
        for (int32_t i = 0; (k = ds_kernel_set_used(kernels, ops[o], i)); i++)
            if (!(k->features & DS_FEATURE_SAMPLER)) {
                ds_fail(err, "%s/%s of %s draws no tokens", ds_op_name(k->op), k->name,
                        ds_device_name(k->device));
                return ds_hint(err,
                               "at temperature 0 it is not asked to; else use a variant with "
                               "the feature sampler: driftscope kernels %s",
                               ds_op_name(k->op));
            }
    return 0;
}
