/* plural.h: the end of a noun behind a number. */
#ifndef DS_PLURAL_H
#define DS_PLURAL_H

/* "%zu setting%s" */
static inline const char *ds_plural(long long n)
{
    return n == 1 ? "" : "s";
}

#endif
