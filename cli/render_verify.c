/* render_verify.c: what came of holding a run against a lock, as text and as JSON. Lays out; judges nothing. */
#include "cli/json.h"
#include "cli/lock.h"
#include "cli/verdict.h"

#include "base/plural.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MOST_LINES = 12 };

static void head(const struct ds_lock_view *w, const char *name, struct ds_buf *out)
{
    ds_buf_printf(out, "%s%-14s%s", ds_cli_color(w->o, DS_ROLE_HEAD), name,
                  ds_cli_color(w->o, DS_ROLE_PLAIN));
}

static void plural(struct ds_buf *out, size_t n, const char *what)
{
    ds_buf_printf(out, "%zu %s%s", n, what, n == 1 ? "" : "s");
}

static void add_environment(const struct ds_lock_view *w, struct ds_buf *out)
{
    const struct ds_lock_verdict *v = w->v;
    head(w, "environment", out);
    if (v->n_suspects == 0) {
        ds_buf_printf(out, "that of the entry (%zu lines)\n", v->n_environment);
        return;
    }
    ds_buf_printf(out, "another one: %zu of %zu lines\n", v->n_suspects, v->n_environment);
    for (size_t i = 0; i < v->n_suspects && i < MOST_LINES; i++) {
        const struct ds_lock_suspect *x = &v->suspects[i];
        ds_buf_printf(out, "%14s%s: %.200s, was %.200s\n", "", x->name, x->is ? x->is : "unset",
                      x->was ? x->was : "unset");
    }
    if (v->n_suspects > MOST_LINES)
        ds_buf_printf(out, "%14sand %zu more (--json lists all)\n", "", v->n_suspects - MOST_LINES);
}

static void add_coverage(const struct ds_lock_view *w, struct ds_buf *out)
{
    const struct ds_lock_verdict *v = w->v;
    size_t named = 0;
    head(w, "compared", out);
    ds_buf_printf(out, "%zu of the lock's ", w->arms);
    plural(out, w->arms_of, "arm");
    ds_buf_puts(out, ", ");
    plural(out, v->counts.tensors, "tensor");
    ds_buf_puts(out, ", ");
    plural(out, v->counts.runs, "run");
    ds_buf_printf(out, ", %zu list%s of classes, ", v->counts.classes,
                  ds_plural((long long)v->counts.classes));
    plural(out, v->counts.origins, "origin");
    ds_buf_puts(out, ", ");
    plural(out, v->counts.steps, "step");
    ds_buf_puts(out, "\n");
    if (v->counts.fields)
        ds_buf_printf(out, "%14s%zu lines that --assert looks for\n", "", v->counts.fields);
    if (v->counts.tensors_missing + v->counts.runs_missing + v->counts.classes_missing +
        v->counts.origins_missing)
        ds_buf_printf(
            out,
            "%14snot compared: %zu tensors, %zu runs, %zu origins; classes of %zu kernels and "
            "factors, or some of their values\n",
            "", v->counts.tensors_missing, v->counts.runs_missing, v->counts.origins_missing,
            v->counts.classes_missing);
    for (size_t i = 0; w->has && i < w->arms_of; i++)
        if (!w->has[i] && named++ < MOST_LINES) {
            char key[32];
            snprintf(key, sizeof key, "arm %zu", i);
            const char *values = ds_lock_get(&w->lock->question, key);
            ds_buf_printf(out, "%14snot compared: %s of the lock, %.200s\n", "", key,
                          values ? values : "?");
        }
    if (named > MOST_LINES)
        ds_buf_printf(out, "%14sand %zu more arms\n", "", named - MOST_LINES);
    if (v->counts.tensors_unstable)
        ds_buf_printf(out, "%14sno bits to compare in %zu tensors: repeats disagree there\n", "",
                      v->counts.tensors_unstable);
}

/* "layer 0 q_proj" of "tensor 0 q_proj", before the layers "embed". */
static void add_place(const char *key, struct ds_buf *out)
{
    const char *layer = strchr(key, ' '), *stage = layer ? strchr(layer + 1, ' ') : NULL;
    if (!stage)
        ds_buf_puts(out, key);
    else if (layer[1] == '-')
        ds_buf_puts(out, stage + 1);
    else
        ds_buf_printf(out, "layer %.*s%s", (int)(stage - layer - 1), layer + 1, stage);
}

