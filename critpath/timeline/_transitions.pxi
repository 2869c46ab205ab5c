# What an event makes of the threads and processors that it names.  Included by _replay.pyx.

cdef enum:
    # Kinds, a bit each.
    TELL_OF_IDLE = (1 << WAKING) | (1 << WAKEUP) | (1 << WAKEUP_NEW) | (1 << CURRENT)
    KNOWN_STATES = 4352   # of a thread that leaves the cpu: those of any kernel


cdef class Transitions(Recorder):
    """A switch, a wake, a fork, a life's end, and a loss of events."""

    cdef int64_t[:, ::1] prev_states   # per host: dead mask, stopped mask, runnable values...
    cdef int8_t* left_as               # [host * KNOWN_STATES + state]
    cdef public uint32_t seen          # a bit for each kind of event that came
    cdef public int64_t contradictions

    def __cinit__(self):
        self.left_as = NULL
        self.seen = 0
        self.contradictions = 0

    def __dealloc__(self):
        free(self.left_as)

    cdef int know_states(self, int64_t[:, ::1] prev_states) except -1:
        """Look up once what each state says; of as many hosts as are known."""
        cdef Py_ssize_t host, state
        self.prev_states = prev_states
        self.left_as = <int8_t*>malloc(max(self.hosts, 1) * KNOWN_STATES)
        if self.left_as == NULL:
            raise MemoryError()
        for host in range(self.hosts):
            for state in range(KNOWN_STATES):
                self.left_as[host * KNOWN_STATES + state] = self.leaves(host, state)
        return 0

    cdef int8_t leaves(self, Py_ssize_t host, int64_t state) noexcept nogil:
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

    cdef inline int on_switch(self, Processor* p, int64_t t, const int64_t* v) except -1 nogil:
        cdef int32_t prev, following
        cdef Worker* w
        cdef int32_t doing
        cdef int64_t state = v[2]
        prev = p.idle if v[1] == 0 else self.worker(p.host, v[1], t)
        w = &self.workers[prev]
        # Out of idle, if it can have been woken, or where the trace tells who is current, a
        # switch that is missing may be put in again.
        if p.current >= 0 and v[1] != p.current_tid and v[1] and self.seen & (
                TELL_OF_IDLE if p.current == p.idle else <uint32_t>1 << CURRENT):
            self.contradictions += 1
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
            self.emit(prev, t, S_UNKNOWN, 0, -1)
        # What it does from now on.
        if prev == p.idle:
            doing = RUNNABLE
        else:
            if 0 <= state < KNOWN_STATES:
                doing = self.left_as[p.host * KNOWN_STATES + state]
            else:
                doing = self.leaves(p.host, state)
            if w.known & EXITING and doing != RUNNABLE:
                doing = DEAD
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
            self.emit(following, t, S_WAIT_CPU, 0, w.cpu if w.cpu >= 0 else p.cpu)
        elif w.doing == ASLEEP or w.doing == STOPPED:
            if w.woken >= 0 and w.pending:
                # The wake raced the switch-out: it never really slept.
                self.emit(following, t, S_WAIT_CPU, 0, w.cpu if w.cpu >= 0 else p.cpu)
            elif w.woken >= 0:
                # Waking without wakeup: runnable from the waking on.
                self.emit_sleep(following, w.woken)
                w.since = w.woken
                self.emit(following, t, S_WAIT_CPU, 0, p.cpu)
            else:
                self.emit_sleep(following, t)
        elif w.doing == RUNNING or w.doing == LOST or w.doing == UNBORN:
            # Since its fork, where no sched_wakeup_new says when it became runnable.
            self.emit(following, t, S_UNKNOWN, 0, -1)
        w.doing = RUNNING
        w.since = t
        w.cpu = p.cpu
        w.woken = -1
        w.waker = -1
        w.pending = 0
        p.current = following
        p.current_tid = v[4]
        p.since = t
        return 0

    cdef inline int on_wake(self, Processor* p, int64_t t, int64_t tid, int64_t cpu,
                            int kind) except -1 nogil:
        if tid == 0:
            return 0
        cdef int32_t index = self.worker(p.host, tid, t)
        cdef Worker* w = &self.workers[index]
        # Any number, if the trace is damaged.
        if not 0 <= cpu < CPUS:
            cpu = -1
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
            if kind == WAKEUP_NEW and self.persons[index].parent < 0 and p.depth == 0 \
                    and p.current >= 0 and p.current != p.idle:
                self.persons[index].parent = p.current
            if kind == WAKEUP_NEW:
                self.persons[index].born = t
            if kind != WAKING or w.doing == NEVER:
                w.doing = RUNNABLE
                w.since = t
                w.cpu = <int32_t>cpu
        return 0

    cdef int on_fork(self, Processor* p, int64_t t, const int64_t* v) except -1 nogil:
        # Idle is a thread per cpu: no one thread 0 creates anything.
        cdef int32_t parent = self.worker(p.host, v[0], t) if v[0] else -1, child
        cdef Worker* w
        cdef Person* person
        child = self.reborn(p.host, v[2], t)
        w = &self.workers[child]
        person = &self.persons[child]
        person.parent = parent
        person.born = t
        person.pid = v[3]
        w.name = <int32_t>v[5]
        w.run_state = S_RUN_USER if self.has_syscalls else S_RUN
        w.doing = UNBORN
        w.since = t
        if parent >= 0:
            self.touch(parent, t)
        if parent >= 0 and self.persons[parent].pid < 0:
            self.persons[parent].pid = v[1]
        return 0

    cdef int on_life(self, Processor* p, int64_t t, const int64_t* v, int kind) except -1 nogil:
        """A thread executes a program, ends, or was there when the recording began."""
        cdef int32_t index
        cdef Worker* w
        cdef Person* person
        if v[0] == 0:
            return 0
        index = self.worker(p.host, v[0], t)
        w = &self.workers[index]
        if kind == STATEDUMP:
            person = &self.persons[index]
            if person.pid < 0:
                person.pid = v[1]
            if w.name == 0:
                w.name = <int32_t>v[2]
            # LTTng's thread status: 5 waits for an event.
            if w.doing == NEVER and v[3] == 5:
                w.doing = ASLEEP
                w.since = t
            return 0
        self.touch(index, t)
        if kind == EXIT:
            w.known |= EXITING
            if v[1]:
                w.name = <int32_t>v[1]
        return 0

    cdef int on_loss(self, int64_t end, int64_t host, int64_t cpu) except -1 nogil:
        """Nothing is sure any more about what cpus are in that lost events."""
        cdef Py_ssize_t j
        cdef Processor* p
        self.reserve_intervals(self.processor_count)
        for j in range(self.processor_count):
            p = &self.processors[j]
            if p.host == host and (cpu < 0 or p.cpu == cpu):
                p.depth = 0
                p.overflow = 0
                if p.current >= 0 and p.current != p.idle \
                        and self.workers[p.current].doing == RUNNING:
                    self.emit_run(p.current, end)
                    self.workers[p.current].since = end
                p.current = -1
        return 0
