/* diff_setting.c: what differs between two records apart from digests, and whether they can be
 * compared at all. */
#include "dumps/diff_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse(struct ds_diff *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int refuse(struct ds_diff *d, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(d->verdict.reason, sizeof d->verdict.reason, fmt, ap);
    va_end(ap);
    return 1;
}

/* Shapes of the model: another number of heads is another model, not a drift. Another number of
 * layers may be the same model cut short: what both have is compared. */
static int compare_shapes(struct ds_diff *d, const struct ds_header *a, const struct ds_header *b,
                          struct ds_error *err)
{
    char x[16], y[16];
    if (strcmp(a->model_arch, b->model_arch) != 0)
        return refuse(d, "the models' architectures differ: %s in A, %s in B", a->model_arch,
                      b->model_arch);
    const struct {
        const char *name;
        int32_t a, b;
    } shape[] = {{"heads", a->n_heads, b->n_heads},
                 {"key-value heads", a->n_kv_heads, b->n_kv_heads},
                 {"head dimension", a->head_dim, b->head_dim}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        if (shape[i].a != shape[i].b)
            return refuse(d, "the models' shapes differ: %s %d in A, %d in B", shape[i].name,
                          shape[i].a, shape[i].b);
    if (a->n_layers == b->n_layers)
        return 0;
    snprintf(x, sizeof x, "%d", a->n_layers);
    snprintf(y, sizeof y, "%d", b->n_layers);
    return diff_add(d, DS_DIFF_MODEL, "layers", x, y, err);
}

static const struct ds_prompt *subject(const struct ds_header *h)
{
    for (size_t i = 0; i < h->n_prompts; i++)
        if (h->prompts[i].request == 0)
            return &h->prompts[i];
    return NULL;
}

/* Only the subject's: neighbours are part of an arm's setting. A prompt that is the beginning of the
 * other can be compared as far as it goes, since a row sees only what stands before it. */
static int compare_prompts(struct ds_diff *d, const struct ds_header *a, const struct ds_header *b,
                           struct ds_error *err)
{
    const struct ds_prompt *x = subject(a), *y = subject(b);
    char n[2][48];
    if (!x || !y)
        return x || y ? refuse(d, "one record has no prompt") : 0;
    uint32_t common = x->n_tokens < y->n_tokens ? x->n_tokens : y->n_tokens;
    for (uint32_t t = 0; t < common; t++)
        if (x->tokens[t] != y->tokens[t])
            return refuse(d, "the prompts differ: token %u is %d in A, %d in B", t, x->tokens[t],
                          y->tokens[t]);
    if (x->n_tokens == y->n_tokens)
        return 0;
    if (common == 0)
        return refuse(d, "the prompts differ: %u tokens in A, %u in B", x->n_tokens, y->n_tokens);
    snprintf(n[0], sizeof n[0], "%u tokens", x->n_tokens);
    snprintf(n[1], sizeof n[1], "%u tokens", y->n_tokens);
    snprintf(n[y->n_tokens < x->n_tokens], sizeof n[0], "its first %u tokens", common);
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
    return strcmp(name, "weights") == 0 ? "f32" : "0";
}

/* What is dumped changes no number; forced tokens are compared step by step; what a fixture cannot show is
 * a finding. */
static int is_of_interest(const char *name)
{
    return strncmp(name, "dump", 4) != 0 && strcmp(name, "forced_tokens") != 0 &&
           strcmp(name, "mutations") != 0 && strcmp(name, "inert") != 0;
}

/* Fixtures that were found inert speak for the two records as one: their lines are its options. */
static int take_fixtures(struct ds_diff *d, const struct ds_header *a, const struct ds_header *b,
                         struct ds_error *err)
{
    const struct ds_header *h[2] = {a, b};
    if (!(d->header.options =
              ds_calloc(a->n_options + b->n_options, sizeof *d->header.options, "options", err)))
        return -1;
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < h[side]->n_options; i++) {
            const struct ds_text *x = &h[side]->options[i];
            int known = strcmp(x->name, "inert") != 0;
            for (size_t k = 0; k < d->header.n_options; k++)
                known |= strcmp(d->header.options[k].value, x->value) == 0;
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
        if (rc == 0 && is_of_interest(x->name) &&
            strcmp(x->a ? x->a : before, x->b ? x->b : before) != 0)
            rc = diff_add(d, DS_DIFF_OPTION, x->name, x->a ? x->a : before, x->b ? x->b : before,
                          err);
        free(x->name);
        free(x->a);
        free(x->b);
    }
    free(all.items);
    return rc;
}

