/* worker.c: see worker.h. */
#include "engine/worker.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cblas.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_TRIAL = 1, ANSWER_ERROR = 2 };
/* How a worker ends that cannot answer. */
enum { LOST_CONNECTION = 121 };
static const uint64_t MAX_ANSWER = (uint64_t)1 << 40;

struct answer {
    uint32_t kind, reserved;
    uint64_t size;
};

/* When to give up waiting for the other end; all zero: never. */
struct limit {
    const volatile sig_atomic_t *stop; /* becomes non-zero */
    double time;                       /* on the monotonic clock; 0 = none */
    pid_t worker;                      /* has ended; what it left behind may hold the socket */
    void (*waiting)(void *ctx);        /* called while nothing comes */
    void *ctx;
};
static const struct limit NEVER = {NULL, 0.0, 0, NULL, NULL};
enum { STOPPED = 1, TOO_LATE = 2, UNUSABLE = 3 };

/* Writes or reads all n bytes. 0, -1 on error or end of file, STOPPED or TOO_LATE. */
static int transfer(int fd, void *data, size_t n, int writing, struct limit limit)
{
    char *p = data;
    while (n > 0) {
        if (limit.stop && *limit.stop)
            return STOPPED;
        if (limit.time > 0 && ds_seconds(CLOCK_MONOTONIC) > limit.time)
            return TOO_LATE;
        /* A signal between the test of *stop and a blocking call would be missed: wait with a time
         * limit instead. */
        struct pollfd pfd = {.fd = fd, .events = writing ? POLLOUT : POLLIN};
        const int patience = limit.stop || limit.time > 0 || limit.worker ? 200 : -1;
        int ready = poll(&pfd, 1, patience);
        if (ready == 0 && limit.worker && ds_child_ended(limit.worker) && poll(&pfd, 1, 0) == 0)
            return -1;
        if (ready == 0 && limit.waiting)
            limit.waiting(limit.ctx);
        if (ready == 0 || (ready < 0 && errno == EINTR))
            continue;
        ssize_t got = writing ? send(fd, p, n, MSG_NOSIGNAL) : recv(fd, p, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return -1;
        p += got;
        n -= (size_t)got;
    }
    return 0;
}

/* ---- the worker's side ----------------------------------------------------------------------- */

static int answer_error(int fd, struct ds_error *e)
{
    struct answer a = {.kind = ANSWER_ERROR, .size = sizeof *e};
    return transfer(fd, &a, sizeof a, 1, NEVER) == 0 ? transfer(fd, e, sizeof *e, 1, NEVER) : -1;
}

static int count(void *size, const void *bytes, size_t n)
{
    (void)bytes;
    *(uint64_t *)size += n;
    return 0;
}

static int send_piece(void *fd, const void *bytes, size_t n)
{
    return transfer(*(int *)fd, (void *)bytes, n, 1, NEVER); /* it is only read */
}

static int answer_trial(int fd, const struct ds_trial_data *t)
{
    struct answer a = {.kind = ANSWER_TRIAL};
    ds_trial_pieces(t, count, &a.size);
    return transfer(fd, &a, sizeof a, 1, NEVER) == 0 ? ds_trial_pieces(t, send_piece, &fd) : -1;
}

/* Serves orders until the parent closes its end. */
static int serve(int fd, const struct ds_worker_context *c)
{
    struct ds_trial_runner runner = {.sweep = c->sweep,
                                     .hold = c->hold,
                                     .sites = c->sites,
                                     .site_on = c->site_on,
                                     .place = c->place};
    /* An error is sent whole: nothing of what was on the stack before goes along. */
    struct ds_error open_error = {{0}, {0}};
    int open_failed = (c->open_blas && ds_blas_open(c->blas_core, &open_error) != 0) ||
                      (c->open_cblas && ds_cblas_open(&open_error) != 0);
    int rc = 0;
    struct ds_trial_order order;
    while (rc == 0 && transfer(fd, &order, sizeof order, 0, NEVER) == 0) {
        struct ds_error err = {{0}, {0}};
        struct ds_trial_data data;
        int32_t *forced = ds_calloc((size_t)order.n_forced, sizeof *forced, "forced tokens", &err);
        if (!forced ||
            transfer(fd, forced, (size_t)order.n_forced * sizeof *forced, 0, NEVER) != 0) {
            free(forced);
            break;
        }
        if (open_failed) {
            err = open_error;
            rc = answer_error(fd, &err);
        } else if ((c->trial ? c->trial(c->ctx, &order, &data, &err)
                             : ds_trial_run(&runner, &order, forced, &data, &err)) != 0) {
            rc = answer_error(fd, &err);
        } else {
            rc = answer_trial(fd, &data);
            ds_trial_data_free(&data);
        }
        free(forced);
    }
    ds_trial_runner_free(&runner);
    return rc == 0 ? 0 : LOST_CONNECTION;
}

/* ---- the parent's side ----------------------------------------------------------------------- */

void ds_worker_libraries(struct ds_worker_context *c, const struct ds_setting *s)
{
    c->open_blas = ds_kernel_set_uses(&s->kernels, DS_OP_MATMUL, "openblas") || s->blas_core[0];
    c->open_cblas = ds_kernel_set_uses_cblas(&s->kernels);
    memcpy(c->blas_core, s->blas_core, sizeof c->blas_core);
}

int ds_worker_start(struct ds_worker *w, const struct ds_worker_context *c, int32_t number,
                    struct ds_error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return ds_fail(err, "cannot make a socket pair for a worker: %s", strerror(errno));
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        close(pair[0]);
        close(pair[1]);
        return ds_fail(err, "cannot fork a worker: %s", strerror(errno));
    }
    if (pid == 0) {
        /* Ctrl-C reaches the whole foreground group, and so does what timeout and batch systems
         * send: the parent decides, else its worker's death would be told instead of the
         * interruption. If the parent is killed, so is the worker. */
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        dup2(STDERR_FILENO, STDOUT_FILENO); /* results are the parent's */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        close(pair[0]);
        int rc = serve(pair[1], c);
        /* No exit handlers: libraries shared with the parent (HDF5 above all) must not flush or
         * close from here. */
        _exit(rc);
    }
    close(pair[1]);
    w->pid = pid;
    w->late = 0;
    w->fd = pair[0];
    w->number = number;
    return 0;
}

