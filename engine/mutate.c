/* mutate.c: see mutate.h. */
#include "engine/mutate.h"

#include "base/buf.h"
#include "base/mem.h"
#include "engine/forward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_texts[DS_MUTATION_KINDS] = {
    "a swap of two heads", "a swap of two rows", "a shift of positions", "a swap of two channels"};

/* ---- the check ------------------------------------------------------------------------------- */

struct check {
    struct ds_model *m;
    struct ds_site *sites;
    struct ds_edge *edges;
    uint32_t n_sites, n_edges;
    struct ds_forward *forward;
    struct ds_probe *probe;
    struct ds_mutation mutation;
    struct ds_batch_seq seq;
    uint64_t *plain, *mutated; /* [n_sites] hash of a site's digests */
    uint8_t *reads;            /* [n_sites] */
};

static int set_up(struct check *c, const int32_t *tokens, int32_t n, int dtype, int threads,
                  struct ds_error *err)
{
    struct ds_forward_config fc = {.dtype = dtype,
                                   .threads = threads,
                                   .max_rows = n,
                                   .n_requests = 1,
                                   .capacity = n,
                                   .mutation = &c->mutation};
    const char *set = c->m->keep == DS_WEIGHTS_FILE ? "pinned" : "reference";
    if (ds_kernel_set_parse(set, &fc.kernels, err) != 0 ||
        ds_forward_sites(c->m, dtype, &c->sites, &c->n_sites, &c->edges, &c->n_edges, err) != 0 ||
        ds_forward_new(c->m, &fc, &c->forward, err) != 0)
        return -1;
    struct ds_probe_config pc = {.sites = c->sites,
                                 .n_sites = c->n_sites,
                                 .edges = c->edges,
                                 .n_edges = c->n_edges,
                                 .no_watch = 1,
                                 .team = ds_forward_team(c->forward)};
    c->seq =
        (struct ds_batch_seq){.tokens = tokens, .n_tokens = n, .record = 1, .logits_from = n - 1};
    c->plain = ds_calloc(c->n_sites, sizeof *c->plain, "sites", err);
    c->mutated = ds_calloc(c->n_sites, sizeof *c->mutated, "sites", err);
    c->reads = ds_calloc(c->n_sites, 1, "sites", err);
    return c->plain && c->mutated && c->reads ? ds_probe_new(&pc, &c->probe, err) : -1;
}

static int run_pass(struct check *c, uint64_t *hash, struct ds_error *err)
{
    struct ds_trial info = {.threads_asked = 1};
    struct ds_batch batch = {&c->seq, 1, DS_PHASE_PREFILL};
    struct ds_trial_data t;
    const float *logits;
    const int32_t *tokens;
    int32_t n;
    ds_forward_reset(c->forward);
    if (ds_probe_begin_trial(c->probe, &info, NULL, 0, err) != 0)
        return -1;
    if (ds_forward_run(c->forward, &batch, c->probe, &logits, &tokens, &n, err) != 0 ||
        ds_probe_end_call(c->probe, err) != 0) {
        ds_probe_abort_trial(c->probe);
        return -1;
    }
    if (ds_probe_end_trial(c->probe, &t, err) != 0)
        return -1;
    memset(hash, 0, c->n_sites * sizeof *hash);
    for (size_t i = 0; i < t.n_captures; i++)
        for (uint32_t k = 0; k < t.captures[i].rows; k++) {
            uint64_t *h = &hash[t.captures[i].site];
            *h = (*h ^ t.digests[t.captures[i].first_digest + k]) * 0xff51afd7ed558ccdu;
            *h ^= *h >> 32;
        }
    ds_trial_data_free(&t);
    return 0;
}

