/* bench_digest.c: `bench digest`: the digest kernel of a device beside a copy that moves as many bytes. */
#include "cli/bench.h"
#include "cli/lab_kernels.h"

#include "kernels/device_open.h"
#include "kernels/lab/bench_digest.h"
#include "kernels/lab/far.h"

#include <stdio.h>

/* Elements of a row: hidden states of a small model and of a large one, and a row of logits. */
static const int64_t widths[] = {576, 4096, 32768};
static const int64_t row_counts[] = {16, 512, 4096};
static const double MOST_BYTES = 1 << 28;

static int add(struct ds_bench_result *r, int64_t width, int64_t rows, int i,
               const struct ds_timing *t, double noise, const struct ds_bench_condition *c,
               const struct ds_device_info *now, struct ds_error *err)
{
    struct ds_bench_row *row = ds_bench_add(r, err);
    if (!row)
        return -1;
    snprintf(row->op, sizeof row->op, "digest");
    snprintf(row->variant, sizeof row->variant, "%s", i ? "xxh3" : "copy");
    snprintf(row->shape, sizeof row->shape, "width=%lld", (long long)width);
    snprintf(row->where, sizeof row->where, "f32 rows in the device's memory");
    row->rows = (int)rows;
    row->threads = 1;
    row->time = *t;
    row->noise = noise;
    row->work = 4e-9 * (double)rows * (double)width;
    row->unit = "GB/s";
    row->is_vendor = i == 0;
    row->on_device = 1;
    row->flushed = c->flushed;
    row->clock_khz = now->clock_khz;
    row->memory_clock_khz = now->memory_clock_khz;
    return 0;
}

static int one(const struct ds_options *o, struct ds_device *dev, int64_t width, int64_t rows,
               const struct ds_bench_condition *c, struct ds_bench_result *r, struct ds_error *err)
{
    struct ds_device_info now;
    struct ds_timing time[2];
    double noise;
    if (ds_lab_bench_digest(dev, rows, 4 * width, c->flushed, ds_bench_seconds(o, 0.2), time,
                            &noise, err) != 0 ||
        ds_device_check(dev, dev->info(dev, &now), err) != 0)
        return ds_prefix(err, "digest");
    for (int i = 0; i < 2; i++)
        if (add(r, width, rows, i, &time[i], noise, c, &now, err) != 0)
            return -1;
    return 0;
}

int ds_bench_digests(const struct ds_options *o, struct ds_bench_result *r, struct ds_error *err)
{
    struct ds_bench_condition c[DS_BENCH_CONDITIONS];
    struct ds_device *dev;
    size_t n;
    if (ds_lab_device_of(ds_lab_device(o), &dev, err) != 0 ||
        ds_bench_conditions(o, c, &n, err) != 0)
        return -1;
    if (!dev) {
        ds_fail(err, "bench digest: the CPU digests rows while they are in its cache");
        return ds_hint(err,
                       "it is for --device cuda and --device sim; bench probes has the share of "
                       "a pass that digests take");
    }
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++)
        for (size_t i = 0; i < sizeof row_counts / sizeof row_counts[0]; i++)
            for (size_t k = 0; k < n; k++)
                if (!c[k].graph && 4.0 * (double)(widths[w] * row_counts[i]) <= MOST_BYTES &&
                    (dev->kind != DS_DEVICE_SIM || widths[w] * row_counts[i] <= 1 << 16) &&
                    one(o, dev, widths[w], row_counts[i], &c[k], r, err) != 0)
                    return -1;
    return 0;
}
