/* net.h: a three-layer network of plain loops for probe tests. It knows every value it ever made,
 * so that a test can tell by brute force what a probe must find. Rows can be disturbed at any site;
 * what follows is computed from the disturbed value. */
#ifndef DS_TEST_NET_H
#define DS_TEST_NET_H

#include "tests/unit/testing.h"

#include "base/mem.h"
#include "probes/driftscope_probe.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, WIDTH = 24, REQUESTS = 3, POSITIONS = 12, SITES = 2 + 5 * LAYERS + 1 };
enum { POSITION_SITE = 0, EMBED_SITE = 1, FIRST_LAYER_SITE = 2, LOGITS_SITE = SITES - 1 };
/* The sites of layer l: FIRST_LAYER_SITE + 5 * l + one of these. */
enum { NORM = 0, KEY, ATTN, MIX, RESID };

/* Requests' positions [begin, end) of one call. */
struct net_part {
    int request, begin, end;
};
struct net_call {
    struct net_part part[REQUESTS];
    int n_parts, pads; /* pad slots before each part's rows, not recorded */
};

struct net_bump {
    int site, request, position;
    float add; /* to element 5; NAN makes it NaN */
};

/* Rows that lie elsewhere: their addresses are none of this process, and what is read of them is
 * counted. */
struct net_far {
    int on;
    uint32_t reads, writes;
    size_t bytes;     /* read */
    uint32_t fail_at; /* so many more reads, then one fails; 0: none does */
};
#define NET_FAR ((uintptr_t)1 << 63)

struct net {
    struct net_far far;
    struct ds_site site[SITES];
    struct ds_edge edge[8 * SITES];
    uint32_t n_edges;
    struct net_bump bump[8];
    int n_bumps;
    float value[SITES][REQUESTS][POSITIONS][WIDTH];
    int32_t position_value[REQUESTS][POSITIONS];
    uint8_t made[SITES][REQUESTS][POSITIONS];
};

static inline void net_edge(struct net *n, int from, int to, int kind)
{
    n->edge[n->n_edges++] = (struct ds_edge){(uint32_t)from, (uint32_t)to, (uint32_t)kind};
}

static inline void net_init(struct net *n)
{
    static const char *const stage[] = {"norm", "key", "attn", "mix", "resid"};
    memset(n, 0, sizeof *n);
    n->site[POSITION_SITE] = (struct ds_site){
        .layer = -1, .stage = "positions", .op = "embed", .dtype = "i32", .width = 1};
    n->site[EMBED_SITE] = (struct ds_site){
        .layer = -1, .stage = "embed", .op = "embed", .dtype = "f32", .width = WIDTH};
    net_edge(n, POSITION_SITE, EMBED_SITE, DS_EDGE_ROW);
    for (int l = 0; l < LAYERS; l++) {
        int first = FIRST_LAYER_SITE + 5 * l, before = l ? first - 1 : EMBED_SITE;
        for (int k = 0; k < 5; k++) {
            struct ds_site *s = &n->site[first + k];
            *s = (struct ds_site){.layer = l, .op = "add", .dtype = "f32", .width = WIDTH};
            strcpy(s->stage, stage[k]);
        }
        net_edge(n, before, first + NORM, DS_EDGE_ROW);
        net_edge(n, first + NORM, first + KEY, DS_EDGE_ROW);
        net_edge(n, first + NORM, first + ATTN, DS_EDGE_ROW);
        net_edge(n, first + KEY, first + ATTN, DS_EDGE_CAUSAL);
        net_edge(n, first + ATTN, first + MIX, DS_EDGE_ALL);
        net_edge(n, first + MIX, first + RESID, DS_EDGE_ROW);
        net_edge(n, before, first + RESID, DS_EDGE_ROW);
    }
    n->site[LOGITS_SITE] = (struct ds_site){
        .layer = LAYERS, .stage = "logits", .op = "matmul", .dtype = "f32", .width = WIDTH};
    net_edge(n, LOGITS_SITE - 1, LOGITS_SITE, DS_EDGE_ROW);
}

/* Element i of a row at a site, from the values made before. */
static inline float net_element(const struct net *n, const struct ds_row *rows, uint32_t n_rows,
                                int site, int q, int t, int i)
{
    if (site == EMBED_SITE)
        return (float)(n->position_value[q][t] * 7 + q * 31 + i) * 0.125f;
    if (site == LOGITS_SITE)
        return n->value[site - 1][q][t][i] * 1.5f + 1;
    int kind = (site - FIRST_LAYER_SITE) % 5,
        before = kind == NORM && site > FIRST_LAYER_SITE ? site - 1 : EMBED_SITE;
    float sum = 0;
    switch (kind) {
    case NORM:
        return n->value[before][q][t][i] * 0.5f + 1;
    case KEY:
        return n->value[site - 1][q][t][i] * 0.75f - 2;
    case ATTN:
        for (int s = 0; s <= t; s++)
            sum += n->value[site - 1][q][s][i];
        return n->value[site - 2][q][t][i] + sum / (float)(t + 1);
    case MIX: /* reads the whole call; its values do not depend on the company, so that any batching
                 gives the same rows */
        for (uint32_t r = 0; r < n_rows; r++)
            sum += n->value[site - 1][rows[r].request][rows[r].position][i];
        return n->value[site - 1][q][t][i] + (sum > 1e30f ? 1.0f : 0.0f);
    default:
        before = site - 5 >= FIRST_LAYER_SITE ? site - 5 : EMBED_SITE;
        return n->value[before][q][t][i] + n->value[site - 1][q][t][i];
    }
}

