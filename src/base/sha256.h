/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.h - SHA-256 of memory and files, git's blob SHA-1 of files; files' as lower-case hex. */
#ifndef FL_BASE_SHA256_H
#define FL_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "fletch.h"

/* The 32 bytes of the digest of a piece of memory. */
void fl_sha256(const void *data, size_t size, unsigned char digest[32]);

/* 64 digits and a NUL. */
void fl_sha256_hex(const void *data, size_t size, char hex[65]);
int  fl_file_sha256(const char *path, char hex[65], fletch_error *error);
/* Of an open file from where it stands; `path` is for messages. */
int fl_fd_sha256(int fd, const char *path, char hex[65], fletch_error *error);
/* Of bytes [begin, end) alone; FLETCH_EIO when the file ends before. */
int fl_file_sha256_range(const char *path, uint64_t begin, uint64_t end, char hex[65],
                         fletch_error *error);
/* 40 digits and a NUL: sha1 of "blob <size>\0" and the content, the id git, and so the hub, gives a small
 * file. */
int fl_file_git_sha1(const char *path, char hex[65], fletch_error *error);

/* Bytes as 2 * count digits and a NUL. */
void fl_hex(const unsigned char *bytes, size_t count, char *hex);

#endif
