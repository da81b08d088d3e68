/* verb_lock.c: `driftscope lock`: writes golden digests: a new lock, one more entry, or an entry made anew, with what
 * changed in it. Owns the file; the sweep is the engine's, the lines are dumps/lock's. */
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/lock.h"
#include "cli/require.h"
#include "cli/verdict.h"

#include "base/plural.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct locking {
    const struct ds_options *o;
    const char *path, *record; /* record: made of one; NULL: of a sweep */
    int add, update;
    struct ds_lock lock;
    struct ds_lock_lines question, answer;
    struct ds_run_plan plan;
    int planned;
    const struct ds_lock_entry *entry; /* that was made */
    struct ds_lock_lines old;          /* that it took the place of */
    char *old_name;                    /* where that was another one; NULL: it was not */
};

/* ---- the answer ------------------------------------------------------------------------------ */

/* With --add and --update the lock says what is asked. */
static int check_options(const struct locking *k, struct ds_error *err)
{
    static const char *const asking[] = {
        "prompt",     "file",        "tokens", "chat",      "steps",  "repeat",
        "weights",    "tokens-from", "load",   "page-size", "poison", "position-offset",
        "all-logits", "temperature", "top-k",  "top-p",     "min-p",  "repetition-penalty",
        "sample-seed"};
    const char *given = NULL;
    if (k->add && k->update)
        return ds_fail(err, "--add makes a new entry, --update replaces one: give one of them");
    if (!k->add && !k->update && !k->record)
        return 0;
    for (size_t i = 0; i < sizeof asking / sizeof asking[0]; i++)
        given = ds_opt_given(k->o, asking[i]) ? asking[i] : given;
    for (int f = 0; f < DS_FACTOR_COUNT; f++)
        given = ds_opt_given(k->o, ds_factor_names[f]) ? ds_factor_names[f] : given;
    return given ? ds_fail(err, "--%s cannot be given here: the %s says what is asked", given,
                           k->record ? "record" : "lock")
                 : 0;
}

static int take_answer(struct locking *k, const struct ds_source *s, struct ds_error *err)
{
    struct ds_verdict v;
    if (ds_lock_ask(s, &k->question, err) != 0)
        return -1;
    if ((k->add || k->update) &&
        ds_lock_same_question(&k->lock, &k->question, k->record ? k->record : "this run", err) != 0)
        return -1;
    if (ds_verdict_make(s, &v, err) != 0)
        return -1;
    const struct ds_lock_lines *q = k->add || k->update ? &k->lock.question : &k->question;
    const int rc = ds_lock_answer(s, &v, q, NULL, &k->answer, err);
    ds_verdict_free(&v);
    return rc;
}

static int from_record(struct locking *k, struct ds_error *err)
{
    struct ds_record *r;
    struct ds_source s;
    if (ds_cli_require_nothing(k->o, "a record", err) != 0 ||
        ds_record_open(k->record, &r, err) != 0)
        return -1;
    ds_source_record(&s, r);
    int rc = ds_record_damaged(r) + ds_record_incomplete(r)
                 ? ds_fail(err, "trials of the record are cut short or damaged")
                 : take_answer(k, &s, err);
    if (rc != 0 && !(k->add || k->update))
        ds_prefix(err, "%s", k->record);
    ds_record_close(r);
    return rc;
}

static int from_sweep(struct locking *k, int *interrupted, struct ds_error *err)
{
    struct ds_kept kept = {0};
    int rc = k->add || k->update ? ds_lock_plan(k->o, &k->lock, &k->plan, err)
                                 : ds_run_plan_new(k->o, &k->plan, err);
    k->planned = 1;
    ds_lock_wants(&k->plan.options);
    if (rc == 0 && k->add)
        rc = ds_lock_agrees(&k->lock, err); /* before the time is spent */
    rc = rc ? rc
            : ds_cli_require(k->o, &k->plan.header,
                             k->add || k->update ? "a lock of --kernels" : "--kernels", err);
    rc = rc ? rc : ds_lock_sweep(k->o, &k->plan, &kept, interrupted, err);
    if (rc == 0 && !*interrupted) {
        const struct ds_source s = ds_kept_source(&kept);
        rc = take_answer(k, &s, err);
    }
    ds_kept_free(&kept);
    return rc;
}

