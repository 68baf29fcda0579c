/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.cuh - everything that the kernels ask of a device, on the device.
 *
 * Role    The kernels call a block's threads, its shared memory, a warp's exchanges, the tensor
 *         core and asynchronous copies through these names alone. tests/cuda/sim has a second
 *         lanes.cuh with the same names for the host's compiler; the include path chooses, so that
 *         the kernels are proven without a GPU and no kernel has a line for it.
 * Names   FL_KERNEL(name, structure, threads, blocks, body…) defines kernel `name`, which calls
 *         body(p); the compiler sees to it that so many blocks of so many threads fit a processor.
 *         FL_SHARED(type, name, count) is shared memory of the block, not initialised.
 *         Every warp primitive is called by all 32 lanes together.
 * Types   fl_f16 and fl_bf16 are 16 bits in memory; sums are made in float. unpack2 and pack2 take
 *         two neighbours at a time: the lower address is the lower half of the word.
 * Tensor  mma: c[16x8] += a[16x16] b[16x8] (PTX m16n8k16, row.col). Of lane 4g + t: c[0..1] are row
 *         g, columns 2t and 2t + 1, c[2..3] row g + 8; a[0] row g, k 2t and 2t + 1; a[1] row g + 8;
 *         a[2], a[3] the same rows, k + 8; b[0] k 2t and 2t + 1 of column g, b[1] k + 8.
 * Older   sm_75 knows half the k and no bfloat16: two products there; the host never launches
 *         bf16. */
#ifndef FL_ENGINES_CUDA_KERNELS_LANES_CUH
#define FL_ENGINES_CUDA_KERNELS_LANES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#define FL_FN     static __device__ __forceinline__
#define FL_METHOD __device__ __forceinline__
#define FL_KERNEL(name, structure, threads, blocks, ...)                                           \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                  \
        name(const __grid_constant__ structure p) {                                                \
        __VA_ARGS__(p);                                                                            \
    }
#define FL_SHARED(type, name, count) __shared__ __align__(16) type name[count]

struct fl_f16 {
    uint16_t bits;
};
struct fl_bf16 {
    uint16_t bits;
};

/* Four words that travel together. */
struct alignas(16) fl_words4 {
    uint32_t w[4];
};
struct alignas(8) fl_words2 {
    uint32_t w[2];
};

/* Memory. */
FL_FN fl_words4 load16(const void *at) {
    uint4 v = *static_cast<const uint4 *>(at);
    return {{v.x, v.y, v.z, v.w}};
}
FL_FN fl_words2 load8(const void *at) {
    uint2 v = *static_cast<const uint2 *>(at);
    return {{v.x, v.y}};
}
FL_FN void store16(void *at, const fl_words4 &v) {
    *static_cast<uint4 *>(at) = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
}
FL_FN void store8(void *at, const fl_words2 &v) {
    *static_cast<uint2 *>(at) = make_uint2(v.w[0], v.w[1]);
}

/* Words and numbers. */
FL_FN float word_float(uint32_t word) {
    return __uint_as_float(word);
}
FL_FN uint32_t float_word(float value) {
    return __float_as_uint(value);
}
FL_FN void unpack2(fl_f16, uint32_t word, float &low, float &high) {
    float2 f =
        __half22float2(__halves2half2(__ushort_as_half(static_cast<unsigned short>(word)),
                                      __ushort_as_half(static_cast<unsigned short>(word >> 16))));
    low  = f.x;
    high = f.y;
}
FL_FN void unpack2(fl_bf16, uint32_t word, float &low, float &high) {
    low  = __uint_as_float(word << 16);
    high = __uint_as_float(word & 0xffff0000u);
}
FL_FN uint32_t pack2(fl_f16, float low, float high) {
    __half2 h = __floats2half2_rn(low, high);
    return static_cast<uint32_t>(__half_as_ushort(__high2half(h))) << 16 |
           __half_as_ushort(__low2half(h));
}
FL_FN uint32_t pack2(fl_bf16, float low, float high) {
    __nv_bfloat162 h = __floats2bfloat162_rn(low, high);
    return static_cast<uint32_t>(__bfloat16_as_ushort(__high2bfloat16(h))) << 16 |
           __bfloat16_as_ushort(__low2bfloat16(h));
}
/* The lower halves of two words as one, and the upper halves. */
FL_FN uint32_t lower_halves(uint32_t first, uint32_t second) {
    return __byte_perm(first, second, 0x5410);
}
FL_FN uint32_t upper_halves(uint32_t first, uint32_t second) {
    return __byte_perm(first, second, 0x7632);
}
FL_FN uint32_t bits_set(uint32_t word) {
    return static_cast<uint32_t>(__popc(word));
}
/* 2^x to about 2 units in the last place; what lies below float's normal range is 0. */
FL_FN float fast_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* 1 / x to about 1 unit in the last place. */
FL_FN float fast_reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Block and warp. */
FL_FN uint32_t thread_index() {
    return threadIdx.x;
}
FL_FN uint32_t lane_index() {
    return threadIdx.x & 31;
}
FL_FN uint32_t warp_index() {
    return threadIdx.x >> 5;
}
FL_FN uint32_t block_x() {
    return blockIdx.x;
}
FL_FN uint32_t block_y() {
    return blockIdx.y;
}
FL_FN uint32_t grid_y() {
    return gridDim.y;
}
FL_FN void block_sync() {
    __syncthreads();
}
FL_FN void warp_sync() {
    __syncwarp();
}
FL_FN float shuffle_xor(float value, int mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
}
/* The value of the lane `by` below; lanes below `by` keep their own. */
FL_FN uint64_t shuffle_up(uint64_t value, unsigned by) {
    return __shfl_up_sync(0xffffffffu, static_cast<unsigned long long>(value), by);
}
/* Bit l: the truth of lane l. */
FL_FN uint32_t warp_ballot(bool truth) {
    return __ballot_sync(0xffffffffu, truth);
}

/* Two 8-bit floats (e4m3) in the lower half of a word; beyond 448 it is 448, NaN stays NaN. */
#if __CUDA_ARCH__ >= 890
FL_FN uint32_t pack2_e4m3(float low, float high) {
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}
#else /* no tensor core knows it: the host never asks for it */
FL_FN uint32_t pack2_e4m3(float, float) {
    __trap();
    return 0;
}
#endif

/* Tensor core and asynchronous copies. */
#if __CUDA_ARCH__ >= 800

FL_FN void mma(fl_f16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
FL_FN void mma(fl_bf16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* Shared memory receives 16 bytes; they are there after copies_wait and a barrier. */
FL_FN void copy16_async(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
                 "l"(global)
                 : "memory");
}
/* The copies since the last commit are one group. */
FL_FN void copies_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until at most `LEFT` groups of this thread are on their way. */
template <int LEFT> FL_FN void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#else /* Turing */

FL_FN void mma(fl_f16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    for (int half = 0; half < 2; half++) {
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(half ? b1 : b0));
    }
}
FL_FN void mma(fl_bf16, float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t) {
    __trap();
}
FL_FN void copy16_async(void *shared, const void *global) {
    store16(shared, load16(global));
}
FL_FN void                     copies_commit() {}
template <int LEFT> FL_FN void copies_wait() {}

#endif

#endif
