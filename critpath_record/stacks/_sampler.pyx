# cython: language_level=3
"""Samples the stacks of Pythons from outside, by their memory, without the interpreter.

What a sample reads is what the one before it read: one call of the kernel fetches the states of all
threads, their frames and the code objects of these, as they lay then.  Where a thread went on,
what it needs besides is read in small blocks.  So a thread that waits costs a comparison.

Nothing that is read is trusted: numbers of threads, frames and letters are bounded, a code object
has the type of one, and the stack of a thread that went on counts only if the thread is still
where it was when the walk began.  Else it is taken again, and at last counted as torn.
"""

from libc.errno cimport EFAULT, errno
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memset

import os

cdef extern from *:
    """
    #include <pthread.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <time.h>
    #include <unistd.h>

    static int64_t sampler_now(void)
    {
        struct timespec at;
        clock_gettime(CLOCK_MONOTONIC, &at);
        return at.tv_sec * 1000000000LL + at.tv_nsec;
    }

    static void sampler_sleep_until(int64_t time)
    {
        struct timespec at = {time / 1000000000LL, time % 1000000000LL};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL)) {}
    }

    static int sampler_has_thread(int pid, int tid)
    {
        char name[64];
        snprintf(name, sizeof name, "/proc/%d/task/%d", pid, tid);
        return access(name, F_OK) == 0;
    }

    static int sampler_stops(const volatile int *flag) { return *flag; }
    """
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *, void *) nogil
    int pthread_mutex_lock(pthread_mutex_t *) nogil
    int pthread_mutex_unlock(pthread_mutex_t *) nogil
    int pthread_mutex_destroy(pthread_mutex_t *) nogil
    int64_t sampler_now() nogil
    void sampler_sleep_until(int64_t time) nogil
    bint sampler_has_thread(int pid, int tid) nogil
    bint sampler_stops(const int *flag) nogil

cdef enum:
    DEPTH = 1024          # frames of a stack, as `critpath.read.stacks` takes them
    HOPS = 2048           # frames with those of C between
    INTERPRETERS = 64     # of a process
    THREADS = 4096
    FRAMES = 65536        # of all threads, in one sample
    LETTERS = 400         # of a name, its last ones
    TABLE = 1 << 20       # bytes of a table of lines
    CODES = 1 << 16       # code objects of a process that are kept
    FACTS = 512           # bytes of one, and of a frame, that are read
    TRIES = 4             # until a stack is torn
    ROW_SIZE = 21
    STACKS = 500_000
    PLACES = 500_000
    STRINGS = 200_000
    MEMO = 8192           # places of instructions that are remembered
    UNKNOWN_AGAIN = 20    # samples until a thread whose number is not known is looked up again
    ALL_AGAIN = 200       # samples until all threads are read, whatever has changed
    # Of glibc on x86-64: in the description of a thread its own address, and its number.
    SELF_AT = 0x10
    NUMBER_AT = 0x2D0

cdef uint64_t MOST_ROWS = 12_000_000
cdef uint64_t MOST_FRAMES = 20_000_000  # of all different stacks
cdef int64_t JITTER = 250_000  # ns by which a sample may lie beside its period
cdef int64_t SLOWLY = 2000  # ns that reading a piece of memory takes, even of a slow machine

include "_memory.pxi"
include "_numbers.pxi"
include "_lines.pxi"

cdef struct Layout:
    int64_t interpreters, following, threads
    int64_t next, interpreter, thread, native, frame, indirect
    int64_t code, previous, instruction, owner
    int64_t first_line, file, name, lines, instructions
    int64_t ascii, compact
    int64_t lock, table, versioned  # lock: of the runtime; -offset: of an interpreter, by address

cdef struct Thread:
    uint64_t state, before, raw, hash, tick  # before: the state that leads to this one
    int64_t row, last, count  # time of its last row, of its last sample, samples since the row
    int32_t tid, stack
    int32_t again
    bint rows

cdef struct Code:
    uint64_t address, serial, content
    int64_t first_line
    int32_t name, file
    uint8_t *lines
    uint32_t length
    uint8_t facts[FACTS]

cdef struct Process:
    int number, failures
    bint gone, inner
    Layout layout
    uint64_t runtime, code_type
    int64_t low, span, state_size  # of what is read of a frame, and of a thread's state
    Memory memory
    Plan whole, one  # what is read of all threads, and of the one that alone may have gone on
    int budget
    # While only one thread may have gone on since the last sample: that one, and how it was found.
    bint settled
    uint64_t lock[3], interpreter, first_state
    uint32_t holder
    Thread *threads
    uint32_t n_threads, threads_room
    Code *codes
    uint32_t n_codes, codes_room
    Numbers of_address


