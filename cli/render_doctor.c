/* render_doctor.c: what doctor found, as text and as JSON (schema driftscope.doctor/1, JSON.md). Owns order,
 * words and names only. */
#include "cli/doctor.h"
#include "cli/json.h"

#include <string.h>

enum { INDENT = 14, WIDTH = 100 };

static size_t count(const struct ds_doctor *d, size_t command, int status)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n_lines; i++)
        n += (command == (size_t)-1 || d->lines[i].command == command) &&
             d->lines[i].status == status;
    return n;
}

/* Text from outside in lines of WIDTH, further ones indented. */
static void put(struct ds_buf *out, const char *head, const char *text)
{
    struct ds_buf all = {0};
    ds_buf_escape(&all, text, (size_t)-1);
    ds_buf_printf(out, "%-*s", INDENT, head);
    size_t column = INDENT;
    for (const char *p = all.data ? all.data : ""; *p;) {
        const size_t n = strcspn(p, " ");
        if (column > INDENT && column + n > WIDTH) {
            ds_buf_printf(out, "\n%*s", INDENT, "");
            column = INDENT;
        } else if (column > INDENT) {
            ds_buf_puts(out, " ");
            column++;
        }
        ds_buf_add(out, p, n);
        column += n;
        p += n + strspn(p + n, " ");
    }
    ds_buf_puts(out, "\n");
    if (all.failed)
        ds_buf_lose(out);
    ds_buf_free(&all);
}

static void put_lines(struct ds_buf *out, const struct ds_doctor *d, size_t command, int status)
{
    static const enum ds_role roles[] = {DS_ROLE_DRIFT, DS_ROLE_UNSTABLE, DS_ROLE_SAME};
    static const char *const heads[] = {"found", "cannot tell", "fixed"};
    for (size_t i = 0; i < d->n_lines; i++) {
        const struct ds_doctor_line *l = &d->lines[i];
        struct ds_buf text = {0};
        if (l->command != command || l->status != status)
            continue;
        ds_buf_printf(&text, "%s: %s", l->check, l->text);
        ds_buf_puts(out, ds_cli_color(d->o, roles[status]));
        put(out, heads[status], text.data ? text.data : "");
        ds_buf_puts(out, ds_cli_color(d->o, DS_ROLE_PLAIN));
        ds_buf_free(&text);
        if (*l->remedy) {
            ds_buf_printf(&text, "do: %s", l->remedy);
            put(out, "", text.data ? text.data : "");
            ds_buf_free(&text);
        }
    }
}

static void put_part(struct ds_buf *out, const struct ds_doctor *d, size_t command)
{
    const struct ds_doctor_command *c = command ? &d->commands.at[command - 1] : NULL;
    const size_t found = count(d, command, DS_DOCTOR_FOUND),
                 unknown = count(d, command, DS_DOCTOR_UNKNOWN),
                 fixed = count(d, command, DS_DOCTOR_FIXED);
    if (found + unknown + fixed == 0)
        return;
    ds_buf_puts(out, ds_cli_color(d->o, DS_ROLE_HEAD));
    if (c) {
        ds_buf_printf(out, "command %-5zu %s", command, ds_doctor_engine(c->engine));
        if (c->line)
            ds_buf_printf(out, ", line %zu", c->line);
    } else
        ds_buf_printf(out, "%-*s%s", INDENT, "doctor",
                      d->commands.n ? "the commands beside each other" : ds_doctor_engine(0));
    ds_buf_printf(out, "%s: %zu found, %zu cannot be told, %zu fixed\n",
                  ds_cli_color(d->o, DS_ROLE_PLAIN), found, unknown, fixed);
    for (int status = DS_DOCTOR_FOUND; status <= DS_DOCTOR_FIXED; status++)
        put_lines(out, d, command, status);
    ds_buf_puts(out, "\n");
}

void ds_doctor_text(struct ds_buf *out, const struct ds_doctor *d)
{
    const size_t found = count(d, (size_t)-1, DS_DOCTOR_FOUND),
                 unknown = count(d, (size_t)-1, DS_DOCTOR_UNKNOWN);
    for (size_t i = 1; i <= d->commands.n; i++)
        put_part(out, d, i);
    put_part(out, d, 0);
    if (found)
        ds_buf_printf(out, "doctor: %zu thing%s found that can make results differ", found,
                      found == 1 ? "" : "s");
    else
        ds_buf_puts(out, "doctor: nothing found that can make results differ");
    if (unknown)
        ds_buf_printf(out, ", %zu that cannot be told from here", unknown);
    ds_buf_puts(out, "\n");
}

/* ---- JSON ----------------------------------------------------------------------------------------- */

static json_t *line_json(const struct ds_doctor_line *l)
{
    json_t *j = json_object();
    json_object_set_new(j, "check", json_string(l->check));
    json_object_set_new(j, "status", json_string(ds_doctor_status_name(l->status)));
    json_object_set_new(j, "command", l->command ? ds_json_whole(l->command) : json_null());
    json_object_set_new(j, "text", ds_json_text(l->text));
    json_object_set_new(j, "remedy", ds_json_text(l->remedy));
    return j;
}

int ds_doctor_json(struct ds_buf *out, const struct ds_doctor *d, struct ds_error *err)
{
    ds_json_begin();
    json_t *j = json_object(), *commands = json_array(), *lines = json_array();
    for (size_t i = 0; i < d->commands.n; i++) {
        const struct ds_doctor_command *c = &d->commands.at[i];
        json_t *one = json_object();
        json_object_set_new(one, "engine", json_string(ds_doctor_engine(c->engine)));
        json_object_set_new(one, "line", c->line ? ds_json_whole(c->line) : json_null());
        json_array_append_new(commands, one);
    }
    for (int status = DS_DOCTOR_FOUND; status <= DS_DOCTOR_FIXED; status++)
        for (size_t i = 0; i < d->n_lines; i++)
            if (d->lines[i].status == status)
                json_array_append_new(lines, line_json(&d->lines[i]));
    json_object_set_new(j, "schema", json_string("driftscope.doctor/1"));
    json_object_set_new(
        j, "result",
        json_string(count(d, (size_t)-1, DS_DOCTOR_FOUND) ? "found" : "nothing-found"));
    json_object_set_new(j, "found", ds_json_whole(count(d, (size_t)-1, DS_DOCTOR_FOUND)));
    json_object_set_new(j, "cannot_tell", ds_json_whole(count(d, (size_t)-1, DS_DOCTOR_UNKNOWN)));
    json_object_set_new(j, "fixed", ds_json_whole(count(d, (size_t)-1, DS_DOCTOR_FIXED)));
    json_object_set_new(j, "commands", commands);
    json_object_set_new(j, "lines", lines);
    return ds_json_print(j, out, err);
}
