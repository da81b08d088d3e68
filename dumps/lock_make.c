/* lock_make.c: an entry of a lock: what a source answered. Lists are sorted by name, tensors stand in execution order;
 * two runs that agree give the same text. */
#include "dumps/lock_internal.h"

#include "base/mem.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- environment and kernels ----------------------------------------------------------------- */

static const struct ds_trial *first_with_blas(const struct ds_source *s)
{
    for (size_t i = 0; i < s->n_trials; i++)
        if (s->info(s->ctx, i)->blas_config[0])
            return s->info(s->ctx, i);
    return NULL;
}

/* What a device's clocks were: other ones at every start. */
static int is_fleeting(const char *name)
{
    const size_t n = strlen(name), m = strlen("_clocks");
    return n > m && strcmp(name + n - m, "_clocks") == 0;
}

static int answer_environment(const struct ds_source *s, struct ds_lock_lines *out,
                              struct ds_error *err)
{
    const struct ds_header *h = s->header;
    const struct ds_trial *t = first_with_blas(s);
    const size_t first = out->n;
    for (size_t i = 0; i < h->n_environment; i++)
        if (!is_fleeting(h->environment[i].name) &&
            ds_lock_add_text(out, "env", h->environment[i].name, h->environment[i].value, err) != 0)
            return -1;
    if (t &&
        (ds_lock_add_text(out, "env", "blas_config", t->blas_config, err) != 0 ||
         (t->blas_core[0] && ds_lock_add_text(out, "env", "blas_core", t->blas_core, err) != 0)))
        return -1;
    ds_lock_sort_from(out, first);
    return 0;
}

static void add_kernel(struct ds_buf *b, const char *op, const char *variant)
{
    ds_lock_word(b, op);
    ds_buf_puts(b, "/");
    ds_lock_word(b, variant);
}

static int answer_kernels(const struct ds_verdict *v, struct ds_lock_lines *out,
                          struct ds_error *err)
{
    const size_t first = out->n;
    for (size_t k = 0; k < v->n_kernels; k++) {
        struct ds_buf key = {0}, value = {0};
        ds_buf_puts(&key, "kernel ");
        add_kernel(&key, v->kernels[k].op, v->kernels[k].variant);
        ds_buf_printf(&value, "%" PRIu64, v->kernels[k].compared);
        if (ds_lock_add_pair(out, &key, &value, err) != 0)
            return -1;
    }
    ds_lock_sort_from(out, first);
    return 0;
}

/* "1,2|4"; a value that was not compared is left out. */
static void add_classes(const struct ds_factor_verdict *f, const uint32_t *class_of,
                        struct ds_buf *out)
{
    for (uint32_t i = 0; i < f->n_values; i++) {
        int known = class_of[i] == DS_NO_CLASS;
        for (uint32_t k = 0; k < i; k++)
            known |= class_of[k] == class_of[i];
        if (known)
            continue;
        ds_buf_puts(out, out->len ? "|" : "");
        for (uint32_t k = i; k < f->n_values; k++) {
            if (class_of[k] != class_of[i])
                continue;
            ds_buf_puts(out, k > i ? "," : "");
            ds_lock_word(out, f->values[k]);
        }
    }
}

static int answer_class(const struct ds_verdict *v, size_t k, size_t f, struct ds_lock_lines *out,
                        struct ds_error *err)
{
    const struct ds_kernel_verdict *x = &v->kernels[k];
    struct ds_buf key = {0}, value = {0};
    if (x->condition[f] == DS_COND_NOT_RUN || (f > 0 && v->factors[f].n_values < 2))
        return 0;
    if (v->factors[f].n_values > DS_LOCK_MOST_VALUES)
        return ds_fail(err, "%s has %u values; a lock takes %d", v->factors[f].name,
                       v->factors[f].n_values, DS_LOCK_MOST_VALUES);
    ds_buf_puts(&key, "class ");
    add_kernel(&key, x->op, x->variant);
    ds_buf_puts(&key, " ");
    ds_lock_word(&key, v->factors[f].name);
    if (x->condition[f] == DS_COND_UNSTABLE)
        ds_buf_puts(&value, "unstable");
    else if (x->condition[f] == DS_COND_UNKNOWN)
        ds_buf_puts(&value, "?");
    else if (f == 0)
        ds_buf_puts(&value, "same");
    else
        add_classes(&v->factors[f], x->class_of[f], &value);
    return ds_lock_add_pair(out, &key, &value, err);
}

