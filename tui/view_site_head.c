/* view_site_head.c: Site in words: the finding above the table, the launches, the command that
 * measures the tree. The words themselves are report/'s. */
#include "tui/view_site.h"

#include "base/plural.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

/* Arm 2p of two records is of A, 2p + 1 of B. */
const char *tui_side_name(const struct tui_whole *w, const struct tui_place *p, int side)
{
    static const char *const names[2] = {"reference", "this"}, *const records[2] = {"A", "B"};
    if (!w->diff || (p->arm & 1) == (p->ref & 1))
        return names[side != 0];
    return records[(side ? p->arm : p->ref) & 1];
}

void tui_site_name(const struct ds_header *h, uint32_t site, char *out, size_t n)
{
    if (site >= h->n_sites) {
        snprintf(out, n, "?");
        return;
    }
    struct ds_buf b = {0};
    tui_site_text(h, site, &b);
    snprintf(out, n, "%s", b.data && !b.failed ? b.data : "");
    ds_buf_free(&b);
}

int tui_site_beside(const struct ds_header *h, uint32_t site, int step, uint32_t *out,
                    struct ds_error *err)
{
    if (site >= h->n_sites)
        return ds_fail(err, "there is no such site");
    const struct ds_site *s = &h->sites[site];
    int found = 0;
    for (size_t i = 0; i < h->n_sites; i++) {
        const struct ds_site *x = &h->sites[i];
        if (strcmp(x->stage, s->stage) != 0 || strcmp(x->part, s->part) != 0 ||
            (step > 0 ? x->layer <= s->layer : x->layer >= s->layer))
            continue;
        /* The nearest layer; forward the first of them, back the last. */
        if (!found || step < 0 || x->layer < h->sites[*out].layer)
            *out = (uint32_t)i;
        found = 1;
    }
    if (found)
        return 0;
    if (s->layer < 0 || s->layer >= h->n_layers)
        return ds_fail(err, "%s%s%s is in no layer", s->stage, s->part[0] ? "/" : "", s->part);
    return ds_fail(err, "no layer %s %d has %s%s%s", step > 0 ? "after" : "before", s->layer,
                   s->stage, s->part[0] ? "/" : "", s->part);
}

/* ---- commands -------------------------------------------------------------------------------- */

/* A site as the options of the program take it. */
static void add_site(const struct ds_header *h, uint32_t site, struct ds_buf *out)
{
    struct ds_buf text = {0};
    const struct ds_site *s = &h->sites[site];
    ds_buf_printf(&text, "%d,%s%s%s", s->layer, s->stage, s->part[0] ? "/" : "", s->part);
    ds_buf_quote(out, text.data ? text.data : "");
    out->failed |= text.failed;
    ds_buf_free(&text);
}

void tui_site_command(const struct tui_context *c, uint32_t site, const char *more,
                      struct ds_buf *out)
{
    const struct ds_header *h = c->whole->header;
    struct ds_buf what = {0};
    if (h && site < h->n_sites) {
        ds_buf_puts(&what, "--site ");
        add_site(h, site, &what);
        ds_buf_printf(&what, "%s%s", more[0] ? " " : "", more);
        tui_pair_command(c, what.data, out);
    }
    out->failed |= what.failed;
    ds_buf_free(&what);
}

/* ---- the tree -------------------------------------------------------------------------------- */

static const char *factor_value(const struct ds_header *h, uint32_t arm, const char *factor)
{
    for (size_t f = 0; f < h->n_factors && arm < h->n_arms; f++)
        if (strcmp(h->factors[f], factor) == 0)
            return h->arms[arm].values[f];
    return NULL;
}

/* Elements that one sum of a matmul has: the width of what its rows read. */
static uint32_t read_width(const struct site_own *o)
{
    for (size_t i = 0; i < o->site->n_inputs; i++)
        if (o->site->inputs[i].edge == DS_EDGE_ROW && o->site->inputs[i].site < o->h->n_sites)
            return o->h->sites[o->site->inputs[i].site].width;
    return 0;
}

/* The row whose calls the launches are of: the first drifting one, else the first. */
static const struct ds_row *called_row(const struct site_own *o)
{
    for (size_t i = 0; i < o->n_rows; i++)
        if (o->site->labels[o->rows[i]] >= DS_LABEL_ORIGIN)
            return &o->site->facts[o->rows[i]].row;
    return o->n_rows ? &o->site->facts[o->rows[0]].row : NULL;
}