/* ---- the file -------------------------------------------------------------------------------- */

static int is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static int open_lock(struct locking *k, struct ds_error *err)
{
    if (k->add || k->update)
        return ds_lock_read(k->path, &k->lock, err);
    if (is_there(k->path) && !ds_opt_flag(k->o, "force")) {
        ds_fail(err, "%s: is there already", k->path);
        return ds_hint(err, "--add makes one more entry in it, --update an entry anew, --force "
                            "another lock");
    }
    return ds_cli_check_file(k->path, err);
}

/* What an entry with these lines would be called, or that with a number that is free. */
static int free_name(const struct locking *k, const struct ds_lock_lines *lines, char *name,
                     size_t size)
{
    char base[100];
    ds_lock_name(lines, base, sizeof base);
    snprintf(name, size, "%s", base);
    for (int i = 2; ds_lock_entry(&k->lock, name) && i < 10000; i++)
        snprintf(name, size, "%s-%d", base, i);
    return ds_lock_entry(&k->lock, name) ? -1 : 0;
}

static int name_entry(const struct locking *k, char *name, size_t size, struct ds_error *err)
{
    const char *given;
    if (ds_lock_entry_option(k->o, &given, err) != 0)
        return -1;
    if (!given)
        return free_name(k, &k->answer, name, size) == 0
                   ? 0
                   : ds_fail(err, "%s: has too many entries", k->path);
    if (ds_lock_entry(&k->lock, given))
        return ds_fail(err, "%s: entry %s is there already", k->path, given);
    snprintf(name, size, "%s", given);
    return 0;
}

static int add_entry(struct locking *k, struct ds_error *err)
{
    char name[128];
    for (size_t i = 0; i < k->lock.n_entries; i++)
        if (ds_lock_distance(&k->lock.entries[i].lines, &k->answer) == 0) {
            ds_fail(err, "%s: entry %s has this environment already", k->path,
                    k->lock.entries[i].name);
            return ds_hint(err, "--update makes it anew");
        }
    if (name_entry(k, name, sizeof name, err) != 0)
        return -1;
    struct ds_lock_entry *e = ds_lock_new_entry(&k->lock, name, err);
    if (!e)
        return -1;
    e->lines = k->answer;
    k->answer = (struct ds_lock_lines){0};
    k->entry = e;
    return 0;
}

/* An entry that was named by its machine and core, and now holds those of another one, is named by these. */
static int rename_entry(struct locking *k, struct ds_lock_entry *e, struct ds_error *err)
{
    char was[100], is[100], name[128];
    const size_t n = (ds_lock_name(&k->old, was, sizeof was), strlen(was));
    ds_lock_name(&e->lines, is, sizeof is);
    const char *rest = strncmp(e->name, was, n) == 0 ? e->name + n : "?";
    const int numbered = rest[0] == '-' && rest[1] && rest[1 + strspn(rest + 1, "0123456789")] == 0;
    if (strcmp(was, is) == 0 || (rest[0] && !numbered))
        return 0;
    if (free_name(k, &e->lines, name, sizeof name) != 0)
        return ds_fail(err, "%s: has too many entries", k->path);
    k->old_name = e->name;
    if (!(e->name = strdup(name))) {
        e->name = k->old_name;
        k->old_name = NULL;
        return ds_fail(err, "out of memory for a lock");
    }
    return 0;
}

