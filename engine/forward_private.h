/* forward_private.h: what forward.c (life, planning of a call) and forward_pass.c (the stages)
 * share. Nobody else includes it. */
#ifndef DS_FORWARD_PRIVATE_H
#define DS_FORWARD_PRIVATE_H

#include "base/fp_control.h"
#include "base/team.h"
#include "dumps/validity.h" /* DS_POISON_BITS */
#include "engine/forward.h"
#include "engine/kv_cache.h"
#include "engine/site_map.h"
#include "kernels/device_open.h"

enum { DS_TWINS = 15 };

struct ds_twin {
    float *rounded, *unrounded;
};

/* Sites shown on a device whose memory is not the host's: copies of their rows there, digests beside them,
 * all read in one go when the call ends, or when there is no more room (forward_log.c). */
struct ds_site_log {
    char *rows; /* [size] on the device; `used` so far */
    size_t size, used;
    uint64_t *digests, *host_digests; /* [cap] on the device, and as read back */
    uint32_t *largest, *host_largest;
    size_t cap, n;
    struct ds_logged *entry;
    size_t n_entries, cap_entries;
    uint32_t *only; /* row numbers of the entries that have not all */
    size_t n_only, cap_only;
};

/* What lies on one device. On the CPU all of it is the host's, and what is the same as the host's own is
 * not there twice: see ds_forward_host(). */
struct ds_desk {
    struct ds_device *dev;
    /* Enum ds_element: how activations and the cache lie here. On the host f32 always: 16-bit
     * dtypes hold their exact values in it. On a device 16-bit types are stored as such where
     * all kernels of the pass take that (ds_desk_stored). */
    int32_t stored;
    void **owned; /* memory of the device, all of it */
    size_t n_owned, cap_owned;
    struct ds_site_log log;

    /* Activations, [max_rows][width] elements of type `stored`, whatever the pointers say. */
    float *resid[2]; /* what enters a layer and leaves it; what stands between attention and FFN */
    float *norm, *q, *k, *v, *q_rope, *k_rope, *attn_out, *proj, *gate, *up, *act;
    float *q_norm, *k_norm; /* NULL in models without, as gate, up and act in those with experts */
    /* The same as above before rounding, where a kernel of this pass reads that. */
    struct ds_twin twin[DS_TWINS];
    int n_twins;
    float *kv_back; /* cache rows of a call, read back */
    /* A stage's rows as stored; NULL for f32, and where activations lie so anyway. */
    uint16_t *half;
    float *head_in;   /* final_norm rows whose logits are wanted */
    float *logits;    /* [max_rows][vocab] */
    float *processed; /* what tokens are chosen from; NULL where nobody processes logits */
    int32_t *tokens;  /* [max_rows] */

    /* The call as kernels on the device read it; up to date when `plan` is the call's. */
    uint64_t plan;
    int32_t *ids, *positions;      /* [max_rows] */
    int32_t *rec_slot;             /* [recorded rows] their rows in the call ... */
    int32_t *rec_cache;            /* ... and in the cache */
    int32_t *logit_row;            /* [logits rows] */
    int32_t *own_row;              /* [max_rows] 0, 1, 2, ... */
    struct ds_sequence *sequences; /* with their pages; NULL on the host */
    int32_t *pages;

    const void **weights; /* [n_weights] the model's copies there; NULL: the host's own */
    int half_weights;  /* weights of matmuls that are F16 or BF16 in their file are so here, too */
    float *rope_table; /* NULL: the host's */
    int64_t rope_positions;
    void *scratch;
    size_t scratch_bytes;
    int32_t multiprocessors;
    struct ds_moe_rows {
        float *logits, *chosen, *weights, *on_rank, *x, *gate, *up, *act, *y, *sum_of;
        float *shared_logits, *two, *two_weights;
        float *gate_shared, *up_shared, *act_shared;
        int32_t *ids, *two_ids;
        int32_t *list; /* [pairs] row numbers for copies */
    } moe;
    float *partial[DS_MOST_RANKS]; /* [max_rows][d] */
};

/* What a call of a model with experts needs, all NULL without. A pair is a row and one of its
 * choices, number row * top_k + choice; pairs are gathered by expert, and `place` says where. */
