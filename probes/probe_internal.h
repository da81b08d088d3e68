/* probe_internal.h: the probe's state, shared by probe.c (life, trials, calls), site.c (digests),
 * compare.c (references) and dump.c (bytes to keep). Inside probes/ only. */
#ifndef DS_PROBE_INTERNAL_H
#define DS_PROBE_INTERNAL_H

#include "base/dtype.h"
#include "probes/driftscope_probe.h"
#include "probes/hold.h"
#include "probes/scan.h"
#include "probes/ticks.h"

enum { NO_LAUNCH = UINT32_MAX, NO_SITE = UINT32_MAX };

/* An input of a site, seen through the sites that are not looked at. */
struct probe_input {
    uint32_t from, kind; /* enum ds_edge_kind */
};

/* What every visit of a site reads. Between two visits of it lies a whole pass, whose weights have
 * driven everything out of the caches; so these are small, and four share a cache line. */
struct probe_site {
    uint32_t width;  /* elements a row; 0 = varies */
    uint32_t launch; /* of its last capture in this trial, or NO_LAUNCH */
    uint8_t on, held, dtype, element_size;
    uint8_t has_readers, causal_source;
};
_Static_assert(sizeof(struct probe_site) == 16, "four sites a cache line");

/* What only a drift asks for. */
struct probe_links {
    uint32_t dumped; /* rows dumped in this trial */
    uint8_t leads;   /* healing: 1 the first of its stage that drifts in this trial, 2 another is */
    uint32_t extra;  /* of those, beyond the limit because they are so much worse */
    double worst;    /* the largest relative size of a dumped one, squared */
    uint32_t range;  /* 1 + its number in the trial's ranges; 0 none */
    uint32_t first_input, n_inputs;
    uint32_t last_reader; /* the last site that has it as an input */
    uint32_t terms;       /* added for one element; of attention and softmax without the keys */
    uint32_t copies;      /* the site before whose rows it copies, or NO_SITE */
};

/* A reference arm of the running trial, and where this trial drifted from it. */
struct probe_ref {
    uint32_t arm;
    long slot;
    uint32_t *guess;       /* [sites] entry expected next */
    uint32_t *call_drifts; /* [sites] rows that drifted in this call */
    uint64_t *bits;        /* [sites][words] which rows of this call did */
    size_t bits_cap;
    int32_t *first_drift; /* [requests][sites] lowest position that drifted in this trial; INT32_MAX
                             none */
    size_t first_drift_cap;
    uint32_t *mask; /* [2 phases][sites] 1 + its number in the trial's masks; NULL before any */
};

/* A drifting row of this trial whose bytes a later dump may need as an input. */
struct kept_row {
    uint32_t row; /* in the trial */
    uint64_t digest;
    void *bytes;
};

struct kept_site {
    struct kept_row *rows;
    size_t n, cap;
};

/* The first row of a family of equal inputs at a site. */
struct kin_row {
    uint64_t family, digest;
    size_t at; /* in bytes */
    uint32_t site;
    int sized; /* another one differed from it, and is told */
};

struct probe_kin {
    uint64_t *of; /* [call_rows] families of this call's rows; 0 none */
    size_t cap_of;
    struct kin_row *list;
    size_t n, cap;
    uint32_t *index; /* open addressing: number in list + 1 */
    size_t slots;
    char *bytes;
    size_t n_bytes, cap_bytes;
};

enum probe_state { PROBE_IDLE = 0, PROBE_TRIAL, PROBE_CALL };

/* Members are in the order in which they are needed: the first two cache lines and the array
 * pointers in `t` are all that a site without a drift touches. */
struct ds_probe {
    const struct ds_scan_isa *isa;
    struct probe_site *site; /* [sites] */
    enum probe_state state;
    int broken; /* a step of this trial failed: only abort is left */
    uint32_t n_sites;
    uint32_t call_first, call_rows; /* of this call, in t.rows */
    int watch;                      /* rows without a reference are searched for NaN and Inf */
    int heal;                       /* a row that drifts is overwritten with the reference's */
    size_t n_refs;                  /* in use, refs_cap with memory */
    size_t n_live;                  /* sites with kept rows that may be let go within the call */
    uint64_t call_ticks;            /* in probes, this call */

    struct ds_ticks clock;
    long filling; /* slot of the hold that this trial fills, or -1 */
    int team_threads;
    uint32_t *largest; /* [call_rows] magnitude bits of the rows of the site at hand */
    struct {
        size_t captures, digests, calls, rows, launches, drifts, nonfinites, steps, blobs, ranges,
            masks, mask_words;
    } cap;

    struct ds_trial_data t;
    struct ds_probe_config c;
    const uint8_t *left_out;   /* [sites] not compared; NULL: none */
    struct probe_links *links; /* [sites] */
    struct probe_input *inputs;
    size_t last_captures, last_digests; /* of the trial before: the next is mostly as long */

    /* this call */
    size_t words; /* of a bit set over the call's rows */
    size_t largest_cap;
    uint32_t *row_request; /* [call_rows] index into requests */
    size_t row_request_cap;
    int32_t *requests; /* met in this trial */
    size_t n_requests, requests_cap;

    /* references */
    struct probe_ref *refs;
    size_t refs_cap;

    /* dumps */
    uint32_t first_site;    /* where the trial drifted first, or NO_SITE */
    struct kept_site *kept; /* [sites] */
    uint32_t *blob_index;   /* open addressing by digest: blob number + 1 */
    size_t blob_slots;
    uint32_t *live;
    size_t live_cap;

