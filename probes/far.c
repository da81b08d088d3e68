/* far.c: sites whose rows lie where this process cannot read them, in the memory of a device: digests
 * and largest magnitudes come with them, bytes are asked for row by row when something must be known that
 * only they tell. Owns the copy of the row at hand. Knows no device. */
#include "probes/probe_internal.h"

#include "base/mem.h"

#include <string.h>

/* Whether every row of the site will be asked for: then they come in one piece. */
static int wants_all(const struct ds_probe *p, const struct probe_rows *r)
{
    return (p->filling >= 0 && p->site[r->site].held) ||
           (p->n_refs == 0 && p->c.dump == DS_DUMP_ALL);
}

static int read_rows(struct ds_probe *p, const struct probe_rows *r, uint32_t first, size_t bytes)
{
    const struct ds_probe_far *f = r->far;
    if (f->read(f->arg, r->data + first * r->stride, p->far.bytes, bytes, &p->far.err) == 0)
        return 0;
    p->far.failed = 1;
    memset(p->far.bytes, 0, bytes);
    return -1;
}

int probe_far_begin(struct ds_probe *p, const struct probe_rows *r, struct ds_error *err)
{
    const int all = wants_all(p, r);
    const size_t bytes = all ? (r->n - 1) * r->stride + r->row_bytes : r->row_bytes;
    if (ds_grow(&p->far.bytes, &p->far.cap, bytes, 1, "rows of a device", err))
        return -1;
    p->far.failed = 0;
    p->far.all = all;
    p->far.row = 0;
    return all && read_rows(p, r, 0, bytes) ? probe_far_end(p, err) : 0;
}

int probe_far_end(struct ds_probe *p, struct ds_error *err)
{
    if (!p->far.failed)
        return 0;
    return ds_fail(err, "%s", p->far.err.msg);
}

char *probe_far_row(struct ds_probe *p, const struct probe_rows *r, uint32_t i)
{
    if (p->far.all)
        return p->far.bytes + i * r->stride;
    if (p->far.row != i + 1) {
        p->far.row = i + 1;
        (void)read_rows(p, r, i, r->row_bytes); /* probe_far_end tells */
    }
    return p->far.bytes;
}

void probe_far_write(struct ds_probe *p, const struct probe_rows *r, uint32_t i, const void *bytes)
{
    struct ds_probe_far *f = r->far;
    f->written++;
    if (f->write(f->arg, r->data + i * r->stride, bytes, r->row_bytes, &p->far.err) != 0)
        p->far.failed = 1;
}
