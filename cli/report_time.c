/* report_time.c: what each record answered to each prompt at each setting, gathered while records are read, in the order of
 * their times. Owns which answers are of one series: equal prompts (tokens) at equal values of all factors; and which
 * series are a family: equal but for the concurrency. Names and families on the page are report_time_place.c's, the drawing report/figure_time.c's. See report.h. */
#include "cli/report_time.h"

#include "base/hash.h"
#include "base/mem.h"
#include "dumps/metrics.h"
#include "dumps/storm.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_REQUESTS = 100000, MOST_SERIES = 20000 };

int ds_report_times_new(struct ds_report_times **out, struct ds_error *err)
{
    if (!(*out = ds_calloc(1, sizeof **out, "times", err)))
        return -1;
    return ds_report_changes_new(&(*out)->changes, err) != 0 ? -1
           : ds_metrics_new(1, (uint64_t)1 << 30, &(*out)->metrics, err) != 0 ||
                   ds_metrics_new(1, (uint64_t)1 << 30, &(*out)->families, err) != 0
               ? -1
               : 0;
}

void ds_report_times_free(struct ds_report_times *t)
{
    for (size_t i = 0; t && i < t->n_records; i++) {
        free((void *)t->records[i].start);
        free((void *)t->records[i].version);
        free((void *)t->records[i].path);
        free((void *)t->records[i].changed);
    }
    for (size_t i = 0; t && i < t->n_series; i++) {
        free(t->keys[i]);
        free(t->titles[i]);
    }
    if (t) {
        ds_report_changes_free(t->changes);
        free(t->titles);
        ds_metrics_free(t->metrics);
        ds_metrics_free(t->families);
        free(t->across);
        free(t->records);
        free(t->keys);
        free(t->points);
        free(t->answers);
    }
    free(t);
}

/* ---- series ---------------------------------------------------------------------------------- */

/* "prompt 1a2b3c4d, concurrency 4, kernels split": the values that are no default of the factor's. The batch is how many
 * are served at a time, in a sweep as in a storm. */
static void name_series(const struct ds_header *h, uint32_t arm, uint64_t prompt,
                        struct ds_buf *out)
{
    static const char *const plain[][2] = {
        {"slot", "first"}, {"neighbours", "copies"}, {"padding", "0"},
        {"chunk", "0"},    {"mode", "prefill"},      {"prefix", "0"},
        {"device", "cpu"}, {"process", "1"},         {"blas-core", ""}};
    ds_buf_printf(out, "prompt %08" PRIx64, prompt >> 32);
    for (size_t f = 0; f < h->n_factors; f++) {
        const char *value = h->arms[arm].values[f];
        int told = value[0] != '\0';
        for (size_t k = 0; k < sizeof plain / sizeof *plain; k++)
            told &= strcmp(plain[k][0], h->factors[f]) != 0 || strcmp(plain[k][1], value) != 0;
        if (!told)
            continue;
        ds_buf_puts(out, ", ");
        if (strcmp(h->factors[f], "batch") == 0)
            ds_buf_puts(out, DS_REPORT_CONCURRENCY);
        else {
            ds_buf_escape(out, h->factors[f], (size_t)-1);
            ds_buf_puts(out, " ");
        }
        ds_buf_escape(out, value, (size_t)-1);
    }
    ds_buf_puts(out, ", model ");
    ds_buf_escape(out, h->model_name, (size_t)-1);
}

/* A few words of a prompt. */
static char *title_of(const char *text)
{
    enum { MOST = 20 };
    struct ds_buf out = {0};
    size_t n = 0, shown = 0;
    for (int step; text[n] && shown < MOST; n += (size_t)step, shown++)
        if ((step = ds_utf8_len(text + n, strlen(text + n))) <= 0)
            step = 1;
    ds_buf_escape(&out, text, n);
    ds_buf_puts(&out, text[n] ? "..." : "");
    if (!out.failed && out.data)
        return out.data;
    ds_buf_free(&out);
    return NULL;
}

