/* record.h: what a record holds, as plain structs, and the functions that write and read it as
 * HDF5.
 *
 * The structs are the contract between the engine (which fills them), the file (record_write.c,
 * record_read.c; layout in README.md) and the pure functions on top (verdict.h, stats.h). dumps/
 * knows no model, no kernel and no BLAS: stages, ops and variants are names. */
#ifndef DS_RECORD_H
#define DS_RECORD_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define DS_RECORD_FORMAT  "driftscope.record"
#define DS_RECORD_VERSION 3

/* ---- the header: everything known before the first trial ------------------------------------- */

struct ds_text { /* one name = value line of environment or hyperparameters */
    char *name, *value;
};

struct ds_record_weight {
    char name[64];
    char dtype[8];
    int64_t rows, cols;
    uint64_t digest; /* of the f32 numbers, as dequantised */
    uint64_t loaded; /* of the bytes as they lie in the file; 0 = not from a file */
};

struct ds_prompt { /* request 0 is the subject */
    int32_t request;
    char *text; /* "" when given as ids */
    int32_t *tokens;
    uint32_t n_tokens;
};

/* A site. Its index in the array is its position in execution order. */
struct ds_site {
    int32_t layer; /* -1: before the layers; n_layers: after them */
    char stage[24];
    char part[12]; /* "" mostly */
    char op[16];
    char dtype[8];  /* storage format of its rows */
    uint32_t width; /* elements per row; 0 = varies */
};

enum ds_edge_kind {
    DS_EDGE_ROW = 0, /* output row r reads input row r */
    DS_EDGE_CAUSAL,  /* ... input rows of the same request up to r's position */
    DS_EDGE_ALL      /* ... every row of the call */
};

struct ds_edge {
    uint32_t from, to; /* site indices */
    uint32_t kind;
};

/* One setting of all factors; value j belongs to header.factors[j]. Arm 0 is the base arm. */
struct ds_arm {
    char **values; /* [n_factors] */
};

struct ds_header {
    char tool_version[64], build[128]; /* e.g. "0.1.0", git describe */
    char start[32];                    /* RFC 3339, UTC */
    char *command;
    char model_name[256], model_arch[32];
    uint64_t model_digest;
    int32_t n_layers, n_heads, n_kv_heads, head_dim;
    struct ds_text *environment;
    size_t n_environment;
    struct ds_text *hparams;
    size_t n_hparams;
    struct ds_text *options; /* of the run, beside arms and prompts: what a resume must do alike */
    size_t n_options;
    struct ds_record_weight *weights;
    size_t n_weights;
    struct ds_prompt *prompts;
    size_t n_prompts;
    struct ds_site *sites;
    size_t n_sites;
    struct ds_edge *edges;
    size_t n_edges;
    char **factors;
    size_t n_factors; /* "repeat" is not among them: it is trial.repeat */
    struct ds_arm *arms;
    size_t n_arms;
    uint32_t repeats; /* planned trials per arm */
};
/* Frees everything inside; not h itself. */
void ds_header_free(struct ds_header *h);
/* Checks names, layers and edges, so that later code need not; -1 says which is wrong. */
int ds_header_check(const struct ds_header *h, struct ds_error *err);
/* The format in which an arm stores the rows of a site: what the site says is the base arm's, and
 * the factor dtype changes it, except where rows are not activations (whole numbers, logits, values
 * before rounding). */
const char *ds_site_dtype(const struct ds_header *h, uint32_t site, uint32_t arm);
/* Whether the rows of `to` are meant to be those of its input `from` (an edge of that kind), bit for bit:
 * a copy from one device to another. Where a run makes no such copy, `from` stands for it. */
int ds_site_copies(const struct ds_site *from, const struct ds_site *to, uint32_t kind);
/* Whether the site is one of those that the engine recomputes beside a kernel and nobody reads:
 * attn_scores, attn_probs. Its width is the sweep's, not the model's. */
int ds_site_recomputed(const struct ds_site *s);

/* ---- one trial ------------------------------------------------------------------------------- */

/* HEAL: a trial in which every recorded row that differs from the row of arm `healed_to` is
 * overwritten with it at once, so that every kernel is judged on equal inputs. Its digests and its
 * drifts are those before healing: a drift is an error that this site added. Its steps are chosen from
 * healed logits.
 * BARE: the probe self-check, a pass without probes: it has steps (with logits digests) but no
 * captures; verdicts skip it except to say whether probes disturb the answer.
 * FAILED: a trial that was lost: it has one failure and nothing else. */
