/* lock_judge.c: an answer held against an entry of a lock. What a line that differs means depends on its kind alone:
 * one function each. Pure. */
#include "dumps/lock_internal.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ds_lock_finding_name(int kind)
{
    static const char *const names[DS_LOCK_FINDINGS] = {
        "tensor",    "run",    "class", "unstable", "origin", "kind", "bound", "token",
        "nonfinite", "kernel", "field", "gone",     "base",   "step", "count"};
    return kind >= 0 && kind < DS_LOCK_FINDINGS ? names[kind] : "unknown";
}

/* Whether a finding of that kind breaks what was asserted. */
static int breaks(const struct ds_lock_terms *terms, int kind)
{
    switch (terms->what) {
    case DS_ASSERT_TOKENS:
        return kind == DS_LOCK_TOKEN;
    case DS_ASSERT_TEXT:
        return kind == DS_LOCK_TOKEN && !terms->same_text;
    case DS_ASSERT_FIELDS:
        return kind == DS_LOCK_FIELD;
    default:
        return kind == DS_LOCK_TENSOR || kind == DS_LOCK_CLASS || kind == DS_LOCK_UNSTABLE ||
               kind == DS_LOCK_ORIGIN || kind == DS_LOCK_KIND || kind == DS_LOCK_BOUND ||
               kind == DS_LOCK_TOKEN || kind == DS_LOCK_NONFINITE || kind == DS_LOCK_BASE ||
               kind == DS_LOCK_STEP;
    }
}

int ds_lock_found(struct ds_lock_judging *j, int kind, const struct ds_lock_line *was,
                  const struct ds_lock_line *is, const char *fmt, ...)
{
    struct ds_lock_verdict *v = j->v;
    if (ds_grow(&v->findings, &v->cap_findings, v->n_findings + 1, sizeof *v->findings, "findings",
                j->err) != 0)
        return -1;
    struct ds_lock_finding *f = &v->findings[v->n_findings++];
    *f = (struct ds_lock_finding){.kind = kind,
                                  .counts = breaks(j->terms, kind),
                                  .key = was ? was->key : is->key,
                                  .was = was ? was->value : NULL,
                                  .is = is ? is->value : NULL};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->note, sizeof f->note, fmt, ap);
    va_end(ap);
    v->n_counting += (size_t)f->counts;
    return 0;
}

/* ---- environments ---------------------------------------------------------------------------- */

/* How likely a line of the environment moves bits. */
static int weight_of(const char *name)
{
    static const char *const heavy[] = {"blas_",     "cblas",    "plugin_", "OPENBLAS_",
                                        "GOTO",      "MKL_",     "mxcsr",   "flush_to_zero",
                                        "denormals", "rounding", "cpu_fl",  "GLIBC_T",
                                        "LD_PRELOAD"},
                             *const light[] = {"kernel",  "cpus_",   "cpu_microcode",
                                               "hdf5",    "xxhash",  "pcre2",
                                               "jansson", "machine", "cpu_stepping"};
    for (size_t i = 0; i < sizeof heavy / sizeof heavy[0]; i++)
        if (strncmp(name, heavy[i], strlen(heavy[i])) == 0)
            return 3;
    for (size_t i = 0; i < sizeof light / sizeof light[0]; i++)
        if (strncmp(name, light[i], strlen(light[i])) == 0)
            return 1;
    return 2;
}

/* Calls fn for every line of the kind that one side lacks or has otherwise, and for every other one with the same line
 * twice. */
int ds_lock_each_line(
    const struct ds_lock_lines *was, const struct ds_lock_lines *is, const char *kind,
    int (*fn)(void *ctx, const struct ds_lock_line *was, const struct ds_lock_line *is), void *ctx)
{
    for (size_t i = 0; i < was->n; i++)
        if (ds_lock_is(&was->at[i], kind) &&
            fn(ctx, &was->at[i], ds_lock_find(is, was->at[i].key)) != 0)
            return -1;
    for (size_t i = 0; i < is->n; i++)
        if (ds_lock_is(&is->at[i], kind) && !ds_lock_find(was, is->at[i].key) &&
            fn(ctx, NULL, &is->at[i]) != 0)
            return -1;
    return 0;
}

/* The same in the answer's order: a lock's lines may stand in any, and which of them is the first to differ is told by
 * the order of execution. */
