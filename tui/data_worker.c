/* data_worker.c: the thread that reads: what it does next, and how results reach the screen. Asked for first,
 * newest first; then the verdict; between them, if a record is followed, a look at the file. */
#include "tui/data_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double LOOK_EVERY = 0.25; /* seconds between two looks at a followed file */

void data_wake(struct tui_data *d)
{
    ssize_t ignored = write(d->event[1], "", 1);
    (void)ignored; /* full: it is awake anyway */
}

/* ---- releasing ------------------------------------------------------------------------------- */

void result_free(struct result *r)
{
    if (!r)
        return;
    switch (r->what) {
    case WANT_PAIR:
        free((void *)r->u.pair.keys);
        free((void *)r->u.pair.labels);
        free((void *)r->u.pair.healed);
        free((void *)r->u.pair.sites);
        break;
    case WANT_SITE:
        free((void *)r->u.site.keys);
        free((void *)r->u.site.labels);
        free((void *)r->u.site.class_of);
        free((void *)r->u.site.facts);
        free((void *)r->u.site.inputs);
        ds_census_site_free(&r->u.site.repeats[0]);
        ds_census_site_free(&r->u.site.repeats[1]);
        ds_site_profile_free(&r->profile);
        break;
    case WANT_VALUES:
        free(r->u.values.mine.data);
        free(r->u.values.ref.data);
        break;
    case WANT_STEPS:
        free((void *)r->u.steps.steps);
        break;
    default:
        break;
    }
    book_release(r->book);
    free(r->texts);
    free(r->error);
    free(r);
}

void snapshot_free(struct snapshot *s)
{
    if (!s)
        return;
    judged_release(s->judged);
    book_release(s->book);
    check_free(s);
    free(s->list);
    free(s->trials);
    free(s);
}

/* With the lock held; lets go of it meanwhile. */
static void release_gone(struct tui_data *d)
{
    struct snapshot *s = d->gone;
    struct result *r = d->gone_results;
    if (!s && !r)
        return;
    d->gone = NULL;
    d->gone_results = NULL;
    pthread_mutex_unlock(&d->lock);
    while (s) {
        struct snapshot *next = s->next;
        snapshot_free(s);
        s = next;
    }
    while (r) {
        struct result *next = r->next;
        result_free(r);
        r = next;
    }
    pthread_mutex_lock(&d->lock);
}

/* ---- handing over ---------------------------------------------------------------------------- */

/* Called without the lock. What the screen has not taken yet is replaced. */
static void publish(struct tui_data *d)
{
    struct ds_error err;
    struct snapshot *s = snapshot_new(d, &err), *old;
    if (!s)
        return; /* no memory: the screen keeps what it has */
    pthread_mutex_lock(&d->lock);
    old = d->fresh;
    d->fresh = s;
    d->latest = d->judged_latest;
    if (old) {
        old->next = d->gone;
        d->gone = old;
    }
    pthread_mutex_unlock(&d->lock);
    data_wake(d);
}

