/* weights.c: the digests of every weight: of its bytes as loaded, of its numbers as dequantised, and as kernels packed
 * it; of two records, which differ, and at which of these stages. Knows no model. */
#include "report/weights.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int by_weight(const void *pa, const void *pb)
{
    const struct ds_packed *a = pa, *b = pb;
    if (a->weight != b->weight)
        return a->weight < b->weight ? -1 : 1;
    const int c = strcmp(a->variant, b->variant);
    return c ? c : (a->rank > b->rank) - (a->rank < b->rank);
}

static void find_packed(struct ds_weight_list *o, const struct ds_header *h, int side, uint32_t at,
                        struct ds_weight_row *row)
{
    size_t from = 0, n = 0;
    while (from < o->n_packed[side] && o->packed[side][from].weight < at)
        from++;
    while (from + n < o->n_packed[side] && o->packed[side][from + n].weight == at)
        n++;
    row->w[side] = &h->weights[at];
    row->packed[side] = o->packed[side] + from;
    row->n_packed[side] = n;
}

/* Packed by one kernel, for one rank, on both sides: 1 if any of those differs. */
static unsigned hold_packed(struct ds_weight_row *row)
{
    unsigned differs = 0;
    for (size_t i = 0; i < row->n_packed[0]; i++)
        for (size_t k = 0; k < row->n_packed[1]; k++) {
            const struct ds_packed *x = &row->packed[0][i], *y = &row->packed[1][k];
            if (x->rank != y->rank || strcmp(x->variant, y->variant) != 0)
                continue;
            row->packed_held = 1;
            differs |= x->digest != y->digest ? DS_WEIGHT_PACKED : 0;
        }
    return differs;
}

static void hold(struct ds_weight_list *o, struct ds_weight_row *row)
{
    const struct ds_record_weight *x = row->w[0], *y = row->w[1];
    if (!o->two)
        return;
    if (!x || !y) {
        row->differs = DS_WEIGHT_ALONE;
        o->alone++;
        return;
    }
    row->differs = (x->digest != y->digest ? DS_WEIGHT_NUMBERS : 0) | hold_packed(row);
    if (x->loaded && y->loaded) {
        o->held[0]++;
        row->differs |= x->loaded != y->loaded ? DS_WEIGHT_LOADED : 0;
    }
    o->held[1]++;
    o->held[2] += (size_t)row->packed_held;
    for (int stage = 0; stage < DS_WEIGHT_STAGES; stage++)
        o->n_differ[stage] += row->differs >> stage & 1u;
}

static int by_name(const void *pa, const void *pb)
{
    const struct ds_record_weight *const *a = pa, *const *b = pb;
    return strcmp((*a)->name, (*b)->name);
}

static const struct ds_record_weight **sorted(const struct ds_header *h, struct ds_error *err)
{
    const struct ds_record_weight **list =
        ds_calloc(h->n_weights + 1, sizeof *list, "weights", err);
    for (size_t i = 0; list && i < h->n_weights; i++)
        list[i] = &h->weights[i];
    if (list && h->n_weights)
        qsort((void *)list, h->n_weights, sizeof *list, by_name);
    return list;
}

/* In the order of the first record's, then those that the second alone has. */
static int join(struct ds_weight_list *o, const struct ds_header *a, const struct ds_header *b,
                struct ds_error *err)
{
    const struct ds_record_weight **other = b ? sorted(b, err) : NULL;
    uint8_t *met = ds_calloc(b ? b->n_weights + 1 : 1, 1, "weights", err);
    const size_t most = a->n_weights + (b ? b->n_weights : 0);
    o->rows = ds_calloc(most + 1, sizeof *o->rows, "weights", err);
    const int ready = met && o->rows && (other || !b);
    for (size_t i = 0; ready && i < a->n_weights; i++) {
        const struct ds_record_weight *key = &a->weights[i], **y = NULL;
        struct ds_weight_row *row = &o->rows[o->n++];
        find_packed(o, a, 0, (uint32_t)i, row);
        if (b && b->n_weights)
            y = bsearch(&key, (const void *)other, b->n_weights, sizeof *other, by_name);
        if (y) {
            met[*y - b->weights] = 1;
            find_packed(o, b, 1, (uint32_t)(*y - b->weights), row);
        }
        hold(o, row);
    }
    for (size_t i = 0; ready && b && i < b->n_weights; i++)
        if (!met[i]) {
            struct ds_weight_row *row = &o->rows[o->n++];
            find_packed(o, b, 1, (uint32_t)i, row);
            hold(o, row);
        }
    free((void *)other);
    free(met);
    return ready ? 0 : -1;
}

