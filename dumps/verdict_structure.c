/* verdict_structure.c: asks structure.h about a finding: gathers the rows of both sides and what the
 * kernel read, from dumped rows. */
#include "dumps/evidence.h"

#include "base/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PADS = 64, MOST_KEYS = 2048, KEYS_AHEAD = 64 };

/* ---- what the kernel read -------------------------------------------------------------------- */

/* One loaded row of the reference arm, by (site, row). */
struct loaded {
    uint32_t site, row;
    struct row_values v;
};

struct gathered {
    const struct evidence *e;
    struct ds_structure_site site;
    struct ds_structure_row rows[EVIDENCE_ROWS];
    struct loaded *loaded;
    size_t n_loaded, cap_loaded;
    const float **keys[2]; /* cached rows of one request by position */
    const float **pads[2]; /* those of padding before it, which this side alone may have */
    uint32_t n_keys, n_pads;
};

/* The values of a row at a site in an arm, as long as g. NULL: not at hand. */
static int load_of(struct gathered *g, uint32_t arm, uint32_t site, uint32_t row, uint32_t width,
                   const float **out, struct ds_error *err)
{
    const struct ds_analysis *a = g->e->a;
    const struct arm_table *t = &a->arms[arm];
    size_t cell = (size_t)site * a->n_rows + row;
    *out = NULL;
    if (t->state[cell] != CELL_STABLE)
        return 0;
    for (size_t i = 0; i < g->n_loaded; i++)
        if (g->loaded[i].site == site && g->loaded[i].row == row) {
            *out = g->loaded[i].v.value;
            return 0;
        }
    struct row_values v;
    int rc = values_of(a, t->digest[cell], &v, err);
    if (rc != 1)
        return rc;
    if (v.n != width ||
        ds_grow(&g->loaded, &g->cap_loaded, g->n_loaded + 1, sizeof *g->loaded, "inputs", err)) {
        rc = v.n != width ? 0 : -1;
        values_free(&v);
        return rc;
    }
    g->loaded[g->n_loaded++] = (struct loaded){site, row, v};
    *out = v.value;
    return 0;
}

/* What both read. */
static int load(struct gathered *g, uint32_t site, uint32_t row, uint32_t width, const float **out,
                struct ds_error *err)
{
    return load_of(g, g->e->given, site, row, width, out, err);
}

/* The input that has the output's shape: what is normalised, rotated, or asks for keys. */
static uint32_t main_input(const struct ds_analysis *a, uint32_t site, uint32_t width)
{
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++)
        if (a->in_kind[e] == DS_EDGE_ROW && a->h->sites[a->in_from[e]].width == width &&
            strcmp(a->h->sites[a->in_from[e]].dtype, "i32") != 0)
            return a->in_from[e];
    return NONE;
}

static uint32_t cached_input(const struct ds_analysis *a, uint32_t site, const char *part)
{
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++)
        if (a->in_kind[e] == DS_EDGE_CAUSAL && strcmp(a->h->sites[a->in_from[e]].part, part) == 0)
            return a->in_from[e];
    return NONE;
}

/* Row i of the request, computed for the first time in that arm: 1 a token, 2 padding before it; 0: none. */
static int is_row_of(const struct ds_analysis *a, uint32_t arm, uint32_t i, int32_t request)
{
    if (a->keys[i].request != request || a->keys[i].occurrence != 0 || a->arms[arm].row[i] == NONE)
        return 0;
    return arm_row(&a->arms[arm], i)->kind == DS_ROW_PAD ? 2 : 1;
}

/* The position at which the request begins: not 0 behind a position offset. */
static int32_t first_position(const struct ds_analysis *a, uint32_t arm, int32_t request)
{
    int32_t first = INT32_MAX;
    for (uint32_t i = 0; i < a->n_rows; i++)
        if (is_row_of(a, arm, i, request) == 1 && a->keys[i].position < first)
            first = a->keys[i].position;
    return first == INT32_MAX || first < 0 ? 0 : first;
}