/* The line of the first tensor with other bits, its kernel, and who stands beside it. */
static void add_first(const struct ds_lock_view *w, struct ds_buf *out)
{
    const struct ds_lock_verdict *v = w->v;
    if (!v->first)
        return;
    head(w, "first drift", out);
    add_place(v->first->key, out);
    ds_buf_printf(out, ", %.*s: origin\n", (int)strcspn(v->first->value, " "), v->first->value);
    ds_buf_printf(out, "%14sthe %zu tensors before it have the lock's bits; %zu of %zu have not\n",
                  "", v->before, v->counts.tensors_differ, v->counts.tensors);
    if (w->alike)
        ds_buf_printf(out, "%14sthe bits are those of entry %s\n", "", w->alike);
    if (v->n_suspects == 0) {
        ds_buf_printf(
            out, "%14sthe environment is the lock's: a kernel, or the engine, is another one\n",
            "");
        return;
    }
    ds_buf_printf(out, "%14ssuspect: ", "");
    for (size_t i = 0; i < v->n_suspects && i < 4 && v->suspects[i].weight == v->suspects[0].weight;
         i++)
        ds_buf_printf(out, "%s%s", i ? ", " : "", v->suspects[i].name);
    ds_buf_puts(out, "\n");
}

static void add_finding(const struct ds_lock_view *w, const struct ds_lock_finding *f,
                        struct ds_buf *out)
{
    head(w, f->counts ? ds_lock_finding_name(f->kind) : "note", out);
    if (f->kind == DS_LOCK_TENSOR)
        add_place(f->key, out);
    else
        ds_buf_puts(out, f->key);
    if (f->kind == DS_LOCK_CLASS || f->kind == DS_LOCK_GONE || f->kind == DS_LOCK_FIELD ||
        f->kind == DS_LOCK_UNSTABLE)
        ds_buf_printf(out, ": %.120s, was %.120s", f->is ? f->is : "nothing",
                      f->was ? f->was : "nothing");
    if (f->note[0])
        ds_buf_printf(out, "\n%14s%s", "", f->note);
    ds_buf_puts(out, "\n");
}

/* Of what breaks nothing, borders and kernels are told one by one, the rest in numbers. */
static int is_counted(const struct ds_lock_finding *f)
{
    return !f->counts && (f->kind == DS_LOCK_RUN ||
                          (f->kind == DS_LOCK_GONE && strncmp(f->key, "origin", 6) == 0));
}

static void add_numbers(const struct ds_lock_view *w, struct ds_buf *out)
{
    size_t runs = 0, origins = 0;
    for (size_t i = 0; i < w->v->n_findings; i++) {
        const struct ds_lock_finding *f = &w->v->findings[i];
        runs += is_counted(f) && f->kind == DS_LOCK_RUN;
        origins += is_counted(f) && f->kind == DS_LOCK_GONE;
    }
    if (runs) {
        head(w, "note", out);
        plural(out, runs, "arm");
        ds_buf_puts(out, " beside the base arm with other bits\n");
    }
    if (origins) {
        head(w, "note", out);
        plural(out, origins, "drift");
        ds_buf_puts(out, " that the lock allows and that do not start any more\n");
    }
}

static void add_findings(const struct ds_lock_view *w, struct ds_buf *out)
{
    size_t of[2] = {0};
    for (size_t i = 0; i < w->v->n_findings; i++) {
        const struct ds_lock_finding *f = &w->v->findings[i];
        if ((f->kind == DS_LOCK_TENSOR && f->counts) || is_counted(f))
            continue; /* the first is told as the first drift */
        if (of[f->counts]++ < MOST_LINES)
            add_finding(w, f, out);
    }
    for (int counts = 1; counts >= 0; counts--)
        if (of[counts] > MOST_LINES)
            ds_buf_printf(out, "%14sand %zu more %s (--json lists all)\n", "",
                          of[counts] - MOST_LINES, counts ? "findings" : "notes");
    add_numbers(w, out);
}

static void add_tokens(const struct ds_lock_view *w, struct ds_buf *out)
{
    const struct ds_lock_verdict *v = w->v;
    if (v->counts.steps == 0)
        return;
    head(w, "tokens", out);
    ds_buf_printf(out, "%zu of %zu choices equal", v->counts.steps - v->counts.tokens_differ,
                  v->counts.steps);
    if (v->first_token >= 0)
        ds_buf_printf(out, "; the first other one at step %d", v->first_token);
    ds_buf_puts(out, "\n");
}

