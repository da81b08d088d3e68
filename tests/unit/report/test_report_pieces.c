/* test_report_pieces.c: the pieces of a report by themselves: launches, kernels, numbers, commands, findings, cells. */
#include "tests/unit/report/made.h"

static const char *taken(struct ds_buf *b)
{
    static char text[2048];
    assert_false(b->failed);
    snprintf(text, sizeof text, "%s", b->data ? b->data : "");
    ds_buf_free(b);
    return text;
}

static void test_launches_side_by_side(void **state)
{
    (void)state;
    struct ds_buf b = {0};
    struct ds_report_launch_field f[DS_REPORT_LAUNCH_FIELDS];
    struct ds_launch x = {.op = "matmul",
                          .variant = "mine\033",
                          .rows = 4,
                          .tile_rows = 64,
                          .split = 1,
                          .threads = 1,
                          .algo = "fast"},
                     y = x;
    y.tile_rows = 128;
    y.threads = 2;
    assert_int_equal(ds_report_launch_difference(&x, &y, &b), 2);
    assert_string_equal(taken(&b), "tile 64 against 128, threads 1 against 2");
    assert_int_equal(ds_report_launch_difference(&x, &x, &b), 0);
    y = x;
    y.tile_cols = 32;
    y.threads = 0; /* the library does not say */
    y.algo[0] = '\0';
    assert_int_equal(ds_report_launch_difference(&x, &y, &b), 2);
    assert_string_equal(taken(&b), "algorithm fast against none, tile columns 0 against 32");
    size_t n = ds_report_launch_fields(&x, NULL, f);
    assert_int_equal(n, 7);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(f[i].text[1], "unknown");
        assert_false(f[i].differs);
    }
    assert_string_equal(f[1].text[0], "mine\\x1b");
    ds_report_launch(&x, "Haswell", &b);
    assert_string_equal(taken(&b), "mine\\x1b fast, tile 64x0x0, 1 thread");
    ds_report_launch(NULL, NULL, &b);
    assert_string_equal(taken(&b), "unknown");
}

static const char *kernel_of_tests(const char *device, const char *op, const char *variant)
{
    if (strcmp(op, "matmul") != 0 || strcmp(variant, "split") != 0)
        return NULL;
    return strcmp(device, "sim") == 0 ? "in blocks" : strcmp(device, "cpu") == 0 ? "in parts" : "?";
}

static const char *build_of_tests(void)
{
    return "v1";
}

/* A launch says neither on which device it was nor by which build: the record does. */
static void test_what_kernels_say_of_themselves(void **state)
{
    (void)state;
    static const struct ds_report_caller caller = {.kernel = kernel_of_tests,
                                                   .build = build_of_tests};
    char device[] = "device", cpu[] = "cpu", sim[] = "sim";
    char *factors[] = {device}, *on_cpu[] = {cpu}, *on_sim[] = {sim};
    struct ds_arm arms[] = {{on_cpu}, {on_sim}};
    struct ds_header h = {
        .build = "v1", .factors = factors, .n_factors = 1, .arms = arms, .n_arms = 2};
    struct ds_report r = {.header = &h, .caller = &caller};
    const struct ds_launch split = {.op = "matmul", .variant = "split"},
                           mine = {.op = "matmul", .variant = "mine"};
    struct ds_buf b = {0};
    assert_int_equal(ds_report_kernels(&r, &split, 0, &split, 0, &b), 1);
    assert_string_equal(taken(&b), "matmul/split: in parts\n");
    assert_int_equal(ds_report_kernels(&r, &split, 0, &split, 1, &b), 2);
    assert_string_equal(taken(&b), "matmul/split: in parts\nmatmul/split: in blocks\n");
    assert_int_equal(ds_report_kernels(&r, &mine, 0, NULL, 1, &b), 0);
    h.build[1] = '2';
    assert_int_equal(ds_report_kernels(&r, NULL, 0, &split, 1, &b), 1);
    assert_string_equal(taken(&b), "matmul/split: in blocks (in this program; the record is of "
                                   "another build)\n");
    h.n_factors = 0; /* an old record */
    assert_int_equal(ds_report_kernels(&r, NULL, 0, &split, 1, &b), 1);
    assert_non_null(strstr(b.data, "in parts"));
    ds_buf_free(&b);
    r.caller = NULL;
    assert_int_equal(ds_report_kernels(&r, &split, 0, &split, 0, &b), 0);
}

static void test_numbers_in_words(void **state)
{
    (void)state;
    static const struct {
        double x;
        const char *want;
    } cases[] = {{0.1, "0.1"},
                 {-0.0, "-0"},
                 {1e-45, "1e-45"},
                 {(double)NAN, "NaN"},
                 {(double)INFINITY, "Inf"},
                 {-(double)INFINITY, "-Inf"}};
    struct ds_buf b = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ds_report_number(cases[i].x, &b);
        assert_string_equal(taken(&b), cases[i].want);
    }
    ds_report_ulp(UINT64_MAX, &b);
    assert_string_equal(taken(&b), "NaN");
    ds_report_ulp(UINT64_MAX - 1, &b);
    assert_string_equal(taken(&b), "18446744073709551614");
    ds_report_digest(0xabc, &b);
    assert_string_equal(taken(&b), "0000000000000abc");
}

static void begin(struct ds_buf *out, const char *verb, const char *model)
{
    ds_buf_printf(out, "./ds %s ", verb);
    if (model)
        ds_buf_printf(out, "[%s] ", model);
}

static int explains(const char *op)
{
    return strcmp(op, "matmul") == 0;
}

