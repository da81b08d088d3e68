/* lock_plan.c: from a lock, which is believed in nothing, to the sweep that it asks for. The model comes from the command
 * line, or from its name where its weights are seeded. See lock.h. */
#include "cli/lock.h"
#include "cli/run_plan_internal.h"

#include "base/mem.h"
#include "engine/load.h"
#include "engine/site_map.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 16 << 20, MOST_STEPS = 1000000, MOST_ARMS = 100000 };

int ds_lock_read(const char *path, struct ds_lock *out, struct ds_error *err)
{
    struct ds_buf b = {0};
    memset(out, 0, sizeof *out);
    int rc = ds_cli_read_file("lock", path, FILE_LIMIT, &b, err);
    if (rc == 0)
        rc = ds_lock_parse(path, b.data ? b.data : "", b.len, out, err);
    ds_buf_free(&b);
    return rc;
}

int ds_lock_fail(const struct ds_lock *l, const struct ds_lock_line *x, struct ds_error *err,
                 const char *fmt, ...)
{
    char text[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return x ? ds_fail(err, "%.200s:%zu: %s", l->file, x->line, text)
             : ds_fail(err, "%.200s: %s", l->file, text);
}

/* ---- the model ------------------------------------------------------------------------------- */

static int check_hparam(const struct ds_lock *l, const struct ds_text *t, struct ds_error *err)
{
    struct ds_buf key = {0}, value = {0};
    ds_buf_puts(&key, "hparam ");
    ds_lock_word(&key, t->name);
    ds_buf_escape(&value, *t->value ? t->value : "-", (size_t)-1);
    int rc = key.failed || value.failed ? ds_fail(err, "out of memory for a lock") : 0;
    const struct ds_lock_line *x = rc == 0 ? ds_lock_find(&l->question, key.data) : NULL;
    if (x && strcmp(x->value, value.data) != 0)
        rc = ds_lock_fail(l, x, err,
                          "the lock is of another model: %.60s is %.100s there, %.100s here",
                          t->name, x->value, value.data);
    ds_buf_free(&key);
    ds_buf_free(&value);
    return rc;
}

int ds_lock_check_model(const struct ds_lock *l, uint64_t digest, const char *name,
                        const struct ds_text *hparams, size_t n, struct ds_error *err)
{
    const struct ds_lock_line *x = ds_lock_find(&l->question, "model digest");
    const char *its = ds_lock_get(&l->question, "model name");
    char mine[17];
    snprintf(mine, sizeof mine, "%016" PRIx64, digest);
    if (!x)
        return ds_lock_fail(l, NULL, err, "the lock has no line 'model digest'");
    if (strcmp(x->value, mine) != 0) {
        ds_lock_fail(l, x, err,
                     "the lock is of another model: '%.100s', weights %.20s; this is '%.100s', %s",
                     its ? its : "unknown", x->value, name, mine);
        return ds_hint(err, "give the lock's model with -m");
    }
    for (size_t i = 0; i < n; i++)
        if (check_hparam(l, &hparams[i], err) != 0)
            return -1;
    return 0;
}

static int check_plan_model(const struct ds_lock *l, const struct ds_model *m, struct ds_error *err)
{
    char text[256];
    const char *name;
    struct ds_text one;
    if (ds_lock_check_model(l, m->digest, m->name, NULL, 0, err) != 0)
        return -1;
    for (size_t i = 0; ds_hparam_text(&m->hp, i, &name, text, sizeof text) == 0; i++) {
        one = (struct ds_text){(char *)name, text};
        if (check_hparam(l, &one, err) != 0)
            return -1;
    }
    return 0;
}

/* ---- arms ------------------------------------------------------------------------------------ */

char *ds_lock_default(int factor, struct ds_error *err)
{
    struct ds_factor_values dflt = {0};
    if (ds_factor_parse(factor, NULL, &dflt, err) != 0)
        return NULL;
    char *value = strdup(dflt.value[0]);
    ds_factor_free(&dflt);
    if (!value)
        ds_fail(err, "out of memory for a lock");
    return value;
}

void ds_lock_free_values(char **values)
{
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        free(values[f]);
}

/* "batch=4 threads=2" over what the values are. */
static int apply_settings(const struct ds_lock *l, const struct ds_lock_line *x, char **values,
                          struct ds_error *err)
{
    for (const char *p = strcmp(x->value, "-") == 0 ? "" : x->value; *p;) {
        const size_t name = strcspn(p, "="), all = strcspn(p, " ");
        struct ds_buf b = {0};
        int f = 0;
        while (f < DS_FACTOR_COUNT &&
               (strlen(ds_factor_names[f]) != name || memcmp(ds_factor_names[f], p, name) != 0))
            f++;
        if (f == DS_FACTOR_COUNT)
            return ds_lock_fail(l, x, err, "there is no factor '%.*s'",
                                (int)(name < 40 ? name : 40), p);
        ds_lock_unword(&b, p + name + 1, all - name - 1);
        if (b.failed || !b.data) {
            ds_buf_free(&b);
            return ds_fail(err, "out of memory for a lock");
        }
        free(values[f]);
        values[f] = b.data;
        p += all + (p[all] == ' ');
    }
    return 0;
}

static const struct ds_lock_line *arm_line(const struct ds_lock *l, size_t i)
{
    char key[32];
    snprintf(key, sizeof key, "arm %zu", i);
    return ds_lock_find(&l->question, key);
}

int ds_lock_arm(const struct ds_lock *l, size_t i, char **values, struct ds_error *err)
{
    const struct ds_lock_line *base = arm_line(l, 0), *x = arm_line(l, i);
    if (!base || !x)
        return 1;
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        if (!(values[f] = ds_lock_default(f, err)))
            return -1;
    return apply_settings(l, base, values, err) != 0 ||
                   (i && apply_settings(l, x, values, err) != 0)
               ? -1
               : 0;
}

static size_t lines_of(const struct ds_lock *l, const char *kind)
{
    size_t n = 0;
    for (size_t i = 0; i < l->question.n; i++)
        n += (size_t)ds_lock_is(&l->question.at[i], kind);
    return n;
}

static int plan_arms(const struct ds_lock *l, struct ds_header *h, struct ds_error *err)
{
    const size_t n = lines_of(l, "arm");
    struct ds_setting s;
    if (n == 0 || n > MOST_ARMS)
        return ds_lock_fail(l, NULL, err, "the lock has %zu arms", n);
    if (ds_plan_factors(h, err) != 0 || !(h->arms = ds_calloc(n, sizeof *h->arms, "arms", err)))
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (!(h->arms[i].values = ds_calloc(h->n_factors, sizeof(char *), "arms", err)))
            return -1;
        h->n_arms = i + 1;
        const int rc = ds_lock_arm(l, i, h->arms[i].values, err);
        if (rc != 0)
            return rc < 0
                       ? -1
                       : ds_lock_fail(l, NULL, err, "the lock has %zu arms, and no arm %zu", n, i);
        struct ds_error what;
        if (ds_setting_parse(h->arms[i].values, &s, &what) != 0) {
            ds_lock_fail(l, arm_line(l, i), err, "%s", what.msg);
            return what.hint[0] ? ds_hint(err, "%s", what.hint) : -1;
        }
    }
    return 0;
}

