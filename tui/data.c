/* data.c: what the screen's thread calls (data.h): asking, taking over, waiting. Never reads a file but when
 * opening. */
#include "tui/data_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HOLD = 116 << 20 }; /* with what the program takes beside it less than 200 MB */

/* ---- opening and closing --------------------------------------------------------------------- */

static int copy_path(char **out, const char *path, struct ds_error *err)
{
    if (!path)
        return 0;
    *out = ds_alloc(strlen(path) + 1, "path", err);
    return *out ? (strcpy(*out, path), 0) : -1;
}

static int set_up(struct tui_data *d, const struct tui_data_options *o, struct ds_error *err)
{
    pthread_condattr_t attr;
    d->event[0] = d->event[1] = -1;
    d->follow = o->follow;
    d->take_partial = o->partial;
    d->across_models = o->across_models;
    d->caller = o->caller;
    d->hold = o->hold ? o->hold : HOLD;
    pthread_mutex_init(&d->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d->wake, &attr);
    pthread_condattr_destroy(&attr);
    if (copy_path(&d->path[0], o->path, err) != 0 || copy_path(&d->path[1], o->path_b, err) != 0 ||
        copy_path(&d->moves_to, o->moves_to, err) != 0)
        return -1;
    if (pipe2(d->event, O_CLOEXEC | O_NONBLOCK) != 0)
        return ds_fail(err, "no pipe: %s", strerror(errno));
    return 0;
}

/* Tables of digests come and go, of every size. Left alone, malloc takes the largest that was freed for a sign that all
 * that are smaller may stay in its heap, where they leave holes: of a record that does not fit a fifth of all memory was
 * such holes. Large blocks go back to the system as soon as they are freed. */
static void return_large_blocks(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
}

int tui_data_open(const struct tui_data_options *o, struct tui_data **out, struct ds_error *err)
{
    struct tui_data *d = ds_calloc(1, sizeof *d, "records", err);
    *out = NULL;
    if (!d)
        return -1;
    return_large_blocks();
    int rc = set_up(d, o, err);
    if (rc == 0) {
        data_remember(d);
        d->book = book_open(d, err);
        if (!d->book && !d->follow)
            rc = -1;
        else if (!d->book)
            snprintf(d->note, sizeof d->note, "%.500s", err->msg);
        d->live = d->follow && ds_record_written(d->path[0]);
    }
    if (rc == 0 && !(d->shown = snapshot_new(d, err)))
        rc = -1;
    if (rc == 0) {
        d->shown->whole.generation = d->generation = 1;
        d->wants_judged = d->wants_verdict = d->book != NULL;
        d->checking = check_is_due(d);
        if (pthread_create(&d->thread, NULL, data_worker, d) != 0)
            rc = ds_fail(err, "no thread");
        d->started = rc == 0;
    }
    if (rc != 0) {
        tui_data_close(d);
        return -1;
    }
    *out = d;
    return 0;
}

