/* check_attention_right.c: whether attention is right: at other sizes and features, where values are
 * special, where a row sees nothing; and how accurate it is. Held against sums in double. */
#include "kernels/lab/attention_exact.h"
#include "kernels/lab/check_attention.h"
#include "kernels/lab/truth.h"

#include "base/dtype.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What the verdict on one row needs. */
struct judge {
    struct ds_attention_exact exact;
    double *memory;
    double most, most_units; /* what a head may be off, of its size and in bounds */
    /* of the row judged last: */
    int wrong;
    int64_t head, channel; /* channel -1: the log-sum-exp */
    double want, got;
};

/* A format of few bits costs up to 1/32; a variant that was seen to lose less where sums are short may
 * lose 64 times that, since much cancels in long ones, and no more bounds than it needs there. Among
 * special values nothing is relative to what was seen. */
static int judge_new(struct judge *j, const struct ds_check *c, const struct ds_attention_args *a)
{
    const struct ds_attention_own *own = c->own;
    *j = (struct judge){.most = 1.0 / 32, .most_units = 64};
    if (own->has_observed && c->property != &c->out->property[DS_PROPERTY_SPECIAL]) {
        j->most = fmin(j->most, 64 * own->observed);
        j->most_units = fmin(j->most_units, fmax(2, 8 * own->observed_units));
    }
    j->memory = ds_calloc((size_t)(2 * a->head_dim + 2 * (int64_t)a->max_kv_len), sizeof *j->memory,
                          "exact attention", c->err);
    j->exact.y = j->memory;
    j->exact.unit = j->memory ? j->memory + a->head_dim : NULL;
    return j->memory ? 0 : -1;
}

static double *weights_of(const struct judge *j, const struct ds_attention_args *a)
{
    return j->memory + 2 * a->head_dim;
}

static void blame(struct judge *j, int64_t head, int64_t channel, double want, double got)
{
    if (j->wrong)
        return;
    j->wrong = 1;
    j->head = head;
    j->channel = channel;
    j->want = want;
    j->got = got;
}

/* Not a question of rounding: NaN and infinity where they belong, and a head's values within what the
 * variant may be off. A row that sees nothing is +0 bit by bit. */
static void judge_head(struct judge *j, const struct ds_attention_args *a, int64_t head,
                       const uint32_t *y)
{
    const struct ds_attention_exact *e = &j->exact;
    double off = 0, size = 0, bound = 0, worst = -1;
    int64_t at = 0;
    for (int64_t d = 0; d < a->head_dim; d++) {
        const double got = (double)ds_f32_from_bits(y[d]), want = e->y[d];
        if (!e->slots && y[d])
            blame(j, head, d, 0, got);
        if (isfinite(want) && isfinite(got)) {
            const double diff = fabs(got - want);
            off += diff * diff;
            size += want * want;
            bound += e->unit[d] * e->unit[d];
            at = diff > worst ? d : at;
            worst = diff > worst ? diff : worst;
        } else if (isnan(want) ? !isnan(got) : !(got == want)) {
            blame(j, head, d, want, got);
        }
    }
    if (!(sqrt(off) <= fmax(sqrt(size) * j->most, j->most_units * sqrt(bound) + 0x1p-148)))
        blame(j, head, at, e->y[at], (double)ds_f32_from_bits(y[at]));
}

static void judge_lse(struct judge *j, int64_t head, uint32_t bits)
{
    const double got = (double)ds_f32_from_bits(bits), want = j->exact.lse;
    const double most = fmax(1.0 / 32, 64 * j->exact.lse_unit);
    int right = isnan(want) ? isnan(got) : got == want || fabs(got - want) <= most;
    if (!right)
        blame(j, head, -1, want, got);
}

static void judge_row(struct judge *j, const struct ds_attention_args *a, int64_t row,
                      const uint32_t *bits)
{
    j->wrong = 0;
    for (int64_t h = 0; h < a->heads && !j->wrong; h++) {
        ds_attention_exact(a, row, h, weights_of(j, a), &j->exact);
        if (j->exact.open)
            continue;
        judge_head(j, a, h, bits + h * a->head_dim);
        if (a->lse)
            judge_lse(j, h, bits[a->heads * a->head_dim + h]);
    }
}