/* ---- options, prompts, tokens ---------------------------------------------------------------- */

static int read_option(const struct ds_lock *l, const char *name, int32_t most, int32_t *out,
                       struct ds_error *err)
{
    char key[64], *end;
    snprintf(key, sizeof key, "option %s", name);
    const struct ds_lock_line *x = ds_lock_find(&l->question, key);
    const long v = x ? strtol(x->value, &end, 10) : *out;
    if (x && (end == x->value || *end || v < 0 || v > most))
        return ds_lock_fail(l, x, err, "'%.40s' is not a whole number from 0 to %d", x->value,
                            most);
    *out = (int32_t)v;
    return 0;
}

void ds_lock_wants(struct ds_sweep_options *s)
{
    s->dump = DS_DUMP_ORIGINS;
    s->dump_rows = 8;
    s->heal = 1;
}

/* How tokens are chosen; where the lock says nothing it is the largest logit. */
static int plan_sampler(const struct ds_lock *l, struct ds_sampler *s, struct ds_error *err)
{
    struct ds_header h = {.options = ds_calloc(l->question.n, sizeof *h.options, "options", err)};
    if (!h.options)
        return -1;
    for (size_t i = 0; i < l->question.n; i++)
        if (ds_lock_is(&l->question.at[i], "option"))
            h.options[h.n_options++] = (struct ds_text){l->question.at[i].key + strlen("option "),
                                                        l->question.at[i].value};
    const int rc = ds_sampler_recorded(&h, s, err);
    free(h.options);
    return rc != 0 ? ds_prefix(err, "%s", l->file) : 0;
}

