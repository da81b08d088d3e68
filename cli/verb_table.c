/* verb_table.c: `driftscope table REC...`: a row for each observation (what one request of one trial chose) of many
 * records, and the figures of their groups. Records are read one after another and trial by trial, and rows go to a file that
 * is printed when all were read: memory does not grow with their number, and a damaged record leaves no half
 * answer. What the figures are is dumps/metrics'. */
#include "cli/table.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/names.h"
#include "dumps/storm.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_REQUESTS = 1000000, FLUSH_AT = 1 << 20 };
/* What unsettled groups may take. */
static const uint64_t most_memory = (uint64_t)1 << 30;

enum form { FORM_TEXT = 0, FORM_TSV, FORM_METRICS_TSV, FORM_JSON };

struct table {
    const struct ds_options *o;
    enum form form;
    struct ds_table_columns columns;
    size_t *by; /* columns that tell groups apart */
    size_t n_by;
    int by_record;
    struct ds_metrics *metrics;
    struct ds_buf rows, group; /* rows that are not in `spool` yet */
    FILE *spool;
    struct ds_table_result result;
};

/* ---- output that does not fit in memory ------------------------------------------------------ */

static int flush_rows(struct table *t, struct ds_error *err)
{
    if (t->rows.failed)
        return ds_fail(err, "out of memory for the result");
    if (t->rows.len > 0 && fwrite(t->rows.data, 1, t->rows.len, t->spool) != t->rows.len)
        return ds_fail(err, "cannot write to a temporary file: %s", strerror(errno));
    t->rows.len = 0;
    return 0;
}

/* Prints the file as one text: its pages are the file's, not this process's. */
static int emit_spool(struct table *t, struct ds_error *err)
{
    if (flush_rows(t, err) != 0)
        return -1;
    if (fflush(t->spool) != 0)
        return ds_fail(err, "cannot write to a temporary file: %s", strerror(errno));
    const off_t size = ftello(t->spool);
    if (size <= 0)
        return size < 0 ? ds_fail(err, "a temporary file: %s", strerror(errno)) : 0;
    void *map = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fileno(t->spool), 0);
    if (map == MAP_FAILED)
        return ds_fail(err, "a temporary file: %s", strerror(errno));
    const struct ds_buf all = {.data = map, .len = (size_t)size};
    const int rc = ds_cli_emit(t->o, &all, err);
    munmap(map, (size_t)size);
    return rc;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int find_column(const struct table *t, const char *name, size_t *out, struct ds_error *err)
{
    const size_t n = ds_table_column_count(&t->columns);
    const char **names = ds_calloc(n, sizeof *names, "columns", err);
    size_t usable = 0;
    if (!names)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (!ds_table_column_groups(&t->columns, i))
            continue;
        names[usable++] = ds_table_column_name(&t->columns, i);
        if (strcmp(names[usable - 1], name) == 0) {
            *out = i;
            free((void *)names);
            return 0;
        }
    }
    ds_fail(err, "--by: no column '%.80s' that could tell groups apart", name);
    const int near = ds_nearest(name, names, usable);
    if (near >= 0)
        ds_hint(err, "did you mean '%s'?", names[near]);
    else
        ds_hint(err, "the first line of `table --tsv` has the columns: those before prompt_tokens");
    free((void *)names);
    return -1;
}

static int choose_groups(struct table *t, struct ds_error *err)
{
    char *list = strdup(ds_opt_text(t->o, "by")), *rest = list;
    int rc = list ? 0 : ds_fail(err, "out of memory");
    for (const char *name; rc == 0 && (name = strsep(&rest, ","));) {
        rc = ds_grow_by_one(&t->by, t->n_by, sizeof *t->by, "groups", err);
        if (rc == 0)
            rc = find_column(t, name, &t->by[t->n_by], err);
        if (rc == 0)
            t->by_record |= strcmp(name, "record") == 0;
        t->n_by += rc == 0;
    }
    free(list);
    return rc;
}

