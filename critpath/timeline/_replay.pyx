# cython: language_level=3
"""Replay of scheduling events: one pass, events -> intervals with wakers.

The rules are those of docs/critical-path.md (sections "states" and "rules").  The
plain-Python twin that tests compare this with is tests/oracle/replay.py.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

import numpy as np

cdef enum:
    # critpath.model.Kind
    SWITCH = 1
    WAKING = 2
    WAKEUP = 3
    WAKEUP_NEW = 4
    FORK = 5
    EXEC = 6
    EXIT = 7
    IRQ_ENTRY = 8
    IRQ_EXIT = 9
    SOFTIRQ_ENTRY = 10
    SOFTIRQ_EXIT = 11
    TIMER_ENTRY = 12
    TIMER_EXIT = 13
    STATEDUMP = 14
    SYSCALL_ENTRY = 15
    SYSCALL_EXIT = 16
    VECTOR_ENTRY = 19
    VECTOR_EXIT = 20

    # critpath.model.State
    S_UNKNOWN = 0
    S_RUN = 1
    S_RUN_USER = 2
    S_RUN_SYSCALL = 3
    S_IRQ = 4
    S_SOFTIRQ = 5
    S_WAIT_CPU = 6
    S_WAIT_TASK = 7
    S_WAIT_STOPPED = 17
    S_WAIT_UNEXPLAINED = 19

    # What a thread is doing now.
    NEVER = 0       # not observed yet
    RUNNING = 1
    RUNNABLE = 2
    ASLEEP = 3
    STOPPED = 4
    DEAD = 5
    LOST = 6        # observed, but an event that should have been there was not
    UNBORN = 7      # forked, not yet woken for the first time

    # Interrupt contexts, as the exit event must match its entry.
    C_IRQ = 1
    C_SOFTIRQ = 2
    C_TIMER = 3
    C_VECTOR = 4

    DEPTH = 16
    NO_WAKE = 0

ctypedef struct Worker:
    int64_t tid
    int64_t host
    int64_t pid
    int64_t first
    int64_t last
    int64_t parent
    int64_t born
    int32_t name
    int32_t idle_cpu
    int32_t doing
    int32_t cpu
    int64_t since
    # A wake seen: source worker (-1: not a thread), its time (-1: none), what it means.
    int64_t waker
    int64_t woken
    int32_t wake_state
    int32_t wake_detail
    int32_t pending       # the wake came while the thread was still running
    int32_t exiting
    int32_t syscall       # code of the system call the thread is in, 0 none
    int32_t in_syscall    # -1 not known yet, 0 no, 1 yes

ctypedef struct Context:
    int32_t kind
    int32_t key
    int32_t state         # what a thread woken from here was waiting for
    int32_t detail
    int32_t shown         # S_IRQ or S_SOFTIRQ

ctypedef struct Processor:
    int64_t host
    int32_t cpu
    int64_t current       # worker, -1 unknown
    int64_t since
    int64_t idle          # worker
    int64_t top_since
    int32_t depth
    int32_t overflow      # contexts beyond DEPTH, to be popped unseen
    Context stack[DEPTH]


cdef class Column:
    """A growing column of int64 or int32, handed over to numpy at the end."""

    cdef char* data
    cdef Py_ssize_t size, capacity, item

    def __cinit__(self, Py_ssize_t item):
        self.item = item
        self.capacity = 4096
        self.size = 0
        self.data = <char*>malloc(self.capacity * item)
        if self.data == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.data)

    cdef int grow(self) except -1 nogil:
        cdef char* more = <char*>realloc(self.data, self.capacity * 2 * self.item)
        if more == NULL:
            with gil:
                raise MemoryError()
        self.data = more
        self.capacity *= 2
        return 0

    cdef inline int add64(self, int64_t value) except -1 nogil:
        if self.size == self.capacity:
            self.grow()
        (<int64_t*>self.data)[self.size] = value
        self.size += 1
        return 0

    cdef inline int add32(self, int32_t value) except -1 nogil:
        if self.size == self.capacity:
            self.grow()
        (<int32_t*>self.data)[self.size] = value
        self.size += 1
        return 0

    def array(self):
        """Return a copy as a numpy array."""
        dtype = np.int64 if self.item == 8 else np.int32
        if self.size == 0:
            return np.empty(0, dtype)
        if self.item == 8:
            return np.asarray(<int64_t[:self.size]><int64_t*>self.data).copy()
        return np.asarray(<int32_t[:self.size]><int32_t*>self.data).copy()


cdef class Replay:
    """The state machine; `run` once, then read the columns."""

    cdef Worker* workers
    cdef Py_ssize_t worker_count, worker_capacity
    cdef int64_t* slots           # open addressing: worker of (host, tid), -1 free
    cdef Py_ssize_t slot_mask, slot_used
    cdef Processor* processors
    cdef Py_ssize_t processor_count
    cdef int64_t* processor_of    # [host * cpus + cpu]
    cdef Py_ssize_t cpus, hosts
    cdef public Column interval_worker, interval_begin, interval_end
    cdef public Column interval_state, interval_detail, interval_cpu, interval_waker, interval_woken
    cdef public Column stolen_processor, stolen_begin, stolen_end, stolen_state, stolen_detail
    cdef public Column ran_processor, ran_begin, ran_end, ran_worker
    cdef int has_waking, has_syscalls
    cdef int32_t no_wake, idle_waker, context_unknown, timer_detail, timer_state
    # Per string code: what a thread woken by the irq of that name waited for, and
    # what one asleep in the system call of that name waits for (-1: not said).
    cdef int32_t[::1] irq_state, syscall_state
    cdef int32_t[::1] softirq_state, softirq_detail
    cdef int64_t[:, ::1] prev_states   # per host: dead mask, stopped mask, runnable values...
    cdef public int64_t unplaced

    def __cinit__(self):
        self.workers = NULL
        self.slots = NULL
        self.processors = NULL
        self.processor_of = NULL

    def __init__(self, Py_ssize_t hosts, Py_ssize_t cpus, *, int has_waking, int has_syscalls,
                 dict details, int32_t timer_state, int32_t[::1] irq_state,
                 int32_t[::1] syscall_state, int32_t[::1] softirq_state,
                 int32_t[::1] softirq_detail, int64_t[:, ::1] prev_states):
        self.hosts = hosts
        self.cpus = cpus
        self.worker_capacity = 1024
        self.worker_count = 0
        self.workers = <Worker*>malloc(self.worker_capacity * sizeof(Worker))
        self.slot_mask = 4095
        self.slot_used = 0
        self.slots = <int64_t*>malloc((self.slot_mask + 1) * sizeof(int64_t))
        self.processor_count = 0
        self.processors = <Processor*>calloc(hosts * cpus, sizeof(Processor))
        self.processor_of = <int64_t*>malloc(hosts * cpus * sizeof(int64_t))
        if (self.workers == NULL or self.slots == NULL or self.processors == NULL
                or self.processor_of == NULL):
            raise MemoryError()
        memset(self.slots, 0xFF, (self.slot_mask + 1) * sizeof(int64_t))
        memset(self.processor_of, 0xFF, hosts * cpus * sizeof(int64_t))
        self.interval_worker = Column(8)
        self.interval_begin = Column(8)
        self.interval_end = Column(8)
        self.interval_state = Column(4)
        self.interval_detail = Column(4)
        self.interval_cpu = Column(4)
        self.interval_waker = Column(8)
        self.interval_woken = Column(8)
        self.stolen_processor = Column(8)
        self.stolen_begin = Column(8)
        self.stolen_end = Column(8)
        self.stolen_state = Column(4)
        self.stolen_detail = Column(4)
        self.ran_processor = Column(8)
        self.ran_begin = Column(8)
        self.ran_end = Column(8)
        self.ran_worker = Column(8)
        self.has_waking = has_waking
        self.has_syscalls = has_syscalls
        self.no_wake = details["no_wake"]
        self.idle_waker = details["idle_waker"]
        self.context_unknown = details["context_unknown"]
        self.timer_detail = details["hrtimer"]
        self.timer_state = timer_state
        self.irq_state = irq_state
        self.syscall_state = syscall_state
        self.softirq_state = softirq_state
        self.softirq_detail = softirq_detail
        self.prev_states = prev_states
        self.unplaced = 0

    def __dealloc__(self):
        free(self.workers)
        free(self.slots)
        free(self.processors)
        free(self.processor_of)

    # ------------------------------------------------------------- workers

    cdef int64_t new_worker(self, int64_t host, int64_t tid, int64_t t) except -2 nogil:
        cdef Worker* more
        if self.worker_count == self.worker_capacity:
            more = <Worker*>realloc(self.workers, 2 * self.worker_capacity * sizeof(Worker))
            if more == NULL:
                with gil:
                    raise MemoryError()
            self.workers = more
            self.worker_capacity *= 2
        cdef Worker* w = &self.workers[self.worker_count]
        memset(w, 0, sizeof(Worker))
        w.tid = tid
        w.host = host
        w.pid = -1
        w.first = -1
        w.last = -1
        w.parent = -1
        w.born = -1
        w.idle_cpu = -1
        w.doing = NEVER
        w.cpu = -1
        w.since = t
        w.waker = -1
        w.woken = -1
        w.in_syscall = -1
        self.worker_count += 1
        return self.worker_count - 1

    cdef inline size_t hash(self, int64_t host, int64_t tid) noexcept nogil:
        # 2^64 over the golden ratio, in two halves: Cython has no unsigned 64-bit literal.
        cdef size_t golden = (<size_t>0x9E3779B9 << 32) | <size_t>0x7F4A7C15
        cdef size_t h = (<size_t>tid + (<size_t>host << 40)) * golden
        return h ^ (h >> 29)

    cdef int rehash(self) except -1 nogil:
        cdef Py_ssize_t mask = 2 * self.slot_mask + 1, i
        cdef size_t at
        cdef Worker* w
        cdef int64_t* slots = <int64_t*>malloc((mask + 1) * sizeof(int64_t))
        if slots == NULL:
            with gil:
                raise MemoryError()
        memset(slots, 0xFF, (mask + 1) * sizeof(int64_t))
        for i in range(self.slot_mask + 1):
            if self.slots[i] >= 0:
                w = &self.workers[self.slots[i]]
                at = self.hash(w.host, w.tid) & <size_t>mask
                while slots[at] >= 0:
                    at = (at + 1) & <size_t>mask
                slots[at] = self.slots[i]
        free(self.slots)
        self.slots = slots
        self.slot_mask = mask
        return 0

    cdef size_t slot(self, int64_t host, int64_t tid) noexcept nogil:
        cdef size_t at = self.hash(host, tid) & <size_t>self.slot_mask
        while self.slots[at] >= 0:
            if self.workers[self.slots[at]].tid == tid and self.workers[self.slots[at]].host == host:
                return at
            at = (at + 1) & <size_t>self.slot_mask
        return at

    cdef int64_t worker(self, int64_t host, int64_t tid, int64_t t) except -2 nogil:
        """Return the living worker of a tid, made now if it was never seen."""
        if 2 * self.slot_used > self.slot_mask:
            self.rehash()
        cdef size_t at = self.slot(host, tid)
        if self.slots[at] < 0:
            self.slots[at] = self.new_worker(host, tid, t)
            self.slot_used += 1
        return self.slots[at]

    cdef int64_t reborn(self, int64_t host, int64_t tid, int64_t t) except -2 nogil:
        """Return a new life of a tid: the old one, if any, has ended."""
        if 2 * self.slot_used > self.slot_mask:
            self.rehash()
        cdef size_t at = self.slot(host, tid)
        cdef int64_t fresh = self.new_worker(host, tid, t)
        if self.slots[at] < 0:
            self.slot_used += 1
        else:
            self.close(self.slots[at], t)
            self.workers[self.slots[at]].doing = DEAD
        self.slots[at] = fresh
        return fresh

    cdef Processor* processor(self, int64_t host, int32_t cpu, int64_t t) except NULL nogil:
        cdef Py_ssize_t place = host * self.cpus + cpu
        cdef Processor* p
        cdef int64_t idle
        if self.processor_of[place] < 0:
            idle = self.new_worker(host, 0, t)
            self.workers[idle].idle_cpu = cpu
            self.workers[idle].pid = 0
            p = &self.processors[self.processor_count]
            p.host = host
            p.cpu = cpu
            p.current = -1
            p.since = t
            p.idle = idle
            self.processor_of[place] = self.processor_count
            self.processor_count += 1
        return &self.processors[self.processor_of[place]]

    cdef inline Worker* touch(self, int64_t index, int64_t t) noexcept nogil:
        cdef Worker* w = &self.workers[index]
        if w.first < 0:
            w.first = t
        w.last = t
        return w

    # ----------------------------------------------------------- intervals

    cdef inline int emit(self, int64_t worker, int64_t begin, int64_t end, int32_t state,
                         int32_t detail, int32_t cpu, int64_t waker, int64_t woken) except -1 nogil:
        if end <= begin:
            return 0
        self.interval_worker.add64(worker)
        self.interval_begin.add64(begin)
        self.interval_end.add64(end)
        self.interval_state.add32(state)
        self.interval_detail.add32(detail)
        self.interval_cpu.add32(cpu)
        self.interval_waker.add64(waker)
        self.interval_woken.add64(woken)
        return 0

    cdef int close(self, int64_t index, int64_t t) except -1 nogil:
        """End what a worker is doing at ``t``, where no event of its own explains it better."""
        cdef Worker* w = &self.workers[index]
        if w.doing == RUNNING:
            self.emit_run(index, t)
        elif w.doing == RUNNABLE:
            self.emit(index, w.since, t, S_WAIT_CPU, 0, w.cpu, -1, -1)
        elif w.doing == ASLEEP or w.doing == STOPPED:
            self.emit_sleep(index, t)
        elif w.doing == LOST:
            self.emit(index, w.since, t, S_UNKNOWN, 0, -1, -1, -1)
        return 0

    cdef inline int emit_run(self, int64_t index, int64_t t) except -1 nogil:
        cdef Worker* w = &self.workers[index]
        cdef int32_t state = S_RUN, detail = 0
        if self.has_syscalls and w.in_syscall == 1:
            state = S_RUN_SYSCALL
            detail = w.syscall
        elif self.has_syscalls and w.in_syscall == 0:
            state = S_RUN_USER
        return self.emit(index, w.since, t, state, detail, w.cpu, -1, -1)

    cdef int emit_sleep(self, int64_t index, int64_t t) except -1 nogil:
        """End a sleep at ``t`` by the wake that was seen, or unexplained."""
        cdef Worker* w = &self.workers[index]
        cdef int32_t state, detail
        if w.doing == STOPPED:
            return self.emit(index, w.since, t, S_WAIT_STOPPED, 0, w.cpu, -1, -1)
        if w.woken < 0:
            return self.emit(index, w.since, t, S_WAIT_UNEXPLAINED, self.no_wake, w.cpu, -1, -1)
        state = w.wake_state
        detail = w.wake_detail
        if state == S_WAIT_UNEXPLAINED and w.syscall and self.syscall_state[w.syscall] >= 0:
            state = self.syscall_state[w.syscall]
            detail = w.syscall
        elif state == S_WAIT_TASK and w.syscall:
            detail = w.syscall
            # A disk or network call woken by a thread is still a wait for that thread.
            if self.syscall_state[w.syscall] >= 14 and self.syscall_state[w.syscall] <= 16:
                state = self.syscall_state[w.syscall]
        return self.emit(index, w.since, t, state, detail, w.cpu, w.waker, w.woken)

    cdef int note_wake(self, Worker* w, Processor* p, int64_t t) except -1 nogil:
        """Remember who wakes ``w`` from the context that ``p`` is in."""
        cdef Context* top
        w.woken = t
        w.waker = -1
        if p.depth:
            top = &p.stack[p.depth - 1]
            w.wake_state = top.state
            w.wake_detail = top.detail
        elif p.current < 0:
            w.wake_state = S_WAIT_UNEXPLAINED
            w.wake_detail = self.context_unknown
        elif p.current == p.idle:
            w.wake_state = S_WAIT_UNEXPLAINED
            w.wake_detail = self.idle_waker
        else:
            w.wake_state = S_WAIT_TASK
            w.wake_detail = 0
            w.waker = p.current
        return 0

    # -------------------------------------------------------------- events

    cdef int on_switch(self, Processor* p, int64_t t, int64_t* v) except -1 nogil:
        cdef int64_t prev, following
        cdef Worker* w
        cdef int32_t doing
        cdef int64_t state = v[2]
        cdef int i
        prev = p.idle if v[1] == 0 else self.worker(p.host, v[1], t)
        w = self.touch(prev, t)
        w.name = <int32_t>v[0]
        if p.current == prev:
            self.ran_processor.add64(p - self.processors)
            self.ran_begin.add64(p.since)
            self.ran_end.add64(t)
            self.ran_worker.add64(prev)
        elif p.current >= 0 and p.current != p.idle and self.workers[p.current].doing == RUNNING:
            # Its own switch-out is missing: from its last sure moment on, nothing is known.
            self.workers[p.current].doing = LOST
        if w.doing == RUNNING and w.cpu == p.cpu:
            self.emit_run(prev, t)
        elif w.doing != NEVER and w.doing != UNBORN:
            self.emit(prev, w.since, t, S_UNKNOWN, 0, -1, -1, -1)
        # What it does from now on.
        if prev == p.idle:
            doing = RUNNABLE
        else:
            doing = ASLEEP
            for i in range(2, self.prev_states.shape[1]):
                if state == self.prev_states[p.host, i]:
                    doing = RUNNABLE
                    break
            if doing != RUNNABLE:
                if (state & self.prev_states[p.host, 0]) or w.exiting:
                    doing = DEAD
                elif state & self.prev_states[p.host, 1]:
                    doing = STOPPED
        w.doing = doing
        w.since = t
        if not w.pending:
            w.woken = -1
            w.waker = -1
        # Next.
        following = p.idle if v[4] == 0 else self.worker(p.host, v[4], t)
        w = &self.workers[following]
        if w.doing == DEAD and following != p.idle:
            following = self.reborn(p.host, v[4], t)
            w = &self.workers[following]
        self.touch(following, t)
        w.name = <int32_t>v[3]
        if following == p.idle:
            pass
        elif w.doing == RUNNABLE:
            # It queued where it left or where its wake sent it; the cpu that it then got may
            # have been another, idle or busy with something else meanwhile.
            self.emit(following, w.since, t, S_WAIT_CPU, 0, w.cpu if w.cpu >= 0 else p.cpu, -1, -1)
        elif w.doing == ASLEEP or w.doing == STOPPED:
            if w.woken >= 0 and w.pending:
                # The wake raced the switch-out: it never really slept.
                self.emit(following, w.since, t, S_WAIT_CPU, 0, w.cpu if w.cpu >= 0 else p.cpu,
                          -1, -1)
            elif w.woken >= 0:
                # Waking without wakeup: runnable from the waking on.
                self.emit_sleep(following, w.woken)
                self.emit(following, w.woken, t, S_WAIT_CPU, 0, p.cpu, -1, -1)
            else:
                self.emit_sleep(following, t)
        elif w.doing == RUNNING or w.doing == LOST or w.doing == UNBORN:
            # Since its fork, where no sched_wakeup_new says when it became runnable.
            self.emit(following, w.since, t, S_UNKNOWN, 0, -1, -1, -1)
        w.doing = RUNNING
        w.since = t
        w.cpu = p.cpu
        w.woken = -1
        w.waker = -1
        w.pending = 0
        p.current = following
        p.since = t
        return 0

    cdef int on_wake(self, Processor* p, int64_t t, int64_t tid, int64_t cpu, int kind) except -1 nogil:
        if tid == 0:
            return 0
        cdef int64_t index = self.worker(p.host, tid, t)
        cdef Worker* w = &self.workers[index]
        if w.doing == DEAD:
            if kind != WAKEUP_NEW:
                return 0
            index = self.reborn(p.host, tid, t)
            w = &self.workers[index]
        # A thread's life starts when it is first seen on a cpu; a wake before that tells
        # what it does from then on, not that it was there before.
        w.last = t
        if w.doing == ASLEEP or w.doing == STOPPED:
            if kind == WAKING:
                if w.woken < 0 or w.pending:
                    w.pending = 0
                    self.note_wake(w, p, t)
                return 0
            if w.woken < 0 or w.pending:
                if w.pending and self.has_waking:
                    # The late half of the wake that raced the switch-out.
                    return 0
                w.pending = 0
                if self.has_waking:
                    w.woken = t
                    w.waker = -1
                    w.wake_state = S_WAIT_UNEXPLAINED
                    w.wake_detail = self.context_unknown
                else:
                    self.note_wake(w, p, t)
            self.emit_sleep(index, t)
            w.doing = RUNNABLE
            w.since = t
            w.cpu = <int32_t>cpu
        elif w.doing == RUNNING:
            if kind == WAKING or not self.has_waking:
                self.note_wake(w, p, t)
                w.pending = 1
        elif w.doing == NEVER or w.doing == UNBORN:
            if kind == WAKEUP_NEW and w.parent < 0 and p.depth == 0 and p.current >= 0 \
                    and p.current != p.idle:
                w.parent = p.current
            if kind == WAKEUP_NEW:
                w.born = t
            if kind != WAKING or w.doing == NEVER:
                w.doing = RUNNABLE
                w.since = t
                w.cpu = <int32_t>cpu
        return 0

    cdef int on_fork(self, Processor* p, int64_t t, int64_t* v) except -1 nogil:
        # Idle is a thread per cpu: no one thread 0 creates anything.
        cdef int64_t parent = self.worker(p.host, v[0], t) if v[0] else -1, child
        cdef Worker* w
        child = self.reborn(p.host, v[2], t)
        w = &self.workers[child]
        w.parent = parent
        w.born = t
        w.pid = v[3]
        w.name = <int32_t>v[5]
        w.in_syscall = 0 if self.has_syscalls else -1
        w.doing = UNBORN
        w.since = t
        if parent >= 0:
            self.touch(parent, t)
        if parent >= 0 and self.workers[parent].pid < 0:
            self.workers[parent].pid = v[1]
        return 0

    cdef int enter(self, Processor* p, int64_t t, int kind, int32_t key, int32_t state,
                   int32_t detail, int shown) except -1 nogil:
        cdef Context* top
        if p.depth == DEPTH:
            p.overflow += 1
            return 0
        self.flush(p, t)
        top = &p.stack[p.depth]
        top.kind = kind
        top.key = key
        top.state = state
        top.detail = detail
        top.shown = shown
        p.depth += 1
        p.top_since = t
        return 0

    cdef int leave(self, Processor* p, int64_t t, int kind, int32_t key) except -1 nogil:
        cdef int i
        if p.overflow:
            p.overflow -= 1
            return 0
        # Down to the matching entry: contexts above it have lost their exit.
        i = p.depth - 1
        while i >= 0 and not (p.stack[i].kind == kind and p.stack[i].key == key):
            i -= 1
        if i < 0:
            return 0
        self.flush(p, t)
        p.depth = i
        p.top_since = t
        return 0

    cdef inline int flush(self, Processor* p, int64_t t) except -1 nogil:
        cdef Context* top
        if p.depth and t > p.top_since:
            top = &p.stack[p.depth - 1]
            self.stolen_processor.add64(p - self.processors)
            self.stolen_begin.add64(p.top_since)
            self.stolen_end.add64(t)
            self.stolen_state.add32(top.shown)
            self.stolen_detail.add32(top.detail)
        return 0

    def run(self, const int64_t[::1] timestamp, const int32_t[::1] cpu,
            const int32_t[::1] event_class, const int64_t[::1] offset,
            const int64_t[::1] values, const uint8_t[::1] kinds, const int64_t[::1] class_host,
            const int32_t[::1] class_detail, const int32_t[::1] class_state,
            const uint8_t[::1] class_flags,
            const int64_t[::1] loss_end, const int64_t[::1] loss_host, const int32_t[::1] loss_cpu,
            int64_t end):
        """Replay all events.

        ``class_detail`` and ``class_state`` are the qualifier and wake meaning of
        classes that have them by name (system calls, vectors); ``class_flags`` has
        bit 0 where a wake has a ``success`` field, bit 1 where an irq has a name, bit 2
        where a wake has a ``target_cpu``.
        """
        cdef Py_ssize_t i, n = timestamp.shape[0], losses = loss_end.shape[0], lost = 0, j
        cdef int64_t t, host
        cdef int32_t c
        cdef int kind
        cdef Processor* p
        cdef Worker* w
        cdef int64_t* v
        cdef int64_t* all_values = NULL
        cdef int64_t nothing[8]
        memset(nothing, 0, sizeof(nothing))
        if values.shape[0]:
            all_values = <int64_t*>&values[0]
        with nogil:
            for i in range(n):
                c = event_class[i]
                kind = kinds[c]
                if kind == 0:
                    continue
                t = timestamp[i]
                while lost < losses and loss_end[lost] <= t:
                    for j in range(self.processor_count):
                        p = &self.processors[j]
                        if p.host == loss_host[lost] and (loss_cpu[lost] < 0 or p.cpu == loss_cpu[lost]):
                            # Nothing is sure any more about what this cpu is in.
                            p.depth = 0
                            p.overflow = 0
                            if p.current >= 0 and p.current != p.idle \
                                    and self.workers[p.current].doing == RUNNING:
                                self.emit_run(p.current, loss_end[lost])
                                self.workers[p.current].since = loss_end[lost]
                            p.current = -1
                    lost += 1
                host = class_host[c]
                if cpu[i] < 0 or cpu[i] >= self.cpus:
                    self.unplaced += 1
                    continue
                p = self.processor(host, cpu[i], t)
                v = all_values + offset[i] if all_values != NULL else nothing
                if kind == SWITCH:
                    self.on_switch(p, t, v)
                elif kind == WAKING or kind == WAKEUP or kind == WAKEUP_NEW:
                    if class_flags[c] & 1 and v[3] == 0:
                        continue
                    self.on_wake(p, t, v[0], v[2] if class_flags[c] & 4 else -1, kind)
                elif kind == IRQ_ENTRY:
                    j = v[1] if class_flags[c] & 2 else class_detail[c]
                    self.enter(p, t, C_IRQ, <int32_t>v[0], self.irq_state[j], <int32_t>j, S_IRQ)
                elif kind == IRQ_EXIT:
                    self.leave(p, t, C_IRQ, <int32_t>v[0])
                elif kind == SOFTIRQ_ENTRY:
                    j = v[0] if 0 <= v[0] < self.softirq_state.shape[0] - 1 else self.softirq_state.shape[0] - 1
                    self.enter(p, t, C_SOFTIRQ, <int32_t>v[0], self.softirq_state[j],
                               self.softirq_detail[j], S_SOFTIRQ)
                elif kind == SOFTIRQ_EXIT:
                    self.leave(p, t, C_SOFTIRQ, <int32_t>v[0])
                elif kind == TIMER_ENTRY:
                    self.enter(p, t, C_TIMER, 0, self.timer_state, self.timer_detail, S_IRQ)
                elif kind == TIMER_EXIT:
                    self.leave(p, t, C_TIMER, 0)
                elif kind == VECTOR_ENTRY:
                    self.enter(p, t, C_VECTOR, class_detail[c], class_state[c], class_detail[c], S_IRQ)
                elif kind == VECTOR_EXIT:
                    self.leave(p, t, C_VECTOR, class_detail[c])
                elif kind == FORK:
                    self.on_fork(p, t, v)
                elif kind == EXEC:
                    if v[0]:
                        self.touch(self.worker(host, v[0], t), t)
                elif kind == EXIT:
                    if v[0]:
                        w = self.touch(self.worker(host, v[0], t), t)
                        w.exiting = 1
                        if v[1]:
                            w.name = <int32_t>v[1]
                elif kind == STATEDUMP:
                    if v[0]:
                        w = &self.workers[self.worker(host, v[0], t)]
                        if w.pid < 0:
                            w.pid = v[1]
                        if w.name == 0:
                            w.name = <int32_t>v[2]
                        # LTTng's thread status: 5 waits for an event.
                        if w.doing == NEVER and v[3] == 5:
                            w.doing = ASLEEP
                            w.since = t
                elif kind == SYSCALL_ENTRY or kind == SYSCALL_EXIT:
                    if p.current >= 0 and p.current != p.idle:
                        w = self.touch(p.current, t)
                        if w.doing == RUNNING:
                            self.emit_run(p.current, t)
                            w.since = t
                        if kind == SYSCALL_ENTRY:
                            w.in_syscall = 1
                            w.syscall = class_detail[c]
                        else:
                            w.in_syscall = 0
                            w.syscall = 0
            for j in range(self.worker_count):
                if self.workers[j].idle_cpu < 0:
                    self.close(j, end)
            for j in range(self.processor_count):
                p = &self.processors[j]
                self.flush(p, end)
                if p.current >= 0 and end > p.since:
                    self.ran_processor.add64(j)
                    self.ran_begin.add64(p.since)
                    self.ran_end.add64(end)
                    self.ran_worker.add64(p.current)

    def worker_table(self):
        """Return the workers' columns as a dict of arrays."""
        cdef Py_ssize_t i, n = self.worker_count
        names = ("host", "tid", "pid", "first", "last", "parent", "born")
        columns = {name: np.empty(n, np.int64) for name in names}
        columns["name"] = np.empty(n, np.int32)
        columns["idle_cpu"] = np.empty(n, np.int32)
        cdef int64_t[::1] host = columns["host"], tid = columns["tid"], pid = columns["pid"]
        cdef int64_t[::1] first = columns["first"], last = columns["last"]
        cdef int64_t[::1] parent = columns["parent"], born = columns["born"]
        cdef int32_t[::1] name_ = columns["name"], idle_cpu = columns["idle_cpu"]
        for i in range(n):
            host[i] = self.workers[i].host
            tid[i] = self.workers[i].tid
            pid[i] = self.workers[i].pid
            first[i] = self.workers[i].first
            last[i] = self.workers[i].last
            parent[i] = self.workers[i].parent
            born[i] = self.workers[i].born
            name_[i] = self.workers[i].name
            idle_cpu[i] = self.workers[i].idle_cpu
        return columns

    def processor_table(self):
        """Return (host, cpu) of every processor seen."""
        return tuple((self.processors[i].host, self.processors[i].cpu)
                     for i in range(self.processor_count))


def group(const int64_t[::1] key, Py_ssize_t groups):
    """Return the stable order that sorts rows by a small integer key, and each group's start."""
    cdef Py_ssize_t i, n = key.shape[0]
    start_array = np.zeros(groups + 1, np.int64)
    order_array = np.empty(n, np.int64)
    cdef int64_t[::1] start = start_array, order = order_array, at
    with nogil:
        for i in range(n):
            start[key[i] + 1] += 1
        for i in range(groups):
            start[i + 1] += start[i]
    at_array = start_array.copy()
    at = at_array
    with nogil:
        for i in range(n):
            order[at[key[i]]] = i
            at[key[i]] += 1
    return order_array, start_array
