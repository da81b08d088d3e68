/* verb_explain.c: `driftscope explain RECORD [SITE]`: why the bits of one place differ. Joins the
 * record, the model and the lab; the lab does the work. */
#include "cli/cli.h"
#include "cli/explain_case.h"
#include "cli/json.h"
#include "cli/lab_kernels.h"
#include "cli/recorded_model.h"
#include "cli/render_explain.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/team.h"
#include "kernels/device_open.h"
#include "kernels/lab/far.h"
#include "kernels/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_model(const struct ds_options *o, struct ds_case *c, struct ds_error *err)
{
    const int cpus = ds_team_cpus();
    const struct ds_header *h = ds_case_header(c, c->f.ref_arm);
    const struct ds_recorded_model recorded = ds_recorded_model_of(h);
    const char *name;
    if (ds_cli_model(o, &recorded, &name, err) != 0 ||
        ds_model_open(name, cpus > 16 ? 16 : cpus, &c->model, err) != 0)
        return -1;
    return ds_case_same_model(h, c->model, err);
}

/* The device of --device, else the one that the record has for each side. */
static int choose_device(struct ds_case *c, const struct ds_options *o, struct ds_error *err)
{
    const char *given = ds_opt_text(o, "device");
    int wanted = -1, kind, number;
    if (given && ds_device_parse_name(given, &wanted, &number, err) != 0)
        return ds_prefix(err, "--device");
    for (int s = 0; s < DS_SIDES; s++) {
        const char *name = ds_case_setting(c, s == DS_SIDE_A ? c->f.ref_arm : c->f.arm, "device");
        if (ds_device_parse_name(name, &kind, &number, NULL) != 0 || kind == wanted)
            continue;
        ds_lab_use_device(kind, number);
        c->e.side[s].device = kind;
        c->e.side[s].device_number = number;
    }
    return ds_lab_choose_device(o, err);
}

/* ---- replay through the variants ------------------------------------------------------------- */

/* Both sides' own first. */
static int order_of(const struct ds_case *c, const struct ds_kernel *k)
{
    return k == c->e.side[DS_SIDE_A].kernel ? 0 : k == c->e.side[DS_SIDE_B].kernel ? 1 : 2;
}

/* What the call asks of a kernel beyond its op's plain form. A window that hides nothing asks nothing. */
static int lacks(const struct ds_case *c, const struct ds_kernel *k)
{
    const struct ds_attention_args *a = &c->e.shared.attention;
    int32_t most = 0;
    if (ds_case_is_drawn(c) && !(k->features & DS_FEATURE_SAMPLER))
        return 1;
    if (c->e.op != DS_OP_ATTENTION)
        return 0;
    for (size_t i = 0; i < c->e.n_rows; i++)
        for (int s = 0; s < DS_SIDES; s++)
            if (c->e.rows[i].at[s].kv_len > most)
                most = c->e.rows[i].at[s].kv_len;
    return (a->window > 0 && a->window < most && !(k->features & DS_FEATURE_WINDOW)) ||
           (a->soft_cap > 0 && !(k->features & DS_FEATURE_SOFT_CAP));
}

static int replay_one(struct ds_explanation *x, struct ds_case_replay *r, float *y,
                      struct ds_error *err)
{
    const struct ds_case *c = x->c;
    for (int s = 0; s < DS_SIDES; s++) {
        int rc = ds_explain_replay(&c->e, s, r->kernel, 1, y, r->why[s], sizeof r->why[s], err);
        if (rc < 0)
            return -1;
        r->run[s] = rc == 0;
        if (r->run[s])
            ds_explain_match(&c->e, y, &r->match[s]);
        if (r->run[s] && s == DS_SIDE_A && ds_repeats_count(&x->repeats, c, y, &r->given, err) != 0)
            return -1;
    }
    return 0;
}

/* Variants of the devices of both sides and of --device that can do what the call asks; room for their
 * replays. */
struct candidates {
    const struct ds_kernel **kernel;
    size_t n;
};

static int is_asked(const struct ds_explanation *x, int device)
{
    const int given = ds_opt_text(x->o, "device") ? ds_lab_device(x->o) : -1;
    return ds_case_device(x->c, DS_SIDE_A) == device || ds_case_device(x->c, DS_SIDE_B) == device ||
           given == device;
}

