# System calls: what a thread is in while it runs, and what one that sleeps in it waits for.
# Included by _replay.pyx.


cdef void follow_calls(Handling* kinds) noexcept nogil:
    kinds[KIND_SYSCALL_ENTRY] = Handling(on_call, NULL, 0, 0, 0)
    kinds[KIND_SYSCALL_EXIT] = Handling(on_call, NULL, 0, 0, 0)
    kinds[KIND_FUTEX] = Handling(on_call, NULL, 0, 0, 0)


cdef int on_call(Replay self, Processor* p, int64_t t, const int64_t* v,
                 const EventSemantics* of) except -1 nogil:
    """The thread that runs begins a system call, or ends one."""
    cdef Worker* w
    if p.current < 0 or p.current == p.idle:
        return DONE
    # It was seen when it came.
    w = &self.table.workers[p.current]
    w.last = t
    if w.doing == RUNNING:
        emit_run(self, p.current, t)
        w.since = t
    note_futex(&self.table, p.current, v[0] if of.kind == KIND_FUTEX else 0)
    w.syscall = of.detail
    w.syscall_state = <int8_t>of.state
    if self.has_syscalls:
        w.run_state = STATE_RUN_USER if of.kind == KIND_SYSCALL_EXIT else STATE_RUN_SYSCALL
    return DONE
