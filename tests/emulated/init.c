/* The first and only process of the emulated machine: runs the lines of /tests one after the other, each
 * "NAME VARIABLE=VALUE... PROGRAM ARGUMENT...", prints "@@ end NAME STATUS" after each (128 + the signal
 * where one ended it) on the console, and switches the machine off by the port that Bochs has for it.
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* NOLINT(bugprone-reserved-identifier) */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define OFF_PORT 0x8900

/* The words of a line, in place; the variables among the first go into the environment. */
static char **words(char *line, char **word, size_t most)
{
    size_t n = 0;
    char **program = word;

    for (char *w = strtok_r(line, " \n", &line); w != NULL && n + 1 < most;
         w = strtok_r(NULL, " \n", &line)) {
        word[n++] = w;
    }
    word[n] = NULL;
    while (*program != NULL && strchr(*program, '=') != NULL) {
        (void)putenv(*program++);
    }
    return program;
}

static int run(char *line)
{
    char *word[64];
    int status = 0;
    const pid_t child = fork();

    if (child == 0) {
        char **program = words(line, word, sizeof word / sizeof word[0]);
        if (*program != NULL) {
            (void)execvp(*program, program);
            perror(*program);
        }
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("fork");
        return 126;
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void prepare(void)
{
    (void)mount("none", "/dev", "devtmpfs", 0, NULL);
    (void)mount("none", "/proc", "proc", 0, NULL);
    (void)mount("none", "/sys", "sysfs", 0, NULL);
    (void)mount("none", "/tmp", "tmpfs", 0, NULL);
    const int console = open("/dev/ttyS0", O_RDWR);
    for (int fd = 0; console >= 0 && fd < 3; fd++) {
        (void)dup2(console, fd);
    }
}

static void switch_off(void)
{
    sync();
    (void)tcdrain(STDOUT_FILENO);
    if (ioperm(OFF_PORT, 1, 1) == 0) {
        for (const char *c = "Shutdown"; *c != '\0'; c++) {
            outb((unsigned char)*c, OFF_PORT);
        }
    }
    (void)reboot(RB_POWER_OFF);
}

int main(void)
{
    char line[4096];

    prepare();
    (void)setenv("PATH", "/t:/bin", 1);
    FILE *list = fopen("/tests", "r");
    while (list != NULL && fgets(line, sizeof line, list) != NULL) {
        char name[64] = "";
        int at = 0;
        if (sscanf(line, "%63s %n", name, &at) == 1) {
            printf("@@ begin %s\n", name);
            (void)fflush(stdout);
            printf("@@ end %s %d\n", name, run(line + at));
            (void)fflush(stdout);
        }
    }
    printf("@@ done\n");
    (void)fflush(stdout);
    switch_off();
    return 0;
}
