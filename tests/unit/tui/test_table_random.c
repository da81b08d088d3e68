/* A hundred thousand random operations on a table, each held against a model that is slow and plain: it looks at all
 * rows every time, compares words with strstr, and sorts by insertion. */
#include "tests/unit/tui/table_sample.h"

enum { MOST_ROWS = 70, OPERATIONS = 100000 };

static uint64_t state_of_random = 1;
static unsigned draw(unsigned below)
{
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state_of_random >> 33) % below;
}

/* ---- the rows -------------------------------------------------------------------------------- */

struct world_row {
    int kind, is;
    char name[16], kernel[16];
    double size; /* NaN; or -1: not known */
};
struct world {
    struct world_row row[MOST_ROWS];
    size_t n;
    int cells; /* with a cell cursor */
};

static void new_rows(struct world *w)
{
    static const char *const kernels[] = {"matmul", "attention", "Rope", "", "x\x01\xff"};

    w->n = draw(8) ? draw(MOST_ROWS + 1) : draw(3);
    w->cells = draw(2) != 0;
    for (size_t i = 0; i < MOST_ROWS; i++) {
        struct world_row *r = &w->row[i];
        unsigned k = draw(12);
        r->kind = k == 0 ? TUI_ROW_SECTION : k == 1 ? TUI_ROW_TEXT : TUI_ROW;
        r->is = (int)draw(8);
        snprintf(r->name, sizeof r->name, "L%u_%c", draw(30), 'a' + (int)draw(4));
        snprintf(r->kernel, sizeof r->kernel, "%s", kernels[draw(5)]);
        k = draw(10);
        r->size = k == 0 ? (double)NAN : k == 1 ? -1.0 : (double)draw(6);
    }
}

static void world_cell(void *ctx, size_t row, size_t column, struct tui_value *out)
{
    const struct world *w = ctx;

    assert_true(row < w->n);
    const struct world_row *r = &w->row[row];
    if (column == 1) {
        out->null = r->size < 0;
        out->numeric = r->size >= 0 || isnan(r->size);
        out->key = r->size;
        snprintf(out->text, sizeof out->text, "%g", r->size);
    } else {
        snprintf(out->text, sizeof out->text, "%s", column ? r->kernel : r->name);
    }
}

static int world_kind(void *ctx, size_t row)
{
    return ((const struct world *)ctx)->row[row].kind;
}

static int world_is(void *ctx, size_t row, size_t column)
{
    const struct world_row *r = &((const struct world *)ctx)->row[row];

    return column == 1 || !((const struct world *)ctx)->cells ? r->is : r->is >> 1;
}

static const struct tui_column world_columns[] = {{"name", TUI_LEFT, TUI_COLUMN_FIXED, 0, 6},
                                                  {"size", TUI_RIGHT, 0, 0, 0},
                                                  {"kernel", TUI_LEFT, 0, 3, 0}};

static struct tui_source world_source(struct world *w)
{
    return (struct tui_source){.ctx = w,
                               .columns = world_columns,
                               .n_columns = 3,
                               .n_rows = w->n,
                               .cell = world_cell,
                               .kind = world_kind,
                               .is = world_is,
                               .cell_cursor = w->cells,
                               .first_cell = 1,
                               .name = "world"};
}

/* ---- the model ------------------------------------------------------------------------------- */

static const char *const filters[] = {"",           "l1",       "!l1",      "size>2",
                                      "size<=2 _a", "size=nan", "kernel=o", "kernel!=Rope",
                                      "!size>2",    "_b matmul"};
enum { FILTERS = (int)(sizeof filters / sizeof filters[0]) };

static int model_fits(const struct world_row *r, int filter)
{
    int text = r->kind == TUI_ROW_TEXT, number = !text && r->size >= 0;
    char name[16];

    for (size_t i = 0; i < sizeof name; i++)
        name[i] = r->name[i] == 'L' ? 'l' : r->name[i];
    switch (filter) {
    case 0:
        return 1;
    case 1:
        return strstr(name, "l1") != NULL;
    case 2:
        return strstr(name, "l1") == NULL;
    case 3:
        return number && r->size > 2;
    case 4:
        return number && r->size <= 2 && strstr(name, "_a") != NULL;
    case 5:
        return !text && isnan(r->size);
    case 6:
        return !text && strpbrk(r->kernel, "oO") != NULL;
    case 7:
        return !text && strcmp(r->kernel, "Rope") != 0;
    case 8:
        return !text && !(number && r->size > 2);
    default:
        return !text && strstr(name, "_b") && strcmp(r->kernel, "matmul") == 0;
    }
}

struct model {
    size_t shown[MOST_ROWS], n;
    int filter, sort; /* column + 1, negative: descending */
};

static int model_group(const struct world_row *r, int column)
{
    return column != 1 ? 0 : isnan(r->size) ? 1 : r->size < 0 ? 2 : 0;
}

