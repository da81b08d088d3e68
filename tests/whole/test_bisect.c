/* test_bisect.c: searches for the kernels that bring a difference in, with faults that are known. */
#include "tests/whole/specimen_kernels.h"
#include "tests/whole/sweep_in_memory.h"

#include "engine/bisect.h"

/* Two kernels that are harmless alone: one notes how many rows the call has, the other one turns
 * that into other bits. */
static int64_t noted;

static int note_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    noted = ((const struct ds_silu_mul_args *)args)->rows;
    return plain(DS_OP_SILU_MUL)->launch(args, exec, why, why_size);
}

static int turn_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_add_args *a = args;
    int rc = plain(DS_OP_ADD)->launch(args, exec, why, why_size);
    for (int64_t r = 0; noted >= specimen.from_rows && r < a->rows; r++)
        a->y[r * a->ldy] += 0x1p-10f;
    noted = 0;
    return rc;
}

static const struct ds_kernel pair[] = {
    SPECIMEN(DS_OP_SILU_MUL, "note", note_launch, NULL),
    SPECIMEN(DS_OP_ADD, "turn", turn_launch, NULL),
};

static int add_all(void **state)
{
    struct ds_error err;
    for (size_t i = 0; i < 2; i++)
        assert_ok(ds_kernel_add(&pair[i], &err), err);
    return add_specimens(state);
}

struct hunt {
    struct outcome x;
    struct ds_sweep sweep;
    struct ds_sweep_request requests[1 + NEIGHBOURS];
    struct ds_bisect b;
    volatile sig_atomic_t stop;
    uint32_t stop_after; /* tried sets; 0 = never */
};

static int count_set(void *ctx, const struct ds_bisect *b, struct ds_error *err)
{
    struct hunt *h = ctx;
    (void)err;
    h->stop = h->stop_after && b->sets_tried >= h->stop_after;
    return 0;
}

/* A search between two sets under batch 1 against 2; value "" : the sets themselves. */
static void prepare_hunt(struct hunt *h, const char *from, const char *to, const char *batch,
                         int per_layer)
{
    struct ds_error err;
    struct ask q = {.factor = {[DS_FACTOR_BATCH] = batch, [DS_FACTOR_KERNELS] = from}};
    memset(h, 0, sizeof *h);
    if (!h->x.model)
        assert_ok(ds_model_open(SMALL, 1, &h->x.model, &err), err);
    plan(&h->x, &q);
    h->requests[0] = (struct ds_sweep_request){subject_prompt, PROMPT};
    h->sweep =
        (struct ds_sweep){.model = h->x.model,
                          .header = &h->x.header,
                          .requests = h->requests,
                          .n_requests = 1,
                          .stop = &h->stop,
                          .options = {.repeats = 2, .steps = 2, .resid_only = 1, .hold = 16 << 20}};
    h->b = (struct ds_bisect){.sweep = &h->sweep,
                              .a = h->x.header.arms[0].values,
                              .b = h->x.header.arms[h->x.header.n_arms - 1].values,
                              .condition = h->x.header.n_arms > 1,
                              .per_layer = per_layer,
                              .ctx = h,
                              .tried = count_set};
    assert_ok(ds_kernel_set_parse(from, &h->b.from, &err), err);
    assert_ok(ds_kernel_set_parse(to, &h->b.to, &err), err);
}

static void end_hunt(struct hunt *h)
{
    ds_bisect_free(&h->b);
    drop(&h->x);
}

/* "matmul@1 add": the atoms of a set. */
static const char *atoms_of(const struct ds_bisect *b, const uint8_t *set)
{
    static char text[256];
    text[0] = '\0';
    for (size_t i = 0; i < b->n_atoms; i++) {
        size_t at = strlen(text);
        if (!set[i])
            continue;
        snprintf(text + at, sizeof text - at, "%s%s", at ? " " : "", ds_op_name(b->atoms[i].op));
        at = strlen(text);
        if (b->atoms[i].layer != DS_BISECT_EVERYWHERE)
            snprintf(text + at, sizeof text - at, "@%d", b->atoms[i].layer);
    }
    return text;
}

