/* Operations whose cost counting changes: prints ns for each, the lowest decile of many batches.
 *
 *   signatures syscall|open|ping-pong BATCHES
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int there[2], back[2];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int once(const char *what) {
    char c = 0;
    if (what[0] == 's') return syscall(SYS_getppid) < 0;
    if (what[0] == 'o') {
        int fd = open("/proc/self/comm", O_RDONLY);
        int failed = fd < 0 || read(fd, &c, 1) != 1;
        return close(fd) != 0 || failed;
    }
    return write(there[1], &c, 1) != 1 || read(back[0], &c, 1) != 1;
}

int main(int argc, char **argv) {
    int batches = argc > 2 ? atoi(argv[2]) : 0, each = argc > 1 && argv[1][0] == 's' ? 2000 : 200;
    double *taken = calloc(batches + 1, sizeof *taken);
    cpu_set_t cpu;
    pid_t child = 0;
    if (batches < 1 || !taken) return 2;
    CPU_ZERO(&cpu);
    CPU_SET(sched_getcpu(), &cpu);
    sched_setaffinity(0, sizeof cpu, &cpu);
    if (argv[1][0] == 'p') {
        char c;
        if (pipe(there) || pipe(back)) return 1;
        child = fork();
        if (!child)
            while (read(there[0], &c, 1) == 1)
                if (write(back[1], &c, 1) != 1) break;
    }
    for (int b = 0; b < batches; b++) {
        double begin = now();
        for (int i = 0; i < each; i++)
            if (once(argv[1])) return 1;
        taken[b] = (now() - begin) / each;
    }
    if (child > 0) kill(child, SIGKILL);
    qsort(taken, batches, sizeof *taken, compare);
    printf("%.2f\n", taken[batches / 10]);
    return 0;
}
