# cython: language_level=3
"""What the recorder does at a fixed pace, without the interpreter: beats, probes, and resting.

A beat is a mark in the buffer of the cpu that its thread is tied to; a probe measures how
fast the machine is just now.  Both run while others are recorded, so they hold no lock of
Python's and touch no memory but their own.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free, malloc

cdef extern from *:
    """
    #include <errno.h>
    #include <poll.h>
    #include <pthread.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/eventfd.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>

    static int64_t pulse_now(void)
    {
        struct timespec at;
        clock_gettime(CLOCK_MONOTONIC, &at);
        return at.tv_sec * 1000000000LL + at.tv_nsec;
    }

    static void pulse_sleep_until(int64_t time)
    {
        struct timespec at = {time / 1000000000LL, time % 1000000000LL};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL)) {}
    }

    /* One number a beat, whether the tracer takes it or not: what is missing shows. */
    static void pulse_beat(volatile int *stop, volatile uint32_t *count, int file,
                           uint32_t tag, int64_t period)
    {
        int64_t next = pulse_now();
        uint32_t text[2] = {tag, 0};
        for (;;) {
            int last = *stop;
            text[1] = *count;
            (void)!write(file, text, sizeof text);
            *count += 1;
            if (last)
                return;
            next += period;
            if (next < pulse_now())
                next = pulse_now() + period;
            pulse_sleep_until(next);
        }
    }

    static uint32_t pulse_walk(const uint32_t *lines, uint32_t at, int steps)
    {
        while (steps--)
            at = lines[16 * (uint64_t)at];
        return at;
    }

    static int64_t pulse_calls(int count)
    {
        int64_t begin = pulse_now();
        while (count--)
            syscall(SYS_getppid);
        return pulse_now() - begin;
    }

    static int64_t pulse_overshoot(int64_t sleep)
    {
        int64_t until = pulse_now() + sleep;
        pulse_sleep_until(until);
        return pulse_now() - until;
    }

    struct pulse_ends { int ask, answer, count; };

    static void *pulse_answer(void *given)
    {
        struct pulse_ends *ends = given;
        uint64_t one = 1;
        for (int i = 0; i < ends->count; i++) {
            if (read(ends->ask, &one, 8) != 8 || write(ends->answer, &one, 8) != 8)
                break;
        }
        return NULL;
    }

    /* Two threads wake each other in turns: ns for so many turns, -1 if that is refused. */
    static int64_t pulse_turns(int count)
    {
        struct pulse_ends ends = {eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC), count};
        pthread_t other;
        int64_t begin, taken = -1;
        uint64_t one = 1;
        if (ends.ask >= 0 && ends.answer >= 0 &&
            !pthread_create(&other, NULL, pulse_answer, &ends)) {
            begin = pulse_now();
            for (int i = 0; i < count; i++) {
                if (write(ends.ask, &one, 8) != 8 || read(ends.answer, &one, 8) != 8)
                    break;
            }
            taken = pulse_now() - begin;
            pthread_join(other, NULL);
        }
        close(ends.ask);
        close(ends.answer);
        return taken;
    }

    /* What was ever written to a cpu's buffer, by the kernel's counts; -1 if it cannot be read. */
    static int64_t pulse_count(int file)
    {
        static const char *names[] = {"entries: ", "overrun: ", "read events: "};
        char text[512], *line = text;
        int64_t found = 0;
        ssize_t size = pread(file, text, sizeof text - 1, 0);
        if (size <= 0)
            return -1;
        for (text[size] = 0; line; line = strchr(line, '\\n'), line += line != NULL)
            for (unsigned i = 0; i < 3; i++)
                if (!strncmp(line, names[i], strlen(names[i])))
                    found += strtoll(line + strlen(names[i]), NULL, 10);
        return found;
    }

    struct pulse_quiet {
        struct pollfd *files;
        const int *counters;
        const int64_t *before;
        const double *weights, *limits;
        int ready, layers, cpus, places;
    };

    /* 1 where a place has spent as much as its limit, or nothing tells. */
    static int pulse_spent(const struct pulse_quiet *of)
    {
        double spent = 0;
        for (int cpu = 0; cpu < of->cpus; cpu++) {
            for (int layer = 0; layer < of->layers; layer++) {
                int at = layer * of->cpus + cpu;
                int64_t count = pulse_count(of->counters[at]);
                if (count < 0)
                    return 1;
                if (count > of->before[at])
                    spent += of->weights[layer] * (double)(count - of->before[at]);
            }
            if (spent >= of->limits[of->places > 1 ? cpu : 0])
                return 1;
            if (of->places > 1)
                spent = 0;
        }
        return 0;
    }

    static int pulse_rest(const struct pulse_quiet *of, int64_t pace, int64_t until)
    {
        for (;;) {
            int64_t left = until - pulse_now();
            if (left <= 0)
                return 0;
            left = left < pace ? left : pace;
            int ready = poll(of->files, of->ready, (int)((left + 999999) / 1000000));
            if (ready > 0)
                return 0;
            if ((ready < 0 && errno != EINTR) || pulse_spent(of))
                return 1;
        }
    }

    static void pulse_name(const char *name) { prctl(PR_SET_NAME, name, 0, 0, 0); }
    """
    int64_t pulse_now() nogil
    void pulse_beat(int *stop, uint32_t *count, int file, uint32_t tag, int64_t period) nogil
    uint32_t pulse_walk(const uint32_t *lines, uint32_t at, int steps) nogil
    int64_t pulse_calls(int count) nogil
    int64_t pulse_overshoot(int64_t sleep) nogil
    int64_t pulse_turns(int count) nogil
    void pulse_name(const char *name) nogil

    struct pollfd:
        int fd
        short events

    struct pulse_quiet:
        pollfd *files
        const int *counters
        const int64_t *before
        const double *weights
        const double *limits
        int ready, layers, cpus, places

    int pulse_rest(const pulse_quiet *of, int64_t pace, int64_t until) nogil


def name_thread(bytes name):
    """Give the calling thread the name that a trace shows."""
    pulse_name(name)


def rest(const int[::1] files, const int[::1] counters, const int64_t[::1] before,
         const double[::1] weights, const double[::1] limits, int64_t pace, int64_t until):
    """Wait until a file is ready or for a time (ns), as long as little is spent meanwhile.

    `files`: each with its mask behind it.  `counters`: of each layer each cpu's file of counts,
    with what it had `before`.  `weights`: of an event of each layer.  `limits`: of each cpu, or of
    all together.  `pace`: ns between two looks at them.  Returns whether there is something to
    decide.
    """
    cdef pulse_quiet of
    cdef int i, found
    of.ready, of.layers, of.places = files.shape[0] // 2, weights.shape[0], limits.shape[0]
    of.cpus = counters.shape[0] // max(of.layers, 1)
    if not (of.ready and of.layers and of.places in (1, of.cpus)
            and counters.shape[0] == before.shape[0] == of.layers * of.cpus):
        raise ValueError("counters, what they had before, weights and limits do not go together")
    of.counters, of.before = &counters[0], &before[0]
    of.weights, of.limits = &weights[0], &limits[0]
    of.files = <pollfd *>malloc(of.ready * sizeof(pollfd))
    if of.files == NULL:
        raise MemoryError
    for i in range(of.ready):
        of.files[i].fd, of.files[i].events = files[2 * i], <short>files[2 * i + 1]
    with nogil:
        found = pulse_rest(&of, pace, until)
    free(of.files)
    return found != 0


cdef class Beats:
    """Beats of one cpu: `run` in a thread that is tied to it, until `stop`."""

    cdef int _stop
    cdef uint32_t _count

    @property
    def count(self):
        """How many beats there were."""
        return self._count

    def run(self, int file, uint32_t tag, int64_t period):
        """Write a beat every so many nanoseconds, and a last one when it is stopped."""
        with nogil:
            pulse_beat(&self._stop, &self._count, file, tag, period)

    def stop(self):
        """End after the next beat."""
        self._stop = 1


cdef class Chain:
    """A walk through so much memory in an order that no cpu foresees."""

    cdef uint32_t *_lines
    cdef uint32_t _at
    cdef int _steps

    def __cinit__(self, uint32_t size, int steps):
        cdef uint32_t count = size // 64, i
        self._lines = <uint32_t *>calloc(count, 64)
        if self._lines == NULL:
            raise MemoryError
        self._at, self._steps = 0, steps
        # One cycle through all lines, of which there are a power of two: written in the order in
        # which they lie, where a shuffle would walk through the memory once for each.
        for i in range(count):
            self._lines[16 * i] = (1664525 * i + 1013904223) & (count - 1)

    def __dealloc__(self):
        free(self._lines)

    def measure(self):
        """Return the time (ns) of the better of two walks, after one that is not measured."""
        cdef int64_t begin, first, second
        with nogil:
            self._at = pulse_walk(self._lines, self._at, self._steps)
            begin = pulse_now()
            self._at = pulse_walk(self._lines, self._at, self._steps)
            first = pulse_now() - begin
            begin = pulse_now()
            self._at = pulse_walk(self._lines, self._at, self._steps)
            second = pulse_now() - begin
        return min(first, second)


def measure_calls(int count):
    """Return the time (ns) of so many system calls."""
    cdef int64_t taken
    with nogil:
        taken = pulse_calls(count)
    return taken


def measure_turns(int count):
    """Return the time (ns) in which two threads wake each other so often; -1 if refused."""
    cdef int64_t taken
    with nogil:
        taken = pulse_turns(count)
    return taken


def measure_overshoot(int64_t sleep):
    """Return how much later (ns) than asked for a sleep ends."""
    cdef int64_t late
    with nogil:
        late = pulse_overshoot(sleep)
    return late
