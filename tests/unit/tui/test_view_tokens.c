/* test_view_tokens.c: the view Tokens on choices made here. */
#include "tests/unit/tui/view_testing.h"

#include "tui/view_tokens.h"

#include <math.h>

static struct sweep sweep;
static uint32_t logits;

/* With batch 4 the third choice is another one, and the fourth the same again. */
static int32_t token(const struct cell *c, uint64_t digest)
{
    (void)digest;
    return c->arm == 2 && c->step == 2 ? 777 : 100 + c->step;
}

static uint32_t fault(const struct cell *c)
{
    return c->m % 4 == 0 && cell_is(c, 4, "logits") && c->step != 3 ? 1 : 0;
}

static void choices(struct ds_trial_data *t)
{
    int mine = t->info.arm == 2;
    for (size_t i = 0; i < t->n_steps; i++) {
        struct ds_step *s = &t->steps[i];
        for (int k = 0; k < DS_TOP; k++) {
            s->ids[k] = k < 3 ? 100 + s->step + k : -1;
            s->logits[k] = 5.0f - 0.25f * (float)k;
        }
        if (mine)
            s->logits[1] = nextafterf(s->logits[1], 6);
        if (mine && s->step == 1) { /* ranks change */
            s->ids[1] = 103;
            s->ids[2] = 900;
        }
        s->margin = s->step == 0 ? 1e-6f : 0.25f;
        s->ties = s->step == 3 ? 2 : 1;
        if (s->step == SWEEP_STEPS)
            s->forced = -1;
    }
}

static int make(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    fixture_plan(&sweep, fault);
    sweep.token = token;
    sweep_run(&sweep, 1);
    logits = site_of(&sweep.header, 4, "logits");
    for (size_t i = 0; i < sweep.n_trials; i++)
        choices(&sweep.trials[i]);
    write_sweep(&sweep, test_path("one.h5"), sweep.n_trials);
    return 0;
}

static int clean(void **state)
{
    sweep_free(&sweep);
    return remove_folder(state);
}

static void test_steps(void **state)
{
    (void)state;
    struct shown s;
    shown_open(&s, &tui_view_tokens, test_path("one.h5"), NULL, 2, 0);
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(s.view.table.source.n_rows, SWEEP_STEPS + 1);
    assert_string_equal(s.view.head[0], "request 0, 6 tokens: hello");
    assert_string_equal(shown_cell(&s, "0", "reference"), "100");
    assert_string_equal(shown_cell(&s, "0", "this"), "100");
    assert_string_equal(shown_cell(&s, "0", "is"), "=");
    assert_string_equal(shown_cell(&s, "0", "margin"), "1e-06");
    assert_string_equal(shown_cell(&s, "0", "drift"), "1e-06");
    assert_string_equal(shown_cell(&s, "0", "to flip"), "within"); /* both logits move */
    assert_string_equal(shown_cell(&s, "0", "note"), "can flip");
    assert_string_equal(shown_cell(&s, "0", "forced"), "=");
    assert_string_equal(shown_cell(&s, "0", "label"), "origin");
    assert_string_equal(shown_cell(&s, "1", "to flip"), "1.25e+05x");
    assert_string_equal(shown_cell(&s, "2", "this"), "777");
    assert_string_equal(shown_cell(&s, "2", "is"), "!=");
    assert_string_equal(shown_cell(&s, "2", "to flip"), "flipped");
    assert_string_equal(shown_cell(&s, "2", "note"), "first other token");
    assert_string_equal(shown_cell(&s, "2", "forced"), "102");
    assert_string_equal(shown_cell(&s, "3", "drift"), "=");
    assert_string_equal(shown_cell(&s, "3", "to flip"), "=");
    assert_string_equal(shown_cell(&s, "3", "ties"), "2");
    assert_string_equal(shown_cell(&s, "3", "note"), "tied");
    assert_string_equal(shown_cell(&s, "3", "forced"), ".");
    assert_int_equal(shown_is(&s, 0), TUI_IS_DRIFT | TUI_IS_JUMP);
    assert_int_equal(shown_is(&s, 1), TUI_IS_DRIFT);
    assert_int_equal(shown_is(&s, 2), TUI_IS_DRIFT | TUI_IS_ORIGIN | TUI_IS_JUMP);
    assert_int_equal(shown_is(&s, 3), 0);
    struct ds_buf b = {0};
    tui_view_tokens.status(&s.view, &s.c, &b);
    assert_string_equal(b.data, "3 of 4 tokens equal");
    ds_buf_free(&b);
    shown_close(&s);
}

static void test_panel(void **state)
{
    (void)state;
    struct shown s;
    struct ds_buf b = {0};
    shown_open(&s, &tui_view_tokens, test_path("one.h5"), NULL, 2, 0);
    assert_int_equal(shown_load(&s), TUI_READY);
    tui_table_go(&s.view.table, 1, 0);
    shown_panel(&s, 14, 80, &b);
    static const char *const lines[] = {
        "1   101    5 ", "2 ! 102    4.75 ",         "103    4.75000048",           "below top 8",
        "4   .",         "margin 0.25 against 0.25", "1.25e+05 times that flips it"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(b.data, lines[i]))
            fail_msg("no '%s' in\n%s", lines[i], b.data);
    ds_buf_free(&b);
    tui_table_go(&s.view.table, 2, 0);
    shown_panel(&s, 14, 80, &b);
    assert_non_null(strstr(b.data, "the token changed"));
    assert_non_null(strstr(b.data, "4.76837e-07")); /* of one id on both sides */
    ds_buf_free(&b);
    for (int h = 1; h < 14; h++)
        for (int w = 1; w < 70; w += 6) {
            shown_panel(&s, h, w, &b);
            ds_buf_free(&b);
        }
    shown_close(&s);
}