/* 1: an order is measured of this op, and its sizes are added; 0: it adds nothing up. */
static int add_shape(const struct site_own *o, const struct ds_site *s, const struct ds_row *row,
                     struct ds_buf *out)
{
    const struct ds_header *h = o->h;
    uint32_t k = read_width(o);
    if (strcmp(s->op, "matmul") == 0) {
        if (s->width && k)
            ds_buf_printf(out, " --shape n=%" PRIu32 ",k=%" PRIu32, s->width, k);
    } else if (strcmp(s->op, "rmsnorm") == 0 || strcmp(s->op, "softmax") == 0) {
        uint32_t heads = ds_site_heads(h, o->site->site);
        if (s->width)
            ds_buf_printf(out, " --shape width=%" PRIu32, heads ? s->width / heads : s->width);
    } else if (strcmp(s->op, "attention") == 0) {
        if (h->n_heads > 0 && h->n_kv_heads > 0 && h->head_dim > 0)
            ds_buf_printf(out, " --shape heads=%d,kv_heads=%d,head_dim=%d", h->n_heads,
                          h->n_kv_heads, h->head_dim);
        if (row && row->kv_len > 0)
            ds_buf_printf(out, " --kv %d", row->kv_len);
        if (row && row->q_len > 1 && row->q_len <= row->kv_len)
            ds_buf_printf(out, " --qlen %d", row->q_len);
    } else if (strcmp(s->op, "allreduce") == 0) {
        if (s->width && o->site->n_inputs > 1)
            ds_buf_printf(out, " --shape width=%" PRIu32 ",ranks=%zu", s->width, o->site->n_inputs);
    } else {
        return strcmp(s->op, "combine") == 0;
    }
    return 1;
}

/* Takes the text over and frees it; one that is too long is no command. */
static void put_command(struct site_own *o, const struct ds_report_caller *caller, const char *name,
                        const char *verb, struct ds_buf *b)
{
    struct ds_buf begin = {0};
    ds_report_command(caller, verb, NULL, &begin); /* "PROGRAM VERB " */
    if (b->data && !b->failed && !begin.failed && b->len < sizeof o->command[0].text &&
        begin.len <= b->len && begin.len > strlen(verb) && o->n_commands < SITE_COMMANDS) {
        o->command[o->n_commands].name = name;
        o->command[o->n_commands].verb = begin.len - strlen(verb) - 1;
        memcpy(o->command[o->n_commands++].text, b->data, b->len + 1);
    }
    ds_buf_free(&begin);
    ds_buf_free(b);
}

/* The tree is in no record: what measures it. */
static void make_order(struct site_own *o, const struct tui_context *c)
{
    const struct ds_launch *l = o->site->launch, *ref = o->site->ref_launch;
    const struct ds_site *s = &o->h->sites[o->site->site];
    struct ds_buf shape = {0}, b = {0}, name = {0};
    if (!l || strcmp(l->op, s->op) != 0 || !add_shape(o, s, called_row(o), &shape))
        return;
    const char *threads = factor_value(o->h, o->at.arm, "threads");
    int given = shape.data && strstr(shape.data, "--shape");
    ds_report_command(c->whole->report.caller, "order", given ? "" : o->h->model_name, &b);
    ds_buf_printf(&name, "%s/%s", l->op, l->variant);
    ds_buf_quote(&b, name.data ? name.data : "");
    ds_buf_add(&b, shape.data ? shape.data : "", shape.len);
    if (strcmp(s->op, "attention") != 0 && l->rows > 0) {
        ds_buf_printf(&b, " --rows %d", l->rows);
        if (ref && ref->rows > 0 && ref->rows != l->rows && strcmp(ref->variant, l->variant) == 0)
            ds_buf_printf(&b, ",%d", ref->rows);
    }
    if (threads && strcmp(threads, "1") != 0) {
        ds_buf_puts(&b, " --threads ");
        ds_buf_quote(&b, threads);
    }
    put_command(o, c->whole->report.caller, "its tree", "order", &b);
    ds_buf_free(&shape);
    ds_buf_free(&name);
}

/* `explain` holds an arm against the reference that one of its factors gives it. */
static int is_reference(const struct ds_header *h, uint32_t arm, uint32_t ref)
{
    for (uint32_t f = 0; f < h->n_factors; f++)
        if (ds_arm_reference(h, arm, f) == (int64_t)ref)
            return 1;
    return 0;
}

