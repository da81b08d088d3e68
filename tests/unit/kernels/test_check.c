/* test_check.c: deliberately false kernels: each is caught, and named by what it breaks and by nothing
 * else that it claims. */
#include "tests/unit/kernels/false_file_kernels.h"

#include "kernels/lab/check.h"
#include "kernels/registry.h"

static const int threads[] = {1, 2, 3};

static struct ds_check_result check(const struct ds_kernel *k, const char *shape_text)
{
    struct ds_shape shape;
    struct ds_check_result r;
    struct ds_error err;
    struct ds_check_options opt = {
        .threads = threads, .n_threads = 3, .no_speed = 1, .seed = 1, .launch_seconds = 2};
    assert_ok(ds_shape_parse(k->op, shape_text, &shape, &err), err);
    assert_ok(ds_check_run(k, &shape, &opt, &r, &err), err);
    assert_string_equal(r.why_not, "");
    return r;
}

static const char *state_name(int state)
{
    static const char *const names[] = {"not run", "not applicable", "holds", "broken"};
    return names[state];
}

static void show(const struct ds_check_result *r)
{
    for (int p = 0; p < DS_PROPERTY_COUNT; p++)
        print_error("  %s: %s '%s' classes '%s' note '%s'\n", ds_property_name(p),
                    state_name(r->property[p].state), r->property[p].smallest,
                    r->property[p].classes, r->property[p].note);
}

struct fake {
    const char *name;
    launch_fn launch;
    int op;
    uint32_t claims;
    int failure;      /* the property that must fail; -1 = none */
    int broken;       /* a property that must be broken; -1 = none */
    const char *says; /* in the words of that property */
    const char *classes;
    unsigned also; /* properties that the fault breaks as well, as bits */
};

#define BIT(p) (1u << DS_PROPERTY_##p)

/* What is broken is in the table, everything else holds or was stopped by the fault. */
static void expect(const struct fake *f, const struct ds_kernel *k, const struct ds_check_result *r)
{
    const char *said = f->broken < 0 ? "" : r->property[f->broken].smallest;
    int wrong = ds_check_failure(k, r) != f->failure;
    for (int p = 0; p < DS_PROPERTY_COUNT; p++) {
        int broken = r->property[p].state == DS_STATE_BROKEN;
        if (p == f->broken)
            wrong |= !broken;
        else if (!(f->also >> p & 1))
            wrong |= broken;
    }
    if (f->broken >= 0)
        wrong |= !strstr(said, f->says) ||
                 (f->classes && strcmp(r->property[f->broken].classes, f->classes) != 0);
    if (!wrong)
        return;
    print_error("%s: failure %d, want %d; want '%s'\n", f->name, ds_check_failure(k, r), f->failure,
                f->says);
    show(r);
    fail();
}

static void run_fakes(const struct fake *f, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct ds_kernel k = {.abi = DS_KERNEL_ABI,
                              .op = f[i].op,
                              .name = f[i].name,
                              .summary = "false",
                              .claims = f[i].claims,
                              .launch = f[i].launch};
        if (k.op == DS_OP_CUSTOM)
            k.declare = declare_axpy;
        if (f[i].launch == far_away)
            k.describe = far_away_describe;
        if (f[i].launch == uses_scratch)
            k.scratch_bytes = some_scratch;
        struct ds_check_result r = check(&k, f[i].op == DS_OP_MATMUL ? "n=24,k=48" : "width=48");
        expect(&f[i], &k, &r);
    }
}

#define NEVER (-1)

