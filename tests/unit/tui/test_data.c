/* test_data.c: what the screen is told against the verdict's own numbers: whole, pairs, sites, values, steps. */
#include "tests/unit/tui/data_fixture.h"

#include <math.h>
#include <xxhash.h>

static struct sweep sweep;
static uint32_t q_proj;

static uint32_t site_named(const struct ds_header *h, int layer, const char *stage)
{
    for (uint32_t i = 0; i < h->n_sites; i++)
        if (h->sites[i].layer == layer && strcmp(h->sites[i].stage, stage) == 0)
            return i;
    fail_msg("no such site");
    return 0;
}

/* A record with repeats, sizes, and the values of one row on both sides. */
static int write_record(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    float mine[4] = {1, 2, 3, 4}, ref[4] = {1, 2, -0.0f, 4};
    fixture_plan(&sweep, two_faults);
    sweep_run(&sweep, 2);
    q_proj = site_named(&sweep.header, 1, "q_proj");
    sweep.header.sites[q_proj].width = 4;
    for (size_t i = 0; i < sweep.n_trials; i++) {
        struct ds_trial_data *t = &sweep.trials[i];
        for (size_t k = 0; k < t->n_captures; k++)
            if (t->captures[k].site == q_proj)
                t->captures[k].width = 4;
        const int drifts = t->info.arm == 2;
        fixture_blob(t, q_proj, 0, drifts ? mine : ref, 4,
                     XXH3_64bits(drifts ? mine : ref, sizeof mine));
        for (size_t k = 0; k < t->n_drifts; k++)
            if (drifts && t->drifts[k].site == q_proj && t->drifts[k].row == 0)
                t->drifts[k].ref_digest = XXH3_64bits(ref, sizeof ref);
    }
    write_sweep(&sweep, test_path("one.h5"), sweep.n_trials);
    return 0;
}

static int remove_record(void **state)
{
    sweep_free(&sweep);
    return remove_folder(state);
}

/* The same record, judged without the screen. */
struct plain {
    struct ds_record *record;
    struct ds_source source;
    struct ds_analysis *analysis;
    struct ds_verdict verdict;
};

static void plain_open(struct plain *p, const char *path)
{
    struct ds_error err;
    assert_ok(ds_record_open(path, &p->record, &err), err);
    ds_source_record(&p->source, p->record);
    assert_ok(ds_analysis_new(&p->source, NULL, &p->analysis, &err), err);
    assert_ok(ds_analysis_verdict(p->analysis, &p->verdict, &err), err);
}

static void plain_close(struct plain *p)
{
    ds_verdict_free(&p->verdict);
    ds_analysis_free(p->analysis);
    ds_record_close(p->record);
}

static void test_the_whole_is_the_verdict(void **state)
{
    (void)state;
    struct plain p;
    plain_open(&p, test_path("one.h5"));
    struct ds_finding first = p.verdict.first;
    uint64_t compared = p.verdict.counts.digests_compared;
    size_t origins = p.verdict.n_origins;
    plain_close(&p);

    struct tui_data *d = open_data(test_path("one.h5"), NULL, 0);
    const struct tui_whole *w = tui_data_whole(d);
    assert_non_null(w->header);
    assert_int_equal(w->n_trials, 8); /* before anything was judged */
    assert_null(w->verdict);          /* what comes is taken over by a turn, and not before */
    assert_int_equal(tui_data_wait(d, LONG), 0);
    assert_int_equal(tui_data_turn(d), 1); /* what came while waiting is to be drawn */
    assert_int_equal(tui_data_turn(d), 0);
    w = tui_data_whole(d);
    assert_true(w->generation > 1);
    assert_non_null(w->verdict);
    assert_null(w->error);
    assert_null(w->note);
    assert_int_equal(w->verdict->result, DS_RESULT_DRIFT);
    assert_int_equal(w->verdict->first.site, first.site);
    assert_int_equal(w->verdict->first.site, q_proj);
    assert_int_equal(w->verdict->first.arm, first.arm);
    assert_int_equal(w->verdict->counts.digests_compared, compared);
    assert_int_equal(w->verdict->n_origins, origins);
    assert_ptr_equal(w->report.v, w->verdict);
    assert_ptr_equal(w->report.header, w->header);
    for (size_t i = 0; i < w->n_trials; i++) {
        assert_int_equal(w->trials[i]->arm, i / 2);
        assert_int_equal(w->trials[i]->repeat, i % 2);
    }
    tui_data_close(d);
}