void tui_data_close(struct tui_data *d)
{
    if (!d)
        return;
    if (d->started) {
        pthread_mutex_lock(&d->lock);
        d->quit = 1;
        atomic_store(&d->stop, 1);
        pthread_cond_broadcast(&d->wake);
        pthread_mutex_unlock(&d->lock);
        pthread_join(d->thread, NULL);
    }
    while (d->entries) {
        struct entry *next = d->entries->next;
        result_free(d->entries->now);
        result_free(d->entries->fresh);
        free(d->entries);
        d->entries = next;
    }
    while (d->gone_results) {
        struct result *next = d->gone_results->next;
        result_free(d->gone_results);
        d->gone_results = next;
    }
    while (d->gone) {
        struct snapshot *next = d->gone->next;
        snapshot_free(d->gone);
        d->gone = next;
    }
    snapshot_free(d->fresh);
    snapshot_free(d->shown);
    judged_release(d->judged);
    judged_release(d->partial);
    judged_release(d->told);
    book_release(d->book);
    for (int i = 0; i < 2; i++) {
        if (d->event[i] >= 0)
            close(d->event[i]);
        free(d->path[i]);
    }
    free(d->moves_to);
    free(d->left);
    pthread_cond_destroy(&d->wake);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* ---- asking ---------------------------------------------------------------------------------- */

const struct tui_whole *tui_data_whole(struct tui_data *d)
{
    return &d->shown->whole;
}

static const struct result *ask(struct tui_data *d, const struct want *w, const char **error)
{
    struct ds_error ignored;
    const struct result *found = NULL;
    if (error)
        *error = NULL;
    pthread_mutex_lock(&d->lock);
    struct entry *e = d->entries;
    while (e && memcmp(&e->want, w, sizeof *w) != 0)
        e = e->next;
    if (!e && (e = ds_calloc(1, sizeof *e, "request", &ignored))) {
        e->want = *w;
        e->next = d->entries;
        d->entries = e;
    }
    if (e) {
        e->asked = d->last_asked = d->turn;
        found = e->now;
        const int stale = !found || found->number < d->latest;
        if (stale && !e->queued && !e->fresh) {
            e->queued = ++d->order;
            pthread_cond_signal(&d->wake);
        }
    }
    pthread_mutex_unlock(&d->lock);
    if (found && found->error) {
        if (error)
            *error = found->error;
        return NULL;
    }
    return found;
}

const struct tui_pair *tui_data_pair(struct tui_data *d, uint32_t arm, uint32_t ref,
                                     const char **error)
{
    struct want w;
    memset(&w, 0, sizeof w); /* compared by its bytes */
    w.what = WANT_PAIR;
    w.arm = arm;
    w.ref = ref;
    const struct result *r = ask(d, &w, error);
    return r ? &r->u.pair : NULL;
}

const struct tui_site *tui_data_site(struct tui_data *d, uint32_t arm, uint32_t ref, uint32_t site,
                                     const char **error)
{
    struct want w;
    memset(&w, 0, sizeof w);
    w.what = WANT_SITE;
    w.arm = arm;
    w.ref = ref;
    w.site = site;
    const struct result *r = ask(d, &w, error);
    return r ? &r->u.site : NULL;
}

const struct tui_values *tui_data_values(struct tui_data *d, uint32_t arm, uint32_t ref,
                                         uint64_t digest, uint64_t ref_digest, const char **error)
{
    struct want w;
    memset(&w, 0, sizeof w);
    w.what = WANT_VALUES;
    w.arm = arm;
    w.ref = ref;
    w.digest = digest;
    w.ref_digest = ref_digest;
    const struct result *r = ask(d, &w, error);
    return r ? &r->u.values : NULL;
}

const struct tui_steps *tui_data_steps(struct tui_data *d, uint32_t arm, uint32_t ref,
                                       const char **error)
{
    struct want w;
    memset(&w, 0, sizeof w);
    w.what = WANT_STEPS;
    w.arm = arm;
    w.ref = ref;
    const struct result *r = ask(d, &w, error);
    return r ? &r->u.steps : NULL;
}

/* ---- taking over ----------------------------------------------------------------------------- */

static int is_unfinished(const struct result *r)
{
    return r && r->unfinished;
}

static int is_pending(const struct tui_data *d)
{
    if ((d->wants_verdict && !d->throttled) || d->cancelled || d->reload || d->busy ||
        d->finishing || d->checking)
        return 1;
    for (const struct entry *e = d->entries; e; e = e->next)
        if (e->queued || (e->asked == d->last_asked && is_unfinished(e->fresh ? e->fresh : e->now)))
            return 1;
    return 0;
}

int tui_data_pending(const struct tui_data *d)
{
    struct tui_data *own = (struct tui_data *)d;
    pthread_mutex_lock(&own->lock);
    int rc = is_pending(d);
    pthread_mutex_unlock(&own->lock);
    return rc;
}

int tui_data_fd(const struct tui_data *d)
{
    return d->event[0];
}

static void let_go(struct tui_data *d, struct result *r)
{
    if (!r)
        return;
    r->next = d->gone_results;
    d->gone_results = r;
}

/* What was asked of a record that is not there any more. */
static void forget(struct tui_data *d, uint64_t since)
{
    for (struct entry *e = d->entries; e; e = e->next) {
        if (e->now && e->now->number < since) {
            let_go(d, e->now);
            e->now = NULL;
        }
        if (e->fresh && e->fresh->number < since) {
            let_go(d, e->fresh);
            e->fresh = NULL;
        }
    }
}

/* Takes over results; 1 if one came in the place of an older one, 2 if one came at all, or'ed. */
static int promote(struct tui_data *d)
{
    int came = 0;
    for (struct entry *e = d->entries; e; e = e->next) {
        if (!e->fresh)
            continue;
        came |= e->now ? 3 : 2;
        let_go(d, e->now);
        e->now = e->fresh;
        e->fresh = NULL;
    }
    return came;
}

static uint64_t held(const struct tui_data *d)
{
    uint64_t bytes = 0;
    for (const struct entry *e = d->entries; e; e = e->next)
        bytes += sizeof *e + (e->now ? e->now->bytes + sizeof *e->now : 0);
    return bytes;
}

/* Lets go of what was asked for longest ago until the rest fits; what the last drawing used stays. */
static void evict(struct tui_data *d)
{
    while (held(d) > d->hold / 4) {
        struct entry **oldest = NULL;
        for (struct entry **e = &d->entries; *e; e = &(*e)->next)
            if (!(*e)->queued && (*e)->asked < d->last_asked &&
                (!oldest || (*e)->asked < (*oldest)->asked))
                oldest = e;
        if (!oldest)
            return;
        struct entry *e = *oldest;
        *oldest = e->next;
        let_go(d, e->now);
        let_go(d, e->fresh);
        free(e);
    }
}

int tui_data_turn(struct tui_data *d)
{
    char drop[64];
    while (read(d->event[0], drop, sizeof drop) > 0)
        continue;
    pthread_mutex_lock(&d->lock);
    int came = promote(d);
    if (d->fresh) {
        if (d->fresh->since > d->shown->since)
            forget(d, d->fresh->since);
        d->shown->next = d->gone;
        d->gone = d->shown;
        d->shown = d->fresh;
        d->fresh = NULL;
        came |= 3;
    }
    if (came & 1)
        d->generation++;
    d->shown->whole.generation = d->generation;
    if (came) { /* else nothing is drawn anew, and what was drawn last is still in use */
        evict(d);
        d->turn++;
    }
    came |= d->owed;
    d->owed = 0;
    if (d->gone || d->gone_results)
        pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
    return came != 0;
}

int tui_data_wait(struct tui_data *d, int ms)
{
    const double until = ds_seconds(CLOCK_MONOTONIC) + ms / 1000.0;
    int pending, came = 0;
    while ((pending = tui_data_pending(d))) {
        const double left = until - ds_seconds(CLOCK_MONOTONIC);
        if (left <= 0)
            break;
        struct pollfd p = {.fd = d->event[0], .events = POLLIN};
        poll(&p, 1, left < 0.05 ? (int)(left * 1000) + 1 : 50);
        came |= tui_data_turn(d);
    }
    came |= tui_data_turn(d);
    d->owed = came;
    if (came)
        data_wake(d);
    return pending ? -1 : 0;
}

void tui_data_cancel(struct tui_data *d)
{
    pthread_mutex_lock(&d->lock);
    if (is_pending(d)) {
        d->cancelled = 1;
        atomic_store(&d->stop, 1);
        pthread_cond_signal(&d->wake);
    }
    pthread_mutex_unlock(&d->lock);
}

void tui_data_reload(struct tui_data *d)
{
    pthread_mutex_lock(&d->lock);
    d->reload = 1;
    atomic_store(&d->stop, 1);
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
}
