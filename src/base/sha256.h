/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.h - SHA-256 and git's blob SHA-1 of streams and files (libcrypto), as lower-case hex. */
#ifndef FL_BASE_SHA256_H
#define FL_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "fletch.h"

typedef enum fl_hash_kind { FL_HASH_SHA256, FL_HASH_SHA1 } fl_hash_kind;

typedef struct fl_hash fl_hash; /* owned by the caller of fl_hash_new */

fl_hash *fl_hash_new(fl_hash_kind kind);
void     fl_hash_add(fl_hash *hash, const void *data, size_t size);
void     fl_hash_finish(fl_hash *hash, char hex[65]); /* 64 or 40 digits and NUL; frees */
void     fl_hash_free(fl_hash *hash);                 /* for early exits */

int fl_file_sha256(const char *path, char hex[65], fletch_error *error);
/* sha1 of "blob <size>\0" and the content: the id git, and so the hub, gives a small file. */
int fl_file_git_sha1(const char *path, char hex[65], fletch_error *error);

#endif
