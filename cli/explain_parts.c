/* explain_parts.c: sites whose rows are not the call's rows, one for one: experts, each of which is given
 * the rows that chose it, and norms of each head. Reads the record, which is hostile: every number
 * that becomes an index is checked here or was by the reader. */
#include "cli/explain_case.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- experts --------------------------------------------------------------------------------- */

/* The site of the layer's choices; 0: none. */
static int ids_site(const struct ds_case *c, uint32_t *site)
{
    const struct ds_site *own = &c->h->sites[c->f.site];
    for (size_t i = 0; i < c->h->n_sites; i++)
        if (c->h->sites[i].layer == own->layer && !c->h->sites[i].part[0] &&
            strcmp(c->h->sites[i].stage, "router_ids") == 0) {
            *site = (uint32_t)i;
            return 1;
        }
    return 0;
}

/* The expert of a row's choice: 1 found, 0 its choices are not dumped. */
static int expert_of(struct ds_case *c, int side, const struct ds_row *key, int32_t choice,
                     int32_t *expert, struct ds_error *err)
{
    struct ds_site_row *rows;
    uint32_t site;
    size_t n;
    float *ids;
    if (!ids_site(c, &site) || ds_site_rows(c->side[side].t, site, &rows, &n, err) != 0)
        return err->msg[0] ? -1 : 0;
    const struct ds_site_row *r = ds_site_find_row(rows, n, key);
    const size_t width = c->h->sites[site].width;
    int rc = r && choice >= 0 && (size_t)choice < width
                 ? ds_case_values(c, site, c->side[side].arm, r->digest, width, &ids, err)
                 : 0;
    free(rows);
    if (rc == 1)
        memcpy(expert, ids + choice, sizeof *expert);
    return rc;
}

static int number_of_choice(const char *part)
{
    char *end;
    if (part[0] != 'e')
        return -1;
    const long v = strtol(part + 1, &end, 10);
    return end == part + 1 || *end || v < 0 || v > 4095 ? -1 : (int)v;
}

/* Whether the row's values are there, to be explained. */
static int is_dumped(struct ds_case *c, int side, const struct ds_site_row *r, struct ds_error *err)
{
    float *y;
    return ds_case_values(c, c->f.site, c->side[side].arm, r->digest, c->h->sites[c->f.site].width,
                          &y, err);
}

/* The expert of the first drifting row that chose the same one on both sides. */
static int first_expert(struct ds_case *c, struct ds_site_row *const rows[DS_SIDES],
                        const size_t n[DS_SIDES], int dumped, struct ds_error *err)
{
    for (size_t i = 0; i < n[DS_SIDE_B] && c->expert < 0; i++) {
        const struct ds_site_row *b = &rows[DS_SIDE_B][i],
                                 *a = ds_site_find_row(rows[DS_SIDE_A], n[DS_SIDE_A], &b->key);
        int32_t of[DS_SIDES] = {-1, -1};
        int rc = a && a->digest != b->digest;
        for (int side = 0; side < DS_SIDES && rc == 1; side++) {
            rc = dumped ? is_dumped(c, side, side == DS_SIDE_A ? a : b, err) : 1;
            if (rc == 1)
                rc = expert_of(c, side, &b->key, c->choice, &of[side], err);
        }
        if (rc < 0)
            return -1;
        if (rc == 1 && of[DS_SIDE_A] == of[DS_SIDE_B])
            c->expert = of[DS_SIDE_A];
    }
    return 0;
}

int ds_case_choose_expert(struct ds_case *c, struct ds_error *err)
{
    const struct ds_site *s = &c->h->sites[c->f.site];
    struct ds_site_row *rows[DS_SIDES] = {NULL, NULL};
    size_t n[DS_SIDES] = {0, 0};
    int rc = 0;
    c->expert = -1;
    c->choice = number_of_choice(s->part);
    if (c->choice < 0 || c->e.op != DS_OP_MATMUL)
        return 0; /* what is done to a row is alike for all experts */
    for (int side = 0; side < DS_SIDES && rc == 0; side++)
        rc = ds_site_rows(c->side[side].t, c->f.site, &rows[side], &n[side], err);
    for (int dumped = 1; dumped >= 0 && rc == 0 && c->expert < 0; dumped--)
        rc = first_expert(c, rows, n, dumped, err);
    free(rows[0]);
    free(rows[1]);
    if (rc != 0 || c->expert >= 0)
        return rc;
    ds_fail(err,
            "layer %d %.24s/%.12s: the record has no row that went to the same expert on both "
            "sides, or not its choices",
            s->layer, s->stage, s->part);
    return ds_hint(err,
                   "other experts are a matter of layer %d router_ids; record with --dump all to "
                   "have the choices of all rows",
                   s->layer);
}

