/* lock_hold.c: what came of a sweep held against a lock: whether both answer the same question, which arms both have,
 * the nearest entry, what was asserted. See lock.h. */
#include "cli/lock.h"

#include "base/mem.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what both have ------------------------------------------------------------------------- */

int ds_lock_entry_option(const struct ds_options *o, const char **name, struct ds_error *err)
{
    *name = ds_opt_text(o, "entry");
    if (!*name)
        return 0;
    for (const char *p = *name; *p; p++)
        if (*p <= ' ' || *p > '~' || *p == '\\')
            return ds_fail(err, "--entry: a name has printable ASCII characters and no blank");
    return **name && strlen(*name) < 100 ? 0
                                         : ds_fail(err, "--entry: a name has 1 to 99 characters");
}

/* Neighbours with varied prompts are the same setting only with the same prompts. */
static int same_neighbours(const struct ds_lock *l, const struct ds_lock_lines *mine)
{
    for (size_t i = 0; i < l->question.n; i++) {
        const struct ds_lock_line *x = &l->question.at[i];
        const char *is = ds_lock_is(x, "prompt") ? ds_lock_get(mine, x->key) : x->value;
        if (!is || strcmp(is, x->value) != 0)
            return 0;
    }
    return 1;
}

/* What a source has in common with a lock. */
struct common {
    const struct ds_source *source;
    uint32_t *number; /* [n_arms] the lock's number of each arm; UINT32_MAX none */
    size_t *trials;   /* [n_trials] of arms that both have */
    size_t n_trials, arms_of;
    char *has; /* [arms_of] whether an arm of the lock has a trial here */
};

/* Which of this program's factors the header's are: a record of another version may have fewer. */
static int name_factors(const struct ds_lock *l, const struct ds_header *h, int *factor,
                        struct ds_error *err)
{
    for (size_t i = 0; i < h->n_factors; i++) {
        int f = 0;
        while (f < DS_FACTOR_COUNT && strcmp(ds_factor_names[f], h->factors[i]) != 0)
            f++;
        if (f == DS_FACTOR_COUNT)
            return ds_lock_fail(l, NULL, err,
                                "cannot be held against a record with the unknown factor '%.40s'",
                                h->factors[i]);
        factor[i] = f;
    }
    return 0;
}

/* Whether an arm of the header has these values; what the header does not know has its default. */
static int is_arm(const struct ds_header *h, const int *factor, size_t arm, char *const *values,
                  char *const *defaults)
{
    for (int f = 0; f < DS_FACTOR_COUNT; f++) {
        const char *mine = defaults[f];
        for (size_t i = 0; i < h->n_factors; i++)
            mine = factor[i] == f ? h->arms[arm].values[i] : mine;
        if (strcmp(mine, values[f]) != 0)
            return 0;
    }
    return 1;
}

/* Neighbours with other prompts are another setting. */
static void find_arm(struct common *c, const int *factor, uint32_t number, char *const *values,
                     char *const *defaults, int neighbours)
{
    const struct ds_header *h = c->source->header;
    if (!neighbours && strcmp(values[DS_FACTOR_NEIGHBOURS], "varied") == 0 &&
        strcmp(values[DS_FACTOR_BATCH], "1") != 0)
        return;
    for (size_t a = 0; a < h->n_arms; a++)
        if (c->number[a] == UINT32_MAX && is_arm(h, factor, a, values, defaults)) {
            c->number[a] = number;
            return;
        }
}

static int map_all(const struct ds_lock *l, const int *factor, char *const *defaults,
                   int neighbours, struct common *c, struct ds_error *err)
{
    for (size_t i = 0;; i++) {
        char *values[DS_FACTOR_COUNT] = {NULL};
        const int rc = ds_lock_arm(l, i, values, err);
        if (rc == 0)
            find_arm(c, factor, (uint32_t)i, values, defaults, neighbours);
        ds_lock_free_values(values);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
        c->arms_of = i + 1;
        size_t first = 0;
        while (first < c->source->header->n_arms && c->number[first] == UINT32_MAX)
            first++;
        if (i == 0 && first == c->source->header->n_arms) {
            ds_lock_fail(l, ds_lock_find(&l->question, "arm 0"), err,
                         "nothing to compare: no arm here is the lock's base arm");
            return ds_hint(err, "verify runs the arms of the lock");
        }
        /* Tensors, tokens and the sizes of drifts are those of the first arm, or beside it. */
        if (i == 0 && first != 0) {
            ds_lock_fail(l, ds_lock_find(&l->question, "arm 0"), err,
                         "nothing to compare: the lock's base arm is here, but not as the first "
                         "one, to which the others are compared");
            return ds_hint(err, "give the values of factors in the lock's order: its first first");
        }
    }
}

