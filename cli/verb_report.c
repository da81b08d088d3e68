/* verb_report.c: `driftscope report REC... -o FILE.html`: records as one page to be read, kept, printed and sent, or one figure of a
 * record. Owns the order of records and where figures go; sections are report_sweep.c's and report_storm.c's, drawing is
 * report/'s. */
#include "cli/report.h"

#include "base/mem.h"
#include "cli/run_plan_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int ds_report_wants(const struct ds_report_maker *m, const char *figure)
{
    return !m->figure || strcmp(m->figure, figure) == 0;
}

/* "DIR/2-tree-1.tsv": the record's number where there are several, the arm's where each has its own. */
static int write_data(const struct ds_report_maker *m, const struct ds_figure *f, int64_t arm,
                      int top, struct ds_error *err)
{
    struct ds_buf path = {0};
    ds_buf_printf(&path, "%s/", m->data);
    if (m->n_records > 1 && !top)
        ds_buf_printf(&path, "%zu-", m->record + 1);
    ds_buf_puts(&path, f->name);
    if (arm >= 0)
        ds_buf_printf(&path, "-%lld", (long long)arm);
    ds_buf_puts(&path, ".tsv");
    const int rc = path.failed || f->data.failed ? ds_fail(err, "out of memory for a file's name")
                                                 : ds_cli_write_file(path.data, &f->data, err);
    ds_buf_free(&path);
    return rc;
}

int ds_report_place_figure(struct ds_report_maker *m, const struct ds_figure *f, int64_t arm,
                           int top, struct ds_error *err)
{
    if (m->data && write_data(m, f, arm, top, err) != 0)
        return -1;
    if (m->figure && strcmp(m->figure, f->name) != 0)
        return 0;
    if (!m->figure) {
        ds_page_figure(&m->page, f, top);
        return 0;
    }
    if (f->svg.len == 0)
        return ds_fail(err, "nothing to draw: %s", f->about.data ? f->about.data : "");
    ds_figure_file(f, &m->file);
    return 0;
}

/* ---- records --------------------------------------------------------------------------------- */

static int add_record(struct ds_report_maker *m, const char *path, struct ds_error *err)
{
    struct ds_record *r;
    if (m->responses)
        return ds_report_responses(m, path, err);
    if (ds_record_open(path, &r, err) != 0)
        return -1;
    const size_t arms = ds_record_header(r)->n_arms;
    int rc =
        m->arm >= 0 && (uint64_t)m->arm >= arms
            ? ds_fail(err, "unknown arm %lld: the record has 0..%zu", (long long)m->arm, arms - 1)
            : 0;
    if (rc == 0 && m->times)
        rc = ds_report_times_record(m->times, path, r, err);
    if (rc == 0)
        rc = ds_report_is_serving(ds_record_header(r)) ? ds_report_serving(m, path, r, err)
                                                       : ds_report_sweep(m, path, r, err);
    if (rc != 0)
        ds_prefix(err, "%s", path);
    else if (ds_record_incomplete(r) > 0)
        ds_cli_note(m->o, "%s: trials left out since they were cut short: %zu", path,
                    ds_record_incomplete(r));
    ds_record_close(r);
    return rc;
}

/* ---- in the order of their times -------------------------------------------------------------- */

struct dated {
    const char *path;
    char start[32];
    int32_t concurrency;
    size_t given;
};

static int earlier(const void *pa, const void *pb)
{
    const struct dated *a = pa, *b = pb;
    const int order = strcmp(a->start, b->start);
    return order ? order : (a->given > b->given) - (a->given < b->given);
}

/* --concurrency: one number for all files of responses, or one for each, in the order in which they are given. */
static int read_concurrency(const struct ds_report_maker *m, struct dated *all,
                            struct ds_error *err)
{
    const char *text = ds_opt_text(m->o, "concurrency");
    size_t n = 0;
    if (!text)
        return 0;
    if (!m->responses)
        return ds_fail(err, "--concurrency is for files of responses: a record says its own");
    for (const char *p = text; *p; n++) {
        char *end;
        const long x = strtol(p, &end, 10); /* the parser has checked it */
        if (n < m->n_records)
            all[n].concurrency = (int32_t)x;
        p = *end == ',' ? end + 1 : end;
    }
    for (size_t i = 1; n == 1 && i < m->n_records; i++)
        all[i].concurrency = all[0].concurrency;
    return n == 1 || n == m->n_records
               ? 0
               : ds_fail(err, "--concurrency has %zu numbers for %zu files: give one, or one each",
                         n, m->n_records);
}

