/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.c - digests of memory and files.
 *
 * Role    the hub cache names a blob by its hash (SHA-256 for large files, git's blob SHA-1 for small ones);
 *         download and `fletch model verify` compare; a model's fingerprint and the server's keys are hashes.
 * Method  FIPS 180-4 as it stands there, a block at a time: enough for what is small. For a file above PAYS
 *         libcrypto is opened, since its way through the processor's SHA instructions is several times as
 *         fast; where it cannot be had the plain loop goes on. So a program that hashes nothing large loads
 *         no libcrypto, and none needs one.
 * Memory  one chunk buffer for the time of a call; libcrypto stays mapped, once per process. Threads: any.
 * Proof   tests/unit/test_base_file.c: NIST's and git's values, both ways. */
#include "base/sha256.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"

enum { CHUNK = 256 * 1024, PAYS = 1024 * 1024, DIGEST_MAX = 64 };

/* ---- libcrypto, if there is one ------------------------------------------------------------------ */

static struct {
    pthread_once_t once;
    bool           found;
    void *(*context_new)(void);
    void (*context_free)(void *context);
    const void *(*sha1)(void);
    const void *(*sha256)(void);
    int (*init)(void *context, const void *digest, void *engine);
    int (*update)(void *context, const void *data, size_t size);
    int (*final)(void *context, unsigned char *out, unsigned *size);
} crypto = {.once = PTHREAD_ONCE_INIT};

static void open_crypto(void) {
    static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so",
                                        "libcrypto.3.dylib", "libcrypto-3-x64.dll"};
    static const struct {
        const char *name;
        void       *place;
    } symbols[]  = {{"EVP_MD_CTX_new", &crypto.context_new},
                    {"EVP_MD_CTX_free", &crypto.context_free},
                    {"EVP_sha1", &crypto.sha1},
                    {"EVP_sha256", &crypto.sha256},
                    {"EVP_DigestInit_ex", &crypto.init},
                    {"EVP_DigestUpdate", &crypto.update},
                    {"EVP_DigestFinal_ex", &crypto.final}};
    void *handle = NULL;
    for (size_t i = 0; handle == NULL && i < sizeof names / sizeof names[0]; i++)
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    crypto.found = handle != NULL;
    for (size_t i = 0; crypto.found && i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(handle, symbols[i].name);
        memcpy(symbols[i].place, &symbol, sizeof symbol);
        crypto.found = symbol != NULL;
    }
    if (handle != NULL)
        (void)dlclose(handle); /* stays mapped: RTLD_NODELETE */
}

/* ---- The plain loops ------------------------------------------------------------------------------ */

static const uint32_t rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

typedef struct hash {
    void         *context; /* libcrypto's, owned; NULL: the loops below */
    bool          sha1, failed;
    uint32_t      state[8];
    unsigned char block[64];
    uint64_t      bytes; /* taken so far */
} hash;

static uint32_t turn(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static void load_words(uint32_t *w, const unsigned char block[64]) {
    for (int i = 0; i < 16; i++) {
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    }
}

static void add_block_sha256(uint32_t state[8], const unsigned char block[64]) {
    uint32_t w[64], s[8];
    load_words(w, block);
    for (int i = 16; i < 64; i++) {
        uint32_t a = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t b = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i]       = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t one = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) +
                       ((s[4] & s[5]) ^ (~s[4] & s[6])) + rounds[i] + w[i];
        uint32_t two = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) +
                       ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

