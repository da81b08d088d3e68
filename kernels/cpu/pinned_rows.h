/* pinned_rows.h: softmax, combine and allreduce on sixteen lanes; a part of pinned_body.h, which
 * includes it. Orders and rounding points: kernels/PINNED.md. */

/* Terms go to y first, then each is divided by their total. y may be x. */
static void pinned_softmax(float *y, const float *x, int64_t n)
{
    v16 max = v16_set1(-INFINITY);
    float total = 0.0f;
    for (int64_t i = 0; i < n; i += 16)
        max = v16_head(v16_max(v16_load_n(x + i, n - i), max), max, n - i);
    const float m = v16_tree_max(max);
    for (int64_t block = 0; block < n; block += DS_PINNED_BLOCK) {
        const int64_t end = n - block < DS_PINNED_BLOCK ? n : block + DS_PINNED_BLOCK;
        v16 sum = v16_set1(0.0f);
        for (int64_t i = block; i < end; i += 16) {
            v16 e = softmax_term(v16_load_n(x + i, end - i), m);
            v16_store_n(y + i, e, end - i);
            sum = v16_head(v16_add(sum, e), sum, end - i);
        }
        total = block == 0 ? v16_tree_sum(sum) : total + v16_tree_sum(sum);
    }
    for (int64_t i = 0; i < n; i += 16)
        v16_store_n(y + i, v16_canon(v16_div(v16_load_n(y + i, n - i), v16_set1(total))), n - i);
}

/* One chain a channel over the chosen experts, in their order. */
static void pinned_combine(const struct ds_combine_args *a, int64_t row)
{
    const float *x = a->x + row * a->top_k * a->ldx, *w = a->weights + row * a->top_k;
    for (int64_t i = 0; i < a->width; i += 16) {
        v16 s = v16_set1(0.0f);
        for (int64_t e = 0; e < a->top_k; e++)
            s = v16_fma(v16_set1(w[e]), v16_load_n(x + e * a->ldx + i, a->width - i), s);
        v16_store_n(a->y + row * a->ldy + i, v16_canon(s), a->width - i);
    }
}

/* The first rank's value, then the others added in ascending order. */
static void pinned_allreduce(const struct ds_allreduce_args *a, int64_t row)
{
    for (int64_t i = 0; i < a->width; i += 16) {
        const int64_t at = row * a->ldx + i, n = a->width - i;
        v16 s = v16_load_n(a->x[0] + at, n);
        for (int64_t rank = 1; rank < a->ranks; rank++)
            s = v16_add(s, v16_load_n(a->x[rank] + at, n));
        v16_store_n(a->y + row * a->ldy + i, v16_canon(s), n);
    }
}