static int map_arms(const struct ds_lock *l, const struct ds_header *h, int neighbours,
                    struct common *c, struct ds_error *err)
{
    char *defaults[DS_FACTOR_COUNT] = {NULL};
    int *factor = ds_calloc(h->n_factors, sizeof *factor, "factors", err);
    int rc = factor ? name_factors(l, h, factor, err) : -1;
    for (int f = 0; rc == 0 && f < DS_FACTOR_COUNT; f++)
        rc = (defaults[f] = ds_lock_default(f, err)) ? 0 : -1;
    for (size_t a = 0; a < h->n_arms; a++)
        c->number[a] = UINT32_MAX;
    if (rc == 0)
        rc = map_all(l, factor, defaults, neighbours, c, err);
    ds_lock_free_values(defaults);
    free(factor);
    return rc;
}

static const struct ds_trial *common_info(void *ctx, size_t i)
{
    const struct common *c = ctx;
    return c->source->info(c->source->ctx, c->trials[i]);
}

static const struct ds_trial_data *common_get(void *ctx, size_t i, struct ds_error *err)
{
    const struct common *c = ctx;
    return c->source->get(c->source->ctx, c->trials[i], err);
}

static int common_blob(void *ctx, uint64_t digest, struct ds_blob *out, struct ds_error *err)
{
    const struct common *c = ctx;
    return c->source->blob(c->source->ctx, digest, out, err);
}

static int common_new(const struct ds_lock *l, const struct ds_source *s, struct common *c,
                      struct ds_error *err)
{
    const struct ds_header *h = s->header;
    struct ds_lock_lines mine = {0};
    *c = (struct common){.source = s};
    c->number = ds_calloc(h->n_arms, sizeof *c->number, "arms", err);
    c->trials = ds_calloc(s->n_trials, sizeof *c->trials, "trials", err);
    int rc = c->number && c->trials ? 0 : -1;
    rc = rc ? rc
            : ds_lock_check_model(l, h->model_digest, h->model_name, h->hparams, h->n_hparams, err);
    rc = rc ? rc : ds_lock_ask(s, &mine, err);
    rc = rc ? rc : ds_lock_comparable(l, &mine, err);
    rc = rc ? rc : map_arms(l, h, same_neighbours(l, &mine), c, err);
    c->has = rc == 0 ? ds_calloc(c->arms_of, sizeof *c->has, "arms", err) : NULL;
    rc = rc == 0 && !c->has ? -1 : rc;
    for (size_t i = 0; rc == 0 && i < s->n_trials; i++) {
        const struct ds_trial *t = s->info(s->ctx, i);
        if (c->number[t->arm] == UINT32_MAX || c->number[t->healed_to] == UINT32_MAX)
            continue;
        c->trials[c->n_trials++] = i;
        /* An arm that a sweep was stopped before is in the header, and no evidence. */
        if (t->pass == DS_PASS_NATURAL)
            c->has[c->number[t->arm]] = 1;
    }
    ds_lock_lines_free(&mine);
    return rc;
}

/* ---- what is asserted ------------------------------------------------------------------------ */

struct assertion {
    struct ds_lock_terms terms;
    regex_t pattern;
    int compiled;
};

static int asks_for(void *ctx, const char *key)
{
    return regexec(&((struct assertion *)ctx)->pattern, key, 0, NULL, 0) == 0;
}

static int read_assertion(const struct ds_options *o, struct assertion *a, struct ds_error *err)
{
    static const char *const names[] = {"bits", "tokens", "text"};
    const char *text = ds_opt_text(o, "assert");
    *a = (struct assertion){.terms.what = DS_ASSERT_FIELDS};
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0)
            a->terms.what = i;
    if (a->terms.what != DS_ASSERT_FIELDS)
        return 0;
    if (strncmp(text, "fields=", 7) != 0 || !text[7]) {
        ds_fail(err, "--assert: '%.60s' cannot be asserted", text);
        return ds_hint(
            err, "bits, tokens, text, or fields=REGEX over what lines of the lock begin with: "
                 "'fields=^class matmul'");
    }
    const int rc = regcomp(&a->pattern, text + 7, REG_EXTENDED | REG_NOSUB);
    if (rc != 0) {
        char why[128];
        regerror(rc, &a->pattern, why, sizeof why);
        return ds_fail(err, "--assert: '%.60s': %s", text + 7, why);
    }
    a->compiled = 1;
    a->terms.field = asks_for;
    a->terms.ctx = a;
    return 0;
}

