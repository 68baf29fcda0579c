/* SPDX-License-Identifier: Apache-2.0 */
/* init.c - the first process of an emulated Linux: runs fl-kernels for the instruction set and the
 * operations that the kernel's command line gives after "--", tells the worst exit status, and
 * turns the machine off. */
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

static int run(char *isa, char *op) {
    char *argv[] = {"/fl-kernels", "test", "-i", isa, "-o", op, NULL};
    int   status = 0;
    pid_t child  = fork();
    if (child == 0) {
        execv(argv[0], argv);
        _exit(127);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv) {
    int worst = 2, first = 1;
    while (first < argc && strcmp(argv[first], "run") != 0)
        first++;                             /* words that the kernel does not know come here too */
    mount("proc", "/proc", "proc", 0, NULL); /* where the processor tells about itself */
    for (int i = first + 2; i < argc; i++) {
        int status = run(argv[first + 1], argv[i]);
        worst      = i == first + 2 || status > worst ? status : worst;
    }
    printf("fl-kernels: exit status %d\n", worst);
    fflush(stdout);
    sleep(1); /* the serial line sends what it holds */
    reboot(RB_POWER_OFF);
    for (;;)
        pause();
}
