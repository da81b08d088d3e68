/* lock_ask.c: the question of a lock: what a source was asked. And what both halves of a lock are made with. */
#include "dumps/lock_internal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *option(const struct ds_header *h, const char *name)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, name) == 0)
            return h->options[i].value;
    return NULL;
}

static int by_key(const void *pa, const void *pb)
{
    return strcmp(((const struct ds_lock_line *)pa)->key, ((const struct ds_lock_line *)pb)->key);
}

/* Lines from `first` on, by key. */
void ds_lock_sort_from(struct ds_lock_lines *l, size_t first)
{
    if (l->n > first)
        qsort(l->at + first, l->n - first, sizeof *l->at, by_key);
}

/* Adds what stands in the two buffers, and empties them. */
int ds_lock_add_pair(struct ds_lock_lines *l, struct ds_buf *key, struct ds_buf *value,
                     struct ds_error *err)
{
    const int lost = key->failed || value->failed;
    const int rc = lost ? ds_fail(err, "out of memory for a lock")
                        : ds_lock_add(l, key->data ? key->data : "",
                                      value->data && value->len ? value->data : "-", err);
    ds_buf_free(key);
    ds_buf_free(value);
    return rc;
}

/* "KIND NAME" = text, which may hold anything. */
int ds_lock_add_text(struct ds_lock_lines *l, const char *kind, const char *name, const char *text,
                     struct ds_error *err)
{
    struct ds_buf key = {0}, value = {0};
    ds_buf_printf(&key, "%s ", kind);
    ds_lock_word(&key, name);
    ds_buf_escape(&value, text, (size_t)-1);
    return ds_lock_add_pair(l, &key, &value, err);
}

/* ---- what was asked -------------------------------------------------------------------------- */

/* Options that decide what rows there are and what is in them; what is dumped, healed or timed changes no number. */
static int decides(const char *name)
{
    static const char *const names[] = {
        "steps",  "resid_only",         "page_size",  "poison",      "load",  "weights",
        "scores", "position_offset",    "all_logits", "temperature", "top_k", "top_p",
        "min_p",  "repetition_penalty", "sample_seed"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return 1;
    return 0;
}

static int ask_model(const struct ds_header *h, struct ds_lock_lines *q, struct ds_error *err)
{
    const size_t first = q->n;
    if (ds_lock_add_text(q, "model", "name", h->model_name, err) != 0 ||
        ds_lock_add_text(q, "model", "arch", h->model_arch, err) != 0 ||
        ds_lock_addf(q, err, "model digest", "%016" PRIx64, h->model_digest) != 0)
        return -1;
    for (size_t i = 0; i < h->n_hparams; i++)
        if (ds_lock_add_text(q, "hparam", h->hparams[i].name, h->hparams[i].value, err) != 0)
            return -1;
    for (size_t i = 0; i < h->n_options; i++)
        if (decides(h->options[i].name) &&
            ds_lock_add_text(q, "option", h->options[i].name, h->options[i].value, err) != 0)
            return -1;
    if (ds_lock_addf(q, err, "option repeats", "%u", h->repeats) != 0)
        return -1;
    ds_lock_sort_from(q, first);
    return 0;
}

/* The base arm whole, of the others what they have otherwise. */
static int ask_arms(const struct ds_header *h, struct ds_lock_lines *q, struct ds_error *err)
{
    for (size_t a = 0; a < h->n_arms; a++) {
        struct ds_buf key = {0}, value = {0};
        ds_buf_printf(&key, "arm %zu", a);
        for (size_t f = 0; f < h->n_factors; f++) {
            const char *x = h->arms[a].values[f];
            if (!*x || (a && strcmp(x, h->arms[0].values[f]) == 0))
                continue;
            ds_buf_puts(&value, value.len ? " " : "");
            ds_lock_word(&value, h->factors[f]);
            ds_buf_puts(&value, "=");
            ds_lock_word(&value, x);
        }
        if (ds_lock_add_pair(q, &key, &value, err) != 0)
            return -1;
    }
    return 0;
}

static int ask_prompts(const struct ds_header *h, struct ds_lock_lines *q, struct ds_error *err)
{
    for (size_t i = 0; i < h->n_prompts; i++) {
        const struct ds_prompt *p = &h->prompts[i];
        struct ds_buf key = {0}, value = {0};
        char number[24];
        ds_buf_printf(&key, "prompt %zu", i);
        for (uint32_t k = 0; k < p->n_tokens; k++)
            ds_buf_printf(&value, k ? ",%d" : "%d", p->tokens[k]);
        snprintf(number, sizeof number, "%zu", i);
        if (ds_lock_add_pair(q, &key, &value, err) != 0 ||
            (p->text[0] && ds_lock_add_text(q, "text", number, p->text, err) != 0))
            return -1;
    }
    return 0;
}

/* The first natural trial of an arm; *n: how many there are. */
size_t ds_lock_first_trial(const struct ds_source *s, uint32_t arm, size_t *n)
{
    size_t first = SIZE_MAX;
    *n = 0;
    for (size_t i = 0; i < s->n_trials; i++) {
        const struct ds_trial *t = s->info(s->ctx, i);
        if (t->arm != arm || t->pass != DS_PASS_NATURAL)
            continue;
        first = *n ? first : i;
        (*n)++;
    }
    return first;
}

const struct ds_trial_data *ds_lock_base_trial(const struct ds_source *s, struct ds_error *err)
{
    size_t n, i = ds_lock_first_trial(s, 0, &n);
    if (i == SIZE_MAX) {
        ds_fail(err, "there is no complete trial of the base arm");
        return NULL;
    }
    return s->get(s->ctx, i, err);
}

static int ask_tokens(const struct ds_source *s, struct ds_lock_lines *q, struct ds_error *err)
{
    const struct ds_trial_data *t = ds_lock_base_trial(s, err);
    struct ds_buf key = {0}, value = {0};
    if (!t)
        return -1;
    ds_buf_puts(&key, "forced");
    int32_t step = 0;
    for (size_t i = 0; i < t->n_steps; i++)
        if (t->steps[i].request == 0 && t->steps[i].step == step && t->steps[i].forced >= 0)
            ds_buf_printf(&value, step++ ? ",%d" : "%d", t->steps[i].forced);
    return ds_lock_add_pair(q, &key, &value, err);
}

int ds_lock_ask(const struct ds_source *s, struct ds_lock_lines *q, struct ds_error *err)
{
    const struct ds_header *h = s->header;
    const char *free_run = option(h, "free");
    if (option(h, "serve_requests"))
        return ds_fail(err, "a storm cannot be locked: replay holds it against its record");
    if (free_run && strcmp(free_run, "0") != 0)
        return ds_fail(err, "a run with --free cannot be locked: its arms follow their own tokens");
    if (h->n_prompts == 0 || h->n_arms == 0)
        return ds_fail(err, "nothing to lock: there is no prompt or no arm");
    return ask_model(h, q, err) != 0 || ask_arms(h, q, err) != 0 || ask_prompts(h, q, err) != 0 ||
                   ask_tokens(s, q, err) != 0
               ? -1
               : ds_lock_sort(q, err);
}
