/* SPDX-License-Identifier: Apache-2.0 */
/* confine.h - put a process under a hard memory limit: a control group, else its address space.
 *
 * Method  A child group of this process's own memory group (v1, or v2 where it was delegated) gets the
 *         limit, swap included; the process to be confined moves itself in; the group is removed at the
 *         end. Where none can be made, RLIMIT_AS bounds the address space instead. That is a coarser
 *         box, because mapped files and reserved but unwritten memory count in it, so it is wider by
 *         SLACK; memory.limit itself is checked by the soak's samples in both cases.
 * Threads One, before any other starts. */
#ifndef SOAK_CONFINE_H
#define SOAK_CONFINE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CONFINE_PATH = 1024, /* groups with longer paths count as none */
    SLACK_MIB    = 768
};

typedef struct confinement {
    char     group[CONFINE_PATH]; /* "" when there is none */
    bool     v2;
    uint64_t limit;
} confinement;

static inline bool confine_write(const char *group, const char *file, uint64_t value) {
    char path[CONFINE_PATH + 64];
    (void)snprintf(path, sizeof path, "%s/%s", group, file);
    FILE *out = fopen(path, "w");
    if (out == NULL)
        return false;
    bool put = fprintf(out, "%llu\n", (unsigned long long)value) > 0;
    return fclose(out) == 0 && put;
}

static inline uint64_t confine_read(const char *group, const char *file, const char *key) {
    char path[CONFINE_PATH + 64], line[256];
    (void)snprintf(path, sizeof path, "%s/%s", group, file);
    FILE    *in    = fopen(path, "r");
    uint64_t value = 0;
    size_t   size  = strlen(key);
    while (in && fgets(line, sizeof line, in)) {
        if (strncmp(line, key, size) == 0) {
            value = strtoull(line + size, NULL, 10);
            break;
        }
    }
    if (in)
        fclose(in);
    return value;
}

/* This process's memory group as a folder; false: none is known. */
static inline bool confine_own_group(char *folder, size_t capacity, bool *v2) {
    FILE *in = fopen("/proc/self/cgroup", "r");
    char  line[CONFINE_PATH], path[CONFINE_PATH - 128], unified[CONFINE_PATH] = "";
    bool  found = false;
    while (in && !found && fgets(line, sizeof line, in)) {
        if (sscanf(line, "%*u:memory:%895[^\n]", path) == 1) {
            found = true;
            *v2   = false;
            (void)snprintf(folder, capacity, "/sys/fs/cgroup/memory%s", path);
        } else if (sscanf(line, "0::%895[^\n]", path) == 1) {
            (void)snprintf(unified, sizeof unified, "/sys/fs/cgroup%s", path);
        }
    }
    if (in)
        fclose(in);
    if (!found && unified[0]) {
        *v2 = true;
        (void)snprintf(folder, capacity, "%s", unified);
        found = true;
    }
    return found;
}

static inline void confine_make(confinement *c, uint64_t limit, bool group) {
    char own[CONFINE_PATH - 64];
    memset(c, 0, sizeof *c);
    c->limit = limit;
    if (!group || !confine_own_group(own, sizeof own, &c->v2))
        return;
    size_t length = strlen(own);
    (void)snprintf(c->group, sizeof c->group, "%s%sfletch-soak-%d", own,
                   own[length - 1] == '/' ? "" : "/", (int)getpid());
    if (mkdir(c->group, 0755) < 0) {
        c->group[0] = '\0';
        return;
    }
    if (!confine_write(c->group, c->v2 ? "memory.max" : "memory.limit_in_bytes", limit)) {
        rmdir(c->group);
        c->group[0] = '\0';
        return;
    }
    (void)confine_write(c->group, c->v2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes",
                        c->v2 ? 0 : limit);
}

/* In the process that is to be confined. */
static inline bool confine_enter(const confinement *c) {
    if (c->group[0] && confine_write(c->group, "cgroup.procs", (uint64_t)getpid())) {
        printf("confined: control group %s of %llu MiB\n", c->v2 ? "v2" : "v1",
               (unsigned long long)(c->limit >> 20));
        return true;
    }
    rlim_t        bytes = c->limit + ((rlim_t)SLACK_MIB << 20);
    struct rlimit box   = {bytes, bytes};
    if (setrlimit(RLIMIT_AS, &box) < 0) {
        fprintf(stderr, "soak: RLIMIT_AS: %s\n", strerror(errno));
        return false;
    }
    printf("confined: no control group could be made; RLIMIT_AS of %llu MiB\n",
           (unsigned long long)(bytes >> 20));
    return true;
}

/* In the parent, when the confined process has ended. */
static inline void confine_end(confinement *c) {
    if (c->group[0] == '\0')
        return;
    uint64_t most = confine_read(c->group, c->v2 ? "memory.peak" : "memory.max_usage_in_bytes", "");
    uint64_t kills =
        confine_read(c->group, c->v2 ? "memory.events" : "memory.oom_control", "oom_kill ");
    printf("control group: most %.1f MiB charged (file pages included), %llu killed\n",
           (double)most / 1048576.0, (unsigned long long)kills);
    for (int i = 0; i < 100 && rmdir(c->group) < 0 && errno == EBUSY; i++)
        usleep(10000);
    c->group[0] = '\0';
}

#endif
