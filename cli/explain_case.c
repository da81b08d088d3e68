/* explain_case.c: see explain_case.h. Owns the choice of rows and of the pass they are taken from, and the
 * kernels of both sides; explain_place.c finds the place, explain_stand.c where a row stood,
 * explain_inputs.c reads values. A record is hostile: every number that becomes an index or a size is
 * checked here or was by the reader. */
#include "cli/explain_case.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "engine/placement.h"
#include "kernels/cblas.h"
#include "kernels/plugin.h"
#include "kernels/registry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_POSITION = 1 << 24 };

int ds_case_device(const struct ds_case *c, int side)
{
    const uint32_t arm = c->side[side].arm;
    const int32_t layer = c->h->sites[c->f.site].layer;
    const int device = ds_device_parse(ds_case_setting(c, arm, "device"), NULL);
    const int own =
        device < 0 ? DS_DEVICE_CPU : device; /* records of before devices have no such factor */
    struct ds_placement place;
    if (ds_placement_parse(ds_case_setting(c, arm, "place"), &place, NULL) != 0 || place.n == 0)
        return own;
    return ds_placement_kind(ds_placement_device(&place, layer < 0 ? 0 : layer), own);
}

/* As the engine has activations on a device: in the format of --dtype, unless some stage is not rounded to it. */
static int stored_on_device(const struct ds_case *c, uint32_t arm)
{
    const int dtype = ds_dtype_parse(ds_case_setting(c, arm, "dtype"));
    for (size_t i = 0; i < c->h->n_options; i++)
        if (strcmp(c->h->options[i].name, "dtype_at") == 0)
            return DS_F32;
    return dtype == DS_BF16 || dtype == DS_F16 ? dtype : DS_F32;
}

/* Whether the record tells of a library, as its environment names them, that it was these bytes. */
static int was_loaded(const struct ds_header *h, const char *name, uint64_t digest)
{
    char text[24];
    snprintf(text, sizeof text, " %016" PRIx64, digest);
    for (size_t i = 0; i < h->n_environment; i++)
        if (strncmp(h->environment[i].name, name, strlen(name)) == 0 &&
            strstr(h->environment[i].value, text))
            return 1;
    return 0;
}

/* A library that was built anew is another one: what it gives says nothing of the side's own. */
static void check_library(const struct ds_case *c, int side, char *missing, size_t size)
{
    const struct ds_header *h = ds_case_header(c, c->side[side].arm);
    const struct ds_kernel *k = c->e.side[side].kernel;
    const struct ds_plugin *p = ds_plugin_of(k);
    if (p && !was_loaded(h, "plugin_", p->digest))
        snprintf(missing, size,
                 "its plugin had other bytes than %.100s: give that one with --plugin", p->file);
    else if (!p && strncmp(k->name, "cblas", 5) == 0 && !was_loaded(h, "cblas", ds_cblas_digest()))
        snprintf(missing, size,
                 "its library had other bytes than %.100s: give that one with --blas",
                 ds_cblas_file());
}

/* The kernel of a side, from the launch of its rows. */
static void find_kernel(struct ds_case *c, int side)
{
    struct ds_case_side *s = &c->side[side];
    struct ds_explain_side *e = &c->e.side[side];
    char why[256] = "", core[sizeof e->core];
    snprintf(s->variant, sizeof s->variant, "%.31s", s->launch->variant);
    e->kernel = ds_kernel_find_on(ds_case_device(c, side), c->e.op, s->variant);
    e->threads = s->t->info.threads_asked;
    if (e->threads < 1 || e->threads > 1024)
        e->threads = 1;
    e->dtype = ds_case_stored_as(c, c->f.site, s->arm);
    e->stored = stored_on_device(c, s->arm);
    snprintf(core, sizeof core, "%.23s", s->t->info.blas_core);
    memcpy(e->core, core, sizeof core);
    if (!e->kernel)
        snprintf(s->missing, sizeof s->missing,
                 "this program has no such variant: give its library with --plugin or --blas");
    else if (strcmp(s->variant, "openblas") == 0 && e->core[0] &&
             ds_blas_core_runs_here(e->core) == 0)
        snprintf(s->missing, sizeof s->missing, "this processor cannot run the core %s", core);
    else if (ds_kernel_available(e->kernel, why, sizeof why) != 0)
        snprintf(s->missing, sizeof s->missing, "it cannot run here: %.200s", why);
    else
        check_library(c, side, s->missing, sizeof s->missing);
    if (side == DS_SIDE_B && ds_case_other_data(c))
        snprintf(s->missing, sizeof s->missing,
                 "its weights or hyperparameters are others than those of A, which -m has");
    if (s->missing[0])
        e->kernel = NULL;
}

