/* test_diff_align.c: two records whose site lists are not the same: fused kernels, few sites, parts,
 * other numbers of layers. What both have is compared, the nearest sites that both have are the
 * inputs, and what has no partner is listed. */
#include "tests/unit/testing.h"

#include "dumps/diff.h"
#include "tests/unit/dumps/synthetic_sweep.h"

static void make(struct sweep *a, struct sweep *b, struct ds_diff *d)
{
    static struct ds_source sa, sb; /* outlive the diff, as it asks */
    struct ds_error err;
    sa = sweep_source(a);
    sb = sweep_source(b);
    assert_ok(ds_diff_make(&sa, &sb, NULL, d, &err), err);
}

static size_t count_items(const struct ds_diff *d, int kind)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n_items; i++)
        n += d->items[i].kind == kind;
    return n;
}

static const struct ds_diff_item *item(const struct ds_diff *d, int kind, const char *name)
{
    for (size_t i = 0; i < d->n_items; i++)
        if (d->items[i].kind == kind && (!name || strcmp(d->items[i].name, name) == 0))
            return &d->items[i];
    return NULL;
}

static void one_arm(struct sweep *s, int layers)
{
    sweep_init(s, "batch", layers);
    sweep_arm(s, "1");
}

/* Removes the sites that `gone` names from a finished sweep: header, edges and captures, as if the
 * program had never had them. */
static void drop_sites(struct sweep *s, int (*gone)(const struct ds_site *))
{
    struct ds_header *h = &s->header;
    uint32_t *map = calloc(h->n_sites, sizeof *map);
    size_t n = 0, e = 0;
    for (size_t i = 0; i < h->n_sites; i++) {
        map[i] = gone(&h->sites[i]) ? UINT32_MAX : (uint32_t)n;
        if (map[i] != UINT32_MAX)
            h->sites[n++] = h->sites[i];
    }
    h->n_sites = n;
    for (size_t i = 0; i < h->n_edges; i++)
        if (map[h->edges[i].from] != UINT32_MAX && map[h->edges[i].to] != UINT32_MAX)
            h->edges[e++] =
                (struct ds_edge){map[h->edges[i].from], map[h->edges[i].to], h->edges[i].kind};
    h->n_edges = e;
    for (size_t t = 0; t < s->n_trials; t++) {
        struct ds_trial_data *d = &s->trials[t];
        size_t c = 0;
        for (size_t i = 0; i < d->n_captures; i++)
            if (map[d->captures[i].site] != UINT32_MAX) {
                d->captures[c] = d->captures[i];
                d->captures[c++].site = map[d->captures[i].site];
            }
        d->n_captures = c;
    }
    free(map);
}

static int is_stage(const struct ds_site *s, const char *stage)
{
    return strcmp(s->stage, stage) == 0;
}

static int gone_down(const struct ds_site *s)
{
    return is_stage(s, "down");
}

static int gone_kv(const struct ds_site *s)
{
    return is_stage(s, "kv_write");
}

static int gone_embed(const struct ds_site *s)
{
    return is_stage(s, "embed");
}

static int gone_all_but_resid(const struct ds_site *s)
{
    return !is_stage(s, "resid_ffn") && !is_stage(s, "final_norm") && !is_stage(s, "logits") &&
           !is_stage(s, "token");
}

static uint32_t changed_attention(const struct cell *c)
{
    return cell_is(c, 0, "attn_out");
}

static uint32_t changed_resid(const struct cell *c)
{
    return cell_is(c, 1, "resid_ffn");
}

static uint32_t changed_k(const struct cell *c)
{
    return cell_is(c, 1, "k_proj");
}

static uint32_t changed_layer_1(const struct cell *c)
{
    return cell_is(c, 1, "attn_norm");
}

struct gap {
    int (*gone)(const struct ds_site *); /* from B */
    int from_a;                          /* from A instead */
    uint32_t (*tag)(const struct cell *);
    const char *stage; /* of the first drift; NULL = none */
    int layer, label;
    uint32_t between;
    const char *first_between;
    size_t missing; /* sites listed */
};

