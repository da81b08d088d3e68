/* names.h: nearest known name for an unknown one ("did you mean"). */
#ifndef DS_NAMES_H
#define DS_NAMES_H

#include <stddef.h>

/* Index of the entry of names[0..n-1] nearest to `word` (Damerau-Levenshtein, a third of the length
 * at most), or -1. */
int ds_nearest(const char *word, const char *const *names, size_t n);

#endif
