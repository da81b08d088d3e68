/* verb_order.c: `driftscope order OP[/VARIANT]`: in which order a kernel adds. Owns the options, the
 * list of what is measured, and the answer's last line; the measuring is kernels/lab/order. */
#include "cli/options.h"

#include "base/mem.h"
#include "base/names.h"
#include "base/team.h"
#include "cli/json.h"
#include "cli/lab_kernels.h"
#include "cli/lab_shapes.h"
#include "cli/render_order.h"
#include "kernels/registry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 512, MOST_ROW_COUNTS = 512 };

struct order {
    const struct ds_options *o;
    int op;
    const struct ds_kernel **kernel; /* the variants measured */
    size_t n_kernels;
    struct ds_shape *shape;
    size_t n_shapes;
    int64_t rows[MOST_ROW_COUNTS];
    size_t n_rows;
    int64_t threads, visible, queries;
    int stored; /* enum ds_element: f32, bf16 */
    struct ds_team *team;
    char model[256];
    struct ds_buf text, dot;
    json_t *results;
    struct ds_order_total total;
    const char *unfixed; /* the first variant without a fixed order */
};

/* ---- what is asked for ----------------------------------------------------------------------- */

/* "1-64", "1,2,5-9": ascending or not, each once as given. */
static int parse_rows(struct order *v, struct ds_error *err)
{
    const char *text = ds_opt_text(v->o, "rows"), *p = text;
    while (*p) {
        char *end;
        errno = 0;
        long long from = strtoll(p, &end, 10), to = from;
        int ok = end != p && *p >= '0' && *p <= '9' && !errno;
        if (ok && *end == '-') {
            p = end + 1;
            to = strtoll(p, &end, 10);
            ok = end != p && *p >= '0' && *p <= '9' && !errno;
        }
        if (!ok || from < 1 || to < from || to > MOST_ROWS || (*end && *end != ',') ||
            (*end == ',' && !end[1])) {
            ds_fail(err, "--rows: '%.60s' is no list of row counts 1..%d", text, MOST_ROWS);
            return ds_hint(err, "for example --rows 1-64, or --rows 1,2,8");
        }
        for (; from <= to; from++) {
            if (v->n_rows == MOST_ROW_COUNTS)
                return ds_fail(err, "--rows: more than %d row counts", MOST_ROW_COUNTS);
            v->rows[v->n_rows++] = from;
        }
        p = *end ? end + 1 : end;
    }
    return v->n_rows ? 0 : ds_fail(err, "--rows: no row count is given");
}

static int unknown_op(const char *word, struct ds_error *err)
{
    const char *names[DS_OP_COUNT];
    int n = 0;
    for (int op = 0; op < DS_OP_COUNT; op++)
        if (ds_order_knows(op))
            names[n++] = ds_op_name(op);
    int near = ds_nearest(word, names, (size_t)n);
    ds_fail(err, ds_op_parse(word) >= 0 ? "%.40s adds nothing up" : "unknown op '%.40s'", word);
    struct ds_buf known = {0};
    for (int i = 0; i < n; i++)
        ds_buf_printf(&known, "%s%s", i ? ", " : "", names[i]);
    if (near >= 0)
        ds_hint(err, "did you mean %s?", names[near]);
    else
        ds_hint(err, "an order of addition have: %s", known.data ? known.data : "");
    ds_buf_free(&known);
    return -1;
}

static int unknown_variant(int device, int op, const char *variant, struct ds_error *err)
{
    struct ds_buf known = {0};
    const struct ds_kernel *k;
    for (size_t i = 0; (k = ds_kernel_at_on(device, i)); i++)
        if (k->op == op)
            ds_buf_printf(&known, "%s%s", known.len ? ", " : "", k->name);
    ds_fail(err, "%s has no variant '%.40s'", ds_op_name(op), variant);
    ds_hint(err, "it has: %s", known.data ? known.data : "");
    ds_buf_free(&known);
    return -1;
}

