# Intervals of threads and interrupt work of processors, as they end.  Included by _replay.pyx.

cdef class Recorder(Population):
    """Writes down what a worker did when it begins to do something else."""

    cdef Rows intervals, stolen, ran
    cdef int has_waking, has_syscalls
    cdef int32_t no_wake, idle_waker, context_unknown, timer_detail, timer_state
    # What one asleep in the system call of that name waits for, per string code (-1:
    # not said).
    cdef int32_t[::1] syscall_state

    def __cinit__(self):
        memset(&self.intervals, 0, sizeof(Rows))
        memset(&self.stolen, 0, sizeof(Rows))
        memset(&self.ran, 0, sizeof(Rows))

    def __dealloc__(self):
        clear(&self.intervals)
        clear(&self.stolen)
        clear(&self.ran)

    cdef inline int emit(self, int64_t worker, int64_t begin, int64_t end, int32_t state,
                         int32_t detail, int32_t cpu, int64_t waker, int64_t woken) except -1 nogil:
        if end <= begin:
            return 0
        cdef Interval* row = <Interval*>add_row(&self.intervals, sizeof(Interval))
        row.begin = begin
        row.end = end
        row.woken = woken
        row.worker = <int32_t>worker
        row.waker = <int32_t>waker
        row.detail = detail
        row.cpu = <int16_t>cpu
        row.state = <uint8_t>state
        return 0

    cdef inline int occupied(self, Processor* p, int64_t end, int64_t worker) except -1 nogil:
        cdef Ran* row = <Ran*>add_row(&self.ran, sizeof(Ran))
        row.begin = p.since
        row.end = end
        row.processor = <int32_t>(p - self.processors)
        row.worker = <int32_t>worker
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
        cdef Stolen* row
        if p.depth and t > p.top_since:
            row = <Stolen*>add_row(&self.stolen, sizeof(Stolen))
            row.begin = p.top_since
            row.end = t
            row.processor = <int32_t>(p - self.processors)
            row.state = <uint8_t>p.stack[p.depth - 1].shown
            row.detail = p.stack[p.depth - 1].detail
        return 0

    def columns(self):
        """Return and forget the tables: intervals, interrupt work, occupation.

        Each a list of arrays: where the rows of each worker (or processor) start,
        then the columns of `critpath.model.Timelines` in their order.
        """
        return (interval_columns(&self.intervals, self.worker_count),
                stolen_columns(&self.stolen, self.processor_count),
                ran_columns(&self.ran, self.processor_count))
