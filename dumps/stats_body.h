/* stats_body.h: the text that stats_base.c and stats_avx2.c compile, each with its own flags. Only
 * IEEE basic operations on lanes that never meet, so the numbers are the same with every
 * instruction set. Defined by the includer: STATS_ADD, the function's name and linkage. */
#include "dumps/stats_block.h"

#include <string.h>

typedef int32_t lanes_i __attribute__((vector_size(32)));
typedef uint32_t lanes_u __attribute__((vector_size(32)));
typedef float lanes_f __attribute__((vector_size(32)));
/* Half of the lanes: gcc compares wider vectors element by element. */
typedef float half_f __attribute__((vector_size(16)));
typedef int32_t half_i __attribute__((vector_size(16)));
typedef double half_d __attribute__((vector_size(32)));
typedef int64_t half_l __attribute__((vector_size(32)));

/* Place on the line of f32: the magnitude, negative below zero. */
#define LINE_KEY(bits, magnitude)                                                                  \
    (((magnitude) ^ ((bits) < 0)) - ((bits) < 0)) /* a true lane is -1 */

/* Lanes 4 * h and up: the double sums. finite, numbers: masks of all lanes. */
#define ADD_HALF(h)                                                                                \
    do {                                                                                           \
        half_f xf, rf;                                                                             \
        half_i finite_i, numbers_i;                                                                \
        memcpy(&xf, (const char *)&x + (h) * sizeof xf, sizeof xf);                                \
        memcpy(&rf, (const char *)&r + (h) * sizeof rf, sizeof rf);                                \
        memcpy(&finite_i, (const char *)&finite + (h) * sizeof finite_i, sizeof finite_i);         \
        memcpy(&numbers_i, (const char *)&numbers + (h) * sizeof numbers_i, sizeof numbers_i);     \
        half_l keep = __builtin_convertvector(finite_i, half_l);                                   \
        half_d rd = __builtin_convertvector(rf, half_d);                                           \
        half_d d = __builtin_convertvector(xf, half_d) - rd;                                       \
        half_d fd = (half_d)((half_l)d & keep), fr = (half_d)((half_l)rd & keep);                  \
        diff_sq[h] += fd * fd;                                                                     \
        ref_sq[h] += fr * fr;                                                                      \
        half_l number = __builtin_convertvector(numbers_i, half_l);                                \
        half_d distance = (half_d)((half_l)d & positive_d & number);                               \
        half_l larger = distance > max_abs[h];                                                     \
        max_abs[h] = (half_d)(((half_l)distance & larger) | ((half_l)max_abs[h] & ~larger));       \
    } while (0)

STATS_ADD(struct ds_stats_sums *sums, const void *a, const void *ref, const int32_t *key,
          const int32_t *ref_key, size_t n)
{
    const lanes_i infinity = (lanes_i){0} + 0x7f800000, positive = (lanes_i){0} + 0x7fffffff;
    const half_l positive_d = (half_l){0} + INT64_MAX;
    half_d diff_sq[2], ref_sq[2], max_abs[2];
    lanes_u max_ulp;
    lanes_i elements = {0}, equal_values = {0}, nan_pairs = {0}, bad_a = {0}, bad_r = {0};
    memcpy(diff_sq, sums->diff_sq, sizeof diff_sq);
    memcpy(ref_sq, sums->ref_sq, sizeof ref_sq);
    memcpy(max_abs, sums->max_abs, sizeof max_abs);
    memcpy(&max_ulp, sums->max_ulp, sizeof max_ulp);
    for (size_t i = 0; i < n; i += DS_STATS_LANES) {
        lanes_i x, r, kx, kr;
        memcpy(&x, (const char *)a + i * 4, sizeof x);
        memcpy(&r, (const char *)ref + i * 4, sizeof r);
        lanes_i x_size = x & positive, r_size = r & positive, differ = x != r;
        lanes_i x_nan = x_size > infinity, r_nan = r_size > infinity;
        lanes_i x_bad = x_size >= infinity, r_bad = r_size >= infinity;
        lanes_i finite = ~(x_bad | r_bad), numbers = differ & ~(x_nan | r_nan);
        ADD_HALF(0);
        ADD_HALF(1);
        if (key) {
            memcpy(&kx, key + i, sizeof kx);
            memcpy(&kr, ref_key + i, sizeof kr);
        } else {
            kx = LINE_KEY(x, x_size);
            kr = LINE_KEY(r, r_size);
        }
        lanes_u up = (lanes_u)kx - (lanes_u)kr, above = (lanes_u)(kx > kr);
        lanes_u ulp = ((up & above) | (-up & ~above)) & (lanes_u)numbers;
        lanes_u more = (lanes_u)(ulp > max_ulp);
        max_ulp = (ulp & more) | (max_ulp & ~more);
        elements -= differ; /* true is all ones: minus one */
        equal_values -= differ & ((lanes_f)x == (lanes_f)r);
        nan_pairs -= differ & x_nan & r_nan;
        bad_a -= x_bad;
        bad_r -= r_bad;
    }
    memcpy(sums->diff_sq, diff_sq, sizeof diff_sq);
    memcpy(sums->ref_sq, ref_sq, sizeof ref_sq);
    memcpy(sums->max_abs, max_abs, sizeof max_abs);
    memcpy(sums->max_ulp, &max_ulp, sizeof max_ulp);
    for (size_t j = 0; j < DS_STATS_LANES; j++) {
        sums->elements[j] += (uint32_t)elements[j];
        sums->equal_values[j] += (uint32_t)equal_values[j];
        sums->nan_pairs[j] += (uint32_t)nan_pairs[j];
        sums->nonfinite[j] += (uint32_t)bad_a[j];
        sums->ref_nonfinite[j] += (uint32_t)bad_r[j];
    }
}
