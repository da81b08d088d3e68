/* test_sweep.c: whole sweeps of a small seeded model, in memory: equal bits in every instruction
 * set, a dying worker, resume, forced and free tokens, interruption. */
#include "tests/unit/testing.h"

#include "base/mem.h"
#include "engine/forward.h"
#include "engine/sweep.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 64 };

/* A sweep and what it gave. */
struct fixture {
    struct ds_model *model;
    struct ds_header header;
    struct ds_sweep sweep;
    struct ds_sweep_request requests[4];
    struct ds_trial seen[MOST];
    size_t n_seen, n_steps[MOST];
    int32_t tokens[MOST][8];
    uint32_t drifts[MOST];
    int kill_worker_after, stop_after;
    const struct fixture *had; /* what `have` answers from */
};

static volatile sig_atomic_t stop;

static int32_t prompt[4][9] = {
    {5, 9, 1, 44, 23, 8, 2, 60, 31}, {7, 7, 7, 1}, {50, 40, 30, 20, 10, 3}, {11}};

static int killed; /* the child was */

/* Kills the one child of this process. */
static void kill_child(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "r");
    int pid;
    if (f && fscanf(f, "%d", &pid) == 1)
        killed = kill(pid, SIGKILL) == 0;
    else
        print_message("the system does not list children\n");
    if (f)
        fclose(f);
}

static int sink(void *ctx, const struct ds_trial_data *t, struct ds_error *err)
{
    struct fixture *x = ctx;
    if (x->n_seen == MOST)
        return ds_fail(err, "too many trials");
    x->seen[x->n_seen] = t->info;
    x->n_steps[x->n_seen] = t->n_steps;
    x->drifts[x->n_seen] = (uint32_t)t->n_drifts;
    for (size_t i = 0; i < t->n_rows; i++)
        if (t->rows[i].request !=
            0) /* the subject is request 0 in every slot, or nothing could be compared */
            return ds_fail(err, "row %zu belongs to request %d", i, t->rows[i].request);
    for (size_t i = 0; i < t->n_steps && i < 8; i++)
        x->tokens[x->n_seen][i] = t->steps[i].token;
    x->n_seen++;
    if ((int)x->n_seen == x->kill_worker_after)
        kill_child();
    if ((int)x->n_seen == x->stop_after)
        stop = 1;
    return 0;
}

static int have(void *ctx, const struct ds_trial *t)
{
    const struct fixture *x = ctx;
    for (size_t i = 0; x->had && i < x->had->n_seen; i++)
        if (x->had->seen[i].arm == t->arm && x->had->seen[i].repeat == t->repeat &&
            x->had->seen[i].pass == t->pass && x->had->seen[i].healed_to == t->healed_to)
            return 1;
    return 0;
}

static void make(struct fixture *x, const char *const *texts)
{
    struct ds_error err;
    struct ds_factor_values v[DS_FACTOR_COUNT];
    memset(x, 0, sizeof *x);
    stop = 0;
    assert_ok(
        ds_model_open(
            "random:llama,layers=2,hidden=32,heads=4,kv_heads=2,ffn=48,vocab=64,ctx=64,seed=9", 1,
            &x->model, &err),
        err);
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        assert_ok(ds_factor_parse(f, texts[f], &v[f], &err), err);
    assert_ok(ds_plan_arms(v, 0, &x->header.arms, &x->header.n_arms, &err), err);
    x->header.factors = ds_calloc(DS_FACTOR_COUNT, sizeof *x->header.factors, "factors", &err);
    for (; x->header.n_factors < DS_FACTOR_COUNT; x->header.n_factors++)
        x->header.factors[x->header.n_factors] = strdup(ds_factor_names[x->header.n_factors]);
    struct ds_setting base;
    assert_ok(ds_setting_parse(x->header.arms[0].values, &base, &err), err);
    assert_ok(ds_sweep_describe_model(x->model, base.dtype, 0, &x->header, &err), err);
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        ds_factor_free(&v[f]);
    static const int32_t lengths[] = {9, 4, 6, 1};
    for (int i = 0; i < 4; i++)
        x->requests[i] = (struct ds_sweep_request){prompt[i], lengths[i]};
    x->header.repeats = 2;
    x->sweep = (struct ds_sweep){
        .model = x->model,
        .header = &x->header,
        .requests = x->requests,
        .n_requests = 4,
        .ctx = x,
        .sink = sink,
        .have = have,
        .stop = &stop,
        .options = {
            .repeats = 2, .steps = 4, .dump = DS_DUMP_ORIGINS, .dump_rows = 4, .hold = 64 << 20}};
}

static void drop(struct fixture *x)
{
    ds_header_free(&x->header);
    ds_model_close(x->model);
}