static void test_a_gap_is_bridged(void **state)
{
    (void)state;
    static const struct gap gaps[] = {
        /* a fused down + add: what differs before it is inherited, not its own */
        {gone_down, 0, changed_attention, "attn_out", 0, DS_LABEL_ORIGIN, 0, NULL, 2},
        {gone_down, 1, changed_attention, "attn_out", 0, DS_LABEL_ORIGIN, 0, NULL, 2},
        /* its own difference is that of the two kernels it stands for */
        {gone_down, 0, changed_resid, "resid_ffn", 1, DS_LABEL_ORIGIN, 1, "down", 2},
        {gone_down, 1, changed_resid, "resid_ffn", 1, DS_LABEL_ORIGIN, 1, "down", 2},
        /* across an edge of kind causal */
        {gone_kv, 0, changed_k, "k_proj", 1, DS_LABEL_ORIGIN, 0, NULL, 2},
        /* few sites against all */
        {gone_all_but_resid, 0, changed_layer_1, "resid_ffn", 1, DS_LABEL_ORIGIN, 7, "attn_norm",
         15},
        {gone_all_but_resid, 1, NULL, NULL, 0, 0, 0, NULL, 15},
        /* nothing before it was recorded on both sides */
        {gone_all_but_resid, 0, changed_attention, "resid_ffn", 0, DS_LABEL_UNKNOWN, 0, NULL, 15},
        /* an input that one side never had, beside one that both have */
        {gone_embed, 0, changed_attention, "attn_out", 0, DS_LABEL_ORIGIN, 0, NULL, 1},
    };
    for (size_t i = 0; i < sizeof gaps / sizeof *gaps; i++) {
        const struct gap *g = &gaps[i];
        struct sweep a, b;
        struct ds_diff d;
        one_arm(&a, 2);
        one_arm(&b, 2);
        b.tag = g->tag;
        sweep_run(&a, 1);
        sweep_run(&b, 1);
        drop_sites(g->from_a ? &a : &b, g->gone);
        make(&a, &b, &d);
        const struct ds_finding *f = &d.verdict.first;
        print_message("gap %zu\n", i);
        assert_int_equal(d.verdict.result, g->stage ? DS_RESULT_DRIFT : DS_RESULT_SAME);
        assert_int_equal(count_items(&d, DS_DIFF_SITE), g->missing);
        if (g->stage) {
            assert_string_equal(f->stage, g->stage);
            assert_int_equal(f->layer, g->layer);
            assert_int_equal(f->label, g->label);
            assert_int_equal(f->between, g->between);
        }
        for (size_t k = 0; k < d.verdict.n_kernels && g->stage && !g->between; k++)
            if (strcmp(d.verdict.kernels[k].op, f->op) != 0)
                assert_int_equal(d.verdict.kernels[k].origins, 0);
        if (g->first_between)
            assert_string_equal(d.header.sites[f->between_first].stage, g->first_between);
        ds_diff_free(&d);
        sweep_free(&a);
        sweep_free(&b);
    }
}

/* What follows a gap in which nothing differs is not blamed, and the kernel at the end of a gap is
 * not counted among the origins. */
static void test_a_gap_blames_no_kernel_alone(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    one_arm(&a, 2);
    one_arm(&b, 2);
    b.tag = changed_resid;
    sweep_run(&a, 1);
    sweep_run(&b, 1);
    drop_sites(&b, gone_down);
    make(&a, &b, &d);
    size_t record = d.verdict.n_factors - 1;
    for (size_t k = 0; k < d.verdict.n_kernels; k++) {
        const struct ds_kernel_verdict *x = &d.verdict.kernels[k];
        assert_int_equal(x->origins, 0);
        if (strcmp(x->op, "add") == 0) {
            assert_int_equal(x->unknown, SWEEP_PROMPT + SWEEP_STEPS);
            assert_int_equal(x->condition[record], DS_COND_SAME); /* resid_attn: no gap there */
        }
        if (strcmp(x->op, "rmsnorm") == 0)
            assert_int_equal(x->condition[record], DS_COND_SAME);
    }
    ds_diff_free(&d);
    sweep_free(&a);
    sweep_free(&b);
}

/* Partial sums of two ranks and their reduction stand between a stage's inputs and its rows. */
static void test_partial_sites_of_one_side(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    one_arm(&a, 1);
    one_arm(&b, 1);
    struct ds_header *h = &b.header;
    uint32_t down = 0;
    while (!is_stage(&h->sites[down], "down"))
        down++;
    /* r0, r1 and their sum before `down`, which is then a copy of the sum */
    memmove(&h->sites[down + 3], &h->sites[down], (h->n_sites - down) * sizeof *h->sites);
    h->n_sites += 3;
    for (size_t e = 0; e < h->n_edges; e++) {
        h->edges[e].from += h->edges[e].from >= down ? 3 : 0;
        h->edges[e].to += h->edges[e].to >= down ? 3 : 0;
    }
    static const char *const stages[] = {"down", "down", "allreduce"}, *const parts[] = {"r0", "r1",
                                                                                         "down"};
    for (int i = 0; i < 3; i++) {
        struct ds_site *s = &h->sites[down + (uint32_t)i];
        *s = h->sites[down + 3];
        strcpy(s->stage, stages[i]);
        strcpy(s->part, parts[i]);
    }
    for (size_t e = 0, n = h->n_edges; e < n; e++)
        if (h->edges[e].to == down + 3) {
            uint32_t from = h->edges[e].from;
            h->edges[e] = (struct ds_edge){down + 2, down + 3, DS_EDGE_ROW};
            sweep_edge(&b, from, down, DS_EDGE_ROW);
            sweep_edge(&b, from, down + 1, DS_EDGE_ROW);
            sweep_edge(&b, down, down + 2, DS_EDGE_ROW);
            sweep_edge(&b, down + 1, down + 2, DS_EDGE_ROW);
        }
    sweep_run(&a, 1);
    sweep_run(&b, 1);
    make(&a, &b, &d);
    /* The synthetic digests know the number of their site: `down` is the first that moved. */
    const struct ds_finding *f = &d.verdict.first;
    assert_string_equal(f->stage, "down");
    assert_string_equal(f->part, "");
    assert_int_equal(f->label, DS_LABEL_ORIGIN);
    assert_int_equal(f->between, 0); /* parts of the place itself are no gap */
    assert_int_equal(count_items(&d, DS_DIFF_SITE), 3);
    ds_diff_free(&d);
    sweep_free(&a);
    sweep_free(&b);
}

