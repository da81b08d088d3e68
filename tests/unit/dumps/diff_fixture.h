/* diff_fixture.h: two small sweeps to compare, with a difference in one place and values for it. */
#ifndef DS_DIFF_FIXTURE_H
#define DS_DIFF_FIXTURE_H

#include "tests/unit/testing.h"

#include "dumps/diff.h"
#include "tests/unit/dumps/synthetic_sweep.h"

static inline void make(struct sweep *a, struct sweep *b, const struct ds_diff_options *o,
                        struct ds_diff *d)
{
    static struct ds_source sa, sb; /* outlive the diff, as it asks */
    struct ds_error err;
    sa = sweep_source(a);
    sb = sweep_source(b);
    assert_ok(ds_diff_make(&sa, &sb, o, d, &err), err);
}

static inline const struct ds_diff_item *item(const struct ds_diff *d, int kind)
{
    for (size_t i = 0; i < d->n_items; i++)
        if (d->items[i].kind == kind)
            return &d->items[i];
    return NULL;
}

static inline size_t count_items(const struct ds_diff *d, int kind)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n_items; i++)
        n += d->items[i].kind == kind;
    return n;
}

static inline void small(struct sweep *s)
{
    sweep_init(s, "batch threads", 2);
    static const char *const arms[] = {"1 1", "2 1", "4 1", "1 2"};
    for (size_t i = 0; i < 4; i++)
        sweep_arm(s, arms[i]);
    sweep_weight(s, "token_embd.weight", 1);
    sweep_weight(s, "blk.0.attn_k.weight", 2);
    sweep_weight(s, "blk.1.ffn_down.weight", 3);
    sweep_line(&s->header.hparams, &s->header.n_hparams, "rms_eps", "1e-05");
    sweep_line(&s->header.environment, &s->header.n_environment, "cpu", "AMD EPYC");
}

static inline uint32_t changed_k(const struct cell *c)
{
    return cell_is(c, 0, "k_proj");
}

/* Rows by digest: A's are 1, 2, 3, ...; B's have one last place more in every third element. */
static inline int fake_blob(void *ctx, int side, uint64_t digest, struct ds_blob *out,
                            struct ds_error *err)
{
    (void)err;
    (void)digest;
    int *asked = ctx;
    (*asked)++;
    float *row = malloc(192 * sizeof *row);
    for (int i = 0; i < 192; i++) {
        uint32_t bits = ds_f32_bits((float)(i + 1));
        row[i] = ds_f32_from_bits(side == 1 && i % 3 == 0 ? bits + 1 : bits);
    }
    *out = (struct ds_blob){
        .digest = digest, .dtype = "f32", .elements = 192, .bytes = 192 * 4, .data = row};
    return 1;
}

#endif