/* 1: b must come before a. */
static int out_of_order(const struct world_row *a, const struct world_row *b, int sort)
{
    int column = abs(sort) - 1, ga = model_group(a, column), gb = model_group(b, column);

    if (ga != gb)
        return ga > gb;
    if (ga > 0)
        return 0;
    if (column == 1)
        return sort > 0 ? a->size > b->size : a->size < b->size;
    int order = column ? strverscmp(a->kernel, b->kernel) : strverscmp(a->name, b->name);
    return sort > 0 ? order > 0 : order < 0;
}

static int kind_at(const struct world *w, const struct model *m, size_t place)
{
    return w->row[m->shown[place]].kind;
}

static void model_show(const struct world *w, struct model *m)
{
    size_t heading = SIZE_MAX;

    m->n = 0;
    for (size_t i = 0; i < w->n; i++) {
        int is_heading = w->row[i].kind == TUI_ROW_SECTION;
        if (is_heading && m->filter) {
            heading = i;
            continue;
        }
        if (!is_heading && !model_fits(&w->row[i], m->filter))
            continue;
        if (heading != SIZE_MAX)
            m->shown[m->n++] = heading;
        heading = SIZE_MAX;
        m->shown[m->n++] = i;
        for (size_t k = m->n - 1;
             m->sort && k > 0 && kind_at(w, m, k) == TUI_ROW && kind_at(w, m, k - 1) == TUI_ROW &&
             out_of_order(&w->row[m->shown[k - 1]], &w->row[m->shown[k]], m->sort);
             k--) {
            size_t t = m->shown[k];
            m->shown[k] = m->shown[k - 1];
            m->shown[k - 1] = t;
        }
    }
}

static size_t model_find(const struct model *m, size_t row)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->shown[i] == row)
            return i;
    return SIZE_MAX;
}

/* Where the cursor is after a move by so many places. */
static size_t model_move(const struct world *w, const struct model *m, size_t from, long by)
{
    long to = (long)from + by, last = (long)m->n - 1;

    to = to < 0 ? 0 : to > last ? last : to;
    for (long i = to; i >= 0 && i <= last; i += by < 0 ? -1 : 1)
        if (kind_at(w, m, (size_t)i) != TUI_ROW_SECTION)
            return (size_t)i;
    for (long i = to; i >= 0 && i <= last; i += by < 0 ? 1 : -1)
        if (kind_at(w, m, (size_t)i) != TUI_ROW_SECTION)
            return (size_t)i;
    return (size_t)to;
}

/* ---- operations ------------------------------------------------------------------------------ */

static void check(const struct world *w, const struct model *m, const struct tui_table *t,
                  const uint8_t *marked)
{
    size_t marks = 0;

    assert_int_equal(t->n_shown, m->n);
    assert_memory_equal(t->shown, m->shown, m->n * sizeof *m->shown);
    if (m->n)
        assert_true(t->cursor < m->n);
    int stands = m->n && kind_at(w, m, t->cursor) != TUI_ROW_SECTION;
    assert_true(tui_table_row(t) == (stands ? m->shown[t->cursor] : SIZE_MAX));
    for (size_t i = 0; i < w->n; i++)
        marks += marked[i];
    assert_int_equal(tui_table_marks(t), marks);
    assert_memory_equal(t->marked, marked, w->n);
    if (w->cells)
        assert_in_range(t->column, 1, 2);
}

static void move_randomly(struct world *w, struct model *m, struct tui_table *t)
{
    long by = (long)draw(21) - 10;
    size_t before = t->cursor;

    if (draw(4) == 0) {
        int last = draw(2) != 0;
        tui_table_end(t, last);
        if (m->n) /* as a move that goes on and on */
            assert_int_equal(t->cursor,
                             last ? model_move(w, m, 0, 1000) : model_move(w, m, 0, -1000));
        return;
    }
    tui_table_move(t, by, (long)draw(3) - 1);
    if (m->n && by)
        assert_int_equal(t->cursor, model_move(w, m, before, by));
}

static void show_randomly(struct world *w, struct model *m, struct tui_table *t)
{
    size_t row = tui_table_row(t);

    if (draw(2)) {
        m->filter = (int)draw(FILTERS);
        assert_int_equal(tui_table_filter(t, filters[m->filter], NULL), 0);
    } else {
        m->sort = (int)draw(4);
        int down = draw(2) != 0;
        assert_int_equal(tui_table_sort(t, m->sort, down, NULL), 0);
        m->sort = down ? -m->sort : m->sort;
    }
    model_show(w, m);
    if (row != SIZE_MAX && model_find(m, row) != SIZE_MAX)
        assert_int_equal(tui_table_row(t), row);
}

