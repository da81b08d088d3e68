/* explain_replay.c: a side's calls again in a child process of their own: the core of a BLAS library
 * is chosen before it is loaded, and a kernel may crash. Owns the process; explain_call.c owns the
 * calls. */
#include "kernels/lab/explain.h"

#include "base/buf.h"
#include "kernels/lab/contain.h"
#include "kernels/lab/far.h"
#include "kernels/registry.h"

#include <stdio.h>
#include <string.h>

enum { HANG_SECONDS = 60 };

struct job {
    const struct ds_explain *e;
    int side;
    const struct ds_kernel *kernel;
    uint64_t seed;
    float *y; /* shared */
};

void ds_explain_take_device(const struct ds_explain_side *s)
{
    if (s->device != DS_DEVICE_CPU)
        ds_lab_use_device(s->device, s->device_number);
}

static int child(void *arg, struct ds_contained *c, struct ds_error *err)
{
    const struct job *j = arg;
    const char *core = j->e->side[j->side].core;
    (void)c;
    ds_explain_take_device(&j->e->side[j->side]);
    if (j->kernel->op == DS_OP_MATMUL && strcmp(j->kernel->name, "openblas") == 0 &&
        ds_blas_open(core, err) != 0)
        return -1;
    return ds_explain_run(j->e, j->side, j->kernel, j->seed, j->y, err);
}

/* What a child's end means; 0 = it did its work. */
static int why_not(const struct ds_contained *c, char *why, size_t size)
{
    if (c->fault.kind != DS_FAULT_NONE) {
        struct ds_buf b = {0};
        ds_fault_print(&b, &c->fault);
        snprintf(why, size, "%s", b.data ? b.data : "it crashed");
        ds_buf_free(&b);
        return 1;
    }
    if (c->rc != 0)
        snprintf(why, size, "%s", c->error.msg);
    return c->rc != 0;
}

int ds_explain_replay(const struct ds_explain *e, int side, const struct ds_kernel *kernel,
                      uint64_t seed, float *y, char *why, size_t why_size, struct ds_error *err)
{
    const size_t n = e->n_rows * (size_t)ds_explain_width(e->op, &e->shared) * sizeof *y,
                 head = (sizeof(struct ds_contained) + 63) & ~(size_t)63;
    char *shared = ds_contain_map(head + n, err);
    if (!shared)
        return -1;
    struct ds_contained *c = (struct ds_contained *)(void *)shared;
    struct job j = {e, side, kernel, seed, (float *)(void *)(shared + head)};
    int rc = ds_contain(c, child, &j, HANG_SECONDS, err);
    if (rc == 0 && ds_contained_lacks_memory(c))
        rc = ds_fail(err, "%.900s", c->error.msg);
    if (rc == 0)
        rc = why_not(c, why, why_size);
    if (rc == 0)
        memcpy(y, j.y, n);
    ds_contain_unmap(shared, head + n);
    return rc;
}