static int plan_options(const struct ds_options *o, const struct ds_lock *l,
                        struct ds_sweep_options *s, struct ds_error *err)
{
    const struct ds_lock_line *w = ds_lock_find(&l->question, "option weights");
    for (size_t i = 0; i < DS_PLAN_KEPT; i++)
        if (read_option(l, ds_plan_kept[i].name,
                        strcmp(ds_plan_kept[i].name, "load") == 0 ? DS_MOST_LOAD : MOST_STEPS,
                        ds_plan_option(s, i), err) != 0)
            return -1;
    s->repeats = 1;
    if (read_option(l, "repeats", 100000, &s->repeats, err) != 0 ||
        plan_sampler(l, &s->sampler, err) != 0 || ds_plan_limits(o, s, err) != 0)
        return -1;
    s->weights = w && strcmp(w->value, ds_plan_weights[DS_WEIGHTS_FILE]) == 0 ? DS_WEIGHTS_FILE
                                                                              : DS_WEIGHTS_F32;
    if (w && strcmp(w->value, ds_plan_weights[s->weights]) != 0)
        return ds_lock_fail(l, w, err, "'%.40s' is not f32 or file", w->value);
    s->free_run = s->until_stable = 0;
    ds_lock_wants(s);
    return s->repeats >= 1 ? 0 : ds_lock_fail(l, NULL, err, "the lock has no repeats");
}

static int plan_prompt(const struct ds_lock *l, size_t i, struct ds_run_plan *p,
                       struct ds_error *err)
{
    char key[32];
    struct ds_prompt *q = &p->header.prompts[i];
    size_t n;
    snprintf(key, sizeof key, "prompt %zu", i);
    const struct ds_lock_line *x = ds_lock_find(&l->question, key);
    if (!x)
        return ds_lock_fail(l, NULL, err, "the lock has no prompt %zu", i);
    if (ds_lock_read_ids(x->value, &q->tokens, &n, err) != 0)
        return -1;
    q->request = (int32_t)i;
    p->header.n_prompts = i + 1;
    if (!(q->text = strdup("")))
        return ds_fail(err, "out of memory");
    if (n == 0 || n > (size_t)p->model->hp.context)
        return ds_lock_fail(l, x, err, "a prompt of %zu tokens; the model takes 1 to %d", n,
                            p->model->hp.context);
    q->n_tokens = (uint32_t)n;
    for (size_t k = 0; k < n; k++)
        if (q->tokens[k] >= p->model->hp.vocab)
            return ds_lock_fail(l, x, err, "token %d is outside the model's vocabulary of %d",
                                q->tokens[k], p->model->hp.vocab);
    return 0;
}

static int plan_prompts(const struct ds_lock *l, int32_t neighbours, struct ds_run_plan *p,
                        struct ds_error *err)
{
    const size_t n = lines_of(l, "prompt");
    if (n < (size_t)neighbours + 1)
        return ds_lock_fail(l, NULL, err, "the lock has %zu prompts; its arms need %d", n,
                            neighbours + 1);
    if (!(p->header.prompts = ds_calloc(n, sizeof *p->header.prompts, "prompts", err)))
        return -1;
    for (size_t i = 0; i < n; i++)
        if (plan_prompt(l, i, p, err) != 0)
            return -1;
    return ds_plan_requests(p, err);
}