struct named_weight {
    const struct ds_record_weight *w;
    size_t order;
};

static int weight_cmp(const void *pa, const void *pb)
{
    const struct named_weight *a = pa, *b = pb;
    int c = strcmp(a->w->name, b->w->name);
    return c ? c : (a->order > b->order) - (a->order < b->order);
}

static struct named_weight *sorted_weights(const struct ds_header *h, struct ds_error *err)
{
    struct named_weight *list = ds_calloc(h->n_weights, sizeof *list, "weights", err);
    for (size_t i = 0; list && i < h->n_weights; i++)
        list[i] = (struct named_weight){&h->weights[i], i};
    if (list && h->n_weights)
        qsort(list, h->n_weights, sizeof *list, weight_cmp);
    return list;
}

/* Where both files are known: alike bytes and other numbers are a fault of dequantising, not of the
 * file. */
static void print_weight(const struct ds_record_weight *w, int with_bytes, char *text, size_t size)
{
    int n = w ? snprintf(text, size, "%s %016" PRIx64, w->dtype, w->digest) : 0;
    if (w && with_bytes && n > 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, " from bytes %016" PRIx64, w->loaded);
}

static int add_weight(struct ds_diff *d, const struct ds_record_weight *x,
                      const struct ds_record_weight *y, struct ds_error *err)
{
    char a[96], b[96];
    const int with_bytes = x && y && x->loaded && y->loaded;
    if (with_bytes && x->digest == y->digest) {
        snprintf(a, sizeof a, "%s %016" PRIx64, x->dtype, x->loaded);
        snprintf(b, sizeof b, "%s %016" PRIx64, y->dtype, y->loaded);
        return diff_add(d, DS_DIFF_WEIGHT_BYTES, x->name, a, b, err);
    }
    print_weight(x, with_bytes, a, sizeof a);
    print_weight(y, with_bytes, b, sizeof b);
    return diff_add(d, DS_DIFF_WEIGHT, x ? x->name : y->name, x ? a : NULL, y ? b : NULL, err);
}

/* Weights by name, listed in the order of A's file. */
static int compare_weights(struct ds_diff *d, const struct ds_header *ha,
                           const struct ds_header *hb, struct ds_error *err)
{
    struct named_weight *a = sorted_weights(ha, err), *b = sorted_weights(hb, err);
    const struct ds_record_weight **partner =
        ds_calloc(ha->n_weights, sizeof *partner, "weights", err);
    int rc = a && b && partner ? 0 : -1;
    for (size_t i = 0, j = 0; rc == 0 && (i < ha->n_weights || j < hb->n_weights);) {
        int order = i == ha->n_weights   ? 1
                    : j == hb->n_weights ? -1
                                         : strcmp(a[i].w->name, b[j].w->name);
        if (order > 0)
            rc = add_weight(d, NULL, b[j].w, err);
        else if (order == 0)
            partner[a[i].order] = b[j].w;
        i += order <= 0;
        j += order >= 0;
    }
    for (size_t i = 0; rc == 0 && i < ha->n_weights; i++) {
        const struct ds_record_weight *x = &ha->weights[i], *y = partner[i];
        if (y && (x->rows != y->rows || x->cols != y->cols))
            rc = refuse(d,
                        "the shapes of weight %s differ: %" PRId64 " x %" PRId64 " in A, %" PRId64
                        " x %" PRId64 " in B",
                        x->name, x->rows, x->cols, y->rows, y->cols);
        else if (!y || x->digest != y->digest || (x->loaded && y->loaded && x->loaded != y->loaded))
            rc = add_weight(d, x, y, err);
    }
    free(a);
    free(b);
    free(partner);
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
    int rc = compare_shapes(d, x, y, err);
    if (rc == 0 && strcmp(x->model_name, y->model_name) != 0)
        rc = diff_add(d, DS_DIFF_MODEL, "model", x->model_name, y->model_name, err);
    rc = rc ? rc : compare_weights(d, x, y, err);
    rc = rc ? rc : diff_packed(d, a, b, err);
    rc = rc ? rc
            : compare_texts(d, DS_DIFF_HPARAM, x->hparams, x->n_hparams, y->hparams, y->n_hparams,
                            err);
    rc = rc ? rc : compare_options(d, x, y, err);
    rc = rc ? rc : take_fixtures(d, x, y, err);
    rc = rc ? rc : compare_prompts(d, x, y, err);
    rc = rc ? rc : compare_cores(d, a, b, err);
    return rc ? rc
              : compare_texts(d, DS_DIFF_ENVIRONMENT, x->environment, x->n_environment,
                              y->environment, y->n_environment, err);
}

