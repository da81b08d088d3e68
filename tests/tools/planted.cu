/* planted.cu: what the looks at nvcc's output must see: a fused operation that nobody asked for by ds_fma, in single and in double
 * precision, and a kernel that spills registers. */
#include "kernels/cuda/kernels.cuh"

__global__ void fused(float *y, float a, float b)
{
    y[0] = __fmaf_rn(a, b, y[0]);
}

__global__ void fused_double(double *y, double a)
{
    y[0] = fma(a, a, y[0]);
}

__global__ void __launch_bounds__(1024, 2) spilling(const float *x, float *y, int n)
{
    float v[64], s = 0;
#pragma unroll
    for (int i = 0; i < 64; i++)
        v[i] = x[threadIdx.x + i * n];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 64; j++)
        for (int i = 0; i < 64; i++)
            s += v[i] * x[i * j * n];
#pragma unroll
    for (int i = 0; i < 64; i++)
        y[threadIdx.x + i * n] = v[i] + s;
}
