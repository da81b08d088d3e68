/* test_validity.c: captures that prove nothing are named, and what only looks like one is not. */
#include "tests/unit/dumps/verdict_fixture.h"

#include "dumps/census.h"
#include "dumps/validity.h"

#include <unistd.h>

#include <xxhash.h>

enum { ROWS = SWEEP_PROMPT + SWEEP_STEPS };

static uint32_t site_at(const struct sweep *s, int layer, const char *stage)
{
    for (uint32_t i = 0; i < s->header.n_sites; i++)
        if (s->header.sites[i].layer == layer && strcmp(s->header.sites[i].stage, stage) == 0)
            return i;
    fail_msg("no site %s in layer %d", stage, layer);
    return 0;
}

static void start(struct sweep *s)
{
    sweep_init(s, "batch", 3);
    sweep_arm(s, "1");
    sweep_arm(s, "2");
    s->no_sizes = 1;
    sweep_run(s, 2);
}

/* Writes one digest into every row of a site, in trials of these arms (bits). */
static void write_site(struct sweep *s, unsigned arms, int layer, const char *stage,
                       uint64_t digest)
{
    uint32_t site = site_at(s, layer, stage);
    for (size_t i = 0; i < s->n_trials; i++)
        for (int32_t p = 0; arms >> s->trials[i].info.arm & 1 && p < ROWS; p++) {
            uint32_t row = 0;
            uint64_t *d = sweep_find(&s->trials[i], site, p, &row);
            if (d)
                *d = digest;
        }
}

/* Gives a site the rows of another. */
static void copy_site(struct sweep *s, unsigned arms, uint32_t to, uint32_t from)
{
    for (size_t i = 0; i < s->n_trials; i++)
        for (int32_t p = 0; arms >> s->trials[i].info.arm & 1 && p < ROWS; p++) {
            uint32_t row = 0;
            uint64_t *x = sweep_find(&s->trials[i], to, p, &row),
                     *y = sweep_find(&s->trials[i], from, p, &row);
            if (x && y)
                *x = *y;
        }
}

static uint64_t digest_of(uint32_t pattern, size_t width)
{
    uint32_t row[1024];
    assert_true(width <= 1024);
    for (size_t i = 0; i < width; i++)
        row[i] = pattern;
    return XXH3_64bits(row, width * sizeof *row);
}

/* Every finding as "kind/stage*layers", those that prove nothing with "!". */
static const char *findings(const struct ds_verdict *v, const struct sweep *s)
{
    static char text[512];
    text[0] = '\0';
    for (size_t i = 0; i < v->validity->n_items; i++) {
        const struct ds_validity_item *x = &v->validity->items[i];
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s%s/%s*%u", i ? " " : "",
                 x->proves_nothing ? "!" : "", ds_validity_name(x->kind),
                 x->located ? s->header.sites[x->site].stage : "", x->sites);
    }
    return text;
}

static void test_a_healthy_record_has_none(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    start(&s);
    run_verdict(&s, &v);
    assert_int_equal(v.result, DS_RESULT_SAME);
    assert_string_equal(findings(&v, &s), "");
    assert_int_equal(v.validity->void_digests, 0);
    ds_verdict_free(&v);
    sweep_free(&s);
}

