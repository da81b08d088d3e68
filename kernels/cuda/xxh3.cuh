/* xxh3.cuh: XXH3-64 with seed 0 and the default secret, written from the specification of the xxHash
 * project (doc/xxhash_spec.md, version 0.2.0, section "XXH3 algorithm description"), for threads of a
 * device. The parts of long inputs (more than 240 bytes) that must go in order, and those that need
 * not, are in digest.cu.
 *
 * All sums are of 64-bit integers: their order changes no bit. */
#ifndef DS_XXH3_CUH
#define DS_XXH3_CUH

#include "kernels/cuda/device.cuh"

#define DS_XXH_32_1  0x9e3779b1u
#define DS_XXH_32_2  0x85ebca77u
#define DS_XXH_32_3  0xc2b2ae3du
#define DS_XXH_64_1  0x9e3779b185ebca87ull
#define DS_XXH_64_2  0xc2b2ae3d27d4eb4full
#define DS_XXH_64_3  0x165667b19e3779f9ull
#define DS_XXH_64_4  0x85ebca77c2b2ae63ull
#define DS_XXH_64_5  0x27d4eb2f165667c5ull
#define DS_XXH_MIX_1 0x165667919e3779f9ull
#define DS_XXH_MIX_2 0x9fb21c651e98df25ull

/* The default secret, 192 bytes, as little-endian words. Not __constant__: the lanes of a warp read different words of it, which
 * constant memory gives one after the other, and the cache at once. */
__device__ static const uint64_t ds_xxh_secret[24] = {
    0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull,
    0x78e5c0cc4ee679cbull, 0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull,
    0xcb00c391bb52283cull, 0xa32e531b8b65d088ull, 0x4ef90da297486471ull, 0xd8acdea946ef1938ull,
    0x3f349ce33f76faa8ull, 0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull, 0x647378d9c97e9fc8ull,
    0xc3ebd33483acc5eaull, 0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull,
    0xfca1477d58be162bull, 0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull};

/* Eight bytes of the secret from byte `at` on. */
__device__ static __forceinline__ uint64_t ds_xxh_key(int at)
{
    const int word = at / 8, shift = at % 8 * 8;
    return shift ? ds_xxh_secret[word] >> shift | ds_xxh_secret[word + 1] << (64 - shift)
                 : ds_xxh_secret[word];
}

/* Eight bytes at any address, little-endian, in loads as wide as the address allows. */
__device__ static __forceinline__ uint64_t ds_xxh_read(const unsigned char *p)
{
    const int odd = (int)(reinterpret_cast<uintptr_t>(p) & 7);
    uint64_t v = 0;
    if (odd == 0)
        return *reinterpret_cast<const uint64_t *>(p);
    if (odd == 4)
        return (uint64_t) * reinterpret_cast<const uint32_t *>(p) |
               (uint64_t) * reinterpret_cast<const uint32_t *>(p + 4) << 32;
    if (odd % 2 == 0) {
        for (int i = 0; i < 4; i++)
            v |= (uint64_t) * reinterpret_cast<const uint16_t *>(p + 2 * i) << (16 * i);
        return v;
    }
    for (int i = 0; i < 8; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

__device__ static __forceinline__ uint64_t ds_xxh_read32(const unsigned char *p)
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
}

__device__ static __forceinline__ uint64_t ds_xxh_swap(uint64_t v)
{
    uint64_t out = 0;
    for (int i = 0; i < 8; i++)
        out |= (v >> (8 * i) & 0xff) << (56 - 8 * i);
    return out;
}

/* Both halves of the 128-bit product, added without carry. */
__device__ static __forceinline__ uint64_t ds_xxh_fold(uint64_t a, uint64_t b)
{
    return (a * b) ^ __umul64hi(a, b);
}

__device__ static __forceinline__ uint64_t ds_xxh_avalanche(uint64_t h)
{
    h = (h ^ h >> 37) * DS_XXH_MIX_1;
    return h ^ h >> 32;
}

/* The final mix of XXH64, used for up to 3 bytes. */
__device__ static __forceinline__ uint64_t ds_xxh_avalanche64(uint64_t h)
{
    h = (h ^ h >> 33) * DS_XXH_64_2;
    h = (h ^ h >> 29) * DS_XXH_64_3;
    return h ^ h >> 32;
}

__device__ static inline uint64_t ds_xxh_up_to_16(const unsigned char *p, int n)
{
    if (n > 8) {
        const uint64_t low = ds_xxh_read(p) ^ (ds_xxh_key(24) ^ ds_xxh_key(32));
        const uint64_t high = ds_xxh_read(p + n - 8) ^ (ds_xxh_key(40) ^ ds_xxh_key(48));
        return ds_xxh_avalanche((uint64_t)n + ds_xxh_swap(low) + high + ds_xxh_fold(low, high));
    }
    if (n >= 4) {
        const uint64_t both = ds_xxh_read32(p + n - 4) + (ds_xxh_read32(p) << 32);
        uint64_t h = both ^ (ds_xxh_key(8) ^ ds_xxh_key(16));
        h ^= (h << 49 | h >> 15) ^ (h << 24 | h >> 40);
        h *= DS_XXH_MIX_2;
        h = (h ^ ((h >> 35) + (uint64_t)n)) * DS_XXH_MIX_2;
        return h ^ h >> 28;
    }
    if (n > 0) {
        const uint64_t v =
            (uint64_t)p[0] << 16 | (uint64_t)p[n / 2] << 24 | (uint64_t)p[n - 1] | (uint64_t)n << 8;
        const uint64_t key = (ds_xxh_key(0) & 0xffffffffu) ^ ds_xxh_key(0) >> 32;
        return ds_xxh_avalanche64(v ^ key);
    }
    return ds_xxh_avalanche64(ds_xxh_key(56) ^ ds_xxh_key(64));
}

__device__ static __forceinline__ uint64_t ds_xxh_mix16(const unsigned char *p, int key)
{
    return ds_xxh_fold(ds_xxh_read(p) ^ ds_xxh_key(key), ds_xxh_read(p + 8) ^ ds_xxh_key(key + 8));
}

/* 0 to 240 bytes, by one thread. */
__device__ static inline uint64_t ds_xxh_short(const unsigned char *p, int n)
{
    uint64_t h = (uint64_t)n * DS_XXH_64_1;
    if (n <= 16)
        return ds_xxh_up_to_16(p, n);
    if (n <= 128) { /* pairs from both ends, as many as there are */
        for (int i = (n - 1) / 32; i >= 0; i--)
            h += ds_xxh_mix16(p + 16 * i, 32 * i) + ds_xxh_mix16(p + n - 16 * (i + 1), 32 * i + 16);
        return ds_xxh_avalanche(h);
    }
    for (int i = 0; i < 8; i++)
        h += ds_xxh_mix16(p + 16 * i, 16 * i);
    h = ds_xxh_avalanche(h);
    for (int i = 8; i < n / 16; i++)
        h += ds_xxh_mix16(p + 16 * i, 16 * (i - 8) + 3);
    h += ds_xxh_mix16(p + n - 16, 136 - 17);
    return ds_xxh_avalanche(h);
}

#endif
