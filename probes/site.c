/* site.c: what happens at a site: rows are digested while they are in cache, on the caller's thread
 * or spread over the team. Owns the path that every row of every trial takes, so it allocates only
 * when arrays must grow, looks nothing up in a table, and reads the clock twice. Knows nothing of
 * what a drift means (compare.c). */
#include "probes/probe_internal.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/mem.h"

#include <string.h>

/* Fewer bytes than this are hashed by the caller alone. One core hashes 20 to 60 GB/s; a team that
 * has gone to sleep (beside a BLAS library's own threads it has) takes some 50 us to wake, while
 * the caller waits. */
enum { TEAM_BYTES = 1 << 20, TICKS_STRIDE = 8 };

struct digest_job {
    const struct ds_probe *p;
    const struct probe_rows *r;
    uint64_t *digests;
    uint32_t *largest; /* NULL: no look at values */
    int dtype;
};

static void digest_range(const struct digest_job *j, uint32_t begin, uint32_t end)
{
    const struct ds_probe *p = j->p;
    const struct probe_rows *r = j->r;
    const struct ds_row *rows = p->t.rows + p->call_first;
    ds_hash_fn *hash = ds_hash_best();
    for (uint32_t i = begin; i < end; i++) {
        size_t at = r->only ? i : (size_t)rows[i].slot;
        const char *bytes = r->data + at * r->stride;
        j->digests[i] = hash(bytes, r->row_bytes);
        if (j->largest)
            j->largest[i] = p->isa->largest(j->dtype, bytes, r->row_bytes);
    }
}

static void digest_member(void *arg, int thread, int threads)
{
    const struct digest_job *j = arg;
    uint64_t start = ds_ticks_now(&j->p->clock);
    long begin, end;
    ds_team_share((long)j->r->n, 1, thread, threads, &begin, &end);
    digest_range(j, (uint32_t)begin, (uint32_t)end);
    if (thread > 0)
        j->p->member_ticks[thread * TICKS_STRIDE] = ds_ticks_now(&j->p->clock) - start;
}

/* Hashes the rows of r into digests, and fills `largest` if wanted. The caller's own time is taken by
 * ds_probe_site. */
static void digest_rows(struct ds_probe *p, const struct probe_rows *r, uint64_t *digests,
                        uint32_t *largest)
{
    struct digest_job j = {p, r, digests, largest, p->site[r->site].dtype};
    if (r->far) {
        memcpy(digests, r->far->digests, r->n * sizeof *digests);
        if (largest)
            memcpy(largest, r->far->largest, r->n * sizeof *largest);
        return;
    }
    int threads = p->team_threads;
    if (threads < 2 || r->n < 2 || r->row_bytes * r->n < TEAM_BYTES) {
        digest_range(&j, 0, r->n);
        return;
    }
    ds_team_run(p->c.team, digest_member, &j);
    for (int i = 1; i < threads; i++)
        p->call_ticks += p->member_ticks[i * TICKS_STRIDE];
}

/* ---- launches -------------------------------------------------------------------------------- */

static void copy_name(char *dst, const char *src, size_t size)
{
    memcpy(dst, src, strnlen(src, size - 1)); /* the rest is zero already */
}

/* The number of this launch in the trial, adding it if it is new. */
static int add_launch(struct ds_probe *p, uint32_t site, const struct ds_launch *launch,
                      struct ds_error *err)
{
    struct ds_launch clean = {0};
    copy_name(clean.op, launch ? launch->op : p->c.sites[site].op, sizeof clean.op);
    if (launch) {
        copy_name(clean.variant, launch->variant, sizeof clean.variant);
        copy_name(clean.algo, launch->algo, sizeof clean.algo);
        clean.rows = launch->rows;
        clean.tile_rows = launch->tile_rows;
        clean.tile_cols = launch->tile_cols;
        clean.tile_k = launch->tile_k;
        clean.split = launch->split;
        clean.threads = launch->threads;
    }
    size_t i = 0;
    while (i < p->t.n_launches && memcmp(&p->t.launches[i], &clean, sizeof clean) != 0)
        i++;
    if (i == p->t.n_launches) {
        if (ds_grow(&p->t.launches, &p->cap.launches, i + 1, sizeof clean, "launches", err))
            return -1;
        p->t.launches[p->t.n_launches++] = clean;
    }
    p->site[site].launch = (uint32_t)i;
    return 0;
}

