/* order_output.c: what an output is when its sum is known: the sum, the sum divided, or parts that
 * are merged. The parts of a merge are the sums that the tree puts together last, one after another.
 * All scores are equal while values are measured, so every weight is exp(0) = 1. */
#include "kernels/lab/order_grid.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ((P0 + P1) + P2) + ...; the parts in this order. */
static int find_parts(const struct ds_tree *t, int cut, int32_t *part)
{
    int32_t v = t->root;
    int n = 0;
    while (n < DS_GRID_MOST_PARTS - 1 && t->node[v].children == 2) { /* leaves have none */
        int32_t a = t->node[v].first, b = t->node[a].next;
        if (cut < 2 && (t->node[a].term >= 0 || (t->node[b].term >= 0 && (cut == 0 || n > 0))))
            break;
        part[n++] = b;
        v = a;
    }
    part[n++] = v;
    for (int i = 0, j = n - 1; i < j; i++, j--) {
        int32_t swap = part[i];
        part[i] = part[j];
        part[j] = swap;
    }
    return n;
}

/* Weights of parts with equal scores: exp(lse - l), lse = log of the part's terms. */
static void weigh_parts(struct ds_grid_output *o)
{
    float lse[DS_GRID_MOST_PARTS], max = -INFINITY, z = 0.0f;
    for (int i = 0; i < o->parts; i++) {
        lse[i] = logf(o->count[i]);
        max = lse[i] > max ? lse[i] : max;
    }
    for (int i = 0; i < o->parts; i++)
        z += expf(lse[i] - max);
    for (int i = 0; i < o->parts; i++)
        o->weight[i] = expf(lse[i] - (max + logf(z)));
}

int ds_grid_output(const struct ds_grid *g, const struct ds_tree *t, struct ds_grid_output *out,
                   struct ds_error *err)
{
    int32_t part[DS_GRID_MOST_PARTS] = {t->root};
    size_t room = 1;
    memset(out, 0, sizeof *out);
    out->finish = g->finish;
    out->divisor = g->divisor;
    out->parts = g->finish == DS_FINISH_PARTS ? find_parts(t, g->cut, part) : 1;
    for (int i = 0; i < out->parts; i++) {
        out->count[i] = (float)t->node[part[i]].size;
        if (ds_replay_compile(t, part[i], &out->part[i], err) != 0) {
            ds_grid_output_free(out);
            return -1;
        }
        size_t need = ds_replay_room(&out->part[i]);
        room = need > room ? need : room;
    }
    if (out->finish == DS_FINISH_PARTS)
        weigh_parts(out);
    out->room = ds_alloc_aligned(room, sizeof *out->room, "the replay", err);
    if (!out->room)
        ds_grid_output_free(out);
    return out->room ? 0 : -1;
}

void ds_grid_output_free(struct ds_grid_output *out)
{
    for (int i = 0; i < out->parts; i++)
        ds_replay_free(&out->part[i]);
    free(out->room);
    memset(out, 0, sizeof *out);
}

/* One part's sum joins the output. */
static float add_part(const struct ds_grid_output *o, int i, float before, float sum)
{
    switch (o->finish) {
    case DS_FINISH_DIVIDE:
        return sum / o->divisor;
    case DS_FINISH_RECIPROCAL:
        return sum * (1.0f / o->divisor);
    case DS_FINISH_PARTS:
        return before + sum / o->count[i] * o->weight[i];
    default:
        return sum;
    }
}

float ds_grid_output_one(const struct ds_grid_output *out, const float *x, const float *w)
{
    float y = 0.0f;
    for (int i = 0; i < out->parts; i++)
        y = add_part(out, i, y, ds_replay_one(&out->part[i], x, w, out->room));
    return y;
}

void ds_grid_output_block(const struct ds_grid_output *out, const float *x, const float *w,
                          float *y)
{
    float sum[DS_REPLAY_LANES];
    for (int j = 0; j < DS_REPLAY_LANES; j++)
        y[j] = 0.0f;
    for (int i = 0; i < out->parts; i++) {
        ds_replay_block(&out->part[i], x, w, out->room, sum);
        for (int j = 0; j < DS_REPLAY_LANES; j++)
            y[j] = add_part(out, i, y[j], sum[j]);
    }
}
