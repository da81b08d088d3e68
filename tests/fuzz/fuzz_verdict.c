/* fuzz_verdict.c: records that lie. The input is a list of edits of a small sweep in memory: what the
 * reader's checks let pass (any number in any field, any order of rows, any values behind a digest) goes
 * through the verdict, its page, the profiles of every site and diff against the sound sweep, and must
 * end in a message or in a verdict, never in a crash or a hang.
 *
 * An edit is eight bytes: table, item (two), offset within the item, how, and three of value. */
#include "base/dtype.h"
#include "dumps/diff.h"
#include "dumps/metrics.h"
#include "report/page.h"
#include "tests/unit/dumps/synthetic_sweep.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { EDIT = 8, MOST_EDITS = 12 };

/* ---- the sound sweep ------------------------------------------------------------------------- */

static struct sweep sound;

static uint32_t tag(const struct cell *c)
{
    if (cell_is(c, 0, "q_proj") || cell_is(c, 1, "attn_out"))
        return c->m >= 4;
    return cell_is(c, 1, "down") && cell_number(c, "threads", 1) == 2 ? 1 + c->repeat : 0;
}

/* A heal trial of arm 1 and the lists that a sweep's trials may have beside their digests. */
static void add_findings(void)
{
    struct ds_trial_data *h = sweep_trial(&sound, 1, 0);
    h->info.pass = DS_PASS_HEAL;
    for (size_t i = 0; i < sound.n_trials; i++) {
        struct ds_trial_data *t = &sound.trials[i];
        t->nonfinites = calloc(1, sizeof *t->nonfinites);
        t->nonfinites[0] = (struct ds_nonfinite){9, 2, 1, 1, 5};
        t->n_nonfinites = 1;
        t->ranges = calloc(1, sizeof *t->ranges);
        t->ranges[0] = (struct ds_range){3, 1, 9e4f};
        t->n_ranges = 1;
        t->packed = calloc(1, sizeof *t->packed);
        t->packed[0] = (struct ds_packed){"openblas", 0, -1, 64, i < 2 ? 7 : 8};
        t->n_packed = 1;
    }
}

static void make_sound(void)
{
    sweep_init(&sound, "batch threads", 2);
    sweep_weight(&sound, "blk.0.attn_q.weight", 5);
    sweep_arm(&sound, "1 1");
    sweep_arm(&sound, "4 1");
    sweep_arm(&sound, "1 2");
    sound.tag = tag;
    sweep_run(&sound, 2);
    add_findings();
}

/* ---- copies ---------------------------------------------------------------------------------- */

struct table { /* an array of a trial or of the header, as bytes */
    unsigned char *bytes;
    size_t n, item;
};

/* Of exactly its size, so that a step past its end is seen. */
static void *copy_of(const void *from, size_t n, size_t item)
{
    void *to = malloc(n > 0 ? n * item : 1);
    if (!to)
        abort();
    if (n)
        memcpy(to, from, n * item);
    return to;
}

#define COPY(field, count) (t->field = copy_of(t->field, t->count, sizeof *t->field))

static void copy_trial(const struct ds_trial_data *from, struct ds_trial_data *t)
{
    *t = *from;
    COPY(calls, n_calls);
    COPY(rows, n_rows);
    COPY(launches, n_launches);
    COPY(captures, n_captures);
    COPY(digests, n_digests);
    COPY(drifts, n_drifts);
    COPY(nonfinites, n_nonfinites);
    COPY(steps, n_steps);
    COPY(packed, n_packed);
    COPY(ranges, n_ranges);
}

/* The sound sweep with tables of its own; texts stay those of the sound one. */
static void copy_sweep(struct sweep *s)
{
    *s = sound;
    s->header.sites = copy_of(sound.header.sites, sound.header.n_sites, sizeof(struct ds_site));
    s->header.edges = copy_of(sound.header.edges, sound.header.n_edges, sizeof(struct ds_edge));
    s->header.weights =
        copy_of(sound.header.weights, sound.header.n_weights, sizeof(struct ds_record_weight));
    s->trials = copy_of(sound.trials, sound.n_trials, sizeof *sound.trials);
    for (size_t i = 0; i < s->n_trials; i++)
        copy_trial(&sound.trials[i], &s->trials[i]);
}

static void free_copy(struct sweep *s)
{
    for (size_t i = 0; i < s->n_trials; i++)
        ds_trial_data_free(&s->trials[i]);
    free(s->trials);
    free(s->header.sites);
    free(s->header.edges);
    free(s->header.weights);
}

/* ---- edits ----------------------------------------------------------------------------------- */

