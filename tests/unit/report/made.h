/* made.h: a report of a synthetic sweep. */
#ifndef DS_MADE_H
#define DS_MADE_H

#include "tests/unit/testing.h"

#include "report/report.h"
#include "tests/unit/dumps/synthetic_sweep.h"

#include <math.h>

static inline uint32_t openblas(const struct cell *c)
{
    return strcmp(c->site->op, "matmul") != 0 ? 0 : c->m < 4 ? 0 : c->m < 8 ? 1 : c->m < 12 ? 2 : 3;
}

static inline void usual(struct sweep *s)
{
    sweep_init(s, "batch slot threads", 2);
    static const char *const arms[] = {"1 first 1", "2 first 1", "3 first 1", "4 first 1",
                                       "8 first 1", "8 last 1",  "1 first 2"};
    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++)
        sweep_arm(s, arms[i]);
}

struct made {
    struct ds_source src;
    struct ds_analysis *a;
    struct ds_verdict v;
    struct ds_report r;
    struct ds_buf out;
};

static inline void make(struct sweep *s, struct made *m)
{
    struct ds_error err;
    memset(m, 0, sizeof *m);
    m->src = sweep_source(s);
    assert_ok(ds_analysis_new(&m->src, NULL, &m->a, &err), err);
    assert_ok(ds_analysis_verdict(m->a, &m->v, &err), err);
    m->r = (struct ds_report){.header = &s->header, .v = &m->v, .path = "my record.h5"};
}

/* The usual sweep, every arm so many times. */
static inline void make_usual(struct sweep *s, struct made *m, uint32_t (*tag)(const struct cell *),
                              uint32_t repeats)
{
    usual(s);
    s->tag = tag;
    sweep_run(s, repeats);
    make(s, m);
}

static inline void done(struct made *m)
{
    ds_buf_free(&m->out);
    ds_verdict_free(&m->v);
    ds_analysis_free(m->a);
}

/* Other experts come before another token. */
static inline void change_experts(struct ds_verdict *v)
{
    static const struct ds_discrete experts = {.found = 1,
                                               .stage = "router_ids",
                                               .factor = "batch",
                                               .value = "4",
                                               .arm = 1,
                                               .request = 0,
                                               .step = 2,
                                               .a = 6,
                                               .b = 4,
                                               .margin = 0.25,
                                               .layer = 1,
                                               .position = 11,
                                               .swapped = {{6, 4, 0.25}, {1, 3, (double)NAN}},
                                               .n_swapped = 2},
                                    token = {.found = 1,
                                             .stage = "token",
                                             .factor = "batch",
                                             .value = "4",
                                             .arm = 1,
                                             .step = 3,
                                             .a = 50,
                                             .b = 60,
                                             .margin = 0.5};
    v->expert_change = v->discrete = experts;
    v->token_change = token;
}

/* Repeat 1 gives other bits in one row. */
static inline uint32_t one_odd_run(const struct cell *c)
{
    return cell_is(c, 0, "q_proj") && c->position == 3 && c->repeat == 1;
}

#endif
