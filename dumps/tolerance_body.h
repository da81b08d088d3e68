/* tolerance_body.h: the text that tolerance_base.c and tolerance_avx2.c compile, each with its own
 * flags: rows of f32 against the element tolerances. The differences are taken in double and compared
 * one by one, as tolerance.c does, so the answer is the same with every instruction set. Defined by
 * the includer: TOLERANCE_PASSES, the function's name and linkage. */
#include "dumps/tolerance_block.h"

#include <string.h>

typedef int32_t lanes_i __attribute__((vector_size(16)));
typedef uint32_t lanes_u __attribute__((vector_size(16)));
typedef float lanes_f __attribute__((vector_size(16)));
typedef double lanes_d __attribute__((vector_size(32)));
typedef int64_t lanes_l __attribute__((vector_size(32)));

typedef int32_t wide_i __attribute__((vector_size(32)));
typedef uint32_t wide_u __attribute__((vector_size(32)));

enum { LANES = 4, WIDE = DS_TOLERANCE_LANES, AT_ONCE = 64 };

/* Whether so many elements are finite, of one sign and at most so far apart: nearly all of a row that passes. The
 * distance of two magnitudes of one sign is that of their bits; where signs differ that is 0x800001 at least, or an
 * element is not finite. Without branches, in a plain loop: a quarter of what it costs to tell the rest apart. */
enum { MOST_PLAIN = 1 << 22 };

static int are_plain(uint32_t most, const void *a, const void *ref)
{
    uint32_t apart = 0, largest = 0;
    for (int i = 0; i < AT_ONCE; i++) {
        uint32_t x, y;
        memcpy(&x, (const char *)a + i * sizeof x, sizeof x);
        memcpy(&y, (const char *)ref + i * sizeof y, sizeof y);
        const uint32_t d = x - y + most, m = x & 0x7fffffff, k = y & 0x7fffffff;
        apart = d > apart ? d : apart;
        largest = m > largest ? m : largest;
        largest = k > largest ? k : largest;
    }
    return apart <= 2 * most && largest < 0x7f800000;
}

/* ULP alone, without a value: places on the line of f32 are the magnitude, negative below zero. */
static int within_ulp(uint32_t most, const void *a, const void *ref, size_t n)
{
    const wide_i infinity = (wide_i){0} + 0x7f800000, magnitude = (wide_i){0} + 0x7fffffff;
    const wide_i given = (wide_i){0} - (most > 0); /* 0 and -0 are 0 ULP apart, and other bits */
    const wide_u limit = (wide_u){0} + most;
    for (size_t begin = 0; begin < n; begin += AT_ONCE) {
        const size_t end = n - begin < AT_ONCE ? n : begin + AT_ONCE;
        wide_i bad = {0};
        if (most && most <= MOST_PLAIN && end - begin == AT_ONCE &&
            are_plain(most, (const char *)a + begin * sizeof(float),
                      (const char *)ref + begin * sizeof(float)))
            continue;
        for (size_t i = begin; i < end; i += WIDE) {
            wide_i x, y;
            memcpy(&x, (const char *)a + i * sizeof(float), sizeof x);
            memcpy(&y, (const char *)ref + i * sizeof(float), sizeof y);
            const wide_i xm = x & magnitude, ym = y & magnitude, differ = x != y,
                         finite = (xm < infinity) & (ym < infinity);
            const wide_i kx = (xm ^ (x < 0)) - (x < 0), ky = (ym ^ (y < 0)) - (y < 0);
            const wide_u up = (wide_u)kx - (wide_u)ky, above = (wide_u)(kx > ky),
                         ulp = (up & above) | (-up & ~above);
            bad |= differ & ~(given & finite & (wide_i)(ulp <= limit));
        }
        for (int j = 0; j < WIDE; j++)
            if (bad[j])
                return 0;
    }
    return 1;
}

TOLERANCE_PASSES(const struct ds_tolerance_limits *t, const void *a, const void *ref, size_t n)
{
    if (!(t->atol > 0) && !(t->rtol > 0))
        return within_ulp(t->ulp, a, ref, n);
    const lanes_i infinity = (lanes_i){0} + 0x7f800000, magnitude = (lanes_i){0} + 0x7fffffff,
                  with_ulp = (lanes_i){0} - (t->ulp > 0);
    const lanes_u most = (lanes_u){0} + t->ulp;
    const lanes_l with_atol = (lanes_l){0} - (t->atol > 0),
                  with_rtol = (lanes_l){0} - (t->rtol > 0), positive = (lanes_l){0} + INT64_MAX;
    for (size_t begin = 0; begin < n; begin += AT_ONCE) {
        const size_t end = n - begin < AT_ONCE ? n : begin + AT_ONCE;
        lanes_i bad = {0};
        for (size_t i = begin; i < end; i += LANES) {
            lanes_i x, y;
            lanes_f xf, yf;
            memcpy(&x, (const char *)a + i * sizeof(float), sizeof x);
            memcpy(&y, (const char *)ref + i * sizeof(float), sizeof y);
            memcpy(&xf, &x, sizeof xf);
            memcpy(&yf, &y, sizeof yf);
            const lanes_i xm = x & magnitude, ym = y & magnitude, differ = x != y,
                          finite = (xm < infinity) & (ym < infinity);
            /* Places on the line of f32: the magnitude, negative below zero. */
            const lanes_i kx = (xm ^ (x < 0)) - (x < 0), ky = (ym ^ (y < 0)) - (y < 0);
            const lanes_u up = (lanes_u)kx - (lanes_u)ky, above = (lanes_u)(kx > ky),
                          ulp = (up & above) | (-up & ~above);
            const lanes_d yd = __builtin_convertvector(yf, lanes_d),
                          d = (lanes_d)((lanes_l)(__builtin_convertvector(xf, lanes_d) - yd) &
                                        positive),
                          size = (lanes_d)((lanes_l)yd & positive);
            const lanes_l near = (with_atol & (d <= t->atol)) | (with_rtol & (d <= t->rtol * size));
            const lanes_i passes =
                (with_ulp & (lanes_i)(ulp <= most)) | __builtin_convertvector(near, lanes_i);
            bad |= differ & ~(finite & passes);
        }
        for (int j = 0; j < LANES; j++)
            if (bad[j])
                return 0;
    }
    return 1;
}
