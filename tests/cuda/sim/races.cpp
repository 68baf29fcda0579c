/* SPDX-License-Identifier: Apache-2.0 */
/* races.cpp - two threads of a kernel at one word of memory, with nothing between them.
 *
 * Role    fl-cuda-races: the kernels' tests with kernels that tell every access to memory. A device
 *         shows a missing barrier once in a thousand runs, the fibers of lanes.cpp perhaps never.
 * Method  The kernels are compiled with -fsanitize=thread, whose calls are answered here instead of by
 *         the compiler's own library, which knows nothing of fibers. For each word of four bytes
 *         its last writer and its last readers, of two warps, are kept. An access is in order with
 *         another if the thread is the same, if a barrier of their block lies between, or a warp_sync
 *         of their warp. If one of two writes and they are not in order, the launch fails, whatever
 *         was computed. Nothing orders two blocks. Shuffles and votes order nothing.
 * Also    A word of shared memory that is read and was never written in its block.
 * Limits  What is between the fibers' meetings runs undisturbed, as on no device, but is judged
 *         all the same; a race needs to be in a path that the tests take.
 * Memory  12 times what a launch touches. Threads: one launches.
 * Proof   Each barrier of the kernels was left out once to see its case fail. */
#include <memory>
#include <stdio.h>
#include <unordered_map>

#include "lanes.cuh"

namespace {

constexpr uint32_t  WARP  = 32;
constexpr uintptr_t WORDS = 1024, RECENT = 1024; /* words of a page, pages of the table */

struct access {
    uint32_t block, barrier, warp_sync; /* block 0: none */
    uint16_t thread, many;              /* many: other lanes of the warp too, in the same order */
};

struct word {
    access write, read[2]; /* read[1]: of another warp than read[0] */
};

/* Pages by number, and the last few used: lanes side by side read rows that are pages apart. */
struct table {
    struct known {
        uintptr_t page;
        word     *words; /* NULL: none */
    };
    uint32_t                                               launch = 0;
    std::unordered_map<uintptr_t, std::unique_ptr<word[]>> pages;
    known                                                  recent[RECENT] = {};
};

table words; /* launches come one after the other */

/* A page that the launch has not touched, or that gave way to another. */
word *find_page(uintptr_t page) {
    std::unique_ptr<word[]> &found = words.pages[page];
    if (found == nullptr) {
        found = std::make_unique<word[]>(WORDS);
    }
    words.recent[page % RECENT] = {page, found.get()};
    return found.get();
}

word &word_at(uintptr_t number) {
    uintptr_t           page = number / WORDS;
    const table::known &last = words.recent[page % RECENT];
    bool                here = last.words != nullptr && last.page == page;
    return (here ? last.words : find_page(page))[number % WORDS];
}

void forget_other_launches(uint32_t launch) {
    if (words.launch == launch) {
        return;
    }
    words.launch = launch;
    words.pages.clear();
    for (table::known &known : words.recent) {
        known = {};
    }
}

bool same_warp(const access &one, const access &other) {
    return one.block == other.block && one.thread / WARP == other.thread / WARP;
}

/* `now` is the later one. */
bool in_order(const access &before, const access &now, bool shared) {
    if (before.block != now.block) { /* shared memory of another block is other memory */
        return before.block == 0 || shared;
    }
    if (before.barrier != now.barrier || (before.thread == now.thread && !before.many)) {
        return true;
    }
    return same_warp(before, now) && before.warp_sync != now.warp_sync;
}

void expect_order(const access &before, const access &now, bool shared, const char *what,
                  const void *at) {
    if (in_order(before, now, shared)) {
        return;
    }
    char text[120];
    snprintf(text, sizeof text, "%s what thread %u of block %u %s, no barrier between",
             shared ? "shared memory," : "global memory,", before.thread, before.block - 1, what);
    sim_fail(text, at);
}

void note_read(word &w, access now) {
    const access &last = w.read[0];
    if (!same_warp(last, now)) {
        w.read[1] = last;
    } else if (last.barrier == now.barrier && last.warp_sync == now.warp_sync) {
        now.many = last.many || last.thread != now.thread;
    }
    w.read[0] = now;
}

void touch(const void *at, size_t bytes, bool writes) {
    sim_memory memory = sim_memory_of(at);
    if (memory == SIM_OWN) {
        return;
    }
    const sim_place &here   = sim_here();
    bool             shared = memory == SIM_SHARED;
    forget_other_launches(here.launch);
    uintptr_t first = reinterpret_cast<uintptr_t>(at);
    access    now   = {here.block_y * here.grid_x + here.block_x + 1, here.barrier, here.warp_sync,
                       static_cast<uint16_t>(here.thread), 0};
    for (uintptr_t number = first / 4; number <= (first + bytes - 1) / 4; number++) {
        word &w = word_at(number);
        if (!writes && !shared && w.write.block == 0) { /* most of all: what no one has written */
            note_read(w, now);
            continue;
        }
        if (shared && !writes && w.write.block != now.block) {
            sim_fail("shared memory that nobody wrote is read", at);
        }
        expect_order(w.write, now, shared, "has written", at);
        if (!writes) {
            note_read(w, now);
            continue;
        }
        expect_order(w.read[0], now, shared, "has read", at);
        expect_order(w.read[1], now, shared, "has read", at);
        w.write = now;
    }
}

} // namespace

/* The calls that the compiler makes. */
#define ACCESSES(bytes)                                                                            \
    extern "C" void __tsan_read##bytes(void *at) {                                                 \
        touch(at, bytes, false);                                                                   \
    }                                                                                              \
    extern "C" void __tsan_write##bytes(void *at) {                                                \
        touch(at, bytes, true);                                                                    \
    }                                                                                              \
    extern "C" void __tsan_unaligned_read##bytes(void *at) {                                       \
        touch(at, bytes, false);                                                                   \
    }                                                                                              \
    extern "C" void __tsan_unaligned_write##bytes(void *at) {                                      \
        touch(at, bytes, true);                                                                    \
    }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
extern "C" void __tsan_read_range(void *at, size_t bytes) {
    touch(at, bytes, false);
}
extern "C" void __tsan_write_range(void *at, size_t bytes) {
    touch(at, bytes, true);
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit(void *) {}