int data_stopped(void *data)
{
    struct tui_data *d = data;
    const double now = ds_seconds(CLOCK_MONOTONIC);
    if (now - d->looked >= LOOK_EVERY && d->book && !atomic_load(&d->stop)) {
        int rc = data_follow(d, LOOK_ONLY_GROWN);
        d->came |= rc & FOLLOW_TRIALS;
        d->looked = ds_seconds(CLOCK_MONOTONIC);
        if (rc)
            publish(d);
    }
    return atomic_load(&d->stop);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* What answers a question about two arms: the whole, or where that does not fit those two. */
static struct judged *judged_for(struct tui_data *d, const struct want *w, struct ds_error *err)
{
    if (d->judged && d->judged->analysis)
        return d->judged;
    if (d->judged) {
        ds_fail(err, "nothing to compare: %s", judged_verdict(d->judged)->reason);
        return NULL;
    }
    if (d->book->n_sides == 2) {
        ds_fail(err, "%s", d->error[0] ? d->error : "nothing was read");
        return NULL;
    }
    struct judged *p = d->partial;
    if (p && p->arm == w->arm && p->ref == w->ref)
        return p;
    judged_release(p);
    d->partial = NULL;
    return judged_pair(d, d->book, w->arm, w->ref, &d->partial, err) == 0 ? d->partial : NULL;
}

static int make(struct tui_data *d, const struct want *w, int finish, struct result *out,
                struct ds_error *err)
{
    if (!d->book)
        return ds_fail(err, "nothing could be read yet");
    if (w->what == WANT_VALUES)
        return make_values(d->book, w, out, err);
    struct judged *j = judged_for(d, w, err);
    if (!j)
        return -1;
    const size_t n_arms = j->source.header->n_arms;
    if (w->arm >= n_arms || w->ref >= n_arms)
        return ds_fail(err, "arm %u of %zu", w->arm > w->ref ? w->arm : w->ref, n_arms);
    if (!ds_analysis_trials(j->analysis, w->arm) || !ds_analysis_trials(j->analysis, w->ref))
        return ds_fail(err, "arm %u has no complete trial",
                       ds_analysis_trials(j->analysis, w->arm) ? w->ref : w->arm);
    out->book = d->book;
    out->book->refs++;
    if (w->what == WANT_PAIR)
        return make_pair(j, w, finish, out, err);
    if (w->what == WANT_STEPS)
        return make_steps(j, w, out, err);
    return make_site(j, w, finish, out, err);
}

static void set_error(struct result *r, const struct ds_error *err)
{
    struct ds_error ignored;
    size_t n = strlen(err->msg) + 1;
    r->error = ds_alloc(n, "message", &ignored);
    if (r->error)
        memcpy(r->error, err->msg, n);
}

static struct entry *newest(const struct tui_data *d)
{
    struct entry *best = NULL;
    for (struct entry *e = d->entries; e; e = e->next)
        if (e->queued && (!best || e->queued > best->queued))
            best = e;
    return best;
}

static struct entry *entry_of(struct tui_data *d, const struct want *w)
{
    for (struct entry *e = d->entries; e; e = e->next)
        if (memcmp(&e->want, w, sizeof *w) == 0)
            return e;
    return NULL;
}

/* What lacks something stays as it is. */
static void accept(struct entry *e)
{
    if (e->now)
        e->now->unfinished = 0;
    if (e->fresh)
        e->fresh->unfinished = 0;
}

/* With the lock held; lets go of it meanwhile. */
static void answer(struct tui_data *d, const struct want *w, int finish)
{
    const struct want want = *w;
    struct ds_error err = {{0}, {0}};
    pthread_mutex_unlock(&d->lock);
    struct result *r = ds_calloc(1, sizeof *r, "result", &err);
    if (r) {
        r->what = want.what;
        if (make(d, &want, finish, r, &err) != 0)
            set_error(r, &err);
        r->number = d->judged_number;
    }
    pthread_mutex_lock(&d->lock);
    struct entry *e = entry_of(d, &want);
    if (e && finish)
        accept(e);
    if (r && e && !atomic_load(&d->stop) && !(finish && r->error)) {
        if (e->fresh) {
            e->fresh->next = d->gone_results;
            d->gone_results = e->fresh;
        }
        e->fresh = r;
        data_wake(d);
    } else if (r) {
        r->next = d->gone_results;
        d->gone_results = r;
    }
    if (e && !finish)
        e->queued = 0;
}

/* A result on the screen that lacks something. */
static struct entry *unfinished(const struct tui_data *d)
{
    for (struct entry *e = d->entries; e; e = e->next) {
        const struct result *r = e->fresh ? e->fresh : e->now;
        if (r && r->unfinished && e->asked == d->last_asked)
            return e;
    }
    return NULL;
}

/* ---- the verdict ----------------------------------------------------------------------------- */

static void tell_why_not(struct tui_data *d, const struct ds_error *err)
{
    snprintf(d->error, sizeof d->error, "%.1200s%s", err->msg,
             d->book->n_sides == 1 ? "; two arms at a time are shown all the same" : "");
}

/* The screen keeps the verdict that it has until the new one is there. */
static void judge_book(struct tui_data *d)
{
    struct ds_error err = {{0}, {0}};
    struct judged *j = NULL;
    const double begun = ds_seconds(CLOCK_MONOTONIC);
    /* Two analyses do not fit beside each other. */
    judged_settle(d->told);
    judged_release(d->judged);
    d->judged = NULL;
    int rc = judged_new(d, d->book, &j, &err), less = 0;
    if (rc != 0 && d->book->n_sides == 2 && !atomic_load(&d->stop)) {
        struct ds_error ignored; /* why not all says more than why not even two */
        rc = judged_pair(d, d->book, 0, 0, &j, &ignored);
        less = rc == 0;
    }
    if (atomic_load(&d->stop)) {
        judged_release(j);
        return;
    }
    d->error[0] = '\0';
    d->judged_latest = d->judged_number;
    judged_release(d->partial);
    d->partial = NULL;
    if (rc == 0)
        d->judged = j;
    else
        tell_why_not(d, &err);
    if (less)
        snprintf(d->note, sizeof d->note, "only the base arms are compared: %.400s", err.msg);
    d->judged_at = ds_seconds(CLOCK_MONOTONIC);
    d->judged_took = d->judged_at - begun;
}

static void tell_verdict(struct tui_data *d)
{
    struct ds_error err = {{0}, {0}};
    const double begun = ds_seconds(CLOCK_MONOTONIC);
    int rc = d->judged ? judged_verdict_make(d->judged, &err) : -1;
    if (atomic_load(&d->stop))
        return;
    if (rc == 0 && d->told != d->judged) {
        judged_release(d->told);
        d->told = d->judged;
        d->told->refs++;
    } else if (rc != 0 && d->judged) {
        tell_why_not(d, &err);
    }
    d->judged_at = ds_seconds(CLOCK_MONOTONIC);
    d->judged_took += d->judged_at - begun;
}

/* Not more than a fifth of the time goes into verdicts of a record that keeps growing. */
static int may_judge(const struct tui_data *d)
{
    return !d->told || ds_seconds(CLOCK_MONOTONIC) >= d->judged_at + 4 * d->judged_took;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void sleep_for(struct tui_data *d, double seconds)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_nsec += (long)(seconds * 1e9); /* less than one second */
    ts.tv_sec += ts.tv_nsec / 1000000000;
    ts.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&d->wake, &d->lock, &ts);
}

