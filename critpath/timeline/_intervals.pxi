# Intervals of threads and interrupt work of processors, as they end.  Included by _replay.pyx.
#
# The rows that an event may add are reserved before it, so that adding one cannot fail.

cdef class Recorder(Population):
    """Writes down what a worker did when it begins to do something else."""

    cdef Rows intervals, stolen, ran, net_events, net_sleeps, owners, order
    cdef int has_waking, has_syscalls
    cdef int32_t no_wake, idle_waker, context_unknown, timer_detail, timer_state

    def __cinit__(self):
        memset(&self.intervals, 0, sizeof(Rows))
        memset(&self.stolen, 0, sizeof(Rows))
        memset(&self.ran, 0, sizeof(Rows))
        memset(&self.net_events, 0, sizeof(Rows))
        memset(&self.net_sleeps, 0, sizeof(Rows))
        memset(&self.owners, 0, sizeof(Rows))
        memset(&self.order, 0, sizeof(Rows))

    def __dealloc__(self):
        clear(&self.intervals)
        clear(&self.stolen)
        clear(&self.ran)
        clear(&self.net_events)
        clear(&self.net_sleeps)
        clear(&self.owners)
        clear(&self.order)

    cdef inline void emit(self, int32_t worker, int64_t begin, int64_t end, int32_t state,
                          int32_t detail, int32_t cpu, int32_t waker, int64_t woken) noexcept nogil:
        if end <= begin:
            return
        cdef Row* row = <Row*>self.intervals.data + self.intervals.size
        # Who it is of stands apart: sorting by it reads nothing else.
        (<int32_t*>self.owners.data)[self.intervals.size] = worker
        self.workers[worker].rows += 1
        self.intervals.size += 1
        row.begin = begin
        row.end = end
        row.woken = woken
        row.waker = waker
        row.detail = detail
        row.cpu = cpu
        row.state = <uint8_t>state

    cdef inline void occupied(self, Processor* p, int64_t end, int32_t worker) noexcept nogil:
        cdef Ran* row = <Ran*>self.ran.data + self.ran.size
        self.ran.size += 1
        row.begin = p.since
        row.end = end
        row.processor = p.index
        row.worker = worker
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
            self.emit(index, w.since, t, S_WAIT_CPU, 0, w.cpu, -1, -1)
        elif w.doing == ASLEEP or w.doing == STOPPED:
            self.emit_sleep(index, t)
        elif w.doing == LOST:
            self.emit(index, w.since, t, S_UNKNOWN, 0, -1, -1, -1)

    cdef inline void emit_run(self, int32_t index, int64_t t) noexcept nogil:
        cdef Worker* w = &self.workers[index]
        self.emit(index, w.since, t, w.run_state, w.syscall if w.run_state == S_RUN_SYSCALL else 0,
                  w.cpu, -1, -1)

    cdef void emit_sleep(self, int32_t index, int64_t t) noexcept nogil:
        """End a sleep at ``t`` by the wake that was seen, or unexplained."""
        cdef Worker* w = &self.workers[index]
        cdef int32_t state, detail
        if w.doing == STOPPED:
            self.emit(index, w.since, t, S_WAIT_STOPPED, 0, w.cpu, -1, -1)
            return
        if w.woken < 0:
            self.emit(index, w.since, t, S_WAIT_UNEXPLAINED, self.no_wake, w.cpu, -1, -1)
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
        self.emit(index, w.since, t, state, detail, w.cpu, w.waker, w.woken)

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
        cdef Stolen* row
        if p.depth and t > p.top_since:
            row = <Stolen*>self.stolen.data + self.stolen.size
            self.stolen.size += 1
            row.begin = p.top_since
            row.end = t
            row.processor = p.index
            row.state = <uint8_t>p.stack[p.depth - 1].shown
            row.detail = p.stack[p.depth - 1].detail
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
        return self.intervals.size + self.stolen.size + self.ran.size

    cdef int order_intervals(self, int64_t[::1] start, int32_t* order) except -1:
        """Find where each worker's rows start (one place on), and the rows in that order."""
        cdef Py_ssize_t i
        cdef int32_t* owner = <int32_t*>self.owners.data
        start[0] = start[1] = 0
        with nogil:
            for i in range(self.worker_count):
                start[i + 2] = start[i + 1] + self.workers[i].rows
                self.workers[i].rows = 0
            for i in range(self.intervals.size):
                order[start[owner[i] + 1]] = <int32_t>i
                start[owner[i] + 1] += 1
        return 0

    cdef int reserve_intervals(self, Py_ssize_t count) except -1 nogil:
        reserve(&self.intervals, count, sizeof(Row))
        # Its own size is not counted.
        self.owners.size = self.intervals.size
        reserve(&self.owners, count, sizeof(int32_t))
        return 0

    def packed(self, int last, int64_t cut, take, keep):
        """Return and forget the tables: what threads did, interrupt work, who ran.

        Of each how many owners and rows there are, and the rows as
        `critpath.model.packing` reads them.  ``take`` gives memory for a number of bytes to
        work in, ``keep`` memory that will be kept.
        """
        cdef Py_ssize_t threads = self.worker_count, processors = self.processor_count
        cdef Py_ssize_t most = max(self.intervals.size, self.stolen.size, self.ran.size)
        cdef int32_t* order
        cdef uint8_t[::1] room = take(ROW * most + OWNER * max(threads, processors) + BEHIND)
        cdef int64_t[::1] start = take(8 * (max(threads, processors) + 2)).view(np.int64)
        cdef char* out = <char*>&room[0]
        cdef char* end
        cdef Py_ssize_t n
        reserve(&self.order, most + 1, sizeof(int32_t))
        order = <int32_t*>self.order.data
        tables = []

        n = self.intervals.size
        self.order_intervals(start, order)
        with nogil:
            end = put_intervals(out, <Row*>self.intervals.data, &start[0], threads, order, cut)
        tables.append((threads, n, kept(keep, out, end)))
        forget(&self.intervals, last)

        n = self.stolen.size
        with nogil:
            memset(&start[0], 0, 8 * (processors + 2))
            order_by(self.stolen.data + STOLEN_OWNER, sizeof(Stolen), n, &start[0], processors,
                     order)
            end = put_stolen(out, <Stolen*>self.stolen.data, &start[0], processors, order, cut)
        tables.append((processors, n, kept(keep, out, end)))
        forget(&self.stolen, last)

        n = self.ran.size
        with nogil:
            memset(&start[0], 0, 8 * (processors + 2))
            order_by(self.ran.data + RAN_OWNER, sizeof(Ran), n, &start[0], processors, order)
            end = put_ran(out, <Ran*>self.ran.data, &start[0], processors, order, cut)
        tables.append((processors, n, kept(keep, out, end)))
        forget(&self.ran, last)
        return tables


cdef kept(keep, const char* begin, char* end):
    """Return a copy of some bytes, in memory that is kept."""
    cdef Py_ssize_t size = end - begin + BEHIND
    memset(end, 0, BEHIND)
    copy = keep(size)
    cdef uint8_t[::1] bytes_ = copy
    memcpy(&bytes_[0], begin, size)
    return copy