enum { DS_PASS_NATURAL = 0, DS_PASS_HEAL = 1, DS_PASS_BARE = 2, DS_PASS_FAILED = 3 };
enum { DS_PHASE_PREFILL = 0, DS_PHASE_DECODE = 1 };
enum { DS_ROW_PROMPT = 0, DS_ROW_GENERATED = 1, DS_ROW_PAD = 2 };
enum { DS_UNKNOWN = -1 }; /* a count that is not known */

struct ds_trial {
    uint32_t arm, repeat, pass;
    /* Heal pass: the arm whose held rows took the place of drifting ones (the arm itself: where
     * its repeats part); `repeat` counts the trials of such a pair. 0 in other passes. */
    uint32_t healed_to;
    double start_s;                                 /* since the record's start */
    double wall_s, cpu_s;                           /* whole trial */
    double prefill_cpu_s, decode_cpu_s;             /* CPU time of the passes, probes included */
    double probe_prefill_cpu_s, probe_decode_cpu_s; /* of that, in probes */
    /* Of a serving run, by the clock: all steps; from a request's arrival to its first token, in the median and
     * at most. 0: not measured. */
    double steps_s, first_median_s, first_most_s;
    int32_t threads_asked, threads_max, threads_seen, blas_threads; /* DS_UNKNOWN where not known */
    int32_t worker; /* which worker process ran it */
    /* What that process had done before: trials with unlike histories are not alike in everything. */
    uint32_t earlier_trials, earlier_calls;
    char blas_core[24];   /* as the library reports it; "" = none open */
    char blas_config[96]; /* its version, build and thread layer, likewise */
    uint64_t run_digest;  /* DESIGN section 5, over the recorded rows */
};

struct ds_call {
    uint32_t index; /* in the trial, from 0 */
    uint32_t phase;
    /* Rows in the call, all requests, padding included; 0: none is computed, the rows are those
     * of an earlier pass (a prefix cache hit). */
    uint32_t m;
    uint32_t sequences;
    uint32_t first_row, rows; /* recorded rows of this call in ds_trial_data.rows */
};

/* A recorded row. Key: (request, position, occurrence). */
struct ds_row {
    uint32_t call;
    int32_t request, position, occurrence;
    uint32_t kind;
    int32_t slot; /* row index inside the call */
    int32_t step; /* 0 = prompt, then 1.. */
    /* Rows of its request in the call, padding and drafts included; 0: none was computed. */
    int32_t q_len;
    /* Slots that it may see, as it should be (what the kernels were told: site kv_len). */
    int32_t kv_len;
};

struct ds_launch {
    char op[16], variant[32];
    int32_t rows; /* rows this kernel was given: the head may see fewer than the call has; 0 =
                     unknown */
    int32_t tile_rows, tile_cols, tile_k, split, threads;
    char algo[32];
};

/* The rows of one site in one call, or some of them (logits): digests[first_digest .. + rows - 1]
 * belong to rows[first_row ..]. Captures are in execution order. A (call, site) may have several
 * captures with disjoint rows. */
struct ds_capture {
    uint32_t call, site, launch;
    uint32_t first_row, rows;
    uint32_t width; /* elements per row in this call */
    uint64_t first_digest;
};

enum {
    DS_DRIFT_VALUES_EQUAL = 1, /* bits differ, every value compares equal (-0 and +0) */
    DS_DRIFT_NAN_BITS = 2      /* both sides NaN with other bits somewhere, all else equal */
};

/* One drifting row against the held row of one reference arm. */
struct ds_drift {
    uint32_t site, row; /* row: index in ds_trial_data.rows */
    uint32_t ref_arm;
    uint32_t elements, first; /* how many elements differ in bits; index of the first */
    uint32_t flags;
    uint32_t nonfinite, ref_nonfinite; /* NaN and Inf elements on this and on the reference side */
    uint64_t max_ulp; /* in the site's dtype, over elements where neither side is NaN; UINT64_MAX
                         never */
    double max_abs;   /* over the same elements; may be +Inf */
    double diff_sq, ref_sq; /* sums of squares of difference and of reference over elements finite
                               on both sides */
    uint64_t digest, ref_digest;
};

struct ds_nonfinite { /* a row with NaN or Inf (watched where no reference row is equal) */
    uint32_t site, row;
    uint32_t nan, inf, first;
};