/* ---- the rows -------------------------------------------------------------------------------- */

/* What a kernel uses as an index. */
static int check_number(const struct ds_case *c, int32_t number, struct ds_error *err)
{
    if (c->e.op == DS_OP_EMBED && (number < 0 || number >= c->model->hp.vocab))
        return ds_fail(err, "token %d is not in the model's vocabulary", number);
    if (c->e.op == DS_OP_ROPE && (number < 0 || number > 1 << 24))
        return ds_fail(err, "position %d is out of range", number);
    return 0;
}

/* The row as the trial has it whose rows the side's kernel read: 1 found. */
static int key_where_read(const struct ds_case *c, int side, struct ds_row *key,
                          struct ds_error *err)
{
    struct ds_site_row *rows;
    size_t n;
    if (c->read[side].t == c->side[side].t)
        return 1;
    if (ds_site_rows(c->read[side].t, c->f.site, &rows, &n, err) != 0)
        return -1;
    const struct ds_site_row *r = ds_site_find_row(rows, n, key);
    if (r)
        *key = r->key;
    free(rows);
    return r != NULL;
}

/* One row of both sides: 1 taken, 0 not dumped. */
static int take_row(struct ds_case *c, const struct ds_site_row *const r[DS_SIDES],
                    struct ds_error *err)
{
    struct ds_explain_row *row = &c->e.rows[c->e.n_rows];
    uint64_t digests[DS_SIDES] = {0, 0};
    for (int side = 0; side < DS_SIDES; side++)
        if (r[side]->key.kind == DS_ROW_PAD || r[side]->key.position < 0 ||
            r[side]->key.position > MOST_POSITION || r[side]->key.kv_len < 1 ||
            r[side]->key.kv_len > r[side]->key.position + 1)
            return 0;
    for (int side = 0; side < DS_SIDES && c->choice >= 0; side++) {
        int rc = ds_case_same_expert(c, side, &r[side]->key, err);
        c->other_experts += rc == 0;
        if (rc != 1)
            return rc;
    }
    memset(row, 0, sizeof *row);
    for (int side = 0; side < DS_SIDES; side++) {
        float *y;
        struct ds_explain_input *in = &row->input[side];
        int rc = ds_case_values(c, c->f.site, c->side[side].arm, r[side]->digest,
                                c->h->sites[c->f.site].width, &y, err);
        struct ds_row key = r[side]->key;
        if (rc == 1)
            rc = key_where_read(c, side, &key, err);
        if (rc == 1)
            rc = ds_case_inputs(c, side, &key, in, &digests[side], err);
        if (rc != 1)
            return rc;
        row->y[side] = y;
        if (check_number(c, in->number, err) != 0 ||
            ds_case_stand(c, side, r[side], &row->at[side], &in->kv_first, err) != 0)
            return -1;
        in->slot = in->kv_first + r[side]->key.kv_len - 1;
        c->rows[side][c->e.n_rows] = *r[side];
        c->side[side].launch = &c->side[side].t->launches[r[side]->launch];
    }
    if (digests[DS_SIDE_A] != digests[DS_SIDE_B]) {
        c->differing_inputs++;
        if (c->e.n_rows && c->inputs_equal)
            return 0; /* origins are there: only those */
        c->inputs_equal = 0;
    }
    c->e.n_rows++;
    return 1;
}

