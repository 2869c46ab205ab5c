# What was not recorded: gaps, within which nothing is known of a host, and losses, after which
# nothing is sure of what a cpu is in.  Included by _replay.pyx.

cdef enum:
    # Of a gap, and of what was going on at its end: see `critpath.timeline.after_gaps`.
    BEGIN = 0
    CLOSED = 1
    OPENING = 2
    END = 3
    HOST = 4
    GAP_OF = 0
    WHAT = 1
    WHOM = 2
    VALUE = 3
    ON_CPU = 0            # a cpu, and the thread that has it
    IN_CONTEXTS = 1       # a cpu, and how many interrupts it is in
    IS_OBSCURE = 2        # a thread, whose first wake does not tell what it was doing
    IN_CALL = 3           # a thread, and the code of the system call it is in; 0 none, -1 unknown

    NOBODY_KNOWN = 1      # `Processor.hidden`: who runs since a gap is not known
    FIRST_HIDDEN = 1      # by how much a softirq's bit is shifted, whose raise a gap may have hidden
    UNSURE = -1           # `Processor.interrupted`, since a gap


cdef inline void hide_cause(Cause* cause, int64_t t) noexcept nogil:
    """Say of a softirq that what it was raised by was not recorded."""
    cause.known = 1
    cause.at = t
    cause.worker = -1
    cause.state = STATE_NOT_RECORDED
    cause.detail = 0


cdef int64_t pass_stops(Replay self, int64_t t) except? -1 nogil:
    """Take losses and gaps into account up to an event; return when the next comes."""
    cdef int64_t loss, edge, end
    cdef Py_ssize_t gap
    while True:
        loss = self.loss_end[self.lost] if self.lost < self.loss_end.shape[0] else NEVER_LOST
        edge = self.edges[self.passed, 0] if self.passed < self.edges.shape[0] else NEVER_LOST
        if min(loss, edge) > t or min(loss, edge) == NEVER_LOST:
            return min(loss, edge)
        if loss <= edge:
            on_loss(self, loss, self.loss_host[self.lost], self.loss_cpu[self.lost])
            self.lost += 1
        else:
            gap = self.edges[self.passed, 1] >> 1
            if self.edges[self.passed, 1] & 1:
                end_gap(self, gap)
            else:
                begin_gap(self, gap)
            self.passed += 1
        # The room of this slice is still there.
        self.reserve_rows(SLICE)


cdef int on_loss(Replay self, int64_t end, int64_t host, int64_t cpu) except -1 nogil:
    """Nothing is sure any more about what cpus are in that lost events."""
    cdef Py_ssize_t j
    cdef Processor* p
    self.reserve_intervals(self.table.processor_count)
    for j in range(self.table.processor_count):
        p = &self.table.processors[j]
        if p.host == host and (cpu < 0 or p.cpu == cpu):
            p.depth = 0
            p.overflow = 0
            p.pending = 0
            p.interrupted = NEVER_LOST
            if p.current >= 0 and p.current != p.idle \
                    and self.table.workers[p.current].doing == RUNNING:
                emit_run(self, p.current, end)
                self.table.workers[p.current].since = end
            end_asked(self, p, end, False)
            p.current = -1
    return 0


cdef int begin_gap(Replay self, Py_ssize_t gap) except -1 nogil:
    """Whatever a host's threads and cpus are doing, it is not known from now on."""
    cdef int64_t t = self.gaps[BEGIN, gap], host = self.gaps[HOST, gap]
    cdef Py_ssize_t j, count = self.table.worker_count
    cdef Worker* w
    cdef ThreadInfo* info
    cdef Processor* p
    self.reserve_intervals(count + MOST_ASKING * self.table.processor_count)
    self.reserve_tails(1)
    for j in range(self.table.processor_count):
        p = &self.table.processors[j]
        if p.host != host:
            continue
        emit_interrupt(self, p, t)
        if p.current >= 0 and t > p.since:
            self.emit_cpu_interval(p, t, p.current)
        p.depth = p.overflow = p.pending = 0
        p.interrupted = UNSURE
        end_asked(self, p, t, True)
        p.current = -1
        p.hidden = NOBODY_KNOWN | ((1 << RAISED) - 1) << FIRST_HIDDEN
    for j in range(count):
        w = &self.table.workers[j]
        info = &self.table.infos[j]
        if info.host != host or w.doing == DEAD or w.doing == UNBORN or w.doing >= HIDDEN:
            continue
        if w.doing == NEVER:
            w.doing = OBSCURE
            continue
        # Why it sleeps is known only at the end: that a sleep began tells nothing.
        if w.doing != ASLEEP and w.doing != STOPPED:
            end_state(self, <int32_t>j, t)
            w.since = t
        if w.known & RETRYING:
            drop_tries(&self.retries, &self.table, <int32_t>j)
        w.doing = HIDDEN if info.idle_cpu < 0 else NEVER
        w.known &= ~(REFUSED | IN_FUTEX)
        w.woken = w.waker = -1
        w.pending = 0
        w.cpu = -1
        w.syscall = 0
        w.syscall_state = -1
        if w.run_state != STATE_RUN:
            w.run_state = STATE_NOT_RECORDED
        info.awake = t
        info.by.worker = info.by.before = info.noted.worker = info.noted.before = -1
        info.kept.worker = -1
    self.closed[host] = 1
    self.closed_hosts += 1
    self.last_gap[host] = gap
    if self.table.hidden_since[host] < 0:
        self.table.hidden_since[host] = t
    return 0


