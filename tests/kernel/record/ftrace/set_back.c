/* For LD_PRELOAD: from SET_BACK_FROM on the wall clock is an hour slow, for
 * this process and those that it starts.  SET_BACK_FROM: ns of CLOCK_MONOTONIC. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t from = -1;

static int64_t monotonic(void) {
    struct timespec t;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int is_set_back(void) {
    if (from < 0) {
        const char *said = getenv("SET_BACK_FROM");
        from = said ? atoll(said) : INT64_MAX;
    }
    return monotonic() >= from;
}

int clock_gettime(clockid_t id, struct timespec *t) {
    int code = (int)syscall(SYS_clock_gettime, id, t);
    if (code == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) && is_set_back())
        t->tv_sec -= 3600;
    return code;
}

time_t time(time_t *out) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}

int gettimeofday(struct timeval *out, void *zone) {
    (void)zone;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    out->tv_sec = t.tv_sec;
    out->tv_usec = t.tv_nsec / 1000;
    return 0;
}
