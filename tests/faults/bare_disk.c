/* SPDX-License-Identifier: Apache-2.0 */
/* bare_disk.c - a disk without hard links and locks, as some that are mounted over a network: LD_PRELOAD it in front of
 * any program. */
#include <errno.h>
#include <sys/file.h>
#include <unistd.h>

int link(const char *from, const char *to) {
    (void)from;
    (void)to;
    errno = EPERM;
    return -1;
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    (void)from_folder;
    (void)to_folder;
    (void)flags;
    return link(from, to);
}

int flock(int fd, int operation) {
    (void)fd;
    (void)operation;
    errno = ENOLCK;
    return -1;
}
