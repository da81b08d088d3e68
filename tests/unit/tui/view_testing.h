/* view_testing.h: one view on one record, without frame and terminal: loaded as the frame loads it,
 * asked cell by cell. */
#ifndef DS_VIEW_TESTING_H
#define DS_VIEW_TESTING_H

#include "tests/unit/tui/data_fixture.h"
#include "tui/view.h"

#include <xxhash.h>

struct shown {
    struct tui_data *data;
    struct tui_view view;
    struct tui_place place;
    struct tui_context c;
    char why[256];
};

static inline void shown_open(struct shown *s, const struct tui_view_ops *ops, const char *path,
                              const char *path_b, uint32_t arm, uint32_t ref)
{
    memset(s, 0, sizeof *s);
    s->data = open_data(path, path_b, 0);
    s->view.ops = ops;
    s->place = (struct tui_place){.arm = arm, .ref = ref, .metric = TUI_METRIC_ULP};
    s->c = (struct tui_context){
        .data = s->data, .place = &s->place, .lines = 40, .columns = 200, .program = "driftscope"};
}

/* Loads until nothing is waited for. */
static inline int shown_load(struct shown *s)
{
    for (int i = 0; i < 1000; i++) {
        /* What ends between the turn and the last look is not in `whole` yet: one more turn has it. */
        const int was_pending = tui_data_pending(s->data);
        tui_data_turn(s->data);
        s->c.whole = tui_data_whole(s->data);
        int state = s->c.whole->header ? s->view.ops->load(&s->view, &s->c, s->why) : TUI_WAITING;
        const int is_pending = tui_data_pending(s->data);
        if (state != TUI_WAITING && !was_pending && !is_pending)
            return state;
        if (is_pending || !was_pending)
            assert_int_equal(tui_data_wait(s->data, LONG), 0);
    }
    fail_msg("it never came");
    return -1;
}

static inline void shown_close(struct shown *s)
{
    s->view.ops->free_own(&s->view);
    tui_table_free(&s->view.table);
    free(s->view.head);
    free(s->view.head_role);
    tui_data_close(s->data);
}

static inline int shown_kind(const struct shown *s, size_t line)
{
    const struct tui_source *t = &s->view.table.source;
    return t->kind ? t->kind(t->ctx, line) : TUI_ROW;
}

static inline struct tui_value shown_value(const struct shown *s, size_t line, size_t column)
{
    const struct tui_source *t = &s->view.table.source;
    struct tui_value v = {.text = ""};
    assert_true(line < t->n_rows && column < t->n_columns);
    t->cell(t->ctx, line, column, &v);
    return v;
}

static inline size_t shown_column(const struct shown *s, const char *name)
{
    const struct tui_source *t = &s->view.table.source;
    for (size_t i = 0; i < t->n_columns; i++)
        if (strcmp(t->columns[i].name, name) == 0)
            return i;
    fail_msg("no column %s", name);
    return 0;
}

/* The line whose first cell has that text, under the heading that begins with `section` ("" any).
 * */
static inline size_t shown_line(const struct shown *s, const char *section, const char *text)
{
    int in = section[0] == '\0';
    for (size_t i = 0; i < s->view.table.source.n_rows; i++) {
        struct tui_value v = shown_value(s, i, 0);
        int kind = shown_kind(s, i);
        if (kind == TUI_ROW_HEADS || kind == TUI_ROW_SECTION)
            in = strncmp(v.text, section, strlen(section)) == 0;
        else if (in && strncmp(v.text, text, strlen(text)) == 0)
            return i;
    }
    return SIZE_MAX;
}

/* Text of a cell by its line's first cell and its column's name. */
static inline const char *shown_cell(const struct shown *s, const char *line, const char *column)
{
    static char text[8][512];
    static int next;
    size_t i = shown_line(s, "", line);
    if (i == SIZE_MAX)
        fail_msg("no line %s", line);
    struct tui_value v = shown_value(s, i, shown_column(s, column));
    next = (next + 1) % 8;
    snprintf(text[next], sizeof text[next], "%s", v.text);
    return text[next];
}

