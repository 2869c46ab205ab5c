# Switches and wakes: who runs, who waits for a cpu, who sleeps and whose wake ends that.  Included
# by _replay.pyx.

cdef enum:
    HAS_SUCCESS = 1       # what a class of wakes says by the fields that it has
    HAS_TARGET = 2
    KNOWN_STATES = 4352   # of a thread that leaves the cpu: those of any kernel
    # Kinds by which a switch that is missing out of idle may be put in again, a bit each.
    TELL_OF_IDLE = ((1 << KIND_WAKING) | (1 << KIND_WAKEUP) | (1 << KIND_WAKEUP_NEW)
                    | (1 << KIND_CURRENT))


cdef void follow_scheduler(Handling* kinds) noexcept nogil:
    kinds[KIND_SWITCH] = Handling(on_switch, NULL, IN_BASE, 4, ALL_OF_TID)
    kinds[KIND_WAKING] = Handling(on_wake, NULL, IN_BASE, 0, ALL_OF_TID)
    kinds[KIND_WAKEUP] = Handling(on_wake, NULL, IN_BASE, 0, ALL_OF_TID)
    kinds[KIND_WAKEUP_NEW] = Handling(on_wake, NULL, IN_BASE, 0, ALL_OF_TID)


cdef int on_switch(Replay self, Processor* p, int64_t t, const int64_t* v,
                   const EventSemantics* of) except -1 nogil:
    cdef int32_t prev, following
    cdef Worker* w
    cdef int32_t doing
    cdef int64_t state = v[2]
    prev = p.idle if v[1] == 0 else worker_of(&self.table, p.host, v[1], t)
    w = &self.table.workers[prev]
    # Out of idle, if it can have been woken, or where the trace tells who is current, a
    # switch that is missing may be put in again.
    if p.current >= 0 and v[1] != p.current_tid and v[1] and self.seen & (
            TELL_OF_IDLE if p.current == p.idle else <uint64_t>1 << KIND_CURRENT):
        self.contradictions += 1
    w = mark_seen(&self.table, prev, t)
    w.name = <int32_t>v[0]
    if p.asking_count:
        end_asked(self, p, t, p.current == prev)
    if p.current == prev:
        self.emit_cpu_interval(p, t, prev)
    elif (p.current >= 0 and p.current != p.idle
            and self.table.workers[p.current].doing == RUNNING):
        # Its own switch-out is missing: from its last sure moment on, nothing is known.
        self.table.workers[p.current].doing = LOST
    if w.doing == RUNNING and w.cpu == p.cpu:
        emit_run(self, prev, t)
    elif w.doing != NEVER and w.doing != UNBORN:
        self.emit(prev, t, unknown_since(self, w, p.host), 0, -1)
    # What it does from now on.
    if prev == p.idle:
        doing = RUNNABLE
    else:
        if 0 <= state < KNOWN_STATES:
            doing = self.doing_by_state[p.host * KNOWN_STATES + state]
        else:
            doing = doing_after(self, p.host, state)
        # TASK_DEAD was 64, then 128, which meant other things in other releases.
        if w.known & EXITING and doing == ASLEEP and state & 192 and not state & 3:
            doing = DEAD
    w.doing = doing
    w.since = t
    if not w.pending:
        w.woken = -1
        w.waker = -1
    # Next.
    following = p.idle if v[4] == 0 else worker_of(&self.table, p.host, v[4], t)
    w = &self.table.workers[following]
    if w.doing == DEAD and following != p.idle:
        following = new_incarnation(self, p.host, v[4], t)
        w = &self.table.workers[following]
    mark_seen(&self.table, following, t)
    w.name = <int32_t>v[3]
    if following == p.idle:
        pass
    elif w.doing == RUNNABLE:
        # It queued where it left or where its wake sent it; the cpu that it then got may
        # have been another, idle or busy with something else meanwhile.
        emit_wait(self, following, t, w.cpu if w.cpu >= 0 else p.cpu)
    elif w.doing == ASLEEP or w.doing == STOPPED:
        if w.woken >= 0 and w.pending:
            # The wake raced the switch-out: it never really slept.
            self.emit(following, t, STATE_WAIT_CPU, 0, w.cpu if w.cpu >= 0 else p.cpu)
        elif w.woken >= 0:
            # Waking without wakeup: runnable from the waking on.
            emit_sleep(self, following, w.woken)
            w.since = w.woken
            self.emit(following, t, STATE_WAIT_CPU, 0, p.cpu)
        else:
            emit_sleep(self, following, t)
    elif w.doing == RUNNING or w.doing == LOST or w.doing >= UNBORN:
        # Since its fork, where no sched_wakeup_new says when it became runnable.
        self.emit(following, t, unknown_since(self, w, p.host), 0, -1)
    w.doing = RUNNING
    w.since = t
    w.cpu = p.cpu
    w.woken = -1
    w.waker = -1
    w.pending = 0
    if following != p.idle:
        begin_asked(self, p, following, t)
    p.current = following
    p.current_tid = v[4]
    p.since = t
    p.hidden &= ~NOBODY_KNOWN
    return DONE


