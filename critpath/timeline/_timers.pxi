# Timers: their interrupts, and which function the softirq TIMER calls.  Included by _replay.pyx.


cdef void follow_timers(Handling* kinds) noexcept nogil:
    kinds[KIND_TIMER_ENTRY] = Handling(on_timer_entry, NULL, IN_BASE, 0, 0)
    kinds[KIND_TIMER_EXIT] = Handling(on_timer_exit, NULL, IN_BASE, 0, 0)
    kinds[KIND_TIMER_FUNCTION] = Handling(on_timer_function, NULL, 0, 0, 0)


cdef int on_timer_entry(Replay self, Processor* p, int64_t t, const int64_t* v,
                        const EventSemantics* of) except -1 nogil:
    p.interrupted = NEVER_LOST
    enter(self, p, t, C_TIMER, 0, self.timer_state, self.timer_detail, STATE_IRQ)
    return DONE


cdef int on_timer_exit(Replay self, Processor* p, int64_t t, const int64_t* v,
                       const EventSemantics* of) except -1 nogil:
    leave(self, p, t, C_TIMER, 0)
    return DONE


cdef int on_timer_function(Replay self, Processor* p, int64_t t, const int64_t* v,
                           const EventSemantics* of) except -1 nogil:
    cdef Qualifier function
    if not self.qualify(of, v, &function):
        return ASK
    name_timer(p, t, function.detail)
    return DONE


cdef inline void name_timer(Processor* p, int64_t t, int32_t function) noexcept nogil:
    """Say which function the softirq TIMER calls until the next."""
    cdef Context* top = &p.stack[p.depth - 1]
    if p.depth and not p.overflow and top.kind == C_SOFTIRQ and top.state == STATE_WAIT_TIMER:
        top.cause.known = top.answers = 1
        top.cause.at = t
        top.cause.worker = -1
        top.cause.state = STATE_WAIT_TIMER
        top.cause.detail = function