/* --entry, or the nearest one. */
static int replace_entry(struct locking *k, struct ds_error *err)
{
    const char *given;
    if (ds_lock_entry_option(k->o, &given, err) != 0)
        return -1;
    struct ds_lock_entry *e = given ? ds_lock_entry(&k->lock, given)
                                    : &k->lock.entries[ds_lock_nearest(&k->lock, &k->answer)];
    if (!e)
        return ds_fail(err, "%s: has no entry %s", k->path, given);
    k->old = e->lines;
    e->lines = k->answer;
    k->answer = (struct ds_lock_lines){0};
    k->entry = e;
    return given ? 0 : rename_entry(k, e, err);
}

static int put_entry(struct locking *k, struct ds_error *err)
{
    if (k->update)
        return replace_entry(k, err);
    if (!k->add) {
        k->lock.question = k->question;
        k->question = (struct ds_lock_lines){0};
    }
    return add_entry(k, err);
}

static int write_lock(struct locking *k, struct ds_error *err)
{
    struct ds_buf text = {0};
    if (ds_lock_agrees(&k->lock, err) != 0)
        return -1;
    ds_lock_text(&k->lock, &text);
    int rc = text.failed ? ds_fail(err, "out of memory for a lock")
                         : ds_cli_write_file(k->path, &text, err);
    ds_buf_free(&text);
    return rc;
}

/* ---- the result ------------------------------------------------------------------------------ */

/* Calls fn for every line of the entry that changed; returns how many there are. */
static size_t each_change(const struct locking *k,
                          void (*fn)(void *ctx, const char *key, const char *was, const char *is),
                          void *ctx)
{
    const struct ds_lock_lines *is = &k->entry->lines;
    size_t n = 0;
    if (k->old_name) {
        n++;
        if (fn)
            fn(ctx, "entry", k->old_name, k->entry->name);
    }
    for (size_t i = 0; i < k->old.n; i++) {
        const char *now = ds_lock_get(is, k->old.at[i].key);
        if (now && strcmp(now, k->old.at[i].value) == 0)
            continue;
        n++;
        if (fn)
            fn(ctx, k->old.at[i].key, k->old.at[i].value, now);
    }
    for (size_t i = 0; k->update && i < is->n; i++) {
        if (ds_lock_find(&k->old, is->at[i].key))
            continue;
        n++;
        if (fn)
            fn(ctx, is->at[i].key, NULL, is->at[i].value);
    }
    return n;
}

static void change_text(void *ctx, const char *key, const char *was, const char *is)
{
    struct ds_buf *out = ctx;
    if (was)
        ds_buf_printf(out, "- %s %s\n", key, was);
    if (is)
        ds_buf_printf(out, "+ %s %s\n", key, is);
}

static void change_json(void *ctx, const char *key, const char *was, const char *is)
{
    json_t *x = json_object();
    json_object_set_new(x, "line", ds_json_text(key));
    json_object_set_new(x, "was", ds_json_text(was));
    json_object_set_new(x, "is", ds_json_text(is));
    json_array_append_new(ctx, x);
}

static const char *result_of(const struct locking *k)
{
    return k->add                       ? "added"
           : !k->update                 ? "made"
           : each_change(k, NULL, NULL) ? "updated"
                                        : "unchanged";
}

static const char *count_of(const struct locking *k, const char *key)
{
    const char *n = ds_lock_get(&k->entry->lines, key);
    return n ? n : "0";
}

/* What -m says: of a record only a model with seeded weights has a name that says where it is. */
static const char *model_of(const struct locking *k)
{
    const char *name = ds_lock_get(&k->lock.question, "model name");
    if (!k->record)
        return ds_opt_text(k->o, "model");
    return name && strncmp(name, "random:", 7) == 0 ? name : NULL;
}