static int
each_line_done(const struct ds_lock_lines *was, const struct ds_lock_lines *is, const char *kind,
               int (*fn)(void *ctx, const struct ds_lock_line *was, const struct ds_lock_line *is),
               void *ctx)
{
    for (size_t i = 0; i < is->n; i++)
        if (ds_lock_is(&is->at[i], kind) &&
            fn(ctx, ds_lock_find(was, is->at[i].key), &is->at[i]) != 0)
            return -1;
    for (size_t i = 0; i < was->n; i++)
        if (ds_lock_is(&was->at[i], kind) && !ds_lock_find(is, was->at[i].key) &&
            fn(ctx, &was->at[i], NULL) != 0)
            return -1;
    return 0;
}

static int differ(const struct ds_lock_line *was, const struct ds_lock_line *is)
{
    return !was || !is || strcmp(was->value, is->value) != 0;
}

static const char *env_name(const struct ds_lock_line *x)
{
    return x->key + strlen("env ");
}

static int add_distance(void *ctx, const struct ds_lock_line *was, const struct ds_lock_line *is)
{
    /* One heavy line weighs more than all light ones together. */
    static const uint64_t units[] = {0, 1, 64, 4096};
    if (differ(was, is))
        *(uint64_t *)ctx += units[weight_of(env_name(was ? was : is))];
    return 0;
}

uint64_t ds_lock_distance(const struct ds_lock_lines *a, const struct ds_lock_lines *b)
{
    uint64_t distance = 0;
    ds_lock_each_line(a, b, "env", add_distance, &distance);
    return distance;
}

int64_t ds_lock_nearest(const struct ds_lock *l, const struct ds_lock_lines *is)
{
    int64_t best = -1;
    uint64_t least = 0;
    for (size_t i = 0; i < l->n_entries; i++) {
        const uint64_t d = ds_lock_distance(&l->entries[i].lines, is);
        if (best < 0 || d < least) {
            best = (int64_t)i;
            least = d;
        }
    }
    return best;
}

static int add_suspect(void *ctx, const struct ds_lock_line *was, const struct ds_lock_line *is)
{
    struct ds_lock_judging *j = ctx;
    struct ds_lock_verdict *v = j->v;
    v->n_environment++;
    if (!differ(was, is))
        return 0;
    if (ds_grow_by_one(&v->suspects, v->n_suspects, sizeof *v->suspects, "environment", j->err) !=
        0)
        return -1;
    const char *name = env_name(was ? was : is);
    v->suspects[v->n_suspects++] = (struct ds_lock_suspect){name, was ? was->value : NULL,
                                                            is ? is->value : NULL, weight_of(name)};
    return 0;
}