struct ds_moe {
    int64_t addends;          /* of a row's sum: top_k, one more with an expert for all rows */
    float *weights;           /* [rows][addends] */
    float *on_rank;           /* [rows][addends]: the weights of one rank's experts, 0 for others */
    float *chosen;            /* [rows][top_k] */
    float *two_weights;       /* [rows][2]: of the expert for all rows */
    float *shown;             /* rows of one site, as a probe sees them */
    int32_t *ids, *two_ids;   /* [rows][top_k], [rows][2] */
    int32_t *pair, *place;    /* [pairs] pair at a place, place of a pair */
    int32_t *first;           /* [experts + 1] place of each expert's first pair */
    uint32_t *only;           /* [rows] recorded rows being shown ... */
    int32_t *from;            /* [rows] ... and their places */
    int32_t *list;            /* [pairs] row numbers for copies on a device */
    uint32_t *rec_of;         /* [rows] number among the recorded rows, or UINT32_MAX */
    struct ds_launch *launch; /* [experts] */
};

struct ds_forward {
    struct ds_model *m;
    struct ds_forward_config config;
    struct ds_site_map *map; /* where the probe's sites are */
    struct ds_team *team;
    const struct ds_kernel *kernel[DS_OP_COUNT]; /* those of the layer at work */
    struct ds_exec exec;
    struct ds_kv_cache cache;
    int64_t d, q_dim, kv_dim, d_ff, vocab;
    int32_t window; /* of layers that have one; 0 where none of the cache's slots is outside it */
    float scale;    /* of attention scores: 1 / sqrt(head_dim) */
    uint64_t launches; /* so far; makes exec.seed */
    uint64_t seed;

    struct ds_desk at; /* the device at work */
    /* [DS_MOST_DEVICES]; that of `device` is out of date. NULL: there is one. */
    struct ds_desk *desks;
    int32_t device; /* whose desk `at` is */
    /* The host's, where the device's kernels draw no tokens and those of the CPU do it; else its dev is NULL. While they
     * do, `at` and this are exchanged. */
    struct ds_desk drawer;
    int drawing;
    float *crossing; /* [max_rows][d] on their way between devices, NULL before any were */
    uint64_t plans;  /* calls planned, and those that show kept rows */
    float **layer_k, **layer_v; /* [n_layers] the cache, each layer's on its device */
    int on_host;                /* a layer's cache is the host's */
    struct ds_moe moe;
    float *logits; /* [max_rows][vocab] the host's, touched only as far as used */
    void *logits_memory;
    float *processed; /* the host's; NULL where nobody processes logits */
    void *processed_memory;
    float *drawn; /* [max_rows][vocab] scores of the choice; NULL where no token is drawn */
    void *drawn_memory;
    int32_t *history; /* [n_requests][capacity] tokens of the requests so far */
    struct {
        int32_t *requests, *positions, *steps, *cached, *n_tokens, *streams;
        const int32_t **tokens;
    } choice; /* of every logits row; one block of memory, and the tokens */
    /* NULL where no site shows them: what a write to the cache should have left alone. */
    float *before;    /* [cache rows][kv_dim] a layer's rows before it, where they are watched */
    uint8_t *written; /* [cache rows] the call's own */
    int32_t *changed; /* [rows of a call, or kept] */
    float *mirror;    /* of a device: a layer's cache */
    /* Of the recorded rows, in their order: attention scores and what the softmax makes of them, if
     * the probe has such sites. Made when first shown. */
    int64_t score_keys; /* of a head in a row; 0: no such sites */
    float *scores;      /* [recorded rows][heads][score_keys] */
    uint16_t *half_scores;
    size_t score_rows;  /* for which there is room */
    float *score_q;     /* on the host, where the pass is not: rows of q_rope ... */
    float *score_k;     /* ... and the layer's cache */
    uint16_t *half_row; /* one cache row as stored */
    uint16_t *bounce;   /* [cap_bounce] 16-bit rows on their way from or to a device */
    size_t cap_bounce;

    struct ds_rank_weight *rank_weights; /* NULL: one rank */