cdef class Sampler:
    """Samples processes once a period (ns), until it is told to stop."""

    cdef int64_t period
    cdef int ending
    cdef bint broken
    cdef pthread_mutex_t lock
    cdef Process *processes
    cdef uint32_t n_processes, processes_room
    cdef uint64_t tick, serials, seed
    cdef readonly uint64_t samples, late, torn, lost, unknown
    # While one process is sampled: pages that the last one did not have, and a stack.
    cdef Pages pages
    cdef int32_t *stack_codes
    cdef int64_t *stack_offsets
    cdef int32_t *stack_places
    cdef uint64_t hash, head, first_frame, first_code
    cdef Memo *memo
    # What was found, each once.
    cdef Numbers of_string, of_place, of_stack
    cdef uint8_t *letters
    cdef String *strings
    cdef Place *found_places
    cdef int32_t *frames
    cdef uint64_t *ends  # where each begins in the frames; one more for the end of the last
    cdef Row *rows
    cdef uint32_t letters_size, letters_room, n_strings, strings_room, n_places, places_room
    cdef uint32_t n_frames, frames_room, n_stacks, stacks_room, n_rows, rows_room

    def __cinit__(self, int64_t period):
        self.period = max(period, 100_000)
        self.seed = int.from_bytes(os.urandom(8), "little")
        pthread_mutex_init(&self.lock, NULL)
        self.stack_codes = <int32_t *>malloc(DEPTH * sizeof(int32_t))
        self.stack_offsets = <int64_t *>malloc(DEPTH * sizeof(int64_t))
        self.stack_places = <int32_t *>malloc(DEPTH * sizeof(int32_t))
        self.memo = <Memo *>calloc(MEMO, sizeof(Memo))
        if not (
            pages_made(&self.pages) and self.memo
            and self.stack_codes and self.stack_offsets and self.stack_places
            and grown(<void **>&self.ends, 2, sizeof(uint64_t), &self.stacks_room)
        ):
            raise MemoryError
        self.ends[0] = 0

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.n_processes):
            self._free(&self.processes[i])
        emptied(&self.of_string)
        emptied(&self.of_place)
        emptied(&self.of_stack)
        free(self.processes)
        pages_freed(&self.pages)
        free(self.stack_codes)
        free(self.stack_offsets)
        free(self.stack_places)
        free(self.memo)
        free(self.letters)
        free(self.strings)
        free(self.found_places)
        free(self.frames)
        free(self.ends)
        free(self.rows)
        pthread_mutex_destroy(&self.lock)

    # What is sampled

    def add(self, int number, int pid, layout, uint64_t runtime, uint64_t code_type, bint inner):
        """Sample a process from now on, whose ``number`` the caller chooses.

        ``layout`` is as `critpath_record.stacks.interpreters.Layout` has it, ``runtime`` and
        ``code_type`` are where ``_PyRuntime`` and ``PyCode_Type`` lie; ``inner``: it numbers its
        threads otherwise than this process does.
        """
        cdef Process added
        cdef bint done
        memset(&added, 0, sizeof(added))
        added.memory.pid, added.number, added.inner = pid, number, inner
        added.memory.pages = &self.pages
        added.runtime, added.code_type = runtime, code_type
        (
            added.layout.interpreters, added.layout.following, added.layout.threads,
            added.layout.next, added.layout.interpreter, added.layout.thread, added.layout.native,
            added.layout.frame, added.layout.indirect, added.layout.code, added.layout.previous,
            added.layout.instruction, added.layout.owner, added.layout.first_line, added.layout.file,
            added.layout.name, added.layout.lines, added.layout.instructions, added.layout.ascii,
            added.layout.compact, added.layout.lock, added.layout.table, added.layout.versioned,
        ) = layout
        at = added.layout
        frame = [at.code, at.previous, at.instruction, *([at.owner] if at.owner >= 0 else [])]
        state = [at.next, at.interpreter, at.thread, at.frame, at.native]
        fits = all(0 <= one < PAGE // 2 for one in [*frame, *state[:4]]) and at.native < PAGE // 2
        fits = fits and at.indirect < PAGE and 16 <= at.ascii <= at.compact <= 128
        fits = fits and 16 <= at.first_line < min(at.file, at.name, at.lines)
        fits = fits and max(at.file, at.name, at.lines) < FACTS - 8
        added.low, added.span = min(frame), max(frame) + 8 - min(frame)
        added.state_size = max(state) + 8
        if not fits or added.span > FACTS or max(at.file, at.name) > at.lines:
            raise ValueError("no layout of a Python")
        with nogil:
            pthread_mutex_lock(&self.lock)
            done = grown(
                <void **>&self.processes, self.n_processes + 1, sizeof(Process),
                &self.processes_room,
            )
            if done:
                self.processes[self.n_processes] = added
                self.n_processes += 1
            pthread_mutex_unlock(&self.lock)
        if not done:
            raise MemoryError

    def remove(self, int number):
        """Sample a process no longer."""
        cdef uint32_t i
        with nogil:
            pthread_mutex_lock(&self.lock)
            for i in range(self.n_processes):
                if self.processes[i].number == number:
                    self._end_threads(&self.processes[i], sampler_now(), True)
                    self._free(&self.processes[i])
                    self.n_processes -= 1
                    self.processes[i] = self.processes[self.n_processes]
                    break
            pthread_mutex_unlock(&self.lock)

    def states(self) -> dict:
        """Return of each process by its number how often in turn it could not be read, -1: ended."""
        cdef uint32_t i
        with nogil:
            pthread_mutex_lock(&self.lock)
        found = {
            self.processes[i].number: -1 if self.processes[i].gone else self.processes[i].failures
            for i in range(self.n_processes)
        }
        pthread_mutex_unlock(&self.lock)
        return found

    cdef void _free(self, Process *p) noexcept nogil:
        self._forget_codes(p)
        emptied(&p.of_address)
        plan_freed(&p.whole)
        plan_freed(&p.one)
        free(p.threads)
        free(p.codes)

    cdef void _forget_codes(self, Process *p) noexcept nogil:
        cdef uint32_t i
        for i in range(p.n_codes):
            free(p.codes[i].lines)
        p.n_codes = 0
        emptied(&p.of_address)

    # The pace

    def run(self):
        """Sample until `stop`; without the interpreter."""
        cdef int64_t next = sampler_now(), now
        with nogil:
            while not sampler_stops(&self.ending) and not self.broken:
                self._sample()
                next += self.period
                now = sampler_now()
                if now > next:
                    self.late += (now - next) // self.period + 1
                    next += ((now - next) // self.period + 1) * self.period
                sampler_sleep_until(next)

    def stop(self):
        """Let `run` return."""
        self.ending = 1

    def sample(self):
        """Sample once."""
        with nogil:
            self._sample()

    cdef void _sample(self) noexcept nogil:
        cdef uint32_t i
        pthread_mutex_lock(&self.lock)
        self.tick += 1
        for i in range(self.n_processes):
            if not self.processes[i].gone and not self.broken:
                self._sample_process(&self.processes[i])
        pthread_mutex_unlock(&self.lock)

    # One sample of one process

    cdef void _sample_process(self, Process *p) noexcept nogil:
        cdef int64_t now = sampler_now()
        cdef bint whole = False
        p.budget = FRAMES
        if p.n_codes > CODES:
            self._forget_codes(p)
        # Who has the lock of the interpreter goes on, and no other; each change of hands is
        # counted.  Where there was none, all that waited wait.
        if p.settled and self.tick % ALL_AGAIN:
            p.gone = not begun(&p.memory, &p.one)
            p.settled = not p.gone and (
                p.lock[0] == p.memory.seen[0] and p.lock[2] == p.memory.seen[2]
            )
            whole = p.settled and self._sample_holder(p, now)
            p.settled = p.settled and whole
        if not whole and not p.gone:
            p.gone = not begun(&p.memory, &p.whole)
            whole = not p.gone and self._sample_all(p, now)
            p.failures = 0 if whole else p.failures + 1
            self.torn += not whole
        if p.gone:
            self._end_threads(p, now, True)
        elif not ended(&p.memory, self.tick % 64 == 0):
            self.broken = True
        self.broken = self.broken or p.memory.broken

    cdef bint _sample_all(self, Process *p, int64_t now) noexcept nogil:
        """Sample all threads; false if what was read cannot be."""
        cdef uint64_t interpreter, following, state, lock = 0
        cdef uint32_t count = 0, n = 0, i
        cdef bint steady = True
        if not number_at(&p.memory, p.runtime + p.layout.interpreters, &interpreter):
            self._end_threads(p, now, True)
            return False
        p.interpreter = interpreter
        while interpreter:
            n += 1
            if n > INTERPRETERS or not (
                number_at(&p.memory, interpreter + p.layout.threads, &state)
                and number_at(&p.memory, interpreter + p.layout.following, &following)
            ):
                return False
            if p.layout.lock >= 0:
                lock = p.runtime + p.layout.lock
            elif not number_at(&p.memory, interpreter - p.layout.lock, &lock):
                return False
            p.first_state = state
            if not self._sample_threads(p, interpreter, state, now, &count, &steady):
                return False
            interpreter = following
        self._end_threads(p, now, False)
        # From the holder on: that, whether it has it, how often it changed.
        p.settled = steady and n == 1 and lock and p.memory.watched == lock + 8
        p.memory.watched = lock + 8 if lock else 0
        memcpy(p.lock, p.memory.seen, sizeof(p.lock))
        p.holder = p.n_threads
        for i in range(p.n_threads):
            if p.threads[i].state == p.lock[0]:
                p.holder = i
        p.settled = p.settled and p.holder < p.n_threads
        return True

    cdef bint _sample_holder(self, Process *p, int64_t now) noexcept nogil:
        """Sample the one thread that may have gone on; false if there may be another."""
        cdef Thread *one = &p.threads[p.holder]
        cdef uint64_t interpreter, state, thread, before = p.first_state
        cdef uint32_t i
        if not (
            number_at(&p.memory, p.runtime + p.layout.interpreters, &interpreter)
            and number_at(&p.memory, interpreter + p.layout.threads, &state)
            and (not one.before or number_at(&p.memory, one.before + p.layout.next, &before))
        ):
            return False
        # No thread has begun, nor has this one ended.
        if interpreter != p.interpreter or state != p.first_state or before != one.state:
            return False
        if not self._sample_thread(p, one, interpreter, now, False, &thread, &p.settled):
            return False
        for i in range(p.n_threads):
            p.threads[i].tick = self.tick
            if i != p.holder and p.threads[i].tid:
                self._note(p, &p.threads[i], p.memory.at, p.threads[i].stack)
        self.samples += p.n_threads - 1
        return True

    cdef bint _sample_threads(
        self, Process *p, uint64_t interpreter, uint64_t state, int64_t now, uint32_t *count,
        bint *steady
    ) noexcept nogil:
        """Sample the threads of an interpreter; false if there is something else."""
        cdef uint64_t next, before = 0
        cdef Thread *one
        while state:
            one = self._find_thread(p, state, count[0])
            if one == NULL or count[0] >= THREADS:
                return False
            one.tick, one.before = self.tick, before
            if not self._sample_thread(p, one, interpreter, now, not count[0], &next, steady):
                return False
            count[0] += 1
            before, state = state, next
        return True

    cdef bint _sample_thread(
        self, Process *p, Thread *one, uint64_t interpreter, int64_t now, bint first,
        uint64_t *next, bint *steady
    ) noexcept nogil:
        """Sample a thread; false if it is none, not ``steady`` if it is to be looked at again."""
        cdef const uint8_t *facts = peek(&p.memory, one.state, <uint32_t>p.state_size)
        cdef uint64_t mine, thread, native = 0, state = one.state
        cdef int32_t stack
        if facts == NULL:
            return False
        memcpy(&mine, facts + p.layout.interpreter, 8)
        memcpy(next, facts + p.layout.next, 8)
        memcpy(&thread, facts + p.layout.thread, 8)
        if p.layout.native >= 0:
            memcpy(&native, facts + p.layout.native, 8)
        if mine != interpreter:
            return False
        if p.layout.native < 0:
            native = self._libc_number(p, thread)
        if one.raw != mixed(thread, native):  # another one lies where one was
            self._end_thread(p, one, now)
            one.raw = mixed(thread, native)
            one.tid = one.again = 0
        stack = self._stack_of(p, state, one)
        # Before a thread has a frame, it may still have the number of the one that made it.
        if not one.tid and self.first_frame:
            self._identify(p, one, thread, native, first and not next[0])
        if one.tid:
            self._note(p, one, p.memory.at, stack)
        steady[0] = steady[0] and one.hash and (one.tid or not self.first_frame)
        return True

    cdef Thread *_find_thread(self, Process *p, uint64_t state, uint32_t at) noexcept nogil:
        cdef uint32_t i
        if at < p.n_threads and p.threads[at].state == state:
            return &p.threads[at]
        for i in range(p.n_threads):
            if p.threads[i].state == state and p.threads[i].tick != self.tick:
                return &p.threads[i]
        if not grown(<void **>&p.threads, p.n_threads + 1, sizeof(Thread), &p.threads_room):
            self.broken = True
            return NULL
        memset(&p.threads[p.n_threads], 0, sizeof(Thread))
        p.threads[p.n_threads].state = state
        p.threads[p.n_threads].stack = -1
        p.n_threads += 1
        return &p.threads[p.n_threads - 1]

    cdef void _identify(
        self, Process *p, Thread *one, uint64_t thread, uint64_t native, bint alone
    ) noexcept nogil:
        """Find the kernel's number of a thread.

        Python has it from 3.11 on, but after a fork some have that of the parent's thread still;
        else the C library has it.  A thread that is alone is the first one.
        """
        one.again -= 1
        if one.again > 0:
            return
        one.again = UNKNOWN_AGAIN
        if not self._is_thread(p, native):
            native = self._libc_number(p, thread)
        if self._is_thread(p, native):
            one.tid = <int32_t>native
        elif alone and not p.inner:
            one.tid = p.memory.pid

    cdef bint _is_thread(self, Process *p, uint64_t number) noexcept nogil:
        return 0 < number < 0x7FFFFFFF and (
            p.inner or sampler_has_thread(p.memory.pid, <int>number)
        )

    cdef uint64_t _libc_number(self, Process *p, uint64_t thread) noexcept nogil:
        cdef uint64_t itself
        cdef uint32_t number = 0
        cdef const uint8_t *found
        if thread % 8 == 0 and number_at(&p.memory, thread + SELF_AT, &itself) and itself == thread:
            found = peek(&p.memory, thread + NUMBER_AT, 4)
            if found != NULL:
                memcpy(&number, found, 4)
        return number

    cdef int32_t _stack_of(self, Process *p, uint64_t state, Thread *one) noexcept nogil:
        """Return the number of a thread's stack, -1 if it has none or is torn."""
        cdef int attempt, depth = 0
        cdef uint32_t begin = p.memory.plan.n_following
        cdef int32_t stack
        p.memory.fresh, p.memory.at = False, p.memory.began
        self.samples += 1
        for attempt in range(TRIES):
            depth = self._walk(p, state)
            if depth >= 0 and not attempt and self.hash == one.hash:
                return one.stack
            if depth >= 0 and self._stands(p, state, depth):
                stack = self._number_stack(p, depth) if depth else -1
                if stack != -2:
                    p.memory.fresh = False
                    one.hash = self.hash
                    return stack
            forgotten(&p.memory)
            p.memory.plan.n_following = begin
        p.memory.fresh, one.hash = False, 0
        self.torn += 1
        return -1

    cdef int _walk(self, Process *p, uint64_t state) noexcept nogil:
        """Take the frames of a thread, innermost first; return how many, -1 if that cannot be."""
        cdef uint64_t frame, code, previous, instruction
        cdef const uint8_t *facts
        cdef int depth = 0, hops = 0
        cdef int32_t of, last
        cdef int64_t offset
        cdef bint pythons
        self.hash, self.first_frame, self.first_code = self.seed, 0, 0
        self.head = state + p.layout.frame
        if not number_at(&p.memory, self.head, &frame):
            return -1
        if p.layout.indirect >= 0 and frame:
            self.head = frame + p.layout.indirect
            if not number_at(&p.memory, self.head, &frame):
                return -1
        self.first_frame = frame
        while frame and depth < DEPTH:
            hops += 1
            p.budget -= 1
            facts = peek(&p.memory, frame + p.low, <uint32_t>p.span) if frame % 8 == 0 else NULL
            if facts == NULL or hops > HOPS or p.budget < 0:
                return -1
            facts -= p.low
            memcpy(&code, facts + p.layout.code, 8)
            memcpy(&previous, facts + p.layout.previous, 8)
            memcpy(&instruction, facts + p.layout.instruction, 8)
            memcpy(&last, facts + p.layout.instruction, 4)
            # Of two frames for each that C calls, one is C's.
            pythons = p.layout.owner < 0 or facts[p.layout.owner] < 3
            code &= ~<uint64_t>3  # from 3.14 on two bits say who counts it
            if frame == self.first_frame:
                self.first_code = code
            if pythons:
                of = self._code(p, code)
                if of < 0:
                    return -1
                if p.layout.table == LOCATIONS:
                    offset = <int64_t>(instruction - code) - p.layout.instructions
                else:
                    offset = last if p.layout.table == PAIRS else 2 * <int64_t>last
                offset = offset if -2 <= offset < <int64_t>1 << 31 else -2
                self.stack_codes[depth] = of
                self.stack_offsets[depth] = offset
                self.hash = mixed(mixed(self.hash, p.codes[of].serial), <uint64_t>offset)
                depth += 1
            frame = previous
        return depth

    cdef bint _stands(self, Process *p, uint64_t state, int depth) noexcept nogil:
        """Return whether a thread is still in the frame from which its stack was taken."""
        cdef uint64_t seen[3]
        cdef iovec parts[3]
        cdef int count = 2 if p.layout.indirect < 0 else 3
        if not self.first_frame:
            return depth == 0
        parts[0].iov_base, parts[0].iov_len = <void *>self.head, 8
        parts[1].iov_base, parts[1].iov_len = <void *>(self.first_frame + p.layout.code), 8
        parts[2].iov_base, parts[2].iov_len = <void *>(state + p.layout.frame), 8
        if memory_read(p.memory.pid, seen, 8 * count, parts, count) != 8 * count:
            return False
        return seen[0] == self.first_frame and seen[1] & ~<uint64_t>3 == self.first_code and (
            count == 2 or seen[2] + p.layout.indirect == self.head
        )

    cdef int32_t _code(self, Process *p, uint64_t address) noexcept nogil:
        """Return the number of a code object, which is what it was or is read; -1 if it is none."""
        cdef int64_t first = p.layout.first_line
        cdef uint32_t size = <uint32_t>(p.layout.lines + 8)
        cdef const uint8_t *facts = peek(&p.memory, address + 8, size - 8)
        cdef uint64_t of_type, content = 0
        cdef int32_t *number
        cdef Code *code
        if facts == NULL:
            return -1
        facts -= 8
        memcpy(&of_type, facts + 8, 8)
        if of_type != p.code_type:
            return -1
        number = numbered(&p.of_address, address)
        if number == NULL:
            self.broken = True
            return -1
        if number[0] >= 0:
            code = &p.codes[number[0]]
            if memcmp(code.facts + first, facts + first, size - first) == 0:
                # Before 3.12 nothing else tells two apart that lie where one did.
                if p.layout.versioned or (
                    self._content(p, code.facts, &content) and content == code.content
                ):
                    return number[0]
        else:
            if not grown(<void **>&p.codes, p.n_codes + 1, sizeof(Code), &p.codes_room):
                self.broken = True
                return -1
            memset(&p.codes[p.n_codes], 0, sizeof(Code))
            number[0] = <int32_t>p.n_codes
            p.n_codes += 1
            code = &p.codes[number[0]]
            code.address = address
        memcpy(code.facts + 8, facts + 8, size - 8)
        if not self._read_code(p, code):
            memset(code.facts, 0, FACTS)
            return -1
        return number[0]

    cdef bint _read_code(self, Process *p, Code *code) noexcept nogil:
        cdef uint64_t name, file, lines, size, content
        cdef uint32_t length = <uint32_t>(p.layout.lines + 8 - p.layout.first_line)
        cdef int32_t first
        cdef const uint8_t *again
        cdef iovec part
        memcpy(&first, code.facts + p.layout.first_line, 4)
        memcpy(&name, code.facts + p.layout.name, 8)
        memcpy(&file, code.facts + p.layout.file, 8)
        memcpy(&lines, code.facts + p.layout.lines, 8)
        free(code.lines)
        code.lines = NULL
        code.first_line = first
        code.name, code.file = self._text(p, name), self._text(p, file)
        if code.name < 0 or code.file < 0 or not number_at(&p.memory, lines + 16, &size):
            return False
        # Of one that is too long the first line stands for all.
        code.length = <uint32_t>size if size <= TABLE else 0
        code.lines = <uint8_t *>malloc(code.length + 1)
        if code.lines == NULL:
            self.broken = True
            return False
        part.iov_base, part.iov_len = <void *>(lines + 32), code.length
        if code.length and memory_read(p.memory.pid, code.lines, code.length, &part, 1) != code.length:
            return False
        if not p.layout.versioned and not self._content(p, code.facts, &code.content):
            return False
        # Another may have come to lie there meanwhile, with some of these texts.
        forgotten(&p.memory)
        again = peek(&p.memory, code.address + p.layout.first_line, length)
        if again == NULL or memcmp(again, code.facts + p.layout.first_line, length):
            return False
        if not p.layout.versioned and (
            not self._content(p, code.facts, &content) or content != code.content
        ):
            return False
        self.serials += 1
        code.serial = self.serials
        return True

    cdef bint _content(self, Process *p, const uint8_t *facts, uint64_t *hash) noexcept nogil:
        """Tell from its name and file which code object it is."""
        cdef uint64_t texts[2]
        cdef uint64_t length
        cdef uint32_t size = <uint32_t>p.layout.ascii + 32
        cdef const uint8_t *found
        cdef int i
        memcpy(&texts[0], facts + p.layout.name, 8)
        memcpy(&texts[1], facts + p.layout.file, 8)
        hash[0] = self.seed
        for i in range(2):
            found = peek(&p.memory, texts[i], size)
            if found == NULL:
                return False
            memcpy(&length, found + 16, 8)
            hash[0] = mixed(hash[0], length)
            hash[0] = hashed(
                hash[0], found + p.layout.ascii, min(length, <uint64_t>32)
            )
        return True

    cdef int32_t _text(self, Process *p, uint64_t address) noexcept nogil:
        """Return the number of a text of Python, of its end if it is long; -1 if it is none."""
        cdef const uint8_t *head = peek(&p.memory, address, <uint32_t>p.layout.compact)
        cdef uint64_t length, kind, size, skipped, key
        cdef uint32_t state
        cdef int32_t *number
        cdef String *text
        if head == NULL:
            return -1
        memcpy(&length, head + 16, 8)
        memcpy(&state, head + 32, 4)
        kind = (state >> 2) & 7
        if kind not in (1, 2, 4) or not (state >> 5) & 1 or length >> 31:
            return -1
        skipped = length - LETTERS if length > LETTERS else 0
        size = (length - skipped) * kind
        address += p.layout.ascii if (state >> 6) & 1 else p.layout.compact
        head = peek(&p.memory, address + skipped * kind, <uint32_t>size)
        if head == NULL:
            return -1
        key = mixed(hashed(self.seed, head, size), kind)
        number = numbered(&self.of_string, key)
        if number == NULL or self.n_strings >= STRINGS:
            return -1
        if number[0] < 0:
            if not (
                grown(<void **>&self.letters, self.letters_size + size, 1, &self.letters_room)
                and grown(
                    <void **>&self.strings, self.n_strings + 1, sizeof(String), &self.strings_room
                )
            ):
                self.broken = True
                return -1
            memcpy(self.letters + self.letters_size, head, size)
            text = &self.strings[self.n_strings]
            text.at, text.size, text.kind = self.letters_size, <uint32_t>size, <uint32_t>kind
            self.letters_size += <uint32_t>size
            number[0] = <int32_t>self.n_strings
            self.n_strings += 1
        return number[0]

    # What was found

    cdef int32_t _place(self, Process *p, Code *code, int64_t offset) noexcept nogil:
        """Return the number of a frame: function, file and line; -1 if there are too many."""
        cdef Memo *memo = &self.memo[mixed(code.serial, <uint64_t>offset) % MEMO]
        cdef int64_t line
        cdef int32_t *number
        cdef Place *found
        if memo.serial == code.serial and memo.offset == offset:
            return memo.place
        line = line_at(p.layout.table, code.lines, code.length, code.first_line, max(offset, 0))
        if not 0 < line < 0x7FFFFFFF:
            line = code.first_line if code.first_line > 0 else 0
        number = numbered(
            &self.of_place, mixed(mixed(mixed(self.seed, code.name), code.file), line)
        )
        if number == NULL or self.n_places >= PLACES:
            return -1
        if number[0] < 0:
            if not grown(
                <void **>&self.found_places, self.n_places + 1, sizeof(Place), &self.places_room
            ):
                self.broken = True
                return -1
            found = &self.found_places[self.n_places]
            found.name, found.file, found.line = code.name, code.file, <int32_t>line
            number[0] = <int32_t>self.n_places
            self.n_places += 1
        memo.serial, memo.offset, memo.place = code.serial, offset, number[0]
        return number[0]

    cdef int32_t _number_stack(self, Process *p, int depth) noexcept nogil:
        """Return the number of a stack, -1 if there are too many."""
        cdef int i
        cdef uint64_t hash = self.seed
        cdef int32_t *number
        for i in range(depth):
            self.stack_places[i] = self._place(
                p, &p.codes[self.stack_codes[i]], self.stack_offsets[i]
            )
            if self.stack_places[i] < 0:
                self.lost += 1
                return -1
            hash = mixed(hash, self.stack_places[i])
        number = numbered(&self.of_stack, hash)
        if number == NULL:
            self.broken = True
            return -1
        if number[0] < 0:
            if self.n_stacks >= STACKS or self.n_frames + depth > MOST_FRAMES:
                self.lost += 1
                return -1
            if not grown(
                <void **>&self.frames, self.n_frames + depth, sizeof(int32_t), &self.frames_room
            ) or not grown(
                <void **>&self.ends, self.n_stacks + 2, sizeof(uint64_t), &self.stacks_room
            ):
                self.broken = True
                return -1
            memcpy(self.frames + self.n_frames, self.stack_places, depth * sizeof(int32_t))
            self.n_frames += depth
            number[0] = <int32_t>self.n_stacks
            self.n_stacks += 1
            self.ends[self.n_stacks] = self.n_frames
        return number[0]

    cdef void _note(self, Process *p, Thread *one, int64_t now, int32_t stack) noexcept nogil:
        """Note a sample: a row where the stack is another, or the time not the next one's."""
        cdef int64_t beside = now - one.row - one.count * self.period
        if one.rows and now - one.last > self.period + self.period // 2 and one.stack >= 0:
            self._write(p, one, one.last + self.period, -1)
        if not one.rows or stack != one.stack or not -JITTER < beside < JITTER:
            self._write(p, one, now, stack)
            one.count = 0
        one.count += 1
        one.last = now

    cdef void _write(self, Process *p, Thread *one, int64_t time, int32_t stack) noexcept nogil:
        cdef Row *row
        if self.n_rows >= MOST_ROWS:
            self.lost += 1
            return
        if not grown(<void **>&self.rows, self.n_rows + 1, sizeof(Row), &self.rows_room):
            self.broken = True
            return
        row = &self.rows[self.n_rows]
        row.time, row.tid, row.stack, row.number = time, one.tid, stack, p.number
        self.n_rows += 1
        one.row, one.stack, one.rows = time, stack, True

    cdef void _end_thread(self, Process *p, Thread *one, int64_t now) noexcept nogil:
        if one.rows and one.stack >= 0:
            self._write(p, one, min(now, one.last + self.period), -1)
        self.unknown += one.raw != 0 and not one.tid and one.hash != 0
        one.hash, one.rows, one.stack = 0, False, -1

    cdef void _end_threads(self, Process *p, int64_t now, bint all) noexcept nogil:
        """Note the end of the threads that are no longer there."""
        cdef uint32_t i = 0
        while i < p.n_threads:
            if all or p.threads[i].tick != self.tick:
                self._end_thread(p, &p.threads[i], now)
                p.n_threads -= 1
                memcpy(&p.threads[i], &p.threads[p.n_threads], sizeof(Thread))
            else:
                i += 1

    @property
    def whole(self) -> bool:
        """Whether there was memory for all."""
        return not self.broken

    def end(self):
        """Note the end of all threads that are left."""
        for number in self.states():
            self.remove(number)

    def packed(self, numbers, int kind) -> bytes:
        """Return all rows, as `critpath_record.stacks.unwind.ROW` has them.

        ``numbers`` has the threads' numbers here, of processes that number them otherwise.
        """
        cdef uint32_t i, count = 0
        cdef int32_t tid, none = 0
        cdef bytearray packed = bytearray(self.n_rows * ROW_SIZE)
        cdef char *into = packed
        for i in range(self.n_rows):
            tid = self.rows[i].tid
            if self.rows[i].number in numbers:
                tid = numbers[self.rows[i].number].get(tid, 0)
            if tid:
                memcpy(into, &self.rows[i].time, 8)
                memcpy(into + 8, &tid, 4)
                memcpy(into + 12, &none, 4)
                memcpy(into + 16, &self.rows[i].stack, 4)
                into[20] = kind
                into += ROW_SIZE
                count += 1
        return bytes(packed[:count * ROW_SIZE])

    def texts(self) -> list:
        """Return texts as they were, with the bytes that a letter takes."""
        cdef uint32_t i
        return [
            (self.strings[i].kind, (<char *>self.letters + self.strings[i].at)[:self.strings[i].size])
            for i in range(self.n_strings)
        ]

    def places(self) -> list:
        """Return function, file (of the texts) and line of every frame."""
        cdef uint32_t i
        cdef Place *found = self.found_places
        return [(found[i].name, found[i].file, found[i].line) for i in range(self.n_places)]

    def stacks(self) -> list:
        """Return the frames of every stack, innermost first."""
        cdef uint32_t i
        cdef uint64_t k
        cdef uint64_t *ends = self.ends
        return [[self.frames[k] for k in range(ends[i], ends[i + 1])] for i in range(self.n_stacks)]
