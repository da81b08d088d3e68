/* diff_weights.c: weights of two records: which differ, and which sites' kernels read one that does. Knows
 * the names that GGUF files give to the weights of llama-like models. */
#include "dumps/diff_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

/* Whether only a layer with experts has a weight of that name. */
static int of_experts(const char *name, int32_t *layer)
{
    char *end;
    if (strncmp(name, "blk.", 4) != 0)
        return 0;
    const long n = strtol(name + 4, &end, 10);
    if (end == name + 4 || *end != '.' || n < 0 || n > INT32_MAX)
        return 0;
    *layer = (int32_t)n;
    return strncmp(end, ".ffn_gate_inp.", 14) == 0 || strstr(end, "_exps.") != NULL;
}

/* ---- differences ----------------------------------------------------------------------------- */

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

static int add_shapes(struct ds_diff *d, const struct ds_record_weight *x,
                      const struct ds_record_weight *y, struct ds_error *err)
{
    char a[64], b[64];
    snprintf(a, sizeof a, "%" PRId64 " x %" PRId64, x->rows, x->cols);
    snprintf(b, sizeof b, "%" PRId64 " x %" PRId64, y->rows, y->cols);
    return diff_add(d, DS_DIFF_WEIGHT, x->name, a, b, err);
}

/* A layer of both models that passes its rows to experts in one of them and to one network in the other has
 * no kernel in common there. */
static int refuse_experts(struct ds_diff *d, const struct ds_header *ha, const struct ds_header *hb,
                          const struct ds_record_weight *w, int in_b)
{
    const int32_t both = ha->n_layers < hb->n_layers ? ha->n_layers : hb->n_layers;
    int32_t layer;
    if (!of_experts(w->name, &layer) || layer >= both)
        return 0;
    return diff_refuse(d, "the models' structures differ: layer %d has experts in %s only", layer,
                       in_b ? "B" : "A");
}

