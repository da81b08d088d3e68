/* far_graph.c: the lab's launches on a device, straight or as a captured graph. One capture is kept: measurements launch
 * the same kernel on the same places over and over, with other data there. A kernel whose launch function hands over
 * something of the host's beside its arguments computes with the capture's from then on. */
#include "kernels/call.h"
#include "kernels/lab/far.h"
#include "kernels/registry.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static int graphs;

static struct {
    struct ds_device *dev;
    void *graph; /* NULL: none is kept */
    uint64_t key;
} kept;

void ds_lab_use_graphs(int on)
{
    graphs = on;
}

static uint64_t mix(uint64_t key, const void *p, size_t bytes)
{
    return bytes ? XXH3_64bits_withSeed(p, bytes, key) : key;
}

/* Two launches of one key are the same to a kernel that takes nothing from the host but its arguments. */
static uint64_t key_of(const struct ds_kernel *k, const void *args, const struct ds_exec *e)
{
    const struct ds_allreduce_args *r = k->op == DS_OP_ALLREDUCE ? args : NULL;
    int64_t n, page_size;
    const struct ds_sequence *s = ds_far_sequences(k->op, args, &n, &page_size);
    uint64_t key = mix(1, &k->launch, sizeof k->launch);
    key = mix(key, args, ds_far_bytes(k->op));
    key = mix(key, &e->scratch, sizeof e->scratch);
    key = mix(key, &e->dtype, sizeof e->dtype);
    if (r)
        key = mix(key, r->x, (size_t)r->ranks * sizeof(const float *));
    for (int64_t i = 0; s && i < n; i++)
        key = mix(key, &s[i].q_len, sizeof s[i].q_len);
    return key;
}

static int capture(struct ds_device *dev, const struct ds_kernel *k, const void *args,
                   const struct ds_exec *exec, char *why, size_t why_size)
{
    void *graph = NULL;
    if (dev->graph_begin(dev) != 0) {
        snprintf(why, why_size, "%.200s", dev->why);
        return -1;
    }
    int rc = ds_call_launch_alone(k, args, exec, why, why_size);
    const int ended = dev->graph_end(dev, &graph);
    if (rc == 0 && ended != 0)
        snprintf(why, why_size, "%.200s", dev->why);
    if (rc != 0 || ended != 0) {
        if (graph)
            dev->graph_free(dev, graph);
        return -1;
    }
    kept.dev = dev;
    kept.graph = graph;
    return 0;
}

void ds_lab_tell(struct ds_device *dev, const struct ds_kernel *k)
{
    char name[96];
    snprintf(name, sizeof name, "%s/%s", ds_op_name(k->op), k->name);
    dev->at(dev, name);
}

int ds_lab_launch(struct ds_device *dev, const struct ds_kernel *k, const void *args,
                  const struct ds_exec *exec, char *why, size_t why_size)
{
    ds_lab_tell(dev, k);
    if (!graphs || !dev->graph_begin)
        return ds_call_launch_alone(k, args, exec, why, why_size);
    const uint64_t key = key_of(k, args, exec);
    if (!kept.graph || kept.dev != dev || kept.key != key) {
        if (kept.graph && kept.dev == dev)
            dev->graph_free(dev, kept.graph);
        kept.graph = NULL;
        if (capture(dev, k, args, exec, why, why_size) != 0)
            return -1;
        kept.key = key;
    }
    if (dev->graph_launch(dev, kept.graph) == 0)
        return 0;
    snprintf(why, why_size, "%.200s", dev->why);
    return -1;
}