cdef int on_wake(Replay self, Processor* p, int64_t t, const int64_t* v,
                 const EventSemantics* of) except -1 nogil:
    if of.flags & HAS_SUCCESS and v[3] == 0:
        return DONE
    return wake_thread(self, p, t, v[0], v[2] if of.flags & HAS_TARGET else -1, of.kind)


cdef inline int wake_thread(Replay self, Processor* p, int64_t t, int64_t tid, int64_t cpu,
                            int kind) except -1 nogil:
    if tid == 0:
        return DONE
    cdef int32_t index = worker_of(&self.table, p.host, tid, t)
    cdef Worker* w = &self.table.workers[index]
    # Any number, if the trace is damaged.
    if not 0 <= cpu < MOST_CPUS:
        cpu = -1
    if w.doing == DEAD:
        if kind != KIND_WAKEUP_NEW:
            return DONE
        index = new_incarnation(self, p.host, tid, t)
        w = &self.table.workers[index]
    if w.doing >= HIDDEN and wake_hidden(self, index, t, <int32_t>cpu, kind, p):
        w.last = t
        return DONE
    # A thread's life starts when it is first seen on a cpu; a wake before that tells
    # what it does from then on, not that it was there before.
    w.last = t
    if w.doing == ASLEEP or w.doing == STOPPED:
        if kind == KIND_WAKING:
            if w.known & RETRYING:
                prefetch(<TimedSleep*>self.retries.sleeps.data + self.table.infos[index].tried)
            if w.woken < 0 or w.pending:
                w.pending = 0
                note_wake(self, w, p, t)
            return DONE
        if w.woken < 0 or w.pending:
            if w.pending and self.has_waking:
                # The late half of the wake that raced the switch-out.
                return DONE
            w.pending = 0
            if self.has_waking:
                w.woken = t
                w.waker = -1
                w.wake_state = STATE_WAIT_UNEXPLAINED
                w.wake_detail = self.context_unknown
            else:
                note_wake(self, w, p, t)
        emit_sleep(self, index, t)
        w.doing = RUNNABLE
        w.since = t
        w.cpu = <int32_t>cpu
    elif w.doing == RUNNING:
        if kind == KIND_WAKING or not self.has_waking:
            note_wake(self, w, p, t)
            w.pending = 1
    elif w.doing == NEVER or w.doing == UNBORN:
        if kind == KIND_WAKEUP_NEW and self.table.infos[index].parent < 0 and p.depth == 0 \
                and p.current >= 0 and p.current != p.idle:
            self.table.infos[index].parent = p.current
        if kind == KIND_WAKEUP_NEW:
            self.table.infos[index].born = t
        if kind != KIND_WAKING or w.doing == NEVER:
            w.doing = RUNNABLE
            w.since = self.table.infos[index].awake = t
            w.cpu = <int32_t>cpu
    return DONE


cdef inline void note_wake(Replay self, Worker* w, Processor* p, int64_t t) noexcept nogil:
    """Remember who wakes ``w`` from the context that ``p`` is in."""
    cdef Context* top
    w.woken = t
    w.waker = -1
    if p.depth:
        top = &p.stack[p.depth - 1]
        w.wake_state = <int8_t>top.state
        w.wake_detail = top.detail
        if top.answers and top.cause.worker >= 0:
            w.wake_state = STATE_WAIT_TASK
            w.waker = top.cause.worker
            w.wake_detail = 0
            # Where it still runs, what the softirq does is its own work.
            if top.cause.worker != p.current:
                w.wake_detail = <int32_t>min(t - top.cause.at, 0x7FFFFFFF)
        elif top.answers:
            w.wake_state = <int8_t>top.cause.state
            w.wake_detail = top.cause.detail
        name_packet(&self.softirqs, p, &w.wake_detail, w.wake_state)
    elif p.current < 0:
        w.wake_state = (STATE_NOT_RECORDED if p.hidden & NOBODY_KNOWN
                        else STATE_WAIT_UNEXPLAINED)
        w.wake_detail = 0 if p.hidden & NOBODY_KNOWN else self.context_unknown
    elif p.current == p.idle:
        w.wake_state = STATE_WAIT_UNEXPLAINED
        w.wake_detail = self.idle_waker
    else:
        w.wake_state = STATE_WAIT_TASK
        w.wake_detail = 0
        w.waker = p.current
    note_waker(&self.table, <Py_ssize_t>(w - self.table.workers), w.waker)


