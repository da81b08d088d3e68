/* sweep_setup.c: what a sweep can know and share before its first trial. Runs none. */
#include "engine/sweep_internal.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "engine/forward.h"
#include "engine/site_map.h"
#include "kernels/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int sweep_setup_arms(struct sweep_state *st, struct ds_error *err)
{
    const struct ds_header *h = st->s->header;
    size_t n = h->n_arms;
    st->settings = ds_calloc(n, sizeof *st->settings, "arms", err);
    st->refs = ds_calloc(n, sizeof *st->refs, "arms", err);
    st->n_refs = ds_calloc(n, sizeof *st->n_refs, "arms", err);
    st->is_ref = ds_calloc(n, 1, "arms", err);
    st->rehearsed = ds_calloc(n, 1, "arms", err);
    st->failed = ds_calloc(n, 1, "arms", err);
    st->seen = ds_calloc(n, sizeof *st->seen, "arms", err);
    if (!st->seen || !st->settings || !st->refs || !st->n_refs || !st->is_ref || !st->rehearsed ||
        !st->failed)
        return -1;
    if (h->n_factors != DS_FACTOR_COUNT)
        return ds_fail(err, "the plan has %zu factors; this version knows %d", h->n_factors,
                       DS_FACTOR_COUNT);
    for (uint32_t a = 0; a < n; a++) {
        if (ds_setting_parse(h->arms[a].values, &st->settings[a], err) != 0)
            return ds_prefix(err, "arm %u", a);
        for (uint32_t f = 0; f < DS_FACTOR_COUNT; f++) {
            int64_t ref = ds_arm_reference(h, a, f);
            if (ref < 0)
                continue;
            st->refs[a][st->n_refs[a]++] = (uint32_t)ref;
            st->is_ref[ref] = 1;
        }
        /* What nobody else can heal: its repeats, each to the first. */
        if (st->s->options.heal && st->n_refs[a] == 0 && st->s->options.repeats > 1)
            st->is_ref[a] = 1;
    }
    /* Sizes of what its own repeats change are wanted of the base arm at least. */
    if (st->s->options.repeats > 1)
        st->is_ref[0] = 1;
    return 0;
}

/* Which sites are digested. */
static int setup_sites(struct sweep_state *st, struct ds_error *err)
{
    const struct ds_header *h = st->s->header;
    if (!st->s->options.resid_only)
        return 0;
    st->site_on = ds_calloc(h->n_sites, 1, "sites", err);
    if (!st->site_on)
        return -1;
    for (size_t i = 0; i < h->n_sites; i++)
        st->site_on[i] =
            strcmp(h->sites[i].stage, "resid_ffn") == 0 || h->sites[i].layer == h->n_layers;
    return 0;
}

/* Padding rows that an arm records: see trial_batch.c. */
static uint32_t subject_pads(const struct ds_sweep *s, const struct ds_setting *a)
{
    int64_t wide = a->padding ? (int64_t)s->requests[0].n_prompt + a->padding : 0;
    for (int32_t i = 1;
         a->padding && a->neighbours == DS_NEIGHBOURS_VARIED && i < a->batch && i < s->n_requests;
         i++)
        wide = s->requests[i].n_prompt > wide ? s->requests[i].n_prompt : wide;
    return wide ? (uint32_t)(wide - s->requests[0].n_prompt) : 0;
}

