/* SPDX-License-Identifier: Apache-2.0 */
/* lanes.cuh - everything that the kernels ask of a device, on the host's compiler.
 *
 * Role    The names of src/engines/cuda/kernels/lanes.cuh, which says what each of them means. Here
 *         a thread of a block is a fiber; a warp primitive stores what the lane brings, gives the
 *         processor away and finds the answer when it is back: sim.h, lanes.cpp.
 * Strict  Vector accesses must be aligned, shared memory starts as NaN and is bounded, asynchronous
 *         copies arrive when they are waited for and not before, and lanes that meet must be at the
 *         same primitive of the same line.
 * Numbers 16-bit values are rounded as the device rounds them (nearest, ties to even); mma sums its
 *         exact products in double and rounds once, where the device truncates a little: results
 *         agree to a few units of float, not to the bit. */
#ifndef FL_TESTS_CUDA_SIM_LANES_CUH
#define FL_TESTS_CUDA_SIM_LANES_CUH

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FL_FN     [[maybe_unused]] static inline
#define FL_METHOD inline
#define FL_KERNEL(name, structure, threads, blocks, ...)                                           \
    static void sim_body_##name(const void *p) {                                                   \
        __VA_ARGS__(*static_cast<const structure *>(p));                                           \
    }                                                                                              \
    static const sim_kernel sim_kernel_##name(#name, sizeof(structure), threads, sim_body_##name);