static inline void net_make_row(struct net *n, const struct ds_row *rows, uint32_t n_rows, int site,
                                const struct ds_row *row)
{
    int q = row->request, t = row->position;
    n->made[site][q][t] = 1;
    if (site == POSITION_SITE)
        n->position_value[q][t] = t;
    for (int i = 0; i < WIDTH && site != POSITION_SITE; i++)
        n->value[site][q][t][i] = net_element(n, rows, n_rows, site, q, t, i);
    for (int b = 0; b < n->n_bumps; b++)
        if (n->bump[b].site == site && n->bump[b].request == q && n->bump[b].position == t) {
            if (site == POSITION_SITE)
                n->position_value[q][t] += (int32_t)n->bump[b].add;
            else
                n->value[site][q][t][5] += n->bump[b].add;
        }
}

static inline const void *net_row(const struct net *n, int site, int q, int t, size_t *bytes)
{
    *bytes = site == POSITION_SITE ? 4 : WIDTH * 4;
    return site == POSITION_SITE ? (const void *)&n->position_value[q][t]
                                 : (const void *)n->value[site][q][t];
}

static inline uint64_t net_digest(const struct net *n, int site, int q, int t)
{
    size_t bytes;
    const void *row = net_row(n, site, q, t, &bytes);
    return ds_digest(row, bytes);
}

/* The recorded rows of a call. */
static inline uint32_t net_rows(const struct net_call *c, struct ds_row *rows, uint32_t *m)
{
    uint32_t count = 0;
    *m = 0;
    for (int k = 0; k < c->n_parts; k++) {
        *m += (uint32_t)c->pads;
        for (int t = c->part[k].begin; t < c->part[k].end; t++)
            rows[count++] = (struct ds_row){
                .request = c->part[k].request, .position = t, .slot = (int32_t)(*m)++};
    }
    return count;
}

static inline int net_far_read(void *arg, const void *at, void *out, size_t bytes,
                               struct ds_error *err)
{
    struct net_far *f = (struct net_far *)arg;
    if (f->fail_at && --f->fail_at == 0)
        return ds_fail(err, "the device does not answer");
    f->reads++;
    f->bytes += bytes;
    memcpy(out, (const void *)((uintptr_t)at - NET_FAR), bytes);
    return 0;
}

static inline int net_far_write(void *arg, void *at, const void *bytes, size_t n,
                                struct ds_error *err)
{
    (void)err;
    ((struct net_far *)arg)->writes++;
    memcpy((void *)((uintptr_t)at - NET_FAR), bytes, n);
    return 0;
}

/* The n rows of data, one after the other, shown as a device's. */
static inline int net_show_far(struct net *n, struct ds_probe *p, int site,
                               const struct ds_launch *launch, char *data, size_t stride,
                               const uint32_t *only, uint32_t rows, struct ds_error *err)
{
    const size_t bytes = site == POSITION_SITE ? 4 : WIDTH * 4;
    uint64_t digests[REQUESTS * POSITIONS];
    uint32_t largest[REQUESTS * POSITIONS] = {0}, written = n->far.writes;
    for (uint32_t i = 0; i < rows; i++) {
        digests[i] = ds_digest(data + i * stride, bytes);
        for (int e = 0; site != POSITION_SITE && e < WIDTH; e++) {
            uint32_t v;
            memcpy(&v, data + i * stride + (size_t)e * 4, 4);
            largest[i] = (v & 0x7fffffffu) > largest[i] ? v & 0x7fffffffu : largest[i];
        }
    }
    struct ds_probe_far far = {digests, largest, net_far_read, net_far_write, &n->far, 0};
    const int rc = ds_probe_site_far(p, (uint32_t)site, launch, (void *)((uintptr_t)data + NET_FAR),
                                     stride, n->site[site].width, only, rows, &far, err);
    assert_int_equal(far.written, n->far.writes - written);
    return rc;
}

