# Lives of threads: forks, programs that they execute, ends, and what there was when the recording
# began.  Included by _replay.pyx.


cdef void follow_lives(Handling* kinds) noexcept nogil:
    kinds[KIND_FORK] = Handling(on_fork, NULL, IN_GAPS, 0, 0)
    kinds[KIND_EXEC] = Handling(on_life, NULL, IN_GAPS, 0, 0)
    kinds[KIND_EXIT] = Handling(on_life, NULL, IN_GAPS, 0, 0)
    kinds[KIND_STATEDUMP] = Handling(on_life, NULL, IN_GAPS, 0, 0)


cdef int on_fork(Replay self, Processor* p, int64_t t, const int64_t* v,
                 const EventSemantics* of) except -1 nogil:
    # Idle is a thread per cpu: no one thread 0 creates anything.
    cdef int32_t parent = worker_of(&self.table, p.host, v[0], t) if v[0] else -1, child
    cdef Worker* w
    cdef ThreadInfo* info
    child = new_incarnation(self, p.host, v[2], t)
    w = &self.table.workers[child]
    info = &self.table.infos[child]
    info.parent = parent
    info.born = t
    info.pid = v[3]
    w.name = <int32_t>v[5]
    w.run_state = STATE_RUN_USER if self.has_syscalls else STATE_RUN
    w.doing = UNBORN
    w.since = t
    if parent >= 0:
        mark_seen(&self.table, parent, t)
    if parent >= 0 and self.table.infos[parent].pid < 0:
        self.table.infos[parent].pid = v[1]
    return DONE


cdef int on_life(Replay self, Processor* p, int64_t t, const int64_t* v,
                 const EventSemantics* of) except -1 nogil:
    """A thread executes a program, ends, or was there when the recording began."""
    cdef int32_t index
    cdef Worker* w
    cdef ThreadInfo* info
    if v[0] == 0:
        return DONE
    index = worker_of(&self.table, p.host, v[0], t)
    w = &self.table.workers[index]
    if of.kind == KIND_STATEDUMP:
        info = &self.table.infos[index]
        if info.pid < 0:
            info.pid = v[1]
        if w.name == 0:
            w.name = <int32_t>v[2]
        # LTTng's thread status: 5 waits for an event.
        if w.doing == NEVER and v[3] == 5:
            w.doing = ASLEEP
            w.since = t
        return DONE
    mark_seen(&self.table, index, t)
    # Linux 6.16 and later write an exit before the memory and the files are released: it may
    # sleep on the way, and lives until a switch says that it is dead.
    if of.kind == KIND_EXIT:
        w.known |= EXITING
        if v[1]:
            w.name = <int32_t>v[1]
    return DONE


cdef int32_t new_incarnation(Replay self, int64_t host, int64_t tid, int64_t t) except -2 nogil:
    """Return a new life of a tid: the old one, if any, has ended."""
    cdef int32_t* number = tid_number(&self.table.tids, host, tid)
    cdef int32_t fresh = new_worker(&self.table, host, tid, t)
    if number[0]:
        end_state(self, number[0] - 1, t)
        self.table.workers[number[0] - 1].doing = DEAD
    number[0] = fresh + 1
    return fresh