int ds_lock_forced(const struct ds_lock *l, int32_t vocab, int32_t **ids, int32_t *n,
                   struct ds_error *err)
{
    const struct ds_lock_line *x = ds_lock_find(&l->question, "forced");
    size_t count = 0;
    *ids = NULL;
    *n = 0;
    if (!x)
        return 0;
    if (ds_lock_read_ids(x->value, ids, &count, err) != 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if ((*ids)[i] >= vocab)
            return ds_lock_fail(l, x, err, "token %d is outside the model's vocabulary of %d",
                                (*ids)[i], vocab);
    *n = (int32_t)count;
    return 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int check_fit(const struct ds_lock *l, const struct ds_run_plan *p, struct ds_error *err)
{
    const struct ds_sweep s = {.model = p->model,
                               .options = p->options,
                               .header = &p->header,
                               .requests = p->requests,
                               .n_requests = p->n_requests};
    int64_t positions;
    return ds_sweep_fits(&s, &positions, err) != 0 ? ds_prefix(err, "%s", l->file) : 0;
}

int ds_lock_plan(const struct ds_options *o, const struct ds_lock *l, struct ds_run_plan *p,
                 struct ds_error *err)
{
    const struct ds_recorded_model model = {.what = "lock",
                                            .name = ds_lock_get(&l->question, "model name")};
    int32_t neighbours;
    int dtype;
    memset(p, 0, sizeof *p);
    p->owns_header = 1;
    struct ds_header *h = &p->header;
    if (plan_options(o, l, &p->options, err) != 0 || plan_arms(l, h, err) != 0)
        return -1;
    if (ds_plan_neighbours(h, p->options.weights, &neighbours, &dtype, err) != 0 ||
        ds_sampler_fits(h, &p->options.sampler, err) != 0)
        return ds_prefix(err, "%s", l->file);
    h->repeats = (uint32_t)p->options.repeats;
    if (ds_plan_model(o, &model, p, err) != 0 || check_plan_model(l, p->model, err) != 0 ||
        plan_prompts(l, neighbours, p, err) != 0 || check_fit(l, p, err) != 0 ||
        ds_lock_forced(l, p->model->hp.vocab, &p->forced, &p->n_forced, err) != 0)
        return -1;
    const int32_t keys = p->options.scores ? p->requests[0].n_prompt + p->options.steps : 0;
    p->dtype_at = ds_lock_get(&l->question, "option dtype_at");
    if (p->dtype_at && ds_stages_parse(p->dtype_at, &p->options.f32_at, err) != 0)
        return ds_prefix(err, "%s: option dtype_at", l->file);
    if (ds_sweep_describe_model(p->model, dtype, keys, h, err) != 0 ||
        ds_plan_keep_f32(p, dtype, err) != 0 ||
        ds_cli_environment(&h->environment, &h->n_environment, err) != 0 ||
        ds_cli_environment_devices(h, &h->environment, &h->n_environment, err) != 0)
        return -1;
    return ds_plan_identity(o, h, err) != 0 ? -1 : ds_plan_keep_options(p, err);
}

/* ---- running it ------------------------------------------------------------------------------ */

struct sweeping {
    const struct ds_options *o;
    struct ds_kept *kept;
};

static int sink(void *ctx, const struct ds_trial_data *t, struct ds_error *err)
{
    return ds_kept_add(((struct sweeping *)ctx)->kept, t, err);
}

static void progress(void *ctx, double done, double total)
{
    ds_cli_progress(((struct sweeping *)ctx)->o, "trials", done, total);
}

static void note(void *ctx, const char *text)
{
    ds_cli_note(((struct sweeping *)ctx)->o, "%s", text);
}

int ds_lock_sweep(const struct ds_options *o, struct ds_run_plan *p, struct ds_kept *kept,
                  int *interrupted, struct ds_error *err)
{
    struct sweeping ctx = {o, kept};
    struct ds_sweep_result result = {0};
    const struct ds_sweep s = {.model = p->model,
                               .options = p->options,
                               .header = &p->header,
                               .requests = p->requests,
                               .n_requests = p->n_requests,
                               .forced = p->n_forced ? p->forced : NULL,
                               .n_forced = p->n_forced,
                               .ctx = &ctx,
                               .sink = sink,
                               .progress = progress,
                               .note = note,
                               .stop = ds_cli_stop()};
    kept->header = &p->header;
    int rc = ds_sweep_run(&s, &result, err);
    ds_cli_progress(o, "", -1, 0);
    *interrupted = result.interrupted;
    if (rc == 0 && !result.interrupted && result.failed) {
        *err = result.first_failure;
        return ds_prefix(err, "%u trial%s could not be run; first", result.failed,
                         result.failed == 1 ? "" : "s");
    }
    return rc;
}
