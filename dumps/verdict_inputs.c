/* verdict_inputs.c: one hash for all that a site's kernel read for a row, in one arm: equal hashes are
 * equal bits of the inputs, whatever arm had them.
 *
 * A site that this arm never captured but others did is no part of its pass: what that site reads is
 * read here instead. With one rank no partial sum exists, and the combine reads the experts. */
#include "dumps/verdict_internal.h"

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0xff51afd7ed558ccd);
    return (h ^ h >> 32) * UINT64_C(0xc4ceb9fe1a85ec53) + 1;
}

/* Adds the digests of one input site to the hashes of the arm's rows; rows without usable inputs
 * become 0. */
static void add_input(const struct ds_analysis *a, const struct arm_table *t, size_t from,
                      int causal, uint64_t *inputs)
{
    uint64_t prefix = 0;
    int usable = 1;
    for (size_t i = 0; i < a->n_rows; i++) {
        size_t cell = from * a->n_rows + i;
        if (i == 0 || a->keys[i].request != a->keys[i - 1].request) {
            prefix = 1;
            usable = 1;
        }
        if (!causal) {
            inputs[i] =
                inputs[i] && t->state[cell] == CELL_STABLE ? mix(inputs[i], t->digest[cell]) : 0;
            continue;
        }
        if (t->state[cell] == CELL_UNSTABLE)
            usable = 0;
        else if (t->state[cell] == CELL_STABLE)
            prefix = mix(mix(prefix, (uint64_t)a->keys[i].position), t->digest[cell]);
        inputs[i] =
            inputs[i] && usable && t->state[cell] == CELL_STABLE ? mix(inputs[i], prefix) : 0;
    }
}

/* Adds the inputs of `site`; those that this arm has not wait in w->open. Their number. */
static size_t add_inputs(const struct ds_analysis *a, const struct arm_table *t, size_t site,
                         int causal, struct input_walk *w, size_t n_open, uint64_t *inputs)
{
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++) {
        const uint32_t from = a->in_from[e];
        const uint8_t kind = a->in_kind[e];
        const int later = causal || kind == DS_EDGE_CAUSAL;
        if (!a->shown[from] || t->has[from]) {
            w->found++;
            if (kind == DS_EDGE_ROW || kind == DS_EDGE_CAUSAL)
                add_input(a, t, from, later, inputs);
            else
                w->whole = 1;
        } else if (w->seen[from] != w->look) {
            w->seen[from] = w->look;
            w->open[n_open++] = (struct open_site){from, later || kind != DS_EDGE_ROW};
        }
    }
    return n_open;
}

void hash_inputs(const struct ds_analysis *a, const struct arm_table *t, size_t site,
                 struct input_walk *w, uint64_t *inputs)
{
    size_t n_open = 0;
    for (size_t i = 0; i < a->n_rows; i++)
        inputs[i] = 1;
    w->look++;
    w->found = 0;
    w->whole = 0;
    n_open = add_inputs(a, t, site, 0, w, n_open, inputs);
    while (n_open > 0) {
        const struct open_site next = w->open[--n_open];
        n_open = add_inputs(a, t, next.site, next.causal, w, n_open, inputs);
    }
    /* Rows of the whole call were read, or something was, and nothing of it is known. */
    const int silent = w->whole || (!w->found && a->in_start[site + 1] > a->in_start[site]);
    for (size_t i = 0; silent && i < a->n_rows; i++)
        inputs[i] = 0;
}
