/* report_time_place.c: the answers that report_time.c gathered, on the page: which are the same letter or number, short names of
 * series, families that differ in the concurrency alone. The drawing is report/figure_time.c's. */
#include "cli/report_time.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static int by_completion(const void *pa, const void *pb)
{
    const struct ds_time_answer *a = pa, *b = pb;
    if (a->point != b->point)
        return a->point < b->point ? -1 : 1;
    return (a->completion > b->completion) - (a->completion < b->completion);
}

static int by_logits(const void *pa, const void *pb)
{
    const struct ds_time_answer *a = pa, *b = pb;
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
            p->completion = ds_report_times_mix(p->completion, t->answers[i].completion);
        }
    qsort(t->answers, t->n_answers, sizeof *t->answers, by_logits);
    for (size_t i = 0; i < t->n_answers; i++)
        if (i == 0 || by_logits(&t->answers[i - 1], &t->answers[i]) != 0) {
            struct ds_time_point *p = &t->points[t->answers[i].point];
            p->logits = ds_report_times_mix(p->logits, t->answers[i].logits);
        }
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
        if (strncmp(at, DS_REPORT_CONCURRENCY, strlen(DS_REPORT_CONCURRENCY)) != 0 &&
            is_common(t, charted, at, n))
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
        const char *at = ds_report_times_concurrency(t->keys[s], &n);
        const size_t skipped = 2 + strlen(DS_REPORT_CONCURRENCY);
        keys[s] = ds_report_times_family(t->keys[s], err);
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
