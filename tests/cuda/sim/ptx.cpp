/* SPDX-License-Identifier: Apache-2.0 */
/* ptx.cpp - the PTX that nvcc made of the kernels, run on the host: the other implementation of sim.h.
 *
 * Role    lanes.cpp runs the .cu files as the host's compiler reads them. What only nvcc reads, inline PTX and the
 *         layouts of matrix fragments, and what nvcc made of the C++, is run here. It is not the machine code of a
 *         device (ptxas is not tried), and says nothing of time or of a device's rounding of ex2.approx.
 * In/Out  SIM_PTX in the environment, or the folder that the build names: its .ptx files.
 * Method  A kernel is a list of decoded instructions. Every operand is a row of a register file, one value a lane
 *         of the warp, constants and %tid included, so that an instruction is one loop over 32 lanes. Lanes have
 *         a program counter each; the lowest runs first, which joins what an `if` has parted.
 *         Fragments are laid out as the PTX ISA draws them, independent of lanes.cuh.
 *         The bytes of cp.async arrive when they are waited for and no sooner; shared memory begins as 0xff.
 * Order   SIM_ORDER 0 or nothing: a warp runs until it waits. Another number: warps take turns of some
 *         instructions, drawn from it, so that what a missing barrier lets through comes out wrong.
 * Errors  An opcode that is not known (when its kernel is started), a misaligned access, one beyond shared memory
 *         or parameters, shfl, mma and bar.warp.sync that lack a lane.
 * Memory  Registers of a block's warps, kept by each OS thread. Proof: tests/cuda/kernels*.c; mutated PTX fails. */
#include <algorithm>
#include <array>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dirent.h>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "sim.h"

#ifndef SIM_PTX_FOLDER
#define SIM_PTX_FOLDER "."
#endif

namespace {

using std::string;
using std::vector;

constexpr unsigned LANES = 32, FULL = 0xffffffffu;

/* ---- What a kernel is ------------------------------------------------------------------------- */

struct warp;
struct instruction;
using action = bool (*)(warp &, const instruction &, uint32_t on);

/* A row of registers; 32 values of 8 bytes, of which narrower types take the low ones. */
using row = std::array<uint64_t, LANES>;

struct instruction {
    action           run = nullptr;
    int              predicate = -1; /* a row; -1: always */
    bool             negated   = false;
    vector<unsigned> to, from;   /* rows */
    int64_t          offset = 0; /* of an address */
    unsigned         bytes  = 0; /* of one element in memory */
    bool             sign   = false;
    enum { GLOBAL, SHARED, PARAM } space = GLOBAL;
    size_t target = 0; /* of a branch */
    string text;
};

struct kernel {
    size_t                     param_bytes = 0, shared_bytes = 0;
    unsigned                   rows = 0;
    vector<instruction>        code;
    std::map<unsigned, uint64_t> constants;
    std::map<unsigned, string> specials; /* %tid.x and its like */
    string                     error;    /* an opcode that is not known */
};

/* ---- A block at work --------------------------------------------------------------------------- */

struct copy {
    uint64_t    to;
    const char *from;
    unsigned    bytes, group;
};

struct block {
    const kernel  &k;
    const char    *param;
    const unsigned *grid, *threads;
    unsigned       at[3] = {0, 0, 0};
    vector<char>   shared;
    string         error;

    bool fail(const instruction &i, const string &what) {
        if (error.empty()) {
            error = what + ": " + i.text;
        }
        return false;
    }
};

enum lane_state : uint8_t { RUNS, WAITS, ENDED };

struct warp {
    block       &b;
    unsigned     first, lanes; /* of its threads */
    vector<row> &r;            /* owned by the OS thread */
    size_t       base;         /* of its rows in r */
    uint32_t                   running = 0, waiting = 0;
    bool                       together = true; /* all running lanes are at `pc` */
    size_t                     pc = 0, pcs[LANES] = {};
    std::deque<copy>           copies[LANES];
    unsigned                   group[LANES] = {};