int sweep_setup_format(struct sweep_state *st, int dtype, struct ds_error *err)
{
    const struct ds_sweep *s = st->s;
    struct format *f = &st->format[dtype];
    if (f->ready)
        return 0;
    const uint32_t n_sites = (uint32_t)s->header->n_sites;
    f->sites = ds_site_stored_as(s->header->sites, n_sites, dtype, s->options.f32_at, err);
    if (!f->sites)
        return -1;
    uint32_t *arms = ds_calloc(s->header->n_arms, sizeof *arms, "held arms", err), n_arms = 0;
    uint32_t *rows = ds_calloc(n_sites, sizeof *rows, "held rows", err);
    uint32_t pads = 0;
    int rc = arms && rows ? 0 : -1;
    for (uint32_t a = 0; a < s->header->n_arms && rc == 0; a++)
        if (st->is_ref[a] && st->settings[a].dtype == dtype) {
            arms[n_arms++] = a;
            uint32_t own = subject_pads(s, &st->settings[a]);
            pads = own > pads ? own : pads;
        }
    for (uint32_t i = 0; i < n_sites && rc == 0; i++) {
        int few = strcmp(f->sites[i].stage, "logits") == 0 ||
                  strcmp(f->sites[i].stage, "token") == 0 ||
                  strcmp(f->sites[i].stage, "logits_processed") == 0;
        int off = st->site_on && !st->site_on[i];
        uint32_t prompt = (uint32_t)s->requests[0].n_prompt;
        rows[i] = off ? 0
                      : (uint32_t)s->options.steps +
                            (few ? (s->options.all_logits ? prompt : 1u) : prompt + pads);
    }
    if (rc == 0 && n_arms > 0) {
        struct ds_hold_config hc = {.sites = f->sites,
                                    .n_sites = n_sites,
                                    .site_rows = rows,
                                    .arms = arms,
                                    .n_arms = n_arms,
                                    .budget = s->options.hold};
        rc = ds_hold_new(&hc, &f->hold, err);
        if (rc == 0 && ds_hold_spilled(f->hold) > 0 && s->note) {
            char text[160];
            snprintf(text, sizeof text,
                     "held reference rows exceed --hold: %.1f MB go to a temporary file",
                     (double)ds_hold_spilled(f->hold) / 1e6);
            s->note(s->ctx, text);
        }
    }
    free(arms);
    free(rows);
    f->ready = rc == 0;
    return rc;
}

/* Memory in which a worker says what it is doing: the one thing that is left when it dies. */
static int setup_place(struct sweep_state *st, struct ds_error *err)
{
    void *shared =
        mmap(NULL, sizeof *st->place, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return ds_fail(err, "out of memory for a shared page");
    st->place = shared;
    return 0;
}

/* The matmul kernel whose repacked weights every worker can share: the only way in which kernels of the arms
 * repack, else NULL. With two of them the parent's copy would lie beside a worker's, a third copy
 * of the weights; what a plugin repacks is left to the workers, too: it may crash. */
static const struct ds_kernel *shared_packer(const struct sweep_state *st)
{
    const struct ds_kernel *found = NULL;
    for (size_t a = 0; a < st->s->header->n_arms; a++) {
        const struct ds_kernel *k;
        for (int32_t i = 0; (k = ds_kernel_set_used(&st->settings[a].kernels, DS_OP_MATMUL, i));
             i++) {
            if (k->prepare && found && found->prepare != k->prepare)
                return NULL;
            if (k->prepare)
                found = k;
        }
    }
    return found && !ds_plugin_of(found) ? found : NULL;
}

/* Rope tables and repacked weights, before the first fork, so that every worker shares them. */
static int setup_model(struct sweep_state *st, struct ds_error *err)
{
    const struct ds_sweep *s = st->s;
    int64_t positions;
    if (ds_sweep_fits(s, &positions, err) != 0 ||
        ds_model_rope_table(s->model, positions, err) != 0)
        return -1;
    ds_model_seal(s->model);
    const struct ds_kernel *packer = shared_packer(st);
    int threads = st->settings[0].threads > 2 ? st->settings[0].threads : 2;
    return packer ? ds_model_prepare(s->model, packer, threads, err) : 0;
}

int sweep_setup(struct sweep_state *st, struct ds_error *err)
{
    return setup_sites(st, err) != 0 || setup_place(st, err) != 0 || setup_model(st, err) != 0 ? -1
                                                                                               : 0;
}

void sweep_teardown(struct sweep_state *st)
{
    ds_worker_stop(&st->worker);
    ds_load_stop(&st->load);
    for (int d = 0; d < DS_DTYPE_COUNT; d++) {
        ds_hold_free(st->format[d].hold);
        free(st->format[d].sites);
    }
    if (st->place)
        munmap(st->place, sizeof *st->place);
    free(st->settings);
    free(st->refs);
    free(st->n_refs);
    free(st->is_ref);
    free(st->rehearsed);
    free(st->failed);
    free(st->seen);
    free(st->site_on);
    free(st->forced);
}
