/* diff_setting.c: what differs between two records apart from digests, and whether they can be
 * compared at all. Where they cannot, the first reason is given and the rest is listed all the same. */
#include "dumps/diff_internal.h"

#include "base/plural.h"
#include "dumps/option_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int diff_refuse(struct ds_diff *d, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!d->verdict.reason[0])
        vsnprintf(d->verdict.reason, sizeof d->verdict.reason, fmt, ap);
    va_end(ap);
    return 1;
}

static const char *hparam(const struct ds_header *h, const char *name)
{
    for (size_t i = 0; i < h->n_hparams; i++)
        if (strcmp(h->hparams[i].name, name) == 0)
            return h->hparams[i].value;
    return NULL;
}

/* Hyperparameters that say which kernels there are and how wide their rows: with another value it is
 * another model, not a drift. One that a record leaves out is none of that kind; a record that has no
 * hyperparameters at all says nothing. */
static int compare_structure(struct ds_diff *d, const struct ds_header *a,
                             const struct ds_header *b)
{
    static const char *const fields[][2] = {{"n_experts", "experts"},
                                            {"dense_layers", "first layers without experts"},
                                            {"expert_every", "layers between those with experts"},
                                            {"d_ff_shared", "width of the shared expert"},
                                            {"d_ff_expert", "width of an expert"},
                                            {"d_model", "width of the residual stream"},
                                            {"vocab", "vocabulary"},
                                            {"d_ff", "width of the feed-forward network"}};
    for (size_t i = 0; a->n_hparams && b->n_hparams && i < sizeof fields / sizeof *fields; i++) {
        const char *x = hparam(a, fields[i][0]), *y = hparam(b, fields[i][0]);
        if (strcmp(x ? x : "0", y ? y : "0") != 0)
            return diff_refuse(d, "the models' shapes differ: %s %.40s in A, %.40s in B",
                               fields[i][1], x ? x : "none", y ? y : "none");
    }
    return 0;
}

/* Shapes of the model: another number of heads is another model, not a drift. Another number of
 * layers may be the same model cut short: what both have is compared. */
static int compare_shapes(struct ds_diff *d, const struct ds_header *a, const struct ds_header *b,
                          struct ds_error *err)
{
    char x[16], y[16];
    int rc = 0;
    if (strcmp(a->model_arch, b->model_arch) != 0)
        rc = diff_refuse(d, "the models' architectures differ: %s in A, %s in B", a->model_arch,
                         b->model_arch);
    const struct {
        const char *name;
        int32_t a, b;
    } shape[] = {{"heads", a->n_heads, b->n_heads},
                 {"key-value heads", a->n_kv_heads, b->n_kv_heads},
                 {"head dimension", a->head_dim, b->head_dim}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        if (shape[i].a != shape[i].b)
            rc = diff_refuse(d, "the models' shapes differ: %s %d in A, %d in B", shape[i].name,
                             shape[i].a, shape[i].b);
    rc |= compare_structure(d, a, b);
    if (a->n_layers == b->n_layers)
        return rc;
    snprintf(x, sizeof x, "%d", a->n_layers);
    snprintf(y, sizeof y, "%d", b->n_layers);
    return diff_add(d, DS_DIFF_MODEL, "layers", x, y, err) != 0 ? -1 : rc;
}

static const struct ds_prompt *subject(const struct ds_header *h)
{
    for (size_t i = 0; i < h->n_prompts; i++)
        if (h->prompts[i].request == 0)
            return &h->prompts[i];
    return NULL;
}

/* The run's --position-offset. */
static long first_position(const struct ds_header *h)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, "position_offset") == 0)
            return strtol(h->options[i].value, NULL, 10);
    return 0;
}

/* How many of the first tokens of x the other prompt lacks, where the rest of it are those behind them; 0: it is
 * no such prompt. */
static uint32_t tokens_lost(const struct ds_prompt *x, const struct ds_prompt *y)
{
    enum { MOST_LOST = 64, LEAST_ALIKE = 3 };
    for (uint32_t lost = 1; lost <= MOST_LOST && lost + LEAST_ALIKE <= x->n_tokens; lost++) {
        const uint32_t left = x->n_tokens - lost, n = left < y->n_tokens ? left : y->n_tokens;
        if (n >= LEAST_ALIKE && memcmp(x->tokens + lost, y->tokens, n * sizeof *y->tokens) == 0)
            return lost;
    }
    return 0;
}

/* Token t is the first that differs. A prompt that lacks the other's first tokens is told as that: a BOS that one
 * side does not put before it, above all. */
