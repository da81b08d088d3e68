/* render_order.c: measured orders as text: the trees, where each is used, where the row count changes
 * them, and how much of the output they reproduce. Measures nothing. */
#include "cli/render_order.h"

#include "base/dtype.h"
#include "base/plural.h"
#include "kernels/registry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ds_order_letter(size_t i, char out[8])
{
    char rev[8];
    int n = 0, at = 0;
    for (i++; i > 0 && n < 7; i = (i - 1) / 26)
        rev[n++] = (char)('A' + (i - 1) % 26);
    while (n > 0)
        out[at++] = rev[--n];
    out[at] = '\0';
}

void ds_order_share(char *out, size_t size, uint64_t part, uint64_t of)
{
    if (part == of)
        snprintf(out, size, "100 %%");
    else
        snprintf(out, size, "%.2f %%", of ? (double)(part * 10000 / of) / 100 : 0.0);
}

void ds_order_count(const struct ds_order_table *t, struct ds_order_total *sum)
{
    const uint64_t before = sum->compared;
    sum->n_trees += t->lib.n;
    for (size_t i = 0; i < t->n_rows; i++) {
        sum->compared += t->at[i].whole.compared;
        sum->reproduced += t->at[i].whole.reproduced;
        for (int s = 0; s < t->at[i].n_sums; s++) {
            const struct ds_order_sum *u = &t->at[i].sum[s];
            sum->n_sums++;
            sum->unfixed += !u->fixed;
            sum->compared += u->compared;
            sum->reproduced += u->reproduced;
            for (size_t c = 0; c < u->n_classes; c++)
                sum->unmeasured += u->classes[c].tree < 0;
        }
    }
    sum->unproven += t->lib.n > 0 && sum->compared == before;
}

/* ---- where a tree is used -------------------------------------------------------------------- */

/* "0-3, 8" of the marked ones; "" when all are. */
static void ranges(struct ds_buf *b, const char *what, const char *mark, int64_t n)
{
    int64_t marked = 0, shown = 0;
    for (int64_t i = 0; i < n; i++)
        marked += mark[i] != 0;
    if (n == 1) {
        ds_buf_printf(b, " the one %.*s", (int)strlen(what) - 1, what);
        return;
    }
    if (marked == n) {
        ds_buf_printf(b, " all %s", what);
        return;
    }
    ds_buf_printf(b, " %s", what);
    for (int64_t i = 0; i < n; i++) {
        int64_t end = i;
        if (!mark[i])
            continue;
        while (end + 1 < n && mark[end + 1])
            end++;
        if (shown == 4) {
            ds_buf_puts(b, ", ...");
            return;
        }
        ds_buf_printf(b, "%s%lld", shown++ ? "," : " ", (long long)i);
        if (end > i)
            ds_buf_printf(b, "-%lld", (long long)end);
        i = end;
    }
}

/* Rows and columns of the outputs that use a tree, when these are all rows by all columns of two
 * lists; else their number. */
static void where(struct ds_buf *b, const struct ds_order_sum *u, int32_t tree)
{
    char *row = calloc((size_t)u->rows + 1, 1), *column = calloc((size_t)u->columns + 1, 1);
    int64_t n = 0, rows = 0, columns = 0;
    for (int64_t i = 0; i < u->rows * u->columns && row && column; i++)
        if (u->classes[u->class_of[i]].tree == tree) {
            n++;
            row[i / u->columns] = column[i % u->columns] = 1;
        }
    for (int64_t i = 0; i < u->rows && row; i++)
        rows += row[i];
    for (int64_t i = 0; i < u->columns && column; i++)
        columns += column[i];
    if (!row || !column) {
        b->failed = 1;
    } else if (rows * columns == n) {
        ranges(b, "rows", row, u->rows);
        ds_buf_puts(b, ",");
        ranges(b, "columns", column, u->columns);
    } else {
        ds_buf_printf(b, " %lld of the %lld outputs", (long long)n,
                      (long long)(u->rows * u->columns));
    }
    free(row);
    free(column);
}

/* ---- row counts ------------------------------------------------------------------------------ */

/* Whether row 0 (with `all`: every output) is added alike at two row counts. */
static int row0_alike(const struct ds_order_sum *a, const struct ds_order_sum *b)
{
    if (a->fixed != b->fixed || a->columns != b->columns || a->terms != b->terms)
        return 0;
    for (int64_t c = 0; c < a->columns && a->fixed; c++)
        if (a->classes[a->class_of[c]].tree != b->classes[b->class_of[c]].tree)
            return 0;
    return 1;
}

static int uses(const struct ds_order_sum *u, int32_t tree)
{
    for (size_t c = 0; c < u->n_classes; c++)
        if (u->classes[c].tree == tree)
            return 1;
    return 0;
}

