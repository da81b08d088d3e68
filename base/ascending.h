/* ascending.h: doubles in rising order, for qsort. A NaN has no place in an order: the caller has none. */
#ifndef DS_ASCENDING_H
#define DS_ASCENDING_H

static inline int ds_ascending(const void *pa, const void *pb)
{
    const double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

#endif