static int heaviest_first(const void *pa, const void *pb)
{
    const struct ds_lock_suspect *a = pa, *b = pb;
    return a->weight != b->weight ? b->weight - a->weight : strcmp(a->name, b->name);
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* The digest of "OP/VARIANT DIGEST". */
static const char *digest_of(const struct ds_lock_line *x)
{
    const char *blank = strchr(x->value, ' ');
    return blank ? blank + 1 : x->value;
}

static int is_unstable(const struct ds_lock_line *x)
{
    return strcmp(digest_of(x), "unstable") == 0;
}

static int judge_tensor(void *ctx, const struct ds_lock_line *was, const struct ds_lock_line *is)
{
    struct ds_lock_judging *j = ctx;
    struct ds_lock_verdict *v = j->v;
    if (!was || !is) {
        v->counts.tensors_missing += was != NULL;
        return 0;
    }
    if (is_unstable(was) || is_unstable(is)) {
        v->counts.tensors_unstable++;
        return 0;
    }
    v->counts.tensors++;
    if (strcmp(digest_of(was), digest_of(is)) == 0) {
        v->before += !v->first;
        return 0;
    }
    v->counts.tensors_differ++;
    if (v->first)
        return 0; /* it follows, as far as a lock can say */
    v->first = is;
    return ds_lock_found(j, DS_LOCK_TENSOR, was, is, "all %zu tensors before it have their bits",
                         v->before);
}

/* A run digest is one over all sites and rows: of other ones it is another number, whatever the bits. */
static int same_coverage(const struct ds_lock_judging *j)
{
    static const char *const counts[] = {"count sites", "count rows"};
    for (size_t i = 0; i < 2; i++) {
        const char *was = ds_lock_get(j->was, counts[i]), *is = ds_lock_get(j->is, counts[i]);
        if (was && is && strcmp(was, is) != 0)
            return 0;
    }
    return 1;
}

/* After the tensors. */
static int judge_run(void *ctx, const struct ds_lock_line *was, const struct ds_lock_line *is)
{
    struct ds_lock_judging *j = ctx;
    if (!was || !is) {
        j->v->counts.runs_missing += was != NULL;
        return 0;
    }
    if (is_unstable(was) || is_unstable(is))
        return 0;
    if (!same_coverage(j)) {
        j->v->counts.runs_missing++;
        return 0;
    }
    j->v->counts.runs++;
    if (!differ(was, is))
        return 0;
    j->v->counts.runs_differ++;
    if (strcmp(was->key, "run 0") != 0)
        return ds_lock_found(j, DS_LOCK_RUN, was, is,
                             "its arm has other bits; classes and bounds count");
    if (j->v->first)
        return 0; /* the tensors tell */
    return ds_lock_found(j, DS_LOCK_BASE, was, is,
                         "the base arm has other bits, in a tensor that the entry does not have");
}

static int judge_kernel(void *ctx, const struct ds_lock_line *was, const struct ds_lock_line *is)
{
    struct ds_lock_judging *j = ctx;
    if (was && is)
        return 0;
    return ds_lock_found(j, DS_LOCK_KERNEL, was, is, "%s",
                         is ? "it was not at work" : "it is not at work any more");
}

/* The coverage. Of other arms all numbers are others; of other rows, sites or trials so are those of digests. */
static int judge_counts(struct ds_lock_judging *j)
{
    static const char *const keys[] = {"count arms", "count rows", "count sites", "count trials",
                                       "count digests"};
    const size_t before = j->v->n_findings;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct ds_lock_line *was = ds_lock_find(j->was, keys[i]),
                                  *is = ds_lock_find(j->is, keys[i]);
        if (!was || !is || !differ(was, is) || (i == 4 && j->v->n_findings > before))
            continue;
        if (i == 0)
            return 0;
        if (ds_lock_found(j, DS_LOCK_COUNT, was, is, "another coverage") != 0)
            return -1;
    }
    for (size_t i = 0; j->v->n_findings == before && i < j->was->n; i++) {
        const struct ds_lock_line *was = &j->was->at[i], *is = ds_lock_find(j->is, was->key);
        if (ds_lock_is(was, "kernel") && is && differ(was, is) &&
            ds_lock_found(j, DS_LOCK_COUNT, was, is, "another coverage") != 0)
            return -1;
    }
    return 0;
}

static int judge_nonfinite(void *ctx, const struct ds_lock_line *was, const struct ds_lock_line *is)
{
    struct ds_lock_judging *j = ctx;
    if (!is)
        return ds_lock_found(j, DS_LOCK_GONE, was, is, "no NaN or Inf there now");
    return was ? 0 : ds_lock_found(j, DS_LOCK_NONFINITE, was, is, "the first NaN or Inf");
}

/* ---- classes --------------------------------------------------------------------------------- */

static int judge_borders(struct ds_lock_judging *j, const struct ds_lock_line *was,
                         const struct ds_lock_line *is)
{
    struct ds_lock_borders b;
    if (ds_lock_compare_classes(was->value, is->value, &b, j->err) != 0)
        return -1;
    j->v->allowed_classes += b.kept && !b.added;
    j->v->counts.classes_missing += b.missing > 0;
    if (b.added)
        return ds_lock_found(
            j, DS_LOCK_CLASS, was, is,
            b.judged ? "%s do not agree, and were not compared" : "%s agreed, and do not", b.apart);
    return b.gone ? ds_lock_found(j, DS_LOCK_GONE, was, is, "values agree that did not") : 0;
}

/* "class OP/VARIANT FACTOR": whether the lock has any line of the factor. */
static int knows_factor(const struct ds_lock_lines *l, const char *key)
{
    const char *factor = strrchr(key, ' ');
    for (size_t i = 0; factor && i < l->n; i++) {
        const char *other = ds_lock_is(&l->at[i], "class") ? strrchr(l->at[i].key, ' ') : NULL;
        if (other && strcmp(other, factor) == 0)
            return 1;
    }
    return 0;
}

