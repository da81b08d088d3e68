/* render_damage.c: what of a record could not be believed, row by row: as text, as JSON, and in a
 * verdict's last line. Judges nothing. */
#include "cli/render_damage.h"

#include "cli/render_json.h"
#include "cli/render_matrix.h"
#include "dumps/diff.h"

#include <inttypes.h>
#include <stdio.h>

enum { MOST_LINES = 16, MOST_LISTED = 1000 };

static const char *pass_name(uint32_t pass)
{
    return pass == DS_PASS_HEAL ? ", healed" : pass == DS_PASS_BARE ? ", without probes" : "";
}

static void add_trial(const struct ds_damage_side *s, size_t trial, struct ds_buf *out)
{
    const struct ds_trial *t = ds_record_trial(s->record, trial);
    if (t)
        ds_buf_printf(out, "trial %zu (arm %u, repeat %u%s)", trial, t->arm, t->repeat,
                      pass_name(t->pass));
}

static void add_one(const struct ds_damage_side *s, const struct ds_damage *x, struct ds_buf *out)
{
    if (!x->dumped) {
        add_trial(s, x->trial, out);
        ds_buf_printf(out, ": %s\n", x->why);
        return;
    }
    if (x->trial == SIZE_MAX) {
        ds_buf_puts(out, "a row of no trial that could be read");
    } else {
        const struct ds_site *site = &ds_record_header(s->record)->sites[x->site];
        ds_render_place(out, site->layer, site->stage, site->part);
        ds_buf_printf(out, ", request %d, position %d", x->request, x->position);
        if (x->occurrence)
            ds_buf_printf(out, ", occurrence %d", x->occurrence);
        ds_buf_puts(out, ", ");
        add_trial(s, x->trial, out);
        if (x->rows > 1)
            ds_buf_printf(out, " and %" PRIu64 " equal row%s", x->rows - 1,
                          x->rows == 2 ? "" : "s");
    }
    if (x->found)
        ds_buf_printf(out, ":\n%14sdigest %016" PRIx64 ", but its bytes have %016" PRIx64 "\n", "",
                      x->digest, x->found);
    else
        ds_buf_printf(out, ":\n%14sdigest %016" PRIx64 ", but %s\n", "", x->digest, x->why);
}

void ds_render_damage(const struct ds_render *r, struct ds_buf *out)
{
    size_t n = 0, left = 0;
    for (int side = 0; r->damage && side < 2; side++)
        for (size_t i = 0; i < r->damage[side].n; i++) {
            if (n++ >= MOST_LINES) {
                left++;
                continue;
            }
            ds_render_head(r, "damage", out);
            if (r->diff)
                ds_buf_puts(out, side ? "B: " : "A: ");
            add_one(&r->damage[side], &r->damage[side].list[i], out);
        }
    if (left)
        ds_buf_printf(out, "%14sand %zu more (--json lists up to %d)\n", "", left, MOST_LISTED);
}

static void count(const struct ds_render *r, uint64_t *rows, uint64_t *trials)
{
    *rows = *trials = 0;
    for (int side = 0; r->damage && side < 2; side++)
        for (size_t i = 0; i < r->damage[side].n; i++)
            ++*(r->damage[side].list[i].dumped ? rows : trials);
}

int ds_damage_words(const struct ds_render *r, char *text, size_t size)
{
    uint64_t rows, trials;
    count(r, &rows, &trials);
    int n = 0;
    if (rows + trials == 0)
        return 0;
    if (rows)
        n = snprintf(text, size, "%" PRIu64 " dumped row%s not have %s digest", rows,
                     rows == 1 ? " does" : "s do", rows == 1 ? "its" : "their");
    if (trials && n >= 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, "%s%" PRIu64 " trial%s not have %s checksum",
                 n ? ", " : "", trials, trials == 1 ? " does" : "s do",
                 trials == 1 ? "its" : "their");
    return 1;
}

void ds_render_damage_words(const struct ds_render *r, struct ds_buf *out)
{
    char text[160];
    if (r->v->result != DS_RESULT_INCOMPARABLE && ds_damage_words(r, text, sizeof text))
        ds_buf_printf(out, "; damaged: %s", text);
}

static json_t *one_json(const struct ds_render *r, int side, const struct ds_damage *x)
{
    const struct ds_damage_side *s = &r->damage[side];
    const struct ds_trial *t = ds_record_trial(s->record, x->trial);
    const struct ds_site *site =
        x->dumped && t ? &ds_record_header(s->record)->sites[x->site] : NULL;
    json_t *j = json_object();
    json_object_set_new(j, "what", json_string(x->dumped ? "row" : "trial"));
    if (r->diff)
        json_object_set_new(j, "record", json_string(side ? "B" : "A"));
    json_object_set_new(j, "trial", t ? ds_json_whole(x->trial) : json_null());
    json_object_set_new(j, "arm", t ? json_integer(t->arm) : json_null());
    json_object_set_new(j, "repeat", t ? json_integer(t->repeat) : json_null());
    json_object_set_new(j, "layer", site ? json_integer(site->layer) : json_null());
    json_object_set_new(j, "stage", site ? ds_json_text(site->stage) : json_null());
    json_object_set_new(j, "part", site ? ds_json_text(site->part) : json_null());
    json_object_set_new(j, "request", site ? json_integer(x->request) : json_null());
    json_object_set_new(j, "position", site ? json_integer(x->position) : json_null());
    json_object_set_new(j, "occurrence", site ? json_integer(x->occurrence) : json_null());
    json_object_set_new(j, "rows", ds_json_whole(x->rows));
    json_object_set_new(j, "digest", x->dumped ? ds_json_digest(x->digest) : json_null());
    json_object_set_new(j, "found", x->found ? ds_json_digest(x->found) : json_null());
    json_object_set_new(j, "why", ds_json_text(x->why));
    return j;
}

json_t *ds_json_damage(const struct ds_render *r)
{
    uint64_t rows, trials;
    json_t *j = json_object(), *list = json_array();
    count(r, &rows, &trials);
    for (int side = 0; r->damage && side < 2; side++)
        for (size_t i = 0; i < r->damage[side].n && json_array_size(list) < MOST_LISTED; i++)
            json_array_append_new(list, one_json(r, side, &r->damage[side].list[i]));
    json_object_set_new(j, "verified", json_boolean(r->damage && r->damage[0].verified));
    json_object_set_new(j, "rows", ds_json_whole(rows));
    json_object_set_new(j, "trials", ds_json_whole(trials));
    json_object_set_new(j, "listed", list);
    return j;
}
