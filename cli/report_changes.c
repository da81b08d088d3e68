/* report_changes.c: what else is unlike in a record and the one before it: version, model, weights, environment, the BLAS library at
 * work, attached files, options. Beside answers over time it says what may have changed them. See report.h. */
#include "cli/report.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOLD = 12, MOST_TEXT = 60, MOST_LISTED = 2000 };

struct list {
    struct ds_text *texts;
    size_t n;
};

struct ds_report_changes {
    struct list last, now;
    size_t n_records;
    struct ds_buf tsv;
};

static void list_free(struct list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->texts[i].name);
        free(l->texts[i].value);
    }
    free(l->texts);
    *l = (struct list){NULL, 0};
}

int ds_report_changes_new(struct ds_report_changes **out, struct ds_error *err)
{
    return (*out = ds_calloc(1, sizeof **out, "changes", err)) ? 0 : -1;
}

void ds_report_changes_free(struct ds_report_changes *c)
{
    if (!c)
        return;
    list_free(&c->last);
    list_free(&c->now);
    ds_buf_free(&c->tsv);
    free(c);
}

/* ---- a record -------------------------------------------------------------------------------- */

static int add(struct list *l, const char *name, const char *value, struct ds_error *err)
{
    if (ds_grow_by_one(&l->texts, l->n, sizeof *l->texts, "settings", err) != 0)
        return -1;
    struct ds_text *t = &l->texts[l->n];
    t->name = strdup(name);
    t->value = strdup(value);
    if (t->name && t->value) {
        l->n++;
        return 0;
    }
    free(t->name);
    free(t->value);
    return ds_fail(err, "out of memory for settings");
}

/* A record is hostile: names are looked for one by one, so there is an end to them. */
static int add_all(struct list *l, const struct ds_text *texts, size_t n, struct ds_error *err)
{
    for (size_t i = 0; i < n && l->n < MOST_LISTED; i++)
        if (add(l, texts[i].name, texts[i].value, err) != 0)
            return -1;
    return 0;
}

/* The library's own words for itself, without the core among them, which is told by itself. */
static void without(char *text, const char *word)
{
    const size_t n = strlen(word);
    for (char *at = text; n && (at = strstr(at, word));)
        memmove(at, at + n + (at[n] == ' '), strlen(at + n + (at[n] == ' ')) + 1);
}

static int add_blas(struct list *l, const struct ds_record *r, struct ds_error *err)
{
    for (size_t i = 0; i < ds_record_trial_count(r); i++) {
        const struct ds_trial *t = ds_record_trial(r, i);
        char config[sizeof t->blas_config];
        if (!t->blas_core[0] && !t->blas_config[0])
            continue;
        memcpy(config, t->blas_config, sizeof config);
        config[sizeof config - 1] = '\0';
        without(config, t->blas_core);
        return add(l, "BLAS core", t->blas_core, err) || add(l, "BLAS", config, err) ? -1 : 0;
    }
    return 0;
}

static int fill(struct list *l, const struct ds_header *h, const struct ds_record *r,
                struct ds_error *err)
{
    char digest[24];
    snprintf(digest, sizeof digest, "%016" PRIx64, h->model_digest);
    return add(l, "version", h->tool_version, err) || add(l, "build", h->build, err) ||
                   add(l, "model", h->model_name, err) || add(l, "weights", digest, err) ||
                   add_blas(l, r, err) || add_all(l, h->environment, h->n_environment, err) ||
                   add_all(l, h->options, h->n_options, err)
               ? -1
               : 0;
}

/* ---- against the one before ------------------------------------------------------------------ */

static const char *value_of(const struct list *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->texts[i].name, name) == 0)
            return l->texts[i].value;
    return NULL;
}

/* The schedule says in one text what the serving options say each. */
static int is_unlike(const struct list *a, const struct list *b, const char *name)
{
    const char *x = value_of(a, name), *y = value_of(b, name);
    return strcmp(name, "serve_schedule") != 0 && (!x || !y || strcmp(x, y) != 0);
}

/* A cell: no tab, no end of line. */
static void add_cell(struct ds_buf *out, const char *text)
{
    const size_t n = text ? strlen(text) : 0;
    ds_buf_escape(out, text ? text : "", n > MOST_TEXT ? MOST_TEXT : n);
    ds_buf_puts(out, n > MOST_TEXT ? "..." : text ? "" : "none");
}

static void tell(struct ds_report_changes *c, const char *start, const char *path, const char *name,
                 struct ds_buf *names, size_t *told)
{
    if ((*told)++ >= MOST_TOLD)
        return;
    ds_buf_puts(names, *told > 1 ? ", " : "");
    ds_buf_escape(names, name, (size_t)-1);
    add_cell(&c->tsv, start);
    ds_buf_puts(&c->tsv, "\t");
    add_cell(&c->tsv, path);
    ds_buf_puts(&c->tsv, "\t");
    add_cell(&c->tsv, name);
    ds_buf_puts(&c->tsv, "\t");
    add_cell(&c->tsv, value_of(&c->last, name));
    ds_buf_puts(&c->tsv, "\t");
    add_cell(&c->tsv, value_of(&c->now, name));
    ds_buf_puts(&c->tsv, "\n");
}

static void next(struct ds_report_changes *c)
{
    list_free(&c->last);
    c->last = c->now;
    c->now = (struct list){NULL, 0};
}

/* What was filled in, against what was before it. */
static int compare(struct ds_report_changes *c, const char *path, const char *start,
                   struct ds_buf *names, struct ds_error *err)
{
    size_t told = 0;
    if (c->n_records++ == 0) {
        ds_buf_puts(&c->tsv, "start\trecord\twhat\tbefore\tnow\n");
        return 0;
    }
    for (size_t i = 0; i < c->now.n; i++)
        if (is_unlike(&c->last, &c->now, c->now.texts[i].name))
            tell(c, start, path, c->now.texts[i].name, names, &told);
    for (size_t i = 0; i < c->last.n; i++)
        if (!value_of(&c->now, c->last.texts[i].name))
            tell(c, start, path, c->last.texts[i].name, names, &told);
    if (told > MOST_TOLD)
        ds_buf_printf(names, " and %zu more", told - MOST_TOLD);
    return c->tsv.failed || names->failed ? ds_fail(err, "out of memory for settings") : 0;
}

int ds_report_changes_record(struct ds_report_changes *c, const char *path,
                             const struct ds_record *r, struct ds_buf *names, struct ds_error *err)
{
    const struct ds_header *h = ds_record_header(r);
    next(c);
    return fill(&c->now, h, r, err) != 0 ? -1 : compare(c, path, h->start, names, err);
}

int ds_report_changes_texts(struct ds_report_changes *c, const char *path, const char *start,
                            const struct ds_text *texts, size_t n, struct ds_buf *names,
                            struct ds_error *err)
{
    next(c);
    return add_all(&c->now, texts, n, err) != 0 ? -1 : compare(c, path, start, names, err);
}

void ds_report_changes_place(struct ds_report_maker *m, const struct ds_report_changes *c)
{
    static const char *const about = "What is unlike in a record and the one before it, beside its "
                                     "answers: what may have changed them.";
    const char *first = c->tsv.data ? strchr(c->tsv.data, '\n') : NULL;
    if (!m->figure && first && first[1])
        ds_page_table(&m->page, "What changed", about, &c->tsv, 1);
}
