/* test_heal.c: sweeps with faulty kernels, some of which stand behind others: heal trials judge each on
 * equal inputs, so that all of them are named, in their conditions, and nothing else is. What must be
 * said follows from the few lines of each kernel (specimen_kernels.h). */
#include "tests/whole/specimen_kernels.h"
#include "tests/whole/verdict_checks.h"

static size_t count_pass(const struct outcome *x, uint32_t pass)
{
    size_t n = 0;
    for (size_t i = 0; i < x->n_trials; i++)
        n += x->trials[i].info.pass == pass;
    return n;
}

static struct ask batches(const char *kernels)
{
    return (struct ask){.dump = DS_DUMP_ORIGINS,
                        .repeats = 1,
                        .factor = {[DS_FACTOR_BATCH] = "1,2,8",
                                   [DS_FACTOR_MODE] = "prefill,decode",
                                   [DS_FACTOR_KERNELS] = kernels}};
}

/* The matmul gives other bits in every layer's first call, so attention never has equal inputs by
 * itself. */
static void test_a_fault_behind_another_is_named(void **state)
{
    static const struct culprit both[] = {{"matmul", "split", " batch mode ", NULL},
                                          {"attention", "crowded", " batch ", NULL}};
    const char *what = "split, then crowded";
    struct outcome x;
    struct ask q = batches("pinned+matmul=split+attention=crowded");
    (void)state;
    specimen.from_rows = 2;
    judge(&x, &q);
    only_blames(&x, what, both, 2);
    const struct ds_kernel_verdict *attention = kernel_of(&x.v, "attention", "crowded"),
                                   *matmul = kernel_of(&x.v, "matmul", "split");
    check(what, attention->origins > 0 && matmul->origins > 0);
    check(what, attention->judged == attention->compared);
    check(what, matmul->judged == matmul->compared);
    /* Three arms differ, each from one other. */
    check(what, count_pass(&x, DS_PASS_HEAL) == 3);
    check_text(what, x.v.first.op, "matmul");
    check(what, x.v.first.layer == 0);
    done(&x);

    q.no_heal = 1;
    judge(&x, &q);
    check(what, count_pass(&x, DS_PASS_HEAL) == 0);
    attention = kernel_of(&x.v, "attention", "crowded");
    check(what, attention->judged < attention->compared);
    done(&x);
}

/* Rows stored in 16 bits, and one kernel that reads them before they are rounded. */
static void test_16_bit_rows_are_healed(void **state)
{
    static const struct culprit both[] = {{"matmul", "short-inputs", " kernels ", NULL},
                                          {"attention", "head-map", " kernels ", NULL}};
    static const char *const sets[] = {"pinned,pinned+matmul=short-inputs+attention=head-map",
                                       "fused,fused+matmul=short-inputs+attention=head-map"};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct outcome x;
        struct ask q = only_kernels(sets[i / 2]);
        q.repeats = 1;
        q.factor[DS_FACTOR_DTYPE] = i % 2 ? "f16" : "bf16";
        judge(&x, &q);
        only_blames(&x, sets[i / 2], both, 2);
        for (size_t k = 0; k < 2; k++) {
            const struct ds_kernel_verdict *kv = kernel_of(&x.v, both[k].op, both[k].variant);
            check(sets[i / 2], kv->origins > 0 && kv->judged == kv->compared);
        }
        done(&x);
    }
}

/* A race in a matmul, and behind it attention that chooses its order once for a pass: both are unstable
 * by themselves, and nothing else is, however often its inputs differ. */
static void test_each_unstable_kernel_is_named(void **state)
{
    static const struct culprit both[] = {{"matmul", "arrival", NULL, " repeat "},
                                          {"attention", "coin", NULL, " repeat "}};
    const char *what = "arrival, then coin";
    struct outcome x;
    struct ask q = {.repeats = 6,
                    .dump = DS_DUMP_ORIGINS,
                    .factor = {[DS_FACTOR_KERNELS] = "pinned+matmul=arrival+attention=coin"}};
    (void)state;
    specimen.one_in = 2;
    judge(&x, &q);
    only_blames(&x, what, both, 2);
    check(what, !x.v.stable && count_pass(&x, DS_PASS_HEAL) == 6);
    check(what, condition_of(&x.v, "rope", "pinned", "repeat") == DS_COND_SAME);
    check(what, condition_of(&x.v, "silu_mul", "pinned", "repeat") == DS_COND_SAME);
    check_text(what, x.v.first.op, "matmul");
    int matmul = 0, attention = 0;
    for (size_t i = 0; i < x.v.n_origins; i++) {
        matmul += strcmp(x.v.origins[i].variant, "arrival") == 0;
        attention += strcmp(x.v.origins[i].variant, "coin") == 0;
    }
    check(what, matmul == 8 && attention == 1 && x.v.n_origins == 9);
    done(&x);
}