static void test_other_bits(void **state)
{
    static const struct fake fakes[] = {
        {"honest", honest, DS_OP_MATMUL, DS_CLAIM_ALL, NEVER, NEVER, "", NULL, 0},
        {"by-rows", by_rows, DS_OP_MATMUL, DS_CLAIM_ALL, DS_PROPERTY_BATCH, DS_PROPERTY_BATCH,
         "row 0 alone against row 0 of 4 rows", "1-3 | 4-", 0},
        {"by-rows", by_rows, DS_OP_MATMUL, DS_CLAIM_ALL & ~DS_CLAIM_BATCH, NEVER, DS_PROPERTY_BATCH,
         "row 0 alone against row 0 of 4 rows", "1-3 | 4-", 0},
        {"by-position", by_position, DS_OP_MATMUL, DS_CLAIM_ALL, DS_PROPERTY_SLOT, DS_PROPERTY_SLOT,
         "row 0 of 3 equal rows against row 2", NULL, 0},
        {"by-neighbour", by_neighbour, DS_OP_MATMUL, DS_CLAIM_ALL, DS_PROPERTY_NEIGHBOURS,
         DS_PROPERTY_NEIGHBOURS, "row 0 of 2 beside plain rows against beside NaN rows", NULL,
         BIT(SPECIAL) | BIT(SIZES)},
        {"by-threads", by_threads, DS_OP_MATMUL, DS_CLAIM_ALL, DS_PROPERTY_THREADS,
         DS_PROPERTY_THREADS, "row 0 of 1 row with 1 thread against 2", "1 | 2 | 3", 0},
        {"by-arrival", by_arrival, DS_OP_MATMUL, DS_CLAIM_ALL, DS_PROPERTY_REPEAT,
         DS_PROPERTY_REPEAT, "row 0 of 1 row with 1 thread, again", NULL, 0},
        {"by-address", by_address, DS_OP_MATMUL, DS_CLAIM_ALL, NEVER, DS_PROPERTY_ALIGNMENT,
         "row 0 of 1 row packed at a 64-byte boundary against offset 1, gap 0", NULL, 0},
        {"at-100-rows", at_100_rows, DS_OP_MATMUL, DS_CLAIM_ALL, DS_PROPERTY_BATCH,
         DS_PROPERTY_BATCH, "row 0 of 3 rows against row 0 of 100 rows", "3 65-99 101- | 100", 0},
        {"far-away", far_away, DS_OP_MATMUL, DS_CLAIM_ALL, DS_PROPERTY_BATCH, DS_PROPERTY_BATCH,
         "of 333 rows", NULL, 0},
        {"by-history", by_history, DS_OP_MATMUL, DS_CLAIM_ALL, DS_PROPERTY_REPEAT,
         DS_PROPERTY_REPEAT, "row 0 of 1 row again, after a call with more rows", NULL,
         BIT(BATCH) | BIT(SLOT) | BIT(NEIGHBOURS) | BIT(THREADS) | BIT(ALIGNMENT)},
        {"keeps-results", keeps_results, DS_OP_MATMUL, DS_CLAIM_ALL, DS_PROPERTY_REPEAT,
         DS_PROPERTY_REPEAT, "row 0 of 1 row again, after a call with", NULL,
         BIT(SIZES) | BIT(SPECIAL)},
    };
    (void)state;
    run_fakes(fakes, sizeof fakes / sizeof fakes[0]);
}