static int answer_classes(const struct ds_verdict *v, struct ds_lock_lines *out,
                          struct ds_error *err)
{
    const size_t first = out->n;
    for (size_t k = 0; k < v->n_kernels; k++)
        for (size_t f = 0; f < v->n_factors; f++)
            if (answer_class(v, k, f, out, err) != 0)
                return -1;
    ds_lock_sort_from(out, first);
    return 0;
}

static void add_place(struct ds_buf *b, const char *stage, const char *part)
{
    ds_lock_word(b, stage);
    if (part[0]) {
        ds_buf_puts(b, "/");
        ds_lock_word(b, part);
    }
}

static int answer_origins(const struct ds_verdict *v, struct ds_lock_lines *out,
                          struct ds_error *err)
{
    const size_t first = out->n;
    for (size_t i = 0; i < v->n_origins; i++) {
        const struct ds_origin *o = &v->origins[i];
        struct ds_buf key = {0}, value = {0};
        ds_buf_puts(&key, "origin ");
        add_kernel(&key, o->op, o->variant);
        ds_buf_puts(&key, " ");
        add_place(&key, o->stage, o->part);
        ds_buf_printf(&value,
                      "kind=%s max_ulp=", ds_kind_name(o->at.found ? o->at.kind : DS_KIND_UNKNOWN));
        if (o->sized)
            ds_buf_printf(&value, "%" PRIu64, o->max_ulp);
        else
            ds_buf_puts(&value, "?");
        ds_buf_printf(&value, " layers=%u", o->layers);
        if (ds_lock_add_pair(out, &key, &value, err) != 0)
            return -1;
    }
    ds_lock_sort_from(out, first);
    return 0;
}

/* rest: the lines behind the counts. */
static int answer_counts(const struct ds_verdict *v, const struct ds_lock_lines *rest,
                         struct ds_lock_lines *out, struct ds_error *err)
{
    const struct {
        const char *key;
        uint64_t n;
    } counts[] = {{"count arms", v->counts.arms},
                  {"count digests", v->counts.digests_compared},
                  {"count rows", v->counts.rows},
                  {"count sites", v->counts.sites},
                  {"count trials", v->counts.trials}};
    const size_t first = out->n;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (ds_lock_addf(out, err, counts[i].key, "%" PRIu64, counts[i].n) != 0)
            return -1;
    if (ds_lock_count_lines(rest, out, err) != 0)
        return -1;
    ds_lock_sort_from(out, first);
    return 0;
}

/* ---- digests --------------------------------------------------------------------------------- */

/* "run 9" before "run 10". */
static int by_number(const void *pa, const void *pb)
{
    const struct ds_lock_line *a = pa, *b = pb;
    const size_t n = strlen(a->key), m = strlen(b->key);
    return n != m ? (n > m) - (n < m) : strcmp(a->key, b->key);
}

static int answer_runs(const struct ds_source *s, const uint32_t *number, struct ds_lock_lines *out,
                       struct ds_error *err)
{
    const size_t begin = out->n;
    for (uint32_t arm = 0; arm < s->header->n_arms; arm++) {
        size_t n, first = ds_lock_first_trial(s, arm, &n);
        const uint32_t name = number ? number[arm] : arm;
        char key[32];
        int parted = 0;
        if (first == SIZE_MAX && !number)
            return ds_fail(err, "arm %u has no complete trial: a lock holds every arm", arm);
        if (first == SIZE_MAX || name == UINT32_MAX)
            continue;
        const uint64_t digest = s->info(s->ctx, first)->run_digest;
        for (size_t i = first; i < s->n_trials; i++) {
            const struct ds_trial *t = s->info(s->ctx, i);
            parted |= t->arm == arm && t->pass == DS_PASS_NATURAL && t->run_digest != digest;
        }
        snprintf(key, sizeof key, "run %u", name);
        if ((parted ? ds_lock_add(out, key, "unstable", err)
                    : ds_lock_addf(out, err, key, "%016" PRIx64, digest)) != 0)
            return -1;
    }
    if (out->n > begin)
        qsort(out->at + begin, out->n - begin, sizeof *out->at, by_number);
    return 0;
}

struct tensors {
    uint64_t *digest, *again;
    uint8_t *has, *has_again, *parted;
    uint32_t *launch; /* of the first trial, by site */
};

