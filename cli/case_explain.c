/* case_explain.c: see case_explain.h. Runs nothing. */
#include "cli/case_explain.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORDS = 8 };

/* The word after `option` in a command; NULL. */
static const char *after(const struct ds_case_step *s, const char *option)
{
    for (size_t i = 0; i + 1 < s->argc; i++)
        if (strcmp(s->argv[i], option) == 0)
            return s->argv[i + 1];
    return NULL;
}

/* The `run` before step n that wrote this record. */
static const struct ds_case_step *writer_of(const struct ds_case *c, size_t n, const char *record)
{
    for (size_t i = n + 1; i-- > 0;) {
        const char *to = after(&c->steps[i], "-o");
        if (to && strcmp(to, record) == 0)
            return &c->steps[i];
    }
    return NULL;
}

static int add(char **words, size_t *n, const char *text, struct ds_error *err)
{
    if (*n + 1 >= MOST_WORDS)
        return ds_fail(err, "too many words");
    words[*n] = ds_case_argument(text, 0);
    return words[(*n)++] ? 0 : ds_fail(err, "out of memory for a command");
}

void ds_case_words_free(char **words)
{
    for (size_t i = 0; words && words[i]; i++)
        free(words[i]);
    free(words);
}

int ds_case_explain_words(const struct ds_case *c, size_t n, json_t *answer, char ***out,
                          struct ds_error *err)
{
    const struct ds_case_step *s = &c->steps[n];
    const size_t verb = ds_case_verb(s);
    const char *records[2] = {NULL, NULL};
    size_t words = 0;
    *out = NULL;
    if (!json_is_object(json_object_get(answer, "first_drift")) || verb >= s->argc)
        return 0;
    if (strcmp(s->argv[verb], "run") == 0)
        records[0] = after(s, "-o");
    else if (strcmp(s->argv[verb], "diff") == 0 && verb + 2 < s->argc)
        memcpy(records, (const char *[]){s->argv[verb + 1], s->argv[verb + 2]}, sizeof records);
    const struct ds_case_step *writer = records[0] ? writer_of(c, n, records[0]) : NULL;
    const char *model = writer ? after(writer, "-m") : NULL;
    if (!model)
        return 0;
    char **w = ds_calloc(MOST_WORDS, sizeof *w, "command", err);
    int rc = w ? add(w, &words, "explain", err) : -1;
    for (size_t i = 0; i < 2 && rc == 0 && records[i]; i++)
        rc = add(w, &words, records[i], err);
    if (rc == 0)
        rc = add(w, &words, "-m", err) || add(w, &words, model, err) ? -1 : 0;
    if (rc != 0) {
        ds_case_words_free(w);
        return -1;
    }
    *out = w;
    return 0;
}

static const char *text_in(json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

void ds_case_explain_holds(json_t *verdict, json_t *explanation, const char *said,
                           struct ds_buf *why)
{
    json_t *first = json_object_get(verdict, "first_drift"),
           *own = json_object_get(explanation, "verdict");
    const char *kind = text_in(first, "kind"), *claimed = text_in(explanation, "kind");
    if (!explanation) {
        /* Without values there is nothing to replay; then it must say what keeps them. */
        if (!strstr(said, "--dump") && !strstr(said, "has no values"))
            ds_buf_printf(why, "explain has no answer: %s\n", said);
        return;
    }
    if (strcmp(text_in(own, "kind"), kind) != 0)
        ds_buf_printf(why, "explain has read %s from the verdict, which says %s\n",
                      text_in(own, "kind"), kind);
    if (strcmp(claimed, kind) == 0 || *text_in(own, "overruled") ||
        (strcmp(kind, "unknown") == 0 && *text_in(explanation, "why")))
        return;
    ds_buf_printf(why, "explain says %s (%s), the verdict %s (%s), and not why\n", claimed,
                  text_in(explanation, "why"), kind, text_in(first, "evidence"));
}