static void add_logprobs(const struct ds_lock_view *w, struct ds_buf *out)
{
    const struct ds_lock_verdict *v = w->v;
    const struct ds_logprob_stats *s = &v->logprobs;
    if (s->n == 0)
        return;
    head(w, "logprobs", out);
    if (s->max == 0 && v->kl == 0) {
        ds_buf_puts(out, "equal at ");
        plural(out, s->n, "step");
        ds_buf_puts(out, "\n");
        return;
    }
    ds_buf_printf(out, "KL %.3g nats a step, at most %.3g; k1 %.3g, k2 %.3g, k3 %.3g\n", v->kl,
                  v->kl_most, s->k1, s->k2, s->k3);
    ds_buf_printf(
        out,
        "%14s|difference| mean %.3g, p50 %.3g, p99 %.3g, max %.3g at step %d; first at step %d\n",
        "", s->mean, s->p50, s->p99, s->max, v->worst_logprob, v->first_logprob);
    ds_buf_printf(
        out, "%14sagainst run-to-run noise (%zu values): larger with probability %.3g, p = %.3g\n",
        "", v->noise_samples, v->noise.larger, v->noise.p);
}

static void add_allowed(const struct ds_lock_view *w, struct ds_buf *out)
{
    const struct ds_lock_verdict *v = w->v;
    if (v->allowed_classes + v->allowed_origins == 0)
        return;
    head(w, "allowed", out);
    ds_buf_puts(out, "drift that the lock knows: ");
    plural(out, v->allowed_classes, "kernel");
    ds_buf_puts(out, " with classes, ");
    plural(out, v->allowed_origins, "origin");
    ds_buf_puts(out, "\n");
}

static void add_next(const struct ds_lock_view *w, struct ds_buf *out)
{
    if (w->result == DS_RESULT_SAME || w->of_locks)
        return;
    head(w, "next", out);
    if (w->result == DS_RESULT_INCOMPARABLE) {
        ds_cli_caller.begin(out, "verify",
                            ds_opt_given(w->o, "model") ? ds_opt_text(w->o, "model") : NULL);
        ds_buf_quote(out, w->lock->file);
        ds_buf_puts(out, "   (runs all that the lock asks)\n");
        return;
    }
    if (w->record && w->record[0]) {
        ds_cli_caller.begin(out, "show", NULL);
        ds_buf_quote(out, w->record);
    } else {
        ds_cli_caller.begin(out, w->v->n_suspects ? "lock --add" : "lock --update",
                            ds_opt_text(w->o, "model"));
        ds_buf_puts(out, "-o ");
        ds_buf_quote(out, w->lock->file);
        ds_buf_puts(out, "   (if this is how it should be)");
    }
    ds_buf_puts(out, "\n");
}

/* What the lock has and this answer has not is no evidence: it belongs to the answer. Classes and origins only where
 * they are not missing because arms are. */
static void add_missing(const struct ds_lock_view *w, struct ds_buf *out)
{
    const size_t arms = w->arms_of > w->arms ? w->arms_of - w->arms : 0;
    const struct {
        size_t n;
        const char *what, *plural;
    } missing[] = {{arms, "arm", "arms"},
                   {w->v->counts.tensors_missing, "tensor", "tensors"},
                   {w->partial && !arms ? w->v->counts.classes_missing : 0, "list of classes",
                    "lists of classes"},
                   {w->partial && !arms ? w->v->counts.origins_missing : 0, "origin", "origins"}};
    size_t left = 0, told = 0;
    for (size_t i = 0; i < 4; i++)
        left += missing[i].n > 0;
    for (size_t i = 0; i < 4; i++)
        if (missing[i].n) {
            ds_buf_printf(out, "%s%zu %s",
                          told == 0          ? "; not compared: "
                          : told + 1 == left ? " and "
                                             : ", ",
                          missing[i].n, missing[i].n == 1 ? missing[i].what : missing[i].plural);
            told++;
        }
    if (told)
        ds_buf_puts(out, " of the lock");
}

