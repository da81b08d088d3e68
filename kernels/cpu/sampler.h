/* sampler.h: the row functions behind process and sample at temperatures above 0: what is filtered out,
 * and the noise of the draw. kernels/PINNED.md has the formulas. Private to kernels/. */
#ifndef DS_KERNELS_SAMPLER_H
#define DS_KERNELS_SAMPLER_H

#include "kernels/driftscope_kernel.h"

/* Whether anything but the largest logit is asked for. NULL: no. */
static inline int ds_sampler_draws(const struct ds_sampler *s)
{
    return s && s->temperature > 0.0f;
}

/* The four words of counter (step, block, 0, 0) under key (seed, stream): Philox4x64-10. */
void ds_sampler_words(uint64_t seed, uint64_t stream, uint64_t step, uint64_t block,
                      uint64_t out[4]);
/* -log(-log u) of the uniform number of a word: standard Gumbel noise. */
double ds_sampler_noise(uint64_t word);

/* exp of a number that is not above 0, and log of a positive normal one, with + - * / and moved bits
 * only. */
double ds_sampler_exp(double x);
double ds_sampler_log(double x);

/* Floats of scratch that a row needs. */
static inline int64_t ds_sampler_floats(int64_t vocab)
{
    return 2 * vocab;
}
/* y = what is chosen from. x and y: [vocab]; y is not x. tokens: [n], each of the vocabulary. work: scratch. */
void ds_sampler_process(const struct ds_sampler *s, const float *x, int64_t vocab,
                        const int32_t *tokens, int32_t n, float *y, float *work);
/* The token drawn from a row of these; scores: [vocab] or NULL, as in struct ds_sample_args. */
int32_t ds_sampler_draw(const struct ds_sampler *s, const float *y, int64_t vocab, int32_t stream,
                        int32_t step, float *scores);

#endif
