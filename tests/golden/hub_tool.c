/* SPDX-License-Identifier: Apache-2.0 */
/* hub_tool.c - the hub's functions behind a command line, so that test_hub.py can drive them.
 *
 *   hub_tool [OPTION VALUE]... resolve|pull|path|ls|verify|rm NAME
 *   --cache DIR  --revision R  --offline 1  --download 0  --cancel-after BYTES  --rlimit-fsize
 *   BYTES
 *
 * stdout: the folder (resolve: and "id commit"), one line per entry or file, or the freed bytes.
 * stderr: "log LEVEL MESSAGE", "progress FILE DONE TOTAL", and "error STATUS MESSAGE".
 * Exit code: the negated status, 0 when all went well. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "fletch.h"
#include "hub/hub.h"

/* fletch_status_name is in fletch.c, which would bring the whole library. */
static const char *status_name(int status) {
    switch (status) {
#define STATUS_CASE(name, value, text)                                                             \
    case value: return #name;
        FLETCH_STATUS_MAP(STATUS_CASE)
#undef STATUS_CASE
    default: return "OK";
    }
}

static void say(void *user, int level, const char *message) {
    (void)user;
    fprintf(stderr, "log %d %s\n", level, message);
}

/* Cancels once more than *limit bytes of a file are there. */
static int progress(void *user, const char *file, uint64_t done, uint64_t total) {
    const uint64_t *limit = user;
    fprintf(stderr, "progress %s %llu %llu\n", file, (unsigned long long)done,
            (unsigned long long)total);
    return done > *limit;
}

static int entry(void *user, const fletch_hub_entry *model) {
    (void)user;
    printf("%s\t%s\t%s\t%s\t%llu\t%u\n", model->id, model->revision, model->refs, model->path,
           (unsigned long long)model->bytes, model->files);
    return 0;
}

static int verdict(void *user, const char *name, const char *value, const char *origin) {
    (void)user;
    printf("%s\t%s\t%s\n", name, value, origin);
    return 0;
}

static int run(const char *command, const char *name, const fl_hub_options *options,
               uint64_t *limit, fletch_error *error) {
    char     path[4096] = "";
    char     id[256]    = "";
    char     commit[64] = "";
    uint64_t freed      = 0;
    int      status     = FLETCH_EINVAL;
    if (strcmp(command, "ls") == 0)
        return fl_hub_list(options, entry, NULL, error);
    if (strcmp(command, "verify") == 0)
        return fl_hub_verify(name, options, verdict, NULL, error);
    if (strcmp(command, "rm") == 0) {
        status = fl_hub_remove(name, options, &freed, error);
        printf("%llu\n", (unsigned long long)freed);
        return status;
    }
    if (strcmp(command, "resolve") == 0) {
        status =
            fl_hub_resolve(name, options, progress, limit, path, sizeof path, id, commit, error);
        printf("%s\n%s %s\n", path, id, commit);
        return status;
    }
    if (strcmp(command, "pull") == 0)
        status = fl_hub_pull(name, options, progress, limit, path, sizeof path, error);
    else if (strcmp(command, "path") == 0)
        status = fl_hub_path(name, options, path, sizeof path, error);
    printf("%s\n", path);
    return status;
}

int main(int argc, char **argv) {
    fl_log         log     = {.fn = say};
    fl_hub_options options = {.cache_dir = "", .revision = "", .auto_download = true, .log = &log};
    uint64_t       limit   = UINT64_MAX;
    int            at      = 1;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        const char *value = argv[at + 1];
        if (strcmp(argv[at], "--cache") == 0) {
            options.cache_dir = value;
        } else if (strcmp(argv[at], "--revision") == 0) {
            options.revision = value;
        } else if (strcmp(argv[at], "--offline") == 0) {
            options.offline = value[0] == '1';
        } else if (strcmp(argv[at], "--download") == 0) {
            options.auto_download = value[0] == '1';
        } else if (strcmp(argv[at], "--cancel-after") == 0) {
            limit = strtoull(value, NULL, 10);
        } else if (strcmp(argv[at], "--rlimit-fsize") == 0) {
            rlim_t size = strtoull(value, NULL, 10);
            signal(SIGXFSZ, SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){size, size});
        }
    }
    if (at >= argc) {
        fprintf(stderr, "hub_tool [OPTION VALUE]... resolve|pull|path|ls|verify|rm NAME\n");
        return 2;
    }
    fletch_error error = {0};
    int status         = run(argv[at], at + 1 < argc ? argv[at + 1] : "", &options, &limit, &error);
    if (status < 0)
        fprintf(stderr, "error %s %s\n", status_name(status), error.message);
    return -status;
}
