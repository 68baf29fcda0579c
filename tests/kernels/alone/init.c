/* SPDX-License-Identifier: Apache-2.0 */
/* init.c - the first process of an emulated Linux: runs /fl-kernels with the arguments that the
 * kernel's command line gives after "--", tells its exit status, and turns the machine off. */
#include <stdio.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int   status = 0;
    pid_t child;
    (void)argc;
    mount("proc", "/proc", "proc", 0, NULL); /* where the processor tells about itself */
    child = fork();
    if (child == 0) {
        argv[0] = "/fl-kernels";
        execv(argv[0], argv);
        _exit(127);
    }
    waitpid(child, &status, 0);
    printf("fl-kernels: exit status %d\n",
           WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    fflush(stdout);
    sleep(1); /* the serial line sends what it holds */
    reboot(RB_POWER_OFF);
    for (;;) {
        pause();
    }
}
