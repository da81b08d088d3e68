/* records.h: records that do not depend on the machine, for tests of the terminal UI: synthetic sweeps (the digest
 * of a row stands for its numbers) with values dumped where a test looks at them. */
#ifndef DS_TUI_RECORDS_H
#define DS_TUI_RECORDS_H

#include "base/dtype.h"
#include "dumps/stats.h"
#include "tests/unit/dumps/synthetic_sweep.h"

#include <hdf5.h>
#include <math.h>

#include <xxhash.h>

/* q_proj of layer 1 gives other bits from 24 rows on, down of layer 2 with two threads. */
static inline uint32_t records_faults(const struct cell *c)
{
    if (cell_is(c, 1, "q_proj") && c->m >= 4 * SWEEP_PROMPT)
        return 1;
    if (cell_is(c, 2, "down") && cell_number(c, "threads", 1) == 2)
        return 2;
    return 0;
}

/* attn_out of layer 0 is another one in every second repeat. */
static inline uint32_t records_flaky(const struct cell *c)
{
    return cell_is(c, 0, "attn_out") && c->repeat % 2 ? 3 : 0;
}

static inline uint32_t records_other(const struct cell *c)
{
    return cell_is(c, 1, "down") ? 4 : 0;
}

/* Gives a row the bytes that stand for it, so that its values can be looked at. */
static inline void records_values(struct ds_trial_data *t, uint32_t site, int32_t position,
                                  const float *values, uint32_t n)
{
    uint32_t row;
    uint64_t *at = sweep_find(t, site, position, &row), digest = XXH3_64bits(values, 4 * (size_t)n);
    if (!at)
        return;
    for (size_t i = 0; i < t->n_drifts; i++)
        if (t->drifts[i].site == site && t->drifts[i].row == row)
            t->drifts[i].digest = digest;
    *at = digest;
    t->blobs = realloc(t->blobs, (t->n_blobs + 1) * sizeof *t->blobs);
    struct ds_blob *b = &t->blobs[t->n_blobs++];
    *b = (struct ds_blob){.digest = digest, .dtype = "f32", .elements = n, .bytes = 4 * n};
    b->data = malloc(4 * (size_t)n);
    memcpy(b->data, values, 4 * (size_t)n);
}

/* One row at one site: what `arm` has in it and what all other arms have; `special` puts in what is no plain
 * number. */
static inline void records_row(struct sweep *s, uint32_t arm, uint32_t site, int32_t position,
                               int special)
{
    float mine[SWEEP_WIDTH], theirs[SWEEP_WIDTH];
    for (int i = 0; i < SWEEP_WIDTH; i++) {
        theirs[i] = (float)((i * 37 % 101) - 50) / 64.0f;
        mine[i] = i % 3 ? theirs[i] : ds_f32_from_bits(ds_f32_bits(theirs[i]) + (uint32_t)(i % 5));
    }
    if (special) {
        mine[1] = NAN;
        mine[2] = INFINITY;
        mine[3] = -INFINITY;
        mine[4] = -0.0f;
        theirs[4] = 0.0f;
        mine[5] = theirs[5] = ds_f32_from_bits(1);
        mine[6] = ds_f32_from_bits(0x7fc00001);
        theirs[6] = NAN;
    }
    uint64_t ref_digest = XXH3_64bits(theirs, sizeof theirs);
    for (size_t i = 0; i < s->n_trials; i++) {
        struct ds_trial_data *t = &s->trials[i];
        records_values(t, site, position, t->info.arm == arm ? mine : theirs, SWEEP_WIDTH);
        for (size_t d = 0; d < t->n_drifts && t->info.arm == arm; d++)
            if (t->drifts[d].site == site && t->rows[t->drifts[d].row].position == position) {
                t->drifts[d].ref_digest = ref_digest;
                if (special) /* sizes that stand for nothing would contradict what is dumped */
                    ds_stats_row(DS_F32, mine, theirs, SWEEP_WIDTH, &t->drifts[d]);
            }
    }
    if (!special)
        return;
    for (size_t i = 0; i < s->n_trials; i++) {
        struct ds_trial_data *t = &s->trials[i];
        uint32_t row;
        if (t->info.arm != arm || !sweep_find(t, site, position, &row))
            continue;
        t->nonfinites = realloc(t->nonfinites, (t->n_nonfinites + 1) * sizeof *t->nonfinites);
        t->nonfinites[t->n_nonfinites++] = (struct ds_nonfinite){site, row, 2, 2, 1};
    }
}

