/* make_big_records.c: writes two records that hold the given number of MiB of dumped rows each, of
 * which a share differs, for measuring diff. Synthetic: 30 layers of the stages of a llama-like model,
 * rows of 576 numbers.
 *
 *     make_big_records A.h5 B.h5 MIB PERMILLE */
#include "base/dtype.h"
#include "base/mem.h"
#include "dumps/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

enum { LAYERS = 30, WIDTH = 576, STAGES = 13, SITES = LAYERS * STAGES, CHUNK = 512 };

static const char *const stages[STAGES][2] = {
    {"attn_norm", "rmsnorm"},  {"q_proj", "matmul"}, {"q_rope", "rope"},
    {"attn_out", "attention"}, {"o_proj", "matmul"}, {"resid_attn", "add"},
    {"ffn_norm", "rmsnorm"},   {"gate", "matmul"},   {"up", "matmul"},
    {"act", "silu_mul"},       {"down", "matmul"},   {"resid_ffn", "add"},
    {"spare", "custom"}};

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

static char *text(const char *s)
{
    char *copy = malloc(strlen(s) + 1);
    return copy ? strcpy(copy, s) : NULL;
}

static int make_header(struct ds_header *h, uint32_t rows)
{
    memset(h, 0, sizeof *h);
    snprintf(h->model_name, sizeof h->model_name, "synthetic");
    snprintf(h->model_arch, sizeof h->model_arch, "llama");
    h->n_layers = LAYERS;
    h->n_heads = 9;
    h->n_kv_heads = 3;
    h->head_dim = 64;
    h->repeats = 1;
    h->command = text("make_big_records");
    h->sites = calloc(SITES, sizeof *h->sites);
    h->edges = calloc(SITES, sizeof *h->edges);
    h->arms = calloc(1, sizeof *h->arms);
    h->prompts = calloc(1, sizeof *h->prompts);
    if (!h->command || !h->sites || !h->edges || !h->arms || !h->prompts)
        return -1;
    h->n_arms = h->n_prompts = 1;
    h->arms[0].values = calloc(1, sizeof(char *));
    h->prompts[0].text = text("");
    h->prompts[0].tokens = calloc(rows, sizeof(int32_t));
    h->prompts[0].n_tokens = rows;
    for (int l = 0; l < LAYERS; l++)
        for (int s = 0; s < STAGES; s++) {
            struct ds_site *x = &h->sites[h->n_sites];
            x->layer = l;
            snprintf(x->stage, sizeof x->stage, "%s", stages[s][0]);
            snprintf(x->op, sizeof x->op, "%s", stages[s][1]);
            snprintf(x->dtype, sizeof x->dtype, "f32");
            x->width = WIDTH;
            if (h->n_sites)
                h->edges[h->n_edges++] =
                    (struct ds_edge){(uint32_t)h->n_sites - 1, (uint32_t)h->n_sites, DS_EDGE_ROW};
            h->n_sites++;
        }
    return 0;
}

/* Rows `first` .. first + n - 1 of the pass as a trial of their own would be too many: they are one
 * trial's blobs, and the digests of all. */
static int fill(struct ds_trial_data *t, uint32_t rows, int side, uint32_t permille)
{
    memset(t, 0, sizeof *t);
    t->n_calls = (rows + CHUNK - 1) / CHUNK;
    t->n_rows = rows;
    t->n_launches = STAGES;
    t->n_captures = t->n_calls * SITES;
    t->n_digests = t->n_blobs = (size_t)rows * SITES;
    t->calls = calloc(t->n_calls, sizeof *t->calls);
    t->rows = calloc(rows, sizeof *t->rows);
    t->launches = calloc(STAGES, sizeof *t->launches);
    t->captures = calloc(t->n_captures, sizeof *t->captures);
    t->digests = calloc(t->n_digests, sizeof *t->digests);
    t->blobs = calloc(t->n_blobs, sizeof *t->blobs);
    if (!t->calls || !t->rows || !t->launches || !t->captures || !t->digests || !t->blobs)
        return -1;
    for (int s = 0; s < STAGES; s++) {
        snprintf(t->launches[s].op, sizeof t->launches[s].op, "%s", stages[s][1]);
        snprintf(t->launches[s].variant, sizeof t->launches[s].variant, "plain");
    }
    size_t n = 0, captures = 0;
    for (uint32_t c = 0; c < t->n_calls; c++) {
        uint32_t first = c * CHUNK, count = rows - first < CHUNK ? rows - first : CHUNK;
        t->calls[c] = (struct ds_call){c, DS_PHASE_PREFILL, count, 1, first, count};
        for (uint32_t i = 0; i < count; i++)
            t->rows[first + i] =
                (struct ds_row){.call = c, .position = (int32_t)(first + i), .slot = (int32_t)i};
        for (uint32_t site = 0; site < SITES; site++) {
            t->captures[captures++] = (struct ds_capture){.call = c,
                                                          .site = site,
                                                          .launch = site % STAGES,
                                                          .first_row = first,
                                                          .rows = count,
                                                          .width = WIDTH,
                                                          .first_digest = n};
            for (uint32_t i = 0; i < count; i++, n++) {
                float *x = malloc(WIDTH * sizeof *x);
                uint64_t seed = mix(n + 1);
                if (!x)
                    return -1;
                for (uint32_t k = 0; k < WIDTH; k++)
                    x[k] = ds_f32_from_bits(0x3f000000u | (uint32_t)(mix(seed + k) & 0x7fffffu));
                if (side == 1 && mix(seed) % 1000 < permille)
                    x[WIDTH / 2] = ds_f32_from_bits(ds_f32_bits(x[WIDTH / 2]) ^ 1u);
                t->digests[n] = XXH3_64bits(x, WIDTH * sizeof *x);
                t->blobs[n] = (struct ds_blob){.digest = t->digests[n],
                                               .dtype = "f32",
                                               .elements = WIDTH,
                                               .bytes = WIDTH * sizeof *x,
                                               .data = x};
            }
        }
    }
    return 0;
}

static int write_record(const char *path, uint32_t rows, int side, uint32_t permille)
{
    struct ds_error err = {{0}, {0}};
    struct ds_header h;
    struct ds_trial_data t;
    struct ds_writer *w = NULL;
    int rc = make_header(&h, rows) != 0 || fill(&t, rows, side, permille) != 0 ? -1 : 0;
    if (rc != 0)
        ds_fail(&err, "out of memory");
    rc = rc ? rc : ds_writer_create(path, 1, &h, &w, NULL, &err);
    rc = rc ? rc : ds_writer_add(w, &t, &err);
    rc = rc ? rc : ds_writer_close(w, &err);
    if (rc != 0)
        fprintf(stderr, "make_big_records: %s\n", err.msg);
    ds_trial_data_free(&t);
    ds_header_free(&h);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: make_big_records A.h5 B.h5 MIB PERMILLE\n");
        return 2;
    }
    double mib = atof(argv[3]);
    uint32_t rows = (uint32_t)(mib * 1048576 / ((double)SITES * WIDTH * sizeof(float)));
    uint32_t permille = (uint32_t)atoi(argv[4]);
    if (rows < 1 || permille > 1000) {
        fprintf(stderr, "make_big_records: %s MiB hold no row, or %s is no share of 1000\n",
                argv[3], argv[4]);
        return 2;
    }
    return write_record(argv[1], rows, 0, permille) != 0 ||
                   write_record(argv[2], rows, 1, permille) != 0
               ? 2
               : 0;
}
