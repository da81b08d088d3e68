/* verdict_arms.c: which arm is compared with which. Knows factor values as texts; knows no digests.
 */
#include "dumps/verdict.h"

#include <string.h>

int64_t ds_arm_reference(const struct ds_header *h, uint32_t arm, uint32_t factor)
{
    if (arm >= h->n_arms || factor >= h->n_factors)
        return -1;
    if (strcmp(h->factors[factor], "dtype") == 0)
        return -1;
    char **mine = h->arms[arm].values, **base = h->arms[0].values;
    if (strcmp(mine[factor], base[factor]) == 0)
        return -1;
    for (size_t i = 0; i < h->n_arms; i++) {
        char **other = h->arms[i].values;
        size_t f = 0;
        while (f < h->n_factors && strcmp(other[f], f == factor ? base[f] : mine[f]) == 0)
            f++;
        if (f == h->n_factors)
            return (int64_t)i;
    }
    return -1;
}