/* Reaps a worker that went away by itself and says how. */
static int died(struct ds_worker *w, struct ds_error *err)
{
    static const double DYING = 10; /* seconds between the end of its socket and its own */
    int status;
    const int alive = !ds_child_ends_within(w->pid, DYING);
    close(w->fd);
    if (alive)
        kill(w->pid, SIGKILL);
    ds_child_wait(w->pid, &status);
    w->pid = 0;
    if (alive || (WIFEXITED(status) && WEXITSTATUS(status) == LOST_CONNECTION))
        ds_fail(err, "worker %d lost its connection, or closed it", w->number);
    else if (WIFSIGNALED(status))
        ds_fail(err, "worker %d died by signal %d (%s)", w->number, WTERMSIG(status),
                strsignal(WTERMSIG(status)));
    else
        ds_fail(err, "worker %d ended unexpectedly with status %d", w->number, WEXITSTATUS(status));
    return DS_WORKER_DIED;
}

static void kill_worker(struct ds_worker *w)
{
    int status;
    kill(w->pid, SIGKILL);
    close(w->fd);
    ds_child_wait(w->pid, &status);
    w->pid = 0;
}

static int receive(struct ds_worker *w, struct limit limit, struct answer *a, char **body,
                   struct ds_error *err)
{
    int rc = transfer(w->fd, a, sizeof *a, 0, limit);
    if (rc != 0)
        return rc;
    if (a->size > MAX_ANSWER) {
        ds_fail(err, "worker %d sent what is no answer", w->number);
        return UNUSABLE;
    }
    if (!(*body = ds_calloc(1, a->size, "worker's answer", err)))
        return UNUSABLE;
    return transfer(w->fd, *body, a->size, 0, limit);
}

