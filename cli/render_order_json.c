/* render_order_json.c: measured orders as JSON (schema driftscope.order/1). Measures nothing. */
#include "cli/json.h"
#include "cli/render_order.h"

#include "kernels/registry.h"

static const char *join_name(const struct ds_tree *t)
{
    int fused = ds_tree_all_fused(t);
    return !t->joins ? "unknown" : fused > 0 ? "fma" : fused == 0 ? "mul+add" : "mixed";
}

/* Postorder: a leaf is its term, a sum is minus the number of its children. */
static json_t *postorder(const struct ds_tree *t)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < t->n; i++)
        json_array_append_new(
            list, json_integer(t->node[i].term >= 0 ? t->node[i].term : -t->node[i].children));
    return list;
}

/* What a term of the tree is called: by the first sum that uses it. */
static const char *unit_of(const struct ds_order_table *t, int32_t tree)
{
    for (size_t i = 0; i < t->n_rows; i++)
        for (int s = 0; s < t->at[i].n_sums; s++)
            for (size_t c = 0; c < t->at[i].sum[s].n_classes; c++)
                if (t->at[i].sum[s].classes[c].tree == tree)
                    return t->at[i].sum[s].unit;
    return "terms";
}

static json_t *tree_json(const struct ds_order_table *table, size_t i)
{
    const struct ds_tree *t = table->lib.tree[i];
    static const char *const inputs[] = {"f32", "tf32", "tf32-cut", "bf16", "tf32-away"};
    static const char *const compensation[] = {"none", "kahan", "errors", "product-errors"};
    struct ds_buf words = {0};
    char letter[8];
    ds_order_letter(i, letter);
    ds_tree_words(&words, t, unit_of(table, (int32_t)i));
    json_t *j = json_pack("{s:s,s:o,s:I,s:i,s:i,s:s,s:s,s:s,s:s,s:b,s:o}", "name", letter, "digest",
                          ds_json_digest(t->digest), "terms", (json_int_t)t->terms, "depth",
                          (int)t->depth, "multiway_nodes", (int)ds_tree_multiway(t), "words",
                          words.data ? words.data : "", "join", join_name(t), "inputs",
                          inputs[t->inputs], "compensation", compensation[t->compensated],
                          "starts_from_zero", t->zero_start, "postorder", postorder(t));
    ds_buf_free(&words);
    return j;
}

static json_t *class_json(const struct ds_order_table *t, const struct ds_order_class *c)
{
    return json_pack("{s:o,s:I,s:I,s:I,s:I,s:I,s:o}", "tree",
                     c->tree < 0 ? json_null() : ds_json_digest(t->lib.tree[c->tree]->digest),
                     "outputs", (json_int_t)c->positions, "row", (json_int_t)c->row, "column",
                     (json_int_t)c->column, "compared", (json_int_t)c->compared, "reproduced",
                     (json_int_t)c->reproduced, "why", ds_json_text(c->why));
}

static json_t *share(uint64_t part, uint64_t of)
{
    return of ? json_real((double)part / (double)of) : json_null();
}

static json_t *sum_json(const struct ds_order_table *t, size_t i, int s)
{
    const struct ds_order_sum *u = &t->at[i].sum[s];
    json_t *classes = json_array();
    for (size_t c = 0; c < u->n_classes; c++)
        json_array_append_new(classes, class_json(t, &u->classes[c]));
    return json_pack("{s:I,s:s,s:s,s:I,s:b,s:i,s:i,s:I,s:I,s:o,s:I,s:o}", "rows",
                     (json_int_t)t->rows[i], "sum", u->name, "note", u->note, "terms",
                     (json_int_t)u->terms, "fixed", u->fixed, "repeats", u->repeats, "agreeing",
                     u->agreeing, "compared", (json_int_t)u->compared, "reproduced_outputs",
                     (json_int_t)u->reproduced, "reproduced", share(u->reproduced, u->compared),
                     "launches", (json_int_t)t->at[i].launches, "classes", classes);
}

/* Attention's outputs on random scores; null where there is nothing of the kind. */
static json_t *whole_json(const struct ds_order_table *t)
{
    uint64_t compared = 0, reproduced = 0;
    const char *way = "", *why = "";
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct ds_order_whole *w = &t->at[i].whole;
        compared += w->compared;
        reproduced += w->reproduced;
        way = w->way[0] ? w->way : way;
        why = w->why[0] ? w->why : why;
    }
    if (!way[0] && !why[0])
        return json_null();
    return json_pack("{s:s,s:s,s:I,s:I}", "way", way, "not_replayed", why, "compared",
                     (json_int_t)compared, "reproduced_outputs", (json_int_t)reproduced);
}

json_t *ds_order_json(const struct ds_order_table *t)
{
    struct ds_buf shape = {0};
    struct ds_order_total sum = {0};
    json_t *trees = json_array(), *sums = json_array();
    for (size_t i = 0; i < t->lib.n; i++)
        json_array_append_new(trees, tree_json(t, i));
    for (size_t i = 0; i < t->n_rows; i++)
        for (int s = 0; s < t->at[i].n_sums; s++)
            json_array_append_new(sums, sum_json(t, i, s));
    ds_shape_print(&shape, &t->shape);
    ds_order_count(t, &sum);
    json_t *j = json_pack(
        "{s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:i,s:s,s:b,s:o,s:o,s:o,s:o}", "op",
        ds_op_name(t->kernel->op), "variant", t->kernel->name, "stages", t->shape.name, "shape",
        shape.data ? shape.data : "", "dtype", t->stored == DS_ELEMENT_BF16 ? "bf16" : "f32", "kv",
        (json_int_t)t->visible, "qlen", (json_int_t)t->queries, "threads", t->threads, "blas_core",
        t->core, "fixed", sum.unfixed == 0, "reproduced", share(sum.reproduced, sum.compared),
        "trees", trees, "sums", sums, "outputs", whole_json(t));
    ds_buf_free(&shape);
    return j;
}
