/* graph.h: launches of the device sim that are recorded instead of run, and run again from the record: what a
 * captured CUDA graph is. Arguments are those of the recording, byte for byte; what lies at their
 * addresses is what lies there when the graph runs. Private to kernels/sim. */
#ifndef DS_SIM_GRAPH_H
#define DS_SIM_GRAPH_H

#include "kernels/sim/sim.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ds_sim_graph;

/* From now on what this process would run is recorded. -1: it is recording already, or has no memory. */
int ds_sim_record_begin(void);
int ds_sim_recording(void);
/* Ends it; NULL: it did not record, or a part of it was lost for want of memory. */
struct ds_sim_graph *ds_sim_record_end(void);

/* One thing more of what is recorded. */
void ds_sim_record_launch(const struct ds_sim_launch *l);
void ds_sim_record_copy(void *dst, const void *src, size_t bytes);
void ds_sim_record_fill(void *dst, uint32_t word, size_t words);

/* All of it, in order. Where a launch's order of threads was random it is another one every time, as arrival is
 * on a GPU; the first time it is the recorded one. */
int ds_sim_graph_run(struct ds_sim_graph *g, char *why, size_t why_size);
void ds_sim_graph_free(struct ds_sim_graph *g);

#ifdef __cplusplus
}
#endif
#endif