/* Commands begin as the caller says; a line each, with a model where one is loaded. */
static void test_commands(void **state)
{
    (void)state;
    static const struct ds_report_caller caller = {.begin = begin, .explains = explains};
    struct ds_text dump = {.name = sweep_text("dump"), .value = sweep_text("all")};
    struct sweep s;
    struct made m;
    usual(&s);
    strcpy(s.header.model_name, "a model");
    s.tag = openblas;
    sweep_run(&s, 1);
    make(&s, &m);
    ds_report_commands(&m.r, &m.out);
    assert_string_equal(taken(&m.out), "driftscope show 'my record.h5' --site 0,q_proj --arm 1");
    m.r.caller = &caller;
    struct ds_header with = s.header;
    with.options = &dump;
    with.n_options = 1;
    m.r.header = &with;
    ds_report_commands(&m.r, &m.out);
    assert_string_equal(taken(&m.out), "./ds show 'my record.h5' --site 0,q_proj --arm 1\n"
                                       "./ds explain [a model] 'my record.h5'");
    m.r.path_b = "b.h5";
    ds_report_commands(&m.r, &m.out);
    assert_string_equal(taken(&m.out), "./ds diff 'my record.h5' b.h5 --site 0,q_proj");
    ds_report_resume(&caller, NULL, "x y", &m.out);
    assert_string_equal(taken(&m.out), "./ds run [] --resume 'x y'");
    ds_report_resume(NULL, "my model", "x", &m.out);
    assert_string_equal(taken(&m.out), "driftscope run -m 'my model' --resume x");
    free(dump.name);
    free(dump.value);
    done(&m);
    sweep_free(&s);
}

/* Only of the verdict's first drift is it known that all before it is equal. */
static void test_finding_without_a_head(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    make_usual(&s, &m, openblas, 1);
    ds_report_finding(&m.r, &m.v.first, "", &m.out);
    ds_buf_add(&m.out, "", 1);
    static const char want[] = "layer 0 q_proj, matmul/openblas: origin\n"
                               "its inputs are equal, and so are the 2 sites before it\n"
                               "batch 2 against 1; prefill, 12 rows in the call (6)\n";
    assert_memory_equal(m.out.data, want, sizeof want - 1);
    assert_null(strstr(m.out.data, "\n "));
    ds_buf_free(&m.out);
    struct ds_finding other = m.v.first;
    other.site = 3;
    ds_report_finding(&m.r, &other, "", &m.out);
    ds_buf_add(&m.out, "", 1);
    assert_non_null(strstr(m.out.data, "\nits inputs are equal\n"));
    static const char *const before[] = {"\nits inputs are equal\n",
                                         "\nits inputs are equal, and so is the site before it\n"};
    for (uint32_t site = 0; site < 2; site++) {
        m.v.first.site = site;
        ds_buf_free(&m.out);
        ds_report_finding(&m.r, &m.v.first, "", &m.out);
        ds_buf_add(&m.out, "", 1);
        assert_non_null(strstr(m.out.data, before[site]));
    }
    done(&m);
    sweep_free(&s);
}

static void test_pair_to_look_at(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    uint32_t arm = 9, ref = 9;
    make_usual(&s, &m, openblas, 1);
    assert_int_equal(ds_report_pair(&m.v, m.a, s.header.n_arms, &arm, &ref), 1);
    assert_int_equal(arm, 1);
    assert_int_equal(ref, 0);
    assert_int_equal(ds_report_reference(&m.v, m.a, 5), 4); /* slot last against first */
    assert_int_equal(ds_report_reference(&m.v, m.a, 6), 0);
    assert_int_equal(ds_report_reference(&m.v, m.a, 0), 0);
    done(&m);
    sweep_free(&s);
    usual(&s);
    sweep_run(&s, 1);
    make(&s, &m); /* nothing differs */
    assert_int_equal(ds_report_pair(&m.v, m.a, s.header.n_arms, &arm, &ref), 1);
    assert_int_equal(arm, 1);
    assert_int_equal(ref, 0);
    done(&m);
    sweep_free(&s);
    usual(&s);
    make(&s, &m); /* no trial */
    assert_int_equal(ds_report_pair(&m.v, m.a, s.header.n_arms, &arm, &ref), 0);
    done(&m);
    sweep_free(&s);
}

static const char *color(const void *ctx, enum ds_role role)
{
    (void)ctx;
    return role == DS_ROLE_PLAIN ? ">" : role == DS_ROLE_DRIFT ? "<drift:" : "<";
}

static void test_colours_by_role(void **state)
{
    (void)state;
    struct sweep s;
    struct made m;
    make_usual(&s, &m, openblas, 1);
    m.r.color = color;
    ds_report_verdict(&m.r, &m.out);
    assert_non_null(strstr(m.out.data, "<drift:1|2-3|4|8"));
    assert_non_null(strstr(m.out.data, "\n<drift:drift: first at layer 0 q_proj"));
    for (size_t k = 0; k < m.v.n_kernels; k++) {
        struct ds_buf b = {0};
        int matmul = strcmp(m.v.kernels[k].op, "matmul") == 0;
        ds_report_cell(&m.v, k, 1, 18, &b);
        assert_string_equal(taken(&b), matmul ? "1|2-3|4|8" : "same");
        ds_report_cell(&m.v, k, 1, 8, &b);
        assert_string_equal(taken(&b), matmul ? "4 classes" : "same");
        assert_int_equal(ds_report_cell_role(m.v.kernels[k].condition[1]),
                         matmul ? DS_ROLE_DRIFT : DS_ROLE_SAME);
    }
    done(&m);
    sweep_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launches_side_by_side),
        cmocka_unit_test(test_what_kernels_say_of_themselves),
        cmocka_unit_test(test_numbers_in_words),
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_finding_without_a_head),
        cmocka_unit_test(test_pair_to_look_at),
        cmocka_unit_test(test_colours_by_role),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