static struct table table_of(struct sweep *s, uint8_t which)
{
    struct ds_trial_data *t = &s->trials[(which >> 4) % s->n_trials];
    const struct table tables[] = {
        {(void *)t->calls, t->n_calls, sizeof *t->calls},
        {(void *)t->rows, t->n_rows, sizeof *t->rows},
        {(void *)t->launches, t->n_launches, sizeof *t->launches},
        {(void *)t->captures, t->n_captures, sizeof *t->captures},
        {(void *)t->digests, t->n_digests, sizeof *t->digests},
        {(void *)t->drifts, t->n_drifts, sizeof *t->drifts},
        {(void *)t->nonfinites, t->n_nonfinites, sizeof *t->nonfinites},
        {(void *)t->steps, t->n_steps, sizeof *t->steps},
        {(void *)t->packed, t->n_packed, sizeof *t->packed},
        {(void *)t->ranges, t->n_ranges, sizeof *t->ranges},
        {(void *)&t->info, 1, offsetof(struct ds_trial, blas_core)},
        {(void *)s->header.sites, s->header.n_sites, sizeof *s->header.sites},
        {(void *)s->header.edges, s->header.n_edges, sizeof *s->header.edges},
        {(void *)&s->header.n_layers, 1, 4 * sizeof(int32_t)},
        {(void *)s->header.sites, s->header.n_sites, sizeof *s->header.sites},
        {(void *)s->header.weights, s->header.n_weights, sizeof *s->header.weights},
    };
    return tables[which & 15];
}

/* Names that something is made of. */
static void rename_site(struct ds_site *s, uint8_t which, uint8_t field)
{
    static const char *const names[] = {
        "allreduce", "transfer",   "attention", "matmul", "rmsnorm",   "rope",   "cache",
        "softmax",   "router_ids", "token",     "logits", "positions", "kv_len", "embed",
        "q_proj",    "kv_write",   "r0",        "r1",     "e0",        "src",    "dst",
        "unrounded", "weights",    "k",         "",       "i32",       "bf16",   "f16",
        "f32",       "add",        "custom",    "v"};
    const char *name = names[which % (sizeof names / sizeof *names)];
    char *to[] = {s->stage, s->part, s->op, s->dtype};
    const size_t bytes[] = {sizeof s->stage, sizeof s->part, sizeof s->op, sizeof s->dtype};
    memset(to[field % 4], 0, bytes[field % 4]);
    memcpy(to[field % 4], name, strnlen(name, bytes[field % 4] - 1));
}

static void edit(struct sweep *s, const uint8_t *e)
{
    static const uint32_t tipping[] = {0,           1,          2,          0x7fffffff,
                                       0x80000000,  0xffffffff, 0xffff,     0x8000,
                                       0x7fc00000u, 0x7ff00000, 0xfff00000, 0x7f800000};
    struct table t = table_of(s, e[0]);
    if (t.n == 0)
        return;
    const size_t item = (size_t)(e[1] << 8 | e[2]) % t.n;
    unsigned char *at = t.bytes + item * t.item;
    const size_t word = e[3] % (t.item / 4) * 4;
    uint32_t value = (uint32_t)(e[5] | e[6] << 8);
    switch (e[4] % 6) {
    case 0:
        value = tipping[e[5] % (sizeof tipping / sizeof *tipping)];
        memcpy(at + word, &value, 4);
        break;
    case 1: /* a small number */
        memcpy(at + word, &value, 4);
        break;
    case 2: /* another item, whole */
        memcpy(at, t.bytes + value % t.n * t.item, t.item);
        break;
    case 3: /* the same field of another item */
        memcpy(at + word, t.bytes + value % t.n * t.item + word, 4);
        break;
    case 4:
        at[e[3] % t.item] ^= (unsigned char)(e[5] | 1);
        break;
    default:
        if (t.bytes == (unsigned char *)s->header.sites)
            rename_site((struct ds_site *)at, e[5], e[6]);
    }
}