static int judge_class(void *ctx, const struct ds_lock_line *was, const struct ds_lock_line *is)
{
    struct ds_lock_judging *j = ctx;
    struct ds_lock_verdict *v = j->v;
    const int unstable = is && strcmp(is->value, "unstable") == 0,
              was_unstable = was && strcmp(was->value, "unstable") == 0;
    if (!is || strcmp(is->value, "?") == 0) {
        v->counts.classes_missing += was && strcmp(was->value, "?") != 0;
        return 0;
    }
    if (!was) { /* a kernel that the lock does not have; of a factor that it does not have there is nothing to say */
        if (!knows_factor(j->was, is->key))
            return 0;
        return unstable ? ds_lock_found(j, DS_LOCK_UNSTABLE, was, is, "the lock does not have it")
               : strchr(is->value, '|')
                   ? ds_lock_found(j, DS_LOCK_CLASS, was, is, "the lock does not have it")
                   : 0;
    }
    v->counts.classes++;
    v->allowed_classes += unstable && was_unstable;
    if (unstable != was_unstable)
        return unstable ? ds_lock_found(j, DS_LOCK_UNSTABLE, was, is, "repeats agreed, and do not")
                        : ds_lock_found(j, DS_LOCK_GONE, was, is, "repeats agree that did not");
    if (unstable || !differ(was, is)) {
        v->allowed_classes += !unstable && strchr(was->value, '|') != NULL;
        return 0;
    }
    if (strcmp(was->value, "?") == 0)
        return strchr(is->value, '|')
                   ? ds_lock_found(j, DS_LOCK_CLASS, was, is, "it could not be judged")
                   : 0;
    return judge_borders(j, was, is);
}

/* ---- origins --------------------------------------------------------------------------------- */

/* Whether all values of a class were compared. 1, 0, or -1. */
static int class_is_whole(const struct ds_lock_judging *j, const struct ds_lock_line *was)
{
    const struct ds_lock_line *is = ds_lock_find(j->is, was->key);
    struct ds_lock_borders b;
    if (strcmp(was->value, "?") == 0)
        return 1;
    if (!is || strcmp(is->value, "?") == 0)
        return 0;
    if (!differ(was, is) || strcmp(was->value, "unstable") == 0 ||
        strcmp(is->value, "unstable") == 0)
        return 1;
    return ds_lock_compare_classes(was->value, is->value, &b, j->err) != 0 ? -1 : b.missing == 0;
}

/* Whether an origin of the lock would have shown: its kernel was compared as often, and every class was judged with all its
 * values, as behind a first drift only heal trials let one do it. 1, 0, or -1. */
static int was_looked_for(const struct ds_lock_judging *j, const struct ds_lock_line *was)
{
    const char *kernel = strchr(was->key, ' ') + 1;
    struct ds_buf key = {0};
    ds_buf_printf(&key, "kernel %.*s", (int)strcspn(kernel, " "), kernel);
    const char *a = key.failed ? NULL : ds_lock_get(j->was, key.data),
               *b = key.failed ? NULL : ds_lock_get(j->is, key.data);
    const int fewer = !a || !b || strtoull(b, NULL, 10) < strtoull(a, NULL, 10);
    ds_buf_free(&key);
    if (fewer)
        return 0;
    for (size_t i = 0; i < j->was->n; i++) {
        const struct ds_lock_line *x = &j->was->at[i];
        const int whole = ds_lock_is(x, "class") ? class_is_whole(j, x) : 1;
        if (whole <= 0)
            return whole;
    }
    return 1;
}

