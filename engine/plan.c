/* plan.c: factors, their values, and the arms made of them. Pure: text in, arms out; runs nothing.
 */
#include "engine/sweep.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/team.h"
#include "kernels/device_open.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ds_factor_names[DS_FACTOR_COUNT] = {
    "batch",   "slot",   "neighbours", "padding", "threads",   "chunk",
    "mode",    "prefix", "rollback",   "kernels", "blas-core", "dtype",
    "process", "place",  "tp",         "device",  "graph"};

static const char *const defaults[DS_FACTOR_COUNT] = {
    "1",      "first",   "copies", "0", "1",   "0", "prefill", "0",  "0",
    "vendor", "default", "f32",    "1", "one", "1", "cpu",     "off"};
static const char *const slots[] = {"first", "middle", "last"};
static const char *const neighbours[] = {"copies", "varied"};
static const char *const modes[] = {"prefill", "decode"};
static const char *const graphs[] = {"off", "on"};

static int parse_number(int factor, const char *text, long min, long max, int32_t *out,
                        struct ds_error *err)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (end == text || *end || errno || v < min || v > max)
        return ds_fail(err, "--%s: '%s' is not a whole number from %ld to %ld",
                       ds_factor_names[factor], text, min, max);
    *out = (int32_t)v;
    return 0;
}

static int parse_word(int factor, const char *text, const char *const *words, size_t n, int *out,
                      struct ds_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(text, words[i]) == 0) {
            *out = (int)i;
            return 0;
        }
    ds_fail(err, "--%s: unknown value '%s'", ds_factor_names[factor], text);
    int near = ds_nearest(text, words, n);
    if (near >= 0)
        return ds_hint(err, "did you mean '%s'?", words[near]);
    char all[128] = "";
    for (size_t i = 0; i < n; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", words[i]);
    return ds_hint(err, "known: %s", all);
}

/* "4": four rows before the prompt; "4r": behind it. */
static int parse_padding(const char *text, struct ds_setting *s, struct ds_error *err)
{
    char number[32];
    size_t len = strlen(text);
    s->pad_right = len > 1 && text[len - 1] == 'r';
    if (len >= sizeof number)
        return ds_fail(err, "--padding: '%s' is too long", text);
    memcpy(number, text, len + 1);
    number[len - (size_t)s->pad_right] = '\0';
    if (parse_number(DS_FACTOR_PADDING, number, 0, DS_MOST_PADDING, &s->padding, err) != 0)
        return ds_hint(err, "N rows before the prompt are N, behind it Nr: --padding 0,4,4r");
    return 0;
}

/* A set of the arm's device; with none known yet, of any: which, is seen when the arm is put together. */
static int parse_kernels(const char *text, struct ds_setting *s, struct ds_error *err)
{
    const int device = s->device < 0 ? DS_DEVICE_CPU : s->device;
    if (ds_kernel_set_parse_on(device, text, &s->kernels, err) == 0)
        return 0;
    for (int d = 0; s->device < 0 && d < DS_DEVICE_KINDS; d++) {
        struct ds_error ignored;
        if ((d != DS_DEVICE_CUDA || ds_kernel_know_cuda()) &&
            !ds_kernel_set_parse_on(d, text, &s->kernels, &ignored))
            return 0;
    }
    return s->device > 0 ? ds_prefix(err, "--kernels on %s", ds_device_name(device))
                         : ds_prefix(err, "--kernels");
}

