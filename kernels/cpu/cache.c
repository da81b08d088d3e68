/* cache.c: writes a call's keys or values into the paged cache. reference: bits are copied. pinned:
 * the same, each NaN as 7fc00000. Nothing is added, nothing rounded. Left-padding rows are written
 * like any other; attention never reads them. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pinned.h"

#include <string.h>

static void write_rows(const struct ds_cache_args *a, int pinned)
{
    for (int64_t i = 0; i < a->n_sequences; i++) {
        const struct ds_sequence *s = &a->sequences[i];
        for (int64_t j = 0; j < s->q_len; j++) {
            int64_t slot = (int64_t)s->kv_len - s->q_len + j;
            int64_t row = s->pages[slot / a->page_size] * a->page_size + slot % a->page_size;
            const float *x = a->x + (s->q_first + j) * a->ldx;
            if (pinned)
                ds_pinned_code()->copy(a->cache + row * a->width, x, a->width);
            else
                memcpy(a->cache + row * a->width, x, (size_t)a->width * sizeof *x);
        }
    }
}

static int reference_launch(const void *args, const struct ds_exec *exec, char *why,
                            size_t why_size)
{
    const struct ds_cache_args *a = args;
    (void)exec;
    if (ds_cpu_check_sequences(a->sequences, a->n_sequences, a->rows, a->page_size, a->pages, why,
                               why_size) != 0)
        return -1;
    write_rows(a, 0);
    return 0;
}

static int pinned_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_cache_args *a = args;
    (void)exec;
    if (ds_cpu_check_sequences(a->sequences, a->n_sequences, a->rows, a->page_size, a->pages, why,
                               why_size) != 0)
        return -1;
    write_rows(a, 1);
    return 0;
}

const struct ds_kernel ds_cache_reference = {.abi = DS_KERNEL_ABI,
                                             .op = DS_OP_CACHE,
                                             .name = "reference",
                                             .claims = DS_CLAIM_ALL,
                                             .launch = reference_launch,
                                             .summary =
                                                 "copies rows into their pages, bit for bit"};
const struct ds_kernel ds_cache_pinned = {.abi = DS_KERNEL_ABI,
                                          .op = DS_OP_CACHE,
                                          .name = "pinned",
                                          .claims = DS_CLAIM_ALL,
                                          .launch = pinned_launch,
                                          .summary =
                                              "copies rows into their pages, NaN as 7fc00000"};
