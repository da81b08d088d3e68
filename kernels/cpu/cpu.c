/* cpu.c: running a call over threads, scratch memory and checks shared by the CPU kernels. Knows no
 * formula. */
#include "kernels/cpu/cpu.h"

#include "base/team.h"

#include <stdarg.h>
#include <stdio.h>

/* Below this many elementary operations a call is faster on one thread (waking another costs some
 * microseconds). */
static const double WORTH_THREADS = 20000.0;

struct split {
    const struct ds_exec *exec;
    const void *args;
    int64_t items, grain;
    ds_cpu_part_fn fn;
};

int ds_cpu_worth(int threads, double work)
{
    return work < WORTH_THREADS ? 1 : threads;
}

int ds_cpu_threads(const struct ds_exec *exec, int64_t units, double work)
{
    if (ds_cpu_worth(exec->threads, work) <= 1 || !exec->run || units <= 1)
        return 1;
    return units < exec->threads ? (int)units : exec->threads;
}

static void split_thread(void *arg, int thread, int threads)
{
    const struct split *s = arg;
    long begin, end;
    ds_team_share((long)s->items, (long)s->grain, thread, threads, &begin, &end);
    if (begin < end)
        s->fn(s->args, s->exec, thread, begin, end);
}

void ds_cpu_split(const struct ds_exec *exec, const void *args, int64_t items, int64_t grain,
                  double work, ds_cpu_part_fn fn)
{
    struct split s = {exec, args, items, grain, fn};
    if (items <= 0)
        return;
    if (ds_cpu_threads(exec, (items + grain - 1) / grain, work) == 1)
        fn(args, exec, 0, 0, items);
    else
        exec->run(exec->team, split_thread, &s);
}

static void deal_thread(void *arg, int thread, int threads)
{
    const struct split *s = arg;
    for (int64_t i = thread; i < s->items; i += threads)
        s->fn(s->args, s->exec, thread, i, i + 1);
}

void ds_cpu_deal(const struct ds_exec *exec, const void *args, int64_t items, double work,
                 ds_cpu_part_fn fn)
{
    struct split s = {exec, args, items, 1, fn};
    if (items <= 0)
        return;
    if (ds_cpu_threads(exec, items, work) == 1)
        fn(args, exec, 0, 0, items);
    else
        exec->run(exec->team, deal_thread, &s);
}

int ds_cpu_refuse(char *why, size_t why_size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, why_size, fmt, ap);
    va_end(ap);
    return -1;
}

static size_t scratch_stride(int64_t floats)
{
    size_t units = ((size_t)floats + 15) / 16, bytes;
    return __builtin_mul_overflow(units, (size_t)64, &bytes) ? SIZE_MAX : bytes;
}

size_t ds_cpu_scratch(int64_t floats_per_thread, int threads)
{
    size_t bytes;
    if (floats_per_thread < 0 || threads < 1 ||
        __builtin_mul_overflow(scratch_stride(floats_per_thread), (size_t)threads, &bytes))
        return SIZE_MAX;
    return bytes;
}

float *ds_cpu_scratch_of(const struct ds_exec *exec, int64_t floats_per_thread, int thread)
{
    return (float *)(void *)((char *)exec->scratch +
                             scratch_stride(floats_per_thread) * (size_t)thread);
}

int ds_cpu_check_scratch(const struct ds_exec *exec, size_t need, char *why, size_t why_size)
{
    if (need && (!exec->scratch || exec->scratch_bytes < need))
        return ds_cpu_refuse(why, why_size, "scratch memory of %zu bytes where %zu are needed",
                             exec->scratch ? exec->scratch_bytes : (size_t)0, need);
    return 0;
}

const struct ds_sequence *ds_cpu_sequence_of(const struct ds_attention_args *a, int64_t row)
{
    int64_t lo = 0, hi = a->n_sequences;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        const struct ds_sequence *s = &a->sequences[mid];
        if (row < s->q_first)
            hi = mid;
        else if (row >= (int64_t)s->q_first + s->q_len)
            lo = mid + 1;
        else
            return s;
    }
    return NULL;
}

static int check_sequence(const struct ds_sequence *s, int64_t page_size, int64_t pages, char *why,
                          size_t why_size)
{
    if (s->q_len < 0 || s->kv_len < s->q_len || s->kv_first < 0)
        return ds_cpu_refuse(why, why_size,
                             "request %d: q_len %d, kv_len %d, kv_first %d make no sense",
                             s->request, s->q_len, s->kv_len, s->kv_first);
    for (int64_t p = 0; p * page_size < s->kv_len; p++)
        if (s->pages[p] < 0 || s->pages[p] >= pages)
            return ds_cpu_refuse(
                why, why_size,
                "request %d: page %d of slot %lld is not one of the cache's %lld pages", s->request,
                s->pages[p], (long long)(p * page_size), (long long)pages);
    return 0;
}

int ds_cpu_check_sequences(const struct ds_sequence *seqs, int64_t n, int64_t rows,
                           int64_t page_size, int64_t pages, char *why, size_t why_size)
{
    int64_t next = 0;
    if (page_size < 1)
        return ds_cpu_refuse(why, why_size, "page_size %lld", (long long)page_size);
    for (int64_t i = 0; i < n; i++) {
        if (seqs[i].q_first != next)
            return ds_cpu_refuse(why, why_size, "sequence %lld begins at row %d, not %lld",
                                 (long long)i, seqs[i].q_first, (long long)next);
        if (check_sequence(&seqs[i], page_size, pages, why, why_size) != 0)
            return -1;
        next += seqs[i].q_len;
    }
    if (next != rows)
        return ds_cpu_refuse(why, why_size, "sequences cover %lld rows of %lld", (long long)next,
                             (long long)rows);
    return 0;
}