/* How far the heads of a row are off, of their size and in bounds. */
static void observe_row(struct ds_attention_own *own, struct judge *j,
                        const struct ds_attention_args *a, int64_t row, const uint32_t *bits)
{
    for (int64_t h = 0; h < a->heads; h++) {
        double off = 0, size = 0, bound = 0;
        ds_attention_exact(a, row, h, weights_of(j, a), &j->exact);
        for (int64_t d = 0; d < a->head_dim; d++) {
            const double want = j->exact.y[d],
                         apart = (double)ds_f32_from_bits(bits[h * a->head_dim + d]) - want;
            off += apart * apart;
            size += want * want;
            bound += j->exact.unit[d] * j->exact.unit[d];
        }
        if (!(size > 0) || !(bound > 0) || !isfinite(off))
            continue;
        own->observed = fmax(own->observed, sqrt(off / size));
        own->observed_units = fmax(own->observed_units, sqrt(off / bound));
    }
}

/* On rows alone that see few slots, in the plain form. */
static int observe(struct ds_check *c)
{
    enum { ROWS = 8 };
    struct ds_attention_own *own = c->own;
    struct ds_output out = {0};
    struct ds_scene s;
    struct judge j;
    if (own->has_observed)
        return 0;
    ds_scene_begin(c, &s, NULL, c->opt->threads[0]);
    for (int i = 0; i < ROWS; i++)
        ds_scene_add(&s, i, 3 + 7 * i, 1);
    int rc = ds_check_launch_base(c, &s.call, &out);
    if (rc == 1) {
        const struct ds_attention_args *a = ds_subject_args(c->subject);
        rc = judge_new(&j, c, a);
        for (int64_t row = 0; rc == 0 && row < a->rows; row++)
            observe_row(own, &j, a, row, out.bits + row * out.width);
        free(j.memory);
        own->has_observed = rc == 0;
    }
    ds_output_free(&out);
    return rc < 0 ? -1 : 0;
}

static void number(char *text, size_t size, double x)
{
    if (isnan(x))
        snprintf(text, size, "NaN");
    else
        snprintf(text, size, "%.6g", x);
}

/* Runs a scene and holds every row against the exact result. `what`: "head_dim 80". */
static int hold_exact(struct ds_check *c, const struct ds_scene *s, const char *what)
{
    struct ds_attention_own *own = c->own;
    struct judge j;
    int64_t row = 0;
    int rc = ds_check_launch(c, &s->call, &own->out);
    if (rc <= 0)
        return rc;
    const struct ds_attention_args *a = ds_subject_args(c->subject);
    if (judge_new(&j, c, a) != 0)
        return -1;
    for (int64_t i = 0; i < s->call.n_segments; i++)
        for (int32_t r = 0; r < s->segment[i].length; r++, row++) {
            judge_row(&j, a, row, own->out.bits + row * own->out.width);
            const int32_t slot = s->segment[i].first + r;
            if (!ds_check_wrong(c, j.wrong, (double)a->rows * 65536.0 + slot))
                continue;
            char channel[32] = "lse", got[32], want[32];
            if (j.channel >= 0)
                snprintf(channel, sizeof channel, "channel %lld", (long long)j.channel);
            number(got, sizeof got, j.got);
            number(want, sizeof want, j.want);
            ds_check_pair(c, "%s%sthe row at slot %d of %lld row%s, head %lld: %s is %s, not %s",
                          what, *what ? ": " : "", slot, (long long)a->rows,
                          a->rows == 1 ? "" : "s", (long long)j.head, channel, got, want);
        }
    free(j.memory);
    return 1;
}

/* Blames a row that two calls gave with other bits, if one of them is wrong. */
static void judge_both(struct ds_check *c, struct judge *j, const struct ds_attention_args *a,
                       const uint32_t *const bits[2], const char *const where[2], int32_t slot)
{
    char channel[32] = "lse", got[32], want[32];
    int i = 0;
    judge_row(j, a, 0, bits[0]);
    if (!j->wrong)
        judge_row(j, a, 0, bits[i = 1]);
    if (!ds_check_wrong(c, j->wrong, (double)a->rows * 65536.0 + slot + 0.5))
        return;
    if (j->channel >= 0)
        snprintf(channel, sizeof channel, "channel %lld", (long long)j->channel);
    number(got, sizeof got, j->got);
    number(want, sizeof want, j->want);
    ds_check_pair(c, "the row at slot %d %.60s, head %lld: %s is %s, not %s", slot, where[i],
                  (long long)j->head, channel, got, want);
}

