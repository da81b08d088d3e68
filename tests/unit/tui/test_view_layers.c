/* test_view_layers.c: the map of layers on records made here: every cell against the labels and sizes of the pair, what
 * folds, where the keys lead. */
#include "tests/unit/tui/view_testing.h"

#include "tui/view_layers.h"

#include <math.h>

enum { SITE = 2 };

static const struct layers_own *own(const struct shown *s)
{
    return s->view.own;
}

/* Where a site is shown; its cell's text. */
static const char *site_cell(const struct shown *s, uint32_t site)
{
    static char text[2][512];
    static int next;
    size_t row, column;
    assert_int_equal(layers_place_of(own(s), site, &row, &column), 0);
    struct tui_value v = shown_value(s, row, shown_kind(s, row) == TUI_ROW_TEXT ? 0 : column);
    next = !next;
    snprintf(text[next], sizeof text[next], "%s", v.text + strspn(v.text, " "));
    char *name = shown_kind(s, row) == TUI_ROW_TEXT ? strrchr(text[next], ' ') : NULL;
    while (name && name > text[next] && name[-1] == ' ')
        name--;
    if (name)
        *name = '\0';
    return text[next];
}

/* What a site is marked with, told from its rows' labels once more. */
static char expected_mark(const struct tui_pair *p, uint32_t site)
{
    int natural[8] = {0}, own_origin = 0;
    for (size_t i = 0; i < p->n_rows; i++) {
        natural[p->labels[site * p->n_rows + i]]++;
        own_origin += p->healed && p->healed[site * p->n_rows + i] == DS_LABEL_ORIGIN;
    }
    int jump = p->sites[site].jump;
    return natural[DS_LABEL_UNSTABLE]    ? '~'
           : natural[DS_LABEL_ORIGIN]    ? (jump ? '@' : '#')
           : own_origin                  ? (jump ? 'O' : 'o')
           : natural[DS_LABEL_INHERITED] ? (jump ? '^' : '-')
           : natural[DS_LABEL_UNKNOWN]   ? (jump ? 'X' : 'x')
           : natural[DS_LABEL_HEALED]    ? ','
           : natural[DS_LABEL_SAME]      ? '.'
                                         : '?';
}

static double expected_size(const struct tui_site_sum *s, int metric)
{
    return metric == TUI_METRIC_BITS  ? (double)s->elements
           : metric == TUI_METRIC_ULP ? (double)s->max_ulp
           : metric == TUI_METRIC_ABS ? s->max_abs
                                      : s->relative_rms;
}

/* Each site, wherever it is shown, in every metric. */
static void check_cells(struct shown *s)
{
    const struct tui_pair *p = get_pair(s->data, s->place.arm, s->place.ref);
    for (int metric = 0; metric < TUI_METRICS; metric++) {
        s->place.metric = metric;
        assert_int_equal(shown_load(s), TUI_READY);
        p = get_pair(s->data, s->place.arm, s->place.ref);
        for (uint32_t site = 0; site < p->n_sites; site++) {
            const struct tui_site_sum *x = &p->sites[site];
            char want[8] = {expected_mark(p, site)};
            if (x->nonfinite || x->ref_nonfinite) {
                want[1] = want[0];
                want[0] = '!';
            } else if (layers_is_drift(want[0])) {
                double size = expected_size(x, metric);
                int ten = size > 0
                              ? (int)floor(log10(size) + 1e-12) + (metric < TUI_METRIC_ABS ? 0 : 9)
                              : 0;
                want[1] = !x->sized     ? ' '
                          : !(size > 0) ? '='
                                        : (char)('0' + (ten < 0   ? 0
                                                        : ten > 9 ? 9
                                                                  : ten));
            }
            if (strchr(site_cell(s, site), ' ') == NULL && want[1] == ' ')
                want[1] = '\0';
            assert_string_equal(site_cell(s, site), want);
        }
    }
    s->place.metric = TUI_METRIC_ULP;
    assert_int_equal(shown_load(s), TUI_READY);
}