static struct ds_sweep_result run(struct fixture *x)
{
    struct ds_sweep_result r;
    struct ds_error err;
    assert_ok(ds_sweep_run(&x->sweep, &r, &err), err);
    return r;
}

static const char *const wide[DS_FACTOR_COUNT] = {[DS_FACTOR_KERNELS] = "pinned",
                                                  [DS_FACTOR_BATCH] = "1,2,4",
                                                  [DS_FACTOR_SLOT] = "first,middle,last,1",
                                                  [DS_FACTOR_THREADS] = "1,2,3",
                                                  [DS_FACTOR_NEIGHBOURS] = "copies,varied",
                                                  [DS_FACTOR_PADDING] = "0,1,5",
                                                  [DS_FACTOR_CHUNK] = "0,1,2,4",
                                                  [DS_FACTOR_MODE] = "prefill,decode",
                                                  [DS_FACTOR_PROCESS] = "1,2"};

/* Every arm of a wide sweep gives one run digest; returns it. */
static uint64_t one_digest(struct fixture *x)
{
    struct ds_sweep_result r = run(x);
    assert_int_equal(r.failed, 0);
    assert_int_equal(r.trials, x->header.n_arms * 2 + 1); /* and the bare pass */
    for (size_t i = 0; i < x->n_seen; i++) {
        assert_int_equal(x->drifts[i], 0);
        if (x->seen[i].pass == DS_PASS_NATURAL)
            assert_true(x->seen[i].run_digest == x->seen[0].run_digest);
        assert_int_equal(x->n_steps[i], 5);
        assert_memory_equal(x->tokens[i], x->tokens[0], 5 * sizeof(int32_t));
    }
    return x->seen[0].run_digest;
}

static void test_pinned_bits_are_one_in_every_arm_and_instruction_set(void **state)
{
    (void)state;
    static const char *const isas[] = {"scalar", "avx2", "avx512"};
    static const char *const dtypes[] = {"f32", "bf16", "f16"};
    for (int d = 0; d < 3; d++) {
        uint64_t digest[3];
        int n = 0;
        for (int i = 0; i < 3; i++) {
            struct ds_error err;
            if (ds_isa_force(isas[i], &err) != 0) {
                print_message("%s: skipped\n", err.msg);
                continue;
            }
            const char *texts[DS_FACTOR_COUNT];
            memcpy(texts, wide, sizeof texts);
            texts[DS_FACTOR_DTYPE] = dtypes[d];
            struct fixture x;
            make(&x, texts);
            digest[n++] = one_digest(&x);
            drop(&x);
        }
        for (int i = 1; i < n; i++)
            assert_true(digest[i] == digest[0]);
    }
    assert_int_equal(ds_isa_force("auto", NULL), 0);
}

static const char *const narrow[DS_FACTOR_COUNT] = {
    [DS_FACTOR_KERNELS] = "reference", [DS_FACTOR_BATCH] = "1,2,4", [DS_FACTOR_CHUNK] = "0,3"};

/* Repacked weights lie in the parent, for all workers, or in the one worker that runs: never in
 * both, or there would be three copies of the weights. */
