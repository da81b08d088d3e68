/* probe.c: the life of a probe: trials and calls, and the time spent in them. Knows the order of
 * things, not what is done at a site (site.c) or with a drift (compare.c). */
#include "probes/probe_internal.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { TICKS_STRIDE = 8 };

/* ---- time ------------------------------------------------------------------------------------ */

/* Adds the time since `start` to the running call, or outside of one to the phase of the last call.
 */
void probe_charge(struct ds_probe *p, uint64_t start)
{
    uint64_t spent = ds_ticks_now(&p->clock) - start;
    if (p->state == PROBE_CALL) {
        p->call_ticks += spent;
        return;
    }
    p->ticks += (double)spent;
    if (p->state == PROBE_TRIAL && p->t.n_calls)
        p->phase_ticks[p->phase] += (double)spent;
}

/* Ends the account of a call: if the thread was preempted in it, the time in probes is cut to the
 * share in which it ran. */
static void close_account(struct ds_probe *p)
{
    struct ds_usage now;
    ds_usage_read(&now);
    double ticks = (double)p->call_ticks * ds_usage_share(&p->call_usage, &now);
    p->ticks += ticks;
    p->phase_ticks[p->phase] += ticks;
    p->call_ticks = 0;
}

double ds_probe_cpu_seconds(const struct ds_probe *p)
{
    return ds_ticks_seconds(&p->clock, p->ticks + (double)p->call_ticks);
}

/* ---- new and free ---------------------------------------------------------------------------- */

static int init_sites(struct ds_probe *p, struct ds_error *err)
{
    for (uint32_t i = 0; i < p->c.n_sites; i++) {
        struct probe_site *s = &p->site[i];
        int dtype = ds_dtype_parse(p->c.sites[i].dtype);
        if (dtype < 0)
            return ds_fail(err, "probe: site %u (%s) has unknown dtype '%.8s'", i,
                           p->c.sites[i].stage, p->c.sites[i].dtype);
        s->dtype = (uint8_t)dtype;
        s->element_size = (uint8_t)ds_dtype_size(dtype);
        s->width = p->c.sites[i].width;
        s->on = !p->c.site_on || p->c.site_on[i];
        s->held = s->on && p->c.hold && ds_hold_keeps(p->c.hold, i);
        s->launch = NO_LAUNCH;
    }
    return 0;
}

int ds_probe_new(const struct ds_probe_config *config, struct ds_probe **out, struct ds_error *err)
{
    *out = NULL;
    struct ds_probe *p = ds_alloc_aligned(1, sizeof *p, "probe", err);
    if (!p)
        return -1;
    p->c = *config;
    p->n_sites = config->n_sites;
    p->watch = !config->no_watch;
    p->team_threads = config->team ? ds_team_threads(config->team) : 1;
    p->isa = ds_scan_isa();
    p->filling = -1;
    p->first_site = NO_SITE;
    ds_ticks_init(&p->clock);
    size_t members = (size_t)p->team_threads;
    if (!(p->site = ds_alloc_aligned(p->n_sites, sizeof *p->site, "probe sites", err)) ||
        !(p->links = ds_calloc(p->n_sites, sizeof *p->links, "probe sites", err)) ||
        !(p->kept = ds_calloc(p->c.n_sites, sizeof *p->kept, "kept rows", err)) ||
        !(p->member_ticks =
              ds_alloc_aligned(members * TICKS_STRIDE, sizeof(uint64_t), "probe times", err)) ||
        init_sites(p, err) || probe_graph(p, err)) {
        ds_probe_free(p);
        return -1;
    }
    *out = p;
    return 0;
}

void ds_probe_free(struct ds_probe *p)
{
    if (!p)
        return;
    ds_probe_abort_trial(p);
    probe_refs_free(p);
    for (uint32_t i = 0; i < p->c.n_sites && p->kept; i++)
        free(p->kept[i].rows);
    free(p->kept);
    free(p->site);
    free(p->links);
    free(p->inputs);
    free(p->largest);
    free(p->far.bytes);
    free(p->row_request);
    free(p->requests);
    free(p->blob_index);
    free(p->live);
    free(p->member_ticks);
    probe_kin_free(p);
    free(p);
}