static void result_text(const struct locking *k, struct ds_buf *out)
{
    if (k->update) {
        ds_buf_printf(out, "entry %s\n", k->entry->name);
        each_change(k, change_text, out);
    } else {
        ds_buf_printf(out, "holds         %s arms, %s trials, %s sites, %s rows; %zu lines\n",
                      count_of(k, "count arms"), count_of(k, "count trials"),
                      count_of(k, "count sites"), count_of(k, "count rows"), k->entry->lines.n);
        ds_buf_puts(out, "next          ");
        ds_cli_caller.begin(out, "verify", model_of(k));
        ds_buf_quote(out, k->path);
        ds_buf_puts(out, "\n");
    }
    ds_buf_printf(out, "key           %s\n", count_of(k, "key"));
    ds_buf_puts(out, "lock: ");
    ds_buf_escape(out, k->path, (size_t)-1);
    ds_buf_printf(out, ": entry %s %s", k->entry->name, result_of(k));
    if (k->update && each_change(k, NULL, NULL))
        ds_buf_printf(out, ": %zu line%s changed", each_change(k, NULL, NULL),
                      ds_plural((long long)each_change(k, NULL, NULL)));
    ds_buf_puts(out, "\n");
    if (k->old_name)
        ds_cli_note(k->o,
                    "entry %s was of another machine or core, and is gone; --add keeps it beside "
                    "a new one",
                    k->old_name);
}

static int result_json(const struct locking *k, struct ds_buf *out, struct ds_error *err)
{
    ds_json_begin();
    json_t *j = json_object(), *changes = json_array();
    json_object_set_new(j, "schema", json_string("driftscope.lock/1"));
    json_object_set_new(j, "result", json_string(result_of(k)));
    json_object_set_new(j, "lock", ds_json_text(k->path));
    json_object_set_new(j, "entry", ds_json_text(k->entry->name));
    json_object_set_new(j, "entries", ds_json_whole(k->lock.n_entries));
    json_object_set_new(j, "key", ds_json_text(count_of(k, "key")));
    json_object_set_new(j, "lines", ds_json_whole(k->entry->lines.n));
    each_change(k, change_json, changes);
    json_object_set_new(j, "changes", changes);
    return ds_json_print(j, out, err);
}

static int report(const struct locking *k, struct ds_error *err)
{
    struct ds_buf out = {0};
    int rc = 0;
    if (ds_opt_flag(k->o, "json"))
        rc = result_json(k, &out, err);
    else
        result_text(k, &out);
    if (rc == 0)
        rc = ds_cli_emit(k->o, &out, err);
    ds_buf_free(&out);
    return rc;
}

int ds_verb_lock(const struct ds_options *o)
{
    struct locking k = {.o = o,
                        .path = ds_opt_given(o, "output") ? ds_opt_text(o, "output") : "drift.lock",
                        .record = ds_opt_operands(o) ? ds_opt_operand(o, 0) : NULL,
                        .add = ds_opt_flag(o, "add"),
                        .update = ds_opt_flag(o, "update")};
    struct ds_error err = {{0}, {0}};
    int interrupted = 0, code = DS_EXIT_SAME;
    ds_cli_stop_on_signal();
    if (check_options(&k, &err) != 0 || open_lock(&k, &err) != 0 ||
        (k.record ? from_record(&k, &err) : from_sweep(&k, &interrupted, &err)) != 0)
        code = ds_cli_error(o, &err);
    else if (interrupted) {
        ds_cli_note(o, "interrupted: %s was not written", k.path);
        code = DS_EXIT_INTERRUPTED;
    } else if (put_entry(&k, &err) != 0 ||
               ((!k.update || each_change(&k, NULL, NULL)) && write_lock(&k, &err) != 0) ||
               report(&k, &err) != 0)
        code = ds_cli_error(o, &err);
    if (k.planned)
        ds_run_plan_free(&k.plan);
    ds_lock_lines_free(&k.question);
    ds_lock_lines_free(&k.answer);
    ds_lock_lines_free(&k.old);
    free(k.old_name);
    ds_lock_free(&k.lock);
    return code;
}
