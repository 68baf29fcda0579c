/* SPDX-License-Identifier: Apache-2.0 */
/* child.c - do something dangerous in a child process first, so that a crash there is only news.
 *
 * Role    library.c loads a library in a child before it loads it here: constructors of a library
 *         built for another processor or against other libraries may crash, and a crash cannot be
 *         caught.
 * Method  fork, default signal handlers, output to nowhere, the act, _exit. A child that takes more
 *         than ten seconds is killed and counts as a crash.
 * Limits  After fork in a program with threads only async-signal-safe calls are promised; loading
 *         needs malloc and the loader's lock, which glibc makes usable in the child. A child that
 *         hangs all the same is met by the time limit.
 * Proof   tests/unit/test_onnxruntime.c: a library whose constructor crashes, and one that hangs. */
#include "engines/onnxruntime/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

enum { WAIT_MS = 10000, STEP_MS = 1 };

static void be_child(int (*act)(const char *path), const char *path) {
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTERM};
    for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++)
        signal(deadly[i], SIG_DFL);
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) {
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
    }
    _exit(act(path) == 0 ? 0 : 1);
}

/* Wait at most WAIT_MS; false when the child had to be killed. */
static bool await(pid_t child, int *state) {
    const struct timespec step = {.tv_nsec = STEP_MS * 1000000L};
    for (int waited = 0; waited < WAIT_MS; waited += STEP_MS) {
        pid_t done = waitpid(child, state, WNOHANG);
        if (done == child || (done < 0 && errno != EINTR))
            return done == child;
        nanosleep(&step, NULL);
    }
    kill(child, SIGKILL);
    while (waitpid(child, state, 0) < 0 && errno == EINTR)
        ;
    return false;
}

int fl_ort_child_probe(int (*act)(const char *path), const char *path, fletch_error *error) {
    pid_t child = fork();
    if (child < 0) /* no process to be had: the caller tries without */
        return FLETCH_OK;
    if (child == 0)
        be_child(act, path);
    int state = 0;
    if (!await(child, &state))
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "%.300s does not load within %d seconds; take another ONNX Runtime with "
                       "onnxruntime.library",
                       path, WAIT_MS / 1000);
    if (WIFSIGNALED(state))
        return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                       "%.300s crashes while it loads (signal %d, %s): it is damaged or built for "
                       "another machine; take another with onnxruntime.library",
                       path, WTERMSIG(state), strsignal(WTERMSIG(state)));
    return FLETCH_OK;
}