cdef void end_state(Replay self, int32_t index, int64_t t) noexcept nogil:
    """End what a worker is doing at ``t``, where no event of its own explains it better."""
    cdef Worker* w = &self.table.workers[index]
    if w.doing == RUNNING:
        emit_run(self, index, t)
    elif w.doing == RUNNABLE:
        emit_wait(self, index, t, w.cpu)
    elif w.doing == ASLEEP or w.doing == STOPPED:
        emit_sleep(self, index, t)
    elif w.doing == LOST:
        self.emit(index, t, STATE_UNKNOWN, 0, -1)
    elif w.doing >= HIDDEN:
        self.emit(index, t, STATE_NOT_RECORDED, 0, -1)


cdef inline void emit_run(Replay self, int32_t index, int64_t t) noexcept nogil:
    cdef Worker* w = &self.table.workers[index]
    if w.known & RETRYING:
        count_run(&self.retries, &self.table, index, t)
    self.emit(index, t, w.run_state,
              w.syscall if w.run_state == STATE_RUN_SYSCALL else 0, w.cpu)


cdef void emit_sleep(Replay self, int32_t index, int64_t t) noexcept nogil:
    """End a sleep at ``t`` by the wake that was seen, or unexplained."""
    cdef Worker* w = &self.table.workers[index]
    cdef int32_t state, detail
    cdef int64_t woken
    if w.doing == STOPPED:
        self.table.infos[index].awake = t
        self.emit(index, t, STATE_WAIT_STOPPED, 0, w.cpu)
        return
    end_try(&self.retries, &self.table, index, t)
    if w.woken < 0:
        self.emit(index, t, STATE_WAIT_UNEXPLAINED, self.no_wake, w.cpu)
        return
    state = w.wake_state
    detail = w.wake_detail
    woken = w.woken
    if w.waker >= 0:
        woken -= detail
        detail = 0
    if state == STATE_WAIT_UNEXPLAINED and w.syscall and w.syscall_state >= 0:
        state = w.syscall_state
        detail = w.syscall
    elif state == STATE_WAIT_TASK and w.syscall:
        detail = w.syscall
        # A disk or network call woken by a thread is still a wait for that thread.
        if STATE_WAIT_FUTEX <= w.syscall_state <= STATE_WAIT_PIPE:
            state = w.syscall_state
    if w.run_state == STATE_NOT_RECORDED:
        state = STATE_NOT_RECORDED
    if state == STATE_WAIT_NET and w.waker < 0 and t > w.since:
        note_sleep(&self.packets, index, t, w.woken)
    self.emit_woken(index, t, state, detail, w.cpu, w.waker, woken)


cdef int load_prev_states(Replay self, int64_t[:, ::1] prev_states) except -1:
    """Look up once what each state says; of as many hosts as are known."""
    cdef Py_ssize_t host, state
    self.prev_states = prev_states
    self.doing_by_state = <int8_t*>malloc(max(self.table.hosts, 1) * KNOWN_STATES)
    if self.doing_by_state == NULL:
        raise MemoryError()
    for host in range(self.table.hosts):
        for state in range(KNOWN_STATES):
            self.doing_by_state[host * KNOWN_STATES + state] = doing_after(self, host, state)
    return 0


cdef int8_t doing_after(Replay self, Py_ssize_t host, int64_t state) noexcept nogil:
    """Return what a thread does that leaves the cpu in a state."""
    cdef Py_ssize_t i
    for i in range(2, self.prev_states.shape[1]):
        if state == self.prev_states[host, i]:
            return RUNNABLE
    if state & self.prev_states[host, 0]:
        return DEAD
    if state & self.prev_states[host, 1]:
        return STOPPED
    return ASLEEP