/* OP[/VARIANT]: one variant, which must run here, or all of the op that do. */
static int choose_kernels(struct order *v, struct ds_error *err)
{
    const char *operand = ds_opt_operand(v->o, 0), *slash = strchr(operand, '/');
    const int device = ds_lab_device(v->o);
    const struct ds_kernel *k;
    char word[64], why[512] = "";
    snprintf(word, sizeof word, "%.*s", slash ? (int)(slash - operand) : 63, operand);
    v->op = ds_op_parse(word);
    if (v->op < 0 || !ds_order_knows(v->op))
        return unknown_op(word, err);
    v->stored = strcmp(ds_opt_text(v->o, "dtype"), "bf16") == 0 ? DS_ELEMENT_BF16 : DS_ELEMENT_F32;
    if (v->stored != DS_ELEMENT_F32 && (v->op != DS_OP_MATMUL || device == DS_DEVICE_CPU))
        return ds_fail(err, "--dtype bf16 is for matmul on a device: all else adds up f32 numbers");
    v->kernel =
        ds_calloc(ds_kernel_count_on(device), sizeof(const struct ds_kernel *), "variants", err);
    if (!v->kernel)
        return -1;
    if (slash && !ds_kernel_find_on(device, v->op, slash + 1))
        return unknown_variant(device, v->op, slash + 1, err);
    for (size_t i = 0; (k = ds_kernel_at_on(device, i)); i++) {
        if (k->op != v->op || (slash && strcmp(k->name, slash + 1) != 0))
            continue;
        if (v->stored != DS_ELEMENT_F32 && !(k->features & DS_FEATURE_STORED)) {
            if (slash)
                return ds_fail(err, "%s/%s takes no rows of 16 bits", word, k->name);
            continue;
        }
        if (ds_kernel_available(k, why, sizeof why) == 0)
            v->kernel[v->n_kernels++] = k;
        else if (slash)
            return ds_fail(err, "%s/%s cannot run here: %s", word, k->name, why);
        else
            ds_cli_note(v->o, "%s/%s cannot run here: %s", word, k->name, why);
    }
    return v->n_kernels ? 0 : ds_fail(err, "no variant of %s can run here", word);
}

static int open_core(const struct order *v, struct ds_error *err)
{
    const char *core = ds_opt_text(v->o, "blas-core");
    if (core && (ds_blas_core_known(core, err) != 0 || ds_blas_open(core, err) != 0))
        return -1;
    return 0;
}

/* Where the graph goes is looked at before anything is measured. */
static int check_dot(const struct order *v, struct ds_error *err)
{
    const char *path = ds_opt_text(v->o, "dot"), *result = ds_opt_text(v->o, "output");
    if (!path)
        return 0;
    if (strcmp(path, "-") == 0) {
        ds_fail(err, "--dot: the graph goes to a file, not to stdout");
        return ds_hint(err, "--dot /dev/stdout -o FILE has the graph on stdout");
    }
    if (result && strcmp(path, result) == 0)
        return ds_fail(err, "--dot and -o name the same file");
    return ds_cli_check_file(path, err);
}

