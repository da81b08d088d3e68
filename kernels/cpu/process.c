/* process.c: logits as they are chosen from. reference and pinned: at temperature 0 bits are copied, no
 * penalty and no mask; nothing is added, nothing rounded, and the tokens so far are not looked at. Above
 * it what sampler.c says, with its orders and rounding points. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/sampler.h"

#include <string.h>

static void copy_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                      int64_t end)
{
    const struct ds_process_args *a = args;
    (void)exec, (void)thread;
    for (int64_t r = begin; r < end; r++)
        memcpy(a->y + r * a->ldy, a->logits + r * a->ldx, (size_t)a->vocab * sizeof *a->y);
}

static void sampled_rows(const void *args, const struct ds_exec *exec, int thread, int64_t begin,
                         int64_t end)
{
    const struct ds_process_args *a = args;
    float *work = ds_cpu_scratch_of(exec, ds_sampler_floats(a->vocab), thread);
    for (int64_t r = begin; r < end; r++)
        ds_sampler_process(a->sampler, a->logits + r * a->ldx, a->vocab, a->tokens[r],
                           a->n_tokens[r], a->y + r * a->ldy, work);
}

static size_t process_scratch(const void *args, int threads)
{
    const struct ds_process_args *a = args;
    return ds_sampler_draws(a->sampler) ? ds_cpu_scratch(ds_sampler_floats(a->vocab), threads) : 0;
}

static int process_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_process_args *a = args;
    if (ds_sampler_draws(a->sampler)) {
        if (ds_cpu_check_scratch(exec, process_scratch(args, exec->threads), why, why_size) != 0)
            return -1;
        ds_cpu_split(exec, a, a->rows, 1, 4.0 * (double)a->rows * (double)a->vocab, sampled_rows);
        return 0;
    }
    ds_cpu_split(exec, a, a->rows, 1, 0.125 * (double)a->rows * (double)a->vocab, copy_rows);
    return 0;
}

const struct ds_kernel ds_process_reference = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_PROCESS,
    .name = "reference",
    .claims = DS_CLAIM_ALL,
    .features = DS_FEATURE_SAMPLER,
    .scratch_bytes = process_scratch,
    .launch = process_launch,
    .summary =
        "logits as they are; when tokens are drawn: penalty, temperature, top-k, top-p, min-p"};
const struct ds_kernel ds_process_pinned = {
    .abi = DS_KERNEL_ABI,
    .op = DS_OP_PROCESS,
    .name = "pinned",
    .claims = DS_CLAIM_ALL,
    .features = DS_FEATURE_SAMPLER,
    .scratch_bytes = process_scratch,
    .launch = process_launch,
    .summary =
        "logits as they are; when tokens are drawn: penalty, temperature, top-k, top-p, min-p"};