static int list_candidates(struct ds_explanation *x, struct candidates *all, struct ds_error *err)
{
    size_t most = 0;
    const struct ds_kernel *k;
    for (int d = 0; d < DS_DEVICE_KINDS; d++)
        most += ds_kernel_count_on(d);
    *all =
        (struct candidates){ds_calloc(most, sizeof(const struct ds_kernel *), "kernels", err), 0};
    x->replay = ds_calloc(most, sizeof *x->replay, "replays", err);
    if (!all->kernel || !x->replay)
        return -1;
    for (int d = 0; d < DS_DEVICE_KINDS; d++)
        for (size_t i = 0; is_asked(x, d) && (k = ds_kernel_at_on(d, i)); i++)
            if (k->op == x->c->e.op && !lacks(x->c, k))
                all->kernel[all->n++] = k;
    return 0;
}

static int replay_all(struct ds_explanation *x, struct ds_error *err)
{
    const struct ds_case *c = x->c;
    const size_t n = c->e.n_rows * (size_t)ds_explain_width(c->e.op, &c->e.shared);
    float *y = ds_alloc_aligned(n, sizeof *y, "replayed rows", err);
    struct candidates all = {NULL, 0};
    int rc = y && list_candidates(x, &all, err) == 0 ? 0 : -1;
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; rc == 0 && i < all.n; i++) {
            const struct ds_kernel *k = all.kernel[i];
            char why[256] = "";
            if (order_of(c, k) != pass || ds_kernel_available(k, why, sizeof why) != 0)
                continue;
            ds_cli_progress(x->o, k->name, (double)i, (double)all.n);
            x->replay[x->n_replays].kernel = k;
            rc = replay_one(x, &x->replay[x->n_replays++], y, err);
        }
    ds_cli_progress(x->o, "", -1, 0);
    free(all.kernel);
    free(y);
    return rc;
}

/* ---- orders, sizes, the claim ---------------------------------------------------------------- */

/* Without a fixed order every launch may give other bits: do each element's come out at all? */
static int launch_often(struct ds_explanation *x, int side, struct ds_error *err)
{
    enum { LAUNCHES = 32 };
    const struct ds_explain *e = &x->c->e;
    const size_t width = (size_t)ds_explain_width(e->op, &e->shared), n = e->n_rows * width;
    float *y = ds_alloc_aligned(n, sizeof *y, "replayed rows", err);
    uint8_t *seen = ds_calloc(n, 1, "replayed rows", err);
    int rc = y && seen ? 0 : -1;
    uint64_t given;
    ds_repeats_seen(&x->repeats);
    for (uint64_t seed = 2; seed < 2 + LAUNCHES && rc == 0; seed++) {
        char why[160];
        rc = ds_explain_replay(e, side, e->side[side].kernel, seed, y, why, sizeof why, err);
        for (size_t i = 0; i < n && rc == 0; i++)
            seen[i] |= ds_f32_bits(y[i]) == ds_f32_bits(e->rows[i / width].y[side][i % width]);
        if (rc == 0)
            rc = ds_repeats_count(&x->repeats, x->c, y, &given, err);
    }
    x->repeats.launched = ds_repeats_seen(&x->repeats);
    for (size_t i = 0; i < n && rc == 0; i++)
        x->seen_once[side] += seen[i] && ds_f32_bits(e->rows[i / width].y[0][i % width]) !=
                                             ds_f32_bits(e->rows[i / width].y[1][i % width]);
    x->launches = LAUNCHES;
    free(y);
    free(seen);
    return rc < 0 ? -1 : 0;
}

static int measure_orders(struct ds_explanation *x, struct ds_error *err)
{
    for (int s = 0; s < DS_SIDES; s++) {
        ds_cli_progress(x->o, s ? "order of B" : "order of A", s, DS_SIDES);
        if (ds_explain_order(&x->c->e, s, &x->order[s], err) != 0)
            return -1;
        if (!x->order[s].fixed && launch_often(x, s, err) != 0)
            return -1;
    }
    for (int s = 0; s < DS_SIDES; s++)
        if (ds_explain_order_borrow(&x->c->e, s, &x->order[s], &x->order[DS_SIDE_B - s], err) != 0)
            return -1;
    for (int s = 0; s < DS_SIDES; s++)
        if (x->order[s].replayed &&
            ds_repeats_count(&x->repeats, x->c, x->order[s].y, &x->repeats.along[s], err) != 0)
            return -1;
    ds_cli_progress(x->o, "", -1, 0);
    return 0;
}

