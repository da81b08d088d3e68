/* specimen.h: what the specimens share. Each is a kernel with one known fault, switched on by what
 * the kernel is given (rows, lengths, threads, seed), never by luck. They know the public kernel
 * header and nothing else of the project. */
#ifndef SPECIMEN_H
#define SPECIMEN_H

#include "driftscope_kernel.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SPECIMEN(OP, NAME, SUMMARY, LAUNCH, ...)                                                   \
    {                                                                                              \
        .abi = DS_KERNEL_ABI, .op = OP, .name = NAME, .summary = SUMMARY, .launch = LAUNCH,        \
        __VA_ARGS__                                                                                \
    }

/* One list a file, ended by an entry without a name. */
extern const struct ds_kernel specimen_matmul[], specimen_norm[], specimen_rope[],
    specimen_attention[], specimen_serving[], specimen_other[], specimen_more[], specimen_extra[],
    specimen_inner[], specimen_later[], specimen_moved[], specimen_battery[],
    specimen_battery_other[], specimen_planted[], specimen_planted_attention[],
    specimen_planted_other[], specimen_evidence[], specimen_parted[];

/* The next of a sequence of well-mixed numbers (splitmix64). */
static inline uint64_t specimen_mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* v with its lowest `dropped` mantissa bits rounded away, to nearest even: 13 leave the 10 bits of
 * TF32, 16 the 7 bits of bf16. */
static inline float specimen_short(float v, uint32_t dropped)
{
    uint32_t u, half = 1u << (dropped - 1);
    if (!isfinite(v))
        return v;
    memcpy(&u, &v, sizeof u);
    u = (u + half - 1 + (u >> dropped & 1)) >> dropped << dropped;
    memcpy(&v, &u, sizeof v);
    return v;
}

/* v as f16 stores it (numbers below its smallest normal one are kept). */
static inline float specimen_half(float v)
{
    float y = specimen_short(v, 13);
    return fabsf(y) > 65504.0f ? copysignf(INFINITY, y) : y;
}

/* Products and sums rounded, in ascending k. */
static inline float specimen_chain(const float *x, const float *w, int64_t begin, int64_t end)
{
    float s = 0.0f;
    for (int64_t k = begin; k < end; k++)
        s += x[k] * w[k];
    return s;
}

/* Chains of k / parts terms, added in ascending order. */
static inline float specimen_split(const float *x, const float *w, int64_t k, int64_t parts)
{
    float s = specimen_chain(x, w, 0, k / parts);
    for (int64_t p = 1; p < parts; p++)
        s += specimen_chain(x, w, p * k / parts, (p + 1) * k / parts);
    return s;
}

/* The same chains, added in an order drawn from the seed: atomics. At least three parts, for two
 * addends commute. */
static inline float specimen_arrival(const float *x, const float *w, int64_t k, int64_t parts,
                                     uint64_t seed)
{
    float part[64], s = 0.0f;
    for (int64_t p = 0; p < parts; p++)
        part[p] = specimen_chain(x, w, p * k / parts, (p + 1) * k / parts);
    for (uint64_t left = (uint64_t)parts; left > 0; left--) {
        seed = specimen_mix(seed);
        uint64_t pick = seed % left;
        s += part[pick];
        part[pick] = part[left - 1];
    }
    return s;
}

#endif
