/* names.c: see names.h. */
#include "base/names.h"

#include <string.h>

enum { MAX_WORD = 64 };

/* Optimal string alignment distance (insert, delete, replace, swap of neighbours). */
static int distance(const char *a, const char *b)
{
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n >= MAX_WORD || m >= MAX_WORD)
        return MAX_WORD;
    int rows[3][MAX_WORD + 1];
    for (int j = 0; j <= m; j++)
        rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *cur = rows[i % 3], *prev = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        cur[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = prev[j - 1] + (a[i - 1] != b[j - 1]);
            best = prev[j] + 1 < best ? prev[j] + 1 : best;
            best = cur[j - 1] + 1 < best ? cur[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            cur[j] = best;
        }
    }
    return rows[n % 3][m];
}

int ds_nearest(const char *word, const char *const *names, size_t n)
{
    int best = -1, best_distance = (int)(strlen(word) + 2) / 3 + 1;
    for (size_t i = 0; i < n; i++) {
        int d = distance(word, names[i]);
        if (d < best_distance) {
            best_distance = d;
            best = (int)i;
        }
    }
    return best;
}