static int64_t rows_of(const struct ds_case *c, int side, int least)
{
    int64_t v = c->e.rows[0].at[side].rows;
    for (size_t i = 1; i < c->e.n_rows; i++) {
        int64_t r = c->e.rows[i].at[side].rows;
        v = least ? (r < v ? r : v) : (r > v ? r : v);
    }
    return v;
}

static int not_dumped(const struct ds_case *c, struct ds_error *err)
{
    ds_fail(err,
            "layer %d %.24s: the record has no values of both sides and of what the kernel read",
            c->f.layer, c->f.stage);
    if (c->records->joined)
        return ds_hint(err, "record both runs with --dump all, and --dump-rows for more rows");
    return ds_hint(
        err, c->f.arm == c->f.ref_arm
                 ? "repeats of one setting: record with --dump all, and --dump-rows for more rows"
             : c->f.label == DS_LABEL_ORIGIN
                 ? "record with --dump origins (the default), or --dump all"
                 : "its inputs differ already; record with --dump all to have them");
}

/* Rope's table is as long as a sweep makes it (its length is among the arguments), and reaches every
 * row's position. */
static int extend_table(struct ds_case *c, struct ds_error *err)
{
    int64_t need = c->model->hp.context < 8192 ? c->model->hp.context : 8192;
    for (size_t i = 0; i < c->e.n_rows; i++)
        for (int s = 0; s < DS_SIDES; s++)
            if (c->e.rows[i].input[s].number >= need)
                need = (int64_t)c->e.rows[i].input[s].number + 1;
    if (need < 1 || ds_model_rope_table(c->model, need, err) != 0)
        return need < 1 ? ds_fail(err, "the record has no position") : -1;
    c->e.shared.rope.cos_sin = c->model->rope_table;
    c->e.shared.rope.table_positions = c->model->rope_positions;
    return 0;
}

int ds_case_take_pairs(struct ds_case *c, ds_case_take_fn *take, struct ds_error *err)
{
    struct ds_site_row *rows[DS_SIDES] = {NULL, NULL};
    size_t n[DS_SIDES] = {0, 0};
    int rc = 0;
    for (int s = 0; s < DS_SIDES && rc == 0; s++)
        rc = ds_site_rows(c->side[s].t, c->f.site, &rows[s], &n[s], err);
    for (size_t i = 0; i < n[DS_SIDE_B] && rc == 0; i++) {
        const struct ds_site_row *b = &rows[DS_SIDE_B][i],
                                 *a = ds_site_find_row(rows[DS_SIDE_A], n[DS_SIDE_A], &b->key);
        if (!a || a->digest == b->digest)
            continue;
        c->drifting_rows++;
        if (c->e.n_rows == DS_EXPLAIN_MOST_ROWS)
            continue;
        const struct ds_site_row *const pair[DS_SIDES] = {a, b};
        const int taken = take(c, pair, err);
        c->undumped += taken == 0;
        rc = taken < 0 ? -1 : 0;
    }
    free(rows[DS_SIDE_A]);
    free(rows[DS_SIDE_B]);
    return rc;
}

static int take_rows(struct ds_case *c, struct ds_error *err)
{
    c->inputs_equal = 1;
    return ds_case_take_pairs(c, take_row, err);
}

static int saw_drift(const struct ds_trial_data *t, uint32_t site)
{
    for (size_t i = 0; i < t->n_drifts; i++)
        if (t->drifts[i].site == site)
            return 1;
    return 0;
}

/* Rows again, from trials that are set in c->side and c->read. */
static int take_again(struct ds_case *c, int healed, struct ds_error *err)
{
    c->healed = healed;
    c->e.n_rows = c->drifting_rows = c->undumped = c->differing_inputs = c->other_experts = 0;
    if (c->choice >= 0 && ds_case_bind(c, err) != 0) /* other rows may be dumped there */
        return -1;
    return take_rows(c, err);
}

/* Both sides' trials that were healed to arms which agree: a side whose arm equals the one that it would
 * be healed to has its natural trial for that. */
