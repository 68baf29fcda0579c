/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.c - digests of files, as lower-case hex.
 *
 * Role    the hub cache names a blob by its hash (SHA-256 for large files, git's blob SHA-1 for
 *         small ones); download and `fletch model verify` compare.
 * Method  libcrypto's EVP, which uses the processor's SHA instructions. A failure inside EVP (it
 *         does not happen with these digests) leaves an empty hex text, which equals no expected
 *         value.
 * Memory  one context and one chunk buffer for the time of a call. Threads: any.
 * Proof   tests/unit/test_base_file.c: NIST's and git's values. */
#include "base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mem.h"

enum { CHUNK = 256 * 1024 };

typedef struct hash {
    EVP_MD_CTX *context; /* owned */
    bool        failed;
} hash;

static void add(hash *h, const void *data, size_t size) {
    h->failed = h->failed || EVP_DigestUpdate(h->context, data, size) != 1;
}

static void finish(hash *h, char hex[65]) {
    static const char digits[] = "0123456789abcdef";
    unsigned char     digest[EVP_MAX_MD_SIZE];
    unsigned          size = 0;
    if (h->failed || EVP_DigestFinal_ex(h->context, digest, &size) != 1 || size > 32) {
        size = 0;
    }
    for (unsigned i = 0; i < size; i++) {
        hex[2 * i]     = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * size] = '\0';
}

/* Add what is left of an open file; *total gets the bytes that were read. */
static int add_file(hash *h, int fd, const char *path, uint64_t *total, fletch_error *error) {
    char *chunk = fl_alloc(CHUNK);
    if (chunk == NULL) {
        return fl_fail_nomem(error, CHUNK, path);
    }
    int result = 0;
    *total     = 0;
    for (;;) {
        ssize_t count = read(fd, chunk, CHUNK);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            result = fl_fail_errno(error, errno, "cannot read", path);
        }
        if (count <= 0) {
            break;
        }
        add(h, chunk, (size_t)count);
        *total += (uint64_t)count;
    }
    fl_free(chunk);
    return result;
}

static int hash_file(const char *path, bool git_blob, char hex[65], fletch_error *error) {
    hex[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return fl_fail_errno(error, errno, "cannot open", path);
    }
    struct stat   status;
    const EVP_MD *digest = git_blob ? EVP_sha1() : EVP_sha256();
    hash          h      = {.context = EVP_MD_CTX_new()};
    int           result = 0;
    uint64_t      total  = 0;
    if (h.context == NULL) {
        result = fl_fail_nomem(error, CHUNK, "a checksum");
    } else if (fstat(fd, &status) != 0) {
        result = fl_fail_errno(error, errno, "cannot read", path);
    } else {
        h.failed = EVP_DigestInit_ex(h.context, digest, NULL) != 1;
    }
    if (result == 0 && git_blob) {
        char header[32];
        int  length = snprintf(header, sizeof header, "blob %lld", (long long)status.st_size);
        add(&h, header, (size_t)length + 1); /* with its NUL */
    }
    if (result == 0) {
        result = add_file(&h, fd, path, &total, error);
    }
    if (result == 0 && git_blob && total != (uint64_t)status.st_size) {
        result = fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "%s changed while it was read", path);
    }
    if (result == 0) {
        finish(&h, hex);
    }
    EVP_MD_CTX_free(h.context);
    close(fd);
    return result;
}

int fl_file_sha256(const char *path, char hex[65], fletch_error *error) {
    return hash_file(path, false, hex, error);
}

int fl_file_git_sha1(const char *path, char hex[65], fletch_error *error) {
    return hash_file(path, true, hex, error);
}

int fl_sha256(const void *data, size_t size, unsigned char digest[32]) {
    unsigned got = 0;
    bool     ok  = EVP_Digest(data, size, digest, &got, EVP_sha256(), NULL) == 1 && got == 32;
    return ok ? FLETCH_OK : FLETCH_EINTERNAL;
}
