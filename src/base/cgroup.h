/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.h - the control groups above this process, and the small files of /proc and /sys. */
#ifndef FL_BASE_CGROUP_H
#define FL_BASE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the file `name` of a folder ("" when name is a whole path) into a terminated text, cut at the
 * capacity; false when it cannot be read or is empty. For files of the kernel: no sizes, no errors. */
bool fl_small_read(const char *folder, const char *name, char *text, size_t capacity);

/* The number behind `key` ("MemTotal:") where that begins a line of such a text; 0: none begins so. */
uint64_t fl_small_number(const char *text, const char *key);

/* Called with the folder of a group, which may not exist; `v2` says which of the two file sets it would
 * have. Anything but 0 ends the walk. */
typedef int (*fl_cgroup_fn)(const char *folder, bool v2, void *user);

/* Visits every group that could limit this process in `controller` ("cpu", "memory"): its own and all above
 * it up to the mount's root, in v2's mount, in the one of hybrid systems ("unified") and in v1's. `root`
 * goes before all paths: "" is this machine, a test gives a tree of its own. Returns 0, or what `visit` did. */
int fl_cgroup_each(const char *root, const char *controller, fl_cgroup_fn visit, void *user);

/* Bytes of memory that a group may have (UINT64_MAX: no limit) and, under a limit, what of it the kernel could not take
 * back when that is reached. False: nothing there says so. */
bool fl_cgroup_memory(const char *folder, bool v2, uint64_t *limit, uint64_t *used);

/* Per cent of the last ten seconds that a task of the group waited for memory; NULL or not told: of the machine below
 * `root`. 0 where that is not told either. */
double fl_cgroup_stalled(const char *folder, const char *root);

#endif