static int take_healed_pair(struct ds_case *c, const struct ds_trial_data *b, uint32_t b_to,
                            struct ds_error *err)
{
    const uint32_t a_to =
        c->records->joined ? c->records->diff.healed_to[c->f.ref_arm] : c->f.ref_arm;
    const struct ds_trial_data *a = ds_analysis_trial(c->a, c->f.ref_arm);
    for (size_t i = 0; i < c->s->n_trials && c->records->joined; i++) {
        const struct ds_trial *info = c->s->info(c->s->ctx, i);
        if (info->pass == DS_PASS_HEAL && info->arm == c->f.ref_arm && info->healed_to == a_to &&
            !(a = c->s->get(c->s->ctx, i, err)))
            return -1;
    }
    c->side[DS_SIDE_A].t = a;
    c->side[DS_SIDE_B].t = b;
    c->read[DS_SIDE_A] = (struct ds_case_read){ds_analysis_trial(c->a, a_to), a_to};
    c->read[DS_SIDE_B] = (struct ds_case_read){ds_analysis_trial(c->a, b_to), b_to};
    return c->read[DS_SIDE_A].t && c->read[DS_SIDE_B].t ? take_again(c, 1, err) : 0;
}

/* The arm to which trials of B were healed that tell of its pair with A. */
static int healed_to(const struct ds_case *c, uint32_t *arm)
{
    *arm = c->f.ref_arm;
    if (!c->records->joined)
        return 1;
    const uint32_t *of = c->records->diff.healed_to;
    *arm = of ? of[c->f.arm] : UINT32_MAX;
    return of && *arm < c->h->n_arms && of[c->f.ref_arm] < c->h->n_arms;
}

/* Rows that inherit a difference were healed in another trial of the arm, where the site's own error
 * shows: there its kernel read the reference's rows. Rows that are explained by their own, unlike
 * inputs (with_rows) are kept where no trial healed has any. */
static int take_healed(struct ds_case *c, struct ds_error *err)
{
    struct ds_case_read natural[DS_SIDES];
    const int with_rows = c->e.n_rows > 0;
    size_t healed = 0;
    uint32_t to;
    memcpy(natural, c->read, sizeof natural);
    for (size_t i = 0; healed_to(c, &to) && i < c->s->n_trials && !(c->healed && c->e.n_rows);
         i++) {
        const struct ds_trial *info = c->s->info(c->s->ctx, i);
        if (info->pass != DS_PASS_HEAL || info->arm != c->f.arm || info->healed_to != to)
            continue;
        const struct ds_trial_data *t = c->s->get(c->s->ctx, i, err);
        if (!t)
            return -1;
        healed++;
        if ((c->records->joined || saw_drift(t, c->f.site)) && take_healed_pair(c, t, to, err) != 0)
            return -1;
    }
    if (with_rows && !(c->healed && c->e.n_rows)) {
        memcpy(c->read, natural, sizeof natural);
        for (int s = 0; s < DS_SIDES; s++)
            c->side[s].t = natural[s].t;
        return take_again(c, 0, err);
    }
    if (!healed || (c->healed && !c->records->joined) || (c->healed && c->drifting_rows))
        return 0;
    ds_fail(err,
            "layer %d %.24s only inherits: in the pass that was healed, on the reference's inputs, "
            "it gives the reference's bits",
            c->f.layer, c->f.stage);
    return ds_hint(err, "the first drift, and the origins that the verdict counts, have reasons");
}

/* The run's --page-size. */
static int64_t page_size_of(const struct ds_header *h)
{
    for (size_t i = 0; i < h->n_options; i++)
        if (strcmp(h->options[i].name, "page_size") == 0) {
            long long n = strtoll(h->options[i].value, NULL, 10);
            return n > 0 && n <= 1000000 ? n : 0;
        }
    return 0;
}

/* Which kernel it was must be known before its inputs are read; all rows of a site in a trial are of one
 * variant. */