static int judge_origin(void *ctx, const struct ds_lock_line *was, const struct ds_lock_line *is)
{
    struct ds_lock_judging *j = ctx;
    struct ds_lock_origin x, y;
    if (!is) {
        const int looked = was_looked_for(j, was);
        j->v->counts.origins_missing += looked == 0;
        return looked > 0 ? ds_lock_found(j, DS_LOCK_GONE, was, is, "it starts no drift any more")
                          : looked;
    }
    j->v->counts.origins++;
    if (!was)
        return ds_lock_found(j, DS_LOCK_ORIGIN, was, is, "it started no drift");
    if (ds_lock_read_origin(was->value, &x) != 0 || ds_lock_read_origin(is->value, &y) != 0)
        return ds_fail(j->err, "'%s' has no value of an origin", was->key);
    int rc = 0, known = 1;
    if (y.layers > x.layers) {
        rc = ds_lock_found(j, DS_LOCK_ORIGIN, was, is, "in %u layers, and was in %u", y.layers,
                           x.layers);
        known = 0;
    }
    if (rc == 0 && strcmp(x.kind, y.kind) != 0) {
        rc = ds_lock_found(j, DS_LOCK_KIND, was, is, "%s, and was %s", y.kind, x.kind);
        known = 0;
    }
    if (rc == 0 && x.sized && y.sized && y.max_ulp > x.max_ulp) {
        rc = ds_lock_found(j, DS_LOCK_BOUND, was, is, "%llu ULP, and was %llu at most",
                           (unsigned long long)y.max_ulp, (unsigned long long)x.max_ulp);
        known = 0;
    }
    j->v->allowed_origins += (size_t)known;
    return rc;
}

/* ---- fields ---------------------------------------------------------------------------------- */

static int judge_fields(struct ds_lock_judging *j)
{
    const struct ds_lock_lines *const side[2] = {j->was, j->is};
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < side[s]->n; i++) {
            const struct ds_lock_line *x = &side[s]->at[i], *other = ds_lock_find(side[!s], x->key);
            if ((s == 1 && other) || !j->terms->field(j->terms->ctx, x->key))
                continue;
            j->v->counts.fields++;
            if (differ(x, other) &&
                ds_lock_found(j, DS_LOCK_FIELD, s ? NULL : x, s ? x : other, "%s",
                              other ? ""
                              : s   ? "the lock does not have it"
                                    : "it is not there any more") != 0)
                return -1;
        }
    return 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int counting_first(const void *pa, const void *pb)
{
    const struct ds_lock_finding *a = pa, *b = pb;
    if (a->counts != b->counts)
        return b->counts - a->counts;
    if (a->kind != b->kind)
        return a->kind - b->kind;
    return strcmp(a->key, b->key);
}

static int was_compared(const struct ds_lock_verdict *v, const struct ds_lock_terms *terms)
{
    switch (terms->what) {
    case DS_ASSERT_TOKENS:
    case DS_ASSERT_TEXT:
        return v->counts.steps > 0;
    case DS_ASSERT_FIELDS:
        return v->counts.fields > 0;
    default:
        /* Classes alone are no bits. */
        return v->counts.tensors + v->counts.tensors_unstable + v->counts.runs > 0;
    }
}

int ds_lock_judge(const struct ds_lock_lines *was, const struct ds_lock_lines *is,
                  const struct ds_lock_terms *terms, struct ds_lock_verdict *out,
                  struct ds_error *err)
{
    memset(out, 0, sizeof *out);
    out->first_token = out->first_logprob = out->worst_logprob = -1;
    struct ds_lock_judging j = {was, is, terms, out, err};
    if (ds_lock_each_line(was, is, "env", add_suspect, &j) != 0 ||
        each_line_done(was, is, "tensor", judge_tensor, &j) != 0 ||
        ds_lock_each_line(was, is, "run", judge_run, &j) != 0 ||
        ds_lock_each_line(was, is, "kernel", judge_kernel, &j) != 0 || judge_counts(&j) != 0 ||
        ds_lock_each_line(was, is, "class", judge_class, &j) != 0 ||
        ds_lock_each_line(was, is, "origin", judge_origin, &j) != 0 ||
        ds_lock_each_line(was, is, "nonfinite", judge_nonfinite, &j) != 0 ||
        ds_lock_judge_steps(&j) != 0)
        return -1;
    if (terms->what == DS_ASSERT_FIELDS && judge_fields(&j) != 0)
        return -1;
    if (out->n_suspects)
        qsort(out->suspects, out->n_suspects, sizeof *out->suspects, heaviest_first);
    if (out->n_findings)
        qsort(out->findings, out->n_findings, sizeof *out->findings, counting_first);
    out->compared = was_compared(out, terms);
    return 0;
}

void ds_lock_verdict_free(struct ds_lock_verdict *v)
{
    free(v->suspects);
    free(v->findings);
    memset(v, 0, sizeof *v);
}