static int judge_choice(struct ds_explanation *x, struct ds_error *err)
{
    const struct ds_explain *e = &x->c->e;
    if (ds_explain_choose(e, &x->choice, err) != 0)
        return -1;
    ds_explain_judge_choice(e, &x->choice, x->c->inputs_equal, &x->verdict);
    x->chosen = 1;
    return 0;
}

/* Where both sides read the same: against the exact result, and against what rounding does. */
static int judge(struct ds_explanation *x, struct ds_error *err)
{
    const struct ds_explain *e = &x->c->e;
    if (ds_case_is_drawn(x->c)) {
        ds_explanation_judge_drawn(x);
        return 0;
    }
    if (ds_explain_chooses(e->op) && !e->weights)
        return judge_choice(x, err);
    if (!x->c->inputs_equal)
        return 0;
    double *exact = ds_calloc(e->n_rows * (size_t)ds_explain_width(e->op, &e->shared),
                              sizeof *exact, "exact results", err);
    int rc = exact ? ds_explain_exact(e, exact, err) : -1;
    if (rc == 0) {
        ds_explain_accuracy(e, exact, &x->accuracy);
        rc = ds_explain_noise(e, exact, &x->noise, err);
    }
    if (rc == 0) {
        ds_explain_judge(e, x->order, &x->noise, &x->verdict);
        x->judged = 1;
    }
    free(exact);
    return rc;
}

/* What the record knows of a row of a side's call. */
static void who_is(const struct ds_case *c, int side, const struct ds_explain_others *o, char *text,
                   size_t size)
{
    const struct ds_trial_data *t = c->side[side].t;
    const struct ds_row *own = &c->rows[side][o->target].key;
    snprintf(text, size, "another request's");
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct ds_row *r = &t->rows[i];
        if (r->call == own->call && r->slot == o->guilty && r->kind == DS_ROW_PAD)
            snprintf(text, size, "padding");
        else if (r->call == own->call && r->slot == o->guilty)
            snprintf(text, size, "request %d, position %d", r->request, r->position);
    }
}

/* Whether rows of a side come out otherwise when other rows of their call hold something else. A kernel
 * without a fixed order is not asked. */
static int ask_others(struct ds_explanation *x, struct ds_error *err)
{
    for (int s = 0; s < DS_SIDES; s++) {
        struct ds_explain_others *o = &x->others[s];
        char who[96] = "";
        o->guilty = -1;
        if (!x->c->e.side[s].kernel || !x->order[s].fixed)
            continue;
        if (ds_explain_others(&x->c->e, s, o, err) != 0)
            return -1;
        /* Of experts and heads the rows of the kernel's call are others than those of the record's. */
        if (o->guilty >= 0 && x->c->heads == 1 && x->c->expert < 0)
            who_is(x->c, s, o, who, sizeof who);
        if (o->moved && x->judged)
            ds_explain_judge_others(&x->c->e, x->order, s, o, who, &x->verdict);
        snprintf(x->who[s], sizeof x->who[s], "%s", who);
    }
    return 0;
}