/* What padding before the request left in the cache of this side; keys are in ascending order. */
static int load_pads(struct gathered *g, uint32_t k, uint32_t v, int32_t request,
                     struct ds_error *err)
{
    const struct ds_analysis *a = g->e->a;
    const uint32_t arm = g->e->f->arm, width = a->h->sites[k].width;
    uint32_t n = 0, at = 0;
    for (uint32_t i = 0; i < a->n_rows; i++)
        n += is_row_of(a, arm, i, request) == 2;
    if (n == 0 || n > MOST_PADS)
        return 0;
    for (int side = 0; side < 2; side++)
        if (!(g->pads[side] = ds_calloc(n, sizeof *g->pads[side], "cached rows", err)))
            return -1;
    for (uint32_t i = 0; i < a->n_rows; i++) {
        if (is_row_of(a, arm, i, request) != 2)
            continue;
        if (load_of(g, arm, k, i, width, &g->pads[0][at], err) != 0 ||
            load_of(g, arm, v, i, width, &g->pads[1][at], err) != 0)
            return -1;
        at++;
    }
    g->n_pads = n;
    return 0;
}

/* Keys and values of the first row's request. */
static int load_keys(struct gathered *g, struct ds_error *err)
{
    const struct ds_analysis *a = g->e->a;
    uint32_t k = cached_input(a, g->e->f->site, "k"), v = cached_input(a, g->e->f->site, "v");
    const uint32_t ref = g->e->f->ref_arm;
    int32_t request = a->keys[g->e->rows[0].row].request, last = 0;
    g->site.first = first_position(a, ref, request);
    if (k == NONE || v == NONE || a->h->head_dim <= 0)
        return 0;
    for (size_t r = 0; r < g->e->n_rows; r++) {
        g->rows[r].position -= g->site.first;
        last = g->rows[r].position > last ? g->rows[r].position : last;
    }
    uint32_t width = a->h->sites[k].width;
    g->n_keys = last < MOST_KEYS ? (uint32_t)last + 1 + KEYS_AHEAD : 0;
    for (int side = 0; side < 2; side++)
        if (!(g->keys[side] = ds_calloc(g->n_keys, sizeof *g->keys[side], "cached rows", err)))
            return -1;
    for (uint32_t i = 0; i < a->n_rows; i++) {
        const int64_t at = (int64_t)a->keys[i].position - g->site.first;
        if (is_row_of(a, ref, i, request) != 1 || at < 0 || at >= g->n_keys)
            continue;
        if (load(g, k, i, width, &g->keys[0][at], err) != 0 ||
            load(g, v, i, width, &g->keys[1][at], err) != 0)
            return -1;
    }
    if (load_pads(g, k, v, request, err) != 0)
        return -1;
    g->site.kv_heads = width / (uint32_t)a->h->head_dim;
    for (size_t r = 0; r < g->e->n_rows; r++)
        if (a->keys[g->e->rows[r].row].request == request) {
            g->rows[r].k = g->keys[0];
            g->rows[r].v = g->keys[1];
            g->rows[r].n_keys = g->n_keys;
            g->rows[r].pad_k = g->pads[0];
            g->rows[r].pad_v = g->pads[1];
            g->rows[r].n_pads = g->n_pads;
        }
    return 0;
}

/* The row of the same request one position before (behind 0) or after, in the arm whose rows were read; NONE. */
static uint32_t row_beside(const struct gathered *g, uint32_t row, int behind)
{
    const struct ds_analysis *a = g->e->a;
    for (uint32_t i = 0; i < a->n_rows; i++)
        if (a->keys[i].position == a->keys[row].position + (behind ? 1 : -1) &&
            is_row_of(a, g->e->given, i, a->keys[row].request) == 1)
            return i;
    return NONE;
}

static int load_beside(struct gathered *g, uint32_t site, size_t r, uint32_t k, uint32_t weights,
                       struct ds_error *err)
{
    for (int behind = 0; behind < 2; behind++) {
        const uint32_t row = row_beside(g, g->e->rows[r].row, behind);
        if (row != NONE &&
            load(g, site, row, g->e->width, &g->rows[r].term_beside[behind][k], err) != 0)
            return -1;
        if (row != NONE && weights != NONE &&
            load(g, weights, row, g->e->a->h->sites[weights].width,
                 &g->rows[r].weight_beside[behind], err) != 0)
            return -1;
    }
    return 0;
}