/* It launches the kernels again, with the rows that they read. */
static void make_explain(struct site_own *o, const struct tui_context *c)
{
    const struct ds_report *r = &c->whole->report;
    const struct ds_finding *f = &o->site->profile->at;
    struct ds_buf b = {0};
    int dumped = 0;
    for (size_t i = 0; i < o->site->n_rows && !dumped; i++)
        dumped = o->site->labels[i] >= DS_LABEL_ORIGIN && o->site->facts[i].dumped &&
                 o->site->facts[i].ref_dumped;
    if (!f->found || !dumped || !r->path || r->path_b || !r->caller ||
        !r->caller->explains(o->h->sites[o->site->site].op) ||
        !is_reference(o->h, o->at.arm, o->at.ref))
        return;
    ds_report_command(r->caller, "explain", o->h->model_name, &b);
    ds_buf_quote(&b, r->path);
    ds_buf_puts(&b, " ");
    add_site(o->h, o->site->site, &b);
    ds_buf_printf(&b, " --arm %" PRIu32, o->at.arm);
    put_command(o, r->caller, "why", "explain", &b);
}

static void kernel_words(struct site_own *o)
{
    struct ds_buf b = {0};
    o->n_kernels = 0;
    ds_report_kernels(&o->whole->report, o->site->ref_launch, o->at.ref, o->site->launch, o->at.arm,
                      &b);
    for (const char *p = b.failed ? NULL : b.data; p && *p && o->n_kernels < 2;) {
        size_t n = strcspn(p, "\n");
        snprintf(o->kernel[o->n_kernels++], sizeof o->kernel[0], "%.*s", (int)n, p);
        p += n + (p[n] != 0);
    }
    ds_buf_free(&b);
}

/* What is known of the tree: a record has what a kernel says of its launch, which names parts of the sum, never the order
 * inside them. */
static void tree_words(struct site_own *o)
{
    const struct ds_launch *l = o->site->launch, *ref = o->site->ref_launch;
    struct ds_buf b = {0};
    o->tree[0] = '\0';
    if (!o->n_commands || strcmp(o->command[o->n_commands - 1].name, "its tree") != 0)
        return;
    for (int side = 0; side < 2; side++) {
        const struct ds_launch *x = side ? l : ref;
        if (x && x->split > 1)
            ds_buf_printf(&b, "%s%s: the sum is cut into %d parts", b.len ? ", " : "",
                          tui_side_name(o->whole, &o->at, side), x->split);
    }
    snprintf(o->tree, sizeof o->tree, "%s%s%s %s is in no record: the command measures it",
             b.data && !b.failed ? b.data : "", b.len ? "; " : "",
             o->n_kernels ? "more of the order" : "the order",
             b.len ? "inside a part" : "of addition");
    ds_buf_free(&b);
}

void site_launch_make(struct site_own *o, const struct tui_context *c)
{
    const struct tui_site *s = o->site;
    o->n_fields = s->launch || s->ref_launch
                      ? ds_report_launch_fields(s->ref_launch, s->launch, o->field)
                      : 0;
    o->n_commands = 0;
    make_explain(o, c);
    make_order(o, c);
    kernel_words(o);
    tree_words(o);
}

/* ---- the head -------------------------------------------------------------------------------- */

struct head { /* lines, the most telling first, so that a small screen has them */
    struct tui_view *v;
    int n, most;
};

/* A text of one line or more, each a head line. Texts of report/ are escaped already; nothing else
 * gets here. */
static void put(struct head *h, int role, const struct ds_buf *b)
{
    const char *at = b->data ? b->data : "";
    while (*at && h->n < h->most) {
        size_t n = strcspn(at, "\n"), lead = strspn(at, " ");
        lead = lead < n ? lead : n;
        if (n > lead)
            tui_view_head(h->v, h->n++, role, "%.*s", (int)(n - lead < 511 ? n - lead : 511),
                          at + lead);
        at += n + (at[n] == '\n');
    }
}

static void add_kind(const struct ds_finding *f, struct ds_buf *out)
{
    ds_buf_printf(out, "%s; ", ds_label_name(f->label));
    ds_report_kind(f, "", out);
}

/* What the site does on equal inputs, where a heal trial tells. */
static void add_healed(const struct site_own *o, struct ds_buf *out)
{
    if (!o->pair || !o->pair->healed || o->site->site >= o->pair->n_sites)
        return;
    const struct tui_site_sum *s = &o->pair->sites[o->site->site];
    if (s->healed_label == DS_LABEL_ABSENT || o->site->profile->at.label == DS_LABEL_ORIGIN ||
        (!o->site->profile->at.found && s->healed_label == DS_LABEL_SAME))
        return; /* that says no more */
    ds_buf_printf(out, "on equal inputs: %s", ds_label_name(s->healed_label));
    if (s->healed_label == DS_LABEL_ORIGIN && s->added_relative_rms > 0)
        ds_buf_printf(out, ", adds up to %" PRIu64 " ULP, relative rms %.3g", s->added_max_ulp,
                      s->added_relative_rms);
    ds_buf_puts(out, "\n");
}

