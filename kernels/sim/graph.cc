/* graph.cc: see graph.h. */
#include "kernels/sim/graph.h"

#include "kernels/sim/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace
{

enum what { LAUNCH, COPY, FILL };

struct node {
    enum what what;
    struct ds_sim_launch launch; /* its arguments are the node's own */
    void *dst;
    const void *src;
    size_t n;
    uint32_t word;
};

} /* namespace */

struct ds_sim_graph {
    struct node *node;
    size_t n, cap;
    uint64_t runs;
    int lost;
};

namespace
{

struct ds_sim_graph *recording;

struct node *add(enum what what)
{
    struct ds_sim_graph *g = recording;
    if (g->n == g->cap) {
        const size_t cap = g->cap ? 2 * g->cap : 64;
        void *grown = realloc(g->node, cap * sizeof *g->node);
        if (!grown) {
            g->lost = 1;
            return nullptr;
        }
        g->node = static_cast<struct node *>(grown);
        g->cap = cap;
    }
    struct node *n = &g->node[g->n++];
    memset(n, 0, sizeof *n);
    n->what = what;
    return n;
}

int run_launch(const struct ds_sim_graph *g, const struct node *n, char *why, size_t why_size)
{
    struct ds_sim_launch l = n->launch;
    if (l.schedule.order == DS_SIM_RANDOM)
        l.schedule.seed ^= g->runs * 0x9e3779b97f4a7c15u;
    return ds_sim_run(&l, why, why_size);
}

} /* namespace */

int ds_sim_record_begin(void)
{
    if (recording)
        return -1;
    recording = static_cast<struct ds_sim_graph *>(calloc(1, sizeof *recording));
    return recording ? 0 : -1;
}

int ds_sim_recording(void)
{
    return recording != nullptr;
}

struct ds_sim_graph *ds_sim_record_end(void)
{
    struct ds_sim_graph *g = recording;
    recording = nullptr;
    if (!g || !g->lost)
        return g;
    ds_sim_graph_free(g);
    return nullptr;
}

void ds_sim_record_launch(const struct ds_sim_launch *l)
{
    struct node *n = add(LAUNCH);
    void *arg = n ? malloc(l->arg_bytes ? l->arg_bytes : 1) : nullptr;
    if (!arg) {
        recording->lost = 1;
        return;
    }
    if (l->arg_bytes)
        memcpy(arg, l->arg, l->arg_bytes);
    n->launch = *l;
    n->launch.arg = arg;
}

void ds_sim_record_copy(void *dst, const void *src, size_t bytes)
{
    struct node *n = add(COPY);
    if (!n)
        return;
    n->dst = dst;
    n->src = src;
    n->n = bytes;
}

void ds_sim_record_fill(void *dst, uint32_t word, size_t words)
{
    struct node *n = add(FILL);
    if (!n)
        return;
    n->dst = dst;
    n->word = word;
    n->n = words;
}

int ds_sim_graph_run(struct ds_sim_graph *g, char *why, size_t why_size)
{
    int rc = 0;
    for (size_t i = 0; i < g->n && rc == 0; i++) {
        const struct node *n = &g->node[i];
        if (n->what == LAUNCH) {
            rc = run_launch(g, n, why, why_size);
            continue;
        }
        const size_t bytes = n->what == COPY ? n->n : n->n * sizeof n->word;
        if (!ds_sim_memory_has(n->dst, bytes) ||
            (n->what == COPY && !ds_sim_memory_has(n->src, bytes))) {
            snprintf(why, why_size, "a captured %s of %zu bytes: its memory was released since",
                     n->what == COPY ? "copy" : "fill", bytes);
            rc = -1;
            continue;
        }
        ds_sim_memory_open_at(n->dst);
        ds_sim_memory_open_at(n->src);
        if (n->what == COPY)
            memmove(n->dst, n->src, n->n);
        for (size_t w = 0; n->what == FILL && w < n->n; w++)
            memcpy(static_cast<char *>(n->dst) + w * sizeof n->word, &n->word, sizeof n->word);
        ds_sim_memory_close_at(n->src);
        ds_sim_memory_close_at(n->dst);
    }
    g->runs++;
    return rc;
}

void ds_sim_graph_free(struct ds_sim_graph *g)
{
    for (size_t i = 0; g && i < g->n; i++)
        free(const_cast<void *>(g->node[i].launch.arg));
    if (g)
        free(g->node);
    free(g);
}
