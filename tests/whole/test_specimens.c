/* test_specimens.c: whole sweeps of a small model with kernels that have one known fault each
 * (specimen_kernels.h): the verdict names the fault, its condition and its place, and blames
 * nothing else. What each kernel does, and so what must be said, follows from its few lines. */
#include "tests/whole/specimen_kernels.h"
#include "tests/whole/verdict_checks.h"

/* A process that starts later adds in another order, and at some row counts it dies. */
static int own_process_launch(const void *args, const struct ds_exec *exec, char *why,
                              size_t why_size)
{
    static int chosen;
    if (!chosen)
        chosen = trials_kept ? 2 : 1;
    crash_launch(args, exec, why, why_size);
    fill(args, chosen == 2 ? dot_split : dot_chain, 0);
    return 0;
}

static const struct ds_kernel own_process =
    SPECIMEN(DS_OP_MATMUL, "own-process", own_process_launch, NULL);

static int add_all(void **state)
{
    struct ds_error err;
    assert_ok(ds_kernel_add(&own_process, &err), err);
    return add_specimens(state);
}

/* ---- healthy --------------------------------------------------------------------------------- */

static void test_healthy_kernels_are_found_the_same(void **state)
{
    static const char *const sets[] = {"pinned", "reference"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct outcome x;
        struct ask q = wide(sets[i]);
        judge(&x, &q);
        only_blames(&x, sets[i], NULL, 0);
        check(sets[i], x.v.result == DS_RESULT_SAME && x.v.stable && !x.v.first.found);
        check(sets[i], !x.v.nonfinite.at.found && !x.v.discrete.found);
        check(sets[i], x.v.tokens_same == x.v.tokens_compared && x.v.tokens_compared > 0);
        check(sets[i], x.v.counts.arms == x.v.counts.arms_planned && x.v.n_notes == 0);
        check(sets[i], ds_verdict_exit(&x.v) == 0);
        healthy_words(&x, sets[i]);
        done(&x);
    }
}

/* ---- unstable -------------------------------------------------------------------------------- */

#define EVERYWHERE " repeat batch slot neighbours padding threads chunk mode "

