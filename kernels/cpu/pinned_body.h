/* pinned_body.h: the pinned kernels written once on sixteen lanes; pinned_scalar.c, pinned_avx2.c
 * and pinned_avx512.c include it after their v16 header. Every order and rounding point is fixed by
 * kernels/PINNED.md; lanes are always independent outputs or the 16 interleaved partial sums, so
 * the width of the hardware changes no bit. */
#include "kernels/cpu/file_weights.h"
#include "kernels/cpu/pinned.h"

#include <stddef.h>
#include <string.h>

#include "kernels/cpu/pinned_matmul.h"

#include "kernels/cpu/pinned_file.h"

/* exp(x): n = round(x / ln 2), r = x - n ln 2 in two steps, 1 + r + r^2 q(r), scaled by 2^n in two
 * steps. */
static inline v16 v16_exp(v16 x)
{
    const v16 magic = v16_set1(12582912.0f), one = v16_set1(1.0f);
    x = v16_max(v16_set1(-104.0f), x);
    x = v16_min(v16_set1(89.0f), x);
    v16 t = v16_fma(x, v16_set1(0x1.715476p+0f), magic);
    v16 n = v16_sub(t, magic);
    v16 r = v16_fma(n, v16_set1(-0x1.62e430p-1f), x);
    r = v16_fma(n, v16_set1(0x1.05c610p-29f), r);
    v16 p = v16_set1(0x1.6a2256p-10f);
    p = v16_fma(p, r, v16_set1(0x1.123b02p-7f));
    p = v16_fma(p, r, v16_set1(0x1.5558f8p-5f));
    p = v16_fma(p, r, v16_set1(0x1.555490p-3f));
    p = v16_fma(p, r, v16_set1(0x1.fffffcp-2f));
    p = v16_fma(p, r, one);
    p = v16_fma(p, r, one);
    return v16_scale(p, t);
}

/* exp(x - m), and +0 where x is -infinity (also when m is). */
static inline v16 softmax_term(v16 x, float m)
{
    return v16_zero_at_ninf(v16_exp(v16_sub(x, v16_set1(m))), x);
}

static void pinned_exp(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        v16_store_n(y + i, v16_canon(v16_exp(v16_load_n(x + i, n - i))), n - i);
}

static void pinned_copy(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        v16_store_n(y + i, v16_canon(v16_load_n(x + i, n - i)), n - i);
}

static void pinned_add(float *y, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16)
        v16_store_n(y + i, v16_canon(v16_add(v16_load_n(a + i, n - i), v16_load_n(b + i, n - i))),
                    n - i);
}

static void pinned_silu_mul(float *y, const float *gate, const float *up, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        v16 g = v16_load_n(gate + i, n - i), u = v16_load_n(up + i, n - i);
        v16 e = v16_exp(v16_sub(v16_set1(0.0f), g));
        v16 s = v16_div(g, v16_add(v16_set1(1.0f), e));
        v16_store_n(y + i, v16_canon(v16_mul(s, u)), n - i);
    }
}

static void pinned_rmsnorm(const struct ds_rmsnorm_args *a, int64_t row)
{
    const float *x = a->x + row * a->ldx;
    float *y = a->y + row * a->ldy;
    const int64_t n = a->width;
    v16 sum = v16_set1(0.0f);
    for (int64_t i = 0; i < n; i += 16) {
        v16 v = v16_load_n(x + i, n - i);
        sum = v16_head(v16_fma(v, v, sum), sum, n - i);
    }
    float mean = v16_tree_sum(sum) / (float)n;
    v16 inv = v16_set1(1.0f / sqrtf(mean + a->eps));
    for (int64_t i = 0; i < n; i += 16) {
        v16 v = v16_mul(v16_load_n(x + i, n - i), inv);
        v16_store_n(y + i, v16_canon(v16_mul(v, v16_load_n(a->weight + i, n - i))), n - i);
    }
}

/* One pair: y0 = fma(x0, cos, -(x1 * sin)), y1 = fma(x1, cos, x0 * sin). */
static inline void rotate_pair(float *y0, float *y1, float x0, float x1, float c, float s)
{
    float r0 = fmaf(x0, c, -(x1 * s)), r1 = fmaf(x1, c, x0 * s);
    *y0 = r0 != r0 ? (float)NAN : r0;
    *y1 = r1 != r1 ? (float)NAN : r1;
}

static void rope_head(const struct ds_rope_args *a, const float *x, float *y, const float *cs)
{
    const int64_t half = a->rope_dim / 2;
    if (a->neox) {
        for (int64_t i = 0; i < half; i++)
            rotate_pair(y + i, y + i + half, x[i], x[i + half], cs[2 * i], cs[2 * i + 1]);
    } else {
        for (int64_t i = 0; i < 2 * half; i += 16) {
            int64_t n = 2 * half - i;
            v16_store_n(y + i, v16_canon(v16_rotate(v16_load_n(x + i, n), v16_load_n(cs + i, n))),
                        n);
        }
    }
    pinned_copy(y + 2 * half, x + 2 * half, a->head_dim - 2 * half);
}

static void pinned_rope(const struct ds_rope_args *a, int64_t row)
{
    const float *cs = a->cos_sin + (int64_t)a->positions[row] * (a->rope_dim / 2) * 2;
    for (int64_t h = 0; h < a->heads; h++)
        rope_head(a, a->x + row * a->ldx + h * a->head_dim, a->y + row * a->ldy + h * a->head_dim,
                  cs);
}

#include "kernels/cpu/pinned_attention.h"

#include "kernels/cpu/pinned_rows.h"

#define DS_PINNED_TABLE                                                                            \
    {                                                                                              \
        V16_NAME, V16_ROWS, V16_PANELS, pinned_matmul, pinned_matmul_file, pinned_rmsnorm,         \
            pinned_rope, pinned_attention, pinned_attention_part, pinned_attention_join,           \
            pinned_silu_mul, pinned_add, pinned_copy, pinned_exp, pinned_softmax, pinned_combine,  \
            pinned_allreduce                                                                       \
    }
