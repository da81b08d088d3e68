/* check_many.c: many checks at a time: processes that take the next job from a shared counter. Speed
 * comes last and alone, so that nothing of ours is beside it. */
#include "base/child.h"
#include "kernels/lab/check.h"
#include "kernels/lab/contain.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_WORKERS = 16, POLL_MS = 100 };

/* Shared by the parent and its workers; a result for each job follows. */
struct queue {
    _Atomic(size_t) next, done;
    _Atomic(int) failed;
    struct ds_error error; /* of the first that failed */
    struct ds_check_result result[];
};

struct many {
    const struct ds_check_job *job;
    size_t n;
    struct ds_check_options opt; /* without speed */
    struct queue *queue;
};

static struct ds_check_options options_of(const struct many *m, size_t i)
{
    struct ds_check_options o = m->opt;
    o.vendor = m->job[i].vendor;
    for (size_t j = 0; j < i; j++)
        o.not_first |= m->job[j].kernel == m->job[i].kernel;
    return o;
}

static void work(const struct many *m)
{
    struct queue *q = m->queue;
    size_t i;
    while (!atomic_load(&q->failed) && (i = atomic_fetch_add(&q->next, 1)) < m->n) {
        struct ds_check_options o = options_of(m, i);
        struct ds_error err;
        if (ds_check_run(m->job[i].kernel, m->job[i].shape, &o, &q->result[i], &err) != 0 &&
            atomic_exchange(&q->failed, 1) == 0)
            q->error = err;
        atomic_fetch_add(&q->done, 1);
    }
}

static void tell(const struct many *m, void (*progress)(void *, double), void *arg, double whole)
{
    if (progress)
        progress(arg, whole * (double)atomic_load(&m->queue->done) / (double)(m->n ? m->n : 1));
}

/* Waits for all workers; -1 = one of them died, which a check should not. */
static int wait_all(const struct many *m, const pid_t *pid, int n, int fd,
                    void (*progress)(void *, double), void *arg)
{
    int rc = 0, status = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, POLL_MS) == 0 || (errno == EINTR && !p.revents))
        tell(m, progress, arg, 0.8);
    for (int i = 0; i < n; i++) {
        if (ds_child_wait(pid[i], &status) != 0 || !WIFEXITED(status) || WEXITSTATUS(status))
            rc = -1;
    }
    return rc;
}

static int run_workers(const struct many *m, int workers, void (*progress)(void *, double),
                       void *arg, struct ds_error *err)
{
    pid_t pid[MOST_WORKERS];
    const pid_t parent = getpid();
    int fd[2], n = 0;
    if (pipe(fd) != 0)
        return ds_fail(err, "cannot make a pipe: %s", strerror(errno));
    for (; n < workers; n++) {
        pid[n] = fork();
        if (pid[n] < 0)
            break;
        if (pid[n] == 0) {
            close(fd[0]);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) /* it died before that */
                _exit(1);
            work(m);
            _exit(0);
        }
    }
    const int saved = errno;
    close(fd[1]);
    int rc = n ? wait_all(m, pid, n, fd[0], progress, arg) : 0;
    close(fd[0]);
    if (!n)
        return ds_fail(err, "cannot start a process: %s", strerror(saved));
    if (rc != 0)
        return ds_fail(err, "a process of the check died");
    if (atomic_load(&m->queue->failed)) {
        *err = m->queue->error;
        return -1;
    }
    return 0;
}

static int run_speed(const struct many *m, void (*progress)(void *, double), void *arg,
                     struct ds_error *err)
{
    for (size_t i = 0; i < m->n; i++) {
        struct ds_check_result *r = m->job[i].result, speed;
        struct ds_check_options o = options_of(m, i);
        o.no_speed = 0;
        o.only_speed = 1;
        if (progress)
            progress(arg, 0.8 + 0.2 * (double)i / (double)m->n);
        if (r->why_not[0] || ds_check_died(r))
            continue;
        if (ds_check_run(m->job[i].kernel, m->job[i].shape, &o, &speed, err) != 0)
            return -1;
        memcpy(r->speed, speed.speed, sizeof r->speed);
        memcpy(r->vendor, speed.vendor, sizeof r->vendor);
        r->n_speeds = speed.n_speeds;
    }
    return 0;
}

int ds_check_many(const struct ds_check_job *job, size_t n, const struct ds_check_options *opt,
                  int workers, void (*progress)(void *, double), void *arg, struct ds_error *err)
{
    const size_t bytes = sizeof(struct queue) + n * sizeof(struct ds_check_result);
    struct many m = {.job = job, .n = n, .opt = *opt, .queue = ds_contain_map(bytes, err)};
    if (!m.queue)
        return -1;
    m.opt.no_speed = 1;
    if (workers > MOST_WORKERS)
        workers = MOST_WORKERS;
    int rc = run_workers(&m, workers < 1 ? 1 : workers, progress, arg, err);
    for (size_t i = 0; i < n; i++)
        *job[i].result = m.queue->result[i];
    if (rc == 0 && !opt->no_speed)
        rc = run_speed(&m, progress, arg, err);
    ds_contain_unmap(m.queue, bytes);
    return rc;
}