static void test_arrival_order_is_unstable_and_nothing_else(void **state)
{
    static const struct {
        const char *what;
        uint32_t one_in;
        int64_t from_rows;
        int down_of_layer_1;
        const char *unstable_in;
        int32_t layer;
        const char *stage;
    } cases[] = {
        {"always", 0, 0, 0, EVERYWHERE, 0, "q_proj"},
        {"rare", 100, 0, 0, EVERYWHERE, 0, "q_proj"},
        {"from 18 rows on", 0, 18, 0, " repeat batch slot neighbours padding threads ", 0,
         "q_proj"},
        {"layer 1 down", 0, 0, 1, EVERYWHERE, 1, "down"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *what = cases[i].what;
        struct outcome x;
        struct ask q = wide("pinned+matmul=arrival");
        struct ds_error err;
        forget_specimen(NULL);
        specimen.one_in = cases[i].one_in;
        specimen.from_rows = cases[i].from_rows;
        if (cases[i].down_of_layer_1) {
            assert_ok(ds_model_open(SMALL, 1, &q.opened, &err), err);
            specimen.weight = q.opened->layers[1].down->data;
        }
        judge(&x, &q);
        only_blames(&x, what, &(struct culprit){"matmul", "arrival", NULL, cases[i].unstable_in},
                    1);
        check(what, x.v.result == DS_RESULT_DRIFT && !x.v.stable && ds_verdict_exit(&x.v) == 1);
        check_text(what, x.v.first.factor, "repeat");
        check(what, x.v.first.layer == cases[i].layer && x.v.first.label == DS_LABEL_ORIGIN);
        check_text(what, x.v.first.stage, cases[i].stage);
        check(what, x.v.first.digest != x.v.first.ref_digest);
        check(what, !x.v.first.sized || x.v.first.kind == DS_KIND_ROUNDING_ORDER);
        for (size_t f = 1; f < x.v.n_factors; f++)
            check(what, !x.v.factors[f].phase[DS_VERDICT_ALL].first.found);
        done(&x);
    }
}

/* A fair coin that decides a whole pass: over three repeats it falls alike in a quarter of the
 * arms, and then two arms differ in every digest. That is luck, not threads and not batch. */
static void test_one_choice_for_a_whole_pass_is_not_drift(void **state)
{
    (void)state;
    for (uint32_t one_in = 2; one_in <= 4; one_in++)
        for (int repeats = 2; repeats <= 4; repeats++) {
            char what[40];
            struct outcome x;
            struct ask q = wide("pinned+attention=coin");
            snprintf(what, sizeof what, "one in %u, %d repeats", one_in, repeats);
            specimen.one_in = one_in;
            q.repeats = repeats;
            judge(&x, &q);
            check(what, !x.v.stable);
            for (size_t f = 1; f < x.v.n_factors; f++)
                check(what, x.v.factors[f].phase[DS_VERDICT_ALL].drifted == 0);
            check_text(what, x.v.first.op, "attention");
            /* The rate is that of all arms that ran it, not of those that happened to show it. */
            check(what, x.v.unstable.of_arms == x.v.counts.arms &&
                            x.v.unstable.trials == x.v.counts.trials);
            check(what, x.v.unstable.arms < x.v.unstable.of_arms);
            done(&x);
        }
}

/* O-08: every chunk is given the length of the whole prompt. */
static void test_chunks_that_read_unwritten_slots(void **state)
{
    const char *what = "kv_len of the whole prompt";
    struct outcome x;
    struct ask q = wide("pinned+attention=whole-length");
    (void)state;
    specimen.whole = PROMPT;
    judge(&x, &q); /* what the slots held is left over from the pass before */
    only_blames(&x, what,
                &(struct culprit){"attention", "whole-length", NULL, " repeat chunk mode "}, 1);
    check_text(what, x.v.first.stage, "attn_out");
    check_text(what, x.v.first.op, "attention");
    /* The first trial is the odd one: it is told against one of the others. */
    check_text(what, x.v.first.value, "0");
    check(what, x.v.first.ref_value && strcmp(x.v.first.ref_value, "0") != 0);
    done(&x);

    what = "kv_len of the whole prompt, poisoned";
    q.poison = 1;
    judge(&x, &q);
    only_blames(&x, what, &(struct culprit){"attention", "whole-length", " chunk mode ", NULL}, 1);
    check(what, x.v.stable && x.v.nonfinite.at.found && x.v.nonfinite.inputs == 1);
    check(what, x.v.nonfinite.at.layer == 0);
    check_text(what, x.v.nonfinite.at.stage, "attn_out");
    check_text(what, x.v.nonfinite.at.variant, "whole-length");
    /* Rows 0..7 of the chunks 0-3 and 4-7; the last chunk's own length is right. */
    first_is(&x, what, &factor_of(&x.v, "chunk")->phase[DS_VERDICT_ALL].first,
             &(struct place){0, "attn_out", "chunk", "4", DS_PHASE_PREFILL, 4, 0, 0, 8,
                             DS_KIND_NON_FINITE});
    done(&x);
}

/* ---- batch, threads, place ------------------------------------------------------------------- */

static void test_split_from_four_rows_on(void **state)
{
    const char *what = "K split from 4 rows on";
    struct outcome x;
    struct ask q = wide("pinned+matmul=split");
    (void)state;
    specimen.from_rows = 4;
    judge(&x, &q);
    only_blames(&x, what, &(struct culprit){"matmul", "split", " batch chunk mode ", NULL}, 1);
    check(what, x.v.stable);
    switches_are(&x, what, "matmul", "split", "4");
    classes_are(&x, what, "batch", DS_VERDICT_DECODE, "1,2,3|4,5,8");
    classes_are(&x, what, "chunk", DS_VERDICT_PREFILL, "0|4");
    /* The prompt in one call has 9 rows at batch 1: only the logits' rows cross the threshold. */
    first_is(&x, what, &factor_of(&x.v, "batch")->phase[DS_VERDICT_ALL].first,
             &(struct place){0, "q_proj", "batch", "4", DS_PHASE_DECODE, 4, 1, 9, 4,
                             DS_KIND_ROUNDING_ORDER});
    /* Chunks of 4, 4 and 1: the last row is alone. */
    first_is(&x, what, &factor_of(&x.v, "chunk")->phase[DS_VERDICT_ALL].first,
             &(struct place){0, "q_proj", "chunk", "4", DS_PHASE_PREFILL, 1, 0, 8, 1,
                             DS_KIND_ROUNDING_ORDER});
    first_is(&x, what, &x.v.first,
             &(struct place){0, "q_proj", "mode", "decode", DS_PHASE_DECODE, 1, 0, 0, 9,
                             DS_KIND_ROUNDING_ORDER});
    check(what, x.v.n_growth == 2 && x.v.growth[0].relative_rms > 0);
    done(&x);
}

static void test_bits_that_come_back(void **state)
{
    const char *what = "odd and even rows";
    struct outcome x;
    struct ask q = wide("pinned+matmul=parity");
    (void)state;
    q.factor[DS_FACTOR_NEIGHBOURS] = q.factor[DS_FACTOR_PADDING] = NULL;
    judge(&x, &q);
    only_blames(&x, what, &(struct culprit){"matmul", "parity", " batch chunk ", NULL}, 1);
    check(what, x.v.stable);
    classes_are(&x, what, "batch", DS_VERDICT_ALL, "1,3,5|2,4,8");
    classes_are(&x, what, "batch", DS_VERDICT_DECODE, "1,3,5|2,4,8");
    switches_are(&x, what, "matmul", "parity", "2,3,4,5,8,9,18,27,36,45,72");
    done(&x);
}

static void test_a_row_split_over_threads(void **state)
{
    const char *what = "rmsnorm split when rows < threads";
    struct outcome x;
    struct ask q = wide("pinned+rmsnorm=torn");
    (void)state;
    q.factor[DS_FACTOR_THREADS] = "1,2,4";
    judge(&x, &q);
    only_blames(&x, what, &(struct culprit){"rmsnorm", "torn", " batch threads ", NULL}, 1);
    check(what, x.v.stable);
    check(what, x.v.first.layer == 0 && x.v.first.phase == DS_PHASE_DECODE);
    check_text(what, x.v.first.stage, "attn_norm");
    classes_are(&x, what, "threads", DS_VERDICT_DECODE, "1|2|4");
    classes_are(&x, what, "threads", DS_VERDICT_PREFILL, "1,2,4");
    done(&x);
}

static void test_what_depends_on_place_neighbours_or_padding_alone(void **state)
{
    static const struct {
        const char *kernels, *op, *variant, *factor, *value, *stage;
        uint32_t rows_in_call, rows;
        int32_t position;
        int kind;
    } cases[] = {
        {"pinned+matmul=place", "matmul", "place", "slot", "last", "q_proj", 72, 9, 0,
         DS_KIND_ROUNDING_ORDER},
        {"pinned+attention=leak", "attention", "leak", "neighbours", "varied", "attn_out", 0, 13, 0,
         DS_KIND_UNKNOWN},
        /* Two slots are added to the same sum from either end. */
        {"pinned+attention=padded", "attention", "padded", "padding", "3", "attn_out", 96, 11, 2,
         DS_KIND_ROUNDING_ORDER},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *what = cases[i].kernels;
        char drifts[40];
        struct outcome x;
        struct ask q = wide(cases[i].kernels);
        snprintf(drifts, sizeof drifts, " %s ", cases[i].factor);
        judge(&x, &q);
        only_blames(&x, what, &(struct culprit){cases[i].op, cases[i].variant, drifts, NULL}, 1);
        check(what, x.v.stable);
        first_is(
            &x, what, &x.v.first,
            &(struct place){0, cases[i].stage, cases[i].factor, cases[i].value, DS_PHASE_PREFILL,
                            cases[i].rows_in_call ? cases[i].rows_in_call : x.v.first.rows_in_call,
                            0, cases[i].position, cases[i].rows, cases[i].kind});
        for (size_t f = 0; f < x.v.n_factors; f++)
            check(what, strcmp(x.v.factors[f].name, cases[i].factor) == 0 ||
                            x.v.factors[f].phase[DS_VERDICT_ALL].drifted == 0);
        done(&x);
    }
}

static void test_a_rotation_late_by_one_position(void **state)
{
    const char *what = "rope late in decode";
    struct outcome x;
    struct ask q = wide("pinned+rope=late");
    (void)state;
    q.factor[DS_FACTOR_CHUNK] = "0,3"; /* no chunk of one row */
    judge(&x, &q);
    only_blames(&x, what, &(struct culprit){"rope", "late", " batch mode ", NULL}, 1);
    first_is(&x, what, &factor_of(&x.v, "mode")->phase[DS_VERDICT_ALL].first,
             &(struct place){0, "q_rope", "mode", "decode", DS_PHASE_DECODE, 1, 0, 1, 8,
                             DS_KIND_WRONG_DATA});
    classes_are(&x, what, "batch", DS_VERDICT_PREFILL, "1,2,3,4,5,8");
    classes_are(&x, what, "batch", DS_VERDICT_DECODE, "1|2,3,4,5,8");
    done(&x);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void test_minus_zero_is_told_from_a_value(void **state)
{
    const char *what = "-0 from 18 rows on";
    struct outcome x;
    struct ask q = wide("pinned+add=signed-zero");
    (void)state;
    specimen.from_rows = 18;
    judge(&x, &q);
    only_blames(&x, what, &(struct culprit){"add", "signed-zero", " batch ", NULL}, 1);
    first_is(&x, what, &x.v.first,
             &(struct place){0, "resid_attn", "batch", "2", DS_PHASE_PREFILL, 18, 0, 0, 9,
                             DS_KIND_SAME_VALUES});
    check(what, x.v.first.flags & DS_DRIFT_VALUES_EQUAL);
    check(what, x.v.first.elements == 9 && x.v.first.max_ulp == 0);
    check(what, strstr(x.v.first.why, "values equal") != NULL);
    /* The next matmul adds zero times a weight to its sum: its rows are equal again. */
    check(what, kernel_of(&x.v, "matmul", "pinned")->healed > 0);
    check(what, x.v.tokens_same == x.v.tokens_compared);
    done(&x);
}

static void test_a_nan_in_one_row_at_one_batch_size(void **state)
{
    const char *what = "NaN at 36 rows";
    struct outcome x;
    struct ask q = wide("pinned+matmul=nan");
    (void)state;
    specimen.at_rows = 36;
    judge(&x, &q);
    only_blames(&x, what, &(struct culprit){"matmul", "nan", " batch ", NULL}, 1);
    first_is(&x, what, &x.v.first,
             &(struct place){0, "q_proj", "batch", "4", DS_PHASE_PREFILL, 36, 0, 2, 1,
                             DS_KIND_NON_FINITE});
    classes_are(&x, what, "batch", DS_VERDICT_ALL, "1,2,3,5,8|4");
    check(what, x.v.nonfinite.at.found && x.v.nonfinite.at.layer == 0);
    check(what, x.v.nonfinite.nan == 1 && x.v.nonfinite.inf == 0 && x.v.nonfinite.inputs == 1);
    check(what, x.v.nonfinite.at.position == 2 && x.v.nonfinite.at.rows == 1);
    check_text(what, x.v.nonfinite.at.stage, "q_proj");
    check_text(what, x.v.nonfinite.at.variant, "nan");
    done(&x);
}

static void test_drift_that_heals_is_counted(void **state)
{
    const char *what = "8 bits after a split";
    struct outcome x;
    struct ask q = wide("pinned+matmul=split+rmsnorm=coarse");
    (void)state;
    specimen.from_rows = 4;
    judge(&x, &q);
    only_blames(&x, what, &(struct culprit){"matmul", "split", " batch chunk mode ", NULL}, 1);
    check(what, kernel_of(&x.v, "rmsnorm", "coarse")->healed > 0);
    check(what, kernel_of(&x.v, "rmsnorm", "coarse")->origins == 0);
    /* Each matmul after a healed row is judged anew: more origins than in the first layer alone. */
    check(what, kernel_of(&x.v, "matmul", "split")->origins > 108);
    done(&x);
}

static void test_two_independent_origins(void **state)
{
    const char *what = "matmul and attention";
    static const struct culprit both[] = {{"matmul", "split", " batch chunk mode ", NULL},
                                          {"attention", "crowded", " batch ", NULL}};
    struct outcome x;
    struct ask q = wide("pinned+matmul=split+attention=crowded");
    (void)state;
    specimen.from_rows = 4;
    judge(&x, &q);
    only_blames(&x, what, both, 2);
    check(what, kernel_of(&x.v, "matmul", "split")->origins > 0);
    check(what, kernel_of(&x.v, "attention", "crowded")->origins > 0);
    classes_are(&x, what, "batch", DS_VERDICT_ALL, "1|2,3|4,5,8");
    switches_are(&x, what, "matmul", "split", "4");
    done(&x);
}

static void test_another_token_and_its_margin(void **state)
{
    const char *what = "second best token from 4 rows on";
    struct outcome x;
    struct ask q = wide("pinned+sample=second-best");
    (void)state;
    specimen.from_rows = 4;
    judge(&x, &q);
    only_blames(&x, what, &(struct culprit){"sample", "second-best", " batch ", NULL}, 1);
    first_is(&x, what, &x.v.first,
             &(struct place){2, "token", "batch", "4", DS_PHASE_PREFILL, 4, 0, 8, 5,
                             DS_KIND_SELECTION_ONLY});
    const struct ds_step *base = &x.trials[0].steps[0];
    check(what, x.v.discrete.found && x.v.discrete.step == 0);
    check(what, x.v.discrete.a == base->ids[0] && x.v.discrete.b == base->ids[1]);
    check(what, x.v.discrete.margin == (double)base->margin && base->margin > 0);
    /* 3 batches of 5 choices at 2 thread counts, and what compares with them. */
    check(what, x.v.tokens_compared - x.v.tokens_same == 30);
    done(&x);
}

/* ---- kinds ----------------------------------------------------------------------------------- */

static void test_kinds_of_another_kernel(void **state)
{
    static const struct {
        const char *kernels, *op, *variant, *stage;
        int kind;
    } cases[] = {
        {"pinned+attention=reference,pinned+attention=head-map", "attention", "head-map",
         "attn_out", DS_KIND_WRONG_DATA},
        {"pinned+matmul=reference,pinned+matmul=short-inputs", "matmul", "short-inputs", "q_proj",
         DS_KIND_LOWER_PRECISION},
        {"pinned+matmul=reference,pinned+matmul=bf16", "matmul", "bf16", "q_proj",
         DS_KIND_LOWER_PRECISION},
        {"pinned+matmul=reference,pinned+matmul=short-partials", "matmul", "short-partials",
         "q_proj", DS_KIND_LOWER_PRECISION},
        {"pinned+matmul=reference,pinned+matmul=split", "matmul", "split", "q_proj",
         DS_KIND_ROUNDING_ORDER},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *what = cases[i].kernels, *value = strchr(what, ',') + 1;
        struct outcome x;
        struct ask q = only_kernels(cases[i].kernels);
        judge(&x, &q);
        only_blames(&x, what, &(struct culprit){cases[i].op, cases[i].variant, " kernels ", NULL},
                    1);
        first_is(&x, what, &x.v.first,
                 &(struct place){0, cases[i].stage, "kernels", value, DS_PHASE_PREFILL, PROMPT, 0,
                                 x.v.first.position, x.v.first.rows, cases[i].kind});
        check(what, x.v.first.rows >= 12 && x.v.first.sized);
        done(&x);
    }
}

/* Rows of unlike formats have other bits by construction: no kernel is blamed for that, and within
 * each format the kinds are as ever. */
static void test_formats_are_not_held_against_each_other(void **state)
{
    static const char *const orders[] = {"f32,bf16,f16", "bf16,f32"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const char *what = orders[i];
        struct outcome x;
        struct ask q = wide("pinned");
        q.factor[DS_FACTOR_DTYPE] = orders[i];
        judge(&x, &q);
        only_blames(&x, what, NULL, 0);
        check(what, x.v.result == DS_RESULT_SAME && !x.v.first.found && x.v.n_notes == 0);
        done(&x);
        specimen.from_rows = 4;
        /* Wide enough for 16 bits to show a reordering. */
        q = (struct ask){.model = "random:llama,layers=2,hidden=512,heads=8,kv_heads=2,ffn=512,"
                                  "vocab=512,ctx=64,seed=9",
                         .repeats = 2,
                         .factor = {[DS_FACTOR_KERNELS] = "pinned+matmul=split",
                                    [DS_FACTOR_BATCH] = "1,4",
                                    [DS_FACTOR_CHUNK] = "0,4",
                                    [DS_FACTOR_MODE] = "prefill,decode",
                                    [DS_FACTOR_DTYPE] = orders[i]}};
        judge(&x, &q);
        only_blames(&x, what, &(struct culprit){"matmul", "split", " batch chunk mode ", NULL}, 1);
        for (size_t f = 0; f < x.v.n_factors; f++)
            for (int p = 0; p < DS_VERDICT_PHASES; p++) {
                const struct ds_finding *first = &x.v.factors[f].phase[p].first;
                int origin = first->label == DS_LABEL_ORIGIN;
                check(what, !first->found || first->sized);
                check(what, !first->found ||
                                first->kind == (origin ? DS_KIND_ROUNDING_ORDER : DS_KIND_UNKNOWN));
            }
        done(&x);
    }
}

/* ---- arms that are lost ---------------------------------------------------------------------- */

static void test_a_kernel_that_dies_costs_its_arms_only(void **state)
{
    static const struct {
        const char *variant, *says;
    } cases[] = {
        {"crash", "signal 11"},
        {"refuse", "matmul/refuse: no tile for 36 rows"},
#if defined(__x86_64__)
        {"flush", "matmul/flush: the kernel changed the floating-point control word"},
#endif
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *what = cases[i].variant;
        char kernels[64];
        struct outcome x;
        snprintf(kernels, sizeof kernels, "pinned+matmul=%s", cases[i].variant);
        struct ask q = wide(kernels);
        specimen.at_rows = 36; /* batch 4, at one and at two threads */
        judge(&x, &q);
        check(what, x.result.failed == 2);
        check(what, strstr(x.result.first_failure.msg, cases[i].says) != NULL);
        check(what, strstr(x.result.first_failure.msg, "arm 3") != NULL);
        only_blames(&x, what, NULL, 0);
        check(what, x.v.result == DS_RESULT_SAME && x.v.stable);
        check(what, x.v.counts.arms == 15 && x.v.counts.arms_planned == 17);
        check(what, factor_of(&x.v, "batch")->arms_alone == 2);
        check(what, x.v.n_failed == 2);
        const struct ds_failed_arm *f = x.v.failed;
        check(what, f && f->at->rows == 36 && f->at->m == 36 && f->site && f->site->layer == 0);
        check_text(what, f->site->stage, "q_proj");
        check_text(what, f->at->op, "matmul");
        check_text(what, f->at->variant, cases[i].variant);
        check_text(what, f->factor, "batch");
        check_text(what, f->value, "4");
        check(what,
              f->at->phase == DS_PHASE_PREFILL && f->at->first == 0 && f->at->last == PROMPT - 1);
        check(what, (f->at->how == DS_FAILED_DIED) == (i == 0));
        char *text = verdict_text(&x);
        check(what, strstr(strrchr(text, ':'), "(15 of 17 arms") != NULL);
        check(what, strstr(text, "lost in layer 0 q_proj, matmul/") != NULL);
        free(text);
        done(&x);
    }
}

/* O-19b: each process is consistent in itself. Varied, the process is blamed; where a worker died
 * and another took over, the verdict says that two processes were compared. */
static void test_what_a_process_chooses_for_itself(void **state)
{
    const char *what = "--process 1,3";
    struct outcome x;
    struct ask q = wide("pinned+matmul=own-process");
    (void)state;
    specimen.at_rows = 1000;
    q.factor[DS_FACTOR_PROCESS] = "1,3";
    judge(&x, &q);
    only_blames(&x, what, &(struct culprit){"matmul", "own-process", " process ", NULL}, 1);
    check(what, x.v.stable && x.v.n_notes == 0);
    done(&x);

    what = "a worker took over";
    specimen.at_rows = 36;
    q.factor[DS_FACTOR_PROCESS] = NULL;
    judge(&x, &q);
    check(what, x.result.failed == 2 && x.v.first.found);
    check(what, x.v.n_notes == 1 && strstr(x.v.notes[0], "another process than its reference"));
    done(&x);

    what = "a worker took over, nothing depends on it";
    q = wide("pinned+matmul=crash");
    judge(&x, &q);
    check(what, x.result.failed == 2 && x.v.result == DS_RESULT_SAME && x.v.n_notes == 0);
    done(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_healthy_kernels_are_found_the_same, forget_specimen),
        cmocka_unit_test_teardown(test_arrival_order_is_unstable_and_nothing_else, forget_specimen),
        cmocka_unit_test_teardown(test_one_choice_for_a_whole_pass_is_not_drift, forget_specimen),
        cmocka_unit_test_teardown(test_chunks_that_read_unwritten_slots, forget_specimen),
        cmocka_unit_test_teardown(test_split_from_four_rows_on, forget_specimen),
        cmocka_unit_test_teardown(test_bits_that_come_back, forget_specimen),
        cmocka_unit_test_teardown(test_a_row_split_over_threads, forget_specimen),
        cmocka_unit_test_teardown(test_what_depends_on_place_neighbours_or_padding_alone,
                                  forget_specimen),
        cmocka_unit_test_teardown(test_a_rotation_late_by_one_position, forget_specimen),
        cmocka_unit_test_teardown(test_minus_zero_is_told_from_a_value, forget_specimen),
        cmocka_unit_test_teardown(test_a_nan_in_one_row_at_one_batch_size, forget_specimen),
        cmocka_unit_test_teardown(test_drift_that_heals_is_counted, forget_specimen),
        cmocka_unit_test_teardown(test_two_independent_origins, forget_specimen),
        cmocka_unit_test_teardown(test_another_token_and_its_margin, forget_specimen),
        cmocka_unit_test_teardown(test_kinds_of_another_kernel, forget_specimen),
        cmocka_unit_test_teardown(test_formats_are_not_held_against_each_other, forget_specimen),
        cmocka_unit_test_teardown(test_what_a_process_chooses_for_itself, forget_specimen),
        cmocka_unit_test_teardown(test_a_kernel_that_dies_costs_its_arms_only, forget_specimen),
    };
    return cmocka_run_group_tests_name("specimens", tests, add_all, NULL);
}