static void add_block_sha1(uint32_t state[8], const unsigned char block[64]) {
    static const uint32_t key[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t              w[80];
    uint32_t              a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    load_words(w, block);
    for (int i = 16; i < 80; i++)
        w[i] = turn(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 31);
    for (int i = 0; i < 80; i++) {
        uint32_t mix  = i < 20              ? (b & c) | (~b & d)
                        : i >= 40 && i < 60 ? (b & c) | (b & d) | (c & d)
                                            : b ^ c ^ d;
        uint32_t next = turn(a, 27) + mix + e + key[i / 20] + w[i];
        e = d, d = c, c = turn(b, 2), b = a, a = next;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}

/* ---- Either ------------------------------------------------------------------------------------------ */

static hash begin(bool sha1, uint64_t size) {
    hash h = {.sha1 = sha1};
    if (size >= PAYS) {
        (void)pthread_once(&crypto.once, open_crypto);
        h.context = crypto.found ? crypto.context_new() : NULL;
    }
    if (h.context != NULL) {
        h.failed = crypto.init(h.context, sha1 ? crypto.sha1() : crypto.sha256(), NULL) != 1;
    } else if (sha1) {
        memcpy(h.state, (uint32_t[5]){0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0},
               5 * sizeof(uint32_t));
    } else {
        memcpy(h.state,
               (uint32_t[8]){0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                             0x1f83d9ab, 0x5be0cd19},
               sizeof h.state);
    }
    return h;
}

static void add(hash *h, const void *data, size_t size) {
    assert(data || size == 0);
    const unsigned char *from = data;
    if (h->context != NULL) {
        h->failed = h->failed || crypto.update(h->context, data, size) != 1;
        return;
    }
    while (size > 0) {
        size_t have = (size_t)(h->bytes % 64);
        size_t take = size < 64 - have ? size : 64 - have;
        memcpy(h->block + have, from, take);
        h->bytes += take;
        from += take;
        size -= take;
        if (h->bytes % 64 == 0)
            (h->sha1 ? add_block_sha1 : add_block_sha256)(h->state, h->block);
    }
}

/* The number of bytes of the digest; 0 when libcrypto failed (it does not happen with these digests). */
static size_t finish(hash *h, unsigned char digest[DIGEST_MAX]) {
    size_t size = h->sha1 ? 20 : 32;
    if (h->context != NULL) {
        unsigned got = 0;
        bool     ok  = !h->failed && crypto.final(h->context, digest, &got) == 1 && got == size;
        crypto.context_free(h->context);
        return ok ? size : 0;
    }
    unsigned char end[72] = {0x80};
    uint64_t      bits    = h->bytes * 8;
    size_t zeros = (size_t)((119 - h->bytes % 64) % 64) + 1; /* 0x80 and zeros up to 56 of 64 */
    for (size_t i = 0; i < 8; i++)
        end[zeros + i] = (unsigned char)(bits >> (56 - 8 * i));
    add(h, end, zeros + 8);
    for (size_t i = 0; i < size; i++)
        digest[i] = (unsigned char)(h->state[i / 4] >> (24 - 8 * (i % 4)));
    return size;
}

/* ---- Files ------------------------------------------------------------------------------------------- */

/* Add what is left of an open file, at most `most` bytes; *total gets the bytes that were read. */
static int add_file(hash *h, int fd, const char *path, uint64_t most, uint64_t *total,
                    fletch_error *error) {
    char *chunk = fl_alloc(CHUNK);
    if (chunk == NULL)
        return fl_fail_nomem(error, CHUNK, path);
    int result = 0;
    *total     = 0;
    while (*total < most) {
        ssize_t count = read(fd, chunk, most - *total < CHUNK ? (size_t)(most - *total) : CHUNK);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            result = fl_fail_errno(error, errno, "cannot read", path);
        if (count <= 0)
            break;
        add(h, chunk, (size_t)count);
        *total += (uint64_t)count;
    }
    fl_free(chunk);
    return result;
}

static int hash_open(int fd, const char *path, hash *h, uint64_t size, char hex[65],
                     fletch_error *error) {
    unsigned char digest[DIGEST_MAX];
    uint64_t      total  = 0;
    int           result = add_file(h, fd, path, size, &total, error);
    if (result == 0 && size != UINT64_MAX && total != size)
        result = fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "%s changed while it was read", path);
    size_t bytes = finish(h, digest); /* 0 leaves an empty text, which equals no expected value */
    hex[0]       = '\0';
    if (result == 0)
        fl_hex(digest, bytes, hex);
    return result;
}

int fl_fd_sha256(int fd, const char *path, char hex[65], fletch_error *error) {
    hash h = begin(false, 0);
    return hash_open(fd, path, &h, UINT64_MAX, hex, error);
}

static int hash_file(const char *path, bool git_blob, uint64_t begin_at, uint64_t end_at,
                     char hex[65], fletch_error *error) {
    hex[0]        = '\0';
    uint64_t size = 0;
    int      fd   = fl_regular_open(path, &size, error);
    if (fd < 0)
        return fd;
    if (begin_at > 0 && lseek(fd, (off_t)begin_at, SEEK_SET) < 0) {
        int result = fl_fail_errno(error, errno, "cannot read", path);
        close(fd);
        return result;
    }
    hash h = begin(git_blob, size);
    if (git_blob) {
        char header[32];
        int  length = snprintf(header, sizeof header, "blob %llu", (unsigned long long)size);
        add(&h, header, (size_t)length + 1); /* with its NUL */
        end_at = size;
    }
    uint64_t count  = end_at == UINT64_MAX ? UINT64_MAX : end_at - begin_at;
    int      result = hash_open(fd, path, &h, count, hex, error);
    close(fd);
    return result;
}

int fl_file_sha256(const char *path, char hex[65], fletch_error *error) {
    return hash_file(path, false, 0, UINT64_MAX, hex, error);
}

int fl_file_sha256_range(const char *path, uint64_t begin_at, uint64_t end_at, char hex[65],
                         fletch_error *error) {
    assert(begin_at <= end_at);
    return hash_file(path, false, begin_at, end_at, hex, error);
}

int fl_file_git_sha1(const char *path, char hex[65], fletch_error *error) {
    return hash_file(path, true, 0, UINT64_MAX, hex, error);
}

void fl_sha256(const void *data, size_t size, unsigned char digest[32]) {
    assert(data || size == 0);
    unsigned char out[DIGEST_MAX];
    hash          h = begin(false, 0);
    add(&h, data, size);
    (void)finish(&h, out); /* not libcrypto: it cannot fail */
    memcpy(digest, out, 32);
}

void fl_sha256_hex(const void *data, size_t size, char hex[65]) {
    unsigned char digest[32];
    fl_sha256(data, size, digest);
    fl_hex(digest, sizeof digest, hex);
}

void fl_hex(const unsigned char *bytes, size_t count, char *hex) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        hex[2 * i]     = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    hex[2 * count] = '\0';
}