static int find_kernels(struct ds_case *c, int plain, struct ds_error *err)
{
    for (int s = 0; s < DS_SIDES; s++) {
        struct ds_site_row *rows;
        size_t n;
        if (ds_site_rows(c->side[s].t, c->f.site, &rows, &n, err) != 0)
            return -1;
        if (n)
            c->side[s].launch = &c->side[s].t->launches[rows[0].launch];
        free(rows);
        if (!n && plain) { /* where only one side has rows, that is what differs */
            const char *name = s == DS_SIDE_A ? c->f.ref_variant : c->f.variant;
            snprintf(c->side[s].variant, sizeof c->side[s].variant, "%.31s", name ? name : "");
            snprintf(c->side[s].missing, sizeof c->side[s].missing, "it has no such row");
            continue;
        }
        if (!n)
            return ds_fail(err, "the record has no row of that site in arm %u", c->side[s].arm);
        find_kernel(c, s);
        ds_case_look_for_ranks(c, s);
    }
    return 0;
}

/* Values without inputs are looked at, too. */
static int take_values_alone(struct ds_case *c, struct ds_error *err)
{
    char why[sizeof c->not_replayed];
    if (c->f.row_kind == DS_ROW_PAD)
        snprintf(why, sizeof why, "rows of padding are not brought into a call again");
    else
        snprintf(why, sizeof why,
                 "what both sides put out and what their kernel read is not in the record%s: "
                 "`run --dump all` keeps it",
                 c->records->joined ? "s" : "");
    if (ds_case_load_plain(c, why, err) != 0)
        return -1;
    /* Without values there is the verdict, where it rests on more than sizes. */
    return c->e.n_rows || (c->named && c->f.basis >= DS_KIND_BY_VALUES) ? 0 : not_dumped(c, err);
}

static int load_replayed(struct ds_case *c, struct ds_error *err)
{
    if (ds_case_bind(c, err) != 0 || find_kernels(c, 0, err) != 0 || take_rows(c, err) != 0 ||
        ((c->e.n_rows == 0 || !c->inputs_equal) && take_healed(c, err) != 0))
        return -1;
    if (c->e.n_rows == 0)
        return take_values_alone(c, err);
    if (c->heads > 1 && ds_case_split_heads(c, err) != 0)
        return -1;
    return c->e.op == DS_OP_ROPE ? extend_table(c, err) : 0;
}

static int load_plain(struct ds_case *c, const char *why, struct ds_error *err)
{
    if (find_kernels(c, 1, err) != 0 || ds_case_load_plain(c, why, err) != 0)
        return -1;
    return c->e.n_rows || c->f.why[0] ? 0 : not_dumped(c, err);
}

int ds_case_load(struct ds_case *c, struct ds_error *err)
{
    char why[sizeof c->not_replayed];
    c->e.op = ds_op_parse(c->f.op);
    c->e.page_size = page_size_of(ds_case_header(c, c->f.ref_arm));
    c->e.rows = ds_calloc(DS_EXPLAIN_MOST_ROWS, sizeof *c->e.rows, "rows", err);
    for (int s = 0; s < DS_SIDES && c->e.rows; s++)
        c->rows[s] = ds_calloc(DS_EXPLAIN_MOST_ROWS, sizeof **c->rows, "rows", err);
    if (!c->e.rows || !c->rows[0] || !c->rows[1] || ds_case_find_trials(c, err) != 0)
        return -1;
    int rc = ds_case_is_plain(c, why, sizeof why) ? load_plain(c, why, err) : load_replayed(c, err);
    for (int s = 0; s < DS_SIDES && rc == 0 && c->e.n_rows; s++) {
        c->side[s].rows_least = rows_of(c, s, 1) / (c->heads > 1 ? c->heads : 1);
        c->side[s].rows_most = rows_of(c, s, 0) / (c->heads > 1 ? c->heads : 1);
    }
    return rc;
}

void ds_case_free(struct ds_case *c)
{
    for (size_t i = 0; i < c->n_owned; i++)
        free(c->owned[i]);
    free(c->owned);
    free(c->e.rows);
    free(c->rows[0]);
    free(c->rows[1]);
}