/* The trees used, the one of row 0, column 0 first. */
static void letters(struct ds_buf *b, const struct ds_order_table *t, const struct ds_order_sum *u)
{
    const char *comma = "";
    int32_t first = u->classes[u->class_of[0]].tree;
    char letter[8];
    for (int32_t i = -1; i < (int32_t)t->lib.n; i++) {
        int32_t tree = i < 0 ? first : i;
        if ((i >= 0 && i == first) || tree < 0 || !uses(u, tree))
            continue;
        ds_order_letter((size_t)tree, letter);
        ds_buf_printf(b, "%s%s", comma, letter);
        comma = " ";
    }
    if (uses(u, -1))
        ds_buf_printf(b, "%snot measured", comma);
}

static int same_letters(const struct ds_order_table *t, const struct ds_order_sum *a,
                        const struct ds_order_sum *b)
{
    for (int32_t i = -1; i < (int32_t)t->lib.n; i++)
        if (uses(a, i) != uses(b, i))
            return 0;
    return row0_alike(a, b);
}

static void row_span(struct ds_buf *b, const struct ds_order_table *t, size_t from, size_t to)
{
    ds_buf_printf(b, "%lld", (long long)t->rows[from]);
    if (to > from)
        ds_buf_printf(b, "-%lld", (long long)t->rows[to]);
}

/* "row 0: 1-3,12-15 | 4-11": row counts at which its order is the same. */
static void row_classes(struct ds_buf *b, const struct ds_order_table *t, int s)
{
    char *done = calloc(t->n_rows + 1, 1);
    const char *bar = "";
    if (!done) {
        b->failed = 1;
        return;
    }
    ds_buf_puts(b, "  row 0        ");
    for (size_t i = 0; i < t->n_rows; i++) {
        const char *comma = "";
        if (done[i])
            continue;
        ds_buf_puts(b, bar);
        bar = " | ";
        for (size_t j = i; j < t->n_rows; j++) {
            size_t end = j;
            if (!row0_alike(&t->at[i].sum[s], &t->at[j].sum[s]))
                continue;
            while (end + 1 < t->n_rows && t->rows[end + 1] == t->rows[end] + 1 &&
                   row0_alike(&t->at[i].sum[s], &t->at[end + 1].sum[s]))
                end++;
            ds_buf_puts(b, comma);
            comma = ",";
            row_span(b, t, j, end);
            memset(done + j, 1, end - j + 1);
            j = end;
        }
    }
    ds_buf_puts(b, "   (row counts at which its order of addition is the same)\n");
    free(done);
}

static void row_list(struct ds_buf *b, const struct ds_order_table *t, int s)
{
    for (size_t i = 0; i < t->n_rows; i++) {
        size_t end = i, start = b->len;
        const struct ds_order_sum *u = &t->at[i].sum[s];
        while (end + 1 < t->n_rows && t->rows[end + 1] == t->rows[end] + 1 &&
               same_letters(t, u, &t->at[end + 1].sum[s]))
            end++;
        ds_buf_puts(b, "  rows ");
        row_span(b, t, i, end);
        ds_buf_printf(b, "%*s", b->len - start < 14 ? (int)(15 - (b->len - start)) : 1, "");
        if (u->fixed)
            letters(b, t, u);
        else
            ds_buf_puts(b, "no fixed order");
        ds_buf_puts(b, "\n");
        i = end;
    }
}

/* One row count: which outputs use which tree. */
static void one_row_count(struct ds_buf *b, const struct ds_order_table *t,
                          const struct ds_order_sum *u)
{
    char letter[8];
    for (int32_t i = 0; i < (int32_t)t->lib.n; i++)
        if (uses(u, i)) {
            ds_order_letter((size_t)i, letter);
            ds_buf_printf(b, "  %s%-7lld %s:", u->rows == 1 ? "row  " : "rows ", (long long)u->rows,
                          letter);
            where(b, u, i);
            ds_buf_puts(b, "\n");
        }
    for (size_t c = 0; c < u->n_classes; c++)
        if (u->classes[c].tree < 0) {
            ds_buf_printf(b, "  %s%-7lld not measured (%lld output%s): ",
                          u->rows == 1 ? "row  " : "rows ", (long long)u->rows,
                          (long long)u->classes[c].positions, ds_plural(u->classes[c].positions));
            ds_buf_escape(b, u->classes[c].why, (size_t)-1);
            ds_buf_puts(b, "\n");
        }
}

/* ---- the table ------------------------------------------------------------------------------- */

static int used_in(const struct ds_order_table *t, int s, int32_t tree)
{
    for (size_t i = 0; i < t->n_rows; i++)
        if (uses(&t->at[i].sum[s], tree))
            return 1;
    return 0;
}

