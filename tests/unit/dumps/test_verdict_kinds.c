/* test_verdict_kinds.c: how large a difference is, what kind that makes it, and what is claimed of choices. */
#include "tests/unit/dumps/verdict_fixture.h"

static void test_kinds_need_evidence(void **state)
{
    (void)state;
    static const struct {
        double relative;
        uint32_t elements;
        int kind;
        const char *what;
    } cases[] = {
        {1e-8, 20, DS_KIND_ROUNDING_ORDER, "a few last places"},
        {5.6e-7, 500, DS_KIND_ROUNDING_ORDER, "f32 in another order"},
        {2e-5, 500, DS_KIND_UNKNOWN, "more than reordering"},
        {2.95e-4, SWEEP_WIDTH, DS_KIND_LOWER_PRECISION, "TF32"},
        {2.3e-3, SWEEP_WIDTH, DS_KIND_LOWER_PRECISION, "bf16 inputs"},
        {2.95e-4, 60, DS_KIND_UNKNOWN, "as large, in a tenth of the elements"},
        {4e-2, SWEEP_WIDTH, DS_KIND_UNKNOWN, "between the precisions"},
        {1.2, SWEEP_WIDTH, DS_KIND_WRONG_DATA, "other data"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep s;
        struct ds_verdict v;
        sweep_init(&s, "batch", 1);
        sweep_arm(&s, "1");
        sweep_arm(&s, "4");
        s.tag = openblas_one_thread;
        s.relative = cases[i].relative;
        s.elements = cases[i].elements;
        sweep_run(&s, 2);
        run_verdict(&s, &v);
        if (v.first.kind != cases[i].kind)
            print_error("%s: %s (%s)\n", cases[i].what, ds_kind_name(v.first.kind), v.first.why);
        assert_int_equal(v.first.kind, cases[i].kind);
        assert_true(v.first.sized);
        assert_int_equal(v.first.elements, (uint64_t)cases[i].elements * v.first.rows);
        assert_close("relative rms", i, v.first.relative_rms, cases[i].relative, 1e-12);
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

/* What one position of q_proj, or all, does at batch 4. */
static uint32_t one_position(const struct cell *c)
{
    return cell_number(c, "batch", 1) == 4 && cell_is(c, 0, "q_proj") && c->position == 4;
}

static uint32_t all_positions(const struct cell *c)
{
    return cell_number(c, "batch", 1) == 4 && cell_is(c, 0, "q_proj");
}

static void judge_stored(struct sweep *s, struct ds_verdict *v, const char *dtype, double relative,
                         uint32_t elements, uint32_t (*tag)(const struct cell *))
{
    sweep_init(s, "batch", 1);
    for (size_t i = 0; i < s->header.n_sites; i++)
        if (strcmp(s->header.sites[i].dtype, "f32") == 0)
            snprintf(s->header.sites[i].dtype, sizeof s->header.sites[i].dtype, "%s", dtype);
    sweep_arm(s, "1");
    sweep_arm(s, "4");
    s->tag = tag;
    s->relative = relative;
    s->elements = elements;
    sweep_run(s, 2);
    run_verdict(s, v);
}

/* In 16 bits a reordering shows as an element here and there. The rows that differ were picked by
 * it: one step in one row of nine is no other algorithm, a quarter of all elements is. */
static void test_flips_of_storage_are_rounding(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        double relative;
        uint32_t elements;
        uint32_t (*tag)(const struct cell *);
        int kind;
    } cases[] = {
        {"bf16", 3e-4, 1, one_position, DS_KIND_ROUNDING_ORDER},
        {"bf16", 1e-8, 1, one_position, DS_KIND_ROUNDING_ORDER},
        {"f16", 4e-5, 1, one_position, DS_KIND_ROUNDING_ORDER},
        {"f16", 6e-5, 12, one_position, DS_KIND_ROUNDING_ORDER},
        {"bf16", 2e-3, 150, all_positions, DS_KIND_UNKNOWN},
        {"f16", 2e-2, 1, one_position, DS_KIND_WRONG_DATA},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep s;
        struct ds_verdict v;
        judge_stored(&s, &v, cases[i].dtype, cases[i].relative, cases[i].elements, cases[i].tag);
        if (v.first.kind != cases[i].kind)
            print_error("case %zu: %s (%s)\n", i, ds_kind_name(v.first.kind), v.first.why);
        assert_int_equal(v.first.kind, cases[i].kind);
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

static uint32_t router_moves(const struct cell *c)
{
    return cell_number(c, "batch", 1) == 4 && cell_is(c, 0, "router_ids");
}

/* The weights of a router's choices are numbers: other weights are no other choice. */
static void test_router_weights_are_no_selection(void **state)
{
    (void)state;
    for (int ids = 0; ids < 2; ids++) {
        struct sweep s;
        struct ds_verdict v;
        sweep_init(&s, "batch", 1);
        struct ds_site *q = &s.header.sites[2];
        assert_string_equal(q->stage, "q_proj");
        snprintf(q->stage, sizeof q->stage, "router_ids");
        snprintf(q->part, sizeof q->part, "%s", ids ? "" : "weights");
        snprintf(q->dtype, sizeof q->dtype, "%s", ids ? "i32" : "f32");
        sweep_arm(&s, "1");
        sweep_arm(&s, "4");
        s.tag = router_moves;
        s.relative = 0.5;
        sweep_run(&s, 2);
        run_verdict(&s, &v);
        assert_string_equal(v.first.stage, "router_ids");
        assert_int_equal(v.first.kind, ids ? DS_KIND_SELECTION_ONLY : DS_KIND_WRONG_DATA);
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

/* Dumped ids of the two sides of one row, as a record might have them. */
struct two_rows {
    uint64_t digest[2];
    int32_t ids[2][4096];
    const char *dtype;
    uint32_t bytes;
    int unread, asked;
    struct sweep *sweep;
};

static int two_rows_blob(void *ctx, uint64_t digest, struct ds_blob *out, struct ds_error *err)
{
    struct two_rows *x = ctx;
    for (int side = 0; side < 2; side++) {
        if (digest != x->digest[side])
            continue;
        x->asked++;
        if (x->unread) {
            ds_fail(err, "out of memory for a dumped row");
            return DS_BLOB_UNREAD;
        }
        *out = (struct ds_blob){.digest = digest, .elements = x->bytes / 4, .bytes = x->bytes};
        snprintf(out->dtype, sizeof out->dtype, "%s", x->dtype);
        out->data = malloc(x->bytes + 1);
        assert_non_null(out->data);
        memcpy(out->data, x->ids[side], x->bytes);
        return 1;
    }
    return 0;
}

static const struct ds_trial *router_info(void *ctx, size_t i)
{
    return sweep_info(((struct two_rows *)ctx)->sweep, i);
}

static const struct ds_trial_data *router_get(void *ctx, size_t i, struct ds_error *err)
{
    return sweep_get(((struct two_rows *)ctx)->sweep, i, err);
}

/* Which experts changed places is told from dumped ids, as long as the site is wide; other rows of the same
 * digest say nothing, and what could not be read is an error. */
static void test_which_experts_changed(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    struct ds_error err;
    struct two_rows rows = {.dtype = "i32", .sweep = &s};
    sweep_init(&s, "batch", 1);
    struct ds_site *q = &s.header.sites[2];
    const uint32_t width = q->width;
    assert_true(width >= 4 && width < 4096);
    snprintf(q->stage, sizeof q->stage, "router_ids");
    snprintf(q->dtype, sizeof q->dtype, "i32");
    snprintf(q->op, sizeof q->op, "router");
    sweep_arm(&s, "1");
    sweep_arm(&s, "4");
    s.tag = router_moves;
    sweep_run(&s, 2);
    run_verdict(&s, &v);
    assert_true(v.expert_change.found);
    assert_int_equal(v.expert_change.n_swapped, 0);
    rows.digest[0] = v.expert_change.ref_digest;
    rows.digest[1] = v.expert_change.digest;
    ds_verdict_free(&v);
    for (uint32_t i = 0; i < width; i++)
        rows.ids[0][i] = rows.ids[1][i] = (int32_t)i + 10;
    rows.ids[1][1] = 99;
    const struct ds_source source = {.header = &s.header,
                                     .n_trials = s.n_trials,
                                     .info = router_info,
                                     .get = router_get,
                                     .ctx = &rows,
                                     .blob = two_rows_blob};
    for (int how = 0; how < 5; how++) {
        rows.dtype = how == 1 ? "f32" : "i32";
        rows.bytes = 4 * (how == 2 ? width - 1 : how == 3 ? width + 1 : width);
        rows.unread = how == 4;
        rows.asked = 0;
        int rc = ds_verdict_make(&source, &v, &err);
        assert_true(rows.asked > 0);
        assert_int_equal(rc, how == 4 ? -1 : 0);
        if (how == 4) {
            assert_non_null(strstr(err.msg, "out of memory for a dumped row"));
            continue;
        }
        assert_int_equal(v.expert_change.n_swapped, how == 0);
        if (how == 0) {
            assert_int_equal(v.expert_change.swapped[0].a, 11);
            assert_int_equal(v.expert_change.swapped[0].b, 99);
        }
        ds_verdict_free(&v);
    }
    sweep_free(&s);
}

/* Makes the difference of one drifting row at the first site so much larger. */
static void worsen(struct sweep *s, uint32_t arm, int32_t position, double relative)
{
    for (size_t t = 0; t < s->n_trials; t++)
        for (size_t i = 0; i < s->trials[t].n_drifts; i++) {
            struct ds_drift *d = &s->trials[t].drifts[i];
            if (s->trials[t].info.arm == arm && d->ref_arm != arm &&
                s->trials[t].rows[d->row].position == position)
                d->diff_sq = relative * relative * d->ref_sq;
        }
}

/* A mean over many rows says rounding; the row says otherwise. */
static void test_one_wrong_row_does_not_hide(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        struct sweep s;
        struct ds_verdict v;
        sweep_init(&s, "batch", 1);
        sweep_arm(&s, "1");
        sweep_arm(&s, "4");
        s.tag = openblas_one_thread;
        s.relative = 1e-8;
        sweep_run(&s, 2);
        if (bad)
            worsen(&s, 1, SWEEP_PROMPT + 1, 3e-3);
        run_verdict(&s, &v);
        assert_int_equal(v.first.kind, bad ? DS_KIND_WRONG_DATA : DS_KIND_ROUNDING_ORDER);
        assert_true(!bad || strstr(v.first.why, "position 7: relative rms 0.003"));
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

static struct ds_drift *drift_at(struct sweep *s, uint32_t site)
{
    for (size_t t = 0; t < s->n_trials; t++)
        for (size_t i = 0; i < s->trials[t].n_drifts; i++)
            if (s->trials[t].drifts[i].site == site)
                return &s->trials[t].drifts[i];
    return NULL;
}

/* One grossly wrong row among good ones must not pass as rounding. */
static void test_one_wrong_row_is_not_rounding(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    sweep_arm(&s, "4");
    s.tag = openblas_one_thread;
    s.relative = 1e-8;
    sweep_run(&s, 1);
    drift_at(&s, 2)->diff_sq =
        1e-9; /* of 2304: alone relative 6.6e-7 in the site, but far above in this row */
    drift_at(&s, 2)->ref_sq = 1e-1;
    run_verdict(&s, &v);
    assert_true(v.first.relative_rms < 4e-6);
    assert_int_equal(v.first.kind, DS_KIND_UNKNOWN);
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_equal_values_and_nans_are_their_own_thing(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        struct sweep s;
        struct ds_verdict v;
        sweep_init(&s, "batch", 1);
        sweep_arm(&s, "1");
        sweep_arm(&s, "4");
        s.tag = batch_only;
        sweep_run(&s, 2);
        for (size_t t = 0; t < s.n_trials; t++)
            for (size_t i = 0; i < s.trials[t].n_drifts; i++) {
                struct ds_drift *d = &s.trials[t].drifts[i];
                d->flags = which == 0 ? DS_DRIFT_VALUES_EQUAL : which == 1 ? DS_DRIFT_NAN_BITS : 0;
                d->max_ulp = 0;
                d->diff_sq = 0;
                d->nonfinite = which == 2 ? 3 : which == 1;
                d->ref_nonfinite = which == 1;
            }
        run_verdict(&s, &v);
        assert_int_equal(v.result, DS_RESULT_DRIFT);
        assert_int_equal(v.first.kind, which == 2 ? DS_KIND_NON_FINITE : DS_KIND_SAME_VALUES);
        assert_non_null(strstr(v.first.why, which == 0   ? "values equal"
                                            : which == 1 ? "NaN"
                                                         : "one side"));
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

static void test_no_sizes_no_claim(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    sweep_arm(&s, "4");
    s.tag = batch_only;
    s.no_sizes = 1;
    sweep_run(&s, 2);
    run_verdict(&s, &v);
    assert_int_equal(v.first.kind, DS_KIND_UNKNOWN);
    assert_false(v.first.sized);
    assert_int_equal(v.n_growth, 0);
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_first_nonfinite_in_execution_order(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 2);
    sweep_arm(&s, "1");
    sweep_arm(&s, "2");
    sweep_run(&s, 2);
    struct ds_nonfinite list[] = {
        {15, 3, 0, 2, 7}, {8, 3, 1, 2, 7}, {7, 5, 0, 4, 1}, {7, 3, 0, 2, 7}};
    s.trials[2].nonfinites = calloc(4, sizeof list[0]);
    memcpy(s.trials[2].nonfinites, list, sizeof list);
    s.trials[2].n_nonfinites = 4;
    run_verdict(&s, &v);
    assert_int_equal(v.result, DS_RESULT_SAME);
    assert_true(v.nonfinite.at.found);
    assert_string_equal(v.nonfinite.at.stage, "down");
    assert_int_equal(v.nonfinite.at.layer, 0);
    assert_int_equal(v.nonfinite.at.position, 3);
    assert_int_equal(v.nonfinite.at.rows, 2);
    assert_int_equal(v.nonfinite.inf, 2);
    assert_int_equal(v.nonfinite.inputs, 1);
    ds_verdict_free(&v);
    sweep_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds_need_evidence),
        cmocka_unit_test(test_flips_of_storage_are_rounding),
        cmocka_unit_test(test_router_weights_are_no_selection),
        cmocka_unit_test(test_which_experts_changed),
        cmocka_unit_test(test_one_wrong_row_does_not_hide),
        cmocka_unit_test(test_one_wrong_row_is_not_rounding),
        cmocka_unit_test(test_equal_values_and_nans_are_their_own_thing),
        cmocka_unit_test(test_no_sizes_no_claim),
        cmocka_unit_test(test_first_nonfinite_in_execution_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