static void add_sentence(const struct ds_lock_view *w, struct ds_buf *out)
{
    const struct ds_lock_verdict *v = w->v;
    ds_buf_puts(out,
                ds_cli_color(w->o, w->result == DS_RESULT_SAME ? DS_ROLE_SAME : DS_ROLE_DRIFT));
    ds_buf_printf(out, "verify: %s: ", ds_result_name(w->result));
    if (v->n_counting && v->findings[0].kind == DS_LOCK_TENSOR) {
        ds_buf_puts(out, "first at ");
        add_place(v->first->key, out);
        ds_buf_printf(out, ", %.*s", (int)strcspn(v->first->value, " "), v->first->value);
        if (v->n_suspects)
            ds_buf_printf(out, "; suspect: %s", v->suspects[0].name);
    } else if (v->n_counting) {
        ds_buf_printf(out, "%s: ", v->findings[0].key);
        if (v->findings[0].note[0])
            ds_buf_puts(out, v->findings[0].note);
        else
            ds_buf_printf(out, "%.60s, was %.60s", v->findings[0].is, v->findings[0].was);
    } else {
        ds_buf_printf(out, "%s hold%s", w->assertion, strncmp(w->assertion, "text", 4) ? "" : "s");
        ds_buf_printf(out, " against entry %s", w->entry->name);
        if (v->n_suspects)
            ds_buf_puts(out, ", made in another environment");
        add_missing(w, out);
        if (w->result == DS_RESULT_INCOMPARABLE)
            ds_buf_puts(out, ": --partial says that the rest will do");
    }
    if (v->n_counting > 1)
        ds_buf_printf(out, " (and %zu more)", v->n_counting - 1);
    ds_buf_puts(out, ds_cli_color(w->o, DS_ROLE_PLAIN));
    ds_buf_puts(out, "\n");
}