/* The classes are those of the smallest pair's own row. */
static void test_classes_are_of_the_pair(void **state)
{
    static const struct {
        const char *name;
        launch_fn launch;
        int property;
        const char *pair, *classes, *of, *at;
    } all[] = {
        {"row-1", row_1_from_3, DS_PROPERTY_BATCH, "row 1 of 2 rows against row 1 of 3 rows",
         "2 | 3-", "rows", "row 1"},
        {"row-2", row_2_by_threads, DS_PROPERTY_THREADS, "row 2 of 3 rows with 1 thread against 2",
         "1 3 | 2", "threads", "row 2 of 3"},
        {"place-5", place_5, DS_PROPERTY_SLOT, "row 0 of 6 equal rows against row 5",
         "0-4 6-39 41- | 5 40", "position", "of 64 equal rows"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const struct ds_kernel k = {.abi = DS_KERNEL_ABI,
                                    .op = DS_OP_MATMUL,
                                    .name = all[i].name,
                                    .claims = DS_CLAIM_ALL,
                                    .launch = all[i].launch};
        const struct ds_check_result r = check(&k, "n=24,k=48");
        const struct ds_property_result *p = &r.property[all[i].property];
        assert_string_equal(p->smallest, all[i].pair);
        assert_string_equal(p->classes, all[i].classes);
        assert_string_equal(p->classes_of, all[i].of);
        assert_string_equal(p->classes_at, all[i].at);
    }
}

/* describe is asked at every number of rows, and where bits differ it is said what it says of both
 * launches: a choice that changes where nothing else does is nobody's fault. */
static void test_describe(void **state)
{
    static const struct {
        const char *name;
        launch_fn launch;
        int (*describe)(const void *, const struct ds_exec *, struct ds_launch_info *);
        int broken; /* -1: nothing */
        const char *says, *choice[2];
        int same;
    } all[] = {
        {"briefly",
         briefly,
         briefly_describe,
         DS_PROPERTY_BATCH,
         "of 203 rows",
         {"1 part", "2 parts"},
         0},
        {"at-40",
         by_threads_at_40,
         at_40_describe,
         DS_PROPERTY_THREADS,
         "row 0 of 40 rows with 1 thread against 2",
         {"1 part", "2 parts"},
         0},
        {"honest",
         by_rows,
         by_rows_describe,
         DS_PROPERTY_BATCH,
         "row 0 of 4 rows",
         {"tile k 8", "tile k 16"},
         0},
        {"lies",
         by_rows,
         one_choice,
         DS_PROPERTY_BATCH,
         "row 0 of 4 rows",
         {"tile k 8, plain", "tile k 8, plain"},
         1},
        {"says-little", by_rows, name_alone, DS_PROPERTY_BATCH, "row 0 of 4 rows", {"", ""}, 0},
        {"without-need", honest, by_rows_describe, NEVER, "", {"", ""}, 0},
        {"by-position", by_position, one_choice, DS_PROPERTY_SLOT, "row 2", {"", ""}, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const struct ds_kernel k = {.abi = DS_KERNEL_ABI,
                                    .op = DS_OP_MATMUL,
                                    .name = all[i].name,
                                    .claims = DS_CLAIM_ALL,
                                    .launch = all[i].launch,
                                    .describe = all[i].describe};
        struct ds_check_result r = check(&k, "n=24,k=48");
        const int at = all[i].broken;
        int wrong =
            ds_check_failure(&k, &r) != (at == DS_PROPERTY_THREADS ? DS_PROPERTY_BATCH : at);
        if (at >= 0)
            wrong |= !strstr(r.property[at].smallest, all[i].says) ||
                     strcmp(r.property[at].choice[0], all[i].choice[0]) != 0 ||
                     strcmp(r.property[at].choice[1], all[i].choice[1]) != 0 ||
                     r.property[at].same_choice != all[i].same;
        if (!wrong)
            continue;
        show(&r);
        fail_msg("%s: failure %d, '%s' against '%s', same %d", all[i].name,
                 ds_check_failure(&k, &r), r.property[at < 0 ? 0 : at].choice[0],
                 r.property[at < 0 ? 0 : at].choice[1], r.property[at < 0 ? 0 : at].same_choice);
    }
}

static void test_wrong_results(void **state)
{
    static const struct fake fakes[] = {
        {"without-tail", without_tail, DS_OP_MATMUL, DS_CLAIM_ALL, DS_PROPERTY_SIZES,
         DS_PROPERTY_SIZES, "n=1,k=1: row 0 of 1, element 0 is 0 where", NULL, 0},
        {"subtracts", subtracts, DS_OP_ADD, DS_CLAIM_ALL, DS_PROPERTY_SIZES, DS_PROPERTY_SIZES,
         "width=1: row 0 of 1, element 0 is", NULL, BIT(SPECIAL)},
        {"flushes", flushes, DS_OP_ADD, DS_CLAIM_ALL, NEVER, DS_PROPERTY_SPECIAL,
         "tiny values: row 0 of 1", NULL, 0},
        {"half-precise", half_precise, DS_OP_MATMUL, DS_CLAIM_ALL, NEVER, DS_PROPERTY_SPECIAL,
         "tiny values: row 0 of 1", NULL, 0},
        {"gives-minus-zero", gives_minus_zero, DS_OP_MATMUL, DS_CLAIM_ALL, NEVER,
         DS_PROPERTY_SPECIAL, "zero values: row 0 of 1, element 0 is -0 where 0 is exact", NULL, 0},
        {"skips-zeros", skips_zeros, DS_OP_MATMUL, DS_CLAIM_ALL, NEVER, DS_PROPERTY_SPECIAL,
         "zero values, NaN weights: row 0 of 1, element 0 is 0 where nan", NULL, 0},
        {"flushes-weights", flushes_weights, DS_OP_MATMUL, DS_CLAIM_ALL, NEVER, DS_PROPERTY_SPECIAL,
         "plain values, tiny weights: row 0 of 1", NULL, 0},
        {"loses-minus-zero", loses_minus_zero, DS_OP_ADD, DS_CLAIM_ALL, NEVER, DS_PROPERTY_SPECIAL,
         "is 0 where -0 is exact", NULL, 0},
        {"keeps-weights", keeps_weights, DS_OP_RMSNORM, DS_CLAIM_ALL, DS_PROPERTY_SIZES,
         DS_PROPERTY_SIZES, "width=48: row 0 of 1, element", NULL, BIT(SPECIAL)},
    };
    (void)state;
    run_fakes(fakes, sizeof fakes / sizeof fakes[0]);
}

/* What a kernel leaves out at the size that was asked for is no lack of precision. */
static void test_wrong_at_its_own_size(void **state)
{
    static const struct fake fake = {
        "without-tail",    without_tail,          DS_OP_MATMUL, DS_CLAIM_ALL, DS_PROPERTY_SIZES,
        DS_PROPERTY_SIZES, "row 0 of 1, element", NULL,         BIT(SPECIAL)};
    const struct ds_kernel k = {.abi = DS_KERNEL_ABI,
                                .op = DS_OP_MATMUL,
                                .name = "without-tail",
                                .claims = DS_CLAIM_ALL,
                                .launch = without_tail};
    (void)state;
    struct ds_check_result r = check(&k, "n=24,k=257");
    expect(&fake, &k, &r);
    assert_true(r.property[DS_PROPERTY_SIZES].differ >= 6); /* all calls at 257 */
}

static void test_memory(void **state)
{
    static const struct fake fakes[] = {
        {"reads-beyond", reads_beyond, DS_OP_ADD, DS_CLAIM_ALL, DS_PROPERTY_MEMORY,
         DS_PROPERTY_MEMORY, "reads past the end of a (1 element behind it), with 1 row", NULL, 0},
        {"reads-before", reads_before, DS_OP_ADD, DS_CLAIM_ALL, DS_PROPERTY_MEMORY,
         DS_PROPERTY_MEMORY, "reads before the start of b (1 element before it), with ", NULL, 0},
        {"writes-beyond", writes_beyond, DS_OP_ADD, DS_CLAIM_ALL, DS_PROPERTY_MEMORY,
         DS_PROPERTY_MEMORY, "past the end of y", NULL, 0},
        {"writes-input", writes_input, DS_OP_ADD, DS_CLAIM_ALL, DS_PROPERTY_MEMORY,
         DS_PROPERTY_MEMORY, "writes into its input a, at row 0, element 0", NULL, 0},
        {"leaves-one", leaves_one, DS_OP_ADD, DS_CLAIM_ALL, DS_PROPERTY_MEMORY, DS_PROPERTY_MEMORY,
         "leaves y unwritten at row 0, element 47, with 1 row", NULL, 0},
        {"uses-padding", uses_padding, DS_OP_ADD, DS_CLAIM_ALL, DS_PROPERTY_MEMORY,
         DS_PROPERTY_MEMORY, "row 0 of 2 rows where unwritten memory holds NaN against", NULL,
         BIT(ALIGNMENT) | BIT(SIZES) | BIT(SPECIAL)},
        {"uses-scratch", uses_scratch, DS_OP_ADD, DS_CLAIM_ALL, DS_PROPERTY_MEMORY,
         DS_PROPERTY_MEMORY, "row 0 of 1 row where unwritten memory holds NaN against", NULL,
         BIT(SIZES) | BIT(SPECIAL)},
        {"changes-control", changes_control, DS_OP_ADD, DS_CLAIM_ALL, DS_PROPERTY_MEMORY,
         DS_PROPERTY_MEMORY, "leaves the floating-point control word changed", NULL, 0},
        {"crashes", crashes, DS_OP_ADD, DS_CLAIM_ALL, DS_PROPERTY_MEMORY, DS_PROPERTY_MEMORY,
         "crashes (Aborted), with 3 rows", NULL, 0},
        {"exits", exits, DS_OP_ADD, DS_CLAIM_ALL, DS_PROPERTY_MEMORY, DS_PROPERTY_MEMORY,
         "ends the process, with 3 rows", NULL, 0},
        {"hangs", hangs, DS_OP_ADD, DS_CLAIM_ALL, DS_PROPERTY_MEMORY, DS_PROPERTY_MEMORY,
         "does not return, with 512 rows", NULL, 0},
        {"reads-beyond-ids", reads_beyond_ids, DS_OP_EMBED, DS_CLAIM_ALL, DS_PROPERTY_MEMORY,
         DS_PROPERTY_MEMORY, "reads past the end of ids (1 element behind it), with 1 row", NULL,
         0},
        {"ignores-pages", ignores_pages, DS_OP_CACHE, DS_CLAIM_ALL, DS_PROPERTY_MEMORY,
         DS_PROPERTY_MEMORY, "y", NULL, BIT(ALIGNMENT) | BIT(SIZES)},
    };
    (void)state;
    run_fakes(fakes, sizeof fakes / sizeof fakes[0]);
}

/* Kernels that declare their own tensors: inputs, an input that is overwritten, a bf16 output whose rows
 * lie apart, one tensor for all rows. */
static void test_custom(void **state)
{
    static const struct fake fakes[] = {
        {"axpy", axpy_honest, DS_OP_CUSTOM, DS_CLAIM_ALL, NEVER, NEVER, "", NULL, 0},
        {"axpy-by-rows", axpy_by_rows, DS_OP_CUSTOM, DS_CLAIM_ALL, DS_PROPERTY_BATCH,
         DS_PROPERTY_BATCH, "row 0 alone against row 0 of 7 rows", "1-6 | 7-", 0},
        {"axpy-leaves-one", axpy_leaves_one, DS_OP_CUSTOM, DS_CLAIM_ALL, DS_PROPERTY_MEMORY,
         DS_PROPERTY_MEMORY, "leaves copy unwritten at row 0, element 47", NULL, 0},
    };
    (void)state;
    run_fakes(fakes, sizeof fakes / sizeof fakes[0]);
}

/* A kernel that refuses some calls is no failure; what it does not do is counted. */
static void test_refusal(void **state)
{
    static const struct fake fakes[] = {
        {"refuses", refuses, DS_OP_ADD, DS_CLAIM_ALL, NEVER, NEVER, "", NULL, 0}};
    struct ds_kernel k = {.abi = DS_KERNEL_ABI,
                          .op = DS_OP_ADD,
                          .name = "refuses",
                          .claims = DS_CLAIM_ALL,
                          .launch = refuses};
    (void)state;
    run_fakes(fakes, 1);
    struct ds_check_result r = check(&k, "width=48");
    assert_int_equal(r.property[DS_PROPERTY_BATCH].state, DS_STATE_HOLDS);
    assert_true(r.property[DS_PROPERTY_BATCH].not_tried > 90);
    assert_non_null(strstr(r.property[DS_PROPERTY_BATCH].note, "too many rows"));
    assert_int_equal(r.fault[0].fault.kind, DS_FAULT_REFUSED);
}

/* After a crash the rest is measured all the same. */
static void test_goes_on_behind_a_crash(void **state)
{
    struct ds_kernel k = {.abi = DS_KERNEL_ABI,
                          .op = DS_OP_ADD,
                          .name = "crashes",
                          .claims = DS_CLAIM_ALL,
                          .launch = crashes};
    (void)state;
    struct ds_check_result r = check(&k, "width=48");
    const struct ds_property_result *batch = &r.property[DS_PROPERTY_BATCH];
    assert_int_equal(batch->state, DS_STATE_HOLDS);
    assert_int_equal(batch->not_tried, 14); /* 3 rows, two thread counts, seven samples */
    assert_true(batch->compared > 5000);
    assert_true(r.accuracy.elements > 0);
}

/* Kernels that take weights of a file, Q8_0 and no other type: what they do of it is held against the
 * f32 numbers and against the formula. */
static void test_formats(void **state)
{
    static const struct fake fakes[] = {
        {"files", files, DS_OP_MATMUL, DS_CLAIM_ALL, NEVER, NEVER, "", NULL, 0},
        {"files-scaled-late", files_scaled_late, DS_OP_MATMUL, DS_CLAIM_ALL, DS_PROPERTY_FORMATS,
         DS_PROPERTY_FORMATS, "with f32 weights against q8_0 weights", NULL, BIT(SPECIAL)},
        {"files-unsigned", files_unsigned, DS_OP_MATMUL, DS_CLAIM_ALL, DS_PROPERTY_SIZES,
         DS_PROPERTY_SIZES, "n=1,k=32, q8_0 weights: row 0 of 1, element 0 is", NULL,
         BIT(FORMATS) | BIT(SPECIAL)},
        {"files-lose-subnormals", files_lose_subnormals, DS_OP_MATMUL, DS_CLAIM_ALL, NEVER,
         DS_PROPERTY_SPECIAL, "plain values, special q8_0 weights: row 0 of 1, element", NULL, 0},
        {"files-beyond", files_beyond, DS_OP_MATMUL, DS_CLAIM_ALL, DS_PROPERTY_MEMORY,
         DS_PROPERTY_MEMORY, "reads past the end of file weights (1 element behind it)", NULL, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof fakes / sizeof fakes[0]; i++) {
        const struct ds_kernel k = {.abi = DS_KERNEL_ABI,
                                    .op = DS_OP_MATMUL,
                                    .name = fakes[i].name,
                                    .claims = fakes[i].claims,
                                    .features = DS_FEATURE_FILE_WEIGHTS,
                                    .prepare = prepare_q8,
                                    .launch = fakes[i].launch};
        struct ds_check_result r = check(&k, "n=24,k=50");
        const struct ds_property_result *formats = &r.property[DS_PROPERTY_FORMATS];
        expect(&fakes[i], &k, &r);
        if (fakes[i].failure == DS_PROPERTY_MEMORY)
            continue;                                     /* it ends the measurement */
        assert_int_equal(formats->not_tried, 4 * 5 * 22); /* the other types */
        assert_non_null(strstr(formats->note, "reads q8_0 alone"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_bits),
        cmocka_unit_test(test_classes_are_of_the_pair),
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_wrong_results),
        cmocka_unit_test(test_wrong_at_its_own_size),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_custom),
        cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_goes_on_behind_a_crash),
    };
    return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