static int tensors_new(size_t n, struct tensors *t, struct ds_error *err)
{
    t->digest = ds_calloc(n, sizeof *t->digest, "tensor digests", err);
    t->again = ds_calloc(n, sizeof *t->again, "tensor digests", err);
    t->has = ds_calloc(n, 1, "tensor digests", err);
    t->has_again = ds_calloc(n, 1, "tensor digests", err);
    t->parted = ds_calloc(n, 1, "tensor digests", err);
    t->launch = ds_calloc(n, sizeof *t->launch, "tensor digests", err);
    return t->digest && t->again && t->has && t->has_again && t->parted && t->launch ? 0 : -1;
}

static void tensors_free(struct tensors *t)
{
    free(t->digest);
    free(t->again);
    free(t->has);
    free(t->has_again);
    free(t->parted);
    free(t->launch);
}

/* Of all natural trials of the base arm: where they do not agree there is no digest. */
static int gather_tensors(const struct ds_source *s, struct tensors *t, struct ds_error *err)
{
    const struct ds_header *h = s->header;
    size_t n, first = ds_lock_first_trial(s, 0, &n);
    for (size_t i = first; i < s->n_trials; i++) {
        const struct ds_trial *x = s->info(s->ctx, i);
        if (x->arm != 0 || x->pass != DS_PASS_NATURAL)
            continue;
        const struct ds_trial_data *d = s->get(s->ctx, i, err);
        if (!d || ds_trial_tensor_digests(h, d, i == first ? t->digest : t->again,
                                          i == first ? t->has : t->has_again, err) != 0)
            return -1;
        for (size_t k = 0; i == first && k < d->n_captures; k++)
            t->launch[d->captures[k].site] = d->captures[k].launch;
        for (size_t k = 0; i > first && k < h->n_sites; k++)
            t->parted[k] |=
                t->has_again[k] != t->has[k] || (t->has[k] && t->again[k] != t->digest[k]);
    }
    return 0;
}

static int answer_tensor(const struct ds_header *h, const struct ds_trial_data *d,
                         const struct tensors *t, size_t site, struct ds_lock_lines *out,
                         struct ds_error *err)
{
    const struct ds_site *x = &h->sites[site];
    const char *variant =
        t->launch[site] < d->n_launches ? d->launches[t->launch[site]].variant : "unknown";
    struct ds_buf key = {0}, value = {0};
    ds_buf_printf(&key, "tensor %d ", x->layer);
    add_place(&key, x->stage, x->part);
    add_kernel(&value, x->op, variant);
    if (t->parted[site])
        ds_buf_puts(&value, " unstable");
    else
        ds_buf_printf(&value, " %016" PRIx64, t->digest[site]);
    return ds_lock_add_pair(out, &key, &value, err);
}

static int answer_tensors(const struct ds_source *s, struct ds_lock_lines *out,
                          struct ds_error *err)
{
    const struct ds_header *h = s->header;
    struct tensors t;
    const struct ds_trial_data *d = ds_lock_base_trial(s, err);
    if (!d)
        return -1;
    int rc = tensors_new(h->n_sites, &t, err) != 0 ? -1 : gather_tensors(s, &t, err);
    for (size_t i = 0; rc == 0 && i < h->n_sites; i++)
        if (t.has[i])
            rc = answer_tensor(h, d, &t, i, out, err);
    tensors_free(&t);
    return rc;
}

/* ---- tokens and their log-probabilities ------------------------------------------------------ */

/* Of entry i of a step's best, over the whole vocabulary; NaN where the record does not know. */
static double logprob(const struct ds_step *s, size_t i)
{
    return (double)s->logits[i] - (double)s->logits[0] - log(s->exp_sum);
}

/* Of a token; NaN: it is not among the best. */
static double logprob_of(const struct ds_step *s, int32_t token)
{
    for (size_t i = 0; i < DS_TOP && s->ids[i] >= 0; i++)
        if (s->ids[i] == token)
            return logprob(s, i);
    return (double)NAN;
}

/* The most by which the base arm's repeats differ in that of a step's token. */
static int noise_of(const struct ds_source *s, const struct ds_step *step, double *out,
                    struct ds_error *err)
{
    const double mine = logprob_of(step, step->token);
    *out = 0;
    for (size_t i = 0; i < s->n_trials; i++) {
        const struct ds_trial *t = s->info(s->ctx, i);
        if (t->arm != 0 || t->pass != DS_PASS_NATURAL)
            continue;
        const struct ds_trial_data *d = s->get(s->ctx, i, err);
        if (!d)
            return -1;
        for (size_t k = 0; k < d->n_steps; k++) {
            if (d->steps[k].request != step->request || d->steps[k].step != step->step)
                continue;
            const double off = fabs(logprob_of(&d->steps[k], step->token) - mine);
            *out = off > *out ? off : *out;
        }
    }
    return 0;
}