/* Every cell of a line that stands for many is that of each of them. */
static void check_folds(struct shown *s)
{
    enum { MOST = 20000 };
    static char folded[MOST][16];
    int next;
    size_t n = own(s)->n_sites;
    assert_true(n <= MOST);
    for (uint32_t site = 0; site < n; site++)
        snprintf(folded[site], sizeof *folded, "%.15s", site_cell(s, site));
    while (!own(s)->unfolded) {
        assert_int_equal(shown_request(s, TUI_FOLD, &next), 1);
        assert_int_equal(shown_load(s), TUI_READY);
    }
    assert_int_equal(own(s)->n_rows, own(s)->n_lines);
    for (uint32_t site = 0; site < n; site++)
        assert_string_equal(folded[site], site_cell(s, site));
    assert_int_equal(shown_request(s, TUI_FOLD, &next), 1);
    assert_int_equal(shown_load(s), TUI_READY);
    assert_int_equal(own(s)->unfolded, 0);
}

static void open_narrow(struct shown *s, const char *name, uint32_t arm, uint32_t ref)
{
    shown_open(s, &tui_view_layers, test_path(name), NULL, arm, ref);
    s->c.columns = 80;
    s->c.ascii = 1;
    assert_int_equal(shown_load(s), TUI_READY);
}

/* ---- cells --------------------------------------------------------------------------------------- */

static void test_cells(void **state)
{
    (void)state;
    static const uint32_t pairs[][2] = {{1, 0}, {2, 0}, {3, 0}, {0, 2}, {2, 3}, {2, 2}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct shown s;
        open_narrow(&s, "drift.h5", pairs[i][0], pairs[i][1]);
        check_cells(&s);
        check_folds(&s);
        shown_close(&s);
    }
}

static void test_one_origin(void **state)
{
    (void)state;
    struct shown s;
    char text[256];
    open_narrow(&s, "drift.h5", 2, 0); /* batch 4 */
    const struct ds_header *h = s.c.whole->header;
    assert_int_equal(site_cell(&s, site_of(h, 1, "q_proj"))[0], '#');
    assert_int_equal(site_cell(&s, site_of(h, 1, "attn_out"))[0], '-');
    assert_int_equal(site_cell(&s, site_of(h, 1, "k_proj"))[0], '.');
    assert_int_equal(site_cell(&s, site_of(h, 3, "resid_ffn"))[0], '-');
    assert_int_equal(site_cell(&s, site_of(h, -1, "embed"))[0], '.');
    assert_int_equal(site_cell(&s, site_of(h, 4, "final_norm"))[0], '-');
    struct ds_buf b = {0};
    s.view.ops->status(&s.view, &s.c, &b);
    snprintf(text, sizeof text, "%s", b.data);
    ds_buf_free(&b);
    uint32_t drift = 0, same = 0;
    for (uint32_t i = 0; i < h->n_sites; i++) {
        drift += layers_is_drift(site_cell(&s, i)[0]) != 0;
        same += site_cell(&s, i)[0] == '.';
    }
    char want[64];
    snprintf(want, sizeof want, "%u same, ", same);
    assert_memory_equal(text, want, strlen(want));
    snprintf(want, sizeof want, "%u drift", drift);
    assert_non_null(strstr(text, want));
    shown_close(&s);
}

static void test_no_drift_is_one_line(void **state)
{
    (void)state;
    struct shown s;
    int next;
    open_narrow(&s, "same.h5", 2, 0);
    assert_int_not_equal(shown_line(&s, "", "L00-03"), SIZE_MAX);
    assert_int_equal(s.view.table.source.n_rows, 1 + 4); /* and four sites in no layer */
    check_folds(&s);
    assert_int_equal(shown_request(&s, TUI_NEXT_DRIFT, &next), -1);
    assert_int_equal(shown_request(&s, TUI_PREVIOUS_JUMP, &next), -1);
    assert_int_equal(shown_request(&s, TUI_FIRST_ORIGIN, &next),
                     0); /* the frame knows the record's */
    shown_close(&s);
}

