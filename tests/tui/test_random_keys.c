/* test_random_keys.c: keys at random, with sizes at random between them, on several records: nothing crashes, what is drawn
 * is well-formed, and the place is one that exists. Each record gets a few thousand keys; under the sanitizers
 * 100,000 in all. DS_TEST_KEYS=N another number, DS_TEST_SEED=N other keys. */
#include "tests/tui/app_fixture.h"

#include "tui/term.h"

#ifdef __SANITIZE_ADDRESS__
enum { KEYS = 100000 };
#else
enum { KEYS = 6000 };
#endif

static uint64_t state_of_random;
static char last_keys[24][16];
static long pressed;

static uint32_t random_below(uint32_t n)
{
    state_of_random =
        state_of_random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state_of_random >> 33) % n);
}

static long number_of(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text && text[0] ? strtol(text, NULL, 10) : otherwise;
}

/* ---- what must hold -------------------------------------------------------------------------- */

/* Fails, and says what was pressed last, for whoever looks for the cause. */
static void broken(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void broken(const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (long i = pressed > 24 ? pressed - 24 : 0; i < pressed; i++)
        print_error("%s%s", last_keys[i % 24], i + 1 < pressed ? " " : "\n");
    fail_msg("%s", text);
    abort();
}

static void check_canvas(const struct tui_canvas *c)
{
    for (int y = 0; y < c->h; y++)
        for (int x = 0; x < c->w; x++) {
            const struct tui_cell *cell = &c->cells[(size_t)y * (size_t)c->w + (size_t)x];
            int right = x + 1 < c->w && cell[1].ch == 0;
            int width = cell->ch ? tui_char_width(cell->ch) : 0;
            int ok =
                cell->role < TUI_ROLES && (cell->ch == 0 ? x > 0 && tui_char_width(cell[-1].ch) == 2
                                                         : width >= 1 && (width == 2) == right);
            if (c->ascii)
                ok = ok && cell->ch >= 0x20 && cell->ch <= 0x7e;
            if (!ok)
                broken("cell %d %d: U+%04X, role %d, half of a wide one: %d", y, x, cell->ch,
                       cell->role, right);
        }
}

static void check_app(const struct tui_app *a)
{
    const struct ds_header *h = a->whole->header;
    assert_true(a->depth >= 1 && a->depth <= TUI_STACK);
    assert_true(a->stack[a->depth - 1].view >= 0 && a->stack[a->depth - 1].view < TUI_ALL_VIEWS);
    assert_true(a->place.metric >= 0 && a->place.metric < TUI_METRICS);
    assert_true(a->place.number >= 0 && a->place.number < TUI_NUMBERS);
    if (h) {
        assert_true(a->place.site < h->n_sites);
        assert_true(a->place.arm < h->n_arms && a->place.ref < h->n_arms);
    }
    const struct tui_table *t = &a->views[a->stack[a->depth - 1].view].table;
    if (a->state == TUI_READY && t->n_shown &&
        (t->cursor >= t->n_shown || (t->top >= t->n_shown && !a->layout.too_small)))
        broken("%s: cursor %zu, top %zu of %zu", a->views[a->stack[a->depth - 1].view].ops->name,
               t->cursor, t->top, t->n_shown);
    check_canvas(&a->canvas);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static const char *random_key(char name[16])
{
    static const char *const typed[] = {"a",  "1",  "Space", "=", ">", "!", "é",
                                        "日", "\"", "_",     "0", ",", "<", "."};
    static const char *const edits[] = {"Left", "Right", "Home",  "End", "^W",  "^U",        "^K",
                                        "Up",   "Down",  "Enter", "Tab", "Del", "Backspace", "Esc"};
    size_t n;
    const struct tui_binding *b = tui_bindings(&n);
    uint32_t kind = random_below(20);
    const char *key = kind < 2   ? typed[random_below(sizeof typed / sizeof typed[0])]
                      : kind < 4 ? edits[random_below(sizeof edits / sizeof edits[0])]
                                 : b[random_below((uint32_t)n)].keys[0];
    snprintf(name, 16, "%s", key);
    return name;
}

/* A whole command, as somebody would type it. */
static void random_command(struct tui_app *a)
{
    static const char *const lines[] = {
        ":goto 0,attn_out",
        ":goto 1,q_proj",
        ":goto 999,x",
        ":arm 1",
        ":arm 99999",
        ":ref 0",
        ":view tensor",
        ":view site",
        ":sort label desc",
        ":sort x",
        ":filter origin",
        ":filter label=drift !same",
        ":filter",
        ":search prompt",
        ":set metric abs",
        ":set number hex",
        ":set ascii on",
        ":set ascii off",
        ":mark",
        ":wait",
        ":help",
        ":view overview",
        ":view layers",
        ":view runs",
        ":view environment",
        "/origin",
        "/0:",
        "\\prompt",
        "\\step>1",
    };
    const char *line = lines[random_below(sizeof lines / sizeof lines[0])];
    for (char one[2] = {0}; *line; line++) {
        one[0] = *line;
        tui_app_key(a, *line == ' ' ? "Space" : one);
    }
    tui_app_key(a, "Enter");
}

static void draw(struct tui_app *a)
{
    struct ds_error err;
    assert_ok(tui_app_draw(a, &err), err);
}

static void press(struct tui_app *a, long keys)
{
    char name[16];
    struct ds_error err;
    for (long i = 0; i < keys; i++) {
        if (random_below(40) == 0) {
            int lines = 1 + (int)random_below(60), columns = 1 + (int)random_below(160);
            tui_term_resize(lines, columns);
            tui_app_size(a, lines, columns);
        }
        if (random_below(25) == 0)
            random_command(a);
        memcpy(last_keys[pressed++ % 24], random_key(name), 16);
        tui_app_key(a, name);
        /* Most keys come before what the last one asked for has been read. */
        if (random_below(4) == 0)
            assert_ok(tui_app_settle(a, &err), err);
        else
            draw(a);
        if (random_below(4) == 0)
            tui_app_turn(a), draw(a);
        if (random_below(8) == 0)
            tui_term_paint(&a->canvas, a->cursor_y, a->cursor_x);
        check_app(a);
        a->quit = a->suspend = a->redraw = 0;
    }
}

static void walk(const char *path, const char *path_b, long keys)
{
    struct ds_error err;
    struct tui_term_options t = {.script = 1, .lines = 24, .columns = 80, .colour = 1};
    assert_ok(tui_term_open(&t, &err), err);
    struct opened *x = open_app(path, path_b, NULL);
    press(x->a, keys);
    close_app(x);
    tui_term_close();
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void walk_record(const char *name, const char *other)
{
    long keys = number_of("DS_TEST_KEYS", KEYS) / 8 + 1; /* and a few more on the long one */
    if (strcmp(name, "long") == 0) /* a search through all its cells takes a while */
        keys = keys / 20 + 1;
    state_of_random = (uint64_t)number_of("DS_TEST_SEED", 1) * 1000 + (uint64_t)name[0];
    walk(record(name), other ? record(other) : NULL, keys);
}

#define RANDOM_KEYS(name, other)                                                                   \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        walk_record(#name, other);                                                                 \
    }
RANDOM_KEYS(drift, NULL)
RANDOM_KEYS(nan, NULL)
RANDOM_KEYS(same, NULL)
RANDOM_KEYS(unstable, NULL)
RANDOM_KEYS(wide, NULL)
RANDOM_KEYS(one, NULL)
RANDOM_KEYS(names, NULL)
RANDOM_KEYS(long, NULL)
RANDOM_KEYS(second, "drift")

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drift),    cmocka_unit_test(test_nan),  cmocka_unit_test(test_same),
        cmocka_unit_test(test_unstable), cmocka_unit_test(test_wide), cmocka_unit_test(test_one),
        cmocka_unit_test(test_names),    cmocka_unit_test(test_long), cmocka_unit_test(test_second),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