static void jump_randomly(struct world *w, struct model *m, struct tui_table *t)
{
    int step = (int)draw(3) - 1, what = 1 << draw(3), columns = w->cells ? 2 : 1;
    long cell = (long)t->cursor * columns + (w->cells ? (long)t->column - 1 : 0);
    long total = (long)m->n * columns, want = -1;

    for (long i = step ? cell + step : 0; i >= 0 && i < total && want < 0; i += step < 0 ? -1 : 1) {
        const struct world_row *r = &w->row[m->shown[i / columns]];
        int is = w->cells && i % 2 ? r->is >> 1 : r->is;
        if (r->kind == TUI_ROW && (is & what))
            want = i;
    }
    assert_int_equal(tui_table_jump(t, what, step), want < 0 ? -1 : 0);
    if (want < 0)
        return;
    assert_int_equal(t->cursor, want / columns);
    if (w->cells)
        assert_int_equal(t->column, want % columns + 1);
}

static int model_holds(const struct world *w, const struct model *m, long place, const char *word)
{
    const struct world_row *r = &w->row[m->shown[place]];

    return strstr(r->name, word) || (r->kind == TUI_ROW && strstr(r->kernel, word));
}

static void search_randomly(struct world *w, struct model *m, struct tui_table *t)
{
    static const char *const words[] = {"L1", "_a", "matmul", "L29_d", "Rope"};
    const char *word = words[draw(5)];
    int step = (int)draw(3) - 1, wrapped;
    long n = (long)m->n, want = -1;

    for (long i = step ? 1 : 0; i < n + (step ? 1 : 0) && want < 0; i++) {
        long place = (((long)t->cursor + (step < 0 ? -i : i)) % n + n) % n;
        int found =
            kind_at(w, m, (size_t)place) != TUI_ROW_SECTION && model_holds(w, m, place, word);
        for (long k = place - 1; k >= 0 && kind_at(w, m, (size_t)place) != TUI_ROW_SECTION &&
                                 kind_at(w, m, (size_t)k) == TUI_ROW_SECTION;
             k--)
            found |= strstr(w->row[m->shown[k]].name, word) != NULL;
        if (found)
            want = place;
    }
    assert_int_equal(tui_table_search(t, word, step, &wrapped), want < 0 ? -1 : 0);
    if (want >= 0)
        assert_int_equal(t->cursor, want);
}

static void mark_randomly(struct tui_table *t, uint8_t *marked)
{
    size_t row = tui_table_row(t);

    if (draw(10) == 0) {
        tui_table_mark(t, 1);
        memset(marked, 0, MOST_ROWS);
    } else {
        tui_table_mark(t, 0);
        if (row != SIZE_MAX)
            marked[row] ^= 1;
    }
}

static void change_randomly(struct world *w, struct model *m, struct tui_table *t, uint8_t *marked)
{
    size_t before = w->n;

    new_rows(w);
    struct tui_source s = world_source(w);
    for (size_t i = 0; i < MOST_ROWS; i++)
        marked[i] &= i < w->n && i < before;
    assert_int_equal(tui_table_source(t, &s, NULL), 0);
    model_show(w, m);
}

/* Drawn at any place and size: nothing beside the rectangle, and the cursor's line in it. */
static void draw_randomly(struct tui_table *t, struct tui_canvas *c)
{
    struct tui_rect r = {(int)draw(30) - 2, (int)draw(60) - 2, (int)draw(20), (int)draw(60)};
    int reversed = 0;

    for (int i = 0; i < c->h * c->w; i++)
        c->cells[i] = (struct tui_cell){'#', TUI_ERROR, 0};
    tui_table_draw(t, c, r);
    for (int y = 0; y < c->h; y++)
        for (int x = 0; x < c->w; x++) {
            const struct tui_cell *cell = &c->cells[y * c->w + x];
            if (y >= r.y && y < r.y + r.h && x >= r.x && x < r.x + r.w)
                reversed += cell->attr & TUI_CURSOR;
            else
                assert_int_equal(cell->ch, '#');
        }
    if (r.y >= 0 && r.x >= 0 && r.h > 0 && r.w > 4 && r.y < c->h && r.x + r.w <= c->w &&
        t->n_shown && !t->source.cell_cursor)
        assert_true(reversed > 0);
    tui_table_page(t, (int)draw(5) - 2);
    tui_table_pan(t, (int)draw(9) - 4);
}

static void test_random_operations(void **unused)
{
    struct world w = {.n = 0};
    struct model m = {.n = 0};
    struct tui_table t = {0};
    struct tui_canvas c;
    uint8_t marked[MOST_ROWS] = {0};

    (void)unused;
    assert_int_equal(tui_canvas_new(&c, 30, 60, 0, NULL), 0);
    change_randomly(&w, &m, &t, marked);
    for (int i = 0; i < OPERATIONS; i++) {
        unsigned k = draw(100);
        if (k < 40)
            move_randomly(&w, &m, &t);
        else if (k < 60)
            show_randomly(&w, &m, &t);
        else if (k < 72)
            jump_randomly(&w, &m, &t);
        else if (k < 82)
            search_randomly(&w, &m, &t);
        else if (k < 92)
            mark_randomly(&t, marked);
        else if (k < 96)
            draw_randomly(&t, &c);
        else
            change_randomly(&w, &m, &t, marked);
        check(&w, &m, &t, marked);
    }
    tui_canvas_free(&c);
    tui_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_operations)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