    /* The call being run. */
    int32_t rows, n_seqs, n_logits;
    uint32_t n_rec;
    struct ds_sequence *seqs; /* [n_requests] */
    int32_t max_q_len, max_kv_len;
    int32_t *ids, *positions, *kv_len; /* [max_rows] */
    int32_t *own_row;                  /* [max_rows] 0, 1, 2, ... */
    int32_t *cache_row;                /* [max_rows] */
    int32_t *own_slot;   /* [max_rows] the request's slot in that cache row, padding not counted;
                          negative: another request's */
    struct ds_row *rec;  /* [max_rows] rows given to the probe */
    int32_t *logit_row;  /* [max_rows] call row of each logits row */
    uint32_t *logit_rec; /* [max_rows] its number among the recorded rows, or UINT32_MAX */
    int32_t *tokens;     /* [max_rows] */
    struct ds_sequence *staged; /* [n_requests] on their way to a device, ... */
    int32_t *staged_pages;      /* [n_requests][pages_each] ... */
    int32_t *staged_rows;       /* [max_rows] ... */
    uint64_t *seen;             /* [n_requests] number of the last call that had this request */
    uint64_t call;
    int32_t phase;

    /* What is true of every request, whatever a schedule makes of it: rows are known by this.
     * f->cache.used and .pads are what the schedule says. */
    struct ds_request_state {
        int32_t used, pads; /* slots in use, of them left padding */
        int32_t trimmed;    /* given back since the last call */
        int32_t cached;     /* left by an earlier pass, and not used by a call yet */
    } * state;              /* [n_requests] */
    int32_t trial_call;     /* calls since the last reset */
    /* What the schedule may change is given to it as a copy and checked when it comes back. */
    int own_schedule;              /* not the built-in one, which changes nothing */
    struct ds_schedule_past *past; /* [n_requests] of the call's sequences */
    struct ds_sequence *planned;   /* [n_requests] as they were given to it */
    int32_t *page_table;           /* [n_requests][pages_each] of the call's sequences */

    /* The launch choice of every stage in this call: the layers of a call share shapes, so one
     * question per stage is enough. */
    struct ds_launch launch[DS_ST_COUNT];
    uint8_t launch_known[DS_ST_COUNT];
    struct ds_graphs *graphs; /* captured calls; NULL: none yet */
    int capturing;            /* launches are recorded: nothing may be waited for, or move */
    struct { /* what a capture found too small; it is made anew when that has grown */
        size_t scratch, log_bytes, log_rows;
    } lacks;
    int32_t launch_rows; /* of the launch at hand, where it is not of the whole call; else 0 */
};

/* One call under way. */
struct ds_pass {
    struct ds_forward *f;
    struct ds_probe *probe;
    struct ds_error *err;
    int32_t layer;       /* -1 before the layers, n_layers after them */
    uint32_t fp_control; /* as it was on entry */
};

/* forward_plan.c: lays out the call's rows; nothing has changed when it fails. */
int ds_forward_plan(struct ds_forward *f, const struct ds_batch *batch, struct ds_error *err);
/* The call is over: counts slots in use. */
void ds_forward_count(struct ds_forward *f, const struct ds_batch *batch);

/* forward_cache.c, for forward_kept.c, too. Shows the recorded rows at a site of this layer's cache
 * as they stand there, in cache rows f->cache_row[slot]. */
int ds_pass_show_cache(struct ds_pass *p, int stage, float *cache);
/* forward_cache.c: writes x to this layer's cache and shows the rows, and what else was changed. */
int ds_pass_cache_write(struct ds_pass *p, int stage, const float *x, float *cache);
/* The same where this pass wrote nothing: of `rows` rows none changed another. */
int ds_pass_show_kept(struct ds_pass *p, int stage, int32_t rows);
/* Memory for that, where a site shows it. */
int ds_forward_watch_cache(struct ds_forward *f, struct ds_error *err);
/* Runs op process on all logits rows and shows the recorded ones among them. */
int ds_pass_process(struct ds_pass *p, const float *logits);

/* forward_schedule.c: the planned call as the kernel of op schedule wants it. Fills kv_len,
 * cache_row and own_slot of every row. */
int ds_forward_schedule(struct ds_pass *p);
/* After a healing probe has seen positions, lengths and slots: the call follows what it wrote there, or
 * fails. */
int ds_forward_follow_schedule(struct ds_pass *p);

/* Runs all stages of the planned call. On failure the cache lengths have not moved. */
int ds_forward_stages(struct ds_forward *f, struct ds_probe *probe, struct ds_error *err);