static void test_weights_are_packed_once(void **state)
{
    (void)state;
    static const struct {
        const char *kernels, *in_parent;
    } cases[] = {{"pinned", "pinned"},
                 {"reference,pinned", "pinned"},
                 {"reference+matmul=tf32,pinned", NULL},
                 {"pinned,reference+matmul=tf32", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *texts[DS_FACTOR_COUNT] = {[DS_FACTOR_KERNELS] = cases[i].kernels};
        struct fixture x;
        make(&x, texts);
        struct ds_sweep_result r = run(&x);
        assert_int_equal(r.failed, 0);
        static const char *const packers[] = {"pinned", "tf32"};
        for (size_t k = 0; k < 2; k++) {
            const struct ds_kernel *kernel = ds_kernel_find(DS_OP_MATMUL, packers[k]);
            assert_non_null(kernel);
            int packed = ds_model_prepared(x.model, kernel, x.model->head) != NULL;
            assert_int_equal(packed, cases[i].in_parent && !strcmp(cases[i].in_parent, packers[k]));
        }
        drop(&x);
    }
}

static void test_a_dying_worker_costs_one_arm(void **state)
{
    (void)state;
    struct fixture x;
    make(&x, narrow);
    x.kill_worker_after = 4; /* base, bare, base again, first trial of arm 1 */
    killed = 0;
    struct ds_sweep_result r = run(&x);
    if (!killed) {
        drop(&x);
        skip();
    }
    assert_int_equal(r.failed, 1);
    assert_non_null(strstr(r.first_failure.msg, "signal 9"));
    assert_non_null(strstr(r.first_failure.msg, "arm 1"));
    /* The other arms are complete. */
    assert_int_equal(r.trials, x.header.n_arms * 2 + 1 - 1);
    drop(&x);
}

static void test_interrupted_then_the_rest(void **state)
{
    (void)state;
    struct fixture whole, first, second;
    make(&whole, narrow);
    run(&whole);
    for (int after = 1; after < (int)whole.n_seen; after++) {
        make(&first, narrow);
        first.stop_after = after;
        struct ds_sweep_result r = run(&first);
        assert_true(r.interrupted);
        assert_int_equal(first.n_seen, after);
        make(&second, narrow);
        second.had = &first;
        second.sweep.forced = first.tokens[0];
        second.sweep.n_forced = 5;
        r = run(&second);
        assert_false(r.interrupted);
        assert_int_equal(first.n_seen + second.n_seen, whole.n_seen);
        for (size_t i = 0; i < second.n_seen; i++) {
            assert_true(second.seen[i].run_digest == whole.seen[first.n_seen + i].run_digest);
            assert_int_equal(second.drifts[i], whole.drifts[first.n_seen + i]);
        }
        drop(&first);
        drop(&second);
    }
    drop(&whole);
}

/* The self-check looks at a pass that is digested and held, and at one with a dump. */
static void test_bare_passes_stand_beside_held_ones_and_a_dump(void **state)
{
    (void)state;
    struct fixture x;
    const char *texts[DS_FACTOR_COUNT] = {[DS_FACTOR_KERNELS] = "reference,pinned"};
    make(&x, texts);
    struct ds_sweep_result r = run(&x);
    assert_int_equal(r.trials, 2 * 2 + 2);
    int bare[2] = {0, 0}, drifted = 0;
    for (size_t i = 0; i < x.n_seen; i++) {
        assert_true(x.seen[i].arm < 2);
        bare[x.seen[i].arm] += x.seen[i].pass == DS_PASS_BARE;
        drifted |= x.drifts[i] > 0;
    }
    assert_true(drifted); /* or nothing was dumped */
    assert_int_equal(bare[0], 1);
    assert_int_equal(bare[1], 1);
    drop(&x);
}

static void test_forced_tokens_are_fed(void **state)
{
    (void)state;
    struct fixture own, forced;
    make(&own, narrow);
    run(&own);
    make(&forced, narrow);
    int32_t other[5];
    for (int i = 0; i < 5; i++)
        other[i] = (own.tokens[0][i] + 1) % 64;
    forced.sweep.forced = other;
    forced.sweep.n_forced = 5;
    run(&forced);
    /* The first choice follows the prompt alone; what follows saw other tokens. */
    assert_int_equal(forced.tokens[0][0], own.tokens[0][0]);
    assert_true(forced.seen[0].run_digest != own.seen[0].run_digest);
    drop(&own);
    drop(&forced);
}

static void test_a_free_run_ends_where_tokens_part(void **state)
{
    (void)state;
    struct fixture x;
    const char *texts[DS_FACTOR_COUNT];
    memcpy(texts, narrow, sizeof texts);
    texts[DS_FACTOR_DTYPE] = "f32";
    make(&x, texts);
    int32_t wrong[5];
    struct fixture base;
    make(&base, texts);
    run(&base);
    memcpy(wrong, base.tokens[0], sizeof wrong);
    wrong[2] = (wrong[2] + 1) % 64;
    x.sweep.options.free_run = 1;
    x.sweep.forced = wrong;
    x.sweep.n_forced = 5;
    run(&x);
    for (size_t i = 0; i < x.n_seen; i++)
        assert_int_equal(x.n_steps[i], 3);
    drop(&x);
    drop(&base);
}

static void test_too_long_for_the_context_is_an_error(void **state)
{
    (void)state;
    struct fixture x;
    struct ds_sweep_result r;
    struct ds_error err;
    make(&x, narrow);
    x.sweep.options.steps = 60;
    assert_int_equal(ds_sweep_run(&x.sweep, &r, &err), -1);
    assert_non_null(strstr(err.msg, "context"));
    drop(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pinned_bits_are_one_in_every_arm_and_instruction_set),
        cmocka_unit_test(test_weights_are_packed_once),
        cmocka_unit_test(test_a_dying_worker_costs_one_arm),
        cmocka_unit_test(test_interrupted_then_the_rest),
        cmocka_unit_test(test_bare_passes_stand_beside_held_ones_and_a_dump),
        cmocka_unit_test(test_forced_tokens_are_fed),
        cmocka_unit_test(test_a_free_run_ends_where_tokens_part),
        cmocka_unit_test(test_too_long_for_the_context_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