/* One weight's matmul, in layer 1, adds in another order in larger calls. */
static void test_one_kernel_in_one_layer(void **state)
{
    (void)state;
    for (int per_layer = 0; per_layer < 2; per_layer++) {
        struct ds_error err;
        struct hunt h;
        prepare_hunt(&h, "reference+matmul=split", "pinned", "1,2", per_layer);
        specimen.from_rows = 18;
        specimen.weight = h.x.model->layers[1].down->data;
        assert_ok(ds_bisect_run(&h.b, &err), err);
        assert_int_equal(h.b.result, DS_BISECT_FOUND);
        assert_string_equal(atoms_of(&h.b, h.b.cause), per_layer ? "matmul@1" : "matmul");
        assert_string_equal(atoms_of(&h.b, h.b.cure), per_layer ? "matmul@1" : "matmul");
        assert_true(h.b.trials == 4u * h.b.sets_tried);
        char *text = ds_bisect_set_text(&h.b, h.b.cure, &err);
        struct ds_kernel_set set;
        assert_ok(ds_kernel_set_parse(text, &set, &err), err);
        for (int32_t layer = 0; layer < 3; layer++)
            assert_string_equal(ds_kernel_set_in(&set, DS_OP_MATMUL, layer)->name,
                                !per_layer || layer == 1 ? "pinned" : "split");
        free(text);
        end_hunt(&h);
    }
}

/* By brute force: every set of fewer kernels was tried, and none does. */
static void expect_smallest(const struct ds_bisect *b, int cause)
{
    const size_t n = b->n_atoms, size = cause ? b->n_cause : b->n_cure;
    const int complement = cause ? b->condition : !b->condition;
    assert_true(n < 16);
    assert_true(b->smallest[!cause]);
    for (unsigned set = 0; set < 1u << n; set++) {
        if ((size_t)__builtin_popcount(set) >= size)
            continue;
        size_t k = 0;
        for (; k < b->n_known; k++) {
            unsigned is = 0;
            for (size_t i = 0; i < n; i++)
                is |= (unsigned)((b->known[k].set[i] == '1') != complement) << i;
            if (is == set)
                break;
        }
        if (k == b->n_known ||
            b->known[k].outcome == (cause ? DS_BISECT_DIFFERS : DS_BISECT_AGREES))
            fail_msg("set %x of %zu kernels: %s", set, n, k < b->n_known ? "does" : "not tried");
    }
}

/* Two faults, each enough by itself: one cause, but both must go. */
static void test_two_faults(void **state)
{
    (void)state;
    struct ds_error err;
    struct hunt h;
    prepare_hunt(&h, "reference+matmul=split+rope=late", "reference", "1,2", 0);
    specimen.from_rows = 18;
    assert_ok(ds_bisect_run(&h.b, &err), err);
    assert_int_equal(h.b.result, DS_BISECT_FOUND);
    assert_int_equal(h.b.n_cause, 1);
    assert_string_equal(atoms_of(&h.b, h.b.cure), "matmul rope");
    expect_smallest(&h.b, 1);
    expect_smallest(&h.b, 0);
    end_hunt(&h);
}

static void test_two_that_only_act_together(void **state)
{
    (void)state;
    struct ds_error err;
    struct hunt h;
    prepare_hunt(&h, "reference+silu_mul=note+add=turn", "pinned", "1,2", 0);
    specimen.from_rows = 18;
    assert_ok(ds_bisect_run(&h.b, &err), err);
    assert_int_equal(h.b.result, DS_BISECT_FOUND);
    assert_string_equal(atoms_of(&h.b, h.b.cause), "silu_mul add");
    assert_int_equal(h.b.n_cure, 1);
    expect_smallest(&h.b, 1);
    expect_smallest(&h.b, 0);
    end_hunt(&h);
}

/* Between two sets, without a condition. */
static void test_between_two_sets(void **state)
{
    (void)state;
    struct ds_error err;
    struct hunt h;
    prepare_hunt(&h, "reference", "reference+matmul=short-inputs+rope=late+add=turn", "1", 1);
    specimen.weight = h.x.model->layers[0].gate->data;
    specimen.from_rows = 1;
    assert_ok(ds_bisect_run(&h.b, &err), err);
    assert_int_equal(h.b.result, DS_BISECT_FOUND);
    assert_int_equal(h.b.n_cause, 1);
    char *text = ds_bisect_set_text(&h.b, h.b.cause, &err);
    assert_non_null(strchr(text, '@'));
    free(text);
    end_hunt(&h);
}

