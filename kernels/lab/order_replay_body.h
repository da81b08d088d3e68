/* order_replay_body.h: the plain steps on 16 columns side by side. Each column is added in exactly
 * the order of the steps: lanes are independent outputs. Included once for each instruction set. */
#include "kernels/lab/order_replay.h"

#include <math.h>

void REPLAY_NAME(const struct ds_replay *r, const float *x, const float *w, float *stack)
{
    enum { L = DS_REPLAY_LANES };
    float *top = stack - L;
    for (int32_t i = 0; i < r->n; i++) {
        const struct ds_replay_step *s = &r->step[i];
        const float a = x[s->term], *b = w + (int64_t)s->term * L;
        switch (s->kind) {
        case DS_STEP_PUSH:
            top += L;
            for (int j = 0; j < L; j++)
                top[j] = a * b[j];
            break;
        case DS_STEP_FMA:
            for (int j = 0; j < L; j++)
                top[j] = fmaf(a, b[j], top[j]);
            break;
        case DS_STEP_MUL_ADD:
            for (int j = 0; j < L; j++)
                top[j] = top[j] + a * b[j];
            break;
        default:
            top -= L;
            for (int j = 0; j < L; j++)
                top[j] = top[j] + top[j + L];
        }
    }
}