/* Mostly the site was launched the same way the last time. */
static int find_launch(struct ds_probe *p, uint32_t site, const struct ds_launch *launch,
                       struct ds_error *err)
{
    uint32_t last = p->site[site].launch;
    if (last != NO_LAUNCH && (!launch || memcmp(&p->t.launches[last], launch, sizeof *launch) == 0))
        return 0;
    return add_launch(p, site, launch, err);
}

/* ---- captures -------------------------------------------------------------------------------- */

static int add_capture(struct ds_probe *p, const struct probe_rows *r, uint32_t begin, uint32_t n,
                       struct ds_error *err)
{
    struct ds_trial_data *t = &p->t;
    if (t->n_captures == p->cap.captures &&
        ds_grow(&t->captures, &p->cap.captures, t->n_captures + 1, sizeof *t->captures, "captures",
                err))
        return -1;
    t->captures[t->n_captures++] = (struct ds_capture){
        .call = (uint32_t)t->n_calls - 1,
        .site = r->site,
        .launch = p->site[r->site].launch,
        .first_row = p->call_first + probe_row_number(r, begin),
        .rows = n,
        .width = r->width,
        .first_digest = t->n_digests + begin,
    };
    return 0;
}

/* One capture for every run of consecutive rows. */
static int add_captures(struct ds_probe *p, const struct probe_rows *r, struct ds_error *err)
{
    uint32_t begin = 0;
    for (uint32_t i = 1; i <= r->n; i++) {
        if (i < r->n && (!r->only || r->only[i] == r->only[i - 1] + 1))
            continue;
        if (add_capture(p, r, begin, i - begin, err))
            return -1;
        begin = i;
    }
    return 0;
}

/* Asks for what is needed after the hashing, which takes about as long as memory does. */
static void fetch_ahead(const struct ds_probe *p, uint32_t site, const struct ds_launch *launch)
{
    const struct ds_trial_data *t = &p->t;
    uint32_t last = p->site[site].launch;
    __builtin_prefetch(&t->captures[t->n_captures], 1);
    if (launch && last != NO_LAUNCH) {
        __builtin_prefetch(launch);
        __builtin_prefetch((const char *)(launch + 1) - 1);
        __builtin_prefetch(&t->launches[last]);
        __builtin_prefetch((const char *)(&t->launches[last] + 1) - 1);
    }
    for (size_t k = 0; k < p->n_refs; k++)
        ds_hold_prefetch(p->c.hold, p->refs[k].slot, site, &p->refs[k].guess[site]);
}

static int take_rows(struct ds_probe *p, struct probe_rows *r, const struct ds_launch *launch,
                     struct ds_error *err)
{
    struct ds_trial_data *t = &p->t;
    if (t->n_digests + r->n > p->cap.digests &&
        ds_grow(&t->digests, &p->cap.digests, t->n_digests + r->n, sizeof *t->digests, "digests",
                err))
        return -1;
    uint64_t *digests = t->digests + t->n_digests;
    /* Nothing to compare with: every row is looked at for NaN, Inf and the largest value. */
    int alone = p->n_refs == 0 && p->watch;
    fetch_ahead(p, r->site, launch);
    digest_rows(p, r, digests, alone ? p->largest : NULL);
    if (find_launch(p, r->site, launch, err) || add_captures(p, r, err))
        return -1;
    t->n_digests += r->n;
    r->digests = digests;
    if (alone && probe_range(p, r, err))
        return -1;
    if (p->n_refs == 0 && p->c.dump == DS_DUMP_ALL && probe_dump_alone(p, r, err))
        return -1;
    if (p->n_refs == 0 && p->c.sample.n && probe_sample(p, r, err))
        return -1;
    if (p->c.kin && p->c.kin_on[r->site] && !r->far && probe_kin(p, r, err))
        return -1;
    return p->n_refs || p->filling >= 0 ? probe_compare(p, r, err) : 0;
}

