/* test_verdict_bands.c: the sizes at which a factor changes a kernel's bits, for kernels that the test
 * plays. */
#include "tests/unit/dumps/verdict_fixture.h"

static int is_attention(const struct cell *c)
{
    return strcmp(c->site->op, "attention") == 0;
}

static uint32_t threads_from_8_keys(const struct cell *c)
{
    return is_attention(c) && c->phase == DS_PHASE_DECODE && c->position >= 7
               ? (uint32_t)cell_number(c, "threads", 1) - 1
               : 0;
}

static uint32_t narrow_tiles(const struct cell *c)
{
    return is_attention(c) && c->phase == DS_PHASE_PREFILL && c->m == 3;
}

static uint32_t bands_of_keys(const struct cell *c)
{
    int keys = c->position + 1;
    return is_attention(c) && cell_number(c, "threads", 1) > 1 &&
           (keys == 2 || keys == 3 || keys == 5);
}

static uint32_t threads_from_4_rows(const struct cell *c)
{
    return cell_is(c, 0, "q_proj") && c->m >= 4 && cell_number(c, "threads", 1) > 1;
}

static uint32_t everywhere(const struct cell *c)
{
    return is_attention(c) && cell_number(c, "threads", 1) > 1;
}

/* Every other row, whatever its size. */
static uint32_t no_size(const struct cell *c)
{
    return is_attention(c) && cell_number(c, "threads", 1) > 1 &&
           (c->position ^ c->site->layer) & 1;
}

static void test_bands(void **state)
{
    (void)state;
    static const struct {
        const char *factor, *values[4];
        uint32_t (*tag)(const struct cell *);
        const char *want; /* op, factor, phase, measure, differ / equal */
    } cases[] = {
        {"threads", {"1", "2", "3"}, threads_from_8_keys, "attention threads decode keys 8-9/7; "},
        {"chunk",
         {"1", "2", "3", "6"},
         narrow_tiles,
         "attention chunk prefill query-rows 3/2, 6; "},
        {"threads",
         {"1", "2", "3"},
         bands_of_keys,
         "attention threads prefill keys 2-3, 5/1, 4, 6; "},
        {"threads", {"1", "2"}, threads_from_4_rows, ""}, /* rows of one phase are all alike */
        {"threads", {"1", "2"}, everywhere, ""},
        {"threads", {"1", "2"}, no_size, ""},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct sweep s;
        struct ds_verdict v;
        char got[512] = "";
        sweep_init(&s, cases[k].factor, 6);
        for (size_t i = 0; i < 4 && cases[k].values[i]; i++)
            sweep_arm(&s, cases[k].values[i]);
        s.tag = cases[k].tag;
        sweep_run(&s, 2);
        run_verdict(&s, &v);
        for (size_t i = 0; i < v.n_bands; i++) {
            const struct ds_band *b = &v.bands[i];
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s %s %s %s %s/%s; ", b->op,
                     b->factor, ds_phase_name(b->phase), b->measure, b->differ, b->equal);
        }
        if (strcmp(got, cases[k].want) != 0)
            print_error("case %zu: %s\n", k, got);
        assert_string_equal(got, cases[k].want);
        ds_verdict_free(&v);
        sweep_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bands)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
