/* pinned_attention_extra.h: what pinned attention needs beyond its plain form: tanh for the soft
 * cap, log for the log-sum-exp. Scalar, one operation at a time, by the formulas of
 * kernels/PINNED.md; included by pinned_body.h, whose exp it uses. */
#ifndef DS_PINNED_ATTENTION_EXTRA_H
#define DS_PINNED_ATTENTION_EXTRA_H

#include <string.h>

/* tanh(x), given e = exp(2|x|). */
static inline float pinned_tanh(float x, float e)
{
    if (fabsf(x) < 0.625f) {
        float z = x * x, p = -0x1.75e1cap-8f;
        p = fmaf(p, z, 0x1.52269ap-6f);
        p = fmaf(p, z, -0x1.b83c5ap-5f);
        p = fmaf(p, z, 0x1.110726p-3f);
        p = fmaf(p, z, -0x1.555532p-2f);
        return fmaf(p, z * x, x);
    }
    return copysignf(1.0f - 2.0f / (e + 1.0f), x);
}

/* p[j] = cap * tanh(p[j] / cap) */
static void cap_scores(float *p, int64_t n, float cap)
{
    for (int64_t j = 0; j < n; j += 16) {
        float x[16] = {0}, e[16];
        for (int i = 0; i < 16 && j + i < n; i++)
            x[i] = p[j + i] / cap;
        for (int i = 0; i < 16; i++)
            e[i] = fabsf(x[i]) + fabsf(x[i]);
        v16_store(e, v16_exp(v16_load(e)));
        for (int i = 0; i < 16 && j + i < n; i++)
            p[j + i] = cap * pinned_tanh(x[i], e[i]);
    }
}

/* log(x) for x = 0, a normal number, +infinity or NaN: x = f * 2^k with f in sqrt(1/2)..sqrt(2). */
static float pinned_log(float x)
{
    uint32_t bits;
    if (!(x > 0.0f && x < INFINITY))
        return x == 0.0f ? -INFINITY : x;
    memcpy(&bits, &x, 4);
    int32_t i = (int32_t)(bits - 0x3f3504f3u), k = i >> 23;
    bits = ((uint32_t)i & 0x7fffffu) + 0x3f3504f3u;
    memcpy(&x, &bits, 4);
    float t = x - 1.0f, z = t * t, p = -0x1.38b576p-4f;
    p = fmaf(p, t, 0x1.055b68p-3f);
    p = fmaf(p, t, -0x1.0d8542p-3f);
    p = fmaf(p, t, 0x1.22da1ep-3f);
    p = fmaf(p, t, -0x1.547244p-3f);
    p = fmaf(p, t, 0x1.99a008p-3f);
    p = fmaf(p, t, -0x1.000226p-2f);
    p = fmaf(p, t, 0x1.555554p-2f);
    p = (p * t) * z;
    p = fmaf((float)k, -0x1.05c610p-29f, p);
    p = fmaf(z, -0.5f, p);
    return fmaf((float)k, 0x1.62e430p-1f, t + p);
}

#endif
