/* test_diff_terms.c: the terms of a comparison: which sites count, which differences are excused, and
 * what is said of rows whose bytes cannot tell. */
#include "tests/unit/testing.h"

#include "dumps/diff.h"
#include "tests/unit/dumps/synthetic_sweep.h"

static void start(struct sweep *s)
{
    sweep_init(s, "batch", 2);
    sweep_arm(s, "1");
}

static int make(struct sweep *a, struct sweep *b, const struct ds_diff_options *o,
                struct ds_diff *d, struct ds_error *err)
{
    static struct ds_source sa, sb; /* outlive the diff, as it asks */
    sa = sweep_source(a);
    sb = sweep_source(b);
    return ds_diff_make(&sa, &sb, o, d, err);
}

static uint32_t changed_k(const struct cell *c)
{
    return cell_is(c, 0, "k_proj");
}

static uint32_t changed_both(const struct cell *c)
{
    return cell_is(c, 0, "k_proj") || cell_is(c, 1, "down");
}

static uint32_t racy_k(const struct cell *c)
{
    return cell_is(c, 0, "k_proj") ? 1 + c->repeat : 0;
}

/* ---- only, ignore ---------------------------------------------------------------------------- */

static void test_sites_that_count(void **state)
{
    (void)state;
    static const struct {
        const char *only, *ignore;
        const char *stage; /* of the first drift; NULL: same */
        int layer, label;
        size_t ignored;
    } cases[] = {
        {NULL, NULL, "k_proj", 0, DS_LABEL_ORIGIN, 0},
        {"stages=k_proj", NULL, "k_proj", 0, DS_LABEL_ORIGIN, 18},
        {"k_proj", NULL, "k_proj", 0, DS_LABEL_ORIGIN, 18}, /* stages when no key is given */
        {"layers=1", NULL, "attn_norm", 1, DS_LABEL_INHERITED, 12},
        {"layers=-1", NULL, NULL, 0, 0, 19},
        {"layers=1-", NULL, "attn_norm", 1, DS_LABEL_INHERITED, 9},
        {"layers=0-1,stages=q_proj,down", NULL, "down", 0, DS_LABEL_INHERITED, 16},
        {"layers=0,stages=q_proj", NULL, NULL, 0, 0, 19},
        {"stages=kv_write/k", NULL, "kv_write", 0, DS_LABEL_INHERITED, 18},
        {"parts=k,layers=1", NULL, "kv_write", 1, DS_LABEL_INHERITED, 19},
        {"ops=rmsnorm", NULL, "attn_norm", 1, DS_LABEL_INHERITED, 17},
        /* what is ignored still is an input of what follows */
        {NULL, "stages=k_proj", "kv_write", 0, DS_LABEL_INHERITED, 2},
        {"layers=0", "stages=k_proj,kv_write,attn_out", "resid_attn", 0, DS_LABEL_INHERITED, 15},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep a, b;
        struct ds_diff d;
        struct ds_error err;
        struct ds_diff_options o = {.only = &cases[i].only,
                                    .ignore = &cases[i].ignore,
                                    .n_only = cases[i].only != NULL,
                                    .n_ignore = cases[i].ignore != NULL};
        start(&a);
        start(&b);
        b.tag = changed_k;
        sweep_run(&a, 1);
        sweep_run(&b, 1);
        assert_ok(make(&a, &b, &o, &d, &err), err);
        print_message("case %zu\n", i);
        assert_int_equal(d.verdict.result, cases[i].stage ? DS_RESULT_DRIFT : DS_RESULT_SAME);
        assert_int_equal(d.n_ignored, cases[i].ignored);
        if (cases[i].stage) {
            assert_string_equal(d.verdict.first.stage, cases[i].stage);
            assert_int_equal(d.verdict.first.layer, cases[i].layer);
            assert_int_equal(d.verdict.first.label, cases[i].label);
        }
        ds_diff_free(&d);
        sweep_free(&a);
        sweep_free(&b);
    }
}

static void test_ignored_instability_is_none(void **state)
{
    (void)state;
    struct sweep a;
    struct ds_diff d;
    struct ds_error err;
    const char *ignore[] = {"layers=0-", "layers=2"};
    for (int i = 0; i < 2; i++) {
        struct ds_diff_options o = {.ignore = &ignore[i], .n_ignore = 1};
        start(&a);
        a.tag = racy_k;
        sweep_run(&a, 3);
        assert_ok(make(&a, &a, &o, &d, &err), err);
        assert_int_equal(d.verdict.stable, i == 0);
        assert_int_equal(d.verdict.result, i == 0 ? DS_RESULT_SAME : DS_RESULT_DRIFT);
        ds_diff_free(&d);
        sweep_free(&a);
    }
}

