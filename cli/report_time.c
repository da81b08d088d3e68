/* report_time.c: what each record answered to each prompt at each setting, gathered while records are read, in the order of
 * their times. Owns which answers are of one series: equal prompts (tokens) at equal values of all factors; and which
 * series are a family: equal but for the concurrency. The drawing is report/figure_time.c's. See report.h. */
#include "cli/report.h"

#include "base/hash.h"
#include "base/mem.h"
#include "dumps/metrics.h"
#include "dumps/storm.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_REQUESTS = 100000, MOST_SERIES = 20000 };
#define CONCURRENCY DS_REPORT_CONCURRENCY

/* One answer of a series in a record. */
struct answer {
    size_t point;
    uint64_t completion, logits;
};

struct ds_report_times {
    /* A group is a series: the first record's answer is the reference. */
    struct ds_metrics *metrics, *families;
    struct ds_report_changes *changes;
    struct ds_time_record *records;
    char **keys;   /* [n_series], escaped: also what is shown */
    char **titles; /* [n_series] the beginning of the prompt, escaped; "": it has no text */
    size_t n_records, n_series;
    struct ds_time_point *points;
    double *across; /* [n_points] how far off the family's first record it is */
    size_t n_points;
    struct answer *answers;
    size_t n_answers, cap_answers;
};

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
            ds_buf_puts(out, CONCURRENCY);
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
static const char *concurrency_of(const char *key, size_t *n)
{
    const char *at = strstr(key, ", " CONCURRENCY);
    *n = at ? 2 + strcspn(at + 2, ",") : 0;
    return at;
}

/* The key of a family: without the concurrency. */
static char *family_of(const char *key, struct ds_error *err)
{
    size_t n;
    const char *at = concurrency_of(key, &n);
    char *out = strdup(key);
    if (!out)
        ds_fail(err, "out of memory for a series");
    else if (at)
        memmove(out + (at - key), at + n, strlen(at + n) + 1);
    return out;
}

static uint64_t mix(uint64_t sum, uint64_t next)
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
    char *family = p ? family_of(key, err) : NULL;
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
    struct answer *x = &t->answers[t->n_answers++];
    *x = (struct answer){.point = (size_t)(p - t->points), .completion = row.completion};
    for (size_t i = 0; i < n; i++)
        x->logits = mix(x->logits, steps[i]->digest);
    return 0;
}

static int by_completion(const void *pa, const void *pb)
{
    const struct answer *a = pa, *b = pb;
    if (a->point != b->point)
        return a->point < b->point ? -1 : 1;
    return (a->completion > b->completion) - (a->completion < b->completion);
}

static int by_logits(const void *pa, const void *pb)
{
    const struct answer *a = pa, *b = pb;
    if (a->point != b->point)
        return a->point < b->point ? -1 : 1;
    return (a->logits > b->logits) - (a->logits < b->logits);
}

