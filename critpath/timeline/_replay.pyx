# cython: language_level=3
"""Replay of scheduling events: one pass, events -> intervals with wakers.

The rules are those of docs/critical-path.md (sections "states" and "rules").  The
plain-Python twin that tests compare this with is tests/oracle/replay.py.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

import numpy as np

include "_threads.pxi"
include "_rows.pxi"
include "_workers.pxi"
include "_intervals.pxi"


cdef class Replay(Recorder):
    """The state machine; `run` once, then take the columns."""

    # What a thread woken by the irq of that name waited for, per string code.
    cdef int32_t[::1] irq_state
    cdef int32_t[::1] softirq_state, softirq_detail
    cdef int64_t[:, ::1] prev_states   # per host: dead mask, stopped mask, runnable values...
    cdef public int64_t unplaced

    def __init__(self, Py_ssize_t hosts, Py_ssize_t cpus, *, int has_waking, int has_syscalls,
                 dict details, int32_t timer_state, int32_t[::1] irq_state,
                 int32_t[::1] syscall_state, int32_t[::1] softirq_state,
                 int32_t[::1] softirq_detail, int64_t[:, ::1] prev_states):
        self.populate(hosts, cpus)
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
            self.occupied(p, t, prev)
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
                    self.occupied(p, end, p.current)