static int refuse_prompts(struct ds_diff *d, const struct ds_prompt *x, const struct ds_prompt *y,
                          uint32_t t)
{
    const uint32_t in_b = tokens_lost(x, y), in_a = tokens_lost(y, x), lost = in_b ? in_b : in_a;
    const struct ds_prompt *whole = in_b ? x : y;
    if (!lost)
        return diff_refuse(d, "the prompts differ: token %u is %d in A, %d in B", t, x->tokens[t],
                           y->tokens[t]);
    if (lost == 1)
        return diff_refuse(d,
                           "the prompts differ: %c lacks the first token of %c (%d: a BOS?), and "
                           "goes on with the second",
                           in_b ? 'B' : 'A', in_b ? 'A' : 'B', whole->tokens[0]);
    return diff_refuse(d,
                       "the prompts differ: %c lacks the first %u tokens of %c (%d..%d), and goes "
                       "on behind them",
                       in_b ? 'B' : 'A', lost, in_b ? 'A' : 'B', whole->tokens[0],
                       whole->tokens[lost - 1]);
}

/* Only the subject's: neighbours are part of an arm's setting. A prompt that is the beginning of the
 * other can be compared as far as it goes, since a row sees only what stands before it. */
static int compare_prompts(struct ds_diff *d, const struct ds_header *a, const struct ds_header *b,
                           struct ds_error *err)
{
    const struct ds_prompt *x = subject(a), *y = subject(b);
    char n[2][48];
    if (!x || !y)
        return x || y ? diff_refuse(d, "one record has no prompt") : 0;
    const long from[2] = {first_position(a), first_position(b)};
    if (from[0] != from[1])
        return diff_refuse(d,
                           "the requests begin at position %ld in A, at position %ld in B: rows of "
                           "one position are other tokens",
                           from[0], from[1]);
    uint32_t common = x->n_tokens < y->n_tokens ? x->n_tokens : y->n_tokens;
    for (uint32_t t = 0; t < common; t++)
        if (x->tokens[t] != y->tokens[t])
            return refuse_prompts(d, x, y, t);
    if (x->n_tokens == y->n_tokens)
        return 0;
    if (common == 0)
        return diff_refuse(d, "the prompts differ: %u token%s in A, %u in B", x->n_tokens,
                           ds_plural(x->n_tokens), y->n_tokens);
    snprintf(n[0], sizeof n[0], "%u token%s", x->n_tokens, ds_plural(x->n_tokens));
    snprintf(n[1], sizeof n[1], "%u token%s", y->n_tokens, ds_plural(y->n_tokens));
    const int shorter = y->n_tokens < x->n_tokens;
    if (common == 1)
        snprintf(n[shorter], sizeof n[0], "its first token");
    else
        snprintf(n[shorter], sizeof n[0], "its first %u tokens", common);
    d->prompts[0] = x;
    d->prompts[1] = y;
    return diff_add(d, DS_DIFF_PROMPT, "length", n[0], n[1], err);
}

static int text_cmp(const void *pa, const void *pb)
{
    const struct ds_text *const *a = pa, *const *b = pb;
    return strcmp((*a)->name, (*b)->name);
}

static const struct ds_text **sorted_texts(const struct ds_text *lines, size_t n,
                                           struct ds_error *err)
{
    const struct ds_text **list = ds_calloc(n, sizeof *list, "settings", err);
    for (size_t i = 0; list && i < n; i++)
        list[i] = &lines[i];
    if (list && n)
        qsort(list, n, sizeof *list, text_cmp);
    return list;
}

/* Adds an item for every name whose value differs or that one side lacks. */
static int compare_texts(struct ds_diff *d, int kind, const struct ds_text *la, size_t na,
                         const struct ds_text *lb, size_t nb, struct ds_error *err)
{
    const struct ds_text **a = sorted_texts(la, na, err), **b = sorted_texts(lb, nb, err);
    int rc = a && b ? 0 : -1;
    for (size_t i = 0, j = 0; rc == 0 && (i < na || j < nb);) {
        int order = i == na ? 1 : j == nb ? -1 : strcmp(a[i]->name, b[j]->name);
        const struct ds_text *x = order <= 0 ? a[i++] : NULL, *y = order >= 0 ? b[j++] : NULL;
        if (x && y && strcmp(x->value, y->value) == 0)
            continue;
        rc =
            diff_add(d, kind, x ? x->name : y->name, x ? x->value : NULL, y ? y->value : NULL, err);
    }
    free(a);
    free(b);
    return rc;
}

/* An option that one record does not know: it was made when there was no choice yet. */
static const char *value_before(const char *name)
{
    static const char *const one[] = {"top_p", "repetition_penalty", "sample_seed"};
    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++)
        if (strcmp(name, one[i]) == 0)
            return "1";
    return strcmp(name, "weights") == 0 ? "f32" : strcmp(name, "dtype_at") == 0 ? "" : "0";
}

/* What is dumped changes no number; forced tokens are compared step by step; what a fixture cannot show is
 * a finding; recorded inputs are told by their digest. */
static int is_of_interest(const char *name)
{
    return strncmp(name, "dump", 4) != 0 && strcmp(name, "forced_tokens") != 0 &&
           strcmp(name, "mutations") != 0 && strcmp(name, "inert") != 0 &&
           strcmp(name, "inputs") != 0 && strcmp(name, "inputs_file") != 0;
}