static inline int net_site(struct net *n, struct ds_probe *p, const struct ds_row *rows,
                           uint32_t n_rows, uint32_t m, int site, struct ds_error *err)
{
    static const struct ds_launch launch = {.op = "add", .variant = "test", .threads = 1};
    size_t bytes, stride = WIDTH * 4 + 12;
    uint32_t only[REQUESTS], n_only = 0;
    char *data = calloc(m, stride);
    assert_non_null(data);
    for (uint32_t i = 0; i < n_rows; i++) {
        int last = i + 1 == n_rows || rows[i + 1].request != rows[i].request;
        if (site == LOGITS_SITE && !last)
            continue;
        net_make_row(n, rows, n_rows, site, &rows[i]);
        const void *row = net_row(n, site, rows[i].request, rows[i].position, &bytes);
        const uint32_t place = n->far.on             ? (site == LOGITS_SITE ? n_only : i)
                               : site == LOGITS_SITE ? n_only
                                                     : (uint32_t)rows[i].slot;
        memcpy(data + stride * place, row, bytes);
        if (site == LOGITS_SITE)
            only[n_only++] = i;
    }
    const uint32_t *list = site == LOGITS_SITE ? only : NULL;
    int rc = n->far.on ? net_show_far(n, p, site, &launch, data, stride, list,
                                      list ? n_only : n_rows, err)
                       : ds_probe_site(p, (uint32_t)site, &launch, data, stride,
                                       n->site[site].width, list, n_only, err);
    /* A healing probe writes: what follows is computed from that. */
    for (uint32_t i = 0, k = 0; i < n_rows; i++) {
        int last = i + 1 == n_rows || rows[i + 1].request != rows[i].request;
        if (site == LOGITS_SITE && !last)
            continue;
        void *row = (void *)(uintptr_t)net_row(n, site, rows[i].request, rows[i].position, &bytes);
        const uint32_t place = site == LOGITS_SITE ? k++ : n->far.on ? i : (uint32_t)rows[i].slot;
        memcpy(row, data + stride * place, bytes);
    }
    free(data);
    return rc;
}

/* One trial. On a failure it is aborted and -1 returned. */
static inline int net_trial(struct net *n, struct ds_probe *p, const struct ds_trial *info,
                            const uint32_t *refs, uint32_t n_refs, const struct net_call *calls,
                            int n_calls, struct ds_trial_data *out, struct ds_error *err)
{
    memset(n->made, 0, sizeof n->made);
    int rc = ds_probe_begin_trial(p, info, refs, n_refs, err);
    for (int c = 0; c < n_calls && rc == 0; c++) {
        struct ds_row rows[REQUESTS * POSITIONS];
        uint32_t m, count = net_rows(&calls[c], rows, &m);
        rc = ds_probe_begin_call(p, c ? DS_PHASE_DECODE : DS_PHASE_PREFILL, m,
                                 (uint32_t)calls[c].n_parts, rows, count, err);
        for (int s = 0; s < SITES && rc == 0; s++)
            rc = net_site(n, p, rows, count, m, s, err);
        if (rc == 0)
            rc = ds_probe_end_call(p, err);
    }
    if (rc == 0)
        rc = ds_probe_end_trial(p, out, err);
    if (rc != 0)
        ds_probe_abort_trial(p);
    return rc;
}

/* A header with this site list and `arms` arms, for ds_trial_data_check. Nothing in it is owned. */
static inline struct ds_header net_header(struct net *n, size_t arms)
{
    return (struct ds_header){.sites = n->site,
                              .n_sites = SITES,
                              .edges = n->edge,
                              .n_edges = n->n_edges,
                              .n_arms = arms};
}

static inline struct ds_hold *net_hold(const struct net *n, const uint32_t *arms, uint32_t n_arms,
                                       uint64_t budget)
{
    struct ds_error err;
    uint32_t rows[SITES];
    for (int s = 0; s < SITES; s++)
        rows[s] = REQUESTS * POSITIONS;
    struct ds_hold_config config = {n->site, SITES, rows, arms, n_arms, budget, NULL};
    struct ds_hold *hold;
    assert_ok(ds_hold_new(&config, &hold, &err), err);
    return hold;
}

static inline struct ds_probe *net_probe(const struct net *n, struct ds_hold *hold,
                                         enum ds_dump dump, uint32_t dump_rows)
{
    struct ds_error err;
    struct ds_probe_config config = {.sites = n->site,
                                     .n_sites = SITES,
                                     .edges = n->edge,
                                     .n_edges = n->n_edges,
                                     .dump = dump,
                                     .dump_rows = dump_rows,
                                     .hold = hold};
    struct ds_probe *p;
    assert_ok(ds_probe_new(&config, &p, &err), err);
    return p;
}

/* One call with everything, and the same rows in several calls of one or more requests. */
static const struct net_call net_whole[] = {
    {{{0, 0, POSITIONS}, {1, 0, POSITIONS}, {2, 0, POSITIONS}}, 3, 0},
};
static const struct net_call net_chunks[] = {
    {{{0, 0, 5}, {1, 0, 3}}, 2, 2},
    {{{1, 3, 9}, {2, 0, 7}, {0, 5, 9}}, 3, 0},
    {{{2, 7, POSITIONS}, {0, 9, POSITIONS}}, 2, 1},
    {{{1, 9, POSITIONS}}, 1, 0},
};

#endif