int ds_attention_is_right(struct ds_check *c, const struct ds_scene *s,
                          const struct ds_segment *seg, int32_t slot, const uint32_t *got,
                          const uint32_t *ref, const char *other)
{
    struct ds_attention_own *own = c->own;
    struct ds_property_result *measured = c->property;
    const struct ds_shape *shape = ds_subject_shape(c->subject);
    const uint32_t *const bits[2] = {got, ref};
    const char *const where[2] = {s->text, other};
    struct ds_segment one = {
        .sequence = seg->sequence, .first = slot, .length = 1, .content = seg->content};
    struct ds_call call = ds_check_call(c, &one, 1);
    struct judge j;
    if (slot < 0 ||
        !ds_check_may_judge(c, &own->purse, ds_check_far_apart(ref, got, own->out.width),
                            (double)(slot + 1) * (double)(shape->heads * shape->head_dim)))
        return 0;
    c->property = &c->out->property[DS_PROPERTY_SIZES];
    call.page_size = DS_BASE_PAGE;
    call.features = s->call.features;
    call.window = s->call.window;
    call.soft_cap = s->call.soft_cap;
    /* Its arrays alone are wanted: what the row reads is the same in every call. */
    int rc = observe(c) != 0 ? -1 : ds_subject_ready(c->subject, &call, c->err);
    if (rc == 0)
        rc = judge_new(&j, c, ds_subject_args(c->subject));
    if (rc == 0) {
        judge_both(c, &j, ds_subject_args(c->subject), bits, where, slot);
        free(j.memory);
    }
    c->property = measured;
    return rc;
}

/* ---- sizes -------------------------------------------------------------------------------------------
 */

/* Unlike sequences: decode rows, chunks, padding; pages in another order. */
static void size_scene(const struct ds_check *c, struct ds_scene *s, const struct ds_form *f,
                       int threads, int i)
{
    static const int32_t kv[] = {1, 2, 7, 16, 33, 64, 65, 100, 129, 256, 257, 300, 513, 600};
    ds_scene_begin(c, s, f, threads);
    s->call.permute = (uint64_t)i + 1;
    if (i < 14) { /* a row alone, then a chunk of up to 5 */
        const int32_t rows = i % 2 && kv[i] > 5 ? 5 : 1;
        ds_scene_add(s, i, kv[i] - rows, rows)->padding = i % 3 ? 0 : i;
        s->call.page_size = i % 4 == 3 ? 1 : DS_BASE_PAGE;
        return;
    }
    for (int k = 0; k < 9; k++)
        ds_scene_add(s, k, kv[(k * 5 + i) % 11] - 1, k % 4 == 2 ? 3 : 1)->padding = k % 2 ? 0 : k;
}
enum { SIZE_SCENES = 16 };

/* At one shape, in the plain form and with each feature; of the scenes every step-th. */
static int sizes_at(struct ds_check *c, const char *what, int step)
{
    const uint32_t has = ds_subject_kernel(c->subject)->features;
    static const struct ds_form forms[] = {
        {0, 0, 0},
        {DS_FEATURE_WINDOW, 5, 0},
        {DS_FEATURE_WINDOW, 64, 0},
        {DS_FEATURE_SOFT_CAP, 0, 1.0f},
        {DS_FEATURE_SINKS, 0, 0},
        {DS_FEATURE_LSE, 0, 0},
        {DS_FEATURE_WINDOW | DS_FEATURE_SOFT_CAP | DS_FEATURE_SINKS | DS_FEATURE_LSE, 33, 2.0f}};
    static const char *const names[] = {"",      "window 5", "window 64",   "soft cap",
                                        "sinks", "lse",      "all features"};
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        char text[64];
        if ((forms[f].features & has) != forms[f].features)
            continue;
        snprintf(text, sizeof text, "%s%s%s", what, *what && f ? ", " : "", names[f]);
        for (int i = f % 2 ? step - 1 : 0; i < SIZE_SCENES; i += f ? 2 * step - 1 : step) {
            struct ds_scene s;
            size_scene(c, &s, &forms[f], c->opt->threads[i % c->opt->n_threads], i);
            if (hold_exact(c, &s, text) < 0)
                return -1;
        }
    }
    return 0;
}