/* Every heal trial of kernels that give the same bits anywhere finds what the faulty one adds, and
 * nothing else, whatever the arm. */
static void test_what_is_pinned_adds_nothing(void **state)
{
    const char *what = "pinned, but for the token";
    struct outcome x;
    struct ask q = wide("pinned+sample=second-best");
    size_t token, healed = 0;
    (void)state;
    q.repeats = 1;
    specimen.from_rows = 4;
    judge(&x, &q);
    for (token = 0; strcmp(x.header.sites[token].stage, "token") != 0; token++)
        ;
    for (size_t i = 0; i < x.n_trials; i++) {
        if (x.trials[i].info.pass != DS_PASS_HEAL)
            continue;
        healed++;
        check(what, x.trials[i].n_drifts == 5); /* one for each step */
        for (size_t k = 0; k < x.trials[i].n_drifts; k++)
            check(what, x.trials[i].drifts[k].site == token);
        /* The token is healed, too: what the step says is what the reference chose. */
        for (size_t k = 0; k < x.trials[i].n_steps; k++)
            check(what, x.trials[i].steps[k].token == x.trials[0].steps[k].token);
    }
    check(what, healed > 0);
    only_blames(&x, what, &(struct culprit){"sample", "second-best", " batch ", NULL}, 1);
    done(&x);
}

/* Free arms part with the first other token; a heal trial goes on, since its token is healed. */
static void test_rows_that_one_side_lacks(void **state)
{
    static const struct culprit both[] = {{"matmul", "split", " batch ", NULL},
                                          {"sample", "second-best", " batch ", NULL}};
    const char *what = "free, split and second best";
    struct outcome x;
    struct ask q = {.free_run = 1,
                    .repeats = 1,
                    .steps = 4,
                    .factor = {[DS_FACTOR_BATCH] = "1,4",
                               [DS_FACTOR_CHUNK] = "0,4",
                               [DS_FACTOR_KERNELS] = "pinned+matmul=split+sample=second-best"}};
    (void)state;
    specimen.from_rows = 4;
    judge(&x, &q);
    struct culprit chunked[] = {both[0], both[1]};
    chunked[0].drifts =
        kernel_of(&x.v, "matmul", "split")->condition[1 + DS_FACTOR_CHUNK] == DS_COND_DRIFT
            ? " batch chunk "
            : both[0].drifts; /* the last chunk has one row */
    only_blames(&x, what, chunked, 2);
    check(what, condition_of(&x.v, "matmul", "split", "batch") == DS_COND_DRIFT);
    check(what, condition_of(&x.v, "sample", "second-best", "batch") == DS_COND_DRIFT);
    done(&x);
}

/* What a site adds is told from what stands there: the reordering of a matmul is small in every layer,
 * and the residual holds them all. */
static void test_added_error_is_told_from_inherited(void **state)
{
    const char *what = "added and inherited";
    struct outcome x;
    struct ask q = {.repeats = 1,
                    .model = "random:llama,layers=6,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,"
                             "ctx=64,seed=9",
                    .factor = {[DS_FACTOR_KERNELS] = "pinned,pinned+matmul=short-inputs"}};
    (void)state;
    judge(&x, &q);
    check(what, x.v.n_growth == 6 && x.v.n_added > 0);
    for (size_t i = 0; i < x.v.n_growth; i++) {
        const struct ds_growth *g = &x.v.growth[i];
        check(what, g->added_rows > 0 && g->added_relative_rms > 1e-4);
        check(what, g->added_relative_rms < 1e-3);
    }
    check(what, x.v.growth[5].relative_rms > x.v.growth[0].relative_rms);
    for (size_t i = 0; i < x.v.n_added; i++) {
        const struct ds_added *d = &x.v.added[i];
        check(what, strcmp(x.header.sites[d->site].op, "matmul") == 0);
        check(what, d->natural_rows >= d->rows);
        /* Deeper, inherited error is on top of what the kernel adds. */
        check(what, d->layer < 3 || d->natural_relative_rms > d->relative_rms);
    }
    check(what, x.v.n_origins == 8); /* seven in the layers, and the head */
    for (size_t i = 0; i < x.v.n_origins; i++)
        check(what, x.v.origins[i].layers == (x.v.origins[i].layer == 6 ? 1u : 6u));
    done(&x);
}