/* Weights by name, listed in the order of A's file; those of other shapes as well. */
int diff_weights(struct ds_diff *d, const struct ds_header *ha, const struct ds_header *hb,
                 struct ds_error *err)
{
    struct named_weight *a = sorted_weights(ha, err), *b = sorted_weights(hb, err);
    const struct ds_record_weight **partner =
        ds_calloc(ha->n_weights, sizeof *partner, "weights", err);
    int rc = a && b && partner ? 0 : -1, refused = 0;
    for (size_t i = 0, j = 0; rc == 0 && (i < ha->n_weights || j < hb->n_weights);) {
        int order = i == ha->n_weights   ? 1
                    : j == hb->n_weights ? -1
                                         : strcmp(a[i].w->name, b[j].w->name);
        if (order != 0)
            refused |= refuse_experts(d, ha, hb, order < 0 ? a[i].w : b[j].w, order > 0);
        if (order > 0)
            rc = add_weight(d, NULL, b[j].w, err);
        else if (order == 0)
            partner[a[i].order] = b[j].w;
        i += order <= 0;
        j += order >= 0;
    }
    for (size_t i = 0; rc == 0 && i < ha->n_weights; i++) {
        const struct ds_record_weight *x = &ha->weights[i], *y = partner[i];
        if (y && (x->rows != y->rows || x->cols != y->cols)) {
            refused |= diff_refuse(d,
                                   "the shapes of weight %s differ: %" PRId64 " x %" PRId64
                                   " in A, %" PRId64 " x %" PRId64 " in B",
                                   x->name, x->rows, x->cols, y->rows, y->cols);
            rc = add_shapes(d, x, y, err);
        } else if (!y || x->digest != y->digest ||
                   (x->loaded && y->loaded && x->loaded != y->loaded))
            rc = add_weight(d, x, y, err);
    }
    free(a);
    free(b);
    free(partner);
    return rc < 0 ? rc : refused;
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

/* Which kernels read a weight, from its name. */
struct reader {
    int in_layer; /* of `layer` alone; else none within the layers */
    int32_t layer;
    const char *stage; /* NULL: any, since the name is not known */
    int embed;         /* the embedding, which may be the head too */
};

static struct reader reader_of(const char *weight)
{
    char *end;
    if (strncmp(weight, "blk.", 4) != 0)
        return (struct reader){.stage = stage_of_weight(weight),
                               .embed = strncmp(weight, "token_embd.", 11) == 0};
    const long layer = strtol(weight + 4, &end, 10);
    if (*end != '.' || layer < 0 || layer > INT32_MAX)
        return (struct reader){.in_layer = 1, .layer = INT32_MIN};
    return (struct reader){
        .in_layer = 1, .layer = (int32_t)layer, .stage = stage_of_weight(end + 1)};
}

static int reads_weight(const struct ds_site *s, int32_t n_layers, const struct reader *w)
{
    if (w->in_layer ? s->layer != w->layer : s->layer >= 0 && s->layer < n_layers)
        return 0;
    if (w->embed)
        return strcmp(s->stage, "embed") == 0 || strcmp(s->stage, "logits") == 0;
    return !w->stage || strcmp(w->stage, s->stage) == 0;
}

/* Whether the kernel at a site works with a hyperparameter: of one that is not listed every kernel may.
 * How many layers there are, and how many tokens could be, changes no kernel's numbers. */
static int reads_hparam(const struct ds_site *s, const char *name)
{
    static const char norms[] = " attn_norm q_norm k_norm ffn_norm final_norm ",
                      ropes[] = " q_rope k_rope ", attends[] = " attn_scores attn_probs attn_out ",
                      routes[] = " router_logits router_ids gate up act down expert_out "
                                 "moe_combine allreduce resid_ffn ";
    static const struct {
        const char *name, *stages;
    } readers[] = {{"n_layers", ""},           {"context", ""},
                   {"tied", " logits "},       {"rms_eps", norms},
                   {"rope_dim", ropes},        {"rope_base", ropes},
                   {"rope_scale", ropes},      {"rope_neox", ropes},
                   {"window", attends},        {"window_every", attends},
                   {"window_layers", attends}, {"soft_cap", attends},
                   {"top_k", routes},          {"norm_top_k", routes}};
    char word[48];
    snprintf(word, sizeof word, " %s ", s->stage);
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (strcmp(name, readers[i].name) == 0)
            return strstr(readers[i].stages, word) != NULL;
    return 1;
}

int ds_diff_reads(const struct ds_diff *d, const struct ds_diff_item *x, uint32_t site)
{
    if (site >= d->header.n_sites)
        return 0;
    const struct ds_site *s = &d->header.sites[site];
    const struct reader w = reader_of(x->name);
    return (x->kind == DS_DIFF_HPARAM && reads_hparam(s, x->name)) ||
           (x->kind == DS_DIFF_WEIGHT && reads_weight(s, d->header.n_layers, &w));
}

int diff_mark_sites(struct ds_diff *d, struct ds_error *err)
{
    if (!(d->data_differs = ds_calloc(d->header.n_sites, 1, "sites", err)))
        return -1;
    for (size_t i = 0; i < d->n_items; i++) {
        const struct ds_diff_item *x = &d->items[i];
        const struct reader w = reader_of(x->name);
        for (size_t s = 0; s < d->header.n_sites; s++)
            d->data_differs[s] |=
                (x->kind == DS_DIFF_HPARAM && reads_hparam(&d->header.sites[s], x->name)) ||
                (x->kind == DS_DIFF_WEIGHT &&
                 reads_weight(&d->header.sites[s], d->header.n_layers, &w));
    }
    return 0;
}

/* Hyperparameters come first: there are few, and each is a value of its own. */
void diff_data_text(void *ctx, uint32_t site, char *text, size_t size)
{
    const struct ds_diff *d = ctx;
    const struct ds_diff_item *first = NULL;
    size_t more = 0, at = 0;
    for (int weights = 0; weights < 2; weights++)
        for (size_t i = 0; i < d->n_items; i++) {
            const struct ds_diff_item *x = &d->items[i];
            if ((x->kind == DS_DIFF_WEIGHT) != weights || !ds_diff_reads(d, x, site))
                continue;
            more += first != NULL;
            first = first ? first : x;
        }
    if (size)
        text[0] = '\0';
    if (!first)
        return;
    if (first->kind == DS_DIFF_HPARAM)
        at = (size_t)snprintf(text, size, "%.40s is %.24s in A, %.24s in B", first->name,
                              first->a ? first->a : "none", first->b ? first->b : "none");
    else
        at = (size_t)snprintf(text, size, "%.60s %s", first->name,
                              !first->a   ? "is in B only"
                              : !first->b ? "is in A only"
                                          : "has other values");
    if (more && at < size)
        snprintf(text + at, size - at, ", and %zu more", more);
}