/* Makes scratch large enough for every op at `rows` rows of the planned call's sequences. */
int ds_forward_reserve(struct ds_forward *f, int64_t rows, struct ds_error *err);

/* Chooses the kernels of a layer (-1: before the layers; their number: after them). */
void ds_forward_enter(struct ds_forward *f, int32_t layer);

/* What a stage's kernel reads of these activations: themselves, or their values before rounding. */
const float *ds_forward_input(const struct ds_forward *f, int stage, const float *x);

/* What a call's kernel reads and must leave as it is: digests of its arrays, by name. */
enum { DS_INPUTS_MOST = 4 };
struct ds_inputs {
    struct ds_device *dev; /* where they lie; NULL: in the host's memory */
    struct ds_input {
        const char *name;
        uint64_t digest;
    } at[DS_INPUTS_MOST];
    int n;
};
void ds_inputs_look(struct ds_inputs *in, int op, const void *args);
/* Whether they are looked at around a launch of that kernel: it is not built in, and there is a probe. Where that would
 * have a GPU waited for, or a call is captured, they are not. */
int ds_inputs_wanted(const struct ds_pass *p, const struct ds_kernel *k);
/* The name of the first that is not as it was; NULL: all are. */
const char *ds_inputs_changed(const struct ds_inputs *before, int op, const void *args);

/* forward_guard.c: what lies behind an output on the host, while a kernel writes it. Every array that kernels write
 * has DS_GUARD_BYTES more than the largest call needs. */
enum { DS_GUARD_BYTES = 64 };
struct ds_guard {
    unsigned char *at; /* NULL: nothing is guarded */
    unsigned char kept[DS_GUARD_BYTES];
};
void ds_guard_set(struct ds_guard *g, float *y, size_t n);
/* Puts back what was there. Bytes that were changed, and where the first one is; 0: none. */
size_t ds_guard_lift(struct ds_guard *g, size_t *first);

/* Runs a stage's kernel. y (n elements, or NULL) is what it will write: poisoned first if asked
 * for. The caller's control word is checked after every launch, that of the other threads once a
 * call (after every launch when poisoning). It is an error that a kernel that is not built in changes
 * what it reads, where ds_inputs_wanted; and, on the host with a probe, that one writes past the end of y. */
int ds_pass_launch(struct ds_pass *p, int stage, const void *args, float *y, size_t n);
/* A stage's output y is complete: rounds it to the activation dtype (y then holds the rounded
 * values) and shows it at the stage's site of that part. A probe may write into what it is shown
 * (healing), so 16-bit rows are widened afterwards. */
int ds_pass_emit(struct ds_pass *p, int stage, uint32_t part, float *y);
/* Keeps the launch choice of a stage for this call's captures; args may be NULL for what the engine
 * makes itself. */
void ds_pass_describe(struct ds_forward *f, int stage, const void *args);
/* Puts "layer 3 q_proj: matmul/openblas: " before the message, and keeps that place; returns -1. */
int ds_pass_blame(const struct ds_pass *p, int stage);
/* How many threads of the team had another control word than the call began with; all have it now.
 */
int ds_pass_restore_team(const struct ds_pass *p);
/* Grows scratch to what a kernel asks for. ds_forward_new has asked for the shapes to be expected,
 * so this seldom happens later. */
int ds_forward_scratch(struct ds_forward *f, const struct ds_kernel *k, const void *args,
                       struct ds_error *err);

int ds_forward_grow_scratch(struct ds_forward *f, size_t need, struct ds_error *err);

/* forward_draw.c: tokens of a device drawn on the host, from logits that are read back. */

/* The CPU's kernels instead of those of this pass that draw no tokens, where it draws. */
int ds_forward_draw_new(struct ds_forward *f, struct ds_error *err);
/* Between the two, process and sample work on the host's logits. All shown before is flushed. */
int ds_pass_begin_draw(struct ds_pass *p);
void ds_pass_end_draw(struct ds_pass *p);

/* forward_desk.c: memory of the device at work, and what is copied there. */