enum { DS_TOP = 8 };
struct ds_range { /* the largest value of a site, over the rows that were looked at (those that have
                     no reference): one entry a site at most */
    uint32_t site, row;
    float max_abs; /* finite */
};

/* Which elements of a site differ in any of the rows that drift there from one reference arm in one phase
 * of a trial: in a natural trial the rows whose inputs are all equal, in a heal trial all. `planes` bit sets
 * of `width` bits, each filled up to whole words: elements that differ, then (if there are any: 2 planes)
 * those of them that do by more than rounding may (ds_structure_slack). */
struct ds_mask {
    uint32_t site, ref_arm, phase;
    uint32_t rows;
    uint32_t width, planes;
    uint64_t first; /* in ds_trial_data.mask_words */
};

/* Words of one plane. */
static inline size_t ds_mask_words(uint32_t width)
{
    return ((size_t)width + 63) / 64;
}

struct ds_step { /* token choice after a logits row */
    int32_t request, step;
    int32_t token;        /* the argmax of what `logits` are the best of */
    int32_t forced;       /* what was fed next (teacher forcing), -1 = nothing */
    int32_t ids[DS_TOP];  /* best first; -1 past the vocabulary */
    float logits[DS_TOP]; /* where tokens are drawn: scores, logit plus noise */
    float margin;         /* logits[0] - logits[1] */
    int32_t ties;         /* how many ids share the maximum */
    uint64_t digest;      /* XXH3-64 over the whole logits row (f32) */
    /* Sum of exp(logit - logits[0]) over the whole row: exp(logits[i] - logits[0]) / exp_sum is the probability of
     * ids[i] at temperature 1. NaN: the row has a NaN or +Inf, or nothing above -Inf. */
    double exp_sum;
};

struct ds_packed {    /* a weight as a kernel packed it, at the end of the trial */
    char variant[32]; /* of matmul */
    uint32_t weight;  /* in header.weights */
    int32_t rank;     /* of tensor parallelism, -1 = the whole weight */
    uint64_t bytes, digest;
};

/* Where a trial was lost. */
enum {
    DS_FAILED_REFUSED = 0, /* a kernel, or the engine, gave an error */
    DS_FAILED_DIED = 1,    /* the process ended */
    DS_FAILED_LATE = 2
}; /* its time was over */
#define DS_NOWHERE UINT32_MAX
struct ds_failure {
    uint32_t how;
    uint32_t site; /* at which a kernel was at work; DS_NOWHERE: not known, or none was */
    char op[16], variant[32]; /* of that kernel, also when it was being prepared; "" = none */
    uint32_t phase, call, m;  /* of the call; call: its number in the trial */
    int32_t rows;             /* that the kernel was given; 0 = not known */
    int32_t first, last;      /* positions of the subject's rows in the call; last < first: none */
    char why[192];
};

struct ds_blob { /* dumped bytes of one row, found by digest */
    uint64_t digest;
    char dtype[8];
    uint32_t elements, bytes;
    void *data;
};

/* From what finds dumped bytes: they could not be asked for (no memory). What they are is not known, so no answer
 * may be made without them; damage, -1, is a finding about the record. */
enum { DS_BLOB_UNREAD = -2 };

/* All of one trial. Arrays are owned (ds_trial_data_free) unless a function says otherwise. */
struct ds_trial_data {
    struct ds_trial info;
    struct ds_call *calls;
    size_t n_calls;
    struct ds_row *rows;
    size_t n_rows;
    struct ds_launch *launches;
    size_t n_launches;
    struct ds_capture *captures;
    size_t n_captures;
    uint64_t *digests;
    size_t n_digests;
    struct ds_drift *drifts;
    size_t n_drifts;
    struct ds_nonfinite *nonfinites;
    size_t n_nonfinites;
    struct ds_step *steps;
    size_t n_steps;
    struct ds_packed *packed; /* none unless asked for */
    size_t n_packed;
    struct ds_blob *blobs;
    size_t n_blobs;
    size_t n_dumped; /* of a trial read from a record, which comes without blobs: how many it has */
    struct ds_failure *failures;
    size_t n_failures;
    struct ds_range *ranges;
    size_t n_ranges;
    struct ds_mask *masks;
    size_t n_masks;
    uint64_t *mask_words;
    size_t n_mask_words;
};
void ds_trial_data_free(struct ds_trial_data *t);