static void test_names_that_no_site_has(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error, *hint;
    } cases[] = {
        {"stages=k_prj", "no site with stage k_prj", "did you mean k_proj?"},
        {"stage=k_proj", "no key stage", "did you mean stages?"},
        {"ops=matmull", "no site with op matmull", "did you mean matmul?"},
        {"parts=q", "no site with part q", ""},
        {"stages=kv_write/x", "no site with stage kv_write/x", ""},
        {"layers=a", "a is no layer", "layers=0-3"},
        {"layers=3-1", "3-1 is no layer", ""},
        {"layers=", "missing", ""},
        {"layers=1,,2", "missing", ""},
        {"", "missing", ""},
        {"=k_proj", "missing", ""},
        {"stages=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         "too long", ""},
        {"layers=99999999999999999999", NULL, NULL}, /* a layer that is not there leaves nothing */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int which = 0; which < 2; which++) {
            struct sweep a;
            struct ds_diff d;
            struct ds_error err = {{0}, {0}};
            struct ds_diff_options o = {.only = &cases[i].text,
                                        .ignore = &cases[i].text,
                                        .n_only = which == 0,
                                        .n_ignore = which == 1};
            start(&a);
            sweep_run(&a, 1);
            int rc = make(&a, &a, &o, &d, &err);
            if (!cases[i].error) {
                assert_int_equal(rc, 0);
                assert_int_equal(d.verdict.result,
                                 which == 0 ? DS_RESULT_INCOMPARABLE : DS_RESULT_SAME);
                ds_diff_free(&d);
            } else {
                print_message("%s: %s (%s)\n", cases[i].text, err.msg, err.hint);
                assert_int_equal(rc, -1);
                assert_non_null(strstr(err.msg, cases[i].error));
                assert_non_null(strstr(err.msg, which == 0 ? "--only" : "--ignore"));
                assert_non_null(strstr(err.hint, cases[i].hint));
            }
            sweep_free(&a);
        }
}

/* ---- tolerances ------------------------------------------------------------------------------ */

/* Rows by digest: A's are 1, 2, 3 ...; B's have `off` units of the last place more in element 7, those of the `far`
 * digests a thousand. */
struct world {
    uint32_t off;
    uint64_t far[64];
    size_t n_far;
    int asked, lost, damaged; /* every so many rows of B: not there; not to be believed */
};

static int blob(void *ctx, int side, uint64_t digest, struct ds_blob *out, struct ds_error *err)
{
    struct world *w = ctx;
    w->asked++;
    if (side == 1 && w->lost && digest % (uint64_t)w->lost == 0)
        return 0;
    if (side == 1 && w->damaged && digest % (uint64_t)w->damaged == 0)
        return ds_fail(err, "the bytes do not have that digest");
    uint32_t off = side == 1 ? w->off : 0;
    for (size_t i = 0; i < w->n_far; i++)
        off = w->far[i] == digest ? 1000 : off;
    float *row = malloc(192 * sizeof *row);
    for (int i = 0; i < 192; i++)
        row[i] = ds_f32_from_bits(ds_f32_bits((float)(i + 1)) + (i == 7 ? off : 0));
    *out = (struct ds_blob){
        .digest = digest, .dtype = "f32", .elements = 192, .bytes = 192 * 4, .data = row};
    return 1;
}

static size_t count_items(const struct ds_diff *d, int kind)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n_items; i++)
        n += d->items[i].kind == kind;
    return n;
}