static int setup(struct order *v, struct ds_error *err)
{
    if (ds_lab_choose_device(v->o, err) != 0 || ds_lab_choose_graphs(v->o, err) != 0 ||
        check_dot(v, err) != 0 || choose_kernels(v, err) != 0 || parse_rows(v, err) != 0 ||
        ds_opt_int(v->o, "threads", 1, 1024, &v->threads, err) != 0 ||
        ds_opt_int(v->o, "kv", 1, 65536, &v->visible, err) != 0 ||
        ds_opt_int(v->o, "qlen", 1, 512, &v->queries, err) != 0 || open_core(v, err) != 0 ||
        ds_lab_shapes(v->o, v->op, &v->shape, &v->n_shapes, v->model, sizeof v->model, err) != 0)
        return -1;
    v->team = ds_team_new((int)v->threads, err);
    return v->team ? 0 : -1;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static int measure_rows(struct order *v, struct ds_order_table *t, struct ds_error *err)
{
    struct ds_order_setting s = {.kernel = t->kernel,
                                 .shape = t->shape,
                                 .visible = v->visible,
                                 .queries = v->queries,
                                 .threads = (int)v->threads,
                                 .team = v->team,
                                 .stored = v->stored,
                                 .whole = 1};
    for (; t->n_rows < v->n_rows; t->n_rows++) {
        ds_cli_progress(v->o, t->kernel->name, (double)t->n_rows, (double)v->n_rows);
        s.rows = v->rows[t->n_rows];
        if (ds_order_measure(&s, &t->lib, &t->at[t->n_rows], err) != 0) {
            ds_order_free(&t->at[t->n_rows]);
            return -1;
        }
    }
    return 0;
}

static void add_dot(struct order *v, const struct ds_order_table *t)
{
    for (size_t i = 0; i < t->lib.n; i++) {
        struct ds_buf name = {0};
        char letter[8];
        ds_order_letter(i, letter);
        ds_buf_printf(&name, "%s/%s ", ds_op_name(t->kernel->op), t->kernel->name);
        ds_shape_print(&name, &t->shape);
        ds_buf_printf(&name, " %s", letter);
        ds_tree_dot(&v->dot, t->lib.tree[i], name.data ? name.data : "");
        ds_buf_free(&name);
    }
}

static int measure_table(struct order *v, const struct ds_kernel *k, const struct ds_shape *shape,
                         struct ds_error *err)
{
    struct ds_order_table t = {.kernel = k,
                               .shape = *shape,
                               .threads = (int)v->threads,
                               .stored = v->stored,
                               .visible = v->op == DS_OP_ATTENTION ? v->visible : 0,
                               .queries = v->op == DS_OP_ATTENTION ? v->queries : 0,
                               .rows = v->rows,
                               .core = strcmp(k->name, "openblas") ? "" : ds_blas_core()};
    struct ds_order_total own = {0};
    t.at = ds_calloc(v->n_rows, sizeof *t.at, "results", err);
    int rc = t.at ? measure_rows(v, &t, err) : -1;
    if (rc == 0) {
        if (strcmp(k->name, "openblas") == 0)
            t.core = ds_blas_core();
        ds_order_count(&t, &own);
        ds_order_count(&t, &v->total);
        if (own.unfixed && !v->unfixed)
            v->unfixed = k->name;
        ds_order_text(&v->text, v->o, &t);
        json_array_append_new(v->results, ds_order_json(&t));
        add_dot(v, &t);
    }
    for (size_t i = 0; i < t.n_rows; i++)
        ds_order_free(&t.at[i]);
    free(t.at);
    ds_order_library_free(&t.lib);
    return rc;
}

static int measure_all(struct order *v, struct ds_error *err)
{
    int rc = 0;
    for (size_t k = 0; k < v->n_kernels && rc == 0; k++)
        for (size_t s = 0; s < v->n_shapes && rc == 0; s++)
            rc = measure_table(v, v->kernel[k], &v->shape[s], err);
    ds_cli_progress(v->o, "", -1, 0);
    return rc;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static const char *result(const struct order *v)
{
    const struct ds_order_total *t = &v->total;
    return t->unfixed                                                    ? "not-fixed"
           : t->unmeasured || t->unproven || t->reproduced < t->compared ? "not-reproduced"
                                                                         : "reproduced";
}

static void last_line(struct order *v)
{
    const struct ds_order_total *t = &v->total;
    char share[32];
    ds_order_share(share, sizeof share, t->reproduced, t->compared);
    ds_buf_printf(&v->text, "order: %s: ", ds_opt_operand(v->o, 0));
    if (v->unfixed)
        ds_buf_printf(&v->text, "%s has no fixed order; ", v->unfixed);
    ds_buf_printf(&v->text, "%zu tree%s; replaying them gives %s of the outputs bit for bit\n",
                  t->n_trees, t->n_trees == 1 ? "" : "s", t->compared ? share : "none");
}

static int write_dot(const struct order *v, struct ds_error *err)
{
    const char *path = ds_opt_text(v->o, "dot");
    if (!path)
        return 0;
    return v->dot.failed ? ds_fail(err, "out of memory for the graph")
                         : ds_cli_write_file(path, &v->dot, err);
}

static int write_json(struct order *v, struct ds_error *err)
{
    const struct ds_order_total *t = &v->total;
    ds_json_begin();
    json_t *top = json_pack("{s:s,s:s,s:b,s:o,s:s,s:O}", "schema", "driftscope.order/1", "result",
                            result(v), "fixed", t->unfixed == 0, "reproduced",
                            t->compared ? json_real((double)t->reproduced / (double)t->compared)
                                        : json_null(),
                            "model", v->model, "kernels", v->results);
    ds_buf_free(&v->text);
    return ds_json_print_line(top, &v->text, err);
}

static int answer(struct order *v, struct ds_error *err)
{
    last_line(v);
    if (write_dot(v, err) != 0 || (ds_opt_flag(v->o, "json") && write_json(v, err) != 0))
        return -1;
    return ds_cli_emit(v->o, &v->text, err);
}

int ds_verb_order(const struct ds_options *o)
{
    struct order v = {.o = o, .results = json_array()};
    struct ds_error err = {{0}, {0}};
    int rc = v.results ? setup(&v, &err) : ds_fail(&err, "out of memory");
    if (rc == 0)
        rc = measure_all(&v, &err);
    if (rc == 0)
        rc = answer(&v, &err);
    int whole = strcmp(result(&v), "reproduced") == 0;
    ds_team_free(v.team);
    json_decref(v.results);
    ds_buf_free(&v.text);
    ds_buf_free(&v.dot);
    free(v.shape);
    free(v.kernel);
    if (rc != 0)
        return ds_cli_error(o, &err);
    return whole ? DS_EXIT_SAME : DS_EXIT_DRIFT;
}