static void cancel(struct tui_data *d)
{
    d->cancelled = 0;
    for (struct entry *e = d->entries; e; e = e->next) {
        e->queued = 0;
        accept(e);
    }
    if ((d->wants_judged || d->wants_verdict) && !d->told)
        snprintf(d->error, sizeof d->error, "given up: R reads it again");
    d->wants_judged = d->wants_verdict = 0;
    d->unchecked = 1;
    d->checking = 0;
    atomic_store(&d->stop, 0);
    d->busy = 1;
    pthread_mutex_unlock(&d->lock);
    publish(d);
    pthread_mutex_lock(&d->lock);
    d->busy = 0;
}

static void look(struct tui_data *d, int now)
{
    if (now) {
        d->reload = 0;
        d->judged_took = 0; /* who asks for it does not wait */
        d->unchecked = 0;
        d->busy = 1;
        atomic_store(&d->stop, 0);
    }
    pthread_mutex_unlock(&d->lock);
    int rc = data_follow(d, now ? LOOK_NOW : LOOK);
    d->indexed &= !(rc & FOLLOW_TRIALS);
    if (rc || now)
        publish(d);
    pthread_mutex_lock(&d->lock);
    d->busy = 0;
    d->looked = ds_seconds(CLOCK_MONOTONIC);
    if ((rc & FOLLOW_TRIALS || now || d->came) && d->book)
        d->wants_judged = d->wants_verdict = 1;
    d->came = 0;
    d->checking = check_is_due(d);
}

/* One piece of work; 0: there is none. With the lock held; lets go of it meanwhile. */
static int work(struct tui_data *d)
{
    struct entry *e = newest(d);
    d->throttled = d->wants_judged && !may_judge(d);
    if (d->cancelled) {
        cancel(d);
    } else if (d->reload) {
        look(d, 1);
    } else if (e &&
               (d->judged || !d->wants_judged || d->throttled || e->want.what == WANT_VALUES)) {
        answer(d, &e->want, 0);
    } else if (d->wants_judged && !d->throttled) {
        pthread_mutex_unlock(&d->lock);
        judge_book(d);
        publish(d);
        pthread_mutex_lock(&d->lock);
        d->wants_judged = atomic_load(&d->stop) != 0;
    } else if (d->wants_verdict && !d->wants_judged) {
        pthread_mutex_unlock(&d->lock);
        tell_verdict(d);
        publish(d);
        pthread_mutex_lock(&d->lock);
        d->wants_verdict = atomic_load(&d->stop) != 0;
    } else if ((e = unfinished(d))) {
        d->finishing = 1;
        answer(d, &e->want, 1);
        d->finishing = 0;
    } else if (d->book && !d->indexed) {
        d->indexed = 1;
        pthread_mutex_unlock(&d->lock);
        is_dumped(d->book, 0); /* read now, it is there when a row is asked for */
        pthread_mutex_lock(&d->lock);
    } else if (check_is_due(d)) {
        pthread_mutex_unlock(&d->lock);
        if (check_piece(d))
            publish(d);
        pthread_mutex_lock(&d->lock);
        d->checking = check_is_due(d);
    } else {
        return 0;
    }
    return 1;
}

void *data_worker(void *data)
{
    struct tui_data *d = data;
    d->looked = ds_seconds(CLOCK_MONOTONIC);
    pthread_mutex_lock(&d->lock);
    while (!d->quit) {
        release_gone(d);
        if (ds_seconds(CLOCK_MONOTONIC) - d->looked >= LOOK_EVERY && !d->cancelled)
            look(d, 0);
        else if (!work(d) && !d->gone && !d->gone_results && !d->quit)
            sleep_for(d, LOOK_EVERY);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}