/* Checks one value of one factor and stores it. */
static int parse_value(int factor, const char *text, struct ds_setting *s, struct ds_error *err)
{
    static const char *const dtypes[] = {"f32", "bf16", "f16"};
    int word;
    switch (factor) {
    case DS_FACTOR_BATCH:
        return parse_number(factor, text, 1, DS_MOST_BATCH, &s->batch, err);
    case DS_FACTOR_SLOT:
        if (text[0] >= '0' && text[0] <= '9')
            return parse_number(factor, text, 0, DS_MOST_BATCH - 1, &s->slot, err);
        if (parse_word(factor, text, slots, 3, &word, err) != 0)
            return -1;
        s->slot = DS_SLOT_FIRST - word;
        return 0;
    case DS_FACTOR_NEIGHBOURS:
        return parse_word(factor, text, neighbours, 2, &s->neighbours, err);
    case DS_FACTOR_PADDING:
        return parse_padding(text, s, err);
    case DS_FACTOR_PREFIX:
        return parse_number(factor, text, 0, DS_MOST_PREFIX, &s->prefix, err);
    case DS_FACTOR_ROLLBACK:
        return parse_number(factor, text, 0, DS_MOST_ROLLBACK, &s->rollback, err);
    case DS_FACTOR_THREADS:
        return parse_number(factor, text, 1, DS_MOST_THREADS, &s->threads, err);
    case DS_FACTOR_CHUNK:
        return parse_number(factor, text, 0, DS_MOST_CHUNK, &s->chunk, err);
    case DS_FACTOR_MODE:
        return parse_word(factor, text, modes, 2, &s->mode, err);
    case DS_FACTOR_KERNELS:
        return parse_kernels(text, s, err);
    case DS_FACTOR_BLAS_CORE:
        if (strcmp(text, "default") == 0) {
            s->blas_core[0] = '\0';
            return 0;
        }
        if (ds_blas_core_known(text, err) != 0)
            return ds_prefix(err, "--blas-core");
        if (strlen(text) >= sizeof s->blas_core)
            return ds_fail(err, "--blas-core: '%s' is too long", text);
        strcpy(s->blas_core, text);
        return 0;
    case DS_FACTOR_DTYPE:
        if (parse_word(factor, text, dtypes, 3, &word, err) != 0)
            return -1;
        s->dtype = ds_dtype_parse(dtypes[word]);
        return 0;
    case DS_FACTOR_PROCESS:
        return parse_number(factor, text, 1, DS_MOST_PROCESSES, &s->processes, err);
    case DS_FACTOR_PLACE:
        return ds_placement_parse(text, &s->place, err) == 0 ? 0 : ds_prefix(err, "--place");
    case DS_FACTOR_TP:
        return parse_number(factor, text, 1, DS_MOST_RANKS, &s->ranks, err);
    case DS_FACTOR_DEVICE:
        s->device = ds_device_parse(text, err);
        return s->device < 0 || ds_device_parse_name(text, &word, &s->device_number, err) != 0
                   ? ds_prefix(err, "--device")
                   : 0;
    case DS_FACTOR_GRAPH:
        return parse_word(factor, text, graphs, 2, &s->graph, err);
    default:
        return ds_fail(err, "factor %d does not exist", factor);
    }
}

/* Where a range of layers lies on a device of another kind, its kernels are that kind's, under the same
 * names: all ops of the set, then what the text says of single layers. */
static int add_kernels(const char *text, int kind, int first, int last, struct ds_kernel_set *set,
                       struct ds_error *err)
{
    struct ds_kernel_set other;
    if (ds_kernel_set_parse_on(kind, text, &other, err) != 0)
        return ds_prefix(err, "--kernels on %s, where --place has layers", ds_device_name(kind));
    for (int32_t i = 0; i < DS_OP_COUNT + other.n_at; i++) {
        struct ds_kernel_at_layers at = {i < DS_OP_COUNT ? other.op[i] : NULL, (int16_t)first,
                                         (int16_t)last};
        if (i >= DS_OP_COUNT) {
            at = other.at[i - DS_OP_COUNT];
            at.first = at.first < first ? (int16_t)first : at.first;
            at.last = at.last > last ? (int16_t)last : at.last;
        }
        if (!at.kernel || at.last < at.first)
            continue;
        if (set->n_at == DS_KERNEL_SET_LAYERS)
            return ds_fail(err, "--place: too many ranges of layers on other devices");
        set->at[set->n_at++] = at;
    }
    return 0;
}

static int place_kernels(const char *text, struct ds_setting *s, struct ds_error *err)
{
    for (int32_t i = 0; i < s->place.n; i++) {
        /* The last range has what comes after the layers, too, whether its end is open or is the last layer. */
        const int32_t device = s->place.part[i].device,
                      last = i + 1 < s->place.n ? s->place.part[i].last
                                                : (int32_t)DS_KERNEL_SET_MOST_LAYER;
        const int kind = ds_placement_kind(device, s->device);
        char name[24];
        snprintf(name, sizeof name, "%s:%d", ds_device_name(kind),
                 ds_placement_number(device, s->device, s->device_number));
        if (kind == DS_DEVICE_CUDA && ds_device_parse(name, err) < 0)
            return ds_prefix(err, "--place");
        if (kind != s->device &&
            add_kernels(text, kind, i ? s->place.part[i].first : -1, last, &s->kernels, err) != 0)
            return -1;
    }
    return 0;
}

int ds_setting_parse(char *const *values, struct ds_setting *out, struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    /* First: it says what the names of --kernels mean. */
    if (parse_value(DS_FACTOR_DEVICE, values[DS_FACTOR_DEVICE], out, err) != 0)
        return -1;
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        if (parse_value(f, values[f], out, err) != 0)
            return -1;
    return place_kernels(values[DS_FACTOR_KERNELS], out, err);
}

void ds_factor_free(struct ds_factor_values *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->value[i]);
    free(v->value);
    memset(v, 0, sizeof *v);
}

