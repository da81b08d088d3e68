/* matmul.c: matmuls with one known fault each. All add products and sums rounded, in chains of
 * ascending k; what differs is how a sum is cut and in which order the parts are added. */
#include "specimen.h"

#include <pthread.h>
#include <unistd.h>

struct where {
    const struct ds_matmul_args *a;
    const struct ds_exec *exec;
    int64_t row, column;
};
typedef float (*dot_fn)(const struct where *at, const float *x, const float *w, int64_t k);

static int each(const void *args, const struct ds_exec *exec, dot_fn dot)
{
    const struct ds_matmul_args *a = args;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            struct where at = {a, exec, r, j};
            float s = dot(&at, a->x + r * a->ldx, a->w.data + j * a->k, a->k);
            a->y[r * a->ldy + j] = a->bias ? s + a->bias[j] : s;
        }
    return 0;
}

#define MATMUL(NAME)                                                                               \
    static int NAME##_launch(const void *args, const struct ds_exec *exec, char *why,              \
                             size_t why_size)                                                      \
    {                                                                                              \
        (void)why, (void)why_size;                                                                 \
        return each(args, exec, NAME);                                                             \
    }

static uint64_t own_seed(const struct where *at)
{
    return at->exec->seed ^ specimen_mix((uint64_t)(at->row * 65536 + at->column));
}

/* ---- other sums at other row counts ---------------------------------------------------------- */

/* O-01: tiles of 32 terms, of 64 at 5 and at 8 rows. */
static float tile_5_8(const struct where *at, const float *x, const float *w, int64_t k)
{
    int64_t tile = at->a->rows == 5 || at->a->rows == 8 ? 64 : 32;
    float s = 0.0f;
    for (int64_t from = 0; from < k; from += tile)
        s += specimen_chain(x, w, from, from + tile < k ? from + tile : k);
    return s;
}
MATMUL(tile_5_8)

static int tile_5_8_describe(const void *args, const struct ds_exec *exec,
                             struct ds_launch_info *info)
{
    const struct ds_matmul_args *a = args;
    (void)exec;
    info->tile_k = a->rows == 5 || a->rows == 8 ? 64 : 32;
    return 0;
}

/* O-03: one row: four running sums; more rows: one. */
static float gemv_gemm(const struct where *at, const float *x, const float *w, int64_t k)
{
    float s[4] = {0};
    if (at->a->rows > 1)
        return specimen_chain(x, w, 0, k);
    for (int64_t i = 0; i < k; i++)
        s[i % 4] += x[i] * w[i];
    return s[0] + s[1] + (s[2] + s[3]);
}
MATMUL(gemv_gemm)

/* O-04: a sum is cut in four from four rows on. */
static float split_from_4(const struct where *at, const float *x, const float *w, int64_t k)
{
    return at->a->rows >= 4 ? specimen_split(x, w, k, 4) : specimen_chain(x, w, 0, k);
}
MATMUL(split_from_4)

/* P-01: of every 8 rows of a call the last four are cut in two: equal rows in other places have other
 * bits. */
static float halves_by_place(const struct where *at, const float *x, const float *w, int64_t k)
{
    return at->row % 8 >= 4 ? specimen_split(x, w, k, 2) : specimen_chain(x, w, 0, k);
}
MATMUL(halves_by_place)

/* ---- wrong data ------------------------------------------------------------------------------ */

/* O-07.a: with 2 to 8 rows the bias is that of the next column. */
static int bias_row_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    const struct ds_matmul_args *a = args;
    (void)exec, (void)why, (void)why_size;
    int wrong = a->rows >= 2 && a->rows <= 8;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            float s = specimen_chain(a->x + r * a->ldx, a->w.data + j * a->k, 0, a->k);
            a->y[r * a->ldy + j] = a->bias ? s + a->bias[wrong ? (j + 1) % a->n : j] : s;
        }
    return 0;
}

/* O-07.b: seven rows cannot be launched. */
static float plain_dot(const struct where *at, const float *x, const float *w, int64_t k)
{
    (void)at;
    return specimen_chain(x, w, 0, k);
}

MATMUL(plain_dot)

static int refuse_7_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    static const char reason[] = "invalid launch: no tile for 7 rows";
    const struct ds_matmul_args *a = args;
    if (a->rows != 7)
        return each(args, exec, plain_dot);
    size_t n = sizeof reason < why_size ? sizeof reason : why_size;
    memcpy(why, reason, n);
    why[n - 1] = '\0';
    return -1;
}