/* What the reader checks, in the same words. */
static int believed(const struct sweep *s)
{
    struct ds_error err = {{0}, {0}};
    for (size_t i = 0; i < s->n_trials; i++)
        if (ds_trial_data_check(&s->header, &s->trials[i], &err) != 0)
            return 0;
    return ds_header_check(&s->header, &err) == 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Values behind a digest: right, of another format or length, with NaN and infinity, or none. */
static int any_blob(void *ctx, uint64_t digest, struct ds_blob *out, struct ds_error *err)
{
    static const char *const formats[] = {"f32", "f32", "f32", "f32", "bf16", "f16", "i32", "f32"};
    static const uint32_t widths[] = {SWEEP_WIDTH, SWEEP_WIDTH, SWEEP_WIDTH, 192, 1000, 1, 0, 64};
    (void)ctx;
    if (digest % 31 == 0)
        return ds_fail(err, "damaged");
    if (digest % 13 == 0)
        return 0;
    memset(out, 0, sizeof *out);
    out->digest = digest;
    snprintf(out->dtype, sizeof out->dtype, "%s", formats[digest >> 8 & 7]);
    out->elements = widths[digest >> 16 & 7];
    out->bytes = out->elements * (uint32_t)ds_dtype_size(ds_dtype_parse(out->dtype));
    if (!(out->data = malloc(out->bytes ? out->bytes : 1)))
        return ds_fail(err, "no memory");
    for (uint32_t i = 0; i < out->bytes; i += 2) {
        const uint64_t x = sweep_mix(digest >> 24 & 15, i);
        const uint16_t half = digest >> 20 & 1 ? (uint16_t)x : (uint16_t)(0x3c00 + (x & 0x3ff));
        memcpy((char *)out->data + i, &half, 2);
    }
    return 1;
}

static int any_side(void *ctx, int side, uint64_t digest, struct ds_blob *out, struct ds_error *err)
{
    (void)side;
    return any_blob(ctx, digest, out, err);
}

/* ---- readers --------------------------------------------------------------------------------- */

static void look_at_sites(const struct ds_source *s, struct ds_analysis *a)
{
    struct ds_error err = {{0}, {0}};
    const uint32_t arms = (uint32_t)s->header->n_arms;
    for (uint32_t arm = 0; arm < arms; arm++)
        for (uint32_t ref = 0; ref < arms; ref++) {
            uint8_t *labels = NULL;
            if (ds_analysis_labels(a, arm, ref, &labels, &err) == 0)
                free(labels);
            labels = NULL;
            if (ds_analysis_healed(a, arm, ref, &labels, &err) == 1)
                free(labels);
        }
    for (uint32_t site = 0; site < s->header->n_sites; site++) {
        struct ds_site_profile p;
        if (ds_analysis_site(a, 1, 0, site, &p, &err) == 0)
            ds_site_profile_free(&p);
    }
}

/* The page of what was found, and the published figures of its tokens. */
static void draw(const struct ds_source *s, struct ds_analysis *a, const struct ds_verdict *v)
{
    struct ds_error err = {{0}, {0}};
    const struct ds_report r = {.header = s->header, .v = v, .path = "lie.h5"};
    struct ds_report_view w = {.r = &r, .a = a, .s = s};
    struct ds_figure heat = {.id = "heat"}, growth = {.id = "growth"};
    struct ds_page p = {0};
    struct ds_buf out = {0};
    ds_page_begin_record(&p, "lie.h5", s->header, "", DS_ROLE_DRIFT);
    ds_page_matrix(&p, &r);
    if (ds_report_pair(v, a, s->header->n_arms, &w.arm, &w.ref) &&
        ds_figure_heat(&w, &heat, &err) == 0)
        ds_page_figure(&p, &heat, 0);
    ds_figure_growth(&r, &growth);
    ds_page_figure(&p, &growth, 0);
    ds_page_verdict(&p, &r);
    ds_page_end_record(&p);
    ds_page_print(&p, "lie", "", &out);
    if (out.failed)
        abort();
    ds_buf_free(&out);
    ds_page_free(&p);
    ds_figure_free(&heat);
    ds_figure_free(&growth);
}

static void count_tokens(const struct sweep *s)
{
    struct ds_error err = {{0}, {0}};
    struct ds_metrics *m;
    if (ds_metrics_new(1, 1 << 24, &m, &err) != 0)
        return;
    for (size_t i = 0; i < s->n_trials; i++) {
        const struct ds_trial_data *t = &s->trials[i];
        const struct ds_step **steps = calloc(t->n_steps + 1, sizeof *steps);
        if (!steps)
            abort();
        for (size_t k = 0; k < t->n_steps; k++)
            steps[k] = &t->steps[k];
        if (t->n_steps)
            ds_metrics_add(m, "g", i & 1, steps, t->n_steps, NULL, &err);
        free((void *)steps);
    }
    if (ds_metrics_settle(m, &err) != 0)
        abort();
    ds_metrics_free(m);
}

static void judge(const struct ds_source *s)
{
    struct ds_error err = {{0}, {0}};
    struct ds_analysis *a = NULL;
    struct ds_verdict v;
    if (ds_analysis_new(s, NULL, &a, &err) != 0) {
        if (!err.msg[0])
            abort();
        return;
    }
    if (ds_analysis_verdict(a, &v, &err) == 0) {
        draw(s, a, &v);
        ds_verdict_free(&v);
    }
    look_at_sites(s, a);
    ds_analysis_free(a);
}

static void compare(const struct ds_source *a, const struct ds_source *b, int tolerant)
{
    struct ds_error err = {{0}, {0}};
    struct ds_diff d;
    struct ds_diff_options o = {.blob = any_side};
    if (tolerant)
        o.tolerance = (struct ds_tolerance){.ulp = 4, .atol = 1e-3, .nmse = 1e-6};
    if (ds_diff_make(a, b, &o, &d, &err) == 0)
        ds_diff_free(&d);
    else if (!err.msg[0])
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sweep s;
    if (!sound.trials)
        make_sound();
    copy_sweep(&s);
    for (size_t i = 0; i + EDIT <= size && i < MOST_EDITS * EDIT; i += EDIT)
        edit(&s, data + i);
    if (believed(&s)) {
        struct ds_source lying = sweep_source(&s), right = sweep_source(&sound);
        lying.blob = right.blob = any_blob;
        judge(&lying);
        count_tokens(&s);
        compare(&right, &lying, size & 1);
        compare(&lying, &right, 0);
    }
    free_copy(&s);
    return 0;
}