/* The same at another shape: a subject of its own for the time. */
static int sizes_of_shape(struct ds_check *c, const struct ds_shape *shape, const char *what,
                          int (*at)(struct ds_check *c, const char *what, int n), int n)
{
    struct ds_subject *given = c->subject;
    c->subject = ds_subject_new(ds_subject_kernel(given), shape, c->opt->seed, c->err);
    int rc = c->subject ? at(c, what, n) : -1;
    ds_subject_free(c->subject);
    c->subject = given;
    return rc;
}

/* Rows alone at every KV length up to 4096, 60 in a call. */
static int sizes_of_grid(struct ds_check *c)
{
    const struct ds_kv_list *l = ds_attention_kv(c, c->opt->threads[0]);
    for (int i = 0; l && i < l->n; i += 60) {
        struct ds_scene s;
        ds_scene_begin(c, &s, NULL, c->opt->threads[0]);
        for (int k = i; k < l->n && k < i + 60 && l->kv[k] <= 4096; k++)
            ds_scene_add(&s, k, l->kv[k] - 1, 1);
        if (s.call.n_segments == 0)
            continue;
        if (hold_exact(c, &s, "") < 0)
            return -1;
    }
    return l ? 0 : -1;
}

/* The longest of the grid, alone, and a long chunk whose rows' strides are wider than they. */
static int sizes_of_extremes(struct ds_check *c)
{
    struct ds_scene s;
    ds_scene_begin(c, &s, NULL, c->opt->threads[c->opt->n_threads - 1]);
    ds_scene_add(&s, 0, 32767, 1);
    if (hold_exact(c, &s, "") < 0)
        return -1;
    ds_scene_begin(c, &s, NULL, c->opt->threads[0]);
    ds_scene_add(&s, 1, 3, 150);
    ds_scene_add(&s, 2, 40, 1);
    s.call.gap = 5;
    return hold_exact(c, &s, "rows 5 apart") < 0 ? -1 : 0;
}

int ds_attention_sizes(struct ds_check *c)
{
    struct ds_shape shape[DS_GRID_MOST];
    const struct ds_shape *given = ds_subject_shape(c->subject);
    const int n = ds_grid_shapes(given, shape);
    ds_attention_budget(c);
    if (observe(c) != 0 || sizes_at(c, "", 1) != 0 || sizes_of_grid(c) != 0 ||
        sizes_of_extremes(c) != 0)
        return -1;
    for (int i = 0; i < n; i++) {
        char what[64];
        if (shape[i].head_dim != given->head_dim)
            snprintf(what, sizeof what, "head_dim %lld", (long long)shape[i].head_dim);
        else
            snprintf(what, sizeof what, "%lld heads on %lld KV heads", (long long)shape[i].heads,
                     (long long)shape[i].kv_heads);
        if (sizes_of_shape(c, &shape[i], what, sizes_at, 2) != 0)
            return -1;
    }
    return 0;
}

/* ---- special ------------------------------------------------------------------------------------------
 */

/* Rows of unlike content, and rows of padding, which see nothing. */
static int special_at(struct ds_check *c, const char *what, int scenes)
{
    static const int contents[] = {DS_CONTENT_ZERO, DS_CONTENT_NAN, DS_CONTENT_TINY,
                                   DS_CONTENT_SPECIAL, DS_CONTENT_MIXED};
    struct ds_form form[2];
    const int n_forms = ds_attention_forms(c, form);
    for (int f = 0; f < n_forms; f++)
        for (int i = 0; i < scenes; i++) {
            struct ds_scene s;
            char text[64];
            const int content = contents[i % 5];
            ds_scene_begin(c, &s, &form[f], c->opt->threads[i % c->opt->n_threads]);
            for (int k = 0; k < 4; k++) {
                struct ds_segment *seg = ds_scene_add(&s, 10 * i + k, (i + k * 3) % 20, 1 + k);
                seg->content = k == 1 ? DS_CONTENT_PLAIN : content;
                seg->padding = k;
            }
            snprintf(text, sizeof text, "%s%s%s", what, *what ? ", " : "",
                     ds_content_name(content));
            if (hold_exact(c, &s, text) < 0)
                return -1;
            /* The padding's own rows, alone and in front of real ones. */
            ds_scene_begin(c, &s, &form[f], c->opt->threads[i % c->opt->n_threads]);
            ds_scene_add(&s, 1, -3, i % 2 ? 3 : 6)->padding = 4;
            ds_scene_add(&s, 2, 9, 1)->content = content;
            snprintf(text, sizeof text, "rows of padding%s%s", *what ? ", " : "", what);
            if (hold_exact(c, &s, text) < 0)
                return -1;
        }
    return 0;
}

