/* random_values.h: values that are the same on every machine, from `state` on. */
#ifndef RANDOM_VALUES_H
#define RANDOM_VALUES_H

#include <math.h>
#include <stdint.h>

static uint64_t state = 1;

static inline double uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53;
}

static inline float normal(void)
{
    double u = uniform(), v = uniform();
    return (float)(sqrt(-2 * log(u + 1e-300)) * cos(6.283185307179586 * v));
}

#endif
