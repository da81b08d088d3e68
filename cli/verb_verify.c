/* verb_verify.c: `driftscope verify LOCK [RECORD|LOCK]`: asks again what a lock asked, and holds the answer against it.
 * Owns the order of things; the sweep is the engine's, the judgement dumps/lock's. */
#include "cli/cli.h"
#include "cli/lock.h"
#include "cli/require.h"

#include <stdio.h>
#include <string.h>

/* Whether a file says that it is a lock. */
static int says_lock(const char *path)
{
    char begin[sizeof DS_LOCK_FORMAT] = "";
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(begin, 1, sizeof begin - 1, f) : 0;
    if (f)
        fclose(f);
    return n == sizeof begin - 1 && memcmp(begin, DS_LOCK_FORMAT, n) == 0;
}

static int by_record(const struct ds_options *o, const struct ds_lock *l, const char *path,
                     int *code, struct ds_error *err)
{
    struct ds_record *r;
    struct ds_source s;
    if (ds_record_open(path, &r, err) != 0)
        return -1;
    ds_source_record(&s, r);
    int rc = ds_lock_verify(o, l, &s, NULL, path, code, err);
    if (rc == 0 && ds_record_damaged(r) && *code == DS_EXIT_SAME) {
        *code = ds_cli_exit(o, DS_EXIT_ERROR);
        ds_cli_note(o, "damaged trials left out: %zu; exit code %d", ds_record_damaged(r), *code);
    }
    ds_record_close(r);
    return rc;
}

/* The pair of entries with the most in common. */
static const struct ds_lock_entry *nearest_entry(const struct ds_lock *l, const struct ds_lock *b)
{
    const struct ds_lock_entry *best = NULL;
    uint64_t least = 0;
    for (size_t i = 0; i < b->n_entries; i++) {
        const int64_t k = ds_lock_nearest(l, &b->entries[i].lines);
        const uint64_t d = ds_lock_distance(&l->entries[k].lines, &b->entries[i].lines);
        if (!best || d < least) {
            best = &b->entries[i];
            least = d;
        }
    }
    return best;
}

static int by_lock(const struct ds_options *o, const struct ds_lock *l, const char *path, int *code,
                   struct ds_error *err)
{
    struct ds_lock b;
    int rc = ds_lock_read(path, &b, err);
    rc = rc ? rc : ds_lock_agrees(l, err);
    rc = rc ? rc : ds_lock_agrees(&b, err);
    rc = rc ? rc : ds_lock_same_question(l, &b.question, path, err);
    rc = rc ? rc : ds_lock_verify_lines(o, l, &nearest_entry(l, &b)->lines, path, code, err);
    ds_lock_free(&b);
    return rc;
}

/* A line of the question that this program does not know, as a newer one may write it, was not asked. */
static int asked_all(const struct ds_lock *l, const struct ds_source *s, struct ds_error *err)
{
    struct ds_lock_lines mine = {0};
    int rc = ds_lock_ask(s, &mine, err) != 0 ? -1 : 0;
    rc = rc ? rc : ds_lock_same_question(l, &mine, "this run", err);
    ds_lock_lines_free(&mine);
    return rc;
}

static int by_running(const struct ds_options *o, const struct ds_lock *l, int *code,
                      struct ds_error *err)
{
    struct ds_run_plan p;
    struct ds_kept kept = {0};
    int interrupted = 0, rc = ds_lock_plan(o, l, &p, err);
    rc = rc ? rc : ds_lock_agrees(l, err); /* before the time is spent */
    rc = rc ? rc : ds_cli_require(o, &p.header, "a lock of --kernels", err);
    rc = rc ? rc : ds_lock_sweep(o, &p, &kept, &interrupted, err);
    if (rc == 0 && interrupted) {
        ds_cli_note(o, "interrupted: nothing was compared");
        *code = DS_EXIT_INTERRUPTED;
    } else if (rc == 0) {
        const struct ds_source s = ds_kept_source(&kept);
        rc = asked_all(l, &s, err);
        rc = rc ? rc : ds_lock_verify(o, l, &s, p.tokenizer, "", code, err);
    }
    ds_kept_free(&kept);
    ds_run_plan_free(&p);
    return rc;
}

int ds_verb_verify(const struct ds_options *o)
{
    struct ds_lock l;
    struct ds_error err = {{0}, {0}};
    const char *other = ds_opt_operands(o) > 1 ? ds_opt_operand(o, 1) : NULL;
    int code = DS_EXIT_ERROR;
    ds_cli_stop_on_signal();
    int rc = ds_lock_read(ds_opt_operand(o, 0), &l, &err);
    if (rc == 0 && other)
        rc = ds_cli_require_nothing(o, "a record or a lock", &err);
    if (rc == 0)
        rc = !other             ? by_running(o, &l, &code, &err)
             : says_lock(other) ? by_lock(o, &l, other, &code, &err)
                                : by_record(o, &l, other, &code, &err);
    ds_lock_free(&l);
    return rc != 0 ? ds_cli_error(o, &err) : code;
}