    warp(block &at, unsigned from, unsigned count, vector<row> &registers, size_t rows)
        : b(at), first(from), lanes(count), r(registers), base(rows) {}
    row &at(unsigned n) { return r[base + n]; }
};

template <class T> T value(uint64_t bits) {
    T out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

template <class T> uint64_t bits(T v) {
    uint64_t out = 0;
    memcpy(&out, &v, sizeof v);
    return out;
}

/* ---- Arithmetic: a function of one lane's operands ----------------------------------------------- */

template <class To, class From, class F> bool unary(warp &w, const instruction &i, uint32_t on) {
    const row &a = w.at(i.from[0]);
    row       &d = w.at(i.to[0]);
    for (unsigned l = 0; l < LANES; l++) {
        uint64_t v = bits<To>(F()(value<From>(a[l])));
        d[l]       = on >> l & 1 ? v : d[l];
    }
    return true;
}

template <class To, class From, class F> bool binary(warp &w, const instruction &i, uint32_t on) {
    const row &a = w.at(i.from[0]), &b = w.at(i.from[1]);
    row       &d = w.at(i.to[0]);
    for (unsigned l = 0; l < LANES; l++) {
        uint64_t v = bits<To>(F()(value<From>(a[l]), value<From>(b[l])));
        d[l]       = on >> l & 1 ? v : d[l];
    }
    return true;
}

template <class To, class From, class F> bool ternary(warp &w, const instruction &i, uint32_t on) {
    const row &a = w.at(i.from[0]), &b = w.at(i.from[1]), &c = w.at(i.from[2]);
    row       &d = w.at(i.to[0]);
    for (unsigned l = 0; l < LANES; l++) {
        uint64_t v = bits<To>(F()(value<From>(a[l]), value<From>(b[l]), value<To>(c[l])));
        d[l]       = on >> l & 1 ? v : d[l];
    }
    return true;
}

using f32 = float;
using u16 = uint16_t;
using s16 = int16_t;
using u32 = uint32_t;
using s32 = int32_t;
using u64 = uint64_t;
using s64 = int64_t;
using u8  = uint8_t;

#define FUNCTION(name, ...)                                                                        \
    struct name {                                                                                  \
        template <class T> auto operator() __VA_ARGS__                                             \
    };
FUNCTION(same, (T a) { return a; })
FUNCTION(add, (T a, T b) { return static_cast<T>(a + b); })
FUNCTION(sub, (T a, T b) { return static_cast<T>(a - b); })
FUNCTION(mul, (T a, T b) { return static_cast<T>(a * b); })
FUNCTION(both, (T a, T b) { return static_cast<T>(a & b); })
FUNCTION(either, (T a, T b) { return static_cast<T>(a | b); })
FUNCTION(one_of, (T a, T b) { return static_cast<T>(a ^ b); })
FUNCTION(inverse, (T a) { return static_cast<T>(~a); })
FUNCTION(opposite, (T a) { return static_cast<T>(-a); })
FUNCTION(least, (T a, T b) { return b < a || a != a ? b : a; })
FUNCTION(most, (T a, T b) { return b > a || a != a ? b : a; })
FUNCTION(quotient, (T a, T b) { return b == 0 ? static_cast<T>(-1) : static_cast<T>(a / b); })
FUNCTION(remainder_of, (T a, T b) { return b == 0 ? a : static_cast<T>(a % b); })
FUNCTION(lt, (T a, T b) { return u64{a < b}; })
FUNCTION(le, (T a, T b) { return u64{a <= b}; })
FUNCTION(gt, (T a, T b) { return u64{a > b}; })
FUNCTION(ge, (T a, T b) { return u64{a >= b}; })
FUNCTION(eq, (T a, T b) { return u64{a == b}; })
FUNCTION(ne, (T a, T b) { return u64{a < b || a > b}; })
FUNCTION(not_ge, (T a, T b) { return u64{!(a >= b)}; }) /* ltu: less, or not to be compared */
FUNCTION(not_gt, (T a, T b) { return u64{!(a > b)}; })
FUNCTION(not_le, (T a, T b) { return u64{!(a <= b)}; })
FUNCTION(not_lt, (T a, T b) { return u64{!(a < b)}; })
FUNCTION(unlike, (T a, T b) { return u64{!(a == b)}; })
#undef FUNCTION

struct divide {
    f32 operator()(f32 a, f32 b) { return a / b; }
};
struct fused {
    f32 operator()(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
};
struct fused_down {
    f32 operator()(f32 a, f32 b, f32 c) {
        volatile f32 x = a, y = b, z = c, out;
        fesetround(FE_DOWNWARD);
        out = fmaf(x, y, z);
        fesetround(FE_TONEAREST);
        return out;
    }
};
f32 flushed(f32 x) { return std::fpclassify(x) == FP_SUBNORMAL ? copysignf(0.0f, x) : x; }
struct power {
    f32 operator()(f32 a) { return exp2f(a); }
};
struct power_flushed {
    f32 operator()(f32 a) { return flushed(exp2f(flushed(a))); }
};
struct reciprocal {
    f32 operator()(f32 a) { return 1.0f / a; }
};
struct reciprocal_flushed {
    f32 operator()(f32 a) { return flushed(1.0f / flushed(a)); }
};
struct root {
    f32 operator()(f32 a) { return sqrtf(a); }
};
struct absolute {
    f32 operator()(f32 a) { return fabsf(a); }
};
struct with_sign { /* of a, the value of b */
    f32 operator()(f32 a, f32 b) { return copysignf(b, a); }
};
struct count_ones {
    u32 operator()(u32 a) { return static_cast<u32>(__builtin_popcount(a)); }
};
struct not_pred {
    u64 operator()(u64 a) { return !(a & 1); }
};
template <class T> struct left {
    T operator()(T a, u32 n) { return n >= 8 * sizeof a ? T{0} : static_cast<T>(a << n); }
};
template <class T> struct right {
    T operator()(T a, u32 n) {
        constexpr u32 top = 8 * sizeof a - 1;
        return n > top ? static_cast<T>(a < 0 ? -1 : 0) : static_cast<T>(a >> n);
    }
};
template <class Wide, class T> struct wide {
    Wide operator()(T a, T b) { return static_cast<Wide>(a) * static_cast<Wide>(b); }
};
template <class T> struct multiply_add {
    T operator()(T a, T b, T c) { return static_cast<T>(a * b + c); }
};

template <class T, class F> bool shift(warp &w, const instruction &i, uint32_t on) {
    const row &a = w.at(i.from[0]), &n = w.at(i.from[1]);
    row       &d = w.at(i.to[0]);
    for (unsigned l = 0; l < LANES; l++) {
        uint64_t v = bits<T>(F()(value<T>(a[l]), static_cast<u32>(n[l])));
        d[l]       = on >> l & 1 ? v : d[l];
    }
    return true;
}

/* ---- Numbers of other formats ------------------------------------------------------------------ */

f32 from_f16(u16 x) { return static_cast<f32>(value<_Float16>(x)); }
u16 to_f16(f32 x) { return static_cast<u16>(bits(static_cast<_Float16>(x))); }
f32 from_bf16(u16 x) { return value<f32>(u64{x} << 16); }
u16 to_bf16(f32 x) {
    u32 v = static_cast<u32>(bits(x));
    return x != x ? 0x7fff : static_cast<u16>((v + 0x7fff + (v >> 16 & 1)) >> 16);
}

/* Four bits of exponent, three of fraction, no infinity: the nearest, ties to even, at most 448. */
u8 to_e4m3(f32 x) {
    u8  sign = std::signbit(x) ? 0x80 : 0;
    f32 a    = fabsf(x);
    int exponent;
    if (x != x) {
        return 0x7f;
    }
    if (a >= 448.0f) {
        return sign | 0x7e;
    }
    frexpf(a, &exponent);
    exponent = std::max(exponent - 1, -6);
    int steps = static_cast<int>(nearbyintf(ldexpf(a, 3 - exponent)));
    if (steps == 16) {
        steps = 8, exponent++;
    }
    return sign | static_cast<u8>(steps < 8 ? steps : (exponent + 7) << 3 | (steps - 8));
}

struct f16_to_f32 {
    f32 operator()(u16 a) { return from_f16(a); }
};
struct f32_to_f16 {
    u16 operator()(f32 a) { return to_f16(a); }
};
struct bf16_to_f32 {
    f32 operator()(u16 a) { return from_bf16(a); }
};
struct f32_to_bf16 {
    u16 operator()(f32 a) { return to_bf16(a); }
};
struct two_f16 {
    u32 operator()(f32 high, f32 low) { return static_cast<u32>(to_f16(high)) << 16 | to_f16(low); }
};
struct two_bf16 {
    u32 operator()(f32 high, f32 low) { return static_cast<u32>(to_bf16(high)) << 16 | to_bf16(low); }
};
struct two_e4m3 {
    u16 operator()(f32 high, f32 low) { return static_cast<u16>(to_e4m3(high) << 8 | to_e4m3(low)); }
};
struct nearest {
    f32 operator()(f32 a) { return nearbyintf(a); }
};
struct saturated {
    f32 operator()(f32 a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }
};
struct toward_zero {
    s32 operator()(f32 a) {
        return a != a ? 0 : static_cast<s32>(std::clamp(static_cast<double>(truncf(a)), -2147483648.0, 2147483647.0));
    }
};
template <class To, class From> struct converted {
    To operator()(From a) { return static_cast<To>(a); }
};

/* ---- Instructions of more than one lane or value ------------------------------------------------- */

bool select(warp &w, const instruction &i, uint32_t on) {
    const row &a = w.at(i.from[0]), &b = w.at(i.from[1]), &p = w.at(i.from[2]);
    row       &d = w.at(i.to[0]);
    for (unsigned l = 0; l < LANES; l++) {
        uint64_t v = p[l] & 1 ? a[l] : b[l];
        d[l]       = on >> l & 1 ? v : d[l];
    }
    return true;
}

/* mov of vectors: {a, b} into one register, or one into {a, b}. */
bool pack(warp &w, const instruction &i, uint32_t on) {
    unsigned width = 8 * i.bytes;
    uint64_t mask  = width == 64 ? ~u64{0} : (u64{1} << width) - 1;
    for (unsigned l = 0; l < LANES; l++) {
        if (!(on >> l & 1)) {
            continue;
        }
        uint64_t v = 0;
        for (size_t n = 0; n < i.from.size(); n++) {
            v |= i.from.size() == 1 ? w.at(i.from[0])[l] : (w.at(i.from[n])[l] & mask) << width * n;
        }
        for (size_t n = 0; n < i.to.size(); n++) {
            w.at(i.to[n])[l] = i.to.size() == 1 ? v : v >> width * n & mask;
        }
    }
    return true;
}

bool permute(warp &w, const instruction &i, uint32_t on) {
    const row &a = w.at(i.from[0]), &b = w.at(i.from[1]), &s = w.at(i.from[2]);
    row       &d = w.at(i.to[0]);
    for (unsigned l = 0; l < LANES; l++) {
        uint64_t bytes = static_cast<u32>(a[l]) | b[l] << 32;
        u32      out   = 0;
        for (unsigned n = 0; n < 4; n++) {
            unsigned pick = s[l] >> 4 * n & 15;
            u8       byte = static_cast<u8>(bytes >> 8 * (pick & 7));
            out |= static_cast<u32>(pick & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << 8 * n;
        }
        d[l] = on >> l & 1 ? out : d[l];
    }
    return true;
}

bool insert_bits(warp &w, const instruction &i, uint32_t on) {
    for (unsigned l = 0; l < LANES; l++) {
        u32 a = static_cast<u32>(w.at(i.from[0])[l]), b = static_cast<u32>(w.at(i.from[1])[l]);
        u32 at = w.at(i.from[2])[l] & 255, count = w.at(i.from[3])[l] & 255;
        u64 mask = at < 32 ? (count < 32 ? (u64{1} << count) - 1 : FULL) << at & FULL : 0;
        if (on >> l & 1) {
            w.at(i.to[0])[l] = (b & ~mask) | (u64{a} << (at & 31) & mask);
        }
    }
    return true;
}

/* Where lane l's address points; NULL: nowhere that it may. */
char *place(warp &w, const instruction &i, unsigned address, unsigned l, unsigned bytes) {
    uint64_t a = w.at(address)[l] + static_cast<uint64_t>(i.offset);
    if (a % bytes != 0) {
        w.b.fail(i, "misaligned access");
        return nullptr;
    }
    if (i.space == instruction::GLOBAL) {
        return reinterpret_cast<char *>(a);
    }
    size_t room = i.space == instruction::PARAM ? w.b.k.param_bytes : w.b.shared.size();
    a           = i.space == instruction::SHARED ? static_cast<u32>(a) : a;
    if (a + bytes > room) {
        w.b.fail(i, i.space == instruction::PARAM ? "beyond the parameters" : "beyond shared memory");
        return nullptr;
    }
    return i.space == instruction::PARAM ? const_cast<char *>(w.b.param) + a : w.b.shared.data() + a;
}

bool load(warp &w, const instruction &i, uint32_t on) {
    for (unsigned l = 0; l < LANES; l++) {
        if (!(on >> l & 1)) {
            continue;
        }
        const char *from = place(w, i, i.from[0], l, i.bytes * static_cast<unsigned>(i.to.size()));
        if (from == nullptr) {
            return false;
        }
        for (size_t n = 0; n < i.to.size(); n++) {
            uint64_t v = 0;
            memcpy(&v, from + n * i.bytes, i.bytes);
            w.at(i.to[n])[l] = i.sign && i.bytes == 2 ? static_cast<u32>(static_cast<s16>(v)) : v;
        }
    }
    return true;
}

bool store(warp &w, const instruction &i, uint32_t on) {
    unsigned count = static_cast<unsigned>(i.from.size()) - 1;
    for (unsigned l = 0; l < LANES; l++) {
        if (!(on >> l & 1)) {
            continue;
        }
        char *to = place(w, i, i.from[0], l, i.bytes * count);
        if (to == nullptr) {
            return false;
        }
        for (unsigned n = 0; n < count; n++) {
            memcpy(to + n * i.bytes, &w.at(i.from[n + 1])[l], i.bytes);
        }
    }
    return true;
}

/* cp.async: the bytes stay where they are until somebody waits for their group. */
bool copy_later(warp &w, const instruction &i, uint32_t on) {
    for (unsigned l = 0; l < LANES; l++) {
        unsigned bytes = static_cast<unsigned>(w.at(i.from[2])[l]);
        if (!(on >> l & 1)) {
            continue;
        }
        uint64_t to = static_cast<u32>(w.at(i.from[0])[l] + static_cast<uint64_t>(i.offset)), from = w.at(i.from[1])[l];
        if (to % bytes != 0 || from % bytes != 0 || to + bytes > w.b.shared.size()) {
            return w.b.fail(i, "cp.async misaligned or beyond shared memory");
        }
        w.copies[l].push_back({to, reinterpret_cast<const char *>(from), bytes, w.group[l]});
    }
    return true;
}

bool commit(warp &w, const instruction &, uint32_t on) {
    for (unsigned l = 0; l < LANES; l++) {
        w.group[l] += on >> l & 1;
    }
    return true;
}

bool wait_group(warp &w, const instruction &i, uint32_t on) {
    for (unsigned l = 0; l < LANES; l++) {
        unsigned pending = static_cast<unsigned>(w.at(i.from[0])[l]);
        while ((on >> l & 1) && !w.copies[l].empty() && w.copies[l].front().group + pending < w.group[l]) {
            const copy &c = w.copies[l].front();
            memcpy(w.b.shared.data() + c.to, c.from, c.bytes);
            w.copies[l].pop_front();
        }
    }
    return true;
}

/* Lanes that the member mask names and that are not here. */
bool all_here(warp &w, const instruction &i, uint32_t on, unsigned members) {
    u32 want = static_cast<u32>(w.at(members)[static_cast<unsigned>(__builtin_ctz(on))]);
    return (on & want) == want || w.b.fail(i, "lacks lanes of its warp");
}

bool shuffle(warp &w, const instruction &i, uint32_t on) {
    if (!all_here(w, i, on, i.from[3])) {
        return false;
    }
    const row from = w.at(i.from[0]); /* the result may be the same register */
    for (unsigned l = 0; l < LANES; l++) {
        unsigned source = (l ^ static_cast<unsigned>(w.at(i.from[1])[l])) % LANES;
        if (!(on >> l & 1)) {
            continue;
        }
        if (!(on >> source & 1)) {
            return w.b.fail(i, "reads a lane that is not there");
        }
        w.at(i.to[0])[l] = from[source];
    }
    return true;
}

bool ballot(warp &w, const instruction &i, uint32_t on) {
    u32 votes = 0;
    if (!all_here(w, i, on, i.from[1])) {
        return false;
    }
    for (unsigned l = 0; l < LANES; l++) {
        votes |= (on >> l & 1 & static_cast<u32>(w.at(i.from[0])[l])) << l;
    }
    for (unsigned l = 0; l < LANES; l++) {
        w.at(i.to[0])[l] = on >> l & 1 ? votes : w.at(i.to[0])[l];
    }
    return true;
}

bool warp_sync(warp &w, const instruction &i, uint32_t on) { return all_here(w, i, on, i.from[0]); }

/* D[16][8] = A[16][16] B[16][8] + C; lane 4g + q holds rows g and g + 8, pairs of columns from 2q on. */
template <f32 (*number)(u16)> bool multiply(warp &w, const instruction &i, uint32_t on) {
    f32 a[16][16], b[16][8];
    if (on != FULL) {
        return w.b.fail(i, "lacks lanes of its warp");
    }
    for (unsigned l = 0; l < LANES; l++) {
        unsigned g = l / 4, q = l % 4;
        for (unsigned n = 0; n < 8; n++) { /* word n / 2: rows g, g + 8, then the same 8 columns on */
            a[g + n / 2 % 2 * 8][2 * q + n % 2 + n / 4 * 8] = number(static_cast<u16>(w.at(i.from[n / 2])[l] >> n % 2 * 16));
        }
        for (unsigned n = 0; n < 4; n++) {
            b[2 * q + n % 2 + n / 2 * 8][g] = number(static_cast<u16>(w.at(i.from[4 + n / 2])[l] >> n % 2 * 16));
        }
    }
    for (unsigned l = 0; l < LANES; l++) {
        for (unsigned n = 0; n < 4; n++) {
            double sum = static_cast<double>(value<f32>(w.at(i.from[6 + n])[l]));
            for (unsigned k = 0; k < 16; k++) {
                sum += static_cast<double>(a[l / 4 + n / 2 * 8][k]) * static_cast<double>(b[k][l % 4 * 2 + n % 2]);
            }
            w.at(i.to[n])[l] = bits(static_cast<f32>(sum));
        }
    }
    return true;
}

/* The ways of the program counters; all lanes that run have been set behind the instruction. */
bool branch(warp &w, const instruction &i, uint32_t on) {
    if (w.together && on == w.running) {
        w.pc = i.target;
        return true;
    }
    if (w.together) {
        std::fill(w.pcs, w.pcs + LANES, w.pc);
        w.together = false;
    }
    for (unsigned l = 0; l < LANES; l++) {
        w.pcs[l] = on >> l & 1 ? i.target : w.pcs[l];
    }
    return true;
}

/* Lanes stop running: the others go on where they are. */
void stop(warp &w, uint32_t on) {
    if (w.together && on != w.running) {
        std::fill(w.pcs, w.pcs + LANES, w.pc);
        w.together = false;
    }
    w.running &= ~on;
}

bool finish(warp &w, const instruction &, uint32_t on) {
    stop(w, on);
    return true;
}

bool barrier(warp &w, const instruction &, uint32_t on) {
    if (w.together) {
        std::fill(w.pcs, w.pcs + LANES, w.pc);
        w.together = on == w.running;
    }
    w.running &= ~on;
    w.waiting |= on;
    return true;
}

/* ---- Opcodes ----------------------------------------------------------------------------------- */

#define INTEGERS(T)                                                                                \
    {"add." #T, binary<T, T, add>}, {"sub." #T, binary<T, T, sub>}, {"mul.lo." #T, binary<T, T, mul>},             \
        {"min." #T, binary<T, T, least>}, {"max." #T, binary<T, T, most>}, {"div." #T, binary<T, T, quotient>},    \
        {"rem." #T, binary<T, T, remainder_of>}, {"neg." #T, unary<T, T, opposite>},               \
        {"mad.lo." #T, ternary<T, T, multiply_add<T>>}, {"shr." #T, shift<T, right<T>>},           \
        {"setp.lt." #T, binary<u64, T, lt>}, {"setp.le." #T, binary<u64, T, le>}, {"setp.gt." #T, binary<u64, T, gt>}, \
        {"setp.ge." #T, binary<u64, T, ge>}, {"setp.eq." #T, binary<u64, T, eq>}, {"setp.ne." #T, binary<u64, T, ne>}
#define BITS(name, T)                                                                              \
    {"and." name, binary<T, T, both>}, {"or." name, binary<T, T, either>}, {"xor." name, binary<T, T, one_of>},    \
        {"not." name, unary<T, T, inverse>}, {"shl." name, shift<T, left<T>>}, {"setp.eq." name, binary<u64, T, eq>}, \
        {"setp.ne." name, binary<u64, T, ne>}, {"mov." name, unary<T, T, same>}, {"selp." name, select}
#define MOVES(T) {"mov." #T, unary<T, T, same>}, {"selp." #T, select}
#define CONVERSIONS(T)                                                                             \
    {"cvt." #T ".u16", unary<T, u16, converted<T, u16>>}, {"cvt." #T ".s16", unary<T, s16, converted<T, s16>>},    \
        {"cvt." #T ".u32", unary<T, u32, converted<T, u32>>}, {"cvt." #T ".s32", unary<T, s32, converted<T, s32>>}, \
        {"cvt." #T ".u64", unary<T, u64, converted<T, u64>>}, {"cvt." #T ".s64", unary<T, s64, converted<T, s64>>}

const std::map<string, action> opcodes = {
    INTEGERS(s16), INTEGERS(u16), INTEGERS(s32), INTEGERS(u32), INTEGERS(s64), INTEGERS(u64),
    BITS("b16", u16), BITS("b32", u32), BITS("b64", u64), MOVES(u16), MOVES(u32), MOVES(s32), MOVES(u64), MOVES(f32),
    CONVERSIONS(u16), CONVERSIONS(s16), CONVERSIONS(u32), CONVERSIONS(s32), CONVERSIONS(u64), CONVERSIONS(s64),
    {"cvt.f32.u32", unary<f32, u32, converted<f32, u32>>}, {"cvt.f32.s32", unary<f32, s32, converted<f32, s32>>},
    {"cvt.f32.f16", unary<f32, u16, f16_to_f32>}, {"cvt.f16.f32", unary<u16, f32, f32_to_f16>},
    {"cvt.f32.bf16", unary<f32, u16, bf16_to_f32>}, {"cvt.bf16.f32", unary<u16, f32, f32_to_bf16>},
    {"cvt.f16x2.f32", binary<u32, f32, two_f16>}, {"cvt.bf16x2.f32", binary<u32, f32, two_bf16>},
    {"cvt.e4m3x2.f32", binary<u16, f32, two_e4m3>}, {"cvt.rni.f32.f32", unary<f32, f32, nearest>},
    {"cvt.sat.f32.f32", unary<f32, f32, saturated>}, {"cvt.rzi.s32.f32", unary<s32, f32, toward_zero>},
    {"mul.wide.u32", binary<u64, u32, wide<u64, u32>>}, {"mul.wide.s32", binary<s64, s32, wide<s64, s32>>},
    {"mul.wide.u16", binary<u32, u16, wide<u32, u16>>}, {"mul.wide.s16", binary<s32, s16, wide<s32, s16>>},
    {"and.pred", binary<u64, u64, both>}, {"or.pred", binary<u64, u64, either>}, {"xor.pred", binary<u64, u64, one_of>},
    {"not.pred", unary<u64, u64, not_pred>}, {"mov.pred", unary<u64, u64, same>},
    {"add.f32", binary<f32, f32, add>}, {"sub.f32", binary<f32, f32, sub>}, {"mul.f32", binary<f32, f32, mul>},
    {"div.f32", binary<f32, f32, divide>}, {"min.f32", binary<f32, f32, least>}, {"max.f32", binary<f32, f32, most>},
    {"fma.f32", ternary<f32, f32, fused>}, {"fma.rm.f32", ternary<f32, f32, fused_down>},
    {"neg.f32", unary<f32, f32, opposite>}, {"abs.f32", unary<f32, f32, absolute>}, {"sqrt.f32", unary<f32, f32, root>},
    {"copysign.f32", binary<f32, f32, with_sign>}, {"ex2.f32", unary<f32, f32, power>},
    {"ex2.ftz.f32", unary<f32, f32, power_flushed>}, {"rcp.f32", unary<f32, f32, reciprocal>},
    {"rcp.ftz.f32", unary<f32, f32, reciprocal_flushed>},
    {"setp.lt.f32", binary<u64, f32, lt>}, {"setp.le.f32", binary<u64, f32, le>}, {"setp.gt.f32", binary<u64, f32, gt>},
    {"setp.ge.f32", binary<u64, f32, ge>}, {"setp.eq.f32", binary<u64, f32, eq>}, {"setp.ne.f32", binary<u64, f32, ne>},
    {"setp.ltu.f32", binary<u64, f32, not_ge>}, {"setp.leu.f32", binary<u64, f32, not_gt>},
    {"setp.gtu.f32", binary<u64, f32, not_le>}, {"setp.geu.f32", binary<u64, f32, not_lt>},
    {"setp.neu.f32", binary<u64, f32, unlike>},
    {"popc.b32", unary<u32, u32, count_ones>}, {"prmt.b32", permute}, {"bfi.b32", insert_bits},
    {"cvta.to.global.u64", unary<u64, u64, same>}, {"cvta.shared.u64", unary<u64, u64, same>},
    {"bra", branch}, {"ret", finish}, {"exit", finish}, {"bar", barrier}, {"bar.warp", warp_sync},
    {"shfl.bfly.b32", shuffle}, {"vote.ballot.b32", ballot},
    {"cp.async.cg.shared.global", copy_later}, {"cp.async.commit_group", commit}, {"cp.async.wait_group", wait_group},
    {"mma.m16n8k16.row.col.f32.f16.f16.f32", multiply<from_f16>},
    {"mma.m16n8k16.row.col.f32.bf16.bf16.f32", multiply<from_bf16>}};

/* ---- Reading PTX --------------------------------------------------------------------------------- */

string trim(const string &s) {
    size_t a = s.find_first_not_of(" \t\r\n"), b = s.find_last_not_of(" \t\r\n");
    return a == string::npos ? "" : s.substr(a, b - a + 1);
}

/* At commas outside of braces and brackets. */
vector<string> parts(const string &s) {
    vector<string> out(1);
    int            depth = 0;
    for (char c : s) {
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (c == ',' && depth == 0) {
            out.emplace_back();
        } else {
            out.back() += c;
        }
    }
    for (string &part : out) {
        part = trim(part);
    }
    return out.size() == 1 && out[0].empty() ? vector<string>() : out;
}

struct reader {
    kernel                   k;
    std::map<string, size_t> labels, shared;
    size_t                   shared_bytes = 0;
    std::map<string, unsigned> rows, numbers;
    vector<std::pair<size_t, string>> branches;
    unsigned                          scopes = 0; /* of inline blocks begun */
    vector<std::map<string, string>>  local;      /* names of each open one */

    unsigned constant(uint64_t v) {
        auto [at, fresh] = numbers.emplace(std::to_string(v), k.rows);
        if (fresh) {
            k.constants[k.rows++] = v;
        }
        return at->second;
    }

    unsigned named(string name) {
        for (auto scope = local.rbegin(); scope != local.rend(); ++scope) {
            if (scope->count(name)) {
                name = scope->at(name);
                break;
            }
        }
        auto [at, fresh] = rows.emplace(name, k.rows);
        if (fresh) {
            if (name.rfind("%tid", 0) == 0 || name.rfind("%ctaid", 0) == 0 || name.rfind("%ntid", 0) == 0 ||
                name.rfind("%nctaid", 0) == 0 || name == "%laneid") {
                k.specials[k.rows] = name;
            }
            k.rows++;
        }
        return at->second;
    }

    /* One name or number, as a row. */
    unsigned operand(const string &s) {
        if (isdigit(static_cast<unsigned char>(s[0])) || (s[0] == '-' && s.size() > 1)) {
            bool hexadecimal = s.size() > 2 && s[0] == '0' && strchr("fFdD", s[1]) != nullptr;
            return constant(hexadecimal ? strtoull(s.c_str() + 2, nullptr, 16)
                            : s[0] == '-' ? static_cast<uint64_t>(strtoll(s.c_str(), nullptr, 0))
                                          : strtoull(s.c_str(), nullptr, 0));
        }
        if (shared.count(s)) {
            return constant(shared[s]);
        }
        if (s.size() > 8 && s.compare(s.size() - 8, 8, "_param_0") == 0) {
            return constant(0);
        }
        return named(s);
    }

    void operands(const string &s, vector<unsigned> &out) {
        if (s[0] == '{') {
            for (const string &part : parts(s.substr(1, s.size() - 2))) {
                out.push_back(operand(part));
            }
        } else if (s.find('|') != string::npos) { /* shfl's second result: whether the lane is there */
            out.push_back(operand(trim(s.substr(0, s.find('|')))));
        } else {
            out.push_back(operand(s));
        }
    }

    /* [base + offset] of an instruction. */
    void address(const string &s, instruction &i) {
        string inside = s.substr(1, s.size() - 2);
        size_t plus   = inside.find('+');
        i.from.push_back(operand(trim(inside.substr(0, plus))));
        if (plus != string::npos) {
            i.offset += strtoll(trim(inside.substr(plus + 1)).c_str(), nullptr, 0);
        }
    }

    static unsigned bytes_of(const string &type) {
        size_t digits = type.find_first_of("0123456789");
        return digits == string::npos ? 8 : static_cast<unsigned>(strtoul(type.c_str() + digits, nullptr, 10)) / 8;
    }

    static vector<string> words(const string &opcode) {
        static const std::set<string> said = {"rn", "approx", "uni", "aligned", "sync", "satfinite"};
        std::stringstream             in(opcode);
        vector<string>                out;
        for (string word; std::getline(in, word, '.');) {
            if (said.count(word) == 0) {
                out.push_back(word);
            }
        }
        return out;
    }

    /* ld, st: space, vector and type are words of the opcode. */
    void memory(instruction &i, const vector<string> &word, const vector<string> &given) {
        bool to_memory = word[0] == "st";
        i.run          = to_memory ? store : load;
        i.bytes        = bytes_of(word.back());
        i.sign         = word.back()[0] == 's';
        for (const string &w : word) {
            i.space = w == "shared" ? instruction::SHARED : w == "param" ? instruction::PARAM : i.space;
        }
        address(given[to_memory ? 0 : 1], i);
        operands(given[to_memory ? 1 : 0], to_memory ? i.from : i.to);
    }

    void others(instruction &i, const vector<string> &word, const vector<string> &given) {
        string key = word[0];
        for (size_t n = 1; n < word.size(); n++) {
            key += "." + word[n];
        }
        auto at = opcodes.find(key);
        if (at == opcodes.end()) {
            k.error = "opcode " + key + " is not known: " + i.text;
            return;
        }
        i.run     = at->second;
        i.bytes   = bytes_of(word.back());
        bool dest = word[0] != "bra" && word[0] != "bar" && word[0] != "cp";
        for (size_t n = 0; n < given.size(); n++) {
            if (word[0] == "bra") {
                branches.emplace_back(k.code.size(), given[n]);
            } else if (given[n][0] == '[') {
                address(given[n], i);
            } else {
                operands(given[n], n == 0 && dest ? i.to : i.from);
            }
        }
        if (word[0] == "mov" && (i.to.size() > 1 || i.from.size() > 1)) {
            i.run = pack;
            i.bytes /= static_cast<unsigned>(std::max(i.to.size(), i.from.size()));
        }
    }

    void statement(string s) {
        s = trim(s);
        if (s.empty()) {
            return;
        }
        if (s.rfind(".shared", 0) == 0) {
            declare_shared(s);
        } else if (s.rfind(".reg", 0) == 0 && !local.empty()) {
            string names = s.substr(s.find_first_of(" \t", s.find_first_not_of(" \t", 4)));
            for (const string &name : parts(names)) {
                local.back()[name] = name + "@" + std::to_string(scopes);
            }
        } else if (s[0] != '.') {
            instruction i;
            i.text = s;
            if (s[0] == '@') {
                size_t end  = s.find_first_of(" \t");
                i.negated   = s[1] == '!';
                i.predicate = static_cast<int>(named(s.substr(1 + i.negated, end - 1 - i.negated)));
                s           = trim(s.substr(end));
            }
            size_t         end   = std::min(s.find_first_of(" \t\n"), s.size());
            vector<string> word  = words(s.substr(0, end));
            vector<string> given = parts(trim(s.substr(end)));
            (word[0] == "ld" || word[0] == "st") ? memory(i, word, given) : others(i, word, given);
            k.code.push_back(i);
        }
    }

    void declare_shared(const string &s) {
        size_t open = s.rfind('['), space = s.find_last_of(" \t", open);
        shared_bytes                          = (shared_bytes + 127) / 128 * 128;
        shared[s.substr(space + 1, open - space - 1)] = shared_bytes;
        shared_bytes += strtoul(s.c_str() + open + 1, nullptr, 10);
    }

    void body(const string &text) {
        string now;
        for (char c : text) {
            if (c == '{' && trim(now).empty()) {
                local.emplace_back();
                scopes++;
            } else if (c == '}' && trim(now).empty()) {
                local.pop_back();
            } else if (c == ';') {
                statement(now);
                now.clear();
            } else if (c == ':' && trim(now)[0] == '$') {
                labels[trim(now)] = k.code.size();
                now.clear();
            } else {
                now += c;
            }
        }
        for (const auto &[at, label] : branches) {
            k.code[at].target = labels[label];
        }
        k.shared_bytes = shared_bytes;
    }
};

std::map<string, kernel> kernels;

void read_file(const string &path) {
    std::ifstream in(path);
    string        text;
    for (string line; std::getline(in, line);) {
        text += line.substr(0, line.find("//")) + "\n";
    }
    reader global; /* shared arrays of the whole file */
    for (size_t at = 0;;) {
        size_t entry = text.find(".entry", at), array = text.find("\n.shared", at);
        if (array < entry) {
            size_t end = text.find(';', array);
            global.declare_shared(trim(text.substr(array, end - array)));
            at = end;
            continue;
        }
        if (entry == string::npos) {
            return;
        }
        size_t open = text.find('(', entry), close = text.find(')', open), begin = text.find('{', close), end = begin;
        for (int depth = 0; end < text.size(); end++) {
            depth += (text[end] == '{') - (text[end] == '}');
            if (depth == 0) {
                break;
            }
        }
        reader one;
        one.shared       = global.shared;
        one.shared_bytes = global.shared_bytes;
        size_t size      = text.rfind('[', close);
        if (size != string::npos && size > open) {
            one.k.param_bytes = strtoul(text.c_str() + size + 1, nullptr, 10);
        }
        one.body(text.substr(begin + 1, end - begin - 1));
        kernels[trim(text.substr(entry + 6, open - entry - 6))] = one.k;
        at                                                      = end;
    }
}

void read_all() {
    static std::once_flag once;
    std::call_once(once, [] {
        const char *named  = getenv("SIM_PTX");
        string      folder = named != nullptr ? named : SIM_PTX_FOLDER;
        DIR        *dir    = opendir(folder.c_str());
        for (struct dirent *entry; dir != nullptr && (entry = readdir(dir)) != nullptr;) {
            string file = entry->d_name;
            if (file.size() > 4 && file.compare(file.size() - 4, 4, ".ptx") == 0) {
                read_file(folder + "/" + file);
            }
        }
        if (dir != nullptr) {
            closedir(dir);
        }
    });
}

/* ---- Running ------------------------------------------------------------------------------------- */

uint64_t special(const warp &w, const string &name, unsigned l) {
    const block &b = w.b;
    unsigned     thread = w.first + l, axis = name.back() >= 'x' && name.back() <= 'z' ? name.back() - 'x' : 0;
    if (name.rfind("%tid", 0) == 0) {
        unsigned place[3] = {thread % b.threads[0], thread / b.threads[0] % b.threads[1],
                             thread / b.threads[0] / b.threads[1]};
        return place[axis];
    }
    return name.rfind("%ctaid", 0) == 0    ? b.at[axis]
           : name.rfind("%ntid", 0) == 0   ? b.threads[axis]
           : name.rfind("%nctaid", 0) == 0 ? b.grid[axis]
                                           : l;
}

void begin(warp &w) {
    for (const auto &[at, v] : w.b.k.constants) {
        w.at(at).fill(v);
    }
    for (const auto &[at, name] : w.b.k.specials) {
        for (unsigned l = 0; l < LANES; l++) {
            w.at(at)[l] = special(w, name, l);
        }
    }
    w.running  = w.lanes == LANES ? FULL : (1u << w.lanes) - 1;
    w.waiting  = 0;
    w.together = true;
    w.pc       = 0;
    for (unsigned l = 0; l < LANES; l++) {
        w.copies[l].clear();
        w.group[l] = 0;
    }
}

/* The lanes that are farthest back, and their instruction. */
uint32_t lowest(warp &w, size_t *pc) {
    uint32_t mask = 0;
    *pc           = SIZE_MAX;
    for (unsigned l = 0; l < LANES; l++) {
        if (!(w.running >> l & 1) || w.pcs[l] > *pc) {
            continue;
        }
        mask = w.pcs[l] == *pc ? mask | 1u << l : 1u << l;
        *pc  = w.pcs[l];
    }
    w.together = mask == w.running;
    w.pc       = *pc;
    return mask;
}

/* Until all lanes wait or have ended, or for so many instructions. */
bool advance(warp &w, unsigned steps) {
    const vector<instruction> &code = w.b.k.code;
    for (unsigned n = 0; w.running != 0 && n < steps; n++) {
        size_t   pc   = w.pc;
        uint32_t mask = w.together ? w.running : lowest(w, &pc);
        if (pc >= code.size()) {
            return w.b.fail(code.back(), "runs past its end after");
        }
        const instruction &i  = code[pc];
        uint32_t           on = mask;
        if (i.predicate >= 0) {
            const row &p = w.at(static_cast<unsigned>(i.predicate));
            for (unsigned l = 0; l < LANES; l++) {
                on &= ~((p[l] & 1) == i.negated ? 1u << l : 0u);
            }
        }
        if (w.together) {
            w.pc = pc + 1;
        } else {
            for (unsigned l = 0; l < LANES; l++) {
                w.pcs[l] = mask >> l & 1 ? pc + 1 : w.pcs[l];
            }
        }
        if (on != 0 && !i.run(w, i, on)) {
            return false;
        }
    }
    return true;
}

/* All lanes of the block wait or have ended: those that wait go on. False: none does. */
bool release(vector<warp> &warps) {
    bool any = false;
    for (warp &w : warps) {
        any = any || w.waiting != 0;
        w.running |= w.waiting;
        w.waiting = 0;
        w.together = false;
    }
    return any;
}

bool run_block(vector<warp> &warps, std::minstd_rand &dice, unsigned order) {
    for (warp &w : warps) {
        begin(w);
    }
    do {
        bool runs = true;
        while (runs) {
            runs = false;
            for (size_t n = 0; n < warps.size(); n++) {
                warp &w = warps[order == 0 ? n : dice() % warps.size()];
                if (!advance(w, order == 0 ? ~0u : 1 + static_cast<unsigned>(dice() % 64))) {
                    return false;
                }
            }
            for (const warp &w : warps) {
                runs = runs || w.running != 0;
            }
        }
    } while (release(warps));
    return true;
}

thread_local vector<row> registers;
thread_local string      failure;

int launch(const kernel &k, const unsigned grid[3], const unsigned threads[3], const void *param) {
    const char      *named = getenv("SIM_ORDER");
    unsigned         order = named != nullptr ? static_cast<unsigned>(strtoul(named, nullptr, 10)) : 0;
    unsigned         count = threads[0] * threads[1] * threads[2];
    std::minstd_rand dice(order + 1);
    block            b{k, static_cast<const char *>(param), grid, threads, {}, {}, {}};
    vector<warp>     warps;
    registers.resize(std::max(registers.size(), size_t{k.rows} * ((count + LANES - 1) / LANES)));
    for (unsigned first = 0; first < count; first += LANES) {
        warps.emplace_back(b, first, std::min(LANES, count - first), registers, size_t{k.rows} * (first / LANES));
    }
    for (b.at[2] = 0; b.at[2] < grid[2]; b.at[2]++) {
        for (b.at[1] = 0; b.at[1] < grid[1]; b.at[1]++) {
            for (b.at[0] = 0; b.at[0] < grid[0]; b.at[0]++) {
                b.shared.assign(k.shared_bytes, static_cast<char>(0xff));
                if (!run_block(warps, dice, order)) {
                    failure = b.error;
                    return -1;
                }
            }
        }
    }
    failure.clear();
    return 0;
}

} // namespace

extern "C" int sim_has(const char *name) {
    read_all();
    return kernels.count(name) != 0;
}

extern "C" size_t sim_param_size(const char *name) {
    read_all();
    auto at = kernels.find(name);
    return at == kernels.end() ? 0 : at->second.param_bytes;
}

extern "C" const char *sim_error(void) { return failure.c_str(); }

extern "C" int sim_launch(const char *name, const unsigned grid[3], const unsigned threads[3], size_t, const void *param) {
    read_all();
    auto at = kernels.find(name);
    failure = at == kernels.end() ? string("no PTX of kernel ") + name : at->second.error;
    return failure.empty() ? launch(at->second, grid, threads, param) : -1;
}
