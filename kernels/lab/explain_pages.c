/* explain_pages.c: whether attention's bits follow from which pages of the cache hold its keys, not from what they hold:
 * the side's own calls again, with the same keys and values on pages of other numbers. What no page of the call holds is NaN,
 * so that a kernel that reads there shows it. */
#include "kernels/lab/explain.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    int32_t first, turned;
} places[] = {{1, 0}, {2, 0}, {3, 0}, {5, 0}, {8, 0}, {16, 0}, {64, 0}, {1, 1}};

struct asking {
    struct ds_explain e;
    int side;
    size_t n;
    float *plain, *again;
};

/* One launch of all calls; 1: it could not be run. */
static int launch(struct asking *a, float *y, struct ds_error *err)
{
    char why[256];
    return ds_explain_replay(&a->e, a->side, a->e.side[a->side].kernel, 1, y, why, sizeof why, err);
}

static uint64_t differing(const float *x, const float *y, size_t n)
{
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ds_f32_bits(x[i]) != ds_f32_bits(y[i]);
    return count;
}

static uint64_t recorded(const struct asking *a, const float *y)
{
    const size_t width = (size_t)ds_explain_width(a->e.op, &a->e.shared);
    uint64_t same = 0;
    for (size_t r = 0; r < a->e.n_rows; r++)
        same += width - differing(a->e.rows[r].y[a->side], y + r * width, width);
    return same;
}

/* The numbers that give most of the side's bits, of those that move any. -1: the lab failed. */
static int try_places(struct asking *a, struct ds_explain_pages *out, struct ds_error *err)
{
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        a->e.first_page = places[i].first;
        a->e.pages_turned = places[i].turned;
        const int rc = launch(a, a->again, err);
        if (rc < 0)
            return -1;
        const uint64_t moved = rc ? 0 : differing(a->plain, a->again, a->n),
                       own = moved ? recorded(a, a->again) : 0;
        if (!moved || (out->moved && own <= out->own))
            continue;
        *out = (struct ds_explain_pages){.elements = a->n,
                                         .moved = moved,
                                         .own = own,
                                         .first = places[i].first,
                                         .turned = places[i].turned};
        if (own == a->n)
            break;
    }
    return 0;
}

int ds_explain_pages(const struct ds_explain *e, int side, struct ds_explain_pages *out,
                     struct ds_error *err)
{
    struct asking a = {
        .e = *e, .side = side, .n = e->n_rows * (size_t)ds_explain_width(e->op, &e->shared)};
    memset(out, 0, sizeof *out);
    if (e->op != DS_OP_ATTENTION)
        return 0;
    a.plain = ds_alloc_aligned(2 * a.n, sizeof *a.plain, "rows again", err);
    if (!a.plain)
        return -1;
    a.again = a.plain + a.n;
    int rc = launch(&a, a.plain, err);
    if (rc == 0)
        rc = launch(&a, a.again, err);
    /* One that is unsteady moves by itself. */
    if (rc == 0 && differing(a.plain, a.again, a.n) == 0)
        rc = try_places(&a, out, err);
    free(a.plain);
    return rc < 0 ? -1 : 0;
}