static void test_to_the_logits_and_back(void **state)
{
    (void)state;
    struct shown s;
    int next;
    char text[512], want[512];
    shown_open(&s, &tui_view_tokens, test_path("one.h5"), NULL, 2, 0);
    assert_int_equal(shown_load(&s), TUI_READY);
    tui_table_go(&s.view.table, 2, 0);
    shown_request(&s, TUI_ENTER, &next); /* asks for the site, if it is not there yet */
    assert_int_equal(shown_load(&s), TUI_READY);
    tui_table_go(&s.view.table, 2, 0);
    assert_int_equal(shown_request(&s, TUI_ENTER, &next), 2);
    assert_int_equal(next, 2);
    assert_int_equal(s.place.site, logits);
    assert_int_equal(s.place.row, SWEEP_PROMPT + 1); /* the row of step 2 */
    /* Coming from another row, the cursor is at its step. */
    s.place.row = SWEEP_PROMPT + 2;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(tui_table_row(&s.view.table), 3);
    shown_command(&s, text);
    snprintf(want, sizeof want, "driftscope show %s --tokens --arm 2 --against 0",
             test_path("one.h5"));
    assert_string_equal(text, want);
    shown_close(&s);
}

/* ---- other records --------------------------------------------------------------------------- */

static void test_nothing_to_compare_with(void **state)
{
    (void)state;
    struct shown s;
    shown_open(&s, &tui_view_tokens, test_path("one.h5"), NULL, 0, 0);
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_string_equal(shown_cell(&s, "1", "this"), "101");
    assert_string_equal(shown_cell(&s, "1", "is"), ".");
    assert_string_equal(shown_cell(&s, "1", "drift"), ".");
    assert_string_equal(shown_cell(&s, "1", "label"), "recorded");
    shown_close(&s);
}

static void test_one_sided_steps(void **state)
{
    (void)state;
    struct shown s;
    struct sweep few;
    sweep_init(&few, "batch", 1);
    sweep_arm(&few, "1");
    sweep_arm(&few, "2");
    sweep_run(&few, 1);
    few.trials[1].n_steps = 2; /* it ended early */
    free(few.header.prompts[0].text);
    few.header.prompts[0].text = sweep_text("");
    write_sweep(&few, test_path("few.h5"), 2);
    shown_open(&s, &tui_view_tokens, test_path("few.h5"), NULL, 1, 0);
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_string_equal(s.view.head[0], "request 0, 6 tokens: 10 11 12 13 14 15");
    assert_string_equal(shown_cell(&s, "3", "reference"), "103");
    assert_string_equal(shown_cell(&s, "3", "this"), ".");
    assert_string_equal(shown_cell(&s, "3", "is"), "");
    assert_string_equal(shown_cell(&s, "3", "to flip"), ".");
    assert_string_equal(shown_cell(&s, "3", "note"), "reference only");
    shown_close(&s);
    few.trials[0].n_steps = few.trials[1].n_steps = 0;
    write_sweep(&few, test_path("none.h5"), 2);
    shown_open(&s, &tui_view_tokens, test_path("none.h5"), NULL, 1, 0);
    assert_int_equal(shown_load(&s), TUI_EMPTY);
    assert_non_null(strstr(s.why, "neither side chose a token"));
    shown_close(&s);
    sweep_free(&few);
}

/* Each side feeds its own token: what follows the first other one is no flip. */
static void test_after_other_tokens(void **state)
{
    (void)state;
    struct shown s;
    struct sweep own;
    fixture_plan(&own, no_fault);
    own.token = token;
    sweep_run(&own, 1);
    for (size_t i = 0; i < own.n_trials; i++)
        for (size_t k = 0; k < own.trials[i].n_steps; k++) {
            struct ds_step *x = &own.trials[i].steps[k];
            x->forced = x->token;
            if (own.trials[i].info.arm == 2 && x->step == 3)
                x->token = x->forced = 888;
        }
    write_sweep(&own, test_path("own.h5"), own.n_trials);
    shown_open(&s, &tui_view_tokens, test_path("own.h5"), NULL, 2, 0);
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_string_equal(shown_cell(&s, "1", "to flip"), "=");
    assert_string_equal(shown_cell(&s, "2", "to flip"), "flipped");
    assert_string_equal(shown_cell(&s, "2", "note"), "first other token");
    assert_string_equal(shown_cell(&s, "3", "is"), "!=");
    assert_string_equal(shown_cell(&s, "3", "to flip"), ".");
    assert_string_equal(shown_cell(&s, "3", "note"), "after other tokens");
    assert_int_equal(shown_is(&s, 3) & (TUI_IS_ORIGIN | TUI_IS_JUMP), 0);
    shown_close(&s);
    sweep_free(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_panel),
        cmocka_unit_test(test_to_the_logits_and_back),
        cmocka_unit_test(test_nothing_to_compare_with),
        cmocka_unit_test(test_one_sided_steps),
        cmocka_unit_test(test_after_other_tokens),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