static void check_pair(const struct plain *p, const struct tui_pair *got)
{
    struct ds_error err;
    uint8_t *labels, *healed;
    size_t rows = ds_analysis_rows(p->analysis), sites = p->source.header->n_sites;
    assert_ok(ds_analysis_labels(p->analysis, got->arm, got->ref, &labels, &err), err);
    assert_int_equal(ds_analysis_healed(p->analysis, got->arm, got->ref, &healed, &err), 0);
    assert_null(got->healed);
    assert_int_equal(got->n_rows, rows);
    assert_int_equal(got->n_sites, sites);
    assert_memory_equal(got->labels, labels, sites * rows);
    for (size_t i = 0; i < rows; i++)
        assert_memory_equal(&got->keys[i], ds_analysis_row(p->analysis, i), sizeof *got->keys);
    for (size_t s = 0; s < sites; s++) {
        uint32_t count[7] = {0}, compared = 0;
        for (size_t i = 0; i < rows; i++) {
            count[labels[s * rows + i]]++;
            compared += labels[s * rows + i] != DS_LABEL_ABSENT;
        }
        assert_memory_equal(count, got->sites[s].drift, sizeof count);
        assert_int_equal(got->sites[s].compared, compared);
        assert_true(isnan(got->sites[s].added_relative_rms));
    }
    free(labels);
}

/* Every arm against its reference and against itself; sizes as the verdict's finding has them. */
static void test_pairs(void **state)
{
    (void)state;
    struct plain p;
    plain_open(&p, test_path("one.h5"));
    struct ds_verdict *v = &p.verdict;
    struct ds_finding f = v->first;
    struct tui_data *d = open_data(test_path("one.h5"), NULL, 0);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    for (uint32_t arm = 0; arm < 4; arm++)
        for (uint32_t ref = 0; ref < 4; ref++)
            check_pair(&p, get_pair(d, arm, ref));

    const struct tui_pair *pair = get_pair(d, f.arm, f.ref_arm);
    const struct tui_site_sum *s = &pair->sites[f.site];
    assert_int_equal(s->label, DS_LABEL_ORIGIN);
    assert_int_equal(s->drift[DS_LABEL_ORIGIN], f.rows);
    assert_int_equal(s->sized, f.rows);
    assert_int_equal(s->elements, f.elements);
    assert_int_equal(s->max_ulp, f.max_ulp);
    assert_true(s->max_abs == f.max_abs);
    assert_true(s->relative_rms == f.relative_rms);
    assert_int_equal(pair->sites[f.site - 1].label, DS_LABEL_SAME);
    uint32_t below = site_named(p.source.header, 2, "resid_ffn");
    assert_int_equal(pair->sites[below].label, DS_LABEL_INHERITED);
    plain_close(&p);
    tui_data_close(d);
}

static void test_an_arm_that_is_not_there(void **state)
{
    (void)state;
    const char *error = NULL;
    struct tui_data *d = open_data(test_path("one.h5"), NULL, 0);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    assert_null(tui_data_pair(d, 7, 0, &error));
    assert_null(error);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    assert_null(tui_data_pair(d, 7, 0, &error));
    assert_non_null(strstr(error, "arm 7 of 4"));
    assert_null(tui_data_site(d, 1, 0, 100000, &error));
    assert_int_equal(tui_data_wait(d, LONG), 0);
    assert_null(tui_data_site(d, 1, 0, 100000, &error));
    assert_non_null(strstr(error, "site 100000"));
    assert_int_equal(tui_data_pending(d), 0); /* an answer is an answer: it is not asked again */
    tui_data_close(d);
}