/* ---- the sweeps ------------------------------------------------------------------------------ */

static inline void records_plan(struct sweep *s, uint32_t (*tag)(const struct cell *), int layers)
{
    sweep_init(s, "batch threads", layers);
    sweep_arm(s, "1 1");
    sweep_arm(s, "2 1");
    sweep_arm(s, "4 1");
    sweep_arm(s, "1 2");
    s->tag = tag;
    s->blas_core = "Haswell";
    snprintf(s->header.tool_version, sizeof s->header.tool_version, "0.1.0");
    snprintf(s->header.build, sizeof s->header.build, "0000000");
    snprintf(s->header.start, sizeof s->header.start, "2026-01-02T03:04:05Z");
    sweep_line(&s->header.environment, &s->header.n_environment, "cpu", "a CPU");
    sweep_line(&s->header.environment, &s->header.n_environment, "compiler", "gcc 12");
    sweep_line(&s->header.hparams, &s->header.n_hparams, "rms_eps", "1e-05");
    sweep_weight(s, "blk.0.attn_q.weight", 17);
}

/* Site numbers of records_plan's sweeps. */
enum { RECORDS_Q_PROJ_1 = 1 + 8 + 1, RECORDS_DOWN_2 = 1 + 16 + 6 };

static inline void records_drift(struct sweep *s)
{
    records_plan(s, records_faults, 4);
    sweep_run(s, 2);
    records_row(s, 2, RECORDS_Q_PROJ_1, 0, 0);
    records_row(s, 2, RECORDS_Q_PROJ_1, 1, 0);
}

static inline void records_nan(struct sweep *s)
{
    records_plan(s, records_faults, 4);
    sweep_run(s, 1);
    records_row(s, 2, RECORDS_Q_PROJ_1, 0, 1);
}

/* Nothing differs in it. */
static inline void records_bent_same(struct sweep *s)
{
    float values[SWEEP_WIDTH];
    records_plan(s, NULL, 4);
    sweep_run(s, 2);
    for (int i = 0; i < SWEEP_WIDTH; i++)
        values[i] = (float)i / 8;
    for (size_t i = 0; i < s->n_trials; i++)
        records_values(&s->trials[i], RECORDS_Q_PROJ_1, 1, values, SWEEP_WIDTH);
}

static inline void records_same(struct sweep *s)
{
    records_plan(s, NULL, 4);
    sweep_run(s, 2);
}

static inline void records_unstable(struct sweep *s)
{
    records_plan(s, records_flaky, 4);
    sweep_run(s, 4);
}

static inline void records_second(struct sweep *s)
{
    records_plan(s, records_other, 4);
    free(s->header.environment[1].value);
    s->header.environment[1].value = sweep_text("gcc 13");
    sweep_run(s, 2);
}

/* More than a screen can hold in every direction. */
static inline void records_wide(struct sweep *s)
{
    records_plan(s, records_faults, 1250);
    /* Without edges while the digests are made: following each would take long. */
    size_t edges = s->header.n_edges;
    s->header.n_edges = 0;
    s->no_sizes = 1;
    sweep_run(s, 1);
    s->header.n_edges = edges;
}

static inline void records_one(struct sweep *s)
{
    sweep_init(s, "batch", 1);
    s->header.n_sites = 1;
    s->header.n_edges = 0;
    sweep_arm(s, "1");
    sweep_run(s, 1);
}

/* Names that a terminal would obey, or that take two columns. */
static inline void records_names(struct sweep *s)
{
    sweep_init(s, "batch", 2);
    sweep_arm(s, "1");
    sweep_arm(s, "\033[31m4\n");
    snprintf(s->header.model_name, sizeof s->header.model_name,
             "\033]0;title\007 日本 e\314\201 \377");
    sweep_line(&s->header.environment, &s->header.n_environment, "a\tb", "\033[2J日本");
    free(s->header.prompts[0].text);
    s->header.prompts[0].text = sweep_text("\342\200\256 back\nline");
    s->tag = records_other;
    sweep_run(s, 1);
}