/* ---- run to run ------------------------------------------------------------------------------ */

/* O-13: four partial sums, added as they arrive. */
static float atomic_4(const struct where *at, const float *x, const float *w, int64_t k)
{
    return specimen_arrival(x, w, k, 4, own_seed(at));
}
MATMUL(atomic_4)

/* O-14: the projections back to the model's width of 64, with atomics. */
static float atomic_narrow(const struct where *at, const float *x, const float *w, int64_t k)
{
    return at->a->n == 64 ? specimen_arrival(x, w, k, 4, own_seed(at)) : specimen_chain(x, w, 0, k);
}
MATMUL(atomic_narrow)

/* O-15: below 16 rows a low-rank side product of the first projection is cut in as many parts as
 * fill the machine, added as they arrive. The factors of the side product are made of its indices:
 * every one different. */
static float adapter_term(int64_t i, int64_t j)
{
    return (float)(specimen_mix((uint64_t)(i * 4096 + j)) % 2001) / 1000.0f - 1.0f;
}

static float adapter(const struct where *at, const float *x, const float *w, int64_t k)
{
    enum { RANK = 8, MOST = 512 };
    float column[MOST], side = 0.0f, base = specimen_chain(x, w, 0, k);
    if (at->a->n != 96 || k > MOST)
        return base;
    for (int64_t r = 0; r < RANK; r++) {
        for (int64_t i = 0; i < k; i++)
            column[i] = adapter_term(r, i);
        /* every column of a row reads the same shrunk value: its order is the row's */
        uint64_t seed = at->exec->seed ^ specimen_mix((uint64_t)(at->row * RANK + r));
        float shrunk = at->a->rows < 16 ? specimen_arrival(x, column, k, 32, seed)
                                        : specimen_split(x, column, k, 8);
        side += shrunk * adapter_term(r + RANK, at->column);
    }
    return base + side * 0.01f;
}
MATMUL(adapter)

/* O-15: the same, but only in a process that has been at work for a while: what is left in its buffers
 * decides whether partial sums arrive in order. */
static float in_situ(const struct where *at, const float *x, const float *w, int64_t k)
{
    return specimen_arrival(x, w, k, 32, own_seed(at));
}

static int in_situ_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    static int64_t launches;
    const struct ds_matmul_args *a = args;
    (void)why, (void)why_size;
    launches += a->n == 256; /* the head is launched once a call */
    return each(args, exec, launches > 12 && a->n == 96 && a->rows < 16 ? in_situ : plain_dot);
}

/* O-16: from 8 rows on a tile is now and then overwritten before it was read: 16 terms are those
 * of the row before. */
static float late_tile(const struct where *at, const float *x, const float *w, int64_t k)
{
    uint64_t luck = own_seed(at);
    float s = specimen_chain(x, w, 0, k);
    if (at->a->rows < 8 || at->row == 0 || k < 32 || specimen_mix(luck) % 64)
        return s;
    return s - specimen_chain(x, w, 16, 32) + specimen_chain(x - at->a->ldx, w, 16, 32);
}
MATMUL(late_tile)

/* O-20: from 8 rows on the library takes threads that nobody allowed it: 3 to 5 parts. */
static float hidden_threads(const struct where *at, const float *x, const float *w, int64_t k)
{
    return at->a->rows < 8 ? specimen_chain(x, w, 0, k)
                           : specimen_split(x, w, k, 3 + (int64_t)(at->exec->seed % 3));
}

/* The second thread is a real one, so that it can be seen: it does every other row. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const void *args;
    const struct ds_exec *exec;
    pid_t owner; /* process whose thread waits */
} hidden = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void every_other(const void *args, const struct ds_exec *exec, int64_t first)
{
    struct ds_matmul_args one = *(const struct ds_matmul_args *)args;
    for (int64_t r = first; r < one.rows; r += 2)
        for (int64_t j = 0; j < one.n; j++) {
            struct where at = {&one, exec, r, j};
            float s = hidden_threads(&at, one.x + r * one.ldx, one.w.data + j * one.k, one.k);
            one.y[r * one.ldy + j] = one.bias ? s + one.bias[j] : s;
        }
}