static void test_rows_within_a_tolerance(void **state)
{
    (void)state;
    enum { ROWS = SWEEP_PROMPT + SWEEP_STEPS };
    static const struct {
        struct ds_tolerance t;
        uint32_t off;
        int same;
    } cases[] = {
        {{.ulp = 4}, 4, 1},     {{.ulp = 3}, 4, 0},      {{.atol = 1e-5}, 4, 1},
        {{.rtol = 1e-8}, 4, 0}, {{.nmse = 1e-12}, 4, 1}, {{.ulp = 1, .atol = 1e-5}, 4, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep a, b;
        struct ds_diff d;
        struct ds_error err;
        struct world w = {.off = cases[i].off};
        struct ds_diff_options o = {.blob = blob, .ctx = &w, .tolerance = cases[i].t};
        start(&a);
        start(&b);
        b.tag = changed_k;
        sweep_run(&a, 2);
        sweep_run(&b, 2);
        /* B's digests of everything below would differ, too: let k_proj alone do */
        for (size_t t = 0; t < 2; t++)
            for (size_t c = 0; c < b.trials[t].n_captures; c++)
                if (strcmp(b.header.sites[b.trials[t].captures[c].site].stage, "k_proj") != 0 ||
                    b.header.sites[b.trials[t].captures[c].site].layer != 0)
                    memcpy(&b.trials[t].digests[b.trials[t].captures[c].first_digest],
                           &a.trials[t].digests[b.trials[t].captures[c].first_digest],
                           b.trials[t].captures[c].rows * sizeof(uint64_t));
        assert_ok(make(&a, &b, &o, &d, &err), err);
        print_message("case %zu\n", i);
        assert_int_equal(d.verdict.result, cases[i].same ? DS_RESULT_SAME : DS_RESULT_DRIFT);
        assert_int_equal(d.excused, cases[i].same ? 2 * ROWS : 0);
        assert_int_equal(d.exceeding, cases[i].same ? 0 : 2 * ROWS);
        assert_int_equal(d.not_dumped, 0);
        if (cases[i].same)
            assert_int_equal(w.asked, 2 * ROWS); /* once per pair of digests, not per repeat */
        ds_diff_free(&d);
        sweep_free(&a);
        sweep_free(&b);
    }
}

/* Marks the rows of a site in all trials of a sweep. */
static void mark_far(struct world *w, const struct sweep *s, int layer, const char *stage)
{
    for (size_t t = 0; t < s->n_trials; t++)
        for (size_t c = 0; c < s->trials[t].n_captures; c++) {
            const struct ds_capture *x = &s->trials[t].captures[c];
            const struct ds_site *site = &s->header.sites[x->site];
            if (site->layer != layer || strcmp(site->stage, stage) != 0)
                continue;
            assert_true(w->n_far + x->rows <= sizeof w->far / sizeof *w->far);
            memcpy(w->far + w->n_far, s->trials[t].digests + x->first_digest,
                   x->rows * sizeof *w->far);
            w->n_far += x->rows;
        }
}

static int label_of(struct ds_diff *d, uint32_t arm, uint32_t ref, int layer, const char *stage)
{
    struct ds_error err;
    uint8_t *labels;
    int label = -1;
    assert_ok(ds_analysis_labels(d->analysis, arm, ref, &labels, &err), err);
    for (size_t s = 0; s < d->header.n_sites && label < 0; s++)
        if (d->header.sites[s].layer == layer && strcmp(d->header.sites[s].stage, stage) == 0)
            label = labels[s * ds_analysis_rows(d->analysis)];
    free(labels);
    return label;
}

static uint32_t changed_down(const struct cell *c)
{
    return cell_is(c, 1, "down");
}

static uint32_t changed_q_and_k(const struct cell *c)
{
    return cell_is(c, 0, "q_proj") || cell_is(c, 0, "k_proj");
}

/* Whether an output differs is asked of the values, what a kernel read is asked of the bits. */
static void test_labels_follow_the_bits_of_the_inputs(void **state)
{
    (void)state;
    static const struct {
        uint32_t (*tag)(const struct cell *c);
        int far_layer; /* the site that is beyond the tolerance */
        const char *far;
        int label, inputs_within, within_layer;
        const char *within; /* the first site within it; NULL: none */
        int resid;          /* label of the site after both */
    } cases[] = {
        /* grown out of k_proj, so no kernel of its own */
        {changed_k, 1, "down", DS_LABEL_INHERITED, 1, 0, "k_proj", DS_LABEL_WITHIN},
        {changed_both, 1, "down", DS_LABEL_INHERITED, 1, 0, "k_proj", DS_LABEL_WITHIN},
        {changed_k, 0, "attn_out", DS_LABEL_INHERITED, 1, 0, "k_proj", DS_LABEL_WITHIN},
        /* nothing stands before it */
        {changed_down, 1, "down", DS_LABEL_ORIGIN, 0, 1, "resid_ffn", DS_LABEL_WITHIN},
        /* what is within is no input of it: q_proj is beyond, k_proj, which stands after it, within */
        {changed_q_and_k, 0, "q_proj", DS_LABEL_ORIGIN, 0, 0, "k_proj", DS_LABEL_WITHIN},
        {changed_q_and_k, 0, "k_proj", DS_LABEL_ORIGIN, 0, 0, "q_proj", DS_LABEL_WITHIN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep a, b;
        struct ds_diff d;
        struct ds_error err;
        struct world w = {.off = 2};
        struct ds_diff_options o = {.blob = blob, .ctx = &w, .tolerance = {.ulp = 4}};
        start(&a);
        start(&b);
        b.tag = cases[i].tag;
        sweep_run(&a, 1);
        sweep_run(&b, 1);
        mark_far(&w, &b, cases[i].far_layer, cases[i].far);
        print_message("case %zu\n", i);
        assert_ok(make(&a, &b, &o, &d, &err), err);
        const struct ds_finding *first = &d.verdict.first;
        assert_int_equal(d.verdict.result, DS_RESULT_DRIFT);
        assert_string_equal(first->stage, cases[i].far);
        assert_int_equal(first->layer, cases[i].far_layer);
        assert_int_equal(first->label, cases[i].label);
        assert_int_equal(first->inputs_within, cases[i].inputs_within);
        assert_int_equal(label_of(&d, 1, 0, cases[i].far_layer, cases[i].far), cases[i].label);
        assert_int_equal(d.verdict.n_origins, cases[i].label == DS_LABEL_ORIGIN);
        assert_true(d.within.found);
        assert_string_equal(d.within.stage, cases[i].within);
        assert_int_equal(d.within.layer, cases[i].within_layer);
        assert_int_equal(label_of(&d, 1, 0, cases[i].within_layer, cases[i].within),
                         DS_LABEL_WITHIN);
        assert_int_equal(label_of(&d, 1, 0, 1, "resid_ffn"), cases[i].resid);
        for (size_t k = 0; k < d.verdict.n_kernels; k++)
            if (strcmp(d.verdict.kernels[k].op, "matmul") == 0)
                assert_int_equal(d.verdict.kernels[k].origins != 0,
                                 cases[i].label == DS_LABEL_ORIGIN);
        /* digests are told as they were recorded */
        uint64_t mine, theirs;
        assert_true(ds_analysis_digest(d.analysis, 1, d.within.site, 0, &mine));
        assert_true(ds_analysis_digest(d.analysis, 0, d.within.site, 0, &theirs));
        assert_true(mine != theirs);
        ds_diff_free(&d);
        sweep_free(&a);
        sweep_free(&b);
    }
}

/* Repeats that differ from each other within the tolerance are unlike inputs, too. */
static void test_repeats_within_a_tolerance(void **state)
{
    (void)state;
    for (int far = 0; far < 2; far++)
        for (int side = 0; side < 2; side++) {
            struct sweep a, b;
            struct ds_diff d;
            struct ds_error err;
            struct world w = {.off = 2};
            struct ds_diff_options o = {.blob = blob, .ctx = &w, .tolerance = {.ulp = 4}};
            start(&a);
            start(&b);
            *(side ? &b.tag : &a.tag) = racy_k;
            sweep_run(&a, 2);
            sweep_run(&b, 2);
            if (far && side)
                mark_far(&w, &b, 1, "down");
            assert_ok(make(&a, &b, &o, &d, &err), err);
            assert_int_equal(d.verdict.result, far && side ? DS_RESULT_DRIFT : DS_RESULT_SAME);
            /* beyond A's rows they are not excused, and disagree */
            assert_int_equal(d.verdict.stable, !(far && side));
            assert_int_equal(label_of(&d, 1, 0, 0, "k_proj"), DS_LABEL_WITHIN);
            assert_int_equal(label_of(&d, (uint32_t)side, (uint32_t)side, 0, "k_proj"),
                             DS_LABEL_WITHIN);
            assert_int_equal(label_of(&d, !side, !side, 0, "k_proj"), DS_LABEL_SAME);
            if (far && side) {
                assert_string_equal(d.verdict.first.stage, "down");
                assert_int_equal(d.verdict.first.label, DS_LABEL_INHERITED);
                assert_int_equal(d.verdict.first.inputs_within, 1);
            }
            ds_diff_free(&d);
            sweep_free(&a);
            sweep_free(&b);
        }
}

/* Only what is beyond the tolerance is a drift. */
static void test_only_what_is_beyond_the_tolerance_is_a_drift(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    struct ds_error err;
    struct world w = {.off = 2};
    struct ds_diff_options o = {.blob = blob, .ctx = &w, .tolerance = {.ulp = 4}};
    start(&a);
    start(&b);
    b.tag = changed_both;
    sweep_run(&a, 1);
    sweep_run(&b, 1);
    /* A token is a whole number, which has no tolerance; here none differs. */
    assert_ok(make(&a, &b, &o, &d, &err), err);
    assert_int_equal(d.verdict.result, DS_RESULT_SAME);
    ds_diff_free(&d);
    w.lost = 1; /* nothing of B was dumped: nothing can be excused */
    assert_ok(make(&a, &b, &o, &d, &err), err);
    assert_int_equal(d.verdict.result, DS_RESULT_DRIFT);
    assert_string_equal(d.verdict.first.stage, "k_proj");
    assert_int_equal(d.excused, 0);
    assert_true(d.not_dumped > 20);
    ds_diff_free(&d);
    w.lost = 3; /* some of it */
    assert_ok(make(&a, &b, &o, &d, &err), err);
    assert_true(d.excused > 20 && d.not_dumped > 5);
    assert_int_equal(d.verdict.result, DS_RESULT_DRIFT);
    ds_diff_free(&d);
    sweep_free(&a);
    sweep_free(&b);
}

static void test_damaged_bytes_are_told_by_row(void **state)
{
    (void)state;
    for (int tolerant = 0; tolerant < 2; tolerant++) {
        struct sweep a, b;
        struct ds_diff d;
        struct ds_error err;
        struct world w = {.off = 2, .damaged = 1};
        struct ds_diff_options o = {
            .blob = blob, .ctx = &w, .tolerance = {.ulp = tolerant ? 4u : 0u}};
        start(&a);
        start(&b);
        b.tag = changed_k;
        sweep_run(&a, 1);
        sweep_run(&b, 1);
        assert_ok(make(&a, &b, &o, &d, &err), err);
        assert_int_equal(d.verdict.result, DS_RESULT_DRIFT);
        assert_true(count_items(&d, DS_DIFF_DAMAGE) >= SWEEP_PROMPT + SWEEP_STEPS);
        for (size_t i = 0; i < d.n_items; i++) {
            if (d.items[i].kind != DS_DIFF_DAMAGE)
                continue;
            assert_string_equal(d.items[i].name, "layer 0 k_proj, request 0, position 0");
            assert_null(d.items[i].a);
            assert_string_equal(d.items[i].b, "the bytes do not have that digest");
            break;
        }
        ds_diff_free(&d);
        sweep_free(&a);
        sweep_free(&b);
    }
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct sweep a, b;
    struct ds_diff d;
    struct ds_error err;
    struct world w = {.off = 2, .lost = 2};
    const char *only = "layers=0-1", *ignore = "stages=attn_out";
    struct ds_diff_options o = {.blob = blob,
                                .ctx = &w,
                                .tolerance = {.ulp = 4},
                                .only = &only,
                                .n_only = 1,
                                .ignore = &ignore,
                                .n_ignore = 1};
    start(&a);
    start(&b);
    b.tag = changed_both;
    sweep_run(&a, 1);
    sweep_run(&b, 1);
    long failed = 0;
    for (long n = 1; n < 4000; n++) {
        ds_mem_fail_at(n);
        int rc = make(&a, &b, &o, &d, &err);
        ds_mem_fail_at(0);
        if (rc == 0) {
            ds_diff_free(&d);
            break;
        }
        assert_non_null(strstr(err.msg, "out of memory"));
        failed++;
    }
    assert_true(failed > 100 && failed < 3999);
    sweep_free(&a);
    sweep_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sites_that_count),
        cmocka_unit_test(test_ignored_instability_is_none),
        cmocka_unit_test(test_names_that_no_site_has),
        cmocka_unit_test(test_rows_within_a_tolerance),
        cmocka_unit_test(test_only_what_is_beyond_the_tolerance_is_a_drift),
        cmocka_unit_test(test_labels_follow_the_bits_of_the_inputs),
        cmocka_unit_test(test_repeats_within_a_tolerance),
        cmocka_unit_test(test_damaged_bytes_are_told_by_row),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
