/* explain_plain.c: places whose calls cannot be made again: only what both sides put out is looked at. Of
 * whole numbers that say where a row stands it is known what they should be. */
#include "cli/explain_case.h"

#include "base/dtype.h"
#include "kernels/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether one stage of two layers is read, as behind layers that one of two models lacks: each side reads another. */
static int read_two_layers(const struct ds_case *c)
{
    const struct ds_edge *e = c->h->edges;
    for (size_t i = 0; i < c->h->n_edges; i++)
        for (size_t k = i + 1; e[i].to == c->f.site && k < c->h->n_edges; k++) {
            const struct ds_site *x = &c->h->sites[e[i].from], *y = &c->h->sites[e[k].from];
            if (e[k].to == c->f.site && x->layer != y->layer && strcmp(x->stage, y->stage) == 0 &&
                strcmp(x->part, y->part) == 0)
                return 1;
        }
    return 0;
}

int ds_case_is_plain(const struct ds_case *c, char *why, size_t size)
{
    const struct ds_site *s = &c->h->sites[c->f.site];
    const int op = ds_op_parse(c->f.op);
    if (!ds_explain_knows(op)) {
        if (op == DS_OP_SCHEDULE)
            snprintf(why, size,
                     "a schedule goes by what earlier calls left of every request, neighbours' "
                     "included: records hold the subject's results alone");
        else
            snprintf(why, size, "calls of %.16s are not made again", c->f.op);
        return 1;
    }
    if (c->f.between && read_two_layers(c)) {
        snprintf(why, size, "its kernel reads the rows of another layer on each side");
        return 1;
    }
    if (ds_dtype_parse(s->dtype) == DS_I32 && !ds_explain_chooses(op)) {
        snprintf(why, size, "it counts what a call did beside its rows");
        return 1;
    }
    return 0;
}

/* ---- whole numbers --------------------------------------------------------------------------- */

/* What a stage should say of a row, from where the row truly stands. 0: not known. */
static int right_number(const struct ds_site *s, const struct ds_row *key, int32_t *right)
{
    if (strcmp(s->stage, "positions") == 0)
        *right = key->position;
    else if (strcmp(s->stage, "kv_len") == 0)
        *right = key->kv_len;
    else if (strcmp(s->stage, "slots") == 0)
        *right = key->kv_len - 1;
    else
        return 0;
    return key->kv_len > 0;
}

static void count_numbers(struct ds_case *c, const struct ds_row *key)
{
    const struct ds_explain_row *row = &c->e.rows[c->e.n_rows];
    struct ds_case_numbers *n = &c->numbers;
    const int32_t of[DS_SIDES] = {(int32_t)ds_f32_bits(row->y[DS_SIDE_A][0]),
                                  (int32_t)ds_f32_bits(row->y[DS_SIDE_B][0])};
    int32_t right = 0;
    const int known = right_number(&c->h->sites[c->f.site], key, &right);
    if (n->rows++ == 0) {
        n->first = *key;
        memcpy(n->number, of, sizeof of);
        n->known = known;
        n->right_number = right;
    }
    for (int s = 0; s < DS_SIDES && known; s++)
        n->right[s] += of[s] == right;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int take_pair(struct ds_case *c, const struct ds_site_row *const r[DS_SIDES],
                     struct ds_error *err)
{
    struct ds_explain_row *row = &c->e.rows[c->e.n_rows];
    const size_t width = c->h->sites[c->f.site].width;
    memset(row, 0, sizeof *row);
    for (int s = 0; s < DS_SIDES; s++) {
        float *y;
        int rc = ds_case_values(c, c->f.site, c->side[s].arm, r[s]->digest, width, &y, err);
        if (rc != 1)
            return rc;
        row->y[s] = y;
        row->at[s].rows = c->side[s].t->launches[r[s]->launch].rows;
        c->rows[s][c->e.n_rows] = *r[s];
        c->side[s].launch = &c->side[s].t->launches[r[s]->launch];
    }
    if (ds_dtype_parse(c->h->sites[c->f.site].dtype) == DS_I32 && width == 1)
        count_numbers(c, &r[DS_SIDE_B]->key);
    c->e.n_rows++;
    return 1;
}

int ds_case_load_plain(struct ds_case *c, const char *why, struct ds_error *err)
{
    const uint32_t width = c->h->sites[c->f.site].width;
    snprintf(c->not_replayed, sizeof c->not_replayed, "%s", why);
    c->e.op = DS_OP_CUSTOM;
    c->e.shared.custom = (struct ds_custom_args){.n_tensors = 1};
    c->e.shared.custom.tensor[0].cols = width;
    c->heads = 1;
    c->expert = c->choice = -1;
    c->healed = 0;
    c->e.n_rows = c->drifting_rows = c->undumped = 0;
    c->inputs_equal = c->f.label == DS_LABEL_ORIGIN;
    for (int s = 0; s < DS_SIDES; s++)
        c->e.side[s].kernel = NULL;
    return ds_case_take_pairs(c, take_pair, err);
}