/* Numbers are stored as the shortest text of their value, so that "01" and "1" are one setting. */
static void canonical(int factor, char *text, size_t size)
{
    int numeric =
        factor == DS_FACTOR_SLOT || factor == DS_FACTOR_BATCH || factor == DS_FACTOR_PADDING ||
        factor == DS_FACTOR_THREADS || factor == DS_FACTOR_CHUNK || factor == DS_FACTOR_PROCESS ||
        factor == DS_FACTOR_TP || factor == DS_FACTOR_PREFIX || factor == DS_FACTOR_ROLLBACK;
    if (factor == DS_FACTOR_THREADS && strcmp(text, "all") == 0) {
        snprintf(text, size, "%d", ds_team_cpus());
    } else if (factor == DS_FACTOR_PLACE) {
        struct ds_placement p;
        struct ds_error ignored;
        if (ds_placement_parse(text, &p, &ignored) == 0)
            ds_placement_print(&p, text, size);
    } else if (numeric) {
        char *end;
        long v = strtol(text, &end, 10);
        int right = factor == DS_FACTOR_PADDING && strcmp(end, "r") == 0;
        if (end != text && (!*end || right))
            snprintf(text, size, "%ld%s", v, right && v ? "r" : "");
    }
}

static int add_value(struct ds_factor_values *v, const char *text, struct ds_error *err)
{
    for (size_t i = 0; i < v->n; i++)
        if (strcmp(v->value[i], text) == 0)
            return 0;
    char **grown = realloc(v->value, (v->n + 1) * sizeof *grown);
    if (!grown)
        return ds_fail(err, "out of memory");
    v->value = grown;
    if (!(v->value[v->n] = strdup(text)))
        return ds_fail(err, "out of memory");
    v->n++;
    return 0;
}

/* Length of the value at the beginning of a list. The ranges of one placement may be separated by
 * commas, too: what begins with a digit belongs to the value before it. */
static size_t value_length(int factor, const char *p)
{
    size_t len = strcspn(p, ",");
    while (factor == DS_FACTOR_PLACE && p[len] == ',' && p[len + 1] >= '0' && p[len + 1] <= '9')
        len += 1 + strcspn(p + len + 1, ",");
    return len;
}

int ds_factor_parse(int factor, const char *text, struct ds_factor_values *out,
                    struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    if (!text || !*text)
        return add_value(out, defaults[factor], err);
    struct ds_setting scratch = {.device = -1};
    for (const char *p = text;;) {
        size_t len = value_length(factor, p);
        char word[320];
        if (len == 0 || len >= sizeof word - 24) {
            ds_factor_free(out);
            return ds_fail(err, "--%s: %s value in '%s'", ds_factor_names[factor],
                           len ? "too long a" : "empty", text);
        }
        memcpy(word, p, len);
        word[len] = '\0';
        canonical(factor, word, sizeof word);
        if (parse_value(factor, word, &scratch, err) != 0 || add_value(out, word, err) != 0) {
            ds_factor_free(out);
            return -1;
        }
        if (!p[len])
            return 0;
        p += len + 1;
    }
}

/* ---- prompts and arms ------------------------------------------------------------------------ */

/* Positions of the longest request of an arm. */
static int64_t arm_positions(const struct ds_sweep *s, const struct ds_setting *a)
{
    const int32_t subject = s->requests[0].n_prompt;
    int varied = a->neighbours == DS_NEIGHBOURS_VARIED && a->batch > 1;
    int32_t accepts = !varied ? 0 : a->rollback < a->batch - 1 ? a->rollback : a->batch - 1;
    int64_t longest = subject;
    for (int32_t i = 1; varied && i < a->batch && i < s->n_requests; i++)
        longest = s->requests[i].n_prompt > longest ? s->requests[i].n_prompt : longest;
    int64_t wide =
        (int64_t)subject + a->padding > longest ? (int64_t)subject + a->padding : longest;
    int64_t end = longest + (int64_t)s->options.steps * (accepts + 1) + a->rollback;
    return s->options.position_offset + (a->pad_right && wide > end ? wide : end);
}

int ds_sweep_fits(const struct ds_sweep *s, int64_t *positions, struct ds_error *err)
{
    const int32_t subject = s->requests[0].n_prompt, context = s->model->hp.context;
    *positions = 0;
    for (size_t i = 0; i < s->header->n_arms; i++) {
        struct ds_setting a;
        if (ds_setting_parse(s->header->arms[i].values, &a, err) != 0)
            return ds_prefix(err, "arm %zu", i);
        if (a.prefix >= subject) {
            ds_fail(err, "--prefix %d: the subject's prompt has %d token%s", a.prefix, subject,
                    subject == 1 ? "" : "s");
            return ds_hint(err,
                           "a prefix cache hit leaves at least the last token to be computed: "
                           "up to %d here",
                           subject - 1);
        }
        int64_t n = arm_positions(s, &a);
        *positions = n > *positions ? n : *positions;
    }
    if (*positions > context)
        return ds_fail(err,
                       "prompt and decode steps%s make %lld positions; the model's context is %d",
                       s->options.position_offset ? " behind --position-offset" : "",
                       (long long)*positions, context);
    return 0;
}