static void add_same(const struct site_own *o, struct ds_buf *out)
{
    size_t by[DS_LABEL_UNSTABLE + 1] = {0}, both = 0;
    for (size_t i = 0; i < o->n_rows; i++) {
        size_t row = o->rows[i];
        by[o->site->labels[row] <= DS_LABEL_UNSTABLE ? o->site->labels[row] : 0]++;
        both += o->site->facts[row].has && o->site->facts[row].ref_has;
    }
    if (o->n_rows == 0)
        ds_buf_puts(out, "no arm has a row of this site");
    else if (o->alone)
        ds_buf_printf(out, "%zu row%s recorded; one trial of this arm, nothing to compare it with",
                      o->n_rows, ds_plural((long long)o->n_rows));
    else if (by[DS_LABEL_SAME] + by[DS_LABEL_HEALED] == 0)
        ds_buf_puts(out, both ? "no row is compared: other tokens were fed before them"
                              : "no row is recorded on both sides: nothing to compare");
    else
        ds_buf_printf(out, "no row differs: %zu same", by[DS_LABEL_SAME]);
    if (by[DS_LABEL_HEALED] && !o->alone)
        ds_buf_printf(out, ", %zu healed: an input differs", by[DS_LABEL_HEALED]);
    if (!o->alone && by[DS_LABEL_ABSENT] && by[DS_LABEL_SAME] + by[DS_LABEL_HEALED])
        ds_buf_printf(out, ", %zu not compared", by[DS_LABEL_ABSENT]);
    ds_buf_puts(out, "\n");
}

static void add_repeats(const struct site_own *o, struct ds_buf *out)
{
    for (int i = 0; i < 2; i++) {
        const struct ds_census_site *c = &o->site->repeats[i];
        if (!c->unstable)
            continue;
        ds_buf_printf(out, "repeats%s%s: ", o->site->arm == o->site->ref ? "" : " of ",
                      o->site->arm == o->site->ref ? "" : tui_side_name(o->whole, &o->at, i));
        ds_report_census_site(c, out);
        ds_buf_puts(out, "\n");
    }
}

/* Rows whose bytes do not have their digest: what is said of their values is worth nothing. */
static void add_damaged(const struct site_own *o, struct ds_buf *out)
{
    size_t n = 0;
    for (size_t i = 0; i < o->site->n_rows; i++) {
        const struct tui_row_fact *f = &o->site->facts[i];
        n += (f->has && tui_whole_damaged(o->whole, f->digest)) ||
             (f->ref_has && tui_whole_damaged(o->whole, f->ref_digest));
    }
    if (n)
        ds_buf_printf(out, "damaged: the dumped bytes of %zu row%s %s digest\n", n,
                      n == 1 ? "" : "s", n == 1 ? "do not have its" : "do not have their");
}

int site_head_make(struct tui_view *v, const struct site_own *o, int most)
{
    enum { DAMAGED = 0, VERDICT, TEXTS = 7 };
    struct ds_buf b[TEXTS] = {{0}};
    const struct ds_finding *f = &o->site->profile->at;
    struct head h = {v, 0, most};
    int lines = 0;
    add_damaged(o, &b[DAMAGED]);
    if (f->found) {
        add_kind(f, &b[VERDICT]);
        ds_report_size(&o->whole->report, f, "", &b[2]);
        ds_report_where(f, "", &b[3]);
        ds_report_ends(f, "", &b[3]);
    } else {
        add_same(o, &b[VERDICT]);
    }
    add_healed(o, &b[4]);
    add_repeats(o, &b[6]);
    /* "batch 4 against 1", but of two records A first, as everywhere. */
    int a_first = strcmp(tui_side_name(o->whole, &o->at, 0), "A") == 0;
    if (f->found &&
        ds_report_launch_difference(a_first ? o->site->ref_launch : o->site->launch,
                                    a_first ? o->site->launch : o->site->ref_launch, &b[5]))
        ds_buf_puts(&b[5], "\n");
    for (size_t i = 0; i < TEXTS; i++)
        for (const char *p = b[i].data; p && *p; p++)
            lines += *p == '\n';
    int rc = tui_view_heads(v, lines < most ? lines : most);
    for (size_t i = 0; i < TEXTS; i++) {
        if (rc == 0)
            put(&h,
                i == DAMAGED   ? TUI_ERROR
                : i != VERDICT ? TUI_PLAIN
                : f->found     ? tui_label_role(f->label)
                               : TUI_SAME,
                &b[i]);
        ds_buf_free(&b[i]);
    }
    return rc;
}