int ds_weight_list_make(struct ds_weight_list *o, const struct ds_source *a,
                        const struct ds_source *b, struct ds_error *err)
{
    const struct ds_source *const sides[2] = {a, b};
    *o = (struct ds_weight_list){.two = b != NULL};
    for (int s = 0; s < 1 + o->two; s++) {
        if (ds_packed_list(sides[s], &o->packed[s], &o->n_packed[s], err) != 0)
            return -1;
        if (o->n_packed[s])
            qsort(o->packed[s], o->n_packed[s], sizeof *o->packed[s], by_weight);
    }
    return join(o, a->header, b ? b->header : NULL, err);
}

void ds_weight_list_free(struct ds_weight_list *o)
{
    free(o->rows);
    free(o->packed[0]);
    free(o->packed[1]);
    *o = (struct ds_weight_list){0};
}

const char *ds_weight_stage(int stage)
{
    static const char *const names[DS_WEIGHT_STAGES] = {"as loaded", "dequantised", "packed"};
    return names[stage];
}

/* ---- as text --------------------------------------------------------------------------------- */

enum { NAME = 28 };

static void add_side(const struct ds_weight_row *row, int side, struct ds_buf *out)
{
    const struct ds_record_weight *w = row->w[side];
    ds_buf_printf(out, "%-6.8s ", w->dtype);
    if (w->loaded)
        ds_buf_printf(out, "%016" PRIx64, w->loaded);
    else
        ds_buf_printf(out, "%-16s", "-");
    ds_buf_printf(out, " %016" PRIx64, w->digest);
    for (size_t i = 0; i < row->n_packed[side]; i++) {
        const struct ds_packed *p = &row->packed[side][i];
        if (i)
            ds_buf_printf(out, "\n%*s", NAME + 7 + 34, "");
        ds_buf_printf(out, " %016" PRIx64 " ", p->digest);
        ds_report_name(out, p->variant);
        if (p->rank >= 0)
            ds_buf_printf(out, ", rank %d", (int)p->rank);
    }
    ds_buf_puts(out, "\n");
}

static void add_name(const char *name, struct ds_buf *out)
{
    const size_t from = out->len;
    ds_report_name(out, name);
    const size_t wide = out->len - from;
    if (wide >= NAME)
        ds_buf_printf(out, "\n%*s", NAME, "");
    else
        ds_buf_printf(out, "%*s", (int)(NAME - wide), "");
}

static void add_pair(const struct ds_weight_row *row, struct ds_buf *out)
{
    int some = 0;
    ds_report_name(out, row->w[0] ? row->w[0]->name : row->w[1]->name);
    if (row->differs & DS_WEIGHT_ALONE)
        ds_buf_printf(out, ": in %s only", row->w[0] ? "A" : "B");
    for (int stage = 0; stage < DS_WEIGHT_STAGES; stage++)
        if (row->differs >> stage & 1u)
            ds_buf_printf(out, "%s %s", some++ ? "," : ": differs:", ds_weight_stage(stage));
    ds_buf_puts(out, "\n");
    for (int side = 0; side < 2; side++)
        if (row->w[side]) {
            ds_buf_printf(out, "%*s%c ", NAME - 2, "", 'A' + side);
            add_side(row, side, out);
        }
}

void ds_weight_list_text(const struct ds_weight_list *o, struct ds_buf *out)
{
    ds_buf_printf(out, "%-*s%-6s %-16s %-16s %s\n", NAME, "weight", "format", ds_weight_stage(0),
                  ds_weight_stage(1), ds_weight_stage(2));
    for (size_t i = 0; i < o->n; i++) {
        if (o->two && o->rows[i].differs)
            add_pair(&o->rows[i], out);
        if (o->two)
            continue;
        add_name(o->rows[i].w[0]->name, out);
        add_side(&o->rows[i], 0, out);
    }
    if (!o->two) {
        ds_buf_printf(out, "\n%zu weights%s\n", o->n,
                      o->n_packed[0] ? "" : "; none is recorded as packed (run --digest-packed)");
        return;
    }
    ds_buf_printf(out, "\n%zu weights, %zu in one record only", o->n, o->alone);
    for (int stage = 0; stage < DS_WEIGHT_STAGES; stage++)
        if (o->held[stage])
            ds_buf_printf(out, "; %s %zu of %zu differ", ds_weight_stage(stage), o->n_differ[stage],
                          o->held[stage]);
        else
            ds_buf_printf(out, "; %s: not compared", ds_weight_stage(stage));
    ds_buf_puts(out, "\n");
}