/* What a record answered is which answers it gave, each once: how many requests asked changes nothing. */
static void join_answers(struct ds_report_times *t)
{
    if (t->n_answers == 0)
        return;
    for (size_t i = 0; i < t->n_points; i++)
        t->points[i].completion = t->points[i].logits = 0;
    qsort(t->answers, t->n_answers, sizeof *t->answers, by_completion);
    for (size_t i = 0; i < t->n_answers; i++)
        if (i == 0 || by_completion(&t->answers[i - 1], &t->answers[i]) != 0) {
            struct ds_time_point *p = &t->points[t->answers[i].point];
            p->completion = mix(p->completion, t->answers[i].completion);
        }
    qsort(t->answers, t->n_answers, sizeof *t->answers, by_logits);
    for (size_t i = 0; i < t->n_answers; i++)
        if (i == 0 || by_logits(&t->answers[i - 1], &t->answers[i]) != 0) {
            struct ds_time_point *p = &t->points[t->answers[i].point];
            p->logits = mix(p->logits, t->answers[i].logits);
        }
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

/* Whether all series that are charted have the part of n bytes, as one of their own. */
static int is_common(const struct ds_report_times *t, const unsigned char *charted,
                     const char *part, size_t n)
{
    for (size_t s = 0; s < t->n_series; s++) {
        const char *at = t->keys[s];
        if (!charted[s])
            continue;
        for (;;) {
            const char *end = strstr(at, ", ");
            const size_t len = end ? (size_t)(end - at) : strlen(at);
            if (len == n && memcmp(at, part, n) == 0)
                break;
            if (!end)
                return 0;
            at = end + 2;
        }
    }
    return 1;
}

static int is_only_title(const struct ds_report_times *t, size_t series)
{
    size_t len = strcspn(t->keys[series], ",");
    for (size_t s = 0; s < t->n_series; s++)
        if (strcmp(t->titles[s], t->titles[series]) == 0 &&
            strncmp(t->keys[s], t->keys[series], len) != 0)
            return 0;
    return t->titles[series][0] != '\0';
}

/* [n_series] of families that more than one record has. malloc'ed. */
static unsigned char *find_charted(const struct ds_report_times *t, const size_t *family,
                                   struct ds_error *err)
{
    unsigned char *charted = ds_calloc(t->n_series, 1, "series", err);
    size_t *first = charted ? ds_calloc(t->n_series, sizeof *first, "series", err) : NULL;
    if (!first) {
        free(charted);
        return NULL;
    }
    for (size_t i = 0; i < t->n_points; i++) { /* points come in the order of records */
        const size_t f = family[t->points[i].series], record = t->points[i].record + 1;
        charted[f] |= first[f] && first[f] != record;
        first[f] = first[f] ? first[f] : record;
    }
    for (size_t s = t->n_series; s-- > 0;)
        charted[s] = charted[family[s]]; /* a family's number is that of its first series */
    free(first);
    return charted;
}

/* What tells a series from the others, and the concurrency in any case. A prompt by its first words, where these are no other one's. */
static char *short_name(const struct ds_report_times *t, const unsigned char *charted,
                        size_t series)
{
    const char *key = t->keys[series];
    struct ds_buf out = {0};
    for (const char *at = key, *end = at; end; at = end + 2) {
        end = strstr(at, ", ");
        const size_t n = end ? (size_t)(end - at) : strlen(at);
        if (strncmp(at, CONCURRENCY, strlen(CONCURRENCY)) != 0 && is_common(t, charted, at, n))
            continue;
        ds_buf_puts(&out, out.len ? ", " : "");
        if (at == key && is_only_title(t, series))
            ds_buf_puts(&out, t->titles[series]);
        else
            ds_buf_add(&out, at, n);
    }
    if (!out.data)
        ds_buf_puts(&out, "all");
    if (!out.failed)
        return out.data;
    ds_buf_free(&out);
    return NULL;
}

/* Which series are the same but for the concurrency, and what that is. */
static int find_families(const struct ds_report_times *t, size_t *family, char **concurrency,
                         struct ds_error *err)
{
    char **keys = ds_calloc(t->n_series, sizeof *keys, "series", err);
    int rc = keys ? 0 : -1;
    for (size_t s = 0; rc == 0 && s < t->n_series; s++) {
        size_t n;
        const char *at = concurrency_of(t->keys[s], &n);
        const size_t skipped = 2 + strlen(CONCURRENCY);
        keys[s] = family_of(t->keys[s], err);
        concurrency[s] = at ? strndup(at + skipped, n - skipped) : strdup("");
        if (!keys[s] || !concurrency[s])
            rc = ds_fail(err, "out of memory for a series");
        for (family[s] = 0; rc == 0 && strcmp(keys[family[s]], keys[s]) != 0;)
            family[s]++;
    }
    for (size_t s = 0; keys && s < t->n_series; s++)
        free(keys[s]);
    free(keys);
    return rc;
}

/* At a concurrency that is new, what is known is how far off the family is. */
static void join_divergences(struct ds_report_times *t, const size_t *family)
{
    for (size_t i = 0; i < t->n_points; i++) {
        int first = 1, other = 0;
        for (size_t k = 0; k < t->n_points && t->points[k].record < t->points[i].record; k++) {
            first &= t->points[k].series != t->points[i].series;
            other |= family[t->points[k].series] == family[t->points[i].series];
        }
        if (first && other)
            t->points[i].divergence = t->across[i];
    }
}

int ds_report_times_place(struct ds_report_maker *m, struct ds_report_times *t,
                          struct ds_error *err)
{
    struct ds_figure f = {0};
    if (t->n_points == 0)
        return 0;
    join_answers(t);
    char **names = ds_calloc(t->n_series, sizeof *names, "series", err);
    char **concurrency = ds_calloc(t->n_series, sizeof *concurrency, "series", err);
    size_t *family = ds_calloc(t->n_series, sizeof *family, "series", err);
    int rc = names && concurrency && family ? find_families(t, family, concurrency, err) : -1;
    unsigned char *charted = rc == 0 ? find_charted(t, family, err) : NULL;
    rc = charted ? 0 : -1;
    if (rc == 0)
        join_divergences(t, family);
    for (size_t s = 0; rc == 0 && s < t->n_series; s++)
        if (!(names[s] = short_name(t, charted, s)))
            rc = ds_fail(err, "out of memory for a series");
    const struct ds_time time = {.records = t->records,
                                 .n_records = t->n_records,
                                 .series = (const char *const *)t->keys,
                                 .names = (const char *const *)names,
                                 .family = family,
                                 .concurrency = (const char *const *)concurrency,
                                 .n_series = t->n_series,
                                 .points = t->points,
                                 .n_points = t->n_points};
    ds_page_figure_id(&m->page, &f);
    if (rc == 0 && (rc = ds_figure_time(&time, &f, err)) == 0)
        rc = ds_report_place_figure(m, &f, -1, 1, err);
    if (rc == 0)
        ds_report_changes_place(m, t->changes);
    ds_figure_free(&f);
    for (size_t s = 0; s < t->n_series; s++) {
        if (names)
            free(names[s]);
        if (concurrency)
            free(concurrency[s]);
    }
    free(names);
    free(concurrency);
    free(family);
    free(charted);
    return rc;
}