/* Whether what came back is the trial that was asked for. It is not where a kernel wrote over the memory of its
 * worker; then nothing that it sent is believed. */
static int check_answer(const struct ds_worker *w, const struct ds_trial_order *o,
                        const struct ds_trial *t, struct ds_error *err)
{
    if (t->arm == o->arm && t->repeat == o->repeat && t->pass == o->pass &&
        t->healed_to == (o->pass == DS_PASS_HEAL ? o->healed_to : 0))
        return 0;
    ds_fail(err,
            "worker %d was asked for arm %u, repeat %u, pass %u, and sent what says arm %u, repeat "
            "%u, pass %u, healed to arm %u",
            w->number, o->arm, o->repeat, o->pass, t->arm, t->repeat, t->pass, t->healed_to);
    return ds_hint(err, "a kernel that writes where it should not may do that: `driftscope check` "
                        "and --poison look for it");
}

int ds_worker_trial(struct ds_worker *w, const struct ds_trial_order *order, const int32_t *forced,
                    const volatile sig_atomic_t *stop, struct ds_trial_data *out,
                    struct ds_error *err)
{
    struct ds_trial_order o = *order;
    struct answer a = {0};
    struct limit limit = {stop,
                          w->time_limit > 0 ? ds_seconds(CLOCK_MONOTONIC) + w->time_limit : 0.0,
                          w->pid, w->waiting, w->waiting_ctx};
    char *body = NULL;
    int rc = transfer(w->fd, &o, sizeof o, 1, limit);
    if (rc == 0 && o.n_forced > 0) {
        int32_t *copy = ds_calloc((size_t)o.n_forced, sizeof *copy, "forced tokens", err);
        if (!copy)
            return DS_WORKER_FAILED;
        memcpy(copy, forced, (size_t)o.n_forced * sizeof *copy);
        rc = transfer(w->fd, copy, (size_t)o.n_forced * sizeof *copy, 1, limit);
        free(copy);
    }
    if (rc == 0)
        rc = receive(w, limit, &a, &body, err);
    if (rc != 0) {
        free(body);
        if (rc < 0)
            return died(w, err);
        kill_worker(w);
        if (rc == UNUSABLE)
            return DS_WORKER_DIED;
        if (rc == TOO_LATE) {
            w->late = 1;
            ds_fail(err, "worker %d was ended after %g s", w->number, w->time_limit);
            return DS_WORKER_DIED;
        }
        ds_fail(err, "interrupted");
        return DS_WORKER_STOPPED;
    }
    if (a.kind == ANSWER_ERROR && a.size == sizeof *err) {
        if (err) {
            memcpy(err, body, sizeof *err);
            err->msg[sizeof err->msg - 1] = err->hint[sizeof err->hint - 1] = '\0';
        }
        rc = DS_WORKER_FAILED;
    } else {
        rc = ds_trial_unpack(body, a.size, out, err) == 0 ? DS_WORKER_OK : DS_WORKER_FAILED;
        if (rc == DS_WORKER_OK && check_answer(w, order, &out->info, err) != 0) {
            ds_trial_data_free(out);
            kill_worker(w);
            rc = DS_WORKER_DIED;
        }
    }
    free(body);
    return rc;
}

void ds_worker_stop(struct ds_worker *w)
{
    if (w->pid == 0)
        return;
    static const double LEAVING = 10; /* seconds that its end may take */
    int status;
    shutdown(w->fd, SHUT_RDWR);
    close(w->fd);
    if (!ds_child_ends_within(w->pid, LEAVING))
        kill(w->pid, SIGKILL);
    ds_child_wait(w->pid, &status);
    w->pid = 0;
}