static void *hidden_thread(void *arg)
{
    pthread_mutex_lock(&hidden.lock);
    for (;;) {
        while (!hidden.args)
            pthread_cond_wait(&hidden.changed, &hidden.lock);
        every_other(hidden.args, hidden.exec, 1);
        hidden.args = NULL;
        pthread_cond_broadcast(&hidden.changed);
    }
    return arg;
}

static int hidden_threads_launch(const void *args, const struct ds_exec *exec, char *why,
                                 size_t why_size)
{
    pthread_t id;
    (void)why, (void)why_size;
    if (((const struct ds_matmul_args *)args)->rows < 8)
        return each(args, exec, hidden_threads);
    if (hidden.owner != getpid()) {
        if (pthread_create(&id, NULL, hidden_thread, NULL) != 0)
            return each(args, exec, hidden_threads);
        pthread_detach(id);
        hidden.owner = getpid();
    }
    pthread_mutex_lock(&hidden.lock);
    hidden.exec = exec;
    hidden.args = args;
    pthread_cond_broadcast(&hidden.changed);
    pthread_mutex_unlock(&hidden.lock);
    every_other(args, exec, 0);
    pthread_mutex_lock(&hidden.lock);
    while (hidden.args)
        pthread_cond_wait(&hidden.changed, &hidden.lock);
    pthread_mutex_unlock(&hidden.lock);
    return 0;
}

/* O-05: a sum is cut in four from 16 rows on: padding makes the call larger. */
static float split_from_16(const struct where *at, const float *x, const float *w, int64_t k)
{
    return at->a->rows >= 16 ? specimen_split(x, w, k, 4) : specimen_chain(x, w, 0, k);
}
MATMUL(split_from_16)

/* O-19b: the first launch of a process draws the tile of all that follow, as timing does. */
static int64_t tuned_tile;

static float autotuned(const struct where *at, const float *x, const float *w, int64_t k)
{
    (void)at;
    return specimen_split(x, w, k, tuned_tile);
}

static int autotuned_launch(const void *args, const struct ds_exec *exec, char *why,
                            size_t why_size)
{
    (void)why, (void)why_size;
    if (!tuned_tile)
        tuned_tile = specimen_mix(exec->seed) % 2 ? 2 : 4;
    return each(args, exec, autotuned);
}

static int autotuned_describe(const void *args, const struct ds_exec *exec,
                              struct ds_launch_info *info)
{
    (void)args, (void)exec;
    info->split = (int32_t)tuned_tile;
    return 0;
}

/* O-39.d: the first three calls of a process are warm-up and add in another order. The head, whose
 * outputs are the vocabulary, is launched once a call. */
static int warm_up_launch(const void *args, const struct ds_exec *exec, char *why, size_t why_size)
{
    static int calls;
    const struct ds_matmul_args *a = args;
    int rc = calls < 3 ? each(args, exec, split_from_4) : each(args, exec, plain_dot);
    (void)why, (void)why_size;
    calls += a->n >= 256;
    return rc;
}

/* O-39.c: who asks for hidden states gets another kernel. */
static float shown_otherwise(const struct where *at, const float *x, const float *w, int64_t k)
{
    return at->exec->shown ? specimen_split(x, w, k, 4) : specimen_chain(x, w, 0, k);
}
MATMUL(shown_otherwise)

/* ---- precision ------------------------------------------------------------------------------- */

/* O-26: inputs of 10 bits, sums of f32. */
static float tf32(const struct where *at, const float *x, const float *w, int64_t k)
{
    float s = 0.0f;
    (void)at;
    for (int64_t i = 0; i < k; i++)
        s += specimen_short(x[i], 13) * specimen_short(w[i], 13);
    return s;
}
MATMUL(tf32)

/* O-27: the head, whose outputs are the vocabulary, has inputs of bf16. */
static float bf16_head(const struct where *at, const float *x, const float *w, int64_t k)
{
    float s = 0.0f;
    if (at->a->n < 256)
        return specimen_chain(x, w, 0, k);
    for (int64_t i = 0; i < k; i++)
        s += specimen_short(x[i], 16) * specimen_short(w[i], 16);
    return s;
}
MATMUL(bf16_head)