int ds_attention_special(struct ds_check *c)
{
    struct ds_shape small = *ds_subject_shape(c->subject);
    small.heads = 2;
    small.kv_heads = 1;
    small.head_dim = 8;
    return special_at(c, "", 10) != 0 ||
                   sizes_of_shape(c, &small, "head_dim 8", special_at, 60) != 0
               ? -1
               : 0;
}

/* ---- accuracy -------------------------------------------------------------------------------------------
 */

static void accurate(struct ds_accuracy *out, const struct ds_attention_exact *e, int64_t d,
                     uint32_t bits, int64_t head, int32_t slot, int32_t rows)
{
    const double off = fabs((double)ds_f32_from_bits(bits) - e->y[d]);
    const double ulp = off / ds_truth_ulp(e->y[d]), units = off / e->unit[d];
    out->elements++;
    out->rms_ulp += ulp * ulp;
    out->rms_bound += units * units;
    if (!(units <= out->max_bound))
        out->max_bound = units;
    if (ulp <= out->max_ulp)
        return;
    out->max_ulp = ulp;
    snprintf(out->worst_at, sizeof out->worst_at,
             "slot %d in %d row%s, head %lld, channel %lld: exactly %.6g", slot, rows,
             rows == 1 ? "" : "s", (long long)head, (long long)d, e->y[d]);
}

int ds_attention_accuracy(struct ds_check *c)
{
    static const struct ds_segment calls[] = {
        {.first = 32, .length = 1},   {.first = 299, .length = 1}, {.first = 1023, .length = 1},
        {.first = 4095, .length = 1}, {.first = 0, .length = 64},  {.first = 600, .length = 5}};
    struct ds_attention_own *own = c->own;
    struct ds_accuracy *out = &c->out->accuracy;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        struct ds_call call = ds_check_call(c, &calls[i], 1);
        struct judge j;
        call.page_size = DS_BASE_PAGE;
        int rc = ds_check_launch(c, &call, &own->out);
        if (rc < 0)
            return -1;
        if (rc == 0)
            continue;
        const struct ds_attention_args *a = ds_subject_args(c->subject);
        if (judge_new(&j, c, a) != 0)
            return -1;
        for (int64_t row = 0; row < a->rows; row++)
            for (int64_t h = 0; h < a->heads; h++) {
                ds_attention_exact(a, row, h, weights_of(&j, a), &j.exact);
                for (int64_t d = 0; d < a->head_dim; d++)
                    accurate(out, &j.exact, d,
                             own->out.bits[row * own->out.width + h * a->head_dim + d], h,
                             calls[i].first + (int32_t)row, calls[i].length);
            }
        free(j.memory);
    }
    if (out->elements) {
        out->rms_ulp = sqrt(out->rms_ulp / (double)out->elements);
        out->rms_bound = sqrt(out->rms_bound / (double)out->elements);
    }
    return 0;
}

/* ---- speed ----------------------------------------------------------------------------------------------
 */

/* Decode at a short and a long KV, a batch of it, a prefill. */
int ds_attention_speed(struct ds_check *c)
{
    for (int i = 0; i < 4; i++) {
        struct ds_scene s;
        const int before = c->out->n_speeds;
        ds_scene_begin(c, &s, NULL, c->opt->threads[0]);
        for (int k = 0; k < (i == 2 ? 8 : 1); k++)
            ds_scene_add(&s, k, i == 1 ? 4095 : i == 3 ? 0 : 63, i == 3 ? 128 : 1);
        if (ds_check_speed(c, &s.call, 1) != 0)
            return -1;
        if (c->out->n_speeds > before)
            c->out->speed[before].kv_len = i == 1 ? 4096 : i == 3 ? 128 : 64;
    }
    return 0;
}