static void trees(struct ds_buf *b, const struct ds_options *o, const struct ds_order_table *t,
                  int s)
{
    for (size_t i = 0; i < t->lib.n; i++) {
        const struct ds_tree *tree = t->lib.tree[i];
        char letter[8];
        int32_t multiway = ds_tree_multiway(tree);
        if (!used_in(t, s, (int32_t)i))
            continue;
        ds_order_letter(i, letter);
        ds_buf_printf(b, "  %s%-2s%s ", ds_cli_color(o, DS_ROLE_HEAD), letter,
                      ds_cli_color(o, DS_ROLE_PLAIN));
        ds_tree_words(b, tree, t->at[0].sum[s].unit);
        ds_buf_printf(b, "\n     %sdepth %d, digest %016" PRIx64, ds_cli_color(o, DS_ROLE_DIM),
                      tree->depth, tree->digest);
        if (multiway)
            ds_buf_printf(b, ", %d fused sum%s of three or more", multiway,
                          multiway == 1 ? "" : "s");
        ds_buf_printf(b, "%s\n", ds_cli_color(o, DS_ROLE_PLAIN));
    }
}

static void replayed(struct ds_buf *b, const struct ds_options *o, const struct ds_order_table *t,
                     int s)
{
    uint64_t part = 0, of = 0;
    int agreeing = 0, repeats = 0, unfixed = 0;
    char share[32];
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct ds_order_sum *u = &t->at[i].sum[s];
        part += u->reproduced;
        of += u->compared;
        if (!u->fixed && !unfixed++)
            agreeing = u->agreeing, repeats = u->repeats;
    }
    if (unfixed)
        ds_buf_printf(b, "  %sno fixed order%s at %d of %zu row count%s: %d of %d repeats agree\n",
                      ds_cli_color(o, DS_ROLE_UNSTABLE), ds_cli_color(o, DS_ROLE_PLAIN), unfixed,
                      t->n_rows, ds_plural(t->n_rows), agreeing, repeats);
    if (of == 0)
        return;
    ds_order_share(share, sizeof share, part, of);
    ds_buf_printf(b, "  replay       %s%s%s of %" PRIu64 " output%s bit for bit\n",
                  ds_cli_color(o, part == of ? DS_ROLE_SAME : DS_ROLE_DRIFT), share,
                  ds_cli_color(o, DS_ROLE_PLAIN), of, ds_plural(of));
}

/* Outputs that all the sums lead to. */
static void whole(struct ds_buf *b, const struct ds_options *o, const struct ds_order_table *t)
{
    uint64_t part = 0, of = 0;
    const char *why = "", *way = "";
    char share[16];
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct ds_order_whole *w = &t->at[i].whole;
        part += w->reproduced;
        of += w->compared;
        way = w->way[0] ? w->way : way;
        why = w->why[0] ? w->why : why;
    }
    if (way[0]) {
        ds_order_share(share, sizeof share, part, of);
        ds_buf_printf(b, "  outputs      on random scores, %s\n", way);
        ds_buf_printf(b, "  replay       %s%s%s of %" PRIu64 " output%s bit for bit\n",
                      ds_cli_color(o, part == of ? DS_ROLE_SAME : DS_ROLE_DRIFT), share,
                      ds_cli_color(o, DS_ROLE_PLAIN), of, ds_plural(of));
    }
    if (why[0])
        ds_buf_printf(b, "  outputs      %son random scores not replayed: %s\n",
                      way[0] ? "at other row counts " : "", why);
}

void ds_order_text(struct ds_buf *b, const struct ds_options *o, const struct ds_order_table *t)
{
    ds_buf_printf(b, "%s%s/%s%s  ", ds_cli_color(o, DS_ROLE_HEAD), ds_op_name(t->kernel->op),
                  t->kernel->name, ds_cli_color(o, DS_ROLE_PLAIN));
    if (strcmp(t->shape.name, "given") != 0)
        ds_buf_printf(b, "%s: ", t->shape.name);
    ds_shape_print(b, &t->shape);
    if (t->visible)
        ds_buf_printf(b, ", %lld KV slot%s", (long long)t->visible, ds_plural(t->visible));
    if (t->queries > 1)
        ds_buf_printf(b, ", %lld new tokens each", (long long)t->queries);
    if (t->stored != DS_ELEMENT_F32)
        ds_buf_puts(b, ", bf16 rows");
    ds_buf_printf(b, ", %d thread%s%s%s\n", t->threads, t->threads == 1 ? "" : "s",
                  t->core[0] ? ", core " : "", t->core);
    for (int s = 0; s < t->at[0].n_sums; s++) {
        const struct ds_order_sum *u = &t->at[0].sum[s];
        ds_buf_printf(b, "  %-12s sum of %lld %.*s%s%s%s\n", u->name, (long long)u->terms,
                      ds_tree_unit_length(u->unit, u->terms), u->unit, u->note[0] ? " (" : "",
                      u->note, u->note[0] ? ")" : "");
        trees(b, o, t, s);
        if (t->n_rows == 1 && u->fixed) {
            one_row_count(b, t, u);
        } else if (t->n_rows > 1) {
            row_list(b, t, s);
            row_classes(b, t, s);
        }
        replayed(b, o, t, s);
    }
    whole(b, o, t);
}