#define FL_SHARED(type, name, count)                                                               \
    auto &name = *static_cast<type(*)[count]>(                                                     \
        sim_shared(#name, __LINE__, sizeof(type) * static_cast<size_t>(count)))

/* A kernel enters the list when the program starts. */
struct sim_kernel {
    const char *name;
    size_t      param_size;
    unsigned    threads;
    void (*body)(const void *);
    const sim_kernel *next;
    sim_kernel(const char *name, size_t param_size, unsigned threads, void (*body)(const void *));
};

enum sim_op { SIM_RUN, SIM_BLOCK_SYNC, SIM_WARP_SYNC, SIM_XOR, SIM_UP, SIM_BALLOT, SIM_MMA };

/* What a lane brings to a meeting, and what it takes away. */
struct sim_meeting {
    sim_op   op;
    int      line;
    int      argument;
    uint64_t value;
    /* mma */
    bool            bf16;
    const uint32_t *a;
    uint32_t        b[2];
    float          *c;
};

struct sim_place {
    uint32_t thread, block_x, block_y, grid_x, grid_y;
    uint32_t launch, barrier, warp_sync; /* how many of them there were */
};

/* 16 bytes on their way. */
struct sim_copy {
    void       *shared;
    const void *global;
};

/* Whose memory: the running thread's own, its block's, or everybody's. */
enum sim_memory { SIM_OWN, SIM_SHARED, SIM_GLOBAL };

const sim_place  &sim_here();
uint64_t          sim_meet(const sim_meeting &meeting);
void             *sim_shared(const char *name, int line, size_t bytes);
void              sim_copy_started(void *shared, const void *global);
void              sim_copies_commit();
bool              sim_copy_arrived(unsigned left, sim_copy &out);
sim_memory        sim_memory_of(const void *at);
[[noreturn]] void sim_fail(const char *what, const void *at);

struct fl_f16 {
    uint16_t bits;
};
struct fl_bf16 {
    uint16_t bits;
};
struct alignas(16) fl_words4 {
    uint32_t w[4];
};
struct alignas(8) fl_words2 {
    uint32_t w[2];
};

/* Memory. */
FL_FN void sim_aligned(const void *at, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(at) % bytes != 0) {
        sim_fail("misaligned vector access", at);
    }
}
FL_FN fl_words4 load16(const void *at) {
    sim_aligned(at, 16);
    fl_words4 v;
    memcpy(&v, at, sizeof v);
    return v;
}
FL_FN fl_words2 load8(const void *at) {
    sim_aligned(at, 8);
    fl_words2 v;
    memcpy(&v, at, sizeof v);
    return v;
}
FL_FN void store16(void *at, const fl_words4 &v) {
    sim_aligned(at, 16);
    memcpy(at, &v, sizeof v);
}
FL_FN void store8(void *at, const fl_words2 &v) {
    sim_aligned(at, 8);
    memcpy(at, &v, sizeof v);
}

/* Words and numbers. */
FL_FN float word_float(uint32_t word) {
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}
FL_FN uint32_t float_word(float value) {
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return word;
}
/* The half's bits stand in a float whose exponent is 112 too small; a product mends all at once,
 * numbers below the normal range too. */
FL_FN float sim_half_float(uint16_t bits) {
    uint32_t sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
    if (rest >= 0x7c00) {
        return word_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    }
    return word_float(float_word(word_float(rest << 13) * 0x1p112f) | sign);
}
/* Nearest, ties to even: adding a float whose last place is the half's last place rounds. */
FL_FN uint16_t sim_float_half(float value) {
    uint32_t word = float_word(value), sign = word >> 16 & 0x8000u, rest = word & 0x7fffffffu;
    if (rest > 0x7f800000u) {
        return static_cast<uint16_t>(sign | 0x7fffu);
    }
    if (rest >= 0x477ff000u) { /* 65520 and more */
        return static_cast<uint16_t>(sign | 0x7c00u);
    }
    if (rest < 0x38800000u) { /* below 2^-14 */
        return static_cast<uint16_t>(sign | (float_word(word_float(rest) + 0.5f) - 0x3f000000u));
    }
    rest += 0xfffu + (rest >> 13 & 1);
    return static_cast<uint16_t>(sign | ((rest - 0x38000000u) >> 13));
}
FL_FN float sim_bfloat_float(uint16_t bits) {
    return word_float(static_cast<uint32_t>(bits) << 16);
}
FL_FN uint16_t sim_float_bfloat(float value) {
    uint32_t word = float_word(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) {
        return 0x7fffu;
    }
    return static_cast<uint16_t>((word + 0x7fffu + (word >> 16 & 1)) >> 16);
}
FL_FN void unpack2(fl_f16, uint32_t word, float &low, float &high) {
    low  = sim_half_float(static_cast<uint16_t>(word));
    high = sim_half_float(static_cast<uint16_t>(word >> 16));
}
FL_FN void unpack2(fl_bf16, uint32_t word, float &low, float &high) {
    low  = sim_bfloat_float(static_cast<uint16_t>(word));
    high = sim_bfloat_float(static_cast<uint16_t>(word >> 16));
}
FL_FN uint32_t pack2(fl_f16, float low, float high) {
    return static_cast<uint32_t>(sim_float_half(high)) << 16 | sim_float_half(low);
}
FL_FN uint32_t pack2(fl_bf16, float low, float high) {
    return static_cast<uint32_t>(sim_float_bfloat(high)) << 16 | sim_float_bfloat(low);
}
/* The quantum is 1/8 of the value's binade, 2^-9 below 2^-6. */
FL_FN uint32_t sim_float_e4m3(float value) {
    uint32_t sign = float_word(value) >> 24 & 0x80u;
    if (value != value) {
        return 0x7fu; /* whatever its sign */
    }
    if (fabsf(value) >= 448.0f) {
        return sign | 0x7eu;
    }
    int      place = fabsf(value) < 0x1p-6f ? -6 : ilogbf(value);
    uint32_t steps = static_cast<uint32_t>(nearbyintf(ldexpf(fabsf(value), 3 - place)));
    return sign | (static_cast<uint32_t>(place + 6) * 8 + steps); /* 8 steps to a binade */
}
FL_FN uint32_t pack2_e4m3(float low, float high) {
    return sim_float_e4m3(high) << 8 | sim_float_e4m3(low);
}
FL_FN uint32_t lower_halves(uint32_t first, uint32_t second) {
    return (first & 0xffffu) | second << 16;
}
FL_FN uint32_t upper_halves(uint32_t first, uint32_t second) {
    return first >> 16 | (second & 0xffff0000u);
}
FL_FN uint32_t bits_set(uint32_t word) {
    return static_cast<uint32_t>(__builtin_popcount(word));
}
FL_FN float fast_exp2(float x) {
    float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y;
}
FL_FN float fast_reciprocal(float x) {
    return 1.0f / x;
}

/* Block and warp. The line is the caller's. */
FL_FN uint32_t thread_index() {
    return sim_here().thread;
}
FL_FN uint32_t lane_index() {
    return sim_here().thread & 31;
}
FL_FN uint32_t warp_index() {
    return sim_here().thread >> 5;
}
FL_FN uint32_t block_x() {
    return sim_here().block_x;
}
FL_FN uint32_t block_y() {
    return sim_here().block_y;
}
FL_FN uint32_t grid_y() {
    return sim_here().grid_y;
}
FL_FN void block_sync(int line = __builtin_LINE()) {
    sim_meet({SIM_BLOCK_SYNC, line, 0, 0, false, nullptr, {0, 0}, nullptr});
}
FL_FN void warp_sync(int line = __builtin_LINE()) {
    sim_meet({SIM_WARP_SYNC, line, 0, 0, false, nullptr, {0, 0}, nullptr});
}
FL_FN float shuffle_xor(float value, int mask, int line = __builtin_LINE()) {
    uint64_t word =
        sim_meet({SIM_XOR, line, mask, float_word(value), false, nullptr, {0, 0}, nullptr});
    return word_float(static_cast<uint32_t>(word));
}
FL_FN uint64_t shuffle_up(uint64_t value, unsigned by, int line = __builtin_LINE()) {
    return sim_meet({SIM_UP, line, static_cast<int>(by), value, false, nullptr, {0, 0}, nullptr});
}
FL_FN uint32_t warp_ballot(bool truth, int line = __builtin_LINE()) {
    return static_cast<uint32_t>(
        sim_meet({SIM_BALLOT, line, 0, truth, false, nullptr, {0, 0}, nullptr}));
}

/* Tensor core and asynchronous copies. */
FL_FN void mma(fl_f16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
               int line = __builtin_LINE()) {
    sim_meet({SIM_MMA, line, 0, 0, false, a, {b0, b1}, c});
}
FL_FN void mma(fl_bf16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
               int line = __builtin_LINE()) {
    sim_meet({SIM_MMA, line, 0, 0, true, a, {b0, b1}, c});
}
/* Until it has arrived, what it goes over is neither the old nor the new. */
FL_FN void copy16_async(void *shared, const void *global) {
    sim_aligned(global, 16);
    store16(shared, {{~0u, ~0u, ~0u, ~0u}});
    sim_copy_started(shared, global);
}
FL_FN void copies_commit() {
    sim_copies_commit();
}
template <int LEFT> FL_FN void copies_wait() {
    sim_copy c;
    while (sim_copy_arrived(LEFT, c)) {
        store16(c.shared, load16(c.global));
    }
}

#endif