/* What a sum of a few rows adds up, with the weights of experts where those are at hand. */
static int load_terms(struct gathered *g, struct ds_error *err)
{
    const struct ds_analysis *a = g->e->a;
    const uint32_t site = g->e->f->site;
    uint32_t weights = NONE;
    int weighted = strcmp(a->h->sites[site].op, "combine") == 0;
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++)
        if (weighted && strcmp(a->h->sites[a->in_from[e]].part, "weights") == 0)
            weights = a->in_from[e];
    for (uint32_t e = a->in_start[site]; e < a->in_start[site + 1]; e++) {
        const struct ds_site *from = &a->h->sites[a->in_from[e]];
        const uint32_t k = g->site.n_terms;
        if (a->in_kind[e] != DS_EDGE_ROW || from->width != g->e->width ||
            a->in_from[e] == weights || strcmp(from->dtype, "i32") == 0 || k == DS_STRUCTURE_TERMS)
            continue;
        snprintf(g->site.term_name[k], sizeof g->site.term_name[k], "%s%s%s", from->stage,
                 from->part[0] ? "/" : "", from->part);
        for (size_t r = 0; r < g->e->n_rows; r++) {
            const float *weight = NULL;
            const uint32_t row = g->e->rows[r].row;
            if (load(g, a->in_from[e], row, g->e->width, &g->rows[r].term[k], err) != 0 ||
                load_beside(g, a->in_from[e], r, k, weights, err) != 0)
                return -1;
            if (weights != NONE &&
                load(g, weights, row, a->h->sites[weights].width, &weight, err) != 0)
                return -1;
            if (weighted && (!weight || k >= a->h->sites[weights].width))
                g->rows[r].term[k] = NULL;
            g->rows[r].term_weight[k] = weighted && g->rows[r].term[k] ? weight[k] : 1.0f;
        }
        g->site.n_terms++;
    }
    return 0;
}

static double hparam(const struct ds_header *h, const char *name)
{
    for (size_t i = 0; i < h->n_hparams; i++)
        if (strcmp(h->hparams[i].name, name) == 0)
            return strtod(h->hparams[i].value, NULL);
    return 0;
}

static int32_t last_position(const struct evidence *e)
{
    int32_t last = 0;
    for (size_t r = 0; r < e->n_rows; r++)
        last =
            e->a->keys[e->rows[r].row].position > last ? e->a->keys[e->rows[r].row].position : last;
    return last;
}

/* The run's --page-size; 0: one page a request. */
static uint32_t page_size(const struct ds_header *h)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, "page_size") == 0) {
            const double page = strtod(h->options[i].value, NULL);
            return page > 0 && page < 1 << 20 ? (uint32_t)page : 0;
        }
    return 0;
}

struct ds_structure_site structure_site(const struct evidence *e, double terms)
{
    const struct ds_header *h = e->a->h;
    int op = ds_structure_op(h->sites[e->f->site].op);
    double dim = hparam(h, "rope_dim");
    return (struct ds_structure_site){
        .op = op,
        .dtype = e->dtype,
        .width = e->width,
        .head_dim = e->head_dim,
        .order = ds_structure_order(op, terms, last_position(e)),
        .eps = hparam(h, "rms_eps"),
        .rope_base = hparam(h, "rope_base"),
        .rope_dim = dim > 0 && dim <= e->head_dim ? (uint32_t)dim : 0,
        .page = page_size(h),
    };
}

/* Sums of a few rows, and the gated unit, which multiplies two. */
static int joins_rows(const struct ds_site *s)
{
    return strcmp(s->op, "add") == 0 || strcmp(s->op, "allreduce") == 0 ||
           strcmp(s->op, "combine") == 0 || strcmp(s->op, "silu_mul") == 0;
}