/* Checks every index against its array, so that later code need not; -1 says which is wrong. */
int ds_trial_data_check(const struct ds_header *h, const struct ds_trial_data *t,
                        struct ds_error *err);

/* Tensor and run digests (DESIGN section 5) of a trial: the run digest over its tensor digests in
 * execution order (by site, rows of all calls in ascending row key; padding rows are nobody's and left
 * out). */
int ds_trial_run_digest(const struct ds_header *h, const struct ds_trial_data *t, uint64_t *out,
                        struct ds_error *err);
/* Its tensor digests, by site; has[s] 0: the site has no recorded row. Room for n_sites of both is the caller's. */
int ds_trial_tensor_digests(const struct ds_header *h, const struct ds_trial_data *t,
                            uint64_t *tensor, uint8_t *has, struct ds_error *err);

/* ---- writing --------------------------------------------------------------------------------- */

struct ds_writer;

/* Creates the record under its final name with all objects and the header, and starts SWMR. An
 * existing file is an error unless `force`. On a file system where SWMR promises nothing the record
 * is written in the temporary folder and moved to `path` by close; *local then says so (may be
 * NULL). */
int ds_writer_create(const char *path, int force, const struct ds_header *h, struct ds_writer **out,
                     int *local, struct ds_error *err);
/* Appends one complete trial: payload, flush, trial row with checksum, flush. After a failure the
 * writer accepts nothing more and makes no further HDF5 call (the file stays readable up to the
 * last complete trial). */
int ds_writer_add(struct ds_writer *w, const struct ds_trial_data *t, struct ds_error *err);
/* Where the record is being written: `path`, or a file in the temporary folder. Valid until close.
 */
const char *ds_writer_path(const struct ds_writer *w);
/* Closes the file (or, after a failure, only frees memory). */
int ds_writer_close(struct ds_writer *w, struct ds_error *err);

/* ---- reading --------------------------------------------------------------------------------- */

struct ds_record;

/* Opens a finished, killed or growing record, as hostile input. Reads the header and the index of
 * complete trials. */
int ds_record_open(const char *path, struct ds_record **out, struct ds_error *err);
void ds_record_close(struct ds_record *r);
/* Reads again what lies at the record's path, after it has grown or was replaced. 1: it is this record,
 * with all its trials and perhaps more; what was loaded stays valid (trials' rows may lie elsewhere: ask
 * ds_record_trial again). 0: another one is there, it is *other, and `r` stays as it was. -1: nothing can
 * be read there now; a later call may find it. After 0 and -1, if it is the same file that was
 * overwritten or cut short, `r` has what was loaded and reads no more. */
int ds_record_renew(struct ds_record *r, struct ds_record **other, struct ds_error *err);
/* Likewise of what lies at another path, where its writer may have moved it: after 1 that one is the record's. */
int ds_record_renew_at(struct ds_record *r, const char *path, struct ds_record **other,
                       struct ds_error *err);
/* Whether another process is writing the record at `path`. */
int ds_record_written(const char *path);
const struct ds_header *ds_record_header(const struct ds_record *r);
size_t ds_record_trial_count(const struct ds_record *r);
/* The trial's row, without reading its payload. */
const struct ds_trial *ds_record_trial(const struct ds_record *r, size_t i);
/* Reads, verifies (checksum) and caches trial i without blobs; valid until close or ds_record_forget. NULL
 * with err on damage. */
const struct ds_trial_data *ds_record_load(struct ds_record *r, size_t i, struct ds_error *err);
/* Lets go of what is kept of a loaded trial: of its digests, everything else of it stays where it is; or of
 * all, and then no pointer to it may be used again. What other loaded trials share stays. ds_record_load
 * reads it again. */
enum { DS_FORGET_DIGESTS = 0, DS_FORGET_ALL = 1 };
void ds_record_forget(struct ds_record *r, size_t i, int what);
/* Bytes that trial i takes when loaded, if it shares nothing. */
uint64_t ds_record_trial_bytes(const struct ds_record *r, size_t i);
/* Bytes that are kept of loaded trials. */
uint64_t ds_record_loaded(const struct ds_record *r);
/* Bytes of what is kept whole beside them, once needed: the lists of launches and of dumped rows. */
uint64_t ds_record_indexed(const struct ds_record *r);
/* Dumped bytes by digest: 1 found (out->data malloc'ed, the caller frees), 0 not dumped, -1 damage
 * (the bytes do not have that digest, say), DS_BLOB_UNREAD. */