    struct probe_kin kin;

    /* the row of a device that is at hand, or all of its site */
    struct {
        char *bytes;
        size_t cap;
        int all, failed;
        uint32_t row; /* 1 + its number; 0 none */
        struct ds_error err;
    } far;

    /* time */
    struct ds_usage call_usage;
    double ticks, phase_ticks[2]; /* all; this trial's by phase */
    uint32_t phase;
    uint64_t *member_ticks; /* one cache line per team member */
};

/* What a site function works on: some rows of the call at one site. */
struct probe_rows {
    uint32_t site;
    char *data;
    size_t stride, row_bytes;
    uint32_t width;
    const uint32_t *only; /* recorded-row numbers, or NULL: all */
    uint32_t n;
    const uint64_t *digests;
    struct ds_probe_far *far; /* NULL: data can be read */
};

/* far.c. Begin and end of a site of far rows; a failed read shows at the end. */
int probe_far_begin(struct ds_probe *p, const struct probe_rows *r, struct ds_error *err);
int probe_far_end(struct ds_probe *p, struct ds_error *err);
/* Row i's bytes, until the next row is asked for. */
char *probe_far_row(struct ds_probe *p, const struct probe_rows *r, uint32_t i);
void probe_far_write(struct ds_probe *p, const struct probe_rows *r, uint32_t i, const void *bytes);

/* The number within the call of row i of the set, and its bytes. */
static inline uint32_t probe_row_number(const struct probe_rows *r, uint32_t i)
{
    return r->only ? r->only[i] : i;
}

static inline char *probe_row_bytes(struct ds_probe *p, const struct probe_rows *r, uint32_t i)
{
    if (r->far)
        return probe_far_row(p, r, i);
    size_t at = r->only ? i : (size_t)p->t.rows[p->call_first + i].slot;
    return r->data + at * r->stride;
}

/* Where a reference holds the rows that those of a site are compared with: there, or, where it makes no
 * such copy, at the site that is copied. */
static inline uint32_t probe_held_at(const struct ds_probe *p, const struct probe_ref *ref,
                                     uint32_t site)
{
    uint32_t n;
    for (;; site = p->links[site].copies) {
        ds_hold_rows(p->c.hold, ref->slot, site, &n);
        if (n || p->links[site].copies == NO_SITE)
            return site;
    }
}

/* probe.c: adds the time since `start` to the account. */
void probe_charge(struct ds_probe *p, uint64_t start);

/* graph.c: inputs of every site that is looked at, through those that are not. */
int probe_graph(struct ds_probe *p, struct ds_error *err);

/* compare.c */
int probe_refs_begin(struct ds_probe *p, const uint32_t *refs, uint32_t n, struct ds_error *err);
int probe_refs_call(struct ds_probe *p, struct ds_error *err);
int probe_compare(struct ds_probe *p, const struct probe_rows *r, struct ds_error *err);
int probe_nonfinite(struct ds_probe *p, const struct probe_rows *r, uint32_t i,
                    struct ds_error *err);
void probe_refs_free(struct ds_probe *p);
int probe_drifted(const struct ds_probe *p, const struct probe_ref *ref, uint32_t site,
                  uint32_t row);

/* Magnitude bits of a NaN or an Inf are these or more. */
static inline uint32_t probe_infinity(int dtype)
{
    return dtype == DS_F32 ? 0x7f800000u : dtype == DS_BF16 ? 0x7f80u : 0x7c00u;
}

/* range.c: the largest value of a site, and which rows hold a NaN or an Inf: p->largest is filled. */
int probe_range(struct ds_probe *p, const struct probe_rows *r, struct ds_error *err);

/* mask.c: a row that differs from the held bytes, of which d are the sizes. */
int probe_mask_row(struct ds_probe *p, struct probe_ref *ref, const struct probe_rows *r,
                   uint32_t i, const void *held, const struct ds_drift *d, struct ds_error *err);
/* At the end of a trial: leaves out planes that are empty. */
void probe_masks_finish(struct ds_probe *p);

/* kin.c: families of a call's rows, and these at a site. */
int probe_kin_call(struct ds_probe *p, struct ds_error *err);
int probe_kin(struct ds_probe *p, const struct probe_rows *r, struct ds_error *err);
void probe_kin_forget(struct ds_probe *p);
void probe_kin_free(struct ds_probe *p);

/* sample.c: the chosen rows of a set. */
int probe_sample(struct ds_probe *p, const struct probe_rows *r, struct ds_error *err);

/* dump.c */
/* Adds a row's bytes to the trial's, each content once. */
int probe_add_blob(struct ds_probe *p, uint32_t site, uint64_t digest, const void *bytes,
                   struct ds_error *err);
int probe_dump_row(struct ds_probe *p, const struct probe_ref *ref, const struct probe_rows *r,
                   uint32_t i, uint32_t held, struct ds_error *err);
/* With dump=all, rows that have no reference: a record is then told apart from another one not only by
 * digests. */
int probe_dump_alone(struct ds_probe *p, const struct probe_rows *r, struct ds_error *err);
int probe_keep_row(struct ds_probe *p, const struct probe_rows *r, uint32_t i,
                   struct ds_error *err);
/* Lets go of kept rows that no site from `site` on can need in this call. */
void probe_release(struct ds_probe *p, uint32_t site);
void probe_release_all(struct ds_probe *p);

#endif
