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
 *   architecture             block   extra bits   source
 *   80 (A100)                  8         1        [1] [2] [3]
 *   89 (L40S, RTX 40)          8         1        [2] [3]
 *   90 (H100, H200)           16         2        [2] [3]
 *   100 (B200)                16         2        [2] [3]
 *   120 (RTX PRO 6000)        16         2        [3]; the authors of [2] take their model of 100 for it
 *
 * As found by experiment on the hardware, for mma.sync with f16 and bf16 inputs and f32 sums:
 *   [1] M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer
 *       Science 7:e330, 2021: exact products, alignment to the largest, truncation, no normalisation inside a block.
 *   [2] F. A. Khattak, M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv:2512.07004, 2025, and its
 *       models (github.com/north-numerical-computing/MATLAB-tensor-core).
 *   [3] P. Xie, Y. Wang, F. Yang, M. Yang, "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores",
 *       arXiv:2511.10909, 2025, and its code (github.com/microsoft/MMA-Sim): 24 fraction bits on Ampere and Ada, 25
 *       on Hopper and both Blackwells; k16 in two halves on Ampere and Ada.
 * It was not held against a GPU by this project. Where the sources say different things, or nothing, this was
 * chosen: terms that are zero do not count for the largest exponent (so [1] and [2]; [3] gives them that of the
 * smallest normal number, which shows in sums below 2^-101 only; [2] also has a least exponent of 2^-133 to align
 * to); a sum of zeros is +0; NaN is 7fffffff; what is 2^128 or more is infinite. There is no model of wgmma and tcgen05,
 * which no kernel here uses: on other architectures, and for fp8, tensor cores compute otherwise. */
#ifndef DS_SIM_MMA_H
#define DS_SIM_MMA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ds_sim_mma_model {
    int architecture, block, extra;
};
/* The model of an architecture of the table; NULL for others. */
const struct ds_sim_mma_model *ds_sim_mma_of(int architecture);
/* Which one launches on sim use from now on: 90 unless this says another; 0: 90 again. -1 for one without a model. */
int ds_sim_mma_choose(int architecture);
const struct ds_sim_mma_model *ds_sim_mma_chosen(void);

/* element: enum ds_element, F16 or BF16; n terms, whose bits are a[i] and b[i]. */
float ds_sim_mma_sum(const struct ds_sim_mma_model *m, int element, const uint16_t *a,
                     const uint16_t *b, int n, float c);

#ifdef __cplusplus
}
#endif
#endif