/* Who reads the site and computes with it: what only stores it (the cache) hands it on. */
static int find_readers(struct check *c, uint32_t site)
{
    int some = 0;
    memset(c->reads, 0, c->n_sites);
    c->reads[site] = 2;
    for (uint32_t s = site; s < c->n_sites; s++) {
        int hands_on = s == site || (c->reads[s] && strcmp(c->sites[s].op, "cache") == 0);
        for (uint32_t e = 0; hands_on && e < c->n_edges; e++)
            if (c->edges[e].from == s && c->edges[e].to > s)
                c->reads[c->edges[e].to] = 1;
    }
    for (uint32_t s = 0; s < c->n_sites; s++) {
        /* Choices (ids, tokens) may stay as they are for a good reason. */
        if (s == site || strcmp(c->sites[s].op, "cache") == 0 ||
            strcmp(c->sites[s].dtype, "i32") == 0)
            c->reads[s] = 0;
        some |= c->reads[s];
    }
    return some;
}

static int has_heads(const struct ds_site *s)
{
    static const char *const stages[] = {"q_proj", "k_proj", "v_proj", "q_norm",
                                         "k_norm", "q_rope", "k_rope", "attn_out"};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        if (strcmp(s->stage, stages[i]) == 0)
            return 1;
    return 0;
}

static int try_one(struct check *c, uint32_t site, int kind, struct ds_mutate_result *r,
                   struct ds_buf *inert, struct ds_error *err)
{
    const struct ds_site *s = &c->sites[site];
    int seen = 0;
    c->mutation =
        (struct ds_mutation){.site = site, .kind = kind, .head_dim = (size_t)c->m->hp.head_dim};
    int rc = run_pass(c, c->mutated, err);
    c->mutation.site = DS_NO_SITE;
    if (rc != 0 || !c->mutation.applied)
        return rc;
    for (uint32_t i = 0; i < c->n_sites; i++)
        seen |= c->reads[i] && c->plain[i] != c->mutated[i];
    r->made++;
    r->seen += (uint32_t)seen;
    if (!seen && s->layer < 0)
        ds_buf_printf(inert, "%s at %s\n", kind_texts[kind], s->stage);
    else if (!seen)
        ds_buf_printf(inert, "%s at %s, layer %d\n", kind_texts[kind], s->stage, s->layer);
    return 0;
}

static int try_all(struct check *c, struct ds_mutate_result *r, struct ds_buf *inert,
                   struct ds_error *err)
{
    c->mutation.site = DS_NO_SITE;
    if (run_pass(c, c->plain, err) != 0)
        return -1;
    for (uint32_t site = 0; site < c->n_sites; site++) {
        const struct ds_site *s = &c->sites[site];
        if ((s->layer > 0 && s->layer < c->m->hp.n_layers) || strcmp(s->dtype, "i32") == 0 ||
            s->part[0] || !find_readers(c, site))
            continue;
        for (int kind = 0; kind < DS_MUTATION_KINDS; kind++)
            if ((kind != DS_MUTATE_HEADS || has_heads(s)) &&
                try_one(c, site, kind, r, inert, err) != 0)
                return -1;
    }
    return 0;
}

int ds_mutate_fixture(struct ds_model *m, const int32_t *tokens, int32_t n, int dtype, int threads,
                      struct ds_mutate_result *out, struct ds_error *err)
{
    struct check c = {.m = m};
    struct ds_buf inert = {0};
    memset(out, 0, sizeof *out);
    c.mutation.site = DS_NO_SITE;
    ds_buf_puts(&inert, "");
    int rc =
        n < 1 ? ds_fail(err, "no prompt to change") : set_up(&c, tokens, n, dtype, threads, err);
    if (rc == 0)
        rc = try_all(&c, out, &inert, err);
    ds_buf_add(&inert, "", 1);
    if (rc == 0 && inert.failed)
        rc = ds_fail(err, "out of memory for the names of changes");
    if (rc == 0)
        out->inert = inert.data;
    else
        ds_buf_free(&inert);
    ds_probe_free(c.probe);
    ds_forward_free(c.forward);
    free(c.sites);
    free(c.edges);
    free(c.plain);
    free(c.mutated);
    free(c.reads);
    return rc;
}