/* ---- trials ---------------------------------------------------------------------------------- */

/* Forgets the trial's data, which was handed over or freed. */
static void forget_trial(struct ds_probe *p)
{
    memset(&p->t, 0, sizeof p->t);
    memset(&p->cap, 0, sizeof p->cap);
    probe_release_all(p);
    probe_kin_forget(p);
    if (p->blob_index)
        memset(p->blob_index, 0, p->blob_slots * sizeof *p->blob_index);
    p->state = PROBE_IDLE;
    p->broken = 0;
    p->filling = -1;
    p->call_rows = 0;
}

/* A row can have one healer only, and without its rows there is no healing. */
static int check_healing(const struct ds_probe *p, struct ds_error *err)
{
    if (p->n_refs == 1 && p->refs[0].arm == p->t.info.healed_to)
        return 0;
    return ds_fail(err, "probe: a heal trial needs the rows of arm %u held, and no other reference",
                   p->t.info.healed_to);
}

int ds_probe_begin_trial(struct ds_probe *p, const struct ds_trial *info, const uint32_t *refs,
                         uint32_t n_refs, struct ds_error *err)
{
    if (p->state != PROBE_IDLE)
        return ds_fail(err, "probe: a trial begins inside another");
    uint64_t start = ds_ticks_now(&p->clock);
    p->t.info = *info;
    p->heal = info->pass == DS_PASS_HEAL;
    p->first_site = NO_SITE;
    p->phase_ticks[0] = p->phase_ticks[1] = 0;
    for (uint32_t i = 0; i < p->c.n_sites; i++) {
        p->site[i].launch = NO_LAUNCH;
        p->links[i].dumped = p->links[i].extra = p->links[i].range = 0;
        p->links[i].worst = 0;
        p->links[i].leads = 0;
    }
    if (probe_refs_begin(p, refs, n_refs, err) || (p->heal && check_healing(p, err)) ||
        ds_grow(&p->t.captures, &p->cap.captures, p->last_captures, sizeof *p->t.captures,
                "captures", err) ||
        ds_grow(&p->t.digests, &p->cap.digests, p->last_digests, sizeof *p->t.digests, "digests",
                err)) {
        ds_trial_data_free(&p->t);
        forget_trial(p);
        return -1;
    }
    long slot =
        p->c.hold && info->pass == DS_PASS_NATURAL ? ds_hold_slot(p->c.hold, info->arm) : -1;
    if (slot >= 0 && ds_hold_begin(p->c.hold, slot))
        p->filling = slot;
    p->state = PROBE_TRIAL;
    probe_charge(p, start);
    return 0;
}

int ds_probe_heals(const struct ds_probe *p)
{
    return p->state != PROBE_IDLE && p->heal;
}

void ds_probe_leave_out(struct ds_probe *p, const uint8_t *sites)
{
    p->left_out = sites;
}

void ds_probe_abort_trial(struct ds_probe *p)
{
    if (p->state == PROBE_CALL)
        close_account(p);
    if (p->filling >= 0)
        ds_hold_abandon(p->c.hold, p->filling);
    ds_trial_data_free(&p->t);
    forget_trial(p);
}