int ds_case_same_expert(struct ds_case *c, int side, const struct ds_row *key, struct ds_error *err)
{
    int32_t expert = -1;
    if (c->expert < 0)
        return 1;
    int rc = expert_of(c, side, key, c->choice, &expert, err);
    return rc < 0 ? -1 : rc == 1 && expert == c->expert;
}

/* Rows of the same call whose choice, whichever it was, went to the expert: those before the row, and
 * all. Where choices are not dumped the launch of the part tells: it was the row's own. */
struct of_expert {
    int64_t before, all;
};

static int count_part(struct ds_case *c, int side, const struct ds_site_row *r, uint32_t site,
                      int32_t choice, struct of_expert *n, struct ds_error *err)
{
    struct ds_site_row *rows;
    size_t n_rows;
    if (ds_site_rows(c->side[side].t, site, &rows, &n_rows, err) != 0)
        return -1;
    int rc = 0;
    for (size_t i = 0; i < n_rows && rc >= 0; i++) {
        int32_t expert = -1;
        if (rows[i].key.call != r->key.call || rows[i].launch != r->launch)
            continue;
        rc = expert_of(c, side, &rows[i].key, choice, &expert, err);
        if (rc < 0 || (rc == 1 && expert != c->expert))
            continue;
        n->all++;
        n->before += rows[i].key.slot < r->key.slot;
    }
    free(rows);
    return rc < 0 ? -1 : 0;
}

int ds_case_place_in_expert(struct ds_case *c, int side, const struct ds_site_row *r,
                            struct ds_explain_at *at, struct ds_error *err)
{
    const struct ds_site *own = &c->h->sites[c->f.site];
    const struct ds_call *call = &c->side[side].t->calls[r->key.call];
    struct of_expert n = {0, 0};
    int64_t top_k = 1;
    for (size_t i = 0; i < c->h->n_sites; i++) {
        const struct ds_site *s = &c->h->sites[i];
        const int choice = number_of_choice(s->part);
        if (s->layer != own->layer || choice < 0 || strcmp(s->stage, own->stage) != 0)
            continue;
        top_k = choice + 1 > top_k ? choice + 1 : top_k;
        if (c->expert >= 0 && count_part(c, side, r, (uint32_t)i, choice, &n, err) != 0)
            return -1;
    }
    if (c->expert < 0) { /* all choices of all rows, one after the other */
        at->row = at->rows == (int64_t)call->m * top_k ? r->key.slot * top_k + c->choice : 0;
        return 0;
    }
    /* Rows of other requests are not recorded: as many of them stand before the row as before its
     * sequence in the call. */
    const int64_t others = at->rows > n.all ? at->rows - n.all : 0,
                  rest = (int64_t)call->m - at->q_len;
    at->row = n.before + (rest > 0 ? (at->q_first * others + rest / 2) / rest : 0);
    at->row = at->row < at->rows ? at->row : at->rows - 1;
    return 0;
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* Row `row`'s head h as a row of its own. */
static struct ds_explain_row head_of(const struct ds_case *c, size_t row, int32_t h, int64_t width)
{
    struct ds_explain_row r = c->e.rows[row];
    for (int side = 0; side < DS_SIDES; side++) {
        r.input[side].in[0] += h * width;
        r.y[side] += h * width;
        r.at[side].rows *= c->heads;
        r.at[side].row = r.at[side].row * c->heads + h;
    }
    return r;
}

int ds_case_split_heads(struct ds_case *c, struct ds_error *err)
{
    const size_t heads = (size_t)c->heads, n = c->e.n_rows * heads;
    struct ds_explain_row *rows = ds_calloc(n, sizeof *rows, "rows", err);
    const int64_t width = c->e.shared.rmsnorm.width / c->heads;
    if (!rows)
        return -1;
    for (size_t r = 0; r < c->e.n_rows; r++)
        for (int32_t h = 0; h < c->heads; h++) {
            rows[r * heads + (size_t)h] = head_of(c, r, h, width);
            /* The call's number is that of its first row. */
            for (int side = 0; side < DS_SIDES; side++)
                rows[r * heads + (size_t)h].at[side].call *= (uint32_t)heads;
        }
    free(c->e.rows);
    c->e.rows = rows;
    c->e.n_rows = n;
    c->e.shared.rmsnorm.width = width;
    return 0;
}
