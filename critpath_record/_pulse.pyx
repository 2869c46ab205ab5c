# cython: language_level=3
"""What the recorder does at a fixed pace, without the interpreter: beats and probes.

A beat is a mark in the buffer of the cpu that its thread is tied to; a probe measures how
fast the machine is just now.  Both run while others are recorded, so they hold no lock of
Python's and touch no memory but their own.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

cdef extern from *:
    """
    #include <pthread.h>
    #include <stdint.h>
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

    static void pulse_name(const char *name) { prctl(PR_SET_NAME, name, 0, 0, 0); }
    """
    int64_t pulse_now() nogil
    void pulse_beat(int *stop, uint32_t *count, int file, uint32_t tag, int64_t period) nogil
    uint32_t pulse_walk(const uint32_t *lines, uint32_t at, int steps) nogil
    int64_t pulse_calls(int count) nogil
    int64_t pulse_overshoot(int64_t sleep) nogil
    int64_t pulse_turns(int count) nogil
    void pulse_name(const char *name) nogil


def name_thread(bytes name):
    """Give the calling thread the name that a trace shows."""
    pulse_name(name)


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