/* The text of the chosen tokens. */
static int text_of(const struct ds_lock_lines *l, const struct ds_tokenizer *t, struct ds_buf *out,
                   struct ds_error *err)
{
    for (int step = 0;; step++) {
        char key[32];
        struct ds_lock_step x;
        snprintf(key, sizeof key, "step %d", step);
        const char *value = ds_lock_get(l, key);
        if (!value)
            return out->failed ? ds_fail(err, "out of memory") : 0;
        if (ds_lock_read_step(value, &x) != 0 || ds_tokenizer_decode(t, x.token, 1, out, err) != 0)
            return ds_fail(err, "the token of '%s' is none of this model's", key);
    }
}

static int compare_text(const struct ds_lock_lines *was, const struct ds_lock_lines *is,
                        const struct ds_tokenizer *t, struct ds_lock_terms *terms,
                        struct ds_error *err)
{
    struct ds_buf a = {0}, b = {0};
    if (terms->what != DS_ASSERT_TEXT)
        return 0;
    if (!t) {
        ds_fail(err, "--assert text: there is no tokenizer at hand");
        return ds_hint(err, "--assert tokens compares the tokens' numbers");
    }
    int rc = text_of(was, t, &a, err) != 0 || text_of(is, t, &b, err) != 0 ? -1 : 0;
    terms->same_text = rc == 0 && a.len == b.len && (!a.len || memcmp(a.data, b.data, a.len) == 0);
    ds_buf_free(&a);
    ds_buf_free(&b);
    return rc;
}

/* --same-env: any difference is an error. */
static int check_environment(const struct ds_options *o, const struct ds_lock *l,
                             const struct ds_lock_entry *e, const struct ds_lock_verdict *v,
                             struct ds_error *err)
{
    if (!ds_opt_flag(o, "same-env") || v->n_suspects == 0)
        return 0;
    const struct ds_lock_suspect *x = &v->suspects[0];
    ds_fail(err,
            "%.200s: no entry has this environment: of %s, the nearest, %zu line%s; %s was "
            "%.150s, is %.150s",
            l->file, e->name, v->n_suspects, v->n_suspects == 1 ? " differs" : "s differ", x->name,
            x->was ? x->was : "unset", x->is ? x->is : "unset");
    return ds_hint(err,
                   "driftscope lock --add makes an entry for it; without --same-env it is judged "
                   "against the nearest one");
}

/* ---- all ------------------------------------------------------------------------------------- */

static int print(const struct ds_lock_view *w, struct ds_error *err)
{
    struct ds_buf out = {0};
    int rc = 0;
    if (ds_opt_flag(w->o, "json"))
        rc = ds_lock_verify_json(w, &out, err);
    else
        ds_lock_verify_text(w, &out);
    if (rc == 0)
        rc = ds_cli_emit(w->o, &out, err);
    ds_buf_free(&out);
    return rc;
}

/* --entry, or the nearest one. */
static int choose_entry(struct ds_lock_view *w, struct ds_error *err)
{
    const char *name;
    if (ds_lock_entry_option(w->o, &name, err) != 0)
        return -1;
    w->entry =
        name ? ds_lock_entry(w->lock, name) : &w->lock->entries[ds_lock_nearest(w->lock, w->is)];
    return w->entry ? 0 : ds_lock_fail(w->lock, NULL, err, "the lock has no entry %s", name);
}

/* Whether some of what was asserted was not looked at: the lock's bits are those of all its arms, and what it allows
 * was judged in them. Tokens are those of the base arm, and a field that is not there is a finding. */
static int is_partial(const struct ds_lock_view *w, const struct ds_lock_verdict *v,
                      const struct ds_lock_terms *terms)
{
    return terms->what == DS_ASSERT_BITS &&
           (w->arms < w->arms_of || v->counts.tensors_missing || v->counts.classes_missing ||
            v->counts.origins_missing);
}

/* Another platform's bits may be these: then it is known what they come from. */
static int find_alike(struct ds_lock_view *w, struct ds_error *err)
{
    const struct ds_lock_terms terms = {.what = DS_ASSERT_BITS};
    for (size_t i = 0; w->v->first && !w->alike && i < w->lock->n_entries; i++) {
        const struct ds_lock_entry *e = &w->lock->entries[i];
        struct ds_lock_verdict v;
        if (e == w->entry)
            continue;
        const int rc = ds_lock_judge(&e->lines, w->is, &terms, &v, err);
        if (rc == 0 && v.counts.tensors && !v.first && !v.counts.tensors_missing)
            w->alike = e->name;
        ds_lock_verdict_free(&v);
        if (rc != 0)
            return -1;
    }
    return 0;
}

