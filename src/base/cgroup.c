/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.c - find the control groups above this process.
 *
 * Role    cpu.c asks them for processor quotas, scheduler/memory.c for memory limits and pressure.
 * Method  The lines of /proc/self/cgroup name the process's group in v2 ("0::/path") and for each v1
 *         controller ("4:cpu,cpuacct:/path"). Below the mount that path is walked up to the mount's root,
 *         since a parent's limit binds too. In a container the path may name a group that is not visible;
 *         the walk then ends at the mount's root, which is the container's own group.
 * Memory  Stack only. Threads: any; nothing is kept.
 * Proof   tests/unit/test_base_cpu.c, test_memory.c (a stand-in tree). */
#include "base/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PATH_SPACE = 4096, /* of a group's path, and of /proc/self/cgroup */
    STAT_SPACE = 16384 /* memory.stat */
};

#define NO_LIMIT (UINT64_C(1) << 62) /* v1 says "none" by a number near 2^63 */

bool fl_small_read(const char *folder, const char *name, char *text, size_t capacity) {
    char path[2 * PATH_SPACE];
    int  length = snprintf(path, sizeof path, "%s%s", folder, name);
    int  fd     = length < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return false;
    size_t  size = 0;
    ssize_t count;
    do {
        count = read(fd, text + size, capacity - 1 - size);
        size += count > 0 ? (size_t)count : 0;
    } while ((count > 0 && size < capacity - 1) || (count < 0 && errno == EINTR));
    close(fd);
    text[size] = '\0';
    return size > 0;
}

uint64_t fl_small_number(const char *text, const char *key) {
    const char *line = text;
    while (line != NULL && strncmp(line, key, strlen(key)) != 0) {
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return line != NULL ? strtoull(line + strlen(key), NULL, 10) : 0;
}

/* Whether the comma-separated list (length bytes) names the controller. */
static bool list_has(const char *list, size_t length, const char *name) {
    size_t size = strlen(name);
    for (size_t i = 0; i < length;) {
        size_t end = i;
        while (end < length && list[end] != ',')
            end++;
        if (end - i == size && memcmp(list + i, name, size) == 0)
            return true;
        i = end + 1;
    }
    return false;
}

/* The group of this process for a v1 controller, or with controller "" its v2 group: the path after the
 * second colon of its line. */
static bool group_path(const char *cgroups, const char *controller, char path[PATH_SPACE]) {
    for (const char *line = cgroups; line != NULL && *line != '\0';) {
        const char *end    = line + strcspn(line, "\n");
        const char *first  = memchr(line, ':', (size_t)(end - line));
        const char *second = NULL;
        if (first != NULL)
            second = memchr(first + 1, ':', (size_t)(end - first - 1));
        if (second != NULL) {
            size_t length = (size_t)(second - first - 1);
            size_t size   = (size_t)(end - second - 1);
            bool   found =
                controller[0] == '\0' ? length == 0 : list_has(first + 1, length, controller);
            if (found && size < PATH_SPACE) {
                memcpy(path, second + 1, size);
                path[size] = '\0';
                return true;
            }
        }
        line = *end == '\n' ? end + 1 : NULL;
    }
    return false;
}

typedef struct walk {
    const char  *root;
    fl_cgroup_fn visit;
    void        *user;
} walk;

/* The group and all its parents below `mount`, the mount's root last. */
static int walk_up(const walk *w, const char *mount, const char *group, bool v2) {
    char   folder[2 * PATH_SPACE];
    size_t room = sizeof folder;
    int    root = snprintf(folder, room, "%s%s", w->root, mount);
    if (root < 0 || (size_t)root >= room)
        return 0;
    bool escapes = strstr(group, "/..") != NULL; /* a group outside of our namespace */
    (void)snprintf(folder + root, room - (size_t)root, "%s", escapes ? "" : group);
    for (;;) {
        size_t length = strlen(folder);
        while (length > (size_t)root && folder[length - 1] == '/')
            folder[--length] = '\0';
        int status = w->visit(folder, v2, w->user);
        if (status != 0 || length <= (size_t)root)
            return status;
        *strrchr(folder, '/') = '\0';
    }
}

int fl_cgroup_each(const char *root, const char *controller, fl_cgroup_fn visit, void *user) {
    walk w = {root, visit, user};
    char cgroups[PATH_SPACE], group[PATH_SPACE], mount[64];
    int  status = 0;
    if (!fl_small_read(root, "/proc/self/cgroup", cgroups, sizeof cgroups))
        return 0;
    if (group_path(cgroups, "", group)) {
        status = walk_up(&w, "/sys/fs/cgroup", group, true);
        if (status == 0)
            status = walk_up(&w, "/sys/fs/cgroup/unified", group, true);
    }
    if (status == 0 && group_path(cgroups, controller, group)) {
        /* "cpu" is also a link to "cpu,cpuacct" where the two are mounted together. */
        (void)snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controller);
        status = walk_up(&w, mount, group, false);
    }
    return status;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* A limit as the kernel writes it: "max", a number of bytes, or v1's huge number for none. */
static uint64_t limit_of(const char *text) {
    const uint64_t limit = text[0] >= '0' && text[0] <= '9' ? strtoull(text, NULL, 10) : NO_LIMIT;
    return limit < NO_LIMIT ? limit : UINT64_MAX;
}

/* What the group is charged for less the pages of files that nobody looked at lately. */
static uint64_t working_set(const char *folder, bool v2) {
    const char *name = v2 ? "/memory.current" : "/memory.usage_in_bytes";
    const char *key  = v2 ? "inactive_file " : "total_inactive_file ";
    char        text[STAT_SPACE];
    uint64_t    current = 0, inactive = 0;
    if (fl_small_read(folder, name, text, sizeof text))
        current = strtoull(text, NULL, 10);
    if (fl_small_read(folder, "/memory.stat", text, sizeof text))
        inactive = fl_small_number(text, key);
    return current > inactive ? current - inactive : 0;
}

bool fl_cgroup_memory(const char *folder, bool v2, uint64_t *limit, uint64_t *used) {
    const char *name = v2 ? "/memory.max" : "/memory.limit_in_bytes";
    char        text[64];
    *limit = UINT64_MAX;
    *used  = 0;
    if (!fl_small_read(folder, name, text, sizeof text))
        return false;
    *limit = limit_of(text);
    if (v2 && fl_small_read(folder, "/memory.high", text, sizeof text)) {
        const uint64_t high = limit_of(text);
        *limit              = high < *limit ? high : *limit;
    }
    if (*limit != UINT64_MAX)
        *used = working_set(folder, v2);
    return true;
}

double fl_cgroup_stalled(const char *folder, const char *root) {
    char   text[256] = "";
    double average;
    if (folder == NULL || !fl_small_read(folder, "/memory.pressure", text, sizeof text))
        (void)fl_small_read(root, "/proc/pressure/memory", text, sizeof text);
    return sscanf(text, "some avg10=%lf", &average) == 1 ? average : 0.0;
}