/* One site, one trial, 100,000 rows. */
static inline void records_long(struct sweep *s)
{
    enum { ROWS = 100000 };
    sweep_init(s, "batch", 1);
    s->header.n_sites = 1;
    s->header.n_edges = 0;
    sweep_arm(s, "1");
    sweep_arm(s, "2");
    for (uint32_t arm = 0; arm < 2; arm++) {
        struct ds_trial_data *t = sweep_trial(s, arm, 0);
        t->calls = realloc(t->calls, sizeof *t->calls);
        t->calls[0] = (struct ds_call){0, DS_PHASE_PREFILL, ROWS, 1, 0, ROWS};
        t->n_calls = 1;
        t->rows = realloc(t->rows, ROWS * sizeof *t->rows);
        t->digests = realloc(t->digests, ROWS * sizeof *t->digests);
        t->n_rows = t->n_digests = ROWS;
        for (int32_t i = 0; i < ROWS; i++) {
            t->rows[i] = (struct ds_row){.position = i, .slot = i, .q_len = ROWS, .kv_len = i + 1};
            t->digests[i] = sweep_mix(5, (uint64_t)i + (arm && i % 1000 == 999 ? ROWS : 0));
        }
        t->captures[0] = (struct ds_capture){.rows = ROWS, .width = SWEEP_WIDTH};
        t->n_captures = t->n_launches = 1;
        t->n_steps = 0;
    }
}

static const struct {
    const char *name;
    void (*make)(struct sweep *s);
} records_all[] = {
    {"drift", records_drift},       {"nan", records_nan},       {"same", records_same},
    {"unstable", records_unstable}, {"second", records_second}, {"wide", records_wide},
    {"one", records_one},           {"names", records_names},   {"long", records_long},
    {"newer", records_drift},       {"bent", records_drift},    {"bent-same", records_bent_same},
};
enum { RECORDS = sizeof records_all / sizeof records_all[0] };

/* Makes it one of the next version of the format. */
static inline int records_newer(const char *path)
{
    const uint32_t version = DS_RECORD_VERSION + 1;
    hid_t f = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT),
          a = f < 0 ? -1 : H5Aopen(f, "version", H5P_DEFAULT);
    int rc = a >= 0 && H5Awrite(a, H5T_NATIVE_UINT32, &version) >= 0 ? 0 : -1;
    if (a >= 0)
        H5Aclose(a);
    return f >= 0 && H5Fclose(f) >= 0 ? rc : -1;
}

/* One bit of a dumped row, as it lies in the file: its bytes do not have its digest. */
static inline int records_bend(const char *path, const struct sweep *s)
{
    uint32_t row;
    const uint64_t digest = *sweep_find(&s->trials[0], RECORDS_Q_PROJ_1, 1, &row);
    const struct ds_blob *b = s->trials[0].blobs;
    while (b->digest != digest)
        b++;
    FILE *f = fopen(path, "r+b");
    size_t n = f && fseek(f, 0, SEEK_END) == 0 ? (size_t)ftell(f) : 0;
    char *bytes = malloc(n), *at = NULL;
    if (n && bytes && fseek(f, 0, SEEK_SET) == 0 && fread(bytes, 1, n, f) == n)
        at = memmem(bytes, n, b->data, b->bytes);
    int rc = at && fseek(f, (long)(at - bytes) + 2, SEEK_SET) == 0 && fputc(at[2] ^ 1, f) != EOF;
    rc = f && fclose(f) == 0 && rc ? 0 : -1;
    free(bytes);
    return rc;
}

/* Writes a record; 0, or -1 with err. */
static inline int records_write(size_t i, const char *path, struct ds_error *err)
{
    struct sweep s;
    struct ds_writer *w;
    records_all[i].make(&s);
    int rc = ds_writer_create(path, 1, &s.header, &w, NULL, err);
    if (rc == 0) {
        for (size_t k = 0; k < s.n_trials && rc == 0; k++) {
            struct ds_trial_data *t = &s.trials[k];
            rc = ds_trial_run_digest(&s.header, t, &t->info.run_digest, err);
            rc = rc == 0 ? ds_writer_add(w, t, err) : rc;
        }
        struct ds_error other;
        if (ds_writer_close(w, rc == 0 ? err : &other) != 0)
            rc = -1;
    }
    if (rc == 0 && strncmp(records_all[i].name, "bent", 4) == 0 && records_bend(path, &s) != 0)
        rc = ds_fail(err, "no row of it could be bent");
    sweep_free(&s);
    if (rc == 0 && strcmp(records_all[i].name, "newer") == 0)
        rc = records_newer(path);
    return rc;
}

#endif