static void test_a_site(void **state)
{
    (void)state;
    struct plain p;
    struct ds_error err;
    struct ds_site_profile profile;
    plain_open(&p, test_path("one.h5"));
    struct tui_data *d = open_data(test_path("one.h5"), NULL, 0);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    const struct tui_site *s = get_site(d, 2, 0, q_proj);
    assert_int_equal(s->n_arms, 4);
    assert_int_equal(s->n_rows, SWEEP_PROMPT + SWEEP_STEPS);
    assert_ok(ds_analysis_site(p.analysis, 2, 0, q_proj, &profile, &err), err);
    assert_int_equal(s->profile->n_positions, profile.n_positions);
    assert_int_equal(s->profile->n_channels, profile.n_channels);
    assert_int_equal(s->profile->at.max_ulp, profile.at.max_ulp);
    ds_site_profile_free(&profile);
    for (size_t i = 0; i < s->n_rows; i++) {
        const struct tui_row_fact *f = &s->facts[i];
        const int drifts = i < SWEEP_PROMPT; /* M = 24 in the prompt's call, 4 after it */
        uint64_t digest;
        assert_int_equal(f->has, ds_analysis_digest(p.analysis, 2, q_proj, i, &digest));
        assert_true(f->digest == digest);
        assert_int_equal(f->ref_has, ds_analysis_digest(p.analysis, 0, q_proj, i, &digest));
        assert_true(f->ref_digest == digest);
        assert_int_equal(f->row.position, s->keys[i].position);
        assert_int_equal(s->labels[i] == DS_LABEL_ORIGIN, drifts);
        assert_int_equal(f->sized, f->digest != f->ref_digest);
        assert_int_equal(f->dumped, i == 0);
        assert_int_equal(f->ref_dumped, i == 0);
        /* classes: base, batch 2, batch 4, threads 2 */
        assert_int_equal(s->class_of[i * 4 + 0], 0);
        assert_int_equal(s->class_of[i * 4 + 1], 0);
        assert_int_equal(s->class_of[i * 4 + 2], drifts);
        assert_int_equal(s->class_of[i * 4 + 3], 0);
    }
    assert_int_equal(s->n_inputs, 1);
    assert_int_equal(s->inputs[0].site, site_named(p.source.header, 1, "attn_norm"));
    assert_int_equal(s->inputs[0].edge, DS_EDGE_ROW);
    assert_int_equal(s->inputs[0].label, DS_LABEL_SAME);
    assert_string_equal(s->launch->variant, "openblas");
    assert_string_equal(s->ref_launch->variant, "openblas");

    const struct tui_site *attn = get_site(d, 2, 0, site_named(p.source.header, 1, "attn_out"));
    assert_int_equal(attn->n_inputs, 2);
    assert_int_equal(attn->inputs[0].label, DS_LABEL_ORIGIN);
    assert_int_equal(attn->inputs[1].edge, DS_EDGE_CAUSAL);
    plain_close(&p);
    tui_data_close(d);
}

static void test_values(void **state)
{
    (void)state;
    const float mine[4] = {1, 2, 3, 4}, ref[4] = {1, 2, -0.0f, 4};
    const uint64_t a = XXH3_64bits(mine, sizeof mine), b = XXH3_64bits(ref, sizeof ref);
    const char *error = NULL;
    struct tui_data *d = open_data(test_path("one.h5"), NULL, 0);
    assert_null(tui_data_values(d, 2, 0, a, b, &error));
    assert_int_equal(tui_data_wait(d, LONG), 0);
    const struct tui_values *v = tui_data_values(d, 2, 0, a, b, &error);
    assert_non_null(v);
    assert_int_equal(v->mine.elements, 4);
    assert_memory_equal(v->mine.data, mine, sizeof mine);
    assert_memory_equal(v->ref.data, ref, sizeof ref);
    assert_null(tui_data_values(d, 2, 0, 12345, b, &error));
    assert_int_equal(tui_data_wait(d, LONG), 0);
    v = tui_data_values(d, 2, 0, 12345, b, &error);
    assert_null(error);
    assert_null(v->mine.data);
    assert_memory_equal(v->ref.data, ref, sizeof ref);
    tui_data_close(d);
}

static void test_steps(void **state)
{
    (void)state;
    const char *error = NULL;
    struct tui_data *d = open_data(test_path("one.h5"), NULL, 0);
    tui_data_steps(d, 2, 0, &error);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    const struct tui_steps *s = tui_data_steps(d, 2, 0, &error);
    assert_non_null(s);
    assert_int_equal(s->n, SWEEP_STEPS + 1);
    for (size_t i = 0; i < s->n; i++) {
        assert_int_equal(s->steps[i].mine.step, i);
        assert_int_equal(s->steps[i].ref.step, i);
        assert_int_equal(s->steps[i].mine.token, 100 + i);
        assert_int_equal(s->steps[i].label, DS_LABEL_INHERITED);
        assert_int_equal(s->steps[i].sized, 1);
        assert_true(s->steps[i].max_abs == 1e-6);
    }
    tui_data_close(d);
}

