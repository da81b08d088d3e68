/* rope.c: rotations with one known fault each; every product and sum rounded. */
#include "specimen.h"

struct pair {
    float c, s; /* of the angle */
};

static struct pair table(const struct ds_rope_args *a, int64_t position, int64_t i)
{
    const float *p = a->cos_sin + (position * (a->rope_dim / 2) + i) * 2;
    return (struct pair){p[0], p[1]};
}

/* `angle` gives cos and sin of pair i for a row; neox: pairs (i, i + rope_dim / 2). */
static int rotate(const struct ds_rope_args *a, int neox,
                  struct pair (*angle)(const struct ds_rope_args *, int64_t row, int64_t i))
{
    int64_t half = a->rope_dim / 2;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t h = 0; h < a->heads; h++) {
            const float *x = a->x + r * a->ldx + h * a->head_dim;
            float *y = a->y + r * a->ldy + h * a->head_dim;
            memcpy(y, x, (size_t)a->head_dim * sizeof *y);
            for (int64_t i = 0; i < half; i++) {
                struct pair t = angle(a, r, i);
                int64_t one = neox ? i : 2 * i, two = neox ? i + half : 2 * i + 1;
                y[one] = x[one] * t.c - x[two] * t.s;
                y[two] = x[one] * t.s + x[two] * t.c;
            }
        }
    return 0;
}

static struct pair right(const struct ds_rope_args *a, int64_t row, int64_t i)
{
    return table(a, a->positions[row], i);
}

static int plain_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    (void)exec, (void)why, (void)why_size;
    return rotate(args, ((const struct ds_rope_args *)args)->neox, right);
}

/* O-11: calls of several rows (prefill) do not scale the long wavelengths: pairs in the upper half
 * turn twice as far. */
static struct pair unscaled(const struct ds_rope_args *a, int64_t row, int64_t i)
{
    int64_t position = a->positions[row];
    if (a->rows > 1 && i >= a->rope_dim / 4 && 2 * position < a->table_positions)
        position *= 2;
    return table(a, position, i);
}

static int unscaled_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    (void)exec, (void)why, (void)why_size;
    return rotate(args, ((const struct ds_rope_args *)args)->neox, unscaled);
}

/* O-22: position ids are kept in f16: exact up to 2048, infinite from 65520 on. */
static struct pair f16_ids(const struct ds_rope_args *a, int64_t row, int64_t i)
{
    int64_t position = a->positions[row], step = 1;
    if (position >= 65520)
        return (struct pair){NAN, NAN};
    while (position / step > 2048)
        step *= 2;
    int64_t half = step / 2, whole = position / step, rest = position % step;
    if (step > 1 && (rest > half || (rest == half && whole % 2)))
        whole++;
    position = whole * step;
    return table(a, position < a->table_positions ? position : a->table_positions - 1, i);
}

static int f16_ids_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    (void)exec, (void)why, (void)why_size;
    return rotate(args, ((const struct ds_rope_args *)args)->neox, f16_ids);
}

/* O-22: the frequencies are rounded to f16 before they are multiplied with the position. */
static struct pair f16_frequencies(const struct ds_rope_args *a, int64_t row, int64_t i)
{
    if (a->table_positions < 2)
        return table(a, a->positions[row], i);
    struct pair one = table(a, 1, i);
    double angle = (double)specimen_half(atan2f(one.s, one.c)) * (double)a->positions[row];
    return (struct pair){(float)cos(angle), (float)sin(angle)};
}

static int f16_frequencies_launch(const void *args, const struct ds_exec *exec, char *why,
                                  size_t why_size)
{
    (void)exec, (void)why, (void)why_size;
    return rotate(args, ((const struct ds_rope_args *)args)->neox, f16_frequencies);
}

/* O-31: the other pairing of channels. */
static int other_pairs_launch(const void *args, const struct ds_exec *exec, char *why,
                              size_t why_size)
{
    (void)exec, (void)why, (void)why_size;
    return rotate(args, !((const struct ds_rope_args *)args)->neox, right);
}

const struct ds_kernel specimen_rope[] = {
    SPECIMEN(DS_OP_ROPE, "plain", "nothing wrong", plain_launch, .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ROPE, "plain-too", "the same as plain", plain_launch, .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ROPE, "unscaled-prefill", "long wavelengths not scaled in prefill",
             unscaled_launch, .claims = 0),
    SPECIMEN(DS_OP_ROPE, "f16-ids", "position ids in f16", f16_ids_launch, .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ROPE, "f16-frequencies", "frequencies in f16", f16_frequencies_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_ROPE, "other-pairs", "the other pairing of channels", other_pairs_launch,
             .claims = DS_CLAIM_ALL),
    {.name = NULL}};
