/* driftscope_probe.h: what an instrumented forward pass calls. Any engine can use it: it knows
 * sites, rows and bytes, not models or kernels.
 *
 * Life of a probe: new (with the site list) -> for every trial: begin_trial, for every call:
 * begin_call, for every site in execution order: site, end_call; then end_trial, which hands over
 * everything seen as a ds_trial_data.
 *
 * At each site the recorded rows are digested at once (XXH3-64, seed 0, over the row's storage
 * bytes), spread over the team. If reference arms are held, each row is compared with theirs by
 * digest; a row that differs gets statistics against the held bytes, a non-finite watch, and maybe
 * a dump of both sides and of the kernel's input rows. */
#ifndef DRIFTSCOPE_PROBE_H
#define DRIFTSCOPE_PROBE_H

#include "base/error.h"
#include "base/team.h"
#include "dumps/record.h"

#include <stddef.h>
#include <stdint.h>

/* XXH3-64, seed 0, over n bytes; equal to XXH3_64bits() and to `xxhsum -H3`. Chooses the widest
 * code the CPU has. */
uint64_t ds_digest(const void *bytes, size_t n);
/* The tensor or run digest of DESIGN section 5: XXH3-64 over n digests as little-endian bytes. */
uint64_t ds_digest_of(const uint64_t *digests, size_t n);

/* ---- held reference rows --------------------------------------------------------------------- */

/* Bytes of every recorded row of chosen arms, in memory shared with forked workers. The first
 * `budget` bytes lie in anonymous memory, the rest in an unlinked, preallocated file in
 * `spill_dir`. Created by the parent before it forks. */
struct ds_hold;

struct ds_hold_config {
    const struct ds_site *sites; /* copied */
    uint32_t n_sites;
    const uint32_t *site_rows; /* [n_sites] most rows an arm records at each site */
    const uint32_t *arms;      /* the arms whose rows are held (copied) */
    uint32_t n_arms;
    uint64_t budget;       /* bytes of memory */
    const char *spill_dir; /* NULL: $TMPDIR or /tmp */
};
int ds_hold_new(const struct ds_hold_config *config, struct ds_hold **out, struct ds_error *err);
void ds_hold_free(struct ds_hold *h);
/* Bytes spilled to the file (0 = all in memory). */
uint64_t ds_hold_spilled(const struct ds_hold *h);
/* Whether a complete trial of that arm is held. */
int ds_hold_has(const struct ds_hold *h, uint32_t arm);

/* ---- the probe ------------------------------------------------------------------------------- */

enum ds_dump { DS_DUMP_NONE = 0, DS_DUMP_FIRST, DS_DUMP_ORIGINS, DS_DUMP_ALL };

/* Rows of request 0 that are dumped from a trial without references, at the first `outer` positions where a
 * site is in the first layer, before or after the layers, at the first `inner` ones elsewhere. */
enum { DS_SAMPLE_ROWS = 4 };
struct ds_sample {
    int32_t position[DS_SAMPLE_ROWS], n_layers;
    uint32_t n, outer, inner;
};

/* Which sites are looked at. */
struct ds_probe_config {
    const struct ds_site *sites; /* borrowed */
    uint32_t n_sites;
    const struct ds_edge *edges; /* borrowed; tells inputs of a site: labels and dumps need them */
    uint32_t n_edges;
    const uint8_t *site_on; /* [n_sites] 0 = not digested; NULL = all on */
    enum ds_dump dump;
    uint32_t dump_rows; /* at most so many rows dumped a site and trial */
    struct ds_sample sample;
    struct ds_hold *hold; /* NULL: digests only */
    struct ds_team *team; /* borrowed; NULL = caller's thread alone */
    int no_watch; /* 1: rows without a reference are not searched for NaN and Inf: digests alone */
    /* Which rows of a trial were made of equal inputs, whatever their requests: those with the same number, other than 0. At the
     * sites of kin_on [n_sites] the first one whose bits are not those of the first of all becomes a drift against the
     * trial's own arm: one a number and site. Not of far rows. Of a hold only rows with a number are kept. NULL: none. */
    uint64_t (*kin)(void *ctx, const struct ds_row *row);
    void *kin_ctx;
    const uint8_t *kin_on;
};

struct ds_probe;
int ds_probe_new(const struct ds_probe_config *config, struct ds_probe **out, struct ds_error *err);
void ds_probe_free(struct ds_probe *p);