/* Whether the memory of the device at work is the host's. */
static inline int ds_forward_host(const struct ds_forward *f)
{
    return f->at.dev->memory == DS_MEMORY_HOST;
}
/* How activations lie on the device at work. */
int32_t ds_desk_stored(const struct ds_forward *f);
/* Bytes of an activation there, and n of them behind y. */
static inline size_t ds_forward_element(const struct ds_forward *f)
{
    return f->at.stored == DS_ELEMENT_F32 ? sizeof(float) : sizeof(uint16_t);
}
static inline float *ds_forward_behind(const struct ds_forward *f, const float *y, int64_t n)
{
    return (float *)((uintptr_t)y + (uintptr_t)n * ds_forward_element(f));
}
/* n activations of the device as f32 on the host, and the other way round. */
int ds_desk_bring(struct ds_forward *f, float *host, const float *there, size_t n,
                  struct ds_error *err);
int ds_desk_put(struct ds_forward *f, float *there, const float *host, size_t n,
                struct ds_error *err);
/* count * bytes of the device's memory, freed with the desk; poisoned where the pass is asked to. */
int ds_desk_new(struct ds_forward *f, size_t count, size_t bytes, const char *what, void *out,
                struct ds_error *err);
/* Frees one of them; NULL is none. */
void ds_desk_forget(struct ds_forward *f, void *p);
/* The same for what is the host's, too: on the host it is `host` itself. */
int ds_desk_copy_of(struct ds_forward *f, const void *host, size_t bytes, const char *what,
                    void *out, struct ds_error *err);
/* Copies; none where source and target are one. */
int ds_desk_to(struct ds_forward *f, void *dst, const void *host, size_t bytes,
               struct ds_error *err);
int ds_desk_from(struct ds_forward *f, void *host, const void *src, size_t bytes,
                 struct ds_error *err);
int ds_desk_rows(struct ds_forward *f, const struct ds_device_rows *r, struct ds_error *err);
/* n row numbers where rows() of the device can read them: part `which` (0, 1) of the desk's list. NULL with
 * err set. */
const int32_t *ds_desk_list(struct ds_forward *f, int which, const int32_t *host, size_t n,
                            struct ds_error *err);
/* The planned call, for kernels of the device at work; nothing where it is there already. */
int ds_desk_plan(struct ds_forward *f, struct ds_error *err);
/* Memory for that, weights and tables. */
int ds_desk_set_up(struct ds_forward *f, struct ds_error *err);
void ds_desk_free(struct ds_desk *at);
/* Fills the cache of devices with the poison pattern; a fault shows in the next call. */
void ds_forward_poison_cache(struct ds_forward *f);
/* A weight's numbers where kernels of the device at work read them; NULL for a weight kept as in its file,
 * or for none. */
const float *ds_desk_weight(const struct ds_forward *f, const struct ds_weight *w);
/* The same as a matmul is given it, in whatever type it lies there. */
struct ds_weight_view ds_desk_matrix(const struct ds_forward *f, const struct ds_weight *w);

/* forward_log.c: rows on a device, shown to the probe. */
struct ds_shown {
    void *data; /* on the device */
    size_t stride, element;
    const int32_t *index; /* [n] on the device: rows of data; NULL: 0, 1, 2, ... */
    const uint32_t *only; /* as ds_probe_site */
    uint32_t n, width;
};
/* On the host at once; else when the call ends, or with a healing probe at once. */
int ds_log_show(struct ds_pass *p, int stage, uint32_t site, const struct ds_shown *rows);
/* Shows what waits. Before anything of the host is shown, which comes later in the order of sites. */
int ds_log_flush(struct ds_pass *p);
/* Forgets it. */
void ds_log_drop(struct ds_forward *f);
void ds_log_free(struct ds_site_log *log);

/* What waits in the log, kept for a call that will log the same again. */
struct ds_log_kept {
    struct ds_logged *entry;
    size_t n_entries, used, n, n_only;
    uint32_t *only;
};
int ds_log_keep(const struct ds_forward *f, struct ds_log_kept *out, struct ds_error *err);
int ds_log_restore(struct ds_forward *f, const struct ds_log_kept *kept, struct ds_error *err);
void ds_log_kept_free(struct ds_log_kept *kept);
/* Makes an empty log as large as a capture asked for. */
int ds_log_enlarge(struct ds_forward *f, struct ds_error *err);

/* forward_graph.c: `stages`, which launches and waits for nothing, done as one graph: captured when a call of this
 * shape comes for the first time, launched again when it comes once more. */
