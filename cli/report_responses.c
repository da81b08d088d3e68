/* report_responses.c: what other systems answered, as files of responses with log-probabilities (fingerprint.h), over time: each file
 * is what a record is elsewhere. Responses are told apart by custom_id, else by their order, and by the concurrency that
 * their lines or --concurrency say. See report.h. */
#include "cli/fingerprint.h"
#include "cli/report.h"

#include "base/hash.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

int ds_report_is_responses(const char *path)
{
    FILE *f = fopen(path, "rb");
    int c = f ? fgetc(f) : EOF;
    while (c == ' ' || c == '\t' || c == '\r' || c == '\n')
        c = fgetc(f);
    if (f)
        fclose(f);
    return c == '{';
}

static int start_of(const struct ds_fp_file *f, char *out, size_t size, struct ds_error *err)
{
    struct stat st;
    struct tm tm;
    time_t when = (time_t)f->created;
    if (when == 0) {
        if (stat(f->path, &st) != 0)
            return ds_fail(err, "cannot tell when it was written");
        when = st.st_mtime;
    }
    return gmtime_r(&when, &tm) && strftime(out, size, "%Y-%m-%dT%H:%M:%SZ", &tm) > 0
               ? 0
               : ds_fail(err, "its time is no date");
}

int ds_report_responses_start(const char *path, char *out, size_t size, struct ds_error *err)
{
    struct ds_fp_file f = {0};
    int rc = ds_fp_read(path, &f, err);
    if (rc == 0 && start_of(&f, out, size, err) != 0)
        rc = ds_prefix(err, "%s", path);
    ds_fp_file_free(&f);
    return rc;
}

/* ---- a response as steps ----------------------------------------------------------------------- */

static int32_t number_of(uint64_t key)
{
    return (int32_t)(key & INT32_MAX);
}

/* Keeps the best ones, best first. */
static void put(struct ds_step *s, size_t *n, int32_t id, double logprob)
{
    size_t at = *n;
    for (size_t i = 0; i < *n; i++)
        if (s->ids[i] == id)
            return;
    if (!(logprob > -(double)INFINITY))
        return;
    for (; at > 0 && (double)s->logits[at - 1] < logprob; at--)
        if (at < DS_TOP) {
            s->ids[at] = s->ids[at - 1];
            s->logits[at] = s->logits[at - 1];
        }
    if (at >= DS_TOP)
        return;
    s->ids[at] = id;
    s->logits[at] = (float)logprob;
    *n += *n < DS_TOP;
}

/* Probabilities are those that were given: of a best one, and of those beside it. */
static void make_step(const struct ds_fp_token *t, int32_t number, struct ds_step *s)
{
    size_t n = 0;
    *s = (struct ds_step){.step = number, .token = number_of(t->key), .forced = -1};
    for (int k = 0; k < DS_TOP; k++)
        s->ids[k] = -1;
    put(s, &n, s->token, t->logprob);
    uint64_t sum = ds_hash(&t->logprob, sizeof t->logprob);
    for (size_t i = 0; i < t->n_alternatives; i++) {
        const struct ds_fp_alternative *a = &t->alternatives[i];
        const uint64_t both[] = {sum, a->key, ds_hash(&a->logprob, sizeof a->logprob)};
        put(s, &n, number_of(a->key), a->logprob);
        sum = ds_hash(both, sizeof both);
    }
    s->digest = sum;
    s->exp_sum = n ? (float)exp(-(double)s->logits[0]) : (float)NAN;
}

/* concurrency: of the file, where its line says none; 0: nobody does. */
static int add_sequence(struct ds_report_times *times, const struct ds_fp_sequence *q, size_t order,
                        int32_t concurrency, struct ds_error *err)
{
    char name[64], key[128], at_once[48] = "";
    struct ds_step *steps = ds_calloc(q->n_tokens, sizeof *steps, "tokens", err);
    const struct ds_step **list =
        steps ? ds_calloc(q->n_tokens, sizeof *list, "tokens", err) : NULL;
    if (!list) {
        free(steps);
        return -1;
    }
    snprintf(name, sizeof name, "response %zu", order + 1);
    const char *text = q->custom && q->request ? q->request : name;
    const uint64_t id = ds_hash(text, strlen(text));
    if (q->concurrency || concurrency)
        snprintf(at_once, sizeof at_once, ", " DS_REPORT_CONCURRENCY "%d",
                 q->concurrency ? q->concurrency : concurrency);
    snprintf(key, sizeof key, "prompt %08" PRIx64 "%s, choice %lld", id >> 32, at_once,
             (long long)q->choice);
    for (size_t i = 0; i < q->n_tokens; i++) {
        make_step(&q->tokens[i], (int32_t)i, &steps[i]);
        list[i] = &steps[i];
    }
    const int rc = ds_report_times_answer(times, key, text, id, list, q->n_tokens, err);
    free((void *)list);
    free(steps);
    return rc;
}

/* ---- a file ---------------------------------------------------------------------------------------- */

static void add_section(struct ds_report_maker *m, const struct ds_fp_file *f, const char *start)
{
    struct ds_buf sentence = {0}, facts = {0};
    size_t tokens = 0, counted = 0;
    double sum = 0;
    for (size_t i = 0; i < f->n; i++)
        for (size_t k = 0; k < f->sequences[i].n_tokens; k++) {
            const double x = f->sequences[i].tokens[k].logprob;
            tokens++;
            counted += isfinite(x);
            sum += isfinite(x) ? x : 0;
        }
    ds_buf_printf(&sentence, "%zu response%s, %zu tokens, mean log-probability ", f->n,
                  f->n == 1 ? "" : "s", tokens);
    if (counted)
        ds_buf_printf(&sentence, "%.4g", sum / (double)counted);
    else
        ds_buf_puts(&sentence, "not given");
    ds_buf_escape(&facts, f->model ? f->model : "model not said", (size_t)-1);
    ds_buf_puts(&facts, "; ");
    ds_buf_escape(&facts, start, (size_t)-1);
    ds_buf_puts(&facts, f->created ? "" : " (when the file was written)");
    ds_buf_puts(&facts, "; system fingerprint ");
    ds_buf_escape(&facts, f->system ? f->system : "not said", (size_t)-1);
    ds_page_begin(&m->page, f->path, start, facts.data ? facts.data : "",
                  sentence.data ? sentence.data : "", DS_ROLE_HEAD);
    ds_page_end_record(&m->page);
    m->page.body.failed |= sentence.failed | facts.failed;
    ds_buf_free(&sentence);
    ds_buf_free(&facts);
}

int ds_report_responses(struct ds_report_maker *m, const char *path, struct ds_error *err)
{
    struct ds_fp_file f = {0};
    char start[32];
    int rc = ds_fp_read(path, &f, err);
    if (rc == 0 && start_of(&f, start, sizeof start, err) != 0)
        rc = ds_prefix(err, "%s", path);
    if (rc == 0) {
        char *const model = f.model ? f.model : (char *)(uintptr_t) "",
                    *const system = f.system ? f.system : (char *)(uintptr_t) "";
        const struct ds_text texts[] = {{(char *)(uintptr_t) "model", model},
                                        {(char *)(uintptr_t) "system_fingerprint", system}};
        add_section(m, &f, start);
        rc =
            ds_report_times_texts(m->times, path, start, system[0] ? system : model, texts, 2, err);
    }
    for (size_t i = 0; rc == 0 && i < f.n; i++)
        if (f.sequences[i].n_tokens > 0)
            rc = add_sequence(m->times, &f.sequences[i], i, m->concurrency[m->record], err);
    ds_fp_file_free(&f);
    return rc;
}
