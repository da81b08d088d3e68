/* random.h: random numbers that are the same on every machine: splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom
 * number generators", OOPSLA 2014). For samples and plans; what tokens are drawn by is kernels/cpu/sampler.h. */
#ifndef DS_RANDOM_H
#define DS_RANDOM_H

#include <stdint.h>

static inline uint64_t ds_random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#endif