/* The values of the columns that tell groups apart, as TSV. */
static int name_group(struct table *t, const struct ds_observation *o, struct ds_error *err)
{
    struct ds_cell cell;
    t->group.len = 0;
    ds_buf_puts(&t->group, "");
    for (size_t i = 0; i < t->n_by; i++) {
        ds_table_cell(&t->columns, t->by[i], o, &cell);
        ds_buf_puts(&t->group, i ? "\t" : "");
        ds_cell_tsv(&cell, &t->group);
    }
    return t->group.failed || !t->group.data ? ds_fail(err, "out of memory for a group") : 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void head_row(struct table *t)
{
    const size_t n = ds_table_column_count(&t->columns);
    if (t->form == FORM_JSON)
        ds_buf_puts(&t->rows, "{\"schema\": \"driftscope.table/1\", \"rows\": [");
    for (size_t i = 0; t->form == FORM_TSV && i < n; i++) {
        ds_buf_puts(&t->rows, i ? "\t" : "");
        ds_buf_escape(&t->rows, ds_table_column_name(&t->columns, i), (size_t)-1);
    }
    ds_buf_puts(&t->rows, t->form == FORM_TSV ? "\n" : "");
}

static int row_json(struct table *t, const struct ds_observation *o, struct ds_error *err)
{
    struct ds_cell cell;
    ds_json_begin();
    json_t *j = json_object(), *factors = json_object();
    for (size_t i = 0; i < ds_table_column_count(&t->columns); i++) {
        const int factor = ds_table_column_is_factor(&t->columns, i);
        struct ds_buf name = {0}; /* a factor's may be no text that JSON takes */
        ds_table_cell(&t->columns, i, o, &cell);
        ds_buf_escape(&name, ds_table_column_name(&t->columns, i), (size_t)-1);
        if (!factor || cell.kind != DS_CELL_NONE)
            json_object_set_new(factor ? factors : j, name.data ? name.data : "",
                                ds_cell_json(&cell));
        t->rows.failed |= name.failed;
        ds_buf_free(&name);
    }
    json_object_set_new(j, "factors", factors);
    ds_buf_puts(&t->rows, t->result.observations ? ",\n" : "\n");
    return ds_json_print_line(j, &t->rows, err);
}

static int add_row(struct table *t, const struct ds_observation *o, struct ds_error *err)
{
    struct ds_cell cell;
    if (t->form == FORM_JSON && row_json(t, o, err) != 0)
        return -1;
    for (size_t i = 0; t->form == FORM_TSV && i < ds_table_column_count(&t->columns); i++) {
        ds_table_cell(&t->columns, i, o, &cell);
        ds_buf_puts(&t->rows, i ? "\t" : "");
        ds_cell_tsv(&cell, &t->rows);
    }
    ds_buf_puts(&t->rows, t->form == FORM_TSV ? "\n" : "");
    t->result.observations++;
    return t->rows.len > FLUSH_AT || t->rows.failed ? flush_rows(t, err) : 0;
}

/* ---- records --------------------------------------------------------------------------------- */

/* Request r of a serving run has prompt r modulo their number; of a sweep the prompt says whose it is. */
static const struct ds_prompt *prompt_of(const struct ds_header *h, int32_t request)
{
    int serving = 0;
    for (size_t i = 0; i < h->n_options; i++)
        serving |= strcmp(h->options[i].name, "serve_schedule") == 0;
    if (serving)
        return h->n_prompts ? &h->prompts[(size_t)request % h->n_prompts] : NULL;
    for (size_t i = 0; i < h->n_prompts; i++)
        if (h->prompts[i].request == request)
            return &h->prompts[i];
    return NULL;
}

/* Prompts are told apart by their tokens and by the model that reads them. */
static uint64_t example_of(const struct ds_observation *o)
{
    const uint64_t parts[2] = {o->h->model_digest, o->prompt_digest};
    return ds_hash(parts, sizeof parts);
}

static int add_observation(struct table *t, struct ds_observation *o, struct ds_error *err)
{
    if (!(o->prompt = prompt_of(o->h, o->request)))
        return ds_fail(err, "request %d chose tokens and has no prompt", o->request);
    o->prompt_digest = ds_hash(o->prompt->tokens, o->prompt->n_tokens * sizeof *o->prompt->tokens);
    if (name_group(t, o, err) != 0 || ds_metrics_add(t->metrics, t->group.data, example_of(o),
                                                     o->steps, o->n_steps, &o->row, err) != 0)
        return -1;
    return add_row(t, o, err);
}

static int add_trial(struct table *t, const char *path, const struct ds_header *h,
                     const struct ds_trial_data *data, struct ds_error *err)
{
    size_t n_requests = 0, *begin;
    const struct ds_step **steps;
    for (size_t i = 0; i < data->n_steps; i++)
        if (data->steps[i].request >= 0 && (size_t)data->steps[i].request >= n_requests)
            n_requests = (size_t)data->steps[i].request + 1;
    if (n_requests > MOST_REQUESTS)
        return ds_fail(err, "a step of request %zu", n_requests - 1);
    if (n_requests == 0) {
        t->result.trials_left_out++;
        return 0;
    }
    if (ds_storm_steps(data, n_requests, &begin, &steps, err) != 0)
        return -1;
    int rc = 0;
    for (size_t r = 0; rc == 0 && r < n_requests; r++) {
        struct ds_observation o = {.path = path,
                                   .h = h,
                                   .t = &data->info,
                                   .request = (int32_t)r,
                                   .steps = steps + begin[r],
                                   .n_steps = begin[r + 1] - begin[r],
                                   .trial_steps = data->n_steps};
        if (o.n_steps > 0)
            rc = add_observation(t, &o, err);
    }
    free(begin);
    free((void *)steps);
    return rc;
}

/* By arm, then repeat: the first one is the reference, whatever order they were run in. */
struct place {
    uint32_t arm, repeat;
    size_t trial;
};
static int by_arm(const void *pa, const void *pb)
{
    const struct place *a = pa, *b = pb;
    return a->arm != b->arm         ? (a->arm < b->arm ? -1 : 1)
           : a->repeat != b->repeat ? (a->repeat < b->repeat ? -1 : 1)
                                    : (a->trial > b->trial) - (a->trial < b->trial);
}

static int add_trials(struct table *t, const char *path, struct ds_record *r, struct ds_error *err)
{
    const size_t n = ds_record_trial_count(r);
    size_t natural = 0;
    struct place *order = ds_calloc(n, sizeof *order, "trials", err);
    int rc = order ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct ds_trial *info = ds_record_trial(r, i);
        if (info->pass == DS_PASS_NATURAL)
            order[natural++] = (struct place){info->arm, info->repeat, i};
        t->result.trials_left_out += info->pass == DS_PASS_FAILED;
    }
    if (rc == 0)
        qsort(order, natural, sizeof *order, by_arm);
    for (size_t i = 0; rc == 0 && i < natural; i++) {
        const struct ds_trial_data *data = ds_record_load(r, order[i].trial, err);
        rc = data ? add_trial(t, path, ds_record_header(r), data, err) : -1;
        ds_record_forget(r, order[i].trial, DS_FORGET_ALL);
    }
    free(order);
    return rc;
}