int ds_record_blob(struct ds_record *r, uint64_t digest, struct ds_blob *out, struct ds_error *err);
/* Whether a row is dumped, without reading it: 1, 0, -1 damage. */
int ds_record_dumped(struct ds_record *r, uint64_t digest, struct ds_error *err);
/* The same without a copy: out->data is the record's, until its next row is asked for. */
int ds_record_view(struct ds_record *r, uint64_t digest, struct ds_blob *out, struct ds_error *err);
/* Rows in bulk, for what is held against its digest and looked at beside the reading of the next, in other threads. What
 * takes a record is for the reader's own thread. */
struct ds_raw_row {
    struct ds_blob row; /* data: not held against the digest yet; NULL: not fetched */
    uint64_t first;     /* where it lies, and its entry in the list of dumped rows */
    size_t entry;
    int alone; /* not in bulk: to be asked for with ds_record_blob, which says why not */
};
/* Where a row lies; out->alone where that cannot be told. */
void ds_record_locate(struct ds_record *r, uint64_t digest, struct ds_raw_row *out);
/* Reads the rows, but for those to be asked for alone, one after the other to `room`. Where they cannot be read at
 * once, none has data. */
void ds_record_fetch(struct ds_record *r, struct ds_raw_row *rows, size_t n, void *room);
/* Whether a row was fetched and has its digest; of no record, so in any thread. */
int ds_raw_row_sound(const struct ds_raw_row *x);
/* It has. */
void ds_record_believe(struct ds_record *r, const struct ds_raw_row *row);
/* How many bytes of dumped rows may be read ahead and kept (512 KiB at most, and by default). Rows that are asked for in
 * the order of the file, as those of a trial are, come in few large reads. Returns how many it is. */
uint64_t ds_record_hold(struct ds_record *r, uint64_t bytes);
/* How many trials were begun in the file but are not complete (cut short), and how many failed
 * their checksum. */
size_t ds_record_incomplete(const struct ds_record *r);
size_t ds_record_damaged(const struct ds_record *r);
/* The HDF5 library's version, "1.10.8"; "unknown" if it does not start. Ask here: the first call
 * into the library must be this room's. */
void ds_record_library(char *text, size_t size);
/* Reads every trial with its dumped rows, so that ds_record_sound and ds_record_damages are known for
 * all. -1 only when the machine fails (memory): damage is counted, not an error. */
int ds_record_verify(struct ds_record *r, struct ds_error *err);
/* The rest of that behind a verdict: what was dumped, in the order of the file, and the trials that nobody asked
 * for. What was loaded stays. */
int ds_record_verify_rest(struct ds_record *r, struct ds_error *err);
/* What was dumped alone, for who has other things to do meanwhile: from entry *next on, which is 0 at first, about so many
 * bytes. 1: there is more, 0: all is read, -1 as above. By one process. */
int ds_record_verify_piece(struct ds_record *r, size_t *next, uint64_t bytes, struct ds_error *err);
/* How many dumped rows were not held against their digests so far, and how many bytes. */
void ds_record_unread(const struct ds_record *r, uint64_t *rows, uint64_t *bytes);
/* Whether trial i, and all that it dumped, has shown no damage so far. */
int ds_record_sound(const struct ds_record *r, size_t i);

/* A dumped row whose bytes do not have its digest, or a trial whose tables do not have their checksum. */
struct ds_damage {
    int dumped; /* a dumped row; 0: the tables of `trial` */
    /* Dumped: the first that has a row with that digest, SIZE_MAX: none, as far as read. */
    size_t trial;
    uint32_t arm, repeat, pass; /* of that trial */
    uint32_t site;              /* of that row */
    int32_t request, position, occurrence;
    uint64_t rows;          /* of all trials that have that digest: they share the bytes */
    uint64_t digest, found; /* of the row, and of its bytes; found 0: there are none */
    const char *why;
};
/* All damage that was met so far: by whatever was read, or by ds_record_verify. *out is malloc'ed. */
int ds_record_damages(struct ds_record *r, struct ds_damage **out, size_t *n, struct ds_error *err);
/* Makes this process the one that may replace the record, until close. -1: another process is
 * writing or replacing it. */
int ds_record_claim(struct ds_record *r, struct ds_error *err);
/* Copies the complete trials of `r` to a new record at `path` and leaves its writer open (for run
 * --resume). */
int ds_record_copy(struct ds_record *r, const char *path, struct ds_writer **out,
                   struct ds_error *err);

#endif