static int sort_records(struct ds_report_maker *m, struct ds_error *err)
{
    struct dated *all = ds_calloc(m->n_records, sizeof *all, "records", err);
    m->paths = ds_calloc(m->n_records, sizeof *m->paths, "records", err);
    m->concurrency = ds_calloc(m->n_records, sizeof *m->concurrency, "records", err);
    int rc = all && m->paths && m->concurrency ? read_concurrency(m, all, err) : -1;
    for (size_t i = 0; rc == 0 && i < m->n_records; i++) {
        struct ds_record *r;
        all[i].path = ds_opt_operand(m->o, i);
        all[i].given = i;
        if (m->responses) {
            rc = ds_report_responses_start(all[i].path, all[i].start, sizeof all[i].start, err);
            continue;
        }
        if ((rc = ds_record_open(all[i].path, &r, err)) != 0)
            break;
        memcpy(all[i].start, ds_record_header(r)->start, sizeof all[i].start);
        ds_record_close(r);
    }
    if (rc == 0)
        qsort(all, m->n_records, sizeof *all, earlier);
    for (size_t i = 0; rc == 0 && i < m->n_records; i++) {
        m->paths[i] = all[i].path;
        m->concurrency[i] = all[i].concurrency;
    }
    free(all);
    return rc;
}

/* Files of responses, or records: what is of two kinds is nothing to hold against each other. */
static int tell_kinds(struct ds_report_maker *m, struct ds_error *err)
{
    size_t responses = 0, other = 0;
    for (size_t i = 0; i < m->n_records; i++)
        if (ds_report_is_responses(ds_opt_operand(m->o, i)))
            responses++;
        else
            other = i;
    m->responses = responses > 0;
    if (responses > 0 && responses < m->n_records)
        return ds_fail(err, "%s is no file of responses, and others are: a page of one kind only",
                       ds_opt_operand(m->o, other));
    if (responses > 0 && m->figure && strcmp(m->figure, "time") != 0)
        return ds_fail(err, "--figure %s is of a record; files of responses have time", m->figure);
    return responses != 1
               ? 0
               : ds_fail(err, "one file of responses: several are charted over time, two are held "
                              "against each other by `driftscope fingerprint`");
}

static int read_options(struct ds_report_maker *m, struct ds_error *err)
{
    const struct ds_options *o = m->o;
    m->figure = ds_opt_text(o, "figure");
    m->data = ds_opt_text(o, "data");
    m->n_records = ds_opt_operands(o);
    m->arm = -1;
    if (ds_opt_given(o, "arm") && ds_opt_int(o, "arm", 0, INT32_MAX, &m->arm, err) != 0)
        return -1;
    if (tell_kinds(m, err) != 0)
        return -1;
    const int time = m->figure && strcmp(m->figure, "time") == 0;
    if (m->figure && !time && m->n_records > 1)
        return ds_fail(err, "--figure %s is of one record", m->figure);
    if (time && m->n_records < 2)
        return ds_fail(err, "--figure time is of several records");
    if (m->data && mkdir(m->data, 0777) != 0 && errno != EEXIST)
        return ds_fail(err, "%s: cannot make the folder: %s", m->data, strerror(errno));
    return 0;
}

static int print(struct ds_report_maker *m, struct ds_error *err)
{
    struct ds_buf title = {0}, made = {0}, out = {0};
    int rc = 0;
    if (m->figure && m->file.len == 0)
        rc = ds_fail(err, "the record has no figure '%s'", m->figure);
    else if (m->figure)
        rc = ds_cli_emit(m->o, &m->file, err);
    else {
        ds_buf_puts(&title, "driftscope report");
        if (m->n_records == 1) {
            const char *path = ds_opt_operand(m->o, 0), *slash = strrchr(path, '/');
            ds_buf_puts(&title, ": ");
            ds_buf_escape(&title, slash ? slash + 1 : path, (size_t)-1);
        } else
            ds_buf_printf(&title, ": %zu records", m->n_records);
        ds_buf_printf(&made, "Made by driftscope %s (%s) with: ", ds_cli_version(), ds_cli_build());
        ds_buf_puts(&made, ds_opt_command(m->o));
        ds_page_print(&m->page, title.data ? title.data : "", made.data ? made.data : "", &out);
        out.failed |= title.failed | made.failed;
        rc = ds_cli_emit(m->o, &out, err);
    }
    ds_buf_free(&title);
    ds_buf_free(&made);
    ds_buf_free(&out);
    return rc;
}

static int make(struct ds_report_maker *m, struct ds_error *err)
{
    if (read_options(m, err) != 0 || sort_records(m, err) != 0 ||
        (ds_opt_text(m->o, "model") && ds_plan_model(m->o, NULL, &m->plan, err) != 0) ||
        (m->n_records > 1 && ds_report_times_new(&m->times, err) != 0))
        return -1;
    for (m->record = 0; m->record < m->n_records; m->record++) {
        ds_cli_progress(m->o, "records", (double)m->record, (double)m->n_records);
        if (add_record(m, m->paths[m->record], err) != 0)
            return -1;
    }
    if (m->times && ds_report_times_place(m, m->times, err) != 0)
        return -1;
    return print(m, err);
}

int ds_verb_report(const struct ds_options *o)
{
    struct ds_report_maker m = {.o = o};
    struct ds_error err = {{0}, {0}};
    const int rc = make(&m, &err);
    ds_cli_progress(o, NULL, -1, 0);
    ds_page_free(&m.page);
    ds_report_times_free(m.times);
    ds_run_plan_free(&m.plan);
    free((void *)m.paths);
    free(m.concurrency);
    ds_buf_free(&m.file);
    return rc == 0 ? DS_EXIT_SAME : ds_cli_error(o, &err);
}