static void test_dead_captures(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t pattern; /* 1: no pattern, a digest of nothing known */
        unsigned arms;
        int layers;
        const char *stage, *want;
        int result;
    } cases[] = {
        {"one dead site", 1, 3, 1, "q_proj", "!constant/q_proj*1", DS_RESULT_SAME},
        {"zeros in one layer", 0, 3, 1, "attn_out", "!all-zero/attn_out*1", DS_RESULT_SAME},
        {"zeros in all", 0, 3, 3, "attn_out", "!all-zero/attn_out*3", DS_RESULT_INCOMPARABLE},
        {"a dead stage", 1, 3, 3, "down", "!constant/down*3", DS_RESULT_INCOMPARABLE},
        {"in one arm alone", 0, 2, 1, "down", "all-zero/down*1", DS_RESULT_DRIFT},
        {"not written", DS_POISON_BITS, 3, 1, "down", "!poisoned/down*1", DS_RESULT_SAME},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep s;
        struct ds_verdict v;
        start(&s);
        for (int l = 0; l < cases[i].layers; l++)
            write_site(&s, cases[i].arms, l, cases[i].stage,
                       cases[i].pattern == 1 ? 4711 : digest_of(cases[i].pattern, SWEEP_WIDTH));
        run_verdict(&s, &v);
        if (strcmp(findings(&v, &s), cases[i].want) != 0)
            print_error("%s: %s\n", cases[i].name, findings(&v, &s));
        assert_string_equal(findings(&v, &s), cases[i].want);
        assert_int_equal(v.result, cases[i].result);
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

/* Where a softmax gives all weight to one key, its rows and its layers are alike: no dead buffer. What
 * it is made of is no such thing. */
static void test_probabilities_may_be_alike(void **state)
{
    (void)state;
    for (int probs = 0; probs < 2; probs++) {
        struct sweep s;
        struct ds_verdict v;
        start(&s);
        for (int l = 0; l < 3; l++) {
            struct ds_site *down = &s.header.sites[site_at(&s, l, "down")];
            snprintf(down->stage, sizeof down->stage, "%s", probs ? "attn_probs" : "attn_scores");
            snprintf(down->op, sizeof down->op, "custom");
            write_site(&s, 3, l, down->stage, 4711);
        }
        run_verdict(&s, &v);
        assert_string_equal(findings(&v, &s), probs ? "" : "!constant/attn_scores*3");
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

/* A constant input (one token, over and over) makes constant outputs: nothing is dead. */
static void test_constant_inputs_explain_a_constant(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    start(&s);
    write_site(&s, 3, -1, "embed", 1);
    write_site(&s, 3, 0, "attn_norm", 2);
    write_site(&s, 3, 0, "q_proj", 3);
    run_verdict(&s, &v);
    assert_string_equal(findings(&v, &s), "");
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* O-39: dumps under graph replay gave every layer the same file. */
static void test_one_buffer_for_all_layers(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    start(&s);
    for (int l = 1; l < 3; l++)
        copy_site(&s, 3, site_at(&s, l, "resid_ffn"), site_at(&s, 0, "resid_ffn"));
    run_verdict(&s, &v);
    assert_string_equal(findings(&v, &s), "!equal-layers/resid_ffn*3");
    assert_int_equal(v.result, DS_RESULT_INCOMPARABLE);
    assert_non_null(strstr(v.reason, "resid_ffn"));
    assert_int_equal(ds_verdict_exit(&v), 2);
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* All stages alike: then the inputs are equal as well, and only the weights tell. */
static void test_whole_layers_alike(void **state)
{
    (void)state;
    static const char *const stages[] = {"attn_norm", "q_proj", "k_proj",     "kv_write",
                                         "attn_out",  "down",   "resid_attn", "resid_ffn"};
    for (int other_weights = 0; other_weights < 2; other_weights++) {
        struct sweep s;
        struct ds_verdict v;
        start(&s);
        sweep_weight(&s, "blk.1.attn_q.weight", 1);
        sweep_weight(&s, "blk.2.attn_q.weight", 1 + (uint64_t)other_weights);
        for (size_t k = 0; k < sizeof stages / sizeof *stages; k++)
            copy_site(&s, 3, site_at(&s, 2, stages[k]), site_at(&s, 1, stages[k]));
        /* The input of layer 2 is the output of layer 1: give both that of layer 0. */
        copy_site(&s, 3, site_at(&s, 1, "resid_ffn"), site_at(&s, 0, "resid_ffn"));
        run_verdict(&s, &v);
        assert_int_equal(strstr(findings(&v, &s), "equal-layers/q_proj*2") != NULL, other_weights);
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

static void test_equal_to_its_input(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    start(&s);
    copy_site(&s, 3, site_at(&s, 1, "q_proj"), site_at(&s, 1, "attn_norm"));
    copy_site(&s, 3, site_at(&s, 1, "resid_attn"), site_at(&s, 0, "resid_ffn")); /* adds zero */
    run_verdict(&s, &v);
    assert_string_equal(findings(&v, &s), "equals-its-input/q_proj*1");
    assert_int_equal(v.result, DS_RESULT_SAME);
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* Everything from one site on is NaN on both sides: nothing was compared. */
static void test_nan_is_no_agreement(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    start(&s);
    uint32_t site = site_at(&s, 3, "logits");
    write_site(&s, 3, 3, "logits", 99);
    struct ds_trial_data *t = &s.trials[0];
    t->nonfinites = calloc(ROWS, sizeof *t->nonfinites);
    for (int32_t p = 0; p < ROWS; p++) {
        uint32_t row = 0;
        if (sweep_find(t, site, p, &row))
            t->nonfinites[t->n_nonfinites++] =
                (struct ds_nonfinite){.site = site, .row = row, .nan = 1000};
    }
    run_verdict(&s, &v);
    assert_string_equal(findings(&v, &s), "!all-nan/logits*1");
    assert_int_equal(v.result, DS_RESULT_INCOMPARABLE);
    assert_true(v.validity->void_digests > 0);
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* One trial has nothing to disagree with; a capture that proves nothing is an objection all the same. */
static void test_of_one_trial(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 3);
    sweep_arm(&s, "1");
    s.no_sizes = 1;
    sweep_run(&s, 1);
    run_verdict(&s, &v);
    assert_int_equal(v.result, DS_RESULT_RECORDED);
    ds_verdict_free(&v);
    for (int layer = 0; layer < 3; layer++)
        write_site(&s, 1, layer, "q_proj",
                   digest_of(0, s.header.sites[site_at(&s, layer, "q_proj")].width));
    run_verdict(&s, &v);
    assert_int_equal(v.result, DS_RESULT_INCOMPARABLE);
    assert_non_null(strstr(v.reason, "the captures prove nothing"));
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* ---- probes, trials, fixtures ---------------------------------------------------------------- */

static void add_bare(struct sweep *s, uint32_t arm, int other, int dumps)
{
    struct ds_trial_data *t = NULL;
    for (size_t i = 0; i < s->n_trials && dumps; i++)
        if (s->trials[i].info.arm == arm) {
            struct ds_blob *b = s->trials[i].blobs = calloc(1, sizeof *b);
            b->bytes = (b->elements = 4) * sizeof(float);
            b->data = calloc(b->elements, sizeof(float));
            b->digest = XXH3_64bits(b->data, b->bytes);
            snprintf(b->dtype, sizeof b->dtype, "f32");
            s->trials[i].n_blobs = 1;
        }
    t = sweep_trial(s, arm, 0);
    t->info.pass = DS_PASS_BARE;
    t->steps[1].digest ^= (uint64_t)other;
}

/* The verdict over a record of the sweep: dumped rows are not read with a trial. */
static void verdict_from_disk(const struct sweep *s, struct ds_verdict *v)
{
    char dir[] = "/tmp/driftscope-test.XXXXXX", path[64];
    struct ds_error err;
    struct ds_writer *w;
    struct ds_record *r;
    struct ds_source source;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/record.h5", dir);
    assert_ok(ds_writer_create(path, 0, &s->header, &w, NULL, &err), err);
    for (size_t i = 0; i < s->n_trials; i++)
        assert_ok(ds_writer_add(w, &s->trials[i], &err), err);
    assert_ok(ds_writer_close(w, &err), err);
    assert_ok(ds_record_open(path, &r, &err), err);
    ds_source_record(&source, r);
    assert_ok(ds_verdict_make(&source, v, &err), err);
    ds_record_close(r);
    unlink(path);
    rmdir(dir);
}

static void test_which_probe_disturbs(void **state)
{
    (void)state;
    static const struct {
        int digest, dump, disturbs, disturber;
        const char *want, *says;
    } cases[] = {{0, 0, 0, DS_DISTURBS_NOTHING, "", NULL},
                 {1, 1, 1, DS_DISTURBS_DIGEST, "!probes-disturb/*0", "digests change the answer"},
                 {0, 1, 1, DS_DISTURBS_DUMP, "!probes-disturb/*0", "the dump changes the answer"},
                 {-1, 1, 1, DS_DISTURBS_EITHER, "!probes-disturb/*0",
                  "digests or the dump change the answer"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sweep s;
        struct ds_verdict v;
        start(&s);
        if (cases[i].digest >= 0)
            add_bare(&s, 0, cases[i].digest, 0);
        add_bare(&s, 1, cases[i].dump, 1);
        sweep_line(&s.header.options, &s.header.n_options, "dump", "3"); /* all: no mere sample */
        run_verdict(&s, &v);
        assert_int_equal(v.disturbs, cases[i].disturbs);
        assert_int_equal(v.disturber, cases[i].disturber);
        assert_string_equal(findings(&v, &s), cases[i].want);
        if (cases[i].says)
            assert_ptr_equal(strstr(v.validity->items[0].text, cases[i].says),
                             v.validity->items[0].text);
        assert_int_equal(v.result, *cases[i].want ? DS_RESULT_INCOMPARABLE : DS_RESULT_SAME);
        ds_verdict_free(&v);
        verdict_from_disk(&s, &v);
        assert_int_equal(v.disturbs, cases[i].disturbs);
        assert_int_equal(v.disturber, cases[i].disturber);
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

static uint32_t second_arm_is_odd(const struct cell *c)
{
    return c->arm == 1 && cell_is(c, 0, "down");
}

static uint32_t each_is_odd(const struct cell *c)
{
    return cell_is(c, 0, "down") ? c->repeat : 0;
}

/* Where repeats disagree the pass without probes may be like one of them; like none says nothing. */
static void test_probes_beside_unstable_kernels(void **state)
{
    (void)state;
    for (int other = 0; other < 2; other++) {
        struct sweep s;
        struct ds_verdict v;
        sweep_init(&s, "batch", 1);
        sweep_arm(&s, "1");
        s.tag = each_is_odd;
        s.no_sizes = 1;
        sweep_run(&s, 3);
        add_bare(&s, 0, other, 0);
        run_verdict(&s, &v);
        assert_false(v.stable);
        assert_int_equal(v.check, other ? DS_CHECK_UNSTABLE : DS_CHECK_AGREES_WITH_ONE);
        assert_int_equal(v.disturbs, other ? -1 : 0);
        assert_string_equal(findings(&v, &s), "");
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

/* Repeats agree, and passes without probes do not: a kernel that is unstable now and then, and no probe's fault. */
static void test_passes_without_probes_that_part(void **state)
{
    (void)state;
    for (int drifts = 0; drifts < 2; drifts++) {
        struct sweep s;
        struct ds_verdict v;
        sweep_init(&s, "batch", 1);
        sweep_arm(&s, "1");
        sweep_arm(&s, "2");
        s.tag = drifts ? second_arm_is_odd : NULL;
        s.no_sizes = 1;
        sweep_run(&s, 2);
        add_bare(&s, 0, 1, 0);
        add_bare(&s, 0, 0, 0);
        run_verdict(&s, &v);
        assert_int_equal(v.check, DS_CHECK_PARTED);
        assert_int_equal(v.disturbs, -1);
        assert_int_equal(v.result, drifts ? DS_RESULT_DRIFT : DS_RESULT_INCOMPARABLE);
        assert_int_equal(strstr(v.reason, "a kernel is unstable") != NULL, !drifts);
        assert_string_equal(findings(&v, &s), "");
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

static uint32_t first_is_odd(const struct cell *c)
{
    return c->arm == 0 && c->repeat == 0 && cell_is(c, 0, "down");
}

static void test_warm_up_and_inert_fixtures(void **state)
{
    (void)state;
    struct sweep s;
    struct ds_verdict v;
    sweep_init(&s, "batch", 1);
    sweep_arm(&s, "1");
    s.tag = first_is_odd;
    s.no_sizes = 1;
    sweep_run(&s, 5);
    for (size_t i = 0; i < s.n_trials; i++)
        s.trials[i].info.start_s = (double)i;
    sweep_line(&s.header.options, &s.header.n_options, "inert",
               "a swap of two heads at q_rope\na shift of positions at k_rope");
    run_verdict(&s, &v);
    assert_string_equal(findings(&v, &s), "warm-up/*0 inert-fixture/*0 inert-fixture/*0");
    assert_int_equal(v.result, DS_RESULT_DRIFT);
    assert_string_equal(v.validity->items[1].text,
                        "the fixture is inert under a shift of positions at k_rope");
    assert_string_equal(v.validity->items[2].text,
                        "the fixture is inert under a swap of two heads at q_rope");
    ds_verdict_free(&v);
    sweep_free(&s);
}

/* Equal digests of an inert fixture, and a recording of one, are no success. */
static void test_an_inert_fixture_is_no_pass(void **state)
{
    (void)state;
    for (uint32_t repeats = 1; repeats < 3; repeats++) {
        struct sweep s;
        struct ds_verdict v;
        sweep_init(&s, "batch", 1);
        sweep_arm(&s, "1");
        s.no_sizes = 1;
        sweep_run(&s, repeats);
        sweep_line(&s.header.options, &s.header.n_options, "inert",
                   "a swap of two heads at q_rope\na shift of positions at k_rope");
        run_verdict(&s, &v);
        assert_int_equal(v.result, DS_RESULT_INCOMPARABLE);
        assert_int_equal(ds_verdict_exit(&v), 2);
        assert_string_equal(v.reason,
                            "the fixture is inert under a shift of positions at k_rope and 1 more");
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_healthy_record_has_none),
        cmocka_unit_test(test_dead_captures),
        cmocka_unit_test(test_probabilities_may_be_alike),
        cmocka_unit_test(test_constant_inputs_explain_a_constant),
        cmocka_unit_test(test_one_buffer_for_all_layers),
        cmocka_unit_test(test_whole_layers_alike),
        cmocka_unit_test(test_equal_to_its_input),
        cmocka_unit_test(test_nan_is_no_agreement),
        cmocka_unit_test(test_of_one_trial),
        cmocka_unit_test(test_which_probe_disturbs),
        cmocka_unit_test(test_an_inert_fixture_is_no_pass),
        cmocka_unit_test(test_probes_beside_unstable_kernels),
        cmocka_unit_test(test_passes_without_probes_that_part),
        cmocka_unit_test(test_warm_up_and_inert_fixtures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