/* The same model cut to fewer layers. */
static void test_another_number_of_layers(void **state)
{
    (void)state;
    for (int longer = 0; longer < 2; longer++) {
        struct sweep s[2];
        struct ds_diff d;
        one_arm(&s[0], longer == 0 ? 3 : 2);
        one_arm(&s[1], longer == 1 ? 3 : 2);
        sweep_run(&s[0], 1);
        sweep_run(&s[1], 1);
        make(&s[0], &s[1], &d);
        const struct ds_diff_item *x = item(&d, DS_DIFF_MODEL, "layers");
        assert_non_null(x);
        assert_string_equal(x->a, longer == 0 ? "3" : "2");
        assert_string_equal(x->b, longer == 0 ? "2" : "3");
        assert_int_equal(d.header.n_layers, 3);
        assert_int_equal(count_items(&d, DS_DIFF_SITE), 8);
        /* Layers 0 and 1 agree; the last norm has another input, which only one side has. */
        assert_int_equal(d.verdict.result, DS_RESULT_DRIFT);
        assert_string_equal(d.verdict.first.stage, "final_norm");
        assert_int_equal(d.verdict.first.layer, 3);
        assert_int_equal(d.verdict.first.label, DS_LABEL_ORIGIN);
        assert_int_equal(d.verdict.first.between, 8);
        assert_int_equal(d.header.sites[d.verdict.first.between_first].layer, 2);
        ds_diff_free(&d);
        sweep_free(&s[0]);
        sweep_free(&s[1]);
    }
}

/* Rows of scores are as wide as their sweep has keys: from other steps they are listed and left out. */
static void test_scores_of_other_widths(void **state)
{
    (void)state;
    for (int custom = 0; custom < 2; custom++) {
        struct sweep s[2];
        struct ds_diff d;
        for (int k = 0; k < 2; k++) {
            one_arm(&s[k], 2);
            s[k].tag = k ? changed_resid : NULL;
            sweep_run(&s[k], 1);
            for (size_t i = 0; i < s[k].header.n_sites; i++) {
                struct ds_site *x = &s[k].header.sites[i];
                if (!is_stage(x, "kv_write"))
                    continue;
                snprintf(x->stage, sizeof x->stage, "attn_scores");
                snprintf(x->op, sizeof x->op, "%s", custom ? "custom" : "attention");
                x->width = 40 + 8 * (uint32_t)k;
                for (size_t c = 0; c < s[k].trials[0].n_captures; c++)
                    if (s[k].trials[0].captures[c].site == i)
                        s[k].trials[0].captures[c].width = x->width;
            }
        }
        make(&s[0], &s[1], &d);
        if (custom) {
            const struct ds_diff_item *x = item(&d, DS_DIFF_SITE, "layer 0 attn_scores/k");
            assert_int_equal(count_items(&d, DS_DIFF_SITE), 2);
            assert_true(x && strcmp(x->a, "rows of 40") == 0 && strcmp(x->b, "rows of 48") == 0);
            assert_int_equal(d.verdict.result, DS_RESULT_DRIFT);
            assert_string_equal(d.verdict.first.stage, "resid_ffn");
            assert_int_equal(d.verdict.first.label, DS_LABEL_ORIGIN);
        } else {
            assert_int_equal(d.verdict.result, DS_RESULT_INCOMPARABLE);
            assert_non_null(strstr(d.verdict.reason, "rows of other widths"));
        }
        ds_diff_free(&d);
        sweep_free(&s[0]);
        sweep_free(&s[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_gap_is_bridged),
        cmocka_unit_test(test_a_gap_blames_no_kernel_alone),
        cmocka_unit_test(test_partial_sites_of_one_side),
        cmocka_unit_test(test_another_number_of_layers),
        cmocka_unit_test(test_scores_of_other_widths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
