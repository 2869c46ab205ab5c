# Who waits for a processor that a thread has which it asked (docs/critical-path.md, "Asked").
# Included by _replay.pyx.

cdef inline Asker find_asker(const ThreadInfo* info, int32_t asked) noexcept nogil:
    """Return who woke or created a thread; of one that this had asked, and was answered by,
    who had woken it before."""
    if info.by.worker < 0 and info.parent >= 0 and info.awake == info.born:
        # Of a creator it is known that it was awake then.
        return Asker(CREATED, info.born, <int32_t>info.parent)
    if info.by.worker == asked:
        return info.kept
    return Asker(info.by.awake, info.awake, info.by.worker)


cdef void begin_asked(Replay self, Processor* p, int32_t index, int64_t t) noexcept nogil:
    """A thread gets a processor: whoever asked it and waits for that one waits for its work."""
    cdef const ThreadInfo* info = &self.table.infos[index]
    mark_askers(self, p, index, find_asker(info, -1), t)
    if info.by.worker >= 0 and info.by.before == index:
        mark_askers(self, p, index, info.kept, t)


cdef void mark_askers(Replay self, Processor* p, int32_t index, Asker by, int64_t t) noexcept nogil:
    """Mark who asked a thread, and who had asked that one, if it has not slept since."""
    cdef const ThreadInfo* info = &self.table.infos[index]
    cdef ThreadInfo* asker
    cdef Worker* w
    cdef int32_t depth, asked = index
    for depth in range(MOST_ASKING):
        if by.worker < 0 or by.worker == index or p.asking_count == MOST_ASKING:
            return
        asker = &self.table.infos[by.worker]
        w = &self.table.workers[by.worker]
        if asker.awake != by.awake and not (by.awake == CREATED and asker.awake <= by.asked):
            # It has slept since: who had woken it before that is known of the first only.
            if depth or info.by.worker != by.worker:
                return
            asked = by.worker
            by = Asker(info.by.before_awake, by.awake, info.by.before)
            continue
        if w.doing == RUNNABLE and w.cpu == p.cpu and not w.known & YIELDED:
            self.emit(by.worker, t, STATE_WAIT_CPU, 0, w.cpu)
            w.since = t
            w.known |= YIELDED
            asker.behind = index
            asker.asked = by.asked
            p.asking[p.asking_count] = by.worker
            p.asking_count += 1
        by, asked = find_asker(asker, asked), by.worker


cdef inline void emit_wait(Replay self, int32_t index, int64_t t, int32_t cpu) noexcept nogil:
    """End a wait for a processor: it was for who was asked and has it, or for whoever had it."""
    cdef Worker* w = &self.table.workers[index]
    cdef const ThreadInfo* info
    if w.known & YIELDED:
        w.known &= ~YIELDED
        info = &self.table.infos[index]
        self.emit_woken(index, t, STATE_WAIT_CPU, 0, cpu, info.behind, info.asked)
    else:
        self.emit(index, t, STATE_WAIT_CPU, 0, cpu)


cdef void end_asked(Replay self, Processor* p, int64_t t, bint seen) noexcept nogil:
    """A thread leaves a processor, or it is not known when it did."""
    cdef int32_t i, z
    cdef Worker* w
    for i in range(p.asking_count):
        z = p.asking[i]
        w = &self.table.workers[z]
        # It may have got another processor meanwhile.
        if w.known & YIELDED and self.table.infos[z].behind == p.current:
            if seen:
                emit_wait(self, z, t, w.cpu)
                w.since = t
            w.known &= ~YIELDED
    p.asking_count = 0
