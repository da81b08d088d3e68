/* bench_digest.h: how fast a device digests rows in its memory, beside how fast it copies. */
#ifndef DS_LAB_BENCH_DIGEST_H
#define DS_LAB_BENCH_DIGEST_H

#include "kernels/device.h"
#include "kernels/lab/timing.h"

/* rows rows of row_bytes (a multiple of 4): time[0] is a copy within the device that reads half of them and writes as
 * much, time[1] their digests (XXH3-64 and the largest elements, as probes have them): both move rows * row_bytes
 * bytes, so that the ratio is that of bandwidths. By the device's events, its cache flushed or not. */
int ds_lab_bench_digest(struct ds_device *dev, int64_t rows, int64_t row_bytes, int flushed,
                        double seconds, struct ds_timing time[2], double *noise,
                        struct ds_error *err);

#endif