static void test_one_trial_is_no_comparison(void **state)
{
    (void)state;
    struct shown s;
    open_narrow(&s, "one.h5", 0, 0);
    for (uint32_t i = 0; i < own(&s)->n_sites; i++)
        assert_string_equal(site_cell(&s, i), "?");
    assert_non_null(strstr(s.view.head[0], "nothing to compare it with"));
    shown_close(&s);
    open_narrow(&s, "same.h5", 0, 0); /* two */
    assert_string_equal(site_cell(&s, 1), ".");
    shown_close(&s);
}

static void test_unstable(void **state)
{
    (void)state;
    struct shown s;
    open_narrow(&s, "flaky.h5", 2, 0);
    const struct ds_header *h = s.c.whole->header;
    assert_int_equal(site_cell(&s, site_of(h, 1, "q_proj"))[0], '~');
    assert_int_equal(site_cell(&s, site_of(h, 1, "attn_norm"))[0], '.');
    check_cells(&s);
    shown_close(&s);
    open_narrow(&s, "flaky.h5", 0, 0);
    check_cells(&s);
    assert_non_null(strstr(s.view.head[0], "repeats"));
    shown_close(&s);
}

/* A fault that is far larger than what came in, and one that is NaN on one side. */
static void test_jump_and_nonfinite(void **state)
{
    (void)state;
    struct sweep w;
    struct shown s;
    int next;
    fixture_plan(&w, two_faults);
    sweep_run(&w, 2);
    uint32_t big = site_of(&w.header, 3, "down"), bad = site_of(&w.header, 3, "resid_attn");
    for (size_t i = 0; i < w.n_trials; i++)
        for (size_t k = 0; k < w.trials[i].n_drifts; k++) {
            struct ds_drift *d = &w.trials[i].drifts[k];
            if (d->site == big)
                d->diff_sq *= 1e6;
            if (d->site == bad)
                d->nonfinite = 1;
        }
    write_sweep(&w, test_path("jump.h5"), w.n_trials);
    sweep_free(&w);
    open_narrow(&s, "jump.h5", 2, 0);
    assert_int_equal(site_cell(&s, big)[0], '^');
    assert_string_equal(site_cell(&s, bad), "!-");
    check_cells(&s);
    s.place.site = 0;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(shown_request(&s, TUI_NEXT_JUMP, &next), 1);
    assert_int_equal(s.place.site, big);
    assert_int_equal(shown_request(&s, TUI_NEXT_JUMP, &next), -1);
    shown_close(&s);
}

/* ---- keys ---------------------------------------------------------------------------------------- */

/* e visits every drift once, in execution order, and E goes back over the same. */
static void test_walk(void **state)
{
    (void)state;
    struct shown s;
    int next;
    open_narrow(&s, "drift.h5", 2, 0);
    while (!own(&s)->unfolded) {
        shown_request(&s, TUI_FOLD, &next);
        shown_load(&s);
    }
    uint32_t seen[200], n = 0, n_drift = 0, first = UINT32_MAX;
    for (uint32_t i = 0; i < own(&s)->n_sites; i++) {
        n_drift += layers_is_drift(site_cell(&s, i)[0]) != 0;
        first = first == UINT32_MAX && site_cell(&s, i)[0] == '#' ? i : first;
    }
    tui_table_end(&s.view.table, 0);
    s.view.ops->moved(&s.view, &s.c);
    assert_int_equal(s.place.site, 0);
    while (shown_request(&s, TUI_NEXT_DRIFT, &next) == 1) {
        assert_true(n < 200 && (n == 0 || s.place.site > seen[n - 1]));
        seen[n++] = s.place.site;
        assert_int_equal(shown_load(&s), TUI_READY);
    }
    assert_int_equal(n, n_drift);
    assert_int_equal(seen[0], first);
    for (uint32_t i = n - 1; i-- > 0;) {
        assert_int_equal(shown_request(&s, TUI_PREVIOUS_DRIFT, &next), 1);
        assert_int_equal(s.place.site, seen[i]);
        assert_int_equal(shown_load(&s), TUI_READY);
    }
    assert_int_equal(shown_request(&s, TUI_PREVIOUS_DRIFT, &next), -1);
    s.place.site = seen[n - 1];
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(shown_request(&s, TUI_FIRST_ORIGIN, &next), 1);
    assert_int_equal(s.place.site, first);
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(shown_request(&s, TUI_ENTER, &next), 2);
    assert_int_equal(next, SITE);
    assert_int_equal(s.place.site, first);
    /* At a row that differs there. */
    const struct tui_pair *p = get_pair(s.data, 2, 0);
    uint32_t logits = site_of(s.c.whole->header, 4, "logits");
    assert_int_equal(p->labels[first * p->n_rows + s.place.row], DS_LABEL_ORIGIN);
    assert_int_equal(p->labels[logits * p->n_rows + 0], DS_LABEL_ABSENT);
    s.place.site = logits;
    s.place.row = 0;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(shown_request(&s, TUI_ENTER, &next), 2);
    assert_int_equal(s.place.site, logits);
    assert_true(p->labels[logits * p->n_rows + s.place.row] >= DS_LABEL_ORIGIN);
    shown_close(&s);
}