void ds_lock_verify_text(const struct ds_lock_view *w, struct ds_buf *out)
{
    head(w, "lock", out);
    ds_buf_escape(out, w->lock->file, (size_t)-1);
    ds_buf_printf(out, ", entry %s", w->entry->name);
    if (w->lock->n_entries > 1)
        ds_buf_printf(out, ", the nearest of %zu", w->lock->n_entries);
    ds_buf_puts(out, "\n");
    add_environment(w, out);
    add_coverage(w, out);
    add_first(w, out);
    add_findings(w, out);
    add_tokens(w, out);
    add_logprobs(w, out);
    add_allowed(w, out);
    add_next(w, out);
    add_sentence(w, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *environment_json(const struct ds_lock_verdict *v)
{
    json_t *j = json_object(), *list = json_array();
    json_object_set_new(j, "lines", ds_json_whole(v->n_environment));
    for (size_t i = 0; i < v->n_suspects; i++) {
        json_t *x = json_object();
        json_object_set_new(x, "name", ds_json_text(v->suspects[i].name));
        json_object_set_new(x, "was", ds_json_text(v->suspects[i].was));
        json_object_set_new(x, "is", ds_json_text(v->suspects[i].is));
        json_object_set_new(x, "weight", json_integer(v->suspects[i].weight));
        json_array_append_new(list, x);
    }
    json_object_set_new(j, "differences", list);
    return j;
}

static json_t *compared_json(const struct ds_lock_view *w)
{
    const struct ds_lock_verdict *v = w->v;
    const struct {
        const char *name;
        size_t n;
    } counts[] = {{"arms", w->arms},
                  {"arms_locked", w->arms_of},
                  {"tensors", v->counts.tensors},
                  {"tensors_different", v->counts.tensors_differ},
                  {"tensors_unstable", v->counts.tensors_unstable},
                  {"tensors_missing", v->counts.tensors_missing},
                  {"runs", v->counts.runs},
                  {"runs_different", v->counts.runs_differ},
                  {"runs_missing", v->counts.runs_missing},
                  {"classes", v->counts.classes},
                  {"classes_missing", v->counts.classes_missing},
                  {"origins", v->counts.origins},
                  {"origins_missing", v->counts.origins_missing},
                  {"steps", v->counts.steps},
                  {"fields", v->counts.fields}};
    json_t *j = json_object();
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        json_object_set_new(j, counts[i].name, ds_json_whole(counts[i].n));
    return j;
}

static json_t *first_json(const struct ds_lock_verdict *v)
{
    if (!v->first)
        return json_null();
    json_t *j = json_object();
    struct ds_buf place = {0};
    add_place(v->first->key, &place);
    json_object_set_new(j, "place", ds_json_text(place.data ? place.data : ""));
    json_object_set_new(j, "line", ds_json_text(v->first->key));
    json_object_set_new(j, "kernel", json_stringn(v->first->value, strcspn(v->first->value, " ")));
    json_object_set_new(j, "equal_before", ds_json_whole(v->before));
    ds_buf_free(&place);
    return j;
}

static json_t *findings_json(const struct ds_lock_verdict *v)
{
    json_t *list = json_array();
    for (size_t i = 0; i < v->n_findings; i++) {
        const struct ds_lock_finding *f = &v->findings[i];
        json_t *x = json_object();
        json_object_set_new(x, "what", json_string(ds_lock_finding_name(f->kind)));
        json_object_set_new(x, "counts", json_boolean(f->counts));
        json_object_set_new(x, "line", ds_json_text(f->key));
        json_object_set_new(x, "was", ds_json_text(f->was));
        json_object_set_new(x, "is", ds_json_text(f->is));
        json_object_set_new(x, "note", ds_json_text(f->note));
        json_array_append_new(list, x);
    }
    return list;
}

static json_t *step_json(int32_t step)
{
    return step < 0 ? json_null() : json_integer(step);
}

static json_t *logprobs_json(const struct ds_lock_verdict *v)
{
    const struct ds_logprob_stats *s = &v->logprobs;
    if (s->n == 0)
        return json_null();
    json_t *j = json_object();
    const struct {
        const char *name;
        double x;
    } numbers[] = {
        {"kl", v->kl},     {"kl_most", v->kl_most}, {"k1", s->k1},
        {"k2", s->k2},     {"k3", s->k3},           {"mean_ratio", s->mean_ratio},
        {"mean", s->mean}, {"p50", s->p50},         {"p99", s->p99},
        {"max", s->max},   {"p_noise", v->noise.p}, {"larger_than_noise", v->noise.larger}};
    json_object_set_new(j, "steps", ds_json_whole(s->n));
    json_object_set_new(j, "not_listed", ds_json_whole(s->not_finite));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        json_object_set_new(j, numbers[i].name, ds_json_real(numbers[i].x));
    json_object_set_new(j, "first_divergence", step_json(v->first_logprob));
    json_object_set_new(j, "worst", step_json(v->worst_logprob));
    json_object_set_new(j, "noise_values", ds_json_whole(v->noise_samples));
    return j;
}

int ds_lock_verify_json(const struct ds_lock_view *w, struct ds_buf *out, struct ds_error *err)
{
    const struct ds_lock_verdict *v = w->v;
    ds_json_begin();
    json_t *j = json_object();
    json_object_set_new(j, "schema", json_string("driftscope.verify/1"));
    json_object_set_new(j, "result", json_string(ds_result_name(w->result)));
    json_object_set_new(j, "partial", json_boolean(w->partial));
    json_object_set_new(j, "lock", ds_json_text(w->lock->file));
    json_object_set_new(j, "entry", ds_json_text(w->entry->name));
    json_object_set_new(j, "entries", ds_json_whole(w->lock->n_entries));
    json_object_set_new(j, "record",
                        w->record && w->record[0] ? ds_json_text(w->record) : json_null());
    json_object_set_new(j, "assert", ds_json_text(w->assertion));
    json_object_set_new(j, "key", ds_json_text(ds_lock_get(w->is, "key")));
    json_object_set_new(j, "environment", environment_json(v));
    json_object_set_new(j, "compared", compared_json(w));
    json_object_set_new(j, "first_drift", first_json(v));
    json_object_set_new(j, "bits_of_entry", ds_json_text(w->alike));
    json_object_set_new(j, "findings", findings_json(v));
    json_object_set_new(j, "breaking", ds_json_whole(v->n_counting));
    json_object_set_new(j, "allowed",
                        json_pack("{sIsI}", "kernels_with_classes", (json_int_t)v->allowed_classes,
                                  "origins", (json_int_t)v->allowed_origins));
    json_object_set_new(j, "tokens_different", ds_json_whole(v->counts.tokens_differ));
    json_object_set_new(j, "first_other_token", step_json(v->first_token));
    json_object_set_new(j, "logprobs", logprobs_json(v));
    return ds_json_print(j, out, err);
}
