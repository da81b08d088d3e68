/* content.c: see content.h. Every value is made of one mixed 64-bit number. */
#include "kernels/lab/content.h"

#include "base/dtype.h"
#include "kernels/lab/subject.h"

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t ds_content_hash(uint64_t seed, uint64_t index)
{
    return mix(mix(seed + 0x9e3779b97f4a7c15u) + index * 0x9e3779b97f4a7c15u);
}

const char *ds_content_name(int content)
{
    static const char *const names[DS_CONTENT_COUNT] = {"plain", "other",   "zero",  "huge", "NaN",
                                                        "tiny",  "special", "mixed", "tied"};
    return content >= 0 && content < DS_CONTENT_COUNT ? names[content] : "unknown";
}

/* A multiple of 2^-23 in [-1, 1). */
static float plain(uint64_t u)
{
    return (float)((int32_t)(u >> 40) - (1 << 23)) * 0x1p-23f;
}

static float special(uint64_t u)
{
    static const uint32_t bits[] = {0x80000000u, 0u,          1u,          0x80000001u,
                                    0x007fffffu, 0x807fffffu, 0x00800000u, 0x7f800000u,
                                    0xff800000u, 0x7fc00000u, 0xffc12345u, 0x00400000u};
    if (u % 61 != 0)
        return plain(u);
    return ds_f32_from_bits(bits[(u >> 8) % (sizeof bits / sizeof bits[0])]);
}

static float value(uint64_t u, int content)
{
    const uint32_t sign = (uint32_t)(u >> 32) & 0x80000000u, low = (uint32_t)u;
    switch (content) {
    case DS_CONTENT_ZERO:
        return ds_f32_from_bits(sign);
    case DS_CONTENT_HUGE:
        return ds_f32_from_bits(sign | 0x7e800000u | (low & 0x007fffffu));
    case DS_CONTENT_NAN:
        return ds_f32_from_bits(sign | 0x7fc00000u | (low & 0x00000fffu));
    case DS_CONTENT_TINY: /* subnormals and the smallest normals */
        return ds_f32_from_bits(sign | (low & 0x00ffffffu));
    case DS_CONTENT_SPECIAL:
        return special(u);
    case DS_CONTENT_MIXED:
        return plain(u) * ds_f32_from_bits((107u + low % 41u) << 23);
    case DS_CONTENT_TIED:
        return -2.0f + 0.25f * (float)(low % 4);
    default:
        return plain(u);
    }
}

void ds_content_row(float *row, int64_t n, uint64_t seed, int stream, int32_t sequence,
                    int32_t slot, int content)
{
    uint64_t key = ds_content_hash(seed, ((uint64_t)(uint32_t)sequence << 32) | (uint32_t)slot);
    key = ds_content_hash(key, (uint64_t)stream * 16 + (content == DS_CONTENT_OTHER));
    for (int64_t i = 0; i < n; i++)
        row[i] = value(mix(key + (uint64_t)i * 0x9e3779b97f4a7c15u), content);
}

void ds_content_fill(float *values, int64_t n, uint64_t seed, int stream)
{
    ds_content_row(values, n, seed, stream, -1, 0, DS_CONTENT_PLAIN);
}