/* Two records: the joined arms are A and B. */
static void test_two_records(void **state)
{
    (void)state;
    const char *error = NULL;
    struct sweep other;
    fixture_plan(&other, no_fault);
    sweep_run(&other, 1);
    other.header.sites[q_proj].width = 4;
    for (size_t i = 0; i < other.n_trials; i++)
        for (size_t k = 0; k < other.trials[i].n_captures; k++)
            if (other.trials[i].captures[k].site == q_proj)
                other.trials[i].captures[k].width = 4;
    write_sweep(&other, test_path("two.h5"), other.n_trials);
    struct tui_data *d = open_data(test_path("one.h5"), test_path("two.h5"), 0);
    assert_non_null(tui_data_whole(d)->sides[0]);
    assert_non_null(tui_data_whole(d)->sides[1]);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    const struct tui_whole *w = tui_data_whole(d);
    assert_non_null(w->diff);
    assert_ptr_equal(w->header, &w->diff->header);
    assert_int_equal(w->verdict->result, DS_RESULT_DRIFT);
    assert_int_equal(w->n_trials, w->diff->n_trials);
    assert_int_equal(w->diff->pairs, 4);
    const struct tui_pair *p = get_pair(d, 5, 4); /* batch 4: B against A */
    assert_int_equal(p->sites[q_proj].drift[DS_LABEL_ORIGIN], SWEEP_PROMPT);
    assert_non_null(get_site(d, 5, 4, q_proj));
    assert_null(tui_data_steps(d, 5, 4, &error));
    assert_int_equal(tui_data_wait(d, LONG), 0);
    assert_int_equal(tui_data_steps(d, 5, 4, &error)->n, SWEEP_STEPS + 1);
    tui_data_close(d);

    other.header.n_layers = 4;
    snprintf(other.header.model_arch, sizeof other.header.model_arch, "gpt2");
    write_sweep(&other, test_path("two.h5"), other.n_trials);
    d = open_data(test_path("one.h5"), test_path("two.h5"), 0);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    w = tui_data_whole(d);
    assert_int_equal(w->verdict->result, DS_RESULT_INCOMPARABLE);
    assert_null(tui_data_pair(d, 0, 0, &error));
    assert_int_equal(tui_data_wait(d, LONG), 0);
    assert_null(tui_data_pair(d, 0, 0, &error));
    assert_non_null(strstr(error, "nothing to compare"));
    tui_data_close(d);
    sweep_free(&other);
}

/* Closing, cancelling and reading again at any moment. */
static void test_at_any_moment(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        struct tui_data *d = open_data(test_path("one.h5"), NULL, 0);
        tui_data_pair(d, 2, 0, NULL);
        tui_data_site(d, 2, 0, q_proj, NULL);
        if (i % 4 == 1)
            tui_data_cancel(d);
        if (i % 4 == 2)
            tui_data_reload(d);
        usleep((useconds_t)(i * 100));
        tui_data_turn(d);
        if (i % 8 == 3)
            assert_int_equal(tui_data_wait(d, LONG), 0);
        tui_data_close(d);
    }
}

static void test_cancelled_and_read_again(void **state)
{
    (void)state;
    const char *error = NULL;
    struct tui_data *d = open_data(test_path("one.h5"), NULL, 0);
    tui_data_cancel(d);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    const struct tui_whole *w = tui_data_whole(d);
    if (!w->verdict) { /* given up before it was there */
        assert_non_null(strstr(w->error, "given up"));
        tui_data_pair(d, 2, 0, &error);
        assert_int_equal(tui_data_wait(d, LONG), 0);
    }
    tui_data_reload(d);
    assert_int_equal(tui_data_wait(d, LONG), 0);
    w = tui_data_whole(d);
    assert_null(w->error);
    assert_non_null(w->verdict);
    get_pair(d, 2, 0);
    tui_data_close(d);
}

static void test_what_cannot_be_shown(void **state)
{
    (void)state;
    struct ds_error err;
    struct tui_data *d;
    struct tui_data_options o = {.path = test_path("missing.h5")};
    assert_int_equal(tui_data_open(&o, &d, &err), -1);
    assert_non_null(strstr(err.msg, "missing.h5"));
    FILE *f = fopen(test_path("text.h5"), "w");
    fputs("this is no record, but it is long enough to be looked at more closely", f);
    fclose(f);
    o.path = test_path("text.h5");
    assert_int_equal(tui_data_open(&o, &d, &err), -1);
    assert_non_null(strstr(err.msg, "not a record"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_whole_is_the_verdict),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_an_arm_that_is_not_there),
        cmocka_unit_test(test_a_site),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_two_records),
        cmocka_unit_test(test_at_any_moment),
        cmocka_unit_test(test_cancelled_and_read_again),
        cmocka_unit_test(test_what_cannot_be_shown),
    };
    return cmocka_run_group_tests(tests, write_record, remove_record);
}
