/* ab_work LOOPS [PERCENT MS]: computes, and in PERCENT of its executions sleeps MS besides. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    long loops = argc > 1 ? atol(argv[1]) : 1000;
    int percent = argc > 2 ? atoi(argv[2]) : 0;
    int ms = argc > 3 ? atoi(argv[3]) : 0;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t state = (uint64_t)now.tv_nsec * 2654435761u ^ (uint64_t)getpid();
    state ^= state >> 17;
    int slow = (int)(state % 100) < percent;
    volatile uint64_t sum = 0;
    for (long i = 0; i < loops; i++) sum += sum * 31 + (uint64_t)i;
    if (slow) usleep((useconds_t)ms * 1000);
    return 0;
}
