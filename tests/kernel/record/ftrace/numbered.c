/* Work whose events can be counted from outside: numbered FILE calls SECONDS RATE NAME CPU...
 *                    numbered FILE processes COUNT PROGRAM
 *
 * calls: a process on every CPU makes system calls with a number of its own, 1, 2, 3, ...
 * (lseek(-1, NUMBER, NAME + PROCESS), which fails at once), RATE in a second, 0 for as many
 * as can be.  processes: PROGRAM is run COUNT times, one after the other.
 *
 * FILE is shared memory that outlives whoever is killed, of 64-bit numbers: how far process
 * 0, 1, ... came (8 of them), how long it took (8, ns), when it had ended (8; ns,
 * CLOCK_MONOTONIC), then for each process STAMPS times, the n-th taken after call 256 n. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 8, EVERY = 256, STAMPS = 1 << 20 };

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    exit(125);
}

static void calls(volatile int64_t *shared, int self, double seconds, int64_t rate, int name, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) fail("sched_setaffinity");
    volatile int64_t *stamps = shared + 3 * MOST + (int64_t)self * STAMPS;
    int64_t begin = now(), end = begin + (int64_t)(seconds * 1e9), number = 0;
    int64_t all = rate ? (int64_t)(seconds * (double)rate) : INT64_MAX;
    while (number < all && number / EVERY < STAMPS - 1) {
        int64_t wanted = all;
        if (rate) {
            /* What is behind is made up for: how many there are does not depend on the machine. */
            wanted = (now() - begin) / 1000 * rate / 1000000 + 1;
            if (wanted > all) wanted = all;
        } else if (now() >= end) {
            break;
        } else {
            wanted = number + EVERY;
        }
        while (number < wanted) {
            (void)syscall(SYS_lseek, -1, number + 1, name + self);
            shared[self] = ++number;
            if (number % EVERY == 0) stamps[number / EVERY] = now();
        }
        if (rate && number < all) {
            struct timespec pause = {0, 1000000};
            nanosleep(&pause, NULL);
        }
    }
    shared[2 * MOST + self] = now();
    shared[MOST + self] = shared[2 * MOST + self] - begin;
}

static void processes(volatile int64_t *shared, int64_t count, char *program) {
    int64_t begin = now();
    for (int64_t i = 0; i < count; i++) {
        pid_t child = vfork();
        if (child < 0) fail("vfork");
        if (child == 0) {
            char *argv[] = {program, NULL};
            execv(program, argv);
            _exit(127);
        }
        int status;
        if (waitpid(child, &status, 0) < 0) fail("waitpid");
        if (status) exit(124);
        shared[0] = i + 1;
    }
    shared[MOST] = now() - begin;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    size_t size = sizeof(int64_t) * (3 * MOST + (size_t)MOST * STAMPS);
    int file = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)size)) fail(argv[1]);
    volatile int64_t *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) fail("mmap");
    if (strcmp(argv[2], "processes") == 0) {
        processes(shared, atoll(argv[3]), argv[4]);
        return 0;
    }
    if (argc > 6 + MOST) return 2;
    for (int i = 6; i < argc; i++) {
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            calls(shared, i - 6, atof(argv[3]), atoll(argv[4]), atoi(argv[5]), atoi(argv[i]));
            _exit(0);
        }
    }
    int worst = 0, status;
    while (wait(&status) > 0)
        if (status) worst = 1;
    return worst;
}