/* ---- which sites' kernels read a differing weight -------------------------------------------- */

/* The stage that a weight of a llama-like GGUF file belongs to; a tied embedding is the head too.
 */
static const char *stage_of_weight(const char *name)
{
    static const char *const stages[][2] = {{"attn_norm", "attn_norm"},
                                            {"attn_q_norm", "q_norm"},
                                            {"attn_k_norm", "k_norm"},
                                            {"attn_q", "q_proj"},
                                            {"attn_k", "k_proj"},
                                            {"attn_v", "v_proj"},
                                            {"attn_output", "o_proj"},
                                            {"ffn_norm", "ffn_norm"},
                                            {"ffn_gate", "gate"},
                                            {"ffn_up", "up"},
                                            {"ffn_down", "down"},
                                            {"output_norm", "final_norm"},
                                            {"output", "logits"},
                                            {"ffn_gate_inp", "router_logits"},
                                            {"ffn_gate_exps", "gate"},
                                            {"ffn_up_exps", "up"},
                                            {"ffn_down_exps", "expert_out"},
                                            {"ffn_gate_shexp", "gate"},
                                            {"ffn_up_shexp", "up"},
                                            {"ffn_down_shexp", "expert_out"},
                                            {"ffn_gate_inp_shexp", "router_logits"}};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        size_t n = strlen(stages[i][0]);
        if (strncmp(name, stages[i][0], n) == 0 && name[n] == '.')
            return stages[i][1];
    }
    return NULL;
}

static int reads_weight(const struct ds_site *s, int32_t n_layers, const char *weight)
{
    char *end;
    if (strncmp(weight, "blk.", 4) != 0) {
        if (s->layer >= 0 && s->layer < n_layers)
            return 0;
        if (strncmp(weight, "token_embd.", 11) == 0)
            return strcmp(s->stage, "embed") == 0 || strcmp(s->stage, "logits") == 0;
        const char *stage = stage_of_weight(weight);
        return !stage || strcmp(stage, s->stage) == 0;
    }
    long layer = strtol(weight + 4, &end, 10);
    if (*end != '.' || layer != s->layer)
        return 0;
    const char *stage = stage_of_weight(
        end + 1); /* of a weight with another name any stage of its layer may read it */
    return !stage || strcmp(stage, s->stage) == 0;
}

/* Whether the kernel at a site works with a hyperparameter: of one that is not listed every kernel may.
 * How many layers there are, and how many tokens could be, changes no kernel's numbers. */
static int reads_hparam(const struct ds_site *s, const char *name)
{
    static const char norms[] = " attn_norm q_norm k_norm ffn_norm final_norm ",
                      ropes[] = " q_rope k_rope ", attends[] = " attn_scores attn_probs attn_out ",
                      ffn[] = " router_logits router_ids gate up act down expert_out moe_combine "
                              "allreduce resid_ffn ";
    static const struct {
        const char *name, *stages;
    } readers[] = {{"n_layers", ""},          {"context", ""},       {"tied", " logits "},
                   {"rms_eps", norms},        {"rope_dim", ropes},   {"rope_base", ropes},
                   {"rope_scale", ropes},     {"rope_neox", ropes},  {"window", attends},
                   {"window_every", attends}, {"soft_cap", attends}, {"d_ff", ffn},
                   {"n_experts", ffn},        {"dense_layers", ffn}, {"top_k", ffn},
                   {"d_ff_expert", ffn},      {"d_ff_shared", ffn},  {"norm_top_k", ffn}};
    char word[48];
    snprintf(word, sizeof word, " %s ", s->stage);
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (strcmp(name, readers[i].name) == 0)
            return strstr(readers[i].stages, word) != NULL;
    return 1;
}

int diff_mark_sites(struct ds_diff *d, struct ds_error *err)
{
    if (!(d->data_differs = ds_calloc(d->header.n_sites, 1, "sites", err)))
        return -1;
    for (size_t i = 0; i < d->n_items; i++)
        for (size_t s = 0; s < d->header.n_sites; s++)
            d->data_differs[s] |=
                (d->items[i].kind == DS_DIFF_HPARAM &&
                 reads_hparam(&d->header.sites[s], d->items[i].name)) ||
                (d->items[i].kind == DS_DIFF_WEIGHT &&
                 reads_weight(&d->header.sites[s], d->header.n_layers, d->items[i].name));
    return 0;
}
