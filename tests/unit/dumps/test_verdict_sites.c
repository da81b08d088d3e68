/* test_verdict_union.c: arms that do not have the same sites: partial sums of ranks and their sum,
 * copies between devices. One row, digests given by hand. */
#include "tests/unit/testing.h"

#include "dumps/verdict.h"

#include <stdlib.h>
#include <string.h>

enum { EMBED, R0, R1, SUM, O_PROJ, RESID, SRC, DST, NORM, N_SITES, MOST_ARMS = 3 };

static struct ds_site sites[N_SITES] = {
    [EMBED] = {-1, "embed", "", "embed", "f32", 4},
    [R0] = {0, "o_proj", "r0", "matmul", "f32", 4},
    [R1] = {0, "o_proj", "r1", "matmul", "f32", 4},
    [SUM] = {0, "allreduce", "o_proj", "allreduce", "f32", 4},
    [O_PROJ] = {0, "o_proj", "", "matmul", "f32", 4},
    [RESID] = {0, "resid_attn", "", "add", "f32", 4},
    [SRC] = {1, "transfer", "src", "custom", "f32", 4},
    [DST] = {1, "transfer", "dst", "transfer", "f32", 4},
    [NORM] = {1, "attn_norm", "", "rmsnorm", "f32", 4},
};
static struct ds_edge edges[] = {{EMBED, R0, 0},    {EMBED, R1, 0},     {R0, SUM, 0},
                                 {R1, SUM, 0},      {EMBED, O_PROJ, 0}, {SUM, O_PROJ, 0},
                                 {EMBED, RESID, 0}, {O_PROJ, RESID, 0}, {RESID, SRC, 0},
                                 {SRC, DST, 0},     {RESID, NORM, 0},   {DST, NORM, 0}};

/* Digest of each site, 0 = the arm does not have it. */
struct digests {
    uint64_t of[N_SITES];
};

struct world {
    struct ds_header h;
    char *factors[1], *values[MOST_ARMS][1];
    struct ds_arm arms[MOST_ARMS];
    struct ds_trial_data trials[MOST_ARMS];
    struct ds_row row;
    struct ds_call call;
    struct ds_launch launches[MOST_ARMS][N_SITES];
    struct ds_capture captures[MOST_ARMS][N_SITES];
    uint64_t digests[MOST_ARMS][N_SITES];
};

static const struct ds_trial *world_info(void *ctx, size_t i)
{
    return &((struct world *)ctx)->trials[i].info;
}

static const struct ds_trial_data *world_get(void *ctx, size_t i, struct ds_error *err)
{
    (void)err;
    return &((struct world *)ctx)->trials[i];
}

static struct ds_source world_make(struct world *w, const struct digests *arms, size_t n)
{
    static char factor[] = "kernels", *const names[MOST_ARMS] = {"a", "b", "c"};
    memset(w, 0, sizeof *w);
    w->factors[0] = factor;
    w->row = (struct ds_row){.kind = DS_ROW_PROMPT};
    w->call = (struct ds_call){.m = 1, .sequences = 1, .rows = 1};
    w->h = (struct ds_header){.n_layers = 2,
                              .sites = sites,
                              .n_sites = N_SITES,
                              .edges = edges,
                              .n_edges = sizeof edges / sizeof edges[0],
                              .factors = w->factors,
                              .n_factors = 1,
                              .arms = w->arms,
                              .n_arms = n,
                              .repeats = 1};
    for (size_t a = 0; a < n; a++) {
        struct ds_trial_data *t = &w->trials[a];
        w->values[a][0] = names[a];
        w->arms[a].values = w->values[a];
        *t = (struct ds_trial_data){.info = {.arm = (uint32_t)a},
                                    .calls = &w->call,
                                    .n_calls = 1,
                                    .rows = &w->row,
                                    .n_rows = 1,
                                    .launches = w->launches[a],
                                    .captures = w->captures[a],
                                    .digests = w->digests[a]};
        for (uint32_t s = 0; s < N_SITES; s++) {
            if (!arms[a].of[s])
                continue;
            struct ds_launch *l = &w->launches[a][t->n_launches];
            snprintf(l->op, sizeof l->op, "%s", sites[s].op);
            snprintf(l->variant, sizeof l->variant, "plain");
            w->digests[a][t->n_digests] = arms[a].of[s];
            w->captures[a][t->n_captures++] =
                (struct ds_capture){.site = s,
                                    .launch = (uint32_t)t->n_launches++,
                                    .rows = 1,
                                    .width = 4,
                                    .first_digest = t->n_digests++};
        }
    }
    return (struct ds_source){
        .header = &w->h, .n_trials = n, .info = world_info, .get = world_get, .ctx = w};
}

#define ONE                                                                                        \
    {                                                                                              \
        {                                                                                          \
            1, 0, 0, 0, 5, 6, 0, 0, 9                                                              \
        }                                                                                          \
    }
#define TWO_RANKS(p0, p1, sum, o, r, n)                                                            \
    {                                                                                              \
        {                                                                                          \
            1, p0, p1, sum, o, r, 0, 0, n                                                          \
        }                                                                                          \
    }
#define PLACED(dst, n)                                                                             \
    {                                                                                              \
        {                                                                                          \
            1, 0, 0, 0, 5, 6, 6, dst, n                                                            \
        }                                                                                          \
    }