/* What a router's weights were made of. */
static int load_logits(struct gathered *g, struct ds_error *err)
{
    const struct ds_analysis *a = g->e->a;
    const struct ds_site *s = &a->h->sites[g->e->f->site];
    uint32_t from = NONE;
    if (strcmp(s->op, "router") != 0 || strcmp(s->part, "weights") != 0)
        return 0;
    for (uint32_t e = a->in_start[g->e->f->site]; e < a->in_start[g->e->f->site + 1]; e++)
        if (a->in_kind[e] == DS_EDGE_ROW && !a->h->sites[a->in_from[e]].part[0] &&
            strcmp(a->h->sites[a->in_from[e]].stage, "router_logits") == 0)
            from = a->in_from[e];
    if (from == NONE)
        return 0;
    g->site.n_logits = a->h->sites[from].width;
    for (size_t r = 0; r < g->e->n_rows; r++)
        if (load(g, from, g->e->rows[r].row, g->site.n_logits, &g->rows[r].logits, err) != 0)
            return -1;
    return 0;
}

static int gather(struct gathered *g, struct ds_error *err)
{
    const struct evidence *e = g->e;
    const struct ds_analysis *a = e->a;
    int op = ds_structure_op(a->h->sites[e->f->site].op);
    uint32_t input = op == DS_STRUCTURE_OTHER ? NONE : main_input(a, e->f->site, e->width);
    g->site = e->site;
    for (size_t r = 0; r < e->n_rows; r++) {
        g->rows[r] = (struct ds_structure_row){.mine = e->rows[r].mine.value,
                                               .ref = e->rows[r].ref.value,
                                               .position = a->keys[e->rows[r].row].position};
        if (input != NONE && load(g, input, e->rows[r].row, e->width, &g->rows[r].input, err) != 0)
            return -1;
    }
    if ((joins_rows(&a->h->sites[e->f->site]) && load_terms(g, err) != 0) ||
        load_logits(g, err) != 0)
        return -1;
    g->site.gated = strcmp(a->h->sites[e->f->site].op, "silu_mul") == 0 && g->site.n_terms == 2;
    return op == DS_STRUCTURE_ATTENTION ? load_keys(g, err) : 0;
}

/* Whether any element differs by more than the sign of a zero or the bits of a NaN; where no values
 * are at hand, it may. */
static int values_differ(const struct evidence *e)
{
    for (size_t r = 0; r < e->n_rows; r++)
        for (uint32_t i = 0; i < e->width; i++) {
            float x = e->rows[r].mine.value[i], y = e->rows[r].ref.value[i];
            if (x != y && !(isnan(x) && isnan(y)))
                return 1;
        }
    return e->n_rows == 0;
}

int structure_finding(const struct evidence *e, const struct chosen *c, struct ds_finding *f,
                      struct ds_structure *out, struct ds_error *err)
{
    struct gathered *g = ds_calloc(1, sizeof *g, "evidence", err);
    memset(out, 0, sizeof *out);
    if (!g)
        return -1;
    g->e = e;
    int rc = 0;
    if (e->n_rows) {
        rc = gather(g, err);
        if (rc == 0)
            rc = ds_structure_find(&g->site, g->rows, e->n_rows, out, err);
    }
    for (size_t i = 0; i < g->n_loaded; i++)
        values_free(&g->loaded[i].v);
    free(g->loaded);
    free(g->keys[0]);
    free(g->keys[1]);
    free(g->pads[0]);
    free(g->pads[1]);
    free(g);
    if (rc != 0)
        return -1;
    char place[DS_STRUCTURE_TEXT] = "";
    /* Values that are equal, and NaNs, stand everywhere: their place says nothing. */
    double share = 0;
    if (!out->blank && !e->nonfinite && values_differ(e))
        share = find_misplaced(e->a, f, c, place, sizeof place);
    /* What holds for some rows by chance does not outweigh what explains them all; and which keys a row of attention
     * saw is why it holds what another row does. */
    const int seen = out->found && e->site.op == DS_STRUCTURE_ATTENTION;
    if (place[0] && !seen && share > (out->found ? 0.5 : 0.25)) {
        out->precision = out->algorithm = 0;
        out->found = 1;
        out->ratio = 0;
        memcpy(out->text, place, sizeof out->text);
    }
    if (out->found)
        snprintf(f->structure, sizeof f->structure, "%s", out->text);
    f->ratio = out->ratio;
    return 0;
}
