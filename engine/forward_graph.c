/* forward_graph.c: a call as one graph of the device, as engines replay captured calls. Of every shape of call the first
 * is captured and launched, later ones launch that capture again: kernels get the arguments of the first,
 * and read ids, positions, sequences and pages where they lie on the device, which the host fills before. So what a
 * launch function makes of the host's sequences, of a seed or of anything else of the host stays as it was then, and
 * shows as drift where it should have moved. A call of a graph says that sequences may be as long as the
 * cache has slots for: an engine that captures cannot know more. Owns the captures; must not know stages. */
#include "engine/forward_private.h"

#include "base/mem.h"
#include "engine/sampler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GRAPHS = 256, MOST_ATTEMPTS = 64 };

/* What must be alike, and what was captured. */
struct captured {
    const struct ds_probe *probe;
    int32_t rows, n_seqs, n_logits;
    uint32_t n_rec;
    int32_t *numbers; /* new tokens of each sequence, then the recorded row of each logits row */
    void *graph;
    struct ds_log_kept log;
};

struct ds_graphs {
    struct captured at[MOST_GRAPHS];
    size_t n, next;
};

int ds_graph_check(const struct ds_hparams *hp, const struct ds_forward_config *c,
                   struct ds_error *err)
{
    const char *why = NULL;
    if (!c->graph)
        return 0;
    if (c->kernels.device == DS_DEVICE_CPU) {
        ds_fail(err, "--graph on: the CPU has no graphs");
        return ds_hint(err, "--device cuda and --device sim have");
    }
    if (c->placement.n)
        why = "--place copies rows from device to device on the host's word";
    else if (hp->n_experts)
        why = "the host sorts the rows of experts in the middle of a call";
    else if (ds_sampler_on_host(&c->sampler, &c->kernels))
        why = "tokens are drawn on the host";
    else if (c->poison)
        why = "--poison waits for every launch";
    else if (ds_kernel_set_added(&c->kernels, DS_OP_CACHE))
        why = "the host looks at the cache around every launch of a kernel that was added";
    return why ? ds_fail(err, "--graph on: a call cannot be captured: %s", why) : 0;
}

int ds_graph_wanted(const struct ds_pass *p)
{
    return p->f->config.graph && p->f->at.dev->graph_begin &&
           !(p->probe && ds_probe_heals(p->probe));
}

static void forget(struct ds_device *dev, struct captured *c)
{
    if (c->graph)
        dev->graph_free(dev, c->graph);
    free(c->numbers);
    ds_log_kept_free(&c->log);
    memset(c, 0, sizeof *c);
}

void ds_graphs_drop(struct ds_forward *f)
{
    for (size_t i = 0; f->graphs && i < f->graphs->n; i++)
        forget(f->at.dev, &f->graphs->at[i]);
    free(f->graphs);
    f->graphs = NULL;
}

/* ---- shapes ---------------------------------------------------------------------------------------- */

static size_t numbers_of(const struct ds_forward *f)
{
    return (size_t)f->n_seqs + (size_t)f->n_logits;
}

static int32_t number(const struct ds_forward *f, size_t i)
{
    return i < (size_t)f->n_seqs ? f->seqs[i].q_len : (int32_t)f->logit_rec[i - (size_t)f->n_seqs];
}

static struct captured *find(const struct ds_pass *p)
{
    const struct ds_forward *f = p->f;
    for (size_t i = 0; f->graphs && i < f->graphs->n; i++) {
        struct captured *c = &f->graphs->at[i];
        int alike = c->graph && c->probe == p->probe && c->rows == f->rows &&
                    c->n_seqs == f->n_seqs && c->n_logits == f->n_logits && c->n_rec == f->n_rec;
        for (size_t k = 0; alike && k < numbers_of(f); k++)
            alike = c->numbers[k] == number(f, k);
        if (alike)
            return c;
    }
    return NULL;
}

/* A place for one more; the oldest gives way. */
static struct captured *new_place(struct ds_pass *p)
{
    struct ds_forward *f = p->f;
    if (!f->graphs && !(f->graphs = ds_calloc(1, sizeof *f->graphs, "captured calls", p->err)))
        return NULL;
    struct captured *c = &f->graphs->at[f->graphs->next];
    forget(f->at.dev, c);
    if (!(c->numbers = ds_calloc(numbers_of(f) + 1, sizeof *c->numbers, "a captured call", p->err)))
        return NULL;
    f->graphs->next = (f->graphs->next + 1) % MOST_GRAPHS;
    f->graphs->n += f->graphs->n < MOST_GRAPHS;
    c->probe = p->probe;
    c->rows = f->rows;
    c->n_seqs = f->n_seqs;
    c->n_logits = f->n_logits;
    c->n_rec = f->n_rec;
    for (size_t k = 0; k < numbers_of(f); k++)
        c->numbers[k] = number(f, k);
    return c;
}

/* ---- capturing --------------------------------------------------------------------------------------- */

/* What the last attempt lacked; 0: it has grown, and another attempt is worth it. */
static int grow(struct ds_forward *f, struct ds_error *err)
{
    if (f->lacks.scratch)
        return ds_forward_grow_scratch(f, f->lacks.scratch, err);
    return f->lacks.log_bytes || f->lacks.log_rows ? ds_log_enlarge(f, err) : -1;
}

/* One attempt: *graph is what was recorded, NULL without an error: something was too small. */
static int record(struct ds_pass *p, int (*stages)(struct ds_pass *p), void **graph)
{
    struct ds_forward *f = p->f;
    struct ds_device *dev = f->at.dev;
    *graph = NULL;
    memset(&f->lacks, 0, sizeof f->lacks);
    memset(f->launch_known, 0, sizeof f->launch_known);
    ds_log_drop(f);
    if (ds_device_check(dev, dev->graph_begin(dev), p->err) != 0)
        return -1;
    f->capturing = 1;
    const int rc = stages(p);
    f->capturing = 0;
    const int ended = dev->graph_end(dev, graph);
    if (rc == 0)
        return ds_device_check(dev, ended, p->err);
    if (*graph)
        dev->graph_free(dev, *graph);
    *graph = NULL;
    return grow(f, p->err);
}

static struct captured *capture(struct ds_pass *p, int (*stages)(struct ds_pass *p))
{
    void *graph = NULL;
    for (int i = 0; i < MOST_ATTEMPTS && !graph; i++)
        if (record(p, stages, &graph) != 0)
            return NULL;
    if (!graph) {
        ds_fail(p->err, "--graph on: a call of %d rows is not captured in %d attempts",
                (int)p->f->rows, (int)MOST_ATTEMPTS);
        return NULL;
    }
    struct captured *c = new_place(p);
    if (!c || ds_log_keep(p->f, &c->log, p->err) != 0) {
        p->f->at.dev->graph_free(p->f->at.dev, graph);
        return NULL;
    }
    c->graph = graph;
    return c;
}

int ds_graph_call(struct ds_pass *p, int (*stages)(struct ds_pass *p))
{
    struct ds_forward *f = p->f;
    struct ds_device *dev = f->at.dev;
    char text[96];
    const struct captured *c = find(p);
    const int again = c != NULL;
    if (again ? ds_log_restore(f, &c->log, p->err) != 0 : !(c = capture(p, stages)))
        return -1;
    p->layer = f->m->hp.n_layers;
    ds_forward_enter(f, p->layer);
    snprintf(text, sizeof text, "a captured call of %d rows%s", (int)f->rows,
             again ? ", launched again" : "");
    dev->at(dev, text);
    return ds_device_check(dev, dev->graph_launch(dev, c->graph), p->err);
}
