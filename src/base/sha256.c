/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.c - digests of streams and files, as lower-case hex.
 *
 * Role    the hub cache names a blob by its hash (SHA-256 for large files, git's blob SHA-1 for
 *         small ones); download and `fletch model verify` compare.
 * Method  libcrypto's EVP, which uses the processor's SHA instructions. A failure inside EVP (it
 *         does not happen with these digests) leaves an empty hex text, which equals no expected
 *         value.
 * Memory  one context and, for files, one chunk buffer. Threads: a hash belongs to one thread.
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

struct fl_hash {
    EVP_MD_CTX *context; /* owned */
    bool        failed;
};

fl_hash *fl_hash_new(fl_hash_kind kind) {
    fl_hash *hash = fl_alloc_zero(1, sizeof *hash);
    if (hash == NULL) {
        return NULL;
    }
    hash->context        = EVP_MD_CTX_new();
    const EVP_MD *digest = kind == FL_HASH_SHA256 ? EVP_sha256() : EVP_sha1();
    if (hash->context == NULL || EVP_DigestInit_ex(hash->context, digest, NULL) != 1) {
        fl_hash_free(hash);
        return NULL;
    }
    return hash;
}

void fl_hash_add(fl_hash *hash, const void *data, size_t size) {
    if (EVP_DigestUpdate(hash->context, data, size) != 1) {
        hash->failed = true;
    }
}

void fl_hash_finish(fl_hash *hash, char hex[65]) {
    static const char digits[] = "0123456789abcdef";
    unsigned char     digest[EVP_MAX_MD_SIZE];
    unsigned          size = 0;
    if (hash->failed || EVP_DigestFinal_ex(hash->context, digest, &size) != 1 || size > 32) {
        size = 0;
    }
    for (unsigned i = 0; i < size; i++) {
        hex[2 * i]     = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * size] = '\0';
    fl_hash_free(hash);
}

void fl_hash_free(fl_hash *hash) {
    if (hash != NULL) {
        EVP_MD_CTX_free(hash->context);
        fl_free(hash);
    }
}

/* Add what is left of an open file; *total gets the bytes that were read. */
static int add_file(fl_hash *hash, int fd, const char *path, uint64_t *total, fletch_error *error) {
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
        fl_hash_add(hash, chunk, (size_t)count);
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
    struct stat status;
    fl_hash    *hash   = fl_hash_new(git_blob ? FL_HASH_SHA1 : FL_HASH_SHA256);
    int         result = 0;
    uint64_t    total  = 0;
    if (hash == NULL) {
        result = fl_fail_nomem(error, CHUNK, "a checksum");
    } else if (fstat(fd, &status) != 0) {
        result = fl_fail_errno(error, errno, "cannot read", path);
    } else if (git_blob) {
        char header[32];
        int  length = snprintf(header, sizeof header, "blob %lld", (long long)status.st_size);
        fl_hash_add(hash, header, (size_t)length + 1); /* with its NUL */
    }
    if (result == 0) {
        result = add_file(hash, fd, path, &total, error);
    }
    if (result == 0 && git_blob && total != (uint64_t)status.st_size) {
        result = fl_fail(error, FLETCH_EIO, FLETCH_NOWHERE, "%s changed while it was read", path);
    }
    close(fd);
    if (result == 0) {
        fl_hash_finish(hash, hex);
    } else {
        fl_hash_free(hash);
    }
    return result;
}

int fl_file_sha256(const char *path, char hex[65], fletch_error *error) {
    return hash_file(path, false, hex, error);
}

int fl_file_git_sha1(const char *path, char hex[65], fletch_error *error) {
    return hash_file(path, true, hex, error);
}
