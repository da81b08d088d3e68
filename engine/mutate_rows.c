/* mutate_rows.c: the changes themselves (mutate.h): bytes only. Apart from the check, so that the
 * forward pass needs no probe. */
#include "engine/mutate.h"

static void swap_bytes(char *a, char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char t = a[i];
        a[i] = b[i];
        b[i] = t;
    }
}

void ds_mutate_rows(struct ds_mutation *m, void *data, size_t rows, size_t row_bytes,
                    size_t element)
{
    char *p = data;
    const size_t head = m->head_dim * element;
    const int fits = m->kind == DS_MUTATE_HEADS
                         ? head > 0 && row_bytes % head == 0 && row_bytes / head > 1
                     : m->kind == DS_MUTATE_CHANNELS ? row_bytes >= 2 * element
                                                     : rows > 1;
    if (!fits)
        return;
    m->applied = 1;
    if (m->kind == DS_MUTATE_ROWS)
        swap_bytes(p, p + (rows - 1) * row_bytes, row_bytes);
    for (size_t r = rows - 1; m->kind == DS_MUTATE_SHIFT && r > 0; r--)
        swap_bytes(p + (r - 1) * row_bytes, p + r * row_bytes, row_bytes);
    for (size_t r = 0; r < rows; r++, p += row_bytes) {
        if (m->kind == DS_MUTATE_HEADS)
            swap_bytes(p, p + row_bytes - head, head);
        else if (m->kind == DS_MUTATE_CHANNELS)
            swap_bytes(p, p + element, element);
    }
}
