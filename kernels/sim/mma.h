/* mma.h: a software model of what a tensor core computes, d = c + sum of a[i] * b[i] with bf16 or f16
 * inputs and an f32 accumulator. Knows no warp and no fragment. Private to kernels/ and its tests.
 *
 * Products are exact. The terms of a sum are taken in blocks; a block's products and what was summed
 * before are added at once, as fixed-point numbers: every significand is shifted to the largest
 * exponent among them (a product's is the sum of its factors' exponents: it is not normalised first),
 * what falls behind the last of 24 + extra bits is cut off (toward zero), and the exact sum of these is
 * cut off to 24 bits. No sum inside a block is rounded or normalised, nothing is ever rounded to
 * nearest. Subnormals are kept.
 *
 *   architecture   block   extra bits
 *   80 (A100)        8         1
 *   90 (H100, H200) 16         2
 *
 * As found by experiment on the hardware: M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, "Numerical
 * behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330, 2021 (V100, T4, A100: exact
 * products, alignment to the largest, truncation, no normalisation inside a block); F. A. Khattak,
 * M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv:2512.07004, 2025 (also H100: blocks and
 * extra bits by architecture). It was not held against a GPU by this project. Chosen here: terms that
 * are zero do not count for the largest exponent; a sum of zeros is +0; NaN is 7fffffff; what is 2^128 or
 * more is infinite. */
#ifndef DS_SIM_MMA_H
#define DS_SIM_MMA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ds_sim_mma_model {
    int architecture, block, extra;
};
/* The model of 80 or 90; NULL for others. */
const struct ds_sim_mma_model *ds_sim_mma_of(int architecture);
/* Which one launches on sim use from now on: 90 unless this says another. -1 for one without a model. */
int ds_sim_mma_choose(int architecture);
const struct ds_sim_mma_model *ds_sim_mma_chosen(void);

/* element: enum ds_element, F16 or BF16; n terms, whose bits are a[i] and b[i]. */
float ds_sim_mma_sum(const struct ds_sim_mma_model *m, int element, const uint16_t *a,
                     const uint16_t *b, int n, float c);

#ifdef __cplusplus
}
#endif
#endif