/* The cursor goes with the place, also to a layer that is folded away, and stays there. */
static void test_place(void **state)
{
    (void)state;
    struct shown s;
    open_narrow(&s, "same.h5", 2, 0);
    uint32_t far = site_of(s.c.whole->header, 2, "k_proj");
    s.place.site = far;
    assert_int_equal(shown_load(&s), TUI_READY);
    size_t row = tui_table_row(&s.view.table);
    assert_int_equal(row, shown_line(&s, "", "L00-03"));
    assert_string_equal(s.view.table.source.columns[s.view.table.column].name, "k");
    s.view.ops->moved(&s.view, &s.c);
    assert_int_equal(s.place.site, far);
    tui_table_move(&s.view.table, 0, 1);
    s.view.ops->moved(&s.view, &s.c);
    assert_int_equal(s.place.site, site_of(s.c.whole->header, 0, "kv_write"));
    shown_close(&s);
}

static void test_command(void **state)
{
    (void)state;
    struct shown s;
    char command[512], want[512];
    open_narrow(&s, "drift.h5", 2, 0);
    shown_command(&s, command);
    snprintf(want, sizeof want, "driftscope show %s --sites --long --arm 2 --against 0",
             test_path("drift.h5"));
    assert_string_equal(command, want);
    shown_close(&s);
    shown_open(&s, &tui_view_layers, test_path("drift.h5"), test_path("same.h5"), 1, 0);
    assert_int_equal(shown_load(&s), TUI_READY);
    shown_command(&s, command);
    snprintf(want, sizeof want, "driftscope diff %s %s --sites --long --arm 0", test_path("drift.h5"),
             test_path("same.h5"));
    assert_string_equal(command, want);
    check_cells(&s);
    shown_close(&s);
}

/* ---- shapes -------------------------------------------------------------------------------------- */

/* Layers of a model with a router, four experts, and three ranks that are added. */
static void make_parts(struct sweep *s)
{
    static const char *const stages[][3] = {
        {"attn_norm", "", "rmsnorm"}, {"router_ids", "", "router"}, {"gate", "e0", "matmul"},
        {"gate", "e1", "matmul"},     {"gate", "e2", "matmul"},     {"gate", "e3", "matmul"},
        {"o_proj", "r0", "matmul"},   {"o_proj", "r1", "matmul"},   {"o_proj", "r2", "matmul"},
        {"kv_write", "k", "cache"},   {"kv_write", "v", "cache"},   {"resid_ffn", "", "add"}};
    enum { N = sizeof stages / sizeof *stages };
    sweep_init(s, "batch threads", 3);
    free(s->header.sites);
    free(s->header.edges);
    s->header.n_sites = s->header.n_edges = 0;
    s->header.sites = calloc(N * 3 + 8, sizeof *s->header.sites);
    s->header.edges = calloc(N * 6 + 8, sizeof *s->header.edges);
    uint32_t before = sweep_site(s, -1, "embed", "", "embed", SWEEP_WIDTH);
    for (int layer = 0; layer < 3; layer++)
        for (size_t i = 0; i < N; i++) {
            uint32_t site =
                sweep_site(s, layer, stages[i][0], stages[i][1], stages[i][2], SWEEP_WIDTH);
            sweep_edge(s, before, site, DS_EDGE_ROW);
            if (i == 0 || i == N - 1)
                before = site;
        }
    sweep_edge(s, before, sweep_site(s, 3, "logits", "", "matmul", 1000), DS_EDGE_ROW);
    sweep_edge(s, before + 1, sweep_site(s, 3, "token", "", "sample", 1), DS_EDGE_ROW);
    sweep_arm(s, "1 1");
    sweep_arm(s, "4 1");
}

