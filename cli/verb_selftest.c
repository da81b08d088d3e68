/* verb_selftest.c: `driftscope selftest`: known faults, each run through this same program; whether
 * the answer names them, and blames nothing else. Owns the choice and order of cases and the
 * table. */
#include "cli/case_expect.h"
#include "cli/case_run.h"
#include "cli/cli.h"
#include "cli/json.h"

#include "base/mem.h"
#include "base/names.h"
#include "base/program.h"
#include "engine/model.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP_SECONDS = 120 };

/* ---- where the specimens are ----------------------------------------------------------------- */

static int is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Beside the program as it is built, or where it is installed: ../lib/driftscope/specimens. */
static int find_folder(const struct ds_options *o, char *out, size_t size, struct ds_error *err)
{
    static const char *const places[] = {"specimens", "../lib/driftscope/specimens"};
    if (ds_opt_given(o, "specimens")) {
        int n = snprintf(out, size, "%s", ds_opt_text(o, "specimens"));
        if (n < 0 || (size_t)n >= size || !is_folder(out))
            return ds_fail(err, "--specimens: %s is not a folder", ds_opt_text(o, "specimens"));
        return 0;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (ds_program_beside(places[i], out, size, err) == 0 && is_folder(out))
            return 0;
    ds_prefix(err, "no specimens beside this program");
    return ds_hint(err,
                   "`make all` builds them and `make install` installs them; or give --specimens");
}

/* ---- cases ----------------------------------------------------------------------------------- */

struct cases {
    struct ds_case *all;
    size_t n;
    const struct ds_case **chosen;
    size_t n_chosen;
    char plugin[PATH_MAX];
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int case_files(const char *folder, char ***names, size_t *n, struct ds_error *err)
{
    DIR *d = opendir(folder);
    int rc = d ? 0 : ds_fail(err, "cannot open %s: %s", folder, strerror(errno));
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (len < 6 || strcmp(e->d_name + len - 5, ".case") != 0)
            continue;
        rc = ds_grow_by_one(names, *n, sizeof **names, "names", err);
        if (rc == 0 && !((*names)[(*n)++] = strdup(e->d_name)))
            rc = ds_fail(err, "out of memory for names");
    }
    if (d)
        closedir(d);
    if (rc == 0 && *n)
        qsort(*names, *n, sizeof **names, by_text);
    return rc;
}

static int read_cases(const char *folder, struct cases *x, struct ds_error *err)
{
    char **names = NULL, path[PATH_MAX];
    size_t n = 0;
    int rc = case_files(folder, &names, &n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        int len = snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        rc = len < 0 || (size_t)len >= sizeof path
                 ? ds_fail(err, "%s: the path is too long", folder)
                 : ds_case_read(path, &x->all, &x->n, err);
    }
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
    int len = snprintf(x->plugin, sizeof x->plugin, "%s/specimens.so", folder);
    if (rc == 0 && (len < 0 || (size_t)len >= sizeof x->plugin || access(x->plugin, R_OK) != 0))
        rc = ds_fail(err, "%s: no specimens.so that can be read", folder);
    if (rc == 0 && x->n == 0)
        rc = ds_fail(err, "%s: no .case files", folder);
    if (rc == 0 && x->plugin[0] != '/') {
        char whole[PATH_MAX];
        if (!realpath(x->plugin, whole))
            return ds_fail(err, "%s: %s", x->plugin, strerror(errno));
        memcpy(x->plugin, whole, sizeof whole);
    }
    return rc;
}

static int unknown_case(const struct cases *x, const char *id, struct ds_error *err)
{
    const char **ids = ds_calloc(x->n, sizeof *ids, "names", err);
    if (!ids)
        return -1;
    for (size_t i = 0; i < x->n; i++)
        ids[i] = x->all[i].id;
    ds_fail(err, "unknown case '%s'", id);
    int near = ds_nearest(id, ids, x->n);
    if (near >= 0)
        ds_hint(err, "did you mean '%s'? --list prints all", ids[near]);
    else
        ds_hint(err, "--list prints all");
    free(ids);
    return -1;
}

/* The cases named, else all; a name stands for its parts too (O-07: O-07.a, O-07.b). */
static int choose(const struct ds_options *o, struct cases *x, struct ds_error *err)
{
    size_t named = ds_opt_operands(o);
    x->chosen = ds_calloc(x->n * (named ? named : 1), sizeof *x->chosen, "cases", err);
    if (!x->chosen)
        return -1;
    for (size_t i = 0; i < x->n && !named; i++)
        x->chosen[x->n_chosen++] = &x->all[i];
    for (size_t k = 0; k < named; k++) {
        const char *id = ds_opt_operand(o, k);
        size_t before = x->n_chosen, len = strlen(id);
        for (size_t i = 0; i < x->n; i++) {
            const char *own = x->all[i].id;
            if (strncmp(own, id, len) == 0 && (!own[len] || own[len] == '.'))
                x->chosen[x->n_chosen++] = &x->all[i];
        }
        if (x->n_chosen == before)
            return unknown_case(x, id, err);
    }
    return 0;
}

static void shuffle(struct cases *x, uint64_t seed)
{
    for (size_t i = x->n_chosen; i > 1; i--) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t k = (size_t)(seed >> 33) % i;
        const struct ds_case *c = x->chosen[i - 1];
        x->chosen[i - 1] = x->chosen[k];
        x->chosen[k] = c;
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

struct tally {
    size_t right, wrong, skipped;
    struct ds_buf text;
    json_t *list;
};

static const char *text_at(json_t *answer, const char *path)
{
    const char *s = json_string_value(ds_case_value(answer, path));
    return s ? s : "";
}

static void drift_words(json_t *answer, char *out, size_t size)
{
    json_t *d = ds_case_value(answer, "first_drift");
    if (!json_is_object(d)) {
        snprintf(out, size, "%s", text_at(answer, "result"));
        return;
    }
    const char *part = text_at(d, "part");
    snprintf(out, size, "L%02lld %s%s%s %s/%s",
             (long long)json_integer_value(ds_case_value(d, "layer")), text_at(d, "stage"),
             *part ? "/" : "", part, text_at(d, "op"), text_at(d, "variant"));
}

static void add_row(struct tally *t, const struct ds_options *o, const struct ds_case *c,
                    const struct ds_case_outcome *x)
{
    char drift[96];
    drift_words(x->answer, drift, sizeof drift);
    const char *color = ds_cli_color(o, x->right ? DS_ROLE_SAME : DS_ROLE_DRIFT),
               *plain = ds_cli_color(o, DS_ROLE_PLAIN);
    ds_buf_printf(&t->text, "%-7s %s%-7s%s %-42s %-19s %s\n", c->id, color,
                  x->right ? "right" : "WRONG", plain, drift,
                  text_at(x->answer, "first_drift.kind"), c->title);
    for (const char *p = x->why; *p;) {
        size_t n = strcspn(p, "\n");
        ds_buf_printf(&t->text, "        %.*s\n", (int)n, p);
        p += n + (p[n] != '\0');
    }
}

static void add_json(struct tally *t, const struct ds_case *c, const struct ds_case_outcome *x)
{
    json_t *j = json_object(), *drift = ds_case_value(x->answer, "first_drift");
    json_object_set_new(j, "case", json_string(c->id));
    json_object_set_new(j, "title", json_string(c->title));
    json_object_set_new(j, "right", json_boolean(x->right));
    json_object_set_new(j, "why", json_string(x->why));
    json_object_set_new(j, "seconds", json_real(x->seconds));
    json_object_set(j, "first_drift", drift ? drift : json_null());
    json_array_append_new(t->list, j);
}

/* "model NAME": whether that model is in the cache. */
static int lacks(const struct ds_case *c)
{
    char path[PATH_MAX];
    return c->needs && strncmp(c->needs, "model ", 6) == 0 &&
           ds_model_cache_path(c->needs + 6, path, sizeof path) != 0;
}

static int has_choice(const struct ds_case *c)
{
    for (size_t i = 0; i < c->n_steps; i++)
        for (size_t k = 0; k < c->steps[i].argc; k++)
            if (ds_case_has_choice(c->steps[i].argv[k]))
                return 1;
    return 0;
}

static void add_skip(struct tally *t, const struct ds_case *c, const char *why)
{
    t->skipped++;
    ds_buf_printf(&t->text, "%-7s skipped %-42s %-19s %s\n", c->id, why, "", c->title);
    json_t *j = json_object();
    json_object_set_new(j, "case", json_string(c->id));
    json_object_set_new(j, "title", json_string(c->title));
    json_object_set_new(j, "skipped", json_string(why));
    json_array_append_new(t->list, j);
}

static int run_all(const struct ds_options *o, const struct cases *x,
                   const struct ds_case_setting *s, struct tally *t, struct ds_error *err)
{
    for (size_t i = 0; i < x->n_chosen; i++) {
        const struct ds_case *c = x->chosen[i];
        struct ds_case_outcome out;
        ds_cli_progress(o, c->id, (double)i, (double)x->n_chosen);
        if (lacks(c)) {
            add_skip(t, c, "the model is not in the cache");
            continue;
        }
        if (s->healthy && !has_choice(c)) {
            add_skip(t, c, "nothing in it can be healthy");
            continue;
        }
        if (ds_case_run(c, s, &out, err) != 0)
            return -1;
        *(out.right ? &t->right : &t->wrong) += 1;
        add_row(t, o, c, &out);
        add_json(t, c, &out);
        ds_case_outcome_free(&out);
    }
    ds_cli_progress(o, "", -1, 1);
    return 0;
}

static void sum_up(const struct ds_case_setting *s, struct tally *t)
{
    size_t run = t->right + t->wrong;
    if (s->healthy)
        ds_buf_printf(&t->text, "\nhealthy kernels in the place of every specimen: ");
    else
        ds_buf_puts(&t->text, "\n");
    ds_buf_printf(&t->text, "%zu of %zu %s", t->right, run,
                  s->healthy ? "without a finding" : "named right, nothing else blamed");
    if (t->skipped)
        ds_buf_printf(&t->text, ", %zu skipped", t->skipped);
    ds_buf_puts(&t->text, "\n");
}

static int as_json(const struct ds_case_setting *s, struct tally *t, struct ds_buf *out,
                   struct ds_error *err)
{
    ds_json_begin();
    json_t *j = json_object();
    json_object_set_new(j, "schema", json_string("driftscope.selftest/1"));
    json_object_set_new(j, "healthy", json_boolean(s->healthy));
    json_object_set_new(j, "right", json_integer((json_int_t)t->right));
    json_object_set_new(j, "wrong", json_integer((json_int_t)t->wrong));
    json_object_set_new(j, "skipped", json_integer((json_int_t)t->skipped));
    json_object_set(j, "cases", t->list);
    return ds_json_print(j, out, err);
}

static void list_cases(const struct cases *x, struct ds_buf *out)
{
    for (size_t i = 0; i < x->n_chosen; i++) {
        const struct ds_case *c = x->chosen[i];
        ds_buf_printf(out, "%s  %s\n", c->id, c->title);
        for (size_t k = 0; k < c->n_steps; k++) {
            size_t verb = ds_case_verb(&c->steps[k]);
            ds_buf_puts(out, "   ");
            for (size_t w = 0; w < c->steps[k].argc; w++) {
                char *arg = ds_case_argument(c->steps[k].argv[w], 0);
                ds_buf_puts(out, w == verb ? " driftscope " : " ");
                ds_buf_quote(out, arg ? arg : "");
                free(arg);
            }
            ds_buf_puts(out, " --plugin ");
            ds_buf_quote(out, x->plugin);
            ds_buf_puts(out, "\n");
        }
    }
}

static int selftest(const struct ds_options *o, struct cases *x, int *code, struct ds_error *err)
{
    char folder[PATH_MAX];
    struct ds_buf out = {0};
    int64_t seed;
    if (find_folder(o, folder, sizeof folder, err) != 0 || read_cases(folder, x, err) != 0 ||
        choose(o, x, err) != 0)
        return -1;
    *code = DS_EXIT_SAME;
    if (ds_opt_flag(o, "list")) {
        list_cases(x, &out);
        int rc = ds_cli_emit(o, &out, err);
        ds_buf_free(&out);
        return rc;
    }
    if (ds_opt_given(o, "shuffle")) {
        if (ds_opt_int(o, "shuffle", 0, INT64_MAX, &seed, err) != 0)
            return -1;
        shuffle(x, (uint64_t)seed);
    }
    struct ds_case_setting s = {x->plugin, ds_opt_flag(o, "explain"), ds_opt_flag(o, "healthy"),
                                STEP_SECONDS};
    struct tally t = {.list = json_array()};
    ds_buf_printf(&t.text, "%-7s %-7s %-42s %-19s %s\n", "case", "named", "first drift", "kind",
                  "what");
    int rc = run_all(o, x, &s, &t, err);
    sum_up(&s, &t);
    if (rc == 0 && ds_opt_flag(o, "json"))
        rc = as_json(&s, &t, &out, err);
    if (rc == 0)
        rc = ds_cli_emit(o, ds_opt_flag(o, "json") ? &out : &t.text, err);
    *code = t.wrong ? DS_EXIT_DRIFT : t.right ? DS_EXIT_SAME : DS_EXIT_ERROR;
    json_decref(t.list);
    ds_buf_free(&t.text);
    ds_buf_free(&out);
    return rc;
}

int ds_verb_selftest(const struct ds_options *o)
{
    struct ds_error err = {{0}, {0}};
    struct cases x = {0};
    int code, rc = selftest(o, &x, &code, &err);
    ds_cases_free(x.all, x.n);
    free(x.chosen);
    return rc == 0 ? ds_cli_exit(o, code) : ds_cli_error(o, &err);
}