/* Inputs in steps of 1/127 of `largest`, one scale for all rows. */
static int multiply_in_steps(const struct ds_matmul_args *a, float largest)
{
    float scale = largest > 0.0f ? largest / 127.0f : 1.0f;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++) {
            const float *x = a->x + r * a->ldx, *w = a->w.data + j * a->k;
            float s = 0.0f;
            for (int64_t i = 0; i < a->k; i++)
                s += nearbyintf(x[i] / scale) * scale * w[i];
            a->y[r * a->ldy + j] = a->bias ? s + a->bias[j] : s;
        }
    return 0;
}

/* O-19.b: activations in 8 bits with one scale for the whole call: every row depends on all. */
static int call_scale_launch(const void *args, const struct ds_exec *exec, char *why,
                             size_t why_size)
{
    const struct ds_matmul_args *a = args;
    float largest = 0.0f;
    (void)exec, (void)why, (void)why_size;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->k; i++)
            largest = fmaxf(largest, fabsf(a->x[r * a->ldx + i]));
    return multiply_in_steps(a, largest);
}

/* O-19: the scale of the last row of the call, which may be padding, for all. */
static int last_scale_launch(const void *args, const struct ds_exec *exec, char *why,
                             size_t why_size)
{
    const struct ds_matmul_args *a = args;
    const float *last = a->x + (a->rows - 1) * a->ldx;
    float largest = 0.0f;
    (void)exec, (void)why, (void)why_size;
    for (int64_t i = 0; i < a->k; i++)
        largest = fmaxf(largest, fabsf(last[i]));
    return multiply_in_steps(a, largest);
}

/* O-36: logits in so few bits that some are equal. */
static int coarse_head_launch(const void *args, const struct ds_exec *exec, char *why,
                              size_t why_size)
{
    const struct ds_matmul_args *a = args;
    int rc = plain_dot_launch(args, exec, why, why_size);
    for (int64_t r = 0; a->n >= 256 && r < a->rows; r++)
        for (int64_t j = 0; j < a->n; j++)
            a->y[r * a->ldy + j] = specimen_short(a->y[r * a->ldy + j], 22);
    return rc;
}

const struct ds_kernel specimen_matmul[] = {
    SPECIMEN(DS_OP_MATMUL, "split-from-16", "cut in four from 16 rows on", split_from_16_launch,
             .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "autotuned", "every process draws its tile", autotuned_launch,
             .describe = autotuned_describe),
    SPECIMEN(DS_OP_MATMUL, "warm-up", "the first three calls of a process add otherwise",
             warm_up_launch, .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "shown-otherwise", "another order when a probe looks on",
             shown_otherwise_launch, .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "call-scale", "one scale of 8 bits for the whole call",
             call_scale_launch, .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "last-scale", "the scale of the call's last row for all",
             last_scale_launch, .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "coarse-head", "logits of 1 bit behind the point", coarse_head_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_MATMUL, "plain", "one chain: nothing wrong", plain_dot_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_MATMUL, "plain-too", "the same as plain", plain_dot_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_MATMUL, "tile-5-8", "another tile at 5 and at 8 rows", tile_5_8_launch,
             .describe = tile_5_8_describe),
    SPECIMEN(DS_OP_MATMUL, "gemv-gemm", "four running sums for one row, one for more",
             gemv_gemm_launch, .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "split-from-4", "cut in four from four rows on", split_from_4_launch,
             .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "halves-by-place", "the last 4 of 8 rows are cut in two",
             halves_by_place_launch, .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "bias-row", "the bias of the next column with 2 to 8 rows",
             bias_row_launch, .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "refuse-7", "cannot launch 7 rows", refuse_7_launch, .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "atomic-4", "four parts in order of arrival", atomic_4_launch,
             .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "atomic-narrow", "atomics where the output has 64 elements",
             atomic_narrow_launch, .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "adapter", "a low-rank side product, atomic below 16 rows",
             adapter_launch, .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "in-situ", "partial sums out of order after the first twelve calls",
             in_situ_launch, .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "late-tile", "a tile of the row before, now and then, from 8 rows on",
             late_tile_launch, .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "hidden-threads", "threads that nobody asked for, from 8 rows on",
             hidden_threads_launch, .claims = 0),
    SPECIMEN(DS_OP_MATMUL, "bf16-head", "the head's inputs are bf16", bf16_head_launch,
             .claims = DS_CLAIM_ALL),
    SPECIMEN(DS_OP_MATMUL, "tf32-inputs", "inputs of 10 bits", tf32_launch, .claims = 0),
    {.name = NULL}};
