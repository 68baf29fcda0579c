/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h - a hash of bytes with a random seed, for tables whose keys strangers choose.
 *
 * Eight bytes at a time are folded by a 64 x 64 -> 128 bit product. Without the seed nobody can make
 * keys that collide, so that reading a hostile file stays linear. */
#ifndef FL_BASE_HASH_H
#define FL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/os.h"

/* `owner`: what the seed is for. Without entropy (early boot) its address still differs from run to run. */
static inline uint64_t fl_hash_seed(const void *owner) {
    uint64_t seed;
    if (!fl_os_random(&seed, sizeof seed)) {
        seed = (uint64_t)(uintptr_t)owner * 0x9E3779B97F4A7C15U;
    }
    return seed;
}

static inline uint64_t fl_hash_fold(uint64_t a, uint64_t b) {
    __extension__ typedef unsigned __int128 wide;
    wide                                    product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t fl_hash(const char *data, size_t size, uint64_t seed) {
    const uint64_t odd  = 0x9E3779B97F4A7C15U; /* 2^64 / golden ratio: bits spread evenly */
    uint64_t       hash = seed ^ size;
    uint64_t       word;
    for (; size >= sizeof word; size -= sizeof word, data += sizeof word) {
        memcpy(&word, data, sizeof word);
        hash = fl_hash_fold(hash ^ word, odd ^ seed);
    }
    word = 0;
    memcpy(&word, data, size);
    return fl_hash_fold(hash ^ word, odd ^ (seed << 1 | 1));
}

#endif
