/* make_wide_record.c: writes a record with many digests, for measuring what reads them. Synthetic: layers of ten
 * stages, a prompt of so many rows, arms that all differ from some layer on.
 *
 *     make_wide_record OUT.h5 LAYERS ROWS ARMS */
#include "dumps/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGES = 10, DECODE = 4 };

static const char *const stages[STAGES][2] = {
    {"attn_norm", "rmsnorm"}, {"q_proj", "matmul"},  {"q_rope", "rope"}, {"attn_out", "attention"},
    {"o_proj", "matmul"},     {"resid_attn", "add"}, {"gate", "matmul"}, {"act", "silu_mul"},
    {"down", "matmul"},       {"resid_ffn", "add"}};

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

static void *zeroed(size_t n, size_t size)
{
    return must(calloc(n ? n : 1, size));
}

static char *text(const char *s)
{
    return must(strdup(s));
}

static void make_header(struct ds_header *h, uint32_t layers, uint32_t rows, uint32_t arms)
{
    memset(h, 0, sizeof *h);
    snprintf(h->model_name, sizeof h->model_name, "synthetic");
    snprintf(h->model_arch, sizeof h->model_arch, "llama");
    h->n_layers = (int32_t)layers;
    h->n_heads = 9;
    h->n_kv_heads = 3;
    h->head_dim = 64;
    h->repeats = 1;
    h->command = text("make_wide_record");
    h->n_sites = (size_t)layers * STAGES;
    h->n_edges = h->n_sites - 1;
    h->sites = zeroed(h->n_sites, sizeof *h->sites);
    h->edges = zeroed(h->n_sites, sizeof *h->edges);
    for (uint32_t i = 0; i < h->n_sites; i++) {
        struct ds_site *s = &h->sites[i];
        s->layer = (int32_t)(i / STAGES);
        snprintf(s->stage, sizeof s->stage, "%s", stages[i % STAGES][0]);
        snprintf(s->op, sizeof s->op, "%s", stages[i % STAGES][1]);
        snprintf(s->dtype, sizeof s->dtype, "f32");
        s->width = 576;
        if (i)
            h->edges[i - 1] = (struct ds_edge){i - 1, i, DS_EDGE_ROW};
    }
    h->prompts = zeroed(1, sizeof *h->prompts);
    h->n_prompts = 1;
    h->prompts[0].text = text("");
    h->prompts[0].tokens = zeroed(rows, sizeof(int32_t));
    h->prompts[0].n_tokens = rows;
    h->factors = zeroed(1, sizeof *h->factors);
    h->factors[0] = text("batch");
    h->n_factors = 1;
    h->arms = zeroed(arms, sizeof *h->arms);
    h->n_arms = arms;
    for (uint32_t i = 0; i < arms; i++) {
        char value[16];
        snprintf(value, sizeof value, "%u", i + 1);
        h->arms[i].values = zeroed(1, sizeof(char *));
        h->arms[i].values[0] = text(value);
    }
}

static void make_trial(const struct ds_header *h, uint32_t arm, uint32_t rows,
                       struct ds_trial_data *t)
{
    memset(t, 0, sizeof *t);
    t->info = (struct ds_trial){.arm = arm, .prefill_cpu_s = 1, .probe_prefill_cpu_s = 0.01};
    t->n_calls = 1 + DECODE;
    t->n_rows = rows + DECODE;
    t->n_captures = t->n_calls * h->n_sites;
    t->n_launches = STAGES;
    t->n_digests = t->n_rows * h->n_sites;
    t->calls = zeroed(t->n_calls, sizeof *t->calls);
    t->rows = zeroed(t->n_rows, sizeof *t->rows);
    t->captures = zeroed(t->n_captures, sizeof *t->captures);
    t->launches = zeroed(t->n_launches, sizeof *t->launches);
    t->digests = zeroed(t->n_digests, sizeof *t->digests);
    for (uint32_t k = 0; k < t->n_calls; k++)
        t->calls[k] =
            (struct ds_call){k, k != 0, k ? 1 : rows, 1, k ? rows + k - 1 : 0, k ? 1 : rows};
    for (uint32_t r = 0; r < t->n_rows; r++)
        t->rows[r] = (struct ds_row){.call = r < rows ? 0 : r - rows + 1,
                                     .position = (int32_t)r,
                                     .kind = r >= rows,
                                     .step = r < rows ? 0 : (int32_t)(r - rows + 1),
                                     .q_len = r < rows ? (int32_t)rows : 1,
                                     .kv_len = (int32_t)r + 1};
    for (uint32_t i = 0; i < STAGES; i++) {
        snprintf(t->launches[i].op, sizeof t->launches[i].op, "%s", stages[i][1]);
        snprintf(t->launches[i].variant, sizeof t->launches[i].variant, "plain");
    }
    size_t n = 0, at = 0;
    for (uint32_t k = 0; k < t->n_calls; k++)
        for (uint32_t s = 0; s < h->n_sites; s++) {
            const struct ds_call *c = &t->calls[k];
            t->captures[n++] = (struct ds_capture){.call = k,
                                                   .site = s,
                                                   .launch = s % STAGES,
                                                   .first_row = c->first_row,
                                                   .rows = c->rows,
                                                   .width = 576,
                                                   .first_digest = at};
            for (uint32_t r = 0; r < c->rows; r++)
                t->digests[at++] = mix(mix(((uint64_t)s << 32) + c->first_row + r + 1) +
                                       (s > h->n_sites / 4 ? arm : 0));
        }
}

int main(int argc, char **argv)
{
    struct ds_error err;
    struct ds_writer *w;
    struct ds_header h;
    if (argc != 5) {
        fprintf(stderr, "usage: make_wide_record OUT.h5 LAYERS ROWS ARMS\n");
        return 2;
    }
    const uint32_t layers = (uint32_t)atol(argv[2]), rows = (uint32_t)atol(argv[3]),
                   arms = (uint32_t)atol(argv[4]);
    make_header(&h, layers, rows, arms);
    int rc = ds_writer_create(argv[1], 1, &h, &w, NULL, &err);
    for (uint32_t arm = 0; rc == 0 && arm < arms; arm++) {
        struct ds_trial_data t;
        make_trial(&h, arm, rows, &t);
        rc = ds_writer_add(w, &t, &err);
        ds_trial_data_free(&t);
    }
    rc = rc == 0 ? ds_writer_close(w, &err) : rc;
    if (rc != 0)
        fprintf(stderr, "make_wide_record: %s\n", err.msg);
    ds_header_free(&h);
    return rc == 0 ? 0 : 2;
}