/* Labels of the second arm against the first: . same, o origin, i inherited, h healed, - absent, ?
 * unknown. */
static const struct {
    const char *what, *want;
    struct digests arm[MOST_ARMS];
} cases[] = {
    {"one rank against two, other bits", ".---oi--i", {ONE, TWO_RANKS(2, 3, 4, 4, 7, 8)}},
    {"one rank against two, the same bits", ".---..--.", {ONE, TWO_RANKS(2, 3, 5, 5, 6, 9)}},
    {"two ranks against one", ".---oi--i", {TWO_RANKS(2, 3, 4, 4, 7, 8), ONE}},
    {"two ranks, another sum",
     "...oii--i",
     {TWO_RANKS(2, 3, 4, 4, 7, 8), TWO_RANKS(2, 3, 14, 14, 17, 18)}},
    {"two ranks, another partial",
     "..oiii--i",
     {TWO_RANKS(2, 3, 4, 4, 7, 8), TWO_RANKS(2, 13, 14, 14, 17, 18)}},
    {"two ranks, another partial, the same sum",
     "..oh..--.",
     {TWO_RANKS(2, 3, 4, 4, 7, 8), TWO_RANKS(2, 13, 4, 4, 7, 8)}},
    {"no partial in common",
     ".--oii--i",
     {TWO_RANKS(2, 0, 4, 4, 7, 8), TWO_RANKS(0, 3, 14, 14, 17, 18)}},
    {"a share of one rank, a share of two",
     ".---oi--i",
     {TWO_RANKS(2, 0, 4, 4, 7, 8), TWO_RANKS(12, 3, 14, 14, 17, 18)}},
    {"one device against two", ".---.....", {ONE, PLACED(6, 9)}},
    {"a transfer that loses rows", ".---...oi", {ONE, PLACED(66, 99)}},
    {"two devices against one", ".---.....", {PLACED(6, 9), ONE}},
    {"a transfer that loses rows, the other way", ".---...oi", {PLACED(66, 99), ONE}},
    {"two transfers", ".---...oi", {PLACED(6, 9), PLACED(66, 99)}},
    {"neither, a third arm has both",
     ".---..--o",
     {ONE, {{1, 0, 0, 0, 5, 6, 0, 0, 19}}, {{1, 2, 3, 4, 4, 7, 7, 7, 9}}}},
    /* an origin of the gap: no kernel is counted for it (test_diff_align.c) */
    {"a site that nobody recorded",
     ".----o--i",
     {{{1, 0, 0, 0, 0, 6, 0, 0, 9}}, {{1, 0, 0, 0, 0, 7, 0, 0, 8}}}},
};

static char letter(int label)
{
    return label == DS_LABEL_SAME        ? '.'
           : label == DS_LABEL_ORIGIN    ? 'o'
           : label == DS_LABEL_INHERITED ? 'i'
           : label == DS_LABEL_HEALED    ? 'h'
           : label == DS_LABEL_ABSENT    ? '-'
                                         : '?';
}

static void test_labels(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world w;
        struct ds_analysis *a;
        struct ds_error err = {0};
        char got[N_SITES + 1] = "";
        uint8_t *labels;
        size_t n = cases[i].arm[2].of[EMBED] ? 3 : 2;
        struct ds_source src = world_make(&w, cases[i].arm, n);
        assert_ok(ds_analysis_new(&src, NULL, &a, &err), err);
        assert_ok(ds_analysis_labels(a, 1, 0, &labels, &err), err);
        for (int s = 0; s < N_SITES; s++)
            got[s] = letter(labels[s]);
        free(labels);
        ds_analysis_free(a);
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("%s: got %s, want %s", cases[i].what, got, cases[i].want);
    }
}

/* Whom the verdict blames. */
static void test_blame(void **state)
{
    static const struct digests lost[] = {ONE, PLACED(66, 99)}, back[] = {PLACED(66, 99), ONE},
                                ranks[] = {ONE, TWO_RANKS(2, 3, 4, 4, 7, 8)};
    static const struct {
        const struct digests *arms;
        const char *stage, *part, *op, *variant, *ref_variant;
    } blames[] = {{lost, "transfer", "dst", "transfer", "plain", "none"},
                  {back, "transfer", "dst", "transfer", "none", "plain"},
                  {ranks, "o_proj", "", "matmul", "plain", "plain"}};
    (void)state;
    for (size_t i = 0; i < sizeof blames / sizeof blames[0]; i++) {
        struct world w;
        struct ds_analysis *a;
        struct ds_verdict v;
        struct ds_error err = {0};
        struct ds_source src = world_make(&w, blames[i].arms, 2);
        assert_ok(ds_analysis_new(&src, NULL, &a, &err), err);
        assert_ok(ds_analysis_verdict(a, &v, &err), err);
        assert_int_equal(v.first.label, DS_LABEL_ORIGIN);
        assert_string_equal(v.first.stage, blames[i].stage);
        assert_string_equal(v.first.part, blames[i].part);
        assert_string_equal(v.first.op, blames[i].op);
        assert_string_equal(v.first.variant, blames[i].variant);
        assert_string_equal(v.first.ref_variant, blames[i].ref_variant);
        ds_verdict_free(&v);
        ds_analysis_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_labels), cmocka_unit_test(test_blame)};
    return cmocka_run_group_tests_name("verdict over unlike sites", tests, NULL, NULL);
}