static int find_series(struct ds_report_times *t, const char *key, const char *text, size_t *out,
                       struct ds_error *err)
{
    for (*out = 0; *out < t->n_series; ++*out)
        if (strcmp(t->keys[*out], key) == 0)
            return 0;
    if (t->n_series >= MOST_SERIES)
        return ds_fail(err, "more than %d prompts and settings", MOST_SERIES);
    if (ds_grow_by_one(&t->keys, t->n_series, sizeof *t->keys, "series", err) != 0 ||
        ds_grow_by_one(&t->titles, t->n_series, sizeof *t->titles, "series", err) != 0)
        return -1;
    t->keys[t->n_series] = strdup(key);
    t->titles[t->n_series] = title_of(text);
    if (t->keys[t->n_series] && t->titles[t->n_series]) {
        t->n_series++;
        return 0;
    }
    free(t->keys[t->n_series]);
    free(t->titles[t->n_series]);
    return ds_fail(err, "out of memory for a series");
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The point of this record in a series; a new one where there is none yet. NULL: no memory. */
static struct ds_time_point *point_of(struct ds_report_times *t, size_t series,
                                      struct ds_error *err)
{
    const size_t record = t->n_records - 1;
    for (size_t i = t->n_points; i-- > 0 && t->points[i].record == record;)
        if (t->points[i].series == series)
            return &t->points[i];
    if (ds_grow_by_one(&t->points, t->n_points, sizeof *t->points, "answers", err) != 0 ||
        ds_grow_by_one(&t->across, t->n_points, sizeof *t->across, "answers", err) != 0)
        return NULL;
    t->across[t->n_points] = (double)NAN;
    t->points[t->n_points] =
        (struct ds_time_point){.record = record, .series = series, .divergence = (double)NAN};
    return &t->points[t->n_points++];
}

/* Of a key: where the concurrency stands in it, with the ", " before it, and how many bytes that is. NULL: nowhere. */
const char *ds_report_times_concurrency(const char *key, size_t *n)
{
    const char *at = strstr(key, ", " DS_REPORT_CONCURRENCY);
    *n = at ? 2 + strcspn(at + 2, ",") : 0;
    return at;
}

/* The key of a family: without the concurrency. */
char *ds_report_times_family(const char *key, struct ds_error *err)
{
    size_t n;
    const char *at = ds_report_times_concurrency(key, &n);
    char *out = strdup(key);
    if (!out)
        ds_fail(err, "out of memory for a series");
    else if (at)
        memmove(out + (at - key), at + n, strlen(at + n) + 1);
    return out;
}

uint64_t ds_report_times_mix(uint64_t sum, uint64_t next)
{
    const uint64_t both[2] = {sum, next};
    return ds_hash(both, sizeof both);
}

/* Several answers of one series in one record are one point; the first one's probabilities are told. */
int ds_report_times_answer(struct ds_report_times *t, const char *key, const char *text,
                           uint64_t id, const struct ds_step *const *steps, size_t n,
                           struct ds_error *err)
{
    struct ds_metrics_row row, across;
    size_t series = 0;
    struct ds_time_point *p =
        find_series(t, key, text, &series, err) == 0 ? point_of(t, series, err) : NULL;
    char *family = p ? ds_report_times_family(key, err) : NULL;
    const int rc = !family || ds_metrics_add(t->metrics, key, id, steps, n, &row, err) != 0 ||
                           ds_metrics_add(t->families, family, id, steps, n, &across, err) != 0 ||
                           ds_grow(&t->answers, &t->cap_answers, t->n_answers + 1,
                                   sizeof *t->answers, "answers", err) != 0
                       ? -1
                       : 0;
    free(family);
    if (rc != 0)
        return -1;
    if (isnan(p->divergence)) {
        p->divergence = row.prob_divergence;
        t->across[p - t->points] = across.prob_divergence;
    }
    struct ds_time_answer *x = &t->answers[t->n_answers++];
    *x = (struct ds_time_answer){.point = (size_t)(p - t->points), .completion = row.completion};
    for (size_t i = 0; i < n; i++)
        x->logits = ds_report_times_mix(x->logits, steps[i]->digest);
    return 0;
}

/* Requests of one prompt in one trial are of one series. */
static int add_answer(struct ds_report_times *t, const struct ds_header *h, uint32_t arm,
                      const struct ds_prompt *prompt, const struct ds_step *const *steps, size_t n,
                      struct ds_error *err)
{
    const uint64_t id = ds_hash(prompt->tokens, prompt->n_tokens * sizeof *prompt->tokens);
    struct ds_buf key = {0};
    name_series(h, arm, id, &key);
    const int rc = key.failed
                       ? ds_fail(err, "out of memory for a series")
                       : ds_report_times_answer(t, key.data, prompt->text ? prompt->text : "", id,
                                                steps, n, err);
    ds_buf_free(&key);
    return rc;
}

int ds_report_times_trial(struct ds_report_times *t, const struct ds_header *h,
                          const struct ds_trial_data *data, struct ds_error *err)
{
    const int serving = ds_report_is_serving(h);
    size_t n_requests = 0, *begin;
    const struct ds_step **steps;
    for (size_t i = 0; i < data->n_steps; i++)
        if (data->steps[i].request >= 0 && (size_t)data->steps[i].request >= n_requests)
            n_requests = (size_t)data->steps[i].request + 1;
    if (n_requests == 0 || n_requests > MOST_REQUESTS || data->info.repeat > 0)
        return 0;
    if (ds_storm_steps(data, n_requests, &begin, &steps, err) != 0)
        return -1;
    int rc = 0;
    for (size_t r = 0; rc == 0 && r < n_requests; r++) {
        const struct ds_prompt *prompt = NULL;
        for (size_t i = 0; !serving && i < h->n_prompts; i++)
            prompt = h->prompts[i].request == (int32_t)r ? &h->prompts[i] : prompt;
        if (serving && h->n_prompts)
            prompt = &h->prompts[r % h->n_prompts];
        if (prompt && begin[r + 1] > begin[r])
            rc = add_answer(t, h, data->info.arm, prompt, steps + begin[r], begin[r + 1] - begin[r],
                            err);
    }
    free(begin);
    free((void *)steps);
    return rc;
}

/* ---- records --------------------------------------------------------------------------------- */

static char *escaped(const char *a, const char *b, const char *c)
{
    struct ds_buf out = {0};
    ds_buf_escape(&out, a, (size_t)-1);
    ds_buf_puts(&out, b);
    ds_buf_escape(&out, c, (size_t)-1);
    if (!out.failed && out.data)
        return out.data;
    ds_buf_free(&out);
    return NULL;
}

static struct ds_time_record *add_record(struct ds_report_times *t, const char *path,
                                         const char *start, const char *version, const char *build,
                                         struct ds_error *err)
{
    if (ds_grow_by_one(&t->records, t->n_records, sizeof *t->records, "records", err) != 0)
        return NULL;
    struct ds_time_record *r = &t->records[t->n_records++];
    *r = (struct ds_time_record){.start = escaped(start, "", ""),
                                 .version = escaped(version, build[0] ? " " : "", build),
                                 .path = escaped(path, "", "")};
    if (r->start && r->version && r->path)
        return r;
    ds_fail(err, "out of memory for a record");
    return NULL;
}

int ds_report_times_record(struct ds_report_times *t, const char *path,
                           const struct ds_record *record, struct ds_error *err)
{
    const struct ds_header *h = ds_record_header(record);
    struct ds_buf changed = {0};
    struct ds_time_record *r = add_record(t, path, h->start, h->tool_version, h->build, err);
    if (!r)
        return -1;
    const int rc = ds_report_changes_record(t->changes, path, record, &changed, err);
    r->changed = changed.data;
    return rc;
}

int ds_report_times_texts(struct ds_report_times *t, const char *path, const char *start,
                          const char *version, const struct ds_text *texts, size_t n,
                          struct ds_error *err)
{
    struct ds_buf changed = {0};
    struct ds_time_record *r = add_record(t, path, start, version, "", err);
    if (!r)
        return -1;
    const int rc = ds_report_changes_texts(t->changes, path, start, texts, n, &changed, err);
    r->changed = changed.data;
    return rc;
}
