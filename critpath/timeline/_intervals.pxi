# Intervals of threads and interrupt work of processors, as they end.  Included by _replay.pyx.
#
# The rows that an event may add are reserved before it, so that adding one cannot fail.

cdef class Recorder(Population):
    """Writes down what a worker did when it begins to do something else."""

    # Packed rows of threads as they come; the owner and the size of each (_rows.pxi).
    cdef Rows intervals, entries
    cdef Rows net_events, net_sleeps
    cdef bint based               # whether the first block has a base
    cdef int has_waking, has_syscalls
    cdef int32_t no_wake, idle_waker, context_unknown, timer_detail, timer_state

    def __cinit__(self):
        memset(&self.intervals, 0, sizeof(Rows))
        memset(&self.net_events, 0, sizeof(Rows))
        memset(&self.net_sleeps, 0, sizeof(Rows))
        memset(&self.entries, 0, sizeof(Rows))
        self.based = False

    def __dealloc__(self):
        clear(&self.intervals)
        clear(&self.net_events)
        clear(&self.net_sleeps)
        clear(&self.entries)

    cdef void emit(self, int32_t worker, int64_t end, int32_t state, int32_t detail,
                   int32_t cpu) noexcept nogil:
        """End what a worker did without being woken."""
        cdef Worker* w = &self.workers[worker]
        cdef char* p = self.intervals.data + self.intervals.size
        if end > w.since:
            self.count(worker, end, put_row(p, w.since, end, detail, cpu, <uint8_t>state,
                                                 w.row_end) - p)

    cdef void emit_woken(self, int32_t worker, int64_t end, int32_t state, int32_t detail,
                         int32_t cpu, int32_t waker, int64_t woken) noexcept nogil:
        cdef Worker* w = &self.workers[worker]
        cdef char* p = self.intervals.data + self.intervals.size
        if end > w.since:
            self.count(worker, end, put_woken(p, w.since, end, woken, detail, cpu, waker,
                                                   <uint8_t>state, w.row_end) - p)

    cdef inline void count(self, int32_t worker, int64_t end, Py_ssize_t size) noexcept nogil:
        """Account for a row that was written behind the others."""
        cdef Worker* w = &self.workers[worker]
        self.intervals.size += size
        (<int64_t*>self.entries.data)[self.entries.size] = <int64_t>worker << SIZE_BITS | size
        self.entries.size += 1
        w.rows += 1
        w.row_end = end

    cdef inline void occupied(self, Processor* p, int64_t end, int32_t worker) noexcept nogil:
        cdef char* at = p.ran.bytes.data + p.ran.bytes.size
        count_tail(&p.ran, end, put_ran(at, p.since, end, worker, p.ran.end) - at)
        if p.net_ran >= 0:
            self.net_occupied(p, end, worker)
        p.ran_end = end
        p.ran_worker = worker

    cdef void close(self, int32_t index, int64_t t) noexcept nogil:
        """End what a worker is doing at ``t``, where no event of its own explains it better."""
        cdef Worker* w = &self.workers[index]
        if w.doing == RUNNING:
            self.emit_run(index, t)
        elif w.doing == RUNNABLE:
            self.emit(index, t, S_WAIT_CPU, 0, w.cpu)
        elif w.doing == ASLEEP or w.doing == STOPPED:
            self.emit_sleep(index, t)
        elif w.doing == LOST:
            self.emit(index, t, S_UNKNOWN, 0, -1)

    cdef inline void emit_run(self, int32_t index, int64_t t) noexcept nogil:
        cdef Worker* w = &self.workers[index]
        self.emit(index, t, w.run_state, w.syscall if w.run_state == S_RUN_SYSCALL else 0, w.cpu)

    cdef void emit_sleep(self, int32_t index, int64_t t) noexcept nogil:
        """End a sleep at ``t`` by the wake that was seen, or unexplained."""
        cdef Worker* w = &self.workers[index]
        cdef int32_t state, detail
        if w.doing == STOPPED:
            self.emit(index, t, S_WAIT_STOPPED, 0, w.cpu)
            return
        if w.woken < 0:
            self.emit(index, t, S_WAIT_UNEXPLAINED, self.no_wake, w.cpu)
            return
        state = w.wake_state
        detail = w.wake_detail
        if state == S_WAIT_UNEXPLAINED and w.syscall and w.syscall_state >= 0:
            state = w.syscall_state
            detail = w.syscall
        elif state == S_WAIT_TASK and w.syscall:
            detail = w.syscall
            # A disk or network call woken by a thread is still a wait for that thread.
            if w.syscall_state >= 14 and w.syscall_state <= 16:
                state = w.syscall_state
        if state == S_WAIT_NET and w.waker < 0 and t > w.since:
            self.net_slept(index, t, w.woken)
        self.emit_woken(index, t, state, detail, w.cpu, w.waker, w.woken)

    cdef inline void note_wake(self, Worker* w, Processor* p, int64_t t) noexcept nogil:
        """Remember who wakes ``w`` from the context that ``p`` is in."""
        cdef Context* top
        w.woken = t
        w.waker = -1
        if p.depth:
            top = &p.stack[p.depth - 1]
            w.wake_state = <int8_t>top.state
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

    cdef int32_t reborn(self, int64_t host, int64_t tid, int64_t t) except -2 nogil:
        """Return a new life of a tid: the old one, if any, has ended."""
        cdef int32_t* number = tid_number(&self.tids, host, tid)
        cdef int32_t fresh = self.new_worker(host, tid, t)
        if number[0]:
            self.close(number[0] - 1, t)
            self.workers[number[0] - 1].doing = DEAD
        number[0] = fresh + 1
        return fresh

    cdef inline void enter(self, Processor* p, int64_t t, int kind, int32_t key, int32_t state,
                           int32_t detail, int shown) noexcept nogil:
        cdef Context* top
        if p.depth == DEPTH:
            p.overflow += 1
            return
        self.flush(p, t)
        top = &p.stack[p.depth]
        top.kind = kind
        top.key = key
        top.state = state
        top.detail = detail
        top.shown = shown
        p.depth += 1
        p.top_since = t

    cdef inline void leave(self, Processor* p, int64_t t, int kind, int32_t key) noexcept nogil:
        cdef int i
        if p.overflow:
            p.overflow -= 1
            return
        # Down to the matching entry: contexts above it have lost their exit.
        i = p.depth - 1
        while i >= 0 and not (p.stack[i].kind == kind and p.stack[i].key == key):
            i -= 1
        if i < 0:
            return
        self.flush(p, t)
        p.depth = i
        p.top_since = t

    cdef inline void flush(self, Processor* p, int64_t t) noexcept nogil:
        cdef char* at = p.stolen.bytes.data + p.stolen.bytes.size
        if p.depth and t > p.top_since:
            count_tail(&p.stolen, t, put_stolen(at, p.top_since, t,
                                                <uint8_t>p.stack[p.depth - 1].shown,
                                                p.stack[p.depth - 1].detail, p.stolen.end) - at)
            if p.net_stolen >= 0:
                self.net_interrupted(p, p.top_since, t)

    # Network events are few.  Who ran and when an interrupt ended is known after them, so
    # each is in a chain of its processor until it is.

    cdef void net_event(self, Processor* p, int64_t t, int receives) noexcept nogil:
        cdef NetEvent* event = <NetEvent*>self.net_events.data + self.net_events.size
        event.moment = t
        event.end = t
        event.worker = -1
        event.next_ran = -1
        event.next_stolen = -1
        if p != NULL and receives:
            event.next_stolen = p.net_stolen
            p.net_stolen = <int32_t>self.net_events.size
        elif p != NULL:
            if p.ran_worker >= 0 and p.ran_end == t:
                event.worker = self.thread(p.ran_worker)
            event.next_ran = p.net_ran
            p.net_ran = <int32_t>self.net_events.size
        self.net_events.size += 1

    cdef inline int32_t thread(self, int32_t worker) noexcept nogil:
        return -1 if self.persons[worker].idle_cpu >= 0 else worker

    cdef void net_occupied(self, Processor* p, int64_t end, int32_t worker) noexcept nogil:
        """A packet's thread is that of the last row that begins at its moment or before."""
        cdef NetEvent* events = <NetEvent*>self.net_events.data
        cdef NetEvent* event
        cdef int32_t* link = &p.net_ran
        while link[0] >= 0:
            event = &events[link[0]]
            if p.since <= event.moment:
                event.worker = self.thread(worker) if end >= event.moment else -1
            if p.since > event.moment or end > event.moment:
                link[0] = event.next_ran
            else:
                link = &event.next_ran

    cdef void net_interrupted(self, Processor* p, int64_t begin, int64_t end) noexcept nogil:
        """Interrupt work around a packet: nested interrupts cut it into pieces that touch."""
        cdef NetEvent* events = <NetEvent*>self.net_events.data
        cdef NetEvent* event
        cdef int32_t* link = &p.net_stolen
        while link[0] >= 0:
            event = &events[link[0]]
            if end > event.moment and begin > event.end:
                link[0] = event.next_stolen
                continue
            if end > event.moment:
                event.end = end
            link = &event.next_stolen

    cdef void net_slept(self, int32_t worker, int64_t end, int64_t woken) noexcept nogil:
        cdef NetSleep* sleep = <NetSleep*>self.net_sleeps.data + self.net_sleeps.size
        self.net_sleeps.size += 1
        sleep.worker = worker
        sleep.end = end
        sleep.woken = woken

    def forget_sleeps(self, int64_t before):
        """Forget sleeps that a packet ended before a time: no packet of later can have."""
        cdef NetSleep* sleeps = <NetSleep*>self.net_sleeps.data
        cdef Py_ssize_t i, kept = 0
        if self.net_events.size:
            return
        for i in range(self.net_sleeps.size):
            if sleeps[i].woken >= before:
                sleeps[kept] = sleeps[i]
                kept += 1
        self.net_sleeps.size = kept

    def network(self):
        """Return what `critpath.timeline.network.NetRecord` has, in its order."""
        cdef Py_ssize_t i, n = self.net_events.size, m = self.net_sleeps.size
        cdef NetEvent* events = <NetEvent*>self.net_events.data
        cdef NetSleep* sleeps = <NetSleep*>self.net_sleeps.data
        sent_by, end = np.empty(n, np.int32), np.empty(n, np.int64)
        owner, host = np.empty(m, np.int32), np.empty(m, np.int32)
        woken, slept = np.empty(m, np.int64), np.empty(m, np.int64)
        cdef int32_t[::1] sent_by_ = sent_by, owner_ = owner, host_ = host
        cdef int64_t[::1] end_ = end, woken_ = woken, slept_ = slept
        for i in range(n):
            sent_by_[i] = events[i].worker
            end_[i] = events[i].end
        for i in range(m):
            owner_[i] = sleeps[i].worker
            host_[i] = <int32_t>self.persons[sleeps[i].worker].host
            woken_[i] = sleeps[i].woken
            slept_[i] = sleeps[i].end
        order = np.lexsort((slept, owner, woken))
        return sent_by, end, owner[order], host[order], woken[order], slept[order]

    @property
    def waiting(self):
        """Rows since the last cut."""
        cdef Py_ssize_t i, rows = self.entries.size
        for i in range(self.processor_count):
            rows += self.processors[i].stolen.rows + self.processors[i].ran.rows
        return rows

    cdef int reserve_intervals(self, Py_ssize_t count) except -1 nogil:
        reserve(&self.intervals, ROW * count + BEHIND, 1)
        reserve(&self.entries, count, sizeof(int64_t))
        return 0

    cdef int reserve_tails(self, Py_ssize_t count) except -1 nogil:
        cdef Py_ssize_t i
        for i in range(self.processor_count):
            reserve(&self.processors[i].stolen.bytes, ROW * count + BEHIND, 1)
            reserve(&self.processors[i].ran.bytes, ROW * count + BEHIND, 1)
        return 0

    cdef void begin_block(self, int64_t base) noexcept nogil:
        """Have a base for the first block."""
        if not self.based:
            self.based = True
            self.base = base

    def packed(self, int last, int64_t cut, take, keep):
        """Return and forget the block: its base, and its tables.

        What threads did, interrupt work, who ran: of each how many owners and rows there
        are, and the rows as `critpath.model.packing` reads them.  ``take`` gives memory for
        a number of bytes to work in, ``keep`` memory that will be kept.  The next block
        has the cut for a base.
        """
        base = self.base
        tables = [self.sorted_intervals(take, keep), self.joined_tails(0, keep),
                  self.joined_tails(1, keep)]
        self.base = cut
        for i in range(self.worker_count):
            self.workers[i].row_end = cut
            self.workers[i].rows = 0
        for i in range(self.processor_count):
            forget_tail(&self.processors[i].stolen, last, cut)
            forget_tail(&self.processors[i].ran, last, cut)
        forget(&self.intervals, last)
        forget(&self.entries, last)
        return base, tables

    cdef sorted_intervals(self, take, keep):
        """Return the table of what threads did."""
        cdef Py_ssize_t i, owners = self.worker_count, rows = self.entries.size
        cdef int64_t heads = 0
        # Places and sizes are of 32 bits; only what is not cut into blocks has so much.
        if self.intervals.size >> 32:
            raise MemoryError()
        cdef int32_t[::1] start = take(4 * (owners + 2)).view(np.int32)
        cdef uint32_t[::1] order = take(4 * (rows + 1)).view(np.uint32)
        with nogil:
            start[0] = start[1] = 0
            for i in range(owners):
                start[i + 2] = start[i + 1] + self.workers[i].rows
                heads += owner_bytes(self.workers[i].rows)
        data = keep(heads + self.intervals.size + BEHIND)
        cdef uint8_t[::1] out = data
        cdef char* end
        with nogil:
            end = put_sorted(<char*>&out[0], self.intervals.data, <int64_t*>self.entries.data,
                             rows, &start[0], owners, &order[0])
            memset(end, 0, BEHIND)
        return owners, rows, data

    cdef joined_tails(self, int which, keep):
        """Return the table of interrupt work, or of who ran."""
        cdef Py_ssize_t i, owners = self.processor_count, rows = 0
        cdef int64_t size = 0
        cdef Tail* tail
        for i in range(owners):
            tail = &self.processors[i].ran if which else &self.processors[i].stolen
            rows += tail.rows
            size += owner_bytes(tail.rows) + tail.bytes.size
        data = keep(size + BEHIND)
        cdef uint8_t[::1] out = data
        cdef char* own = <char*>&out[0]
        cdef char* p = own
        for i in range(owners):
            tail = &self.processors[i].ran if which else &self.processors[i].stolen
            p = put_owner(p, tail.rows)
        for i in range(owners):
            tail = &self.processors[i].ran if which else &self.processors[i].stolen
            own = put_size(own, tail.rows, tail.bytes.size)
            memcpy(p, tail.bytes.data, tail.bytes.size)
            p += tail.bytes.size
        memset(p, 0, BEHIND)
        return owners, rows, data


cdef inline void count_tail(Tail* tail, int64_t end, Py_ssize_t size) noexcept nogil:
    """Account for a row that was written behind the others."""
    tail.bytes.size += size
    tail.end = end
    tail.rows += 1


cdef void forget_tail(Tail* tail, int last, int64_t base) noexcept nogil:
    forget(&tail.bytes, last)
    tail.rows = 0
    tail.end = base