cdef int end_gap(Replay self, Py_ssize_t gap) except -1 nogil:
    """Begin again with what the events after a gap tell of its end."""
    cdef int64_t host = self.gaps[HOST, gap], t = self.gaps[END, gap]
    cdef int64_t whom, value
    cdef Py_ssize_t j
    cdef int32_t place, index
    cdef Processor* p
    for j in range(self.table.worker_count):
        # Of one that was forked, what it has done since.
        if self.table.workers[j].doing == UNBORN and self.table.infos[j].host == host:
            self.table.workers[j].doing = HIDDEN
    self.closed[host] = 0
    self.closed_hosts -= 1
    while self.resumed_at < self.resumed.shape[0] and self.resumed[self.resumed_at, GAP_OF] <= gap:
        whom = self.resumed[self.resumed_at, WHOM]
        value = self.resumed[self.resumed_at, VALUE]
        self.reserve_rows(1)
        if self.resumed[self.resumed_at, GAP_OF] < gap:
            pass
        elif self.resumed[self.resumed_at, WHAT] >= IS_OBSCURE:
            index = worker_of(&self.table, host, whom, t)
            if self.resumed[self.resumed_at, WHAT] == IS_OBSCURE:
                if self.table.workers[index].doing == HIDDEN:
                    self.table.workers[index].doing = OBSCURE
            else:
                know_call(self, index, value)
        else:
            place = self.table.processor_of[<size_t>host * MOST_CPUS + <size_t>whom]
            # Of a cpu that was not seen before, nobody knows whether it was.
            if place:
                p = &self.table.processors[place - 1]
                if self.resumed[self.resumed_at, WHAT] == IN_CONTEXTS:
                    enter_hidden(p, t, value)
                elif p.ran_worker >= 0:
                    resume_thread(self, p, t, value)
        self.resumed_at += 1
    return 0


cdef void enter_hidden(Processor* p, int64_t t, int64_t count) noexcept nogil:
    """A cpu is in interrupts whose begin was not recorded."""
    cdef Context* top
    p.depth = 0
    while p.depth < min(count, DEPTH):
        top = &p.stack[p.depth]
        memset(top, 0, sizeof(Context))
        top.kind = C_HIDDEN
        top.state = top.shown = STATE_NOT_RECORDED
        p.depth += 1
    p.top_since = t


cdef int resume_thread(Replay self, Processor* p, int64_t t, int64_t tid) except -1 nogil:
    """A thread, which the cpu's next switch names, has the cpu since a gap."""
    cdef int32_t index = p.idle if tid == 0 else worker_of(&self.table, p.host, tid, t)
    cdef Worker* w = &self.table.workers[index]
    if tid and w.doing != HIDDEN and w.doing != OBSCURE:
        return 0
    if tid:
        self.emit(index, t, STATE_NOT_RECORDED, 0, -1)
    w.doing = RUNNING
    w.since = t
    w.cpu = p.cpu
    p.current = index
    p.current_tid = tid
    p.since = t
    p.hidden &= ~NOBODY_KNOWN
    return 0


cdef void know_call(Replay self, int32_t index, int64_t code) noexcept nogil:
    """A thread's next event of a system call tells whether it was in one, and which."""
    cdef Worker* w = &self.table.workers[index]
    if w.doing == DEAD or w.doing == UNBORN:
        return
    # Of one that was in no call before, a gap may have hidden its first.
    if code < 0 or w.run_state == STATE_RUN:
        w.run_state = STATE_NOT_RECORDED
        return
    w.run_state = STATE_RUN_SYSCALL if code else STATE_RUN_USER
    w.syscall = <int32_t>code
    w.syscall_state = <int8_t>self.call_states[code] if code else -1


cdef int is_passed_over(Replay self, const EventSemantics* of, int64_t t) except -1 nogil:
    """Tell whether an event is to be passed over, as it lies in a gap of its host."""
    cdef int64_t gap
    cdef const Handling* how = &self.handling[of.kind]
    if not self.closed[of.host] or how.flags & IN_GAPS:
        return 0
    gap = self.last_gap[of.host]
    if self.gaps[CLOSED, gap] < t < self.gaps[OPENING, gap] and how.flags & IN_BASE:
        if self.misplaced == NEVER_LOST:
            self.misplaced = t
    if how.uncounted != NULL:
        how.uncounted(self, NULL, t, NULL, of)
    return 1


cdef inline int32_t unknown_since(Replay self, const Worker* w, int64_t host) noexcept nogil:
    """Return what a thread was in whose events do not tell: not recorded, if a gap was since."""
    if self.last_gap[host] >= 0 and w.since < self.gaps[END, self.last_gap[host]]:
        return STATE_NOT_RECORDED
    return STATE_UNKNOWN


cdef int wake_hidden(Replay self, int32_t index, int64_t t, int32_t cpu, int kind,
                     const Processor* p) except -1 nogil:
    """A thread is woken of which nothing was known since a gap; return whether that is all."""
    cdef Worker* w = &self.table.workers[index]
    cdef int64_t host = self.table.infos[index].host
    cdef int sleeps = kind == KIND_WAKING or not self.has_waking
    if kind == KIND_WAKEUP_NEW:
        self.table.infos[index].born = t
        if self.table.infos[index].parent < 0 and p.depth == 0 and p.current >= 0 \
                and p.current != p.idle:
            self.table.infos[index].parent = p.current
    elif w.doing == OBSCURE:
        return 1
    elif sleeps:
        # So it slept all the time since the gap.
        self.emit(index, self.gaps[END, self.last_gap[host]], STATE_NOT_RECORDED, 0, -1)
        w.doing = ASLEEP
        w.since = self.gaps[END, self.last_gap[host]]
        return 0
    # Who woke it was not recorded.
    self.emit(index, t, STATE_NOT_RECORDED, 0, -1)
    w.doing = RUNNABLE
    w.since = self.table.infos[index].awake = t
    w.cpu = cpu
    return 1