static uint32_t third_expert(const struct cell *c)
{
    return strcmp(c->site->part, "e2") == 0 && c->site->layer == 1 && c->m >= 4 * SWEEP_PROMPT;
}

static void test_parts(void **state)
{
    (void)state;
    struct sweep w;
    struct shown s;
    int next;
    make_parts(&w);
    w.tag = third_expert;
    sweep_run(&w, 2);
    write_sweep(&w, test_path("parts.h5"), w.n_trials);
    sweep_free(&w);
    open_narrow(&s, "parts.h5", 1, 0);
    check_cells(&s);
    assert_int_equal(shown_cell(&s, "L01", "gate2")[0], '#');
    assert_string_equal(shown_cell(&s, "L01", "gate1"), ".");
    assert_string_equal(shown_cell(&s, "L01", "r2"), ".");
    /* Folded, the gravest part stands for all, and Enter goes to it. */
    assert_int_equal(shown_request(&s, TUI_FOLD, &next), 1);
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(shown_cell(&s, "L01", "gate*4")[0], '#');
    assert_string_equal(shown_cell(&s, "L01", "o_proj*3"), ".");
    assert_string_equal(shown_cell(&s, "L01", "ck"), ".");
    s.place.site = 0;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(shown_request(&s, TUI_NEXT_DRIFT, &next), 1);
    assert_int_equal(shown_request(&s, TUI_ENTER, &next), 2);
    assert_string_equal(s.c.whole->header->sites[s.place.site].part, "e2");
    shown_close(&s);
}

/* Where the parts do not fit, they are folded without being asked. */
static void test_narrow_parts(void **state)
{
    (void)state;
    struct shown s;
    shown_open(&s, &tui_view_layers, test_path("parts.h5"), NULL, 1, 0);
    s.c.columns = 60;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_not_equal(shown_column(&s, "gate*4"), 0);
    shown_close(&s);
}

static void test_unlike_depth(void **state)
{
    (void)state;
    struct shown s;
    for (int i = 0; i < 2; i++) {
        struct sweep w;
        sweep_init(&w, "batch threads", i ? 6 : 4);
        sweep_arm(&w, "1 1");
        w.tag = no_fault;
        sweep_run(&w, 2);
        write_sweep(&w, test_path(i ? "deep.h5" : "flat.h5"), w.n_trials);
        sweep_free(&w);
    }
    shown_open(&s, &tui_view_layers, test_path("flat.h5"), test_path("deep.h5"), 1, 0);
    s.c.columns = 80;
    assert_int_equal(shown_load(&s), TUI_READY);
    check_cells(&s);
    assert_string_equal(site_cell(&s, site_of(s.c.whole->header, 0, "q_proj")), ".");
    assert_string_equal(site_cell(&s, site_of(s.c.whole->header, 5, "q_proj")), "?");
    shown_close(&s);
}

/* In wide screens the sizes themselves, in full or with two digits, never 0 for what is not. */
static void test_wide(void **state)
{
    (void)state;
    struct shown s;
    shown_open(&s, &tui_view_layers, test_path("drift.h5"), NULL, 2, 0);
    s.c.columns = 240;
    assert_int_equal(shown_load(&s), TUI_READY);
    uint32_t q = site_of(s.c.whole->header, 1, "q_proj");
    char want[32];
    snprintf(want, sizeof want, "# %u", 3 + q);
    assert_string_equal(site_cell(&s, q), want);
    s.place.metric = TUI_METRIC_REL;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_string_equal(site_cell(&s, q), "# 3.0e-7");
    check_folds(&s);
    shown_close(&s);
}