static void test_nothing_to_find_and_nothing_that_helps(void **state)
{
    (void)state;
    struct ds_error err;
    struct hunt h;
    prepare_hunt(&h, "reference", "pinned", "1,2", 0);
    assert_ok(ds_bisect_run(&h.b, &err), err);
    assert_int_equal(h.b.result, DS_BISECT_SAME);
    end_hunt(&h);
    prepare_hunt(&h, "reference+matmul=split", "reference+matmul=parity", "1,2", 0);
    specimen.from_rows = 18;
    assert_ok(ds_bisect_run(&h.b, &err), err);
    assert_int_equal(h.b.result, DS_BISECT_UNCURED);
    end_hunt(&h);
    prepare_hunt(&h, "reference+matmul=arrival", "pinned", "1,2", 0);
    assert_ok(ds_bisect_run(&h.b, &err), err);
    assert_int_equal(h.b.result, DS_BISECT_NOT_STABLE);
    assert_non_null(strstr(h.b.unstable_set, "arrival"));
    end_hunt(&h);
    prepare_hunt(&h, "reference", "reference", "1,2", 0);
    assert_int_equal(ds_bisect_run(&h.b, &err), -1);
    end_hunt(&h);
}

/* A trial that fails ends the search with its kernel and its reason, and with the arms it counts. */
static void test_a_failing_trial_says_why(void **state)
{
    static const struct {
        const char *from, *to, *batch, *says, *arms;
    } cases[] = {
        {"reference", "reference+matmul=refuse", "1",
         "arm 1, repeat 0: layer 0 q_proj: matmul/refuse: no tile for 9 rows",
         "base arm: --kernels reference, arm 1: --kernels reference+matmul=refuse"},
        {"reference+matmul=refuse", "pinned", "1,2",
         "base arm: layer 0 q_proj: matmul/refuse: no tile for 9 rows",
         "base arm: batch 1, arm 1: batch 2, both with --kernels reference+matmul=refuse"},
        {"reference", "reference+matmul=crash", "1", "arm 1, repeat 0: worker 1 died by signal 11",
         "base arm: --kernels reference, arm 1: --kernels reference+matmul=crash"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ds_error err;
        struct hunt h;
        prepare_hunt(&h, cases[i].from, cases[i].to, cases[i].batch, 0);
        specimen.at_rows = PROMPT;
        assert_int_equal(ds_bisect_run(&h.b, &err), -1);
        if (strncmp(err.msg, cases[i].says, strlen(cases[i].says)) != 0 ||
            strcmp(err.hint, cases[i].arms) != 0)
            fail_msg("'%s', hint '%s'", err.msg, err.hint);
        end_hunt(&h);
    }
}

/* Stopped after every number of sets: what is known then is not tried again. */
static void test_interrupted_and_gone_on(void **state)
{
    (void)state;
    struct ds_error err;
    uint32_t whole = 0;
    for (uint32_t stop = 0; stop == 0 || stop < whole; stop++) {
        struct hunt h;
        prepare_hunt(&h, "reference+silu_mul=note+add=turn", "pinned", "1,2", 0);
        specimen.from_rows = 18;
        h.stop_after = stop;
        assert_ok(ds_bisect_run(&h.b, &err), err);
        assert_int_equal(h.b.result, stop ? DS_BISECT_INTERRUPTED : DS_BISECT_FOUND);
        if (!stop)
            whole = h.b.sets_tried;
        h.stop_after = 0;
        h.stop = 0;
        h.b.sets_tried = 0;
        assert_ok(ds_bisect_run(&h.b, &err), err);
        assert_int_equal(h.b.result, DS_BISECT_FOUND);
        assert_int_equal(h.b.sets_tried, stop ? whole - stop : 0);
        assert_string_equal(atoms_of(&h.b, h.b.cause), "silu_mul add");
        end_hunt(&h);
    }
    assert_true(whole > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_one_kernel_in_one_layer, forget_specimen),
        cmocka_unit_test_teardown(test_two_faults, forget_specimen),
        cmocka_unit_test_teardown(test_two_that_only_act_together, forget_specimen),
        cmocka_unit_test_teardown(test_between_two_sets, forget_specimen),
        cmocka_unit_test_teardown(test_nothing_to_find_and_nothing_that_helps, forget_specimen),
        cmocka_unit_test_teardown(test_a_failing_trial_says_why, forget_specimen),
        cmocka_unit_test_teardown(test_interrupted_and_gone_on, forget_specimen),
    };
    return cmocka_run_group_tests(tests, add_all, NULL);
}