/* Where a side's bits come from more than its call, whether they come from where its keys lie in the cache. */
static int ask_pages(struct ds_explanation *x, struct ds_error *err)
{
    for (int s = 0; s < DS_SIDES; s++)
        if (x->c->e.op == DS_OP_ATTENTION && ds_explanation_depends_on_more(x, s) &&
            ds_explain_pages(&x->c->e, s, &x->pages[s], err) != 0)
            return -1;
    return 0;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static int answer(const struct ds_explanation *x, struct ds_error *err)
{
    struct ds_buf out = {0};
    int rc = 0;
    if (ds_opt_flag(x->o, "json")) {
        ds_json_begin();
        rc = ds_json_print_line(ds_render_explain_json(x), &out, err);
    } else {
        ds_render_explain_text(x, &out);
        rc = out.failed ? ds_fail(err, "out of memory for the result") : 0;
    }
    if (rc == 0)
        rc = ds_cli_emit(x->o, &out, err);
    ds_buf_free(&out);
    return rc;
}

/* Both calls again. */
static int look(struct ds_explanation *x, struct ds_error *err)
{
    if (ds_repeats_collect(&x->repeats, x->c, err) != 0 || replay_all(x, err) != 0 ||
        measure_orders(x, err) != 0 || judge(x, err) != 0)
        return -1;
    return ask_others(x, err) != 0 ? -1 : ask_pages(x, err);
}

/* *known: a claim was made, or where the inputs differ already, both sides' bits came out again. */
static int explain(struct ds_case *c, const struct ds_options *o, const struct ds_verdict *v,
                   int *known, struct ds_error *err)
{
    struct ds_explanation x = {.o = o, .c = c, .reproducer = ds_opt_text(o, "reproducer")};
    int64_t arm = -1;
    char ignored[160];
    const size_t records = c->records->joined ? 2 : 1;
    const char *site = ds_opt_operands(o) > records ? ds_opt_operand(o, records) : NULL;
    const struct ds_header *last = c->records->source[records - 1].header;
    if (ds_opt_given(o, "arm") &&
        ds_opt_int(o, "arm", 0, (int64_t)last->n_arms - 1, &arm, err) != 0)
        return -1;
    int rc = ds_case_find(c, v, site, arm, err);
    if (rc == 0)
        rc = choose_device(c, o, err);
    if (rc == 0 && !ds_case_is_plain(c, ignored, sizeof ignored))
        rc = open_model(o, c, err);
    if (rc == 0)
        rc = ds_case_samplers(c, err);
    if (rc == 0)
        rc = ds_case_load(c, err);
    if (rc == 0 && !c->not_replayed[0])
        rc = look(&x, err);
    if (rc == 0)
        rc = ds_explanation_settle(&x, c->a, err);
    if (rc == 0 && x.reproducer)
        rc = ds_reproducer_write(&x, x.reproducer, ds_opt_flag(o, "force"), err);
    if (rc == 0)
        rc = answer(&x, err);
    *known = rc == 0 && (x.kind != DS_EXPLAIN_UNKNOWN ||
                         (!x.judged && ds_explanation_reproduced(&x, DS_SIDE_A) &&
                          ds_explanation_reproduced(&x, DS_SIDE_B)));
    ds_repeats_free(&x.repeats);
    free(x.replay);
    for (int s = 0; s < DS_SIDES; s++)
        ds_explain_order_free(&x.order[s]);
    return rc;
}

/* The second operand is a record, or a place in the first. */
static int count_records(const struct ds_options *o, struct ds_error *err)
{
    const size_t n = ds_opt_operands(o);
    if (n < 2)
        return 1;
    if (ds_is_record(ds_opt_operand(o, 1)))
        return 2;
    return n == 2 ? 1 : ds_fail(err, "'%s' is no record", ds_opt_operand(o, 1));
}

static int with_records(const struct ds_options *o, int *known, struct ds_error *err)
{
    struct ds_explain_records r = {0};
    struct ds_case c = {.records = &r};
    const int n = count_records(o, err);
    const char *paths[DS_SIDES] = {ds_opt_operand(o, 0), n == 2 ? ds_opt_operand(o, 1) : NULL};
    if (n < 0)
        return -1;
    int rc = ds_explain_records_open(&r, paths, n, err);
    if (rc == 0) {
        const struct ds_verdict *v = ds_explain_records_case(&r, &c);
        rc = explain(&c, o, v, known, err);
        if (rc != 0) /* which of two it is of is not known */
            ds_prefix(err, "%s%s%s", paths[0], n == 2 ? " and " : "", n == 2 ? paths[1] : "");
        ds_case_free(&c);
        ds_model_close(c.model);
    }
    ds_explain_records_close(&r);
    return rc;
}

int ds_verb_explain(const struct ds_options *o)
{
    struct ds_error err = {{0}, {0}};
    const char *dir = ds_opt_text(o, "reproducer");
    if (!dir && ds_opt_flag(o, "force"))
        ds_fail(&err, "--force is for --reproducer: there is nothing to be overwritten");
    if (err.msg[0] || (dir && ds_reproducer_check(dir, ds_opt_flag(o, "force"), &err) != 0))
        return ds_cli_error(o, &err);
    int known = 0;
    if (with_records(o, &known, &err) != 0)
        return ds_cli_error(o, &err);
    return known ? DS_EXIT_SAME : DS_EXIT_DRIFT;
}