int ds_graph_call(struct ds_pass *p, int (*stages)(struct ds_pass *p));
/* Whether this call is done so: not where a healing probe writes between the stages. */
int ds_graph_wanted(const struct ds_pass *p);
/* Forgets all captures: memory that they name is given back. */
void ds_graphs_drop(struct ds_forward *f);

/* forward_devices.c: a desk for every device of the placement, each filled by `set_up`; the pass works at
 * one of them. */
int ds_forward_devices_new(struct ds_forward *f,
                           int (*set_up)(struct ds_forward *f, struct ds_error *err),
                           struct ds_error *err);
void ds_forward_devices_free(struct ds_forward *f);
void ds_forward_to_device(struct ds_forward *f, int32_t device);
/* Launches go to the device at work, after `at` was changed. */
void ds_forward_use(struct ds_forward *f);
/* Before a layer's first stage: the residual rows go to the layer's device if it is another one. */
int ds_pass_enter_layer(struct ds_pass *p);

/* forward_ranks.c: a matmul whose sum is cut over ranks: partial sums, their sum, the stage. */
int ds_forward_ranks_new(struct ds_forward *f, struct ds_error *err);
/* Of a desk: partial sums. */
int ds_forward_ranks_rows(struct ds_forward *f, struct ds_error *err);
void ds_forward_ranks_free(struct ds_forward *f);
/* Adds the partial sums and shows the sum and the stage. */
int ds_pass_allreduce(struct ds_pass *p, int stage, int partial, int sum, float *y);
int ds_pass_ranks(struct ds_pass *p, int stage, const float *x, const struct ds_weight *w,
                  const struct ds_weight *bias, float *y);
/* Shows all recorded rows of a stage's site. */
int ds_pass_show(struct ds_pass *p, int stage, void *data, size_t element);
/* Shows recorded rows that the host holds, whatever the device at work. */
int ds_pass_show_host(struct ds_pass *p, int stage, void *data, size_t element);
/* Shows the logits rows (or tokens) that belong to recorded rows: one capture for every unbroken
 * run of them. */
int ds_pass_show_chosen(struct ds_pass *p, int stage, void *data, size_t element);
/* Between y and f->at.half (enum ds_device_convert); on the host spread over the team where that pays. */
int ds_pass_convert(struct ds_pass *p, float *y, int64_t n, int how);
void ds_pass_matmul_args(const struct ds_forward *f, const struct ds_weight *w,
                         const struct ds_weight *bias, int64_t rows, const float *x, float *y,
                         struct ds_matmul_args *a);
/* A matmul of all rows, emitted. */
int ds_pass_matmul(struct ds_pass *p, int stage, const float *x, const struct ds_weight *w,
                   const struct ds_weight *bias, float *y);

/* forward_scores.c: attention scores and probabilities of the recorded rows, where their sites are.
 * Finds out how many keys a row of them has. */
int ds_forward_scores_new(struct ds_forward *f, const struct ds_site *sites, size_t n,
                          struct ds_error *err);
void ds_forward_scores_free(struct ds_forward *f);
int ds_pass_scores(struct ds_pass *p);

/* forward_moe.c. Memory; nothing for a model without experts. */
int ds_forward_moe_new(struct ds_forward *f, struct ds_error *err);
void ds_forward_moe_free(struct ds_forward *f);
/* Of a desk: rows of experts. */
int ds_forward_moe_rows(struct ds_forward *f, struct ds_error *err);
/* Elements of a call row that f->at.half must hold. */
int64_t ds_forward_moe_widest(const struct ds_forward *f);
/* From f->norm to the experts' sum in f->proj. */
int ds_pass_experts(struct ds_pass *p, const struct ds_layer *w);

/* Fills n floats of the device at work with the poison pattern. */
int ds_forward_poison(struct ds_forward *f, float *y, size_t n, struct ds_error *err);
/* The same for n activations: what the pattern is in their format. */
int ds_forward_poison_rows(struct ds_forward *f, float *y, size_t n, struct ds_error *err);

/* Attention's arguments for a layer of the planned call. */
void ds_forward_attention_args(const struct ds_forward *f, int32_t layer,
                               struct ds_attention_args *a);

#endif