static void test_ten_thousand_sites(void **state)
{
    (void)state;
    struct sweep w;
    struct shown s;
    int next;
    sweep_init(&w, "batch threads", 1250);
    sweep_arm(&w, "1 1");
    sweep_arm(&w, "4 1");
    w.tag = two_faults;
    w.no_sizes = 1; /* their search is slow */
    sweep_run(&w, 1);
    write_sweep(&w, test_path("many.h5"), w.n_trials);
    sweep_free(&w);
    open_narrow(&s, "many.h5", 1, 0);
    assert_true(own(&s)->n_sites > 10000);
    check_folds(&s);
    s.place.site = (uint32_t)own(&s)->n_sites - 1;
    assert_int_equal(shown_load(&s), TUI_READY);
    assert_int_equal(shown_request(&s, TUI_FIRST_ORIGIN, &next), 1);
    assert_int_equal(s.place.site, site_of(s.c.whole->header, 1, "q_proj"));
    assert_int_equal(shown_load(&s), TUI_READY);
    shown_close(&s);
}

/* ---- pieces -------------------------------------------------------------------------------------- */

static void test_digits(void **state)
{
    (void)state;
    static const struct {
        double size;
        int metric;
        char digit;
    } all[] = {
        {-1, TUI_METRIC_ULP, ' '},       {0, TUI_METRIC_ULP, '='},    {1, TUI_METRIC_ULP, '0'},
        {9, TUI_METRIC_ULP, '0'},        {10, TUI_METRIC_ULP, '1'},   {999, TUI_METRIC_BITS, '2'},
        {1e9, TUI_METRIC_ULP, '9'},      {1e19, TUI_METRIC_ULP, '9'}, {1e-30, TUI_METRIC_ABS, '0'},
        {9.99e-9, TUI_METRIC_REL, '0'},  {1e-8, TUI_METRIC_REL, '1'}, {2e-7, TUI_METRIC_REL, '2'},
        {0.5, TUI_METRIC_ABS, '8'},      {1, TUI_METRIC_REL, '9'},    {5e-324, TUI_METRIC_ABS, '0'},
        {INFINITY, TUI_METRIC_REL, '9'}, {NAN, TUI_METRIC_ABS, '!'},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (layers_digit(all[i].size, all[i].metric) != all[i].digit)
            fail_msg("%g: %c, want %c", all[i].size, layers_digit(all[i].size, all[i].metric),
                     all[i].digit);
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        double size;
        int metric;
        const char *text;
    } all[] = {
        {-1, TUI_METRIC_ULP, ""},
        {0, TUI_METRIC_ABS, "0"},
        {3550, TUI_METRIC_ULP, "3550"},
        {2.5e6, TUI_METRIC_BITS, "2.5e6"},
        {1.25e-7, TUI_METRIC_REL, "1.2e-7"},
        {1, TUI_METRIC_ABS, "1.0e0"},
        {5e-324, TUI_METRIC_ABS, "4.9e-324"},
        {INFINITY, TUI_METRIC_REL, "Inf"},
        {NAN, TUI_METRIC_ABS, "NaN"},
        {1e19, TUI_METRIC_ULP, "1.0e19"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[16];
        layers_number(all[i].size, all[i].metric, text);
        assert_string_equal(text, all[i].text);
    }
}

/* Marks are told apart without colour, and each has words. */
static void test_marks(void **state)
{
    (void)state;
    for (size_t i = 0; TUI_MARKS[i]; i++)
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(TUI_MARKS[i], TUI_MARKS[k]);
            assert_string_not_equal(tui_mark_words(TUI_MARKS[i]), tui_mark_words(TUI_MARKS[k]));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cells),
        cmocka_unit_test(test_one_origin),
        cmocka_unit_test(test_no_drift_is_one_line),
        cmocka_unit_test(test_one_trial_is_no_comparison),
        cmocka_unit_test(test_unstable),
        cmocka_unit_test(test_jump_and_nonfinite),
        cmocka_unit_test(test_walk),
        cmocka_unit_test(test_place),
        cmocka_unit_test(test_command),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_narrow_parts),
        cmocka_unit_test(test_unlike_depth),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_ten_thousand_sites),
        cmocka_unit_test(test_digits),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_marks),
    };
    return cmocka_run_group_tests(tests, make_records, remove_folder);
}