static int add_record(struct table *t, const char *path, struct ds_error *err)
{
    struct ds_record *r;
    if (ds_record_open(path, &r, err) != 0)
        return -1;
    int rc = add_trials(t, path, r, err);
    if (rc == 0 && ds_record_damaged(r) > 0)
        rc = ds_fail(err, "%zu of its trials are damaged", ds_record_damaged(r));
    if (rc == 0 && ds_record_incomplete(r) > 0)
        ds_cli_note(t->o, "%s: trials left out since they were cut short: %zu", path,
                    ds_record_incomplete(r));
    if (rc != 0)
        ds_prefix(err, "%s", path);
    ds_record_close(r);
    return rc != 0 || !t->by_record ? rc : ds_metrics_settle(t->metrics, err);
}

static int read_columns(struct table *t, const char *path, struct ds_error *err)
{
    struct ds_record *r;
    if (ds_record_open(path, &r, err) != 0)
        return -1;
    const int rc = ds_table_columns_add(&t->columns, ds_record_header(r), err);
    ds_record_close(r);
    return rc;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int read_form(struct table *t, struct ds_error *err)
{
    const int tsv = ds_opt_flag(t->o, "tsv"), json = ds_opt_flag(t->o, "json"),
              metrics = ds_opt_flag(t->o, "metrics");
    if (tsv && json)
        return ds_fail(err, "--tsv and --json: give one");
    if (metrics && !tsv)
        return ds_fail(err, "--metrics needs --tsv: text and --json have the figures anyway");
    t->form = json ? FORM_JSON : tsv && metrics ? FORM_METRICS_TSV : tsv ? FORM_TSV : FORM_TEXT;
    return 0;
}

static int start(struct table *t, struct ds_error *err)
{
    int64_t seed;
    if (read_form(t, err) != 0 || ds_opt_int(t->o, "seed", 0, INT32_MAX, &seed, err) != 0)
        return -1;
    t->result.seed = (uint64_t)seed;
    for (size_t i = 0; i < ds_opt_operands(t->o); i++)
        if (read_columns(t, ds_opt_operand(t->o, i), err) != 0)
            return -1;
    if (choose_groups(t, err) != 0 ||
        ds_metrics_new((uint64_t)seed, most_memory, &t->metrics, err) != 0)
        return -1;
    if (!(t->spool = tmpfile()))
        return ds_fail(err, "cannot make a temporary file: %s", strerror(errno));
    head_row(t);
    return 0;
}

static int finish(struct table *t, struct ds_error *err)
{
    const char **by = ds_calloc(t->n_by, sizeof *by, "groups", err);
    if (!by)
        return -1;
    for (size_t i = 0; i < t->n_by; i++)
        by[i] = ds_table_column_name(&t->columns, t->by[i]);
    t->result.o = t->o;
    t->result.metrics = t->metrics;
    t->result.by = by;
    t->result.n_by = t->n_by;
    t->result.records = ds_opt_operands(t->o);
    int rc = 0;
    if (t->form == FORM_TEXT)
        ds_table_text(&t->result, &t->rows);
    else if (t->form == FORM_METRICS_TSV)
        ds_table_metrics_tsv(&t->result, &t->rows);
    else if (t->form == FORM_JSON)
        rc = ds_table_metrics_json(&t->result, &t->rows, err);
    free((void *)by);
    return rc == 0 ? emit_spool(t, err) : -1;
}

static int make(struct table *t, struct ds_error *err)
{
    if (start(t, err) != 0)
        return -1;
    const size_t n = ds_opt_operands(t->o);
    for (size_t i = 0; i < n; i++) {
        ds_cli_progress(t->o, "records", (double)i, (double)n);
        if (add_record(t, ds_opt_operand(t->o, i), err) != 0)
            return -1;
    }
    if (t->result.observations == 0)
        return ds_fail(err, "no trial of %s chose a token",
                       n == 1 ? "the record" : "these records");
    return ds_metrics_settle(t->metrics, err) != 0 ? -1 : finish(t, err);
}

int ds_verb_table(const struct ds_options *o)
{
    struct table t = {.o = o};
    struct ds_error err = {{0}, {0}};
    const int rc = make(&t, &err);
    ds_cli_progress(o, NULL, -1, 0);
    ds_metrics_free(t.metrics);
    ds_table_columns_free(&t.columns);
    free(t.by);
    ds_buf_free(&t.rows);
    ds_buf_free(&t.group);
    if (t.spool)
        fclose(t.spool);
    return rc == 0 ? DS_EXIT_SAME : ds_cli_error(o, &err);
}