/* Why the rows given for a site cannot be taken. */
static int refuse(const struct ds_probe *p, const struct probe_rows *r, struct ds_error *err)
{
    const struct ds_site *s = &p->c.sites[r->site];
    if (r->width != s->width && s->width != 0)
        return ds_fail(err, "probe: %s has %u elements a row, not the %u of its site", s->stage,
                       r->width, s->width);
    return ds_fail(err, "probe: %s: rows of %zu bytes lie only %zu bytes apart", s->stage,
                   r->row_bytes, r->stride);
}

static int check_only(const struct ds_probe *p, uint32_t site, const uint32_t *only, uint32_t n,
                      struct ds_error *err)
{
    for (uint32_t i = 0; i < n; i++)
        if (only[i] >= p->call_rows || (i && only[i] <= only[i - 1]))
            return ds_fail(
                err, "probe: %s: row number %u is out of order, or not among the call's %u rows",
                p->c.sites[site].stage, only[i], p->call_rows);
    return 0;
}

static int take_site(struct ds_probe *p, uint32_t site, const struct ds_launch *launch, void *data,
                     size_t stride, uint32_t width, const uint32_t *only, uint32_t n_only,
                     struct ds_probe_far *far, struct ds_error *err)
{
    const struct probe_site *s = &p->site[site];
    struct probe_rows r = {
        .site = site,
        .data = data,
        .stride = stride,
        .row_bytes = (size_t)width * s->element_size,
        .width = width,
        .only = only,
        .n = only ? n_only : p->call_rows,
        .far = far,
    };
    if ((width != s->width && s->width != 0) || (stride < r.row_bytes && r.n > 1))
        return refuse(p, &r, err);
    if (only && check_only(p, site, only, n_only, err))
        return -1;
    if (!r.n)
        return 0;
    if (!far)
        return take_rows(p, &r, launch, err);
    return probe_far_begin(p, &r, err) || take_rows(p, &r, launch, err) ? -1
                                                                        : probe_far_end(p, err);
}

static inline int show(struct ds_probe *p, uint32_t site, const struct ds_launch *launch,
                       void *data, size_t stride_bytes, uint32_t width, const uint32_t *only,
                       uint32_t n_only, struct ds_probe_far *far, struct ds_error *err)
{
    if (p->state != PROBE_CALL || p->broken)
        return ds_fail(err, "probe: a site outside a call, or after a failure");
    if (site >= p->n_sites)
        return ds_fail(err, "probe: site %u is not among the %u", site, p->n_sites);
    if (!p->site[site].on)
        return 0;
    uint64_t start = ds_ticks_now(&p->clock);
    if (p->n_live)
        probe_release(p, site);
    int rc = take_site(p, site, launch, data, stride_bytes, width, only, n_only, far, err);
    p->broken = rc != 0;
    p->call_ticks += ds_ticks_now(&p->clock) - start;
    return rc;
}

int ds_probe_site(struct ds_probe *p, uint32_t site, const struct ds_launch *launch, void *data,
                  size_t stride_bytes, uint32_t width, const uint32_t *only, uint32_t n_only,
                  struct ds_error *err)
{
    return show(p, site, launch, data, stride_bytes, width, only, n_only, NULL, err);
}

int ds_probe_site_far(struct ds_probe *p, uint32_t site, const struct ds_launch *launch, void *data,
                      size_t stride_bytes, uint32_t width, const uint32_t *only, uint32_t n_only,
                      struct ds_probe_far *far, struct ds_error *err)
{
    far->written = 0;
    return show(p, site, launch, data, stride_bytes, width, only, n_only, far, err);
}

int ds_probe_wants(const struct ds_probe *p, uint32_t site)
{
    return site < p->n_sites && p->site[site].on;
}