/* A kernel set against another: every kernel that differs is named, in whatever order they stand. */
static void test_every_kernel_of_a_set_that_differs_is_named(void **state)
{
    static const struct culprit differ[] = {{"matmul", "split", " kernels ", NULL},
                                            {"attention", "head-map", " kernels ", NULL},
                                            {"rope", "late", " kernels ", NULL},
                                            {"rmsnorm", "coarse", " kernels ", NULL}};
    const char *what = "four of ten";
    struct outcome x;
    struct ask q = only_kernels("pinned,pinned+matmul=split+attention=head-map+rope=late+rmsnorm="
                                "coarse");
    (void)state;
    q.repeats = 1;
    judge(&x, &q);
    only_blames(&x, what, differ, 4);
    for (size_t i = 0; i < 4; i++)
        check(what, kernel_of(&x.v, differ[i].op, differ[i].variant)->origins > 0);
    check_text(what, x.v.first.op, "rmsnorm");
    done(&x);
}

static int notes_unhealed(const struct outcome *x)
{
    int n = 0;
    for (size_t i = 0; i < x->v.n_notes; i++)
        n += strstr(x->v.notes[i], "arm 1 was not healed to arm 0, from which it drifts: ") != NULL;
    return n;
}

/* A record is resumed where its heal trials are missing, and the reference arm, whose rows must be made
 * again, fails now: nothing is healed, and the verdict says so. Where it does not fail, or nothing was to
 * be healed, there is nothing to say. */
static void test_a_reference_that_fails_when_run_again(void **state)
{
    static const struct culprit other = {"matmul", "pinned", " kernels ", NULL};
    const char *what = "a reference that fails";
    struct outcome first, x;
    struct ask q = only_kernels("pinned+matmul=refuse,pinned");
    int32_t tokens[4];
    (void)state;
    q.repeats = 1;
    q.no_heal = 1;
    specimen.at_rows = 1000;
    judge(&first, &q);
    check(what, notes_unhealed(&first) == 0);
    for (int i = 0; i < 4; i++)
        tokens[i] = first.trials[0].steps[i].token;
    q.no_heal = 0;
    q.resumed = &first;
    q.forced = tokens;
    q.n_forced = 4;
    for (int fails = 0; fails < 2; fails++) {
        specimen.at_rows = fails ? PROMPT : 1000;
        judge(&x, &q);
        check(what, count_pass(&x, DS_PASS_HEAL) == (fails ? 0 : 1));
        check(what, notes_unhealed(&x) == fails);
        check(what, !!strstr(x.note, "nothing can be healed to arm 0, which failed when run "
                                     "again: layer 0 q_proj: matmul/refuse") == fails);
        only_blames(&x, what, &other, 1);
        done(&x);
    }
    drop(&first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_fault_behind_another_is_named, forget_specimen),
        cmocka_unit_test_teardown(test_16_bit_rows_are_healed, forget_specimen),
        cmocka_unit_test_teardown(test_each_unstable_kernel_is_named, forget_specimen),
        cmocka_unit_test_teardown(test_what_is_pinned_adds_nothing, forget_specimen),
        cmocka_unit_test_teardown(test_rows_that_one_side_lacks, forget_specimen),
        cmocka_unit_test_teardown(test_added_error_is_told_from_inherited, forget_specimen),
        cmocka_unit_test_teardown(test_every_kernel_of_a_set_that_differs_is_named,
                                  forget_specimen),
        cmocka_unit_test_teardown(test_a_reference_that_fails_when_run_again, forget_specimen),
    };
    return cmocka_run_group_tests_name("heal trials", tests, add_specimens, NULL);
}