static int judge(struct ds_lock_view *w, const struct ds_tokenizer *t, struct assertion *a,
                 int *exit_code, struct ds_error *err)
{
    struct ds_lock_verdict v;
    int rc =
        choose_entry(w, err) != 0 ? -1 : compare_text(&w->entry->lines, w->is, t, &a->terms, err);
    if (rc != 0)
        return -1;
    rc = ds_lock_judge(&w->entry->lines, w->is, &a->terms, &v, err);
    rc = rc ? rc : check_environment(w->o, w->lock, w->entry, &v, err);
    if (rc == 0 && !v.compared) {
        rc =
            ds_fail(err, "%.200s: nothing to compare with entry %s", w->lock->file, w->entry->name);
        if (a->terms.what == DS_ASSERT_FIELDS)
            ds_hint(err, "no line begins with what --assert %s looks for", w->assertion);
    }
    w->v = &v;
    /* Equal as far as both go is not equal. */
    w->partial = is_partial(w, &v, &a->terms);
    w->result = v.n_counting                                  ? DS_RESULT_DRIFT
                : w->partial && !ds_opt_flag(w->o, "partial") ? DS_RESULT_INCOMPARABLE
                                                              : DS_RESULT_SAME;
    if (rc == 0)
        rc = find_alike(w, err);
    if (rc == 0)
        rc = print(w, err);
    if (rc == 0)
        *exit_code = ds_cli_exit(w->o, w->result == DS_RESULT_DRIFT  ? DS_EXIT_DRIFT
                                       : w->result == DS_RESULT_SAME ? DS_EXIT_SAME
                                                                     : DS_EXIT_ERROR);
    ds_lock_verdict_free(&v);
    return rc;
}

int ds_lock_verify(const struct ds_options *o, const struct ds_lock *l, const struct ds_source *s,
                   const struct ds_tokenizer *tokenizer, const char *record, int *exit_code,
                   struct ds_error *err)
{
    struct common c;
    struct assertion a;
    struct ds_lock_lines is = {0};
    struct ds_verdict verdict;
    if (read_assertion(o, &a, err) != 0)
        return -1;
    int rc = ds_lock_agrees(l, err), made = 0;
    c = (struct common){0};
    rc = rc ? rc : common_new(l, s, &c, err);
    const struct ds_source shared = {.header = s->header,
                                     .n_trials = c.n_trials,
                                     .info = common_info,
                                     .get = common_get,
                                     .ctx = &c,
                                     .blob = s->blob ? common_blob : NULL};
    if (rc == 0) {
        rc = ds_verdict_make(&shared, &verdict, err);
        made = rc == 0;
    }
    if (rc == 0)
        rc = ds_lock_answer(&shared, &verdict, &l->question, c.number, &is, err);
    struct ds_lock_view w = {.o = o,
                             .lock = l,
                             .is = &is,
                             .record = record,
                             .assertion = ds_opt_text(o, "assert"),
                             .has = c.has,
                             .arms_of = c.arms_of};
    for (size_t i = 0; c.has && i < c.arms_of; i++)
        w.arms += c.has[i] != 0;
    if (rc == 0)
        rc = judge(&w, tokenizer, &a, exit_code, err);
    if (made)
        ds_verdict_free(&verdict);
    ds_lock_lines_free(&is);
    free(c.number);
    free(c.trials);
    free(c.has);
    if (a.compiled)
        regfree(&a.pattern);
    return rc;
}

int ds_lock_verify_lines(const struct ds_options *o, const struct ds_lock *l,
                         const struct ds_lock_lines *is, const char *record, int *exit_code,
                         struct ds_error *err)
{
    struct assertion a;
    size_t arms = 0;
    for (size_t i = 0; i < l->question.n; i++)
        arms += (size_t)ds_lock_is(&l->question.at[i], "arm");
    struct ds_lock_view w = {.o = o,
                             .lock = l,
                             .is = is,
                             .record = record,
                             .assertion = ds_opt_text(o, "assert"),
                             .of_locks = 1,
                             .arms = arms,
                             .arms_of = arms};
    if (read_assertion(o, &a, err) != 0)
        return -1;
    const int rc = judge(&w, NULL, &a, exit_code, err);
    if (a.compiled)
        regfree(&a.pattern);
    return rc;
}