/* Starts a trial. refs: arms to compare with (those not held are passed over). In a heal trial
 * (info->pass) it is one, info->healed_to, which must be held: every recorded row that differs from
 * its row is overwritten with it, once its digest, its sizes and its dump are taken; a row that has no
 * counterpart is left alone. If `info->arm`
 * itself is to be held and has no complete trial yet, this trial's rows are stored. info is copied;
 * end_trial completes it (run digest, probe times). */
int ds_probe_begin_trial(struct ds_probe *p, const struct ds_trial *info, const uint32_t *refs,
                         uint32_t n_refs, struct ds_error *err);

/* Starts a call. `rows` are the recorded rows only (request, position, occurrence, kind, slot, step
 * filled; `call` is set here), ascending in slot. m = 0: a call that computes nothing but shows rows of
 * an earlier pass (a prefix cache hit); slot then counts them. */
int ds_probe_begin_call(struct ds_probe *p, uint32_t phase, uint32_t m, uint32_t sequences,
                        const struct ds_row *rows, uint32_t n_rows, struct ds_error *err);

/* One site's output, complete. data: row s of the call at data + s * stride_bytes (s =
 * ds_row.slot), each of row_bytes = width * element size. `only`, if not NULL, lists n_only
 * recorded-row numbers of this call (ascending) that exist at this site, whose data lies at data +
 * i * stride_bytes for i = 0.. instead (logits). The launch is stored once. Data is writable: a heal
 * trial overwrites rows that drift. */
int ds_probe_site(struct ds_probe *p, uint32_t site, const struct ds_launch *launch, void *data,
                  size_t stride_bytes, uint32_t width, const uint32_t *only, uint32_t n_only,
                  struct ds_error *err);

/* Whether a site is looked at. */
int ds_probe_wants(const struct ds_probe *p, uint32_t site);

/* Rows that this process cannot read: on a device. What was computed of them there, and how to have their
 * bytes, which is asked for rows that differ, that hold a NaN or an Inf, that are dumped or kept as a
 * reference's; of no other row. */
struct ds_probe_far {
    const uint64_t *digests; /* [rows of the site] as ds_digest */
    /* [rows of the site] bits of the largest magnitude: the sign dropped, so that a NaN or an
     * Inf is above every number; 0 for whole numbers. */
    const uint32_t *largest;
    int (*read)(void *arg, const void *at, void *out, size_t bytes, struct ds_error *err);
    int (*write)(void *arg, void *at, const void *bytes, size_t n, struct ds_error *err);
    void *arg;
    uint32_t written; /* out: rows that were overwritten (healing) */
};
/* As ds_probe_site, but row i of the site, of all recorded rows or of `only`, lies at data + i *
 * stride_bytes, which only far->read and far->write understand. */
int ds_probe_site_far(struct ds_probe *p, uint32_t site, const struct ds_launch *launch, void *data,
                      size_t stride_bytes, uint32_t width, const uint32_t *only, uint32_t n_only,
                      struct ds_probe_far *far, struct ds_error *err);

/* The token choice for one logits row (f32). Fills top-8, margin, ties, digest. scores: what the token is
 * the largest of, where it is drawn and not the largest logit: then they are the top 8, and margin and ties
 * are theirs; else NULL. forced: token fed next or -1. */
int ds_probe_step(struct ds_probe *p, int32_t request, int32_t step, const float *logits,
                  const float *scores, uint32_t vocab, int32_t token, int32_t forced,
                  struct ds_error *err);

/* The same without a probe (the self-check's bare pass): fills *out. */
void ds_probe_step_fill(int32_t request, int32_t step, const float *logits, const float *scores,
                        uint32_t vocab, int32_t token, int32_t forced, struct ds_step *out);

int ds_probe_end_call(struct ds_probe *p, struct ds_error *err);

/* Hands over the trial (the caller frees it with ds_trial_data_free) and, if it is to be held,
 * marks it complete. */
int ds_probe_end_trial(struct ds_probe *p, struct ds_trial_data *out, struct ds_error *err);
/* Whether the running trial is a heal trial. */
int ds_probe_heals(const struct ds_probe *p);
/* Sites ([n_sites], borrowed) that the next trials neither compare nor heal, because a row of this
 * arm there is another thing than the reference's (a share of two ranks and one of four); NULL: none. */
void ds_probe_leave_out(struct ds_probe *p, const uint8_t *sites);
/* Throws the trial away (a failed or interrupted pass). */
void ds_probe_abort_trial(struct ds_probe *p);

/* CPU seconds spent in ds_probe_* since new, all threads. Measured inside without a clock call per
 * row. */
double ds_probe_cpu_seconds(const struct ds_probe *p);

#endif