static int has_option(const struct ds_header *h, const struct ds_text *want)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, want->name) == 0 &&
            strcmp(h->options[i].value, want->value) == 0)
            return 1;
    return 0;
}

/* Options of the two records as one: lines of fixtures that either found inert, and how large both's
 * pages are. */
static int take_options(struct ds_diff *d, const struct ds_header *a, const struct ds_header *b,
                        struct ds_error *err)
{
    const struct ds_header *h[2] = {a, b};
    if (!(d->header.options =
              ds_calloc(a->n_options + b->n_options, sizeof *d->header.options, "options", err)))
        return -1;
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < h[side]->n_options; i++) {
            const struct ds_text *x = &h[side]->options[i];
            int known = strcmp(x->name, "inert") != 0 &&
                        (strcmp(x->name, "page_size") != 0 || !has_option(h[1 - side], x));
            for (size_t k = 0; k < d->header.n_options; k++)
                known |= strcmp(d->header.options[k].name, x->name) == 0 &&
                         strcmp(d->header.options[k].value, x->value) == 0;
            if (!known)
                d->header.options[d->header.n_options++] = *x;
        }
    return 0;
}

/* Options of the run that are not factors: history, poison, which sites are digested, and under
 * which form of the weights a kernel runs other code on the same numbers. */
static int compare_options(struct ds_diff *d, const struct ds_header *a, const struct ds_header *b,
                           struct ds_error *err)
{
    struct ds_diff all = {0};
    int rc = compare_texts(&all, DS_DIFF_OPTION, a->options, a->n_options, b->options, b->n_options,
                           err);
    for (size_t i = 0; i < all.n_items; i++) {
        struct ds_diff_item *x = &all.items[i];
        const char *before = value_before(x->name);
        char brief[2][64];
        if (rc == 0 && is_of_interest(x->name) &&
            strcmp(x->a ? x->a : before, x->b ? x->b : before) != 0)
            rc = diff_add(d, DS_DIFF_OPTION, x->name,
                          ds_option_text(x->name, x->a ? x->a : before, brief[0]),
                          ds_option_text(x->name, x->b ? x->b : before, brief[1]), err);
        free(x->name);
        free(x->a);
        free(x->b);
    }
    free(all.items);
    return rc;
}

/* The first trial that had a BLAS open, else the first trial. */
static const struct ds_trial *first_with_blas(const struct ds_source *s)
{
    for (size_t i = 0; i < s->n_trials; i++)
        if (s->info(s->ctx, i)->blas_core[0])
            return s->info(s->ctx, i);
    return s->n_trials ? s->info(s->ctx, 0) : NULL;
}

/* The BLAS that the trials really saw: the environment says only what was asked for. Its
 * description names the core too, so it is compared where the cores agree. */
static int compare_cores(struct ds_diff *d, const struct ds_source *a, const struct ds_source *b,
                         struct ds_error *err)
{
    const struct ds_trial *x = first_with_blas(a), *y = first_with_blas(b);
    if (!x || !y)
        return 0;
    const char *core_x = x->blas_core, *core_y = y->blas_core;
    if (strcmp(core_x, core_y) != 0)
        return diff_add(d, DS_DIFF_LIBRARY, "BLAS core", *core_x ? core_x : NULL,
                        *core_y ? core_y : NULL, err);
    if (strcmp(x->blas_config, y->blas_config) != 0)
        return diff_add(d, DS_DIFF_LIBRARY, "BLAS", x->blas_config, y->blas_config, err);
    return 0;
}

int diff_settings(struct ds_diff *d, const struct ds_source *a, const struct ds_source *b,
                  struct ds_error *err)
{
    const struct ds_header *x = a->header, *y = b->header;
    int rc = compare_shapes(d, x, y, err), refused = rc > 0;
    if (rc >= 0 && strcmp(x->model_name, y->model_name) != 0)
        rc = diff_add(d, DS_DIFF_MODEL, "model", x->model_name, y->model_name, err);
    rc = rc < 0 ? rc : diff_weights(d, x, y, err);
    refused |= rc > 0;
    rc = rc < 0 || refused ? rc : diff_packed(d, a, b, err);
    rc = rc < 0 ? rc : diff_models(d, x, y, err);
    refused |= rc > 0;
    rc = rc < 0 ? rc
                : compare_texts(d, DS_DIFF_HPARAM, x->hparams, x->n_hparams, y->hparams,
                                y->n_hparams, err);
    rc = rc < 0 ? rc : compare_options(d, x, y, err);
    rc = rc < 0 ? rc : take_options(d, x, y, err);
    rc = rc < 0 ? rc : compare_prompts(d, x, y, err);
    refused |= rc > 0;
    rc = rc < 0 ? rc : compare_cores(d, a, b, err);
    rc = rc < 0 ? rc
                : compare_texts(d, DS_DIFF_ENVIRONMENT, x->environment, x->n_environment,
                                y->environment, y->n_environment, err);
    return rc < 0 ? rc : refused;
}