/* ---- arms ------------------------------------------------------------------------------------ */

struct arm_list {
    const struct ds_factor_values *factors;
    struct ds_arm *arms;
    size_t n, cap;
};

/* Adds the arm with value index pick[f] of every factor, unless it is there. */
static int add_arm(struct arm_list *l, const size_t *pick, struct ds_error *err)
{
    for (size_t i = 0; i < l->n; i++) {
        int same = 1;
        for (int f = 0; f < DS_FACTOR_COUNT; f++)
            same &= strcmp(l->arms[i].values[f], l->factors[f].value[pick[f]]) == 0;
        if (same)
            return 0;
    }
    if (l->n >= 100000)
        return ds_fail(err, "more than 100000 arms");
    if (ds_grow(&l->arms, &l->cap, l->n + 1, sizeof *l->arms, "arms", err) != 0)
        return -1;
    char **values = ds_calloc(DS_FACTOR_COUNT, sizeof *values, "arm", err);
    if (!values)
        return -1;
    l->arms[l->n++].values = values;
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        if (!(values[f] = strdup(l->factors[f].value[pick[f]])))
            return ds_fail(err, "out of memory");
    return 0;
}

/* Index of the largest batch. */
static size_t largest_batch(const struct ds_factor_values *batch)
{
    size_t best = 0;
    for (size_t i = 1; i < batch->n; i++)
        if (atol(batch->value[i]) > atol(batch->value[best]))
            best = i;
    return best;
}

/* One factor at a time around the base arm, for one dtype. */
static int add_one_factor_arms(struct arm_list *l, size_t dtype, struct ds_error *err)
{
    const struct ds_factor_values *factors = l->factors;
    size_t pick[DS_FACTOR_COUNT] = {0};
    pick[DS_FACTOR_DTYPE] = dtype;
    for (size_t t = 0; t < factors[DS_FACTOR_THREADS].n; t++)
        for (size_t b = 0; b < factors[DS_FACTOR_BATCH].n; b++) {
            pick[DS_FACTOR_THREADS] = t;
            pick[DS_FACTOR_BATCH] = b;
            if (add_arm(l, pick, err) != 0)
                return -1;
        }
    pick[DS_FACTOR_THREADS] = 0;
    for (int f = 0; f < DS_FACTOR_COUNT; f++) {
        int crowd = f == DS_FACTOR_SLOT || f == DS_FACTOR_NEIGHBOURS || f == DS_FACTOR_PADDING;
        pick[DS_FACTOR_BATCH] = crowd ? largest_batch(&factors[DS_FACTOR_BATCH]) : 0;
        if (f == DS_FACTOR_BATCH || f == DS_FACTOR_THREADS || f == DS_FACTOR_DTYPE)
            continue;
        /* Alone in its batch a request has one slot and no neighbours: such an arm would repeat the
         * base. */
        int alone = atol(factors[DS_FACTOR_BATCH].value[pick[DS_FACTOR_BATCH]]) == 1;
        if (alone && (f == DS_FACTOR_SLOT || f == DS_FACTOR_NEIGHBOURS))
            continue;
        for (size_t v = 1; v < factors[f].n; v++) {
            pick[f] = v;
            if (add_arm(l, pick, err) != 0)
                return -1;
        }
        pick[f] = 0;
    }
    return 0;
}

/* The cross product, in an order that keeps every arm behind those it is compared with: index
 * tuples count up. */
static int add_all_arms(struct arm_list *l, struct ds_error *err)
{
    size_t pick[DS_FACTOR_COUNT] = {0};
    for (;;) {
        if (add_arm(l, pick, err) != 0)
            return -1;
        int f = DS_FACTOR_COUNT - 1;
        while (f >= 0 && ++pick[f] == l->factors[f].n)
            pick[f--] = 0;
        if (f < 0)
            return 0;
    }
}

int ds_plan_arms(const struct ds_factor_values *factors, int full, struct ds_arm **arms, size_t *n,
                 struct ds_error *err)
{
    struct arm_list l = {.factors = factors};
    int rc = 0;
    if (full)
        rc = add_all_arms(&l, err);
    else
        for (size_t d = 0; d < factors[DS_FACTOR_DTYPE].n && rc == 0; d++)
            rc = add_one_factor_arms(&l, d, err);
    if (rc != 0) {
        for (size_t i = 0; i < l.n; i++) {
            for (int f = 0; f < DS_FACTOR_COUNT; f++)
                free(l.arms[i].values[f]);
            free(l.arms[i].values);
        }
        free(l.arms);
        return -1;
    }
    *arms = l.arms;
    *n = l.n;
    return 0;
}