static inline int shown_is(const struct shown *s, size_t line)
{
    return s->view.table.source.is(s->view.table.source.ctx, line, 0);
}

/* What a request gives, and the view to go to. */
static inline int shown_request(struct shown *s, int request, int *next)
{
    struct ds_error err = {"", ""};
    *next = -1;
    int rc = s->view.ops->request(&s->view, &s->c, request, next, &err);
    assert_true(rc >= 0 || err.msg[0]);
    return rc;
}

static inline void shown_command(const struct shown *s, char out[512])
{
    struct ds_buf b = {0};
    s->view.ops->command(&s->view, &s->c, &b);
    snprintf(out, 512, "%s", b.data ? b.data : "");
    ds_buf_free(&b);
}

/* The panel as text. */
static inline void shown_panel(struct shown *s, int h, int w, struct ds_buf *out)
{
    struct ds_error err;
    struct tui_canvas canvas = {0};
    assert_ok(tui_canvas_new(&canvas, h, w, 1, &err), err);
    tui_canvas_clear(&canvas);
    s->c.ascii = 1;
    s->view.ops->panel(&s->view, &s->c, &canvas, (struct tui_rect){0, 0, h, w});
    tui_canvas_text(&canvas, out);
    tui_canvas_free(&canvas);
}

static inline uint32_t site_of(const struct ds_header *h, int layer, const char *stage)
{
    for (size_t i = 0; i < h->n_sites; i++)
        if (h->sites[i].layer == layer && strcmp(h->sites[i].stage, stage) == 0)
            return (uint32_t)i;
    fail_msg("no site %d %s", layer, stage);
    return 0;
}

/* Gives a row its bytes: its digest is theirs, and with `dump` they are in the record. What the
 * sweep says of its size is taken away. */
static inline void put_values(struct ds_trial_data *t, uint32_t site, int32_t position,
                              const char *dtype, const void *bytes, uint32_t n, int dump)
{
    uint32_t row, size = (uint32_t)ds_dtype_size(ds_dtype_parse(dtype)) * n;
    uint64_t *at = sweep_find(t, site, position, &row), digest = XXH3_64bits(bytes, size);
    size_t kept = 0;
    assert_non_null(at);
    *at = digest;
    for (size_t i = 0; i < t->n_drifts; i++)
        if (t->drifts[i].site != site || t->drifts[i].row != row)
            t->drifts[kept++] = t->drifts[i];
    t->n_drifts = kept;
    if (!dump)
        return;
    t->blobs = realloc(t->blobs, (t->n_blobs + 1) * sizeof *t->blobs);
    struct ds_blob *b = &t->blobs[t->n_blobs++];
    *b = (struct ds_blob){.digest = digest, .elements = n, .bytes = size, .data = malloc(size)};
    snprintf(b->dtype, sizeof b->dtype, "%s", dtype);
    memcpy(b->data, bytes, size);
}

static inline void write_record(const char *name, uint32_t (*tag)(const struct cell *),
                                uint32_t repeats)
{
    struct sweep s;
    fixture_plan(&s, tag);
    sweep_run(&s, repeats);
    write_sweep(&s, test_path(name), s.n_trials);
    sweep_free(&s);
}

static inline uint32_t flaky(const struct cell *c)
{
    return cell_is(c, 1, "q_proj") ? c->repeat : 0;
}

/* The records that the two views of a whole sweep are shown. */
static inline int make_records(void **state)
{
    if (make_folder(state) != 0)
        return -1;
    write_record("drift.h5", two_faults, 2);
    write_record("same.h5", no_fault, 2);
    write_record("one.h5", no_fault, 1);
    write_record("flaky.h5", flaky, 3);
    return 0;
}

#endif
