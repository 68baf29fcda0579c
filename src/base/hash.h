/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h - a hash of bytes with a random seed, for tables whose keys strangers choose; and a checksum.
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
    if (!fl_os_random(&seed, sizeof seed))
        seed = (uint64_t)(uintptr_t)owner * 0x9E3779B97F4A7C15U;
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

static inline uint64_t fl_hash_word(const char *data) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

/* A checksum about as fast as memory is read (13 GB/s a core): two words a product, and four chains, since a product
 * takes longer than the next one waits to begin. It finds damage, not ill will. */
static inline uint64_t fl_checksum(const void *data, size_t size) {
    static const uint64_t odd[4] = {0x9E3779B97F4A7C15U, 0xC2B2AE3D27D4EB4FU, 0x165667B19E3779F9U,
                                    0xD6E8FEB86659FD93U};
    const char           *from   = data;
    size_t                left   = size;
    uint64_t              a = odd[3], b = odd[2], c = odd[1], d = odd[0];
    for (; left >= 64; left -= 64, from += 64) {
        a = fl_hash_fold(a ^ fl_hash_word(from), odd[0] ^ fl_hash_word(from + 8));
        b = fl_hash_fold(b ^ fl_hash_word(from + 16), odd[1] ^ fl_hash_word(from + 24));
        c = fl_hash_fold(c ^ fl_hash_word(from + 32), odd[2] ^ fl_hash_word(from + 40));
        d = fl_hash_fold(d ^ fl_hash_word(from + 48), odd[3] ^ fl_hash_word(from + 56));
    }
    const uint64_t chains[4] = {a, b, c, d};
    return fl_hash(from, left, fl_hash((const char *)chains, sizeof chains, size));
}

#endif