static int answer_step(const struct ds_source *s, const struct ds_step *x,
                       struct ds_lock_lines *out, struct ds_error *err)
{
    struct ds_buf key = {0}, value = {0};
    double noise;
    if (noise_of(s, x, &noise, err) != 0)
        return -1;
    ds_buf_printf(&key, "step %d", x->step);
    ds_buf_printf(&value, "token=%d margin=%.9g noise=%.9g", x->token, (double)x->margin, noise);
    for (size_t i = 0; i < DS_TOP && x->ids[i] >= 0 && isfinite(logprob(x, i)); i++)
        ds_buf_printf(&value, "%s%d:%.10g", i ? "," : " top=", x->ids[i], logprob(x, i));
    return ds_lock_add_pair(out, &key, &value, err);
}

static int answer_steps(const struct ds_source *s, struct ds_lock_lines *out, struct ds_error *err)
{
    const struct ds_trial_data *t = ds_lock_base_trial(s, err);
    if (!t)
        return -1;
    int32_t step = 0;
    for (size_t i = 0; i < t->n_steps; i++) {
        if (t->steps[i].request != 0 || t->steps[i].step != step)
            continue;
        step++;
        if (answer_step(s, &t->steps[i], out, err) != 0)
            return -1;
    }
    return 0;
}

static int answer_nonfinite(const struct ds_verdict *v, struct ds_lock_lines *out,
                            struct ds_error *err)
{
    const struct ds_finding *f = &v->nonfinite.at;
    struct ds_buf key = {0}, value = {0};
    if (!f->found)
        return 0;
    ds_buf_printf(&key, "nonfinite %d ", f->layer);
    add_place(&key, f->stage, f->part);
    add_kernel(&value, f->op, f->variant);
    return ds_lock_add_pair(out, &key, &value, err);
}

/* ---- all ------------------------------------------------------------------------------------- */

static int move_lines(struct ds_lock_lines *from, struct ds_lock_lines *to, struct ds_error *err)
{
    if (ds_grow(&to->at, &to->cap, to->n + from->n, sizeof *to->at, "lines of a lock", err) != 0)
        return -1;
    for (size_t i = 0; i < from->n; i++)
        to->at[to->n++] = from->at[i];
    from->n = 0;
    return 0;
}

/* What there is to count, behind the environment. */
static int answer_rest(const struct ds_source *s, const struct ds_verdict *v,
                       const uint32_t *number, struct ds_lock_lines *out, struct ds_error *err)
{
    return answer_kernels(v, out, err) != 0 || answer_classes(v, out, err) != 0 ||
                   answer_origins(v, out, err) != 0 || answer_nonfinite(v, out, err) != 0 ||
                   answer_runs(s, number, out, err) != 0 || answer_steps(s, out, err) != 0 ||
                   answer_tensors(s, out, err) != 0
               ? -1
               : 0;
}

int ds_lock_answer(const struct ds_source *s, const struct ds_verdict *v,
                   const struct ds_lock_lines *question, const uint32_t *number,
                   struct ds_lock_lines *out, struct ds_error *err)
{
    struct ds_lock_lines rest = {0};
    char key[17];
    int rc = answer_rest(s, v, number, &rest, err);
    if (rc == 0)
        rc = ds_lock_key(question, &rest, key, err);
    if (rc == 0 &&
        (ds_lock_add(out, "key", key, err) != 0 || answer_environment(s, out, err) != 0 ||
         answer_counts(v, &rest, out, err) != 0 || move_lines(&rest, out, err) != 0))
        rc = -1;
    ds_lock_lines_free(&rest);
    return rc == 0 ? ds_lock_sort(out, err) : -1;
}

/* "x86_64-zen": letters, digits, '.', '_' and '-'. */
void ds_lock_name(const struct ds_lock_lines *entry, char *out, size_t size)
{
    const char *machine = ds_lock_get(entry, "env machine"),
               *core = ds_lock_get(entry, "env blas_core"),
               *cblas = ds_lock_get(entry, "env cblas");
    snprintf(out, size, "%.40s%s%.40s", machine ? machine : "any", core || cblas ? "-" : "",
             core    ? core
             : cblas ? cblas
                     : "");
    for (char *p = out; *p; p++) {
        if (*p == ' ') {
            *p = '\0'; /* of a description the first word: the library's file */
            return;
        }
        *p = (char)tolower((unsigned char)*p);
        if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
            *p = '_';
    }
}