int ds_probe_end_trial(struct ds_probe *p, struct ds_trial_data *out, struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    if (p->state != PROBE_TRIAL || p->broken)
        return ds_fail(err,
                       "probe: a trial ends before it began, inside a call, or after a failure");
    uint64_t start = ds_ticks_now(&p->clock);
    p->t.info.probe_prefill_cpu_s = ds_ticks_seconds(&p->clock, p->phase_ticks[DS_PHASE_PREFILL]);
    p->t.info.probe_decode_cpu_s = ds_ticks_seconds(&p->clock, p->phase_ticks[DS_PHASE_DECODE]);
    /* Only the site list matters for a digest; the record's owner knows the rest of the header. */
    struct ds_header h = {.sites = (struct ds_site *)(uintptr_t)p->c.sites,
                          .n_sites = p->c.n_sites};
    probe_masks_finish(p);
    int rc = ds_trial_run_digest(&h, &p->t, &p->t.info.run_digest, err);
    if (!rc && p->filling >= 0) {
        rc = ds_hold_commit(p->c.hold, p->filling, err);
        p->filling = -1; /* given up on failure */
    }
    p->ticks += (double)(ds_ticks_now(&p->clock) - start);
    if (rc) {
        p->broken = 1;
        return -1;
    }
    p->last_captures = p->t.n_captures;
    p->last_digests = p->t.n_digests;
    *out = p->t;
    forget_trial(p);
    return 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int check_rows(const struct ds_row *rows, uint32_t n, uint32_t m, struct ds_error *err)
{
    for (uint32_t i = 0; i < n; i++)
        if (rows[i].slot < 0 || (m && (uint32_t)rows[i].slot >= m) ||
            (i && rows[i].slot <= rows[i - 1].slot))
            return ds_fail(err,
                           "probe: row %u of a call is in slot %d: not ascending, or not below %u",
                           i, rows[i].slot, m);
    return 0;
}

static int add_call(struct ds_probe *p, uint32_t m, uint32_t sequences, const struct ds_row *rows,
                    uint32_t n_rows, struct ds_error *err)
{
    struct ds_trial_data *t = &p->t;
    if (t->n_rows + n_rows > UINT32_MAX || t->n_calls >= UINT32_MAX)
        return ds_fail(err, "probe: more rows in a trial than a record holds");
    if (check_rows(rows, n_rows, m, err) ||
        ds_grow(&t->calls, &p->cap.calls, t->n_calls + 1, sizeof *t->calls, "calls", err) ||
        ds_grow(&t->rows, &p->cap.rows, t->n_rows + n_rows, sizeof *t->rows, "rows", err) ||
        ds_grow(&p->largest, &p->largest_cap, n_rows, sizeof *p->largest, "row sizes", err))
        return -1;
    p->call_first = (uint32_t)t->n_rows;
    p->call_rows = n_rows;
    for (uint32_t i = 0; i < n_rows; i++) {
        t->rows[t->n_rows] = rows[i];
        t->rows[t->n_rows++].call = (uint32_t)t->n_calls;
    }
    t->calls[t->n_calls] =
        (struct ds_call){(uint32_t)t->n_calls, p->phase, m, sequences, p->call_first, n_rows};
    t->n_calls++;
    return probe_refs_call(p, err) != 0 ? -1 : probe_kin_call(p, err);
}

int ds_probe_begin_call(struct ds_probe *p, uint32_t phase, uint32_t m, uint32_t sequences,
                        const struct ds_row *rows, uint32_t n_rows, struct ds_error *err)
{
    if (p->state != PROBE_TRIAL || p->broken)
        return ds_fail(err,
                       "probe: a call begins outside a trial, inside another, or after a failure");
    if (phase > DS_PHASE_DECODE)
        return ds_fail(err, "probe: unknown phase %u", phase);
    ds_usage_read(&p->call_usage);
    uint64_t start = ds_ticks_now(&p->clock);
    p->phase = phase;
    p->state = PROBE_CALL;
    int rc = add_call(p, m, sequences, rows, n_rows, err);
    p->broken = rc != 0;
    probe_charge(p, start);
    return rc;
}

int ds_probe_end_call(struct ds_probe *p, struct ds_error *err)
{
    if (p->state != PROBE_CALL || p->broken)
        return ds_fail(err, "probe: a call ends that did not begin, or after a failure");
    uint64_t start = ds_ticks_now(&p->clock);
    probe_release(p, NO_SITE);
    probe_charge(p, start);
    close_account(p);
    p->state = PROBE_TRIAL;
    return 0;
}
