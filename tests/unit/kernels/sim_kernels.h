/* sim_kernels.h: what sim_kernels.cu offers test_sim.c. */
#ifndef DS_TEST_SIM_KERNELS_H
#define DS_TEST_SIM_KERNELS_H

#include "kernels/driftscope_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SIM_LANE_WORDS = 10 };
enum sim_test {
    SIM_INDICES,
    SIM_LANES,
    SIM_REVERSE,
    SIM_COUNTS,
    SIM_UNWRITTEN,
    SIM_HALF_AT_BARRIER,
    SIM_TWO_BARRIERS,
    SIM_LANE_MISSING,
    SIM_LANE_NOT_IN_MASK,
    SIM_PARTIAL_WARP,
    SIM_BEHIND_DYNAMIC,
    SIM_BEHIND_STATIC,
    SIM_FOLLOW,
    SIM_DIVIDE,
    SIM_STACK,
    SIM_MANY_THREADS,
    SIM_BOUNDED,
    SIM_BOUNDED_BY_1,
    SIM_BOUNDED_BY_8,
    SIM_MUCH_SHARED,
    SIM_NO_GRID
};
int sim_test_run(int which, const struct ds_exec *exec, const void *in, void *out, int n, char *why,
                 size_t why_size);

/* rmsnorm, right when threads run in order; ends with a NULL name. */
struct ds_sim_norm {
    const char *name;
    int (*launch)(const void *args, const struct ds_exec *exec, char *why, size_t why_size);
};
extern const struct ds_sim_norm ds_sim_norms[];

uint16_t sim_test_bf16(float v);
float sim_test_from_bf16(uint16_t v);
uint16_t sim_test_f16(float v);
float sim_test_from_f16(uint16_t v);

#ifdef __cplusplus
}
#endif
#endif
