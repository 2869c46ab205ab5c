# Interrupts of devices and between processors, and the stack of contexts that a processor is in.
# Included by _replay.pyx.

cdef enum:
    # Interrupt contexts, as the exit event must match its entry.
    C_IRQ = 1
    C_SOFTIRQ = 2
    C_TIMER = 3
    C_VECTOR = 4
    C_HIDDEN = 5    # which, a gap has hidden


cdef void follow_interrupts(Handling* kinds) noexcept nogil:
    kinds[KIND_IRQ_ENTRY] = Handling(on_irq_entry, NULL, IN_BASE, 0, 0)
    kinds[KIND_IRQ_EXIT] = Handling(on_irq_exit, NULL, IN_BASE, 0, 0)
    kinds[KIND_VECTOR_ENTRY] = Handling(on_vector_entry, NULL, IN_BASE, 0, 0)
    kinds[KIND_VECTOR_EXIT] = Handling(on_vector_exit, NULL, IN_BASE, 0, 0)


cdef int on_irq_entry(Replay self, Processor* p, int64_t t, const int64_t* v,
                      const EventSemantics* of) except -1 nogil:
    cdef Qualifier device
    if not self.qualify(of, v, &device):
        return ASK
    self.has_disks[p.host] |= device.state == STATE_WAIT_DISK
    p.interrupted = NEVER_LOST
    enter(self, p, t, C_IRQ, <int32_t>v[0], device.state, device.detail, STATE_IRQ)
    return DONE


cdef int on_irq_exit(Replay self, Processor* p, int64_t t, const int64_t* v,
                     const EventSemantics* of) except -1 nogil:
    leave(self, p, t, C_IRQ, <int32_t>v[0])
    return DONE


cdef int on_vector_entry(Replay self, Processor* p, int64_t t, const int64_t* v,
                         const EventSemantics* of) except -1 nogil:
    p.interrupted = NEVER_LOST
    enter(self, p, t, C_VECTOR, of.detail, of.state, of.detail, STATE_IRQ)
    return DONE


cdef int on_vector_exit(Replay self, Processor* p, int64_t t, const int64_t* v,
                        const EventSemantics* of) except -1 nogil:
    leave(self, p, t, C_VECTOR, of.detail)
    return DONE


cdef inline void enter(Replay self, Processor* p, int64_t t, int kind, int32_t key, int32_t state,
                       int32_t detail, int shown) noexcept nogil:
    cdef Context* top
    if p.depth == DEPTH:
        p.overflow += 1
        return
    emit_interrupt(self, p, t)
    top = &p.stack[p.depth]
    top.kind = kind
    top.key = key
    top.state = state
    top.detail = detail
    top.shown = shown
    top.answers = 0
    top.cause.known = 0
    p.depth += 1
    p.top_since = t


cdef inline void leave(Replay self, Processor* p, int64_t t, int kind, int32_t key) noexcept nogil:
    cdef int i
    if p.overflow:
        p.overflow -= 1
        return
    # Down to the matching entry: contexts above it have lost their exit.
    i = p.depth - 1
    while i >= 0 and not (p.stack[i].kind == kind and p.stack[i].key == key) \
            and p.stack[i].kind != C_HIDDEN:
        i -= 1
    if i < 0:
        return
    emit_interrupt(self, p, t)
    p.depth = i
    p.top_since = t


cdef inline void emit_interrupt(Replay self, Processor* p, int64_t t) noexcept nogil:
    cdef char* at = p.stolen.bytes.data + p.stolen.bytes.size
    if p.depth and t > p.top_since:
        count_tail(&p.stolen, t, put_stolen(at, p.top_since, t,
                                            <uint8_t>p.stack[p.depth - 1].shown,
                                            p.stack[p.depth - 1].detail, p.stolen.end) - at)
        if p.net_stolen >= 0:
            extend_interrupts(&self.packets, p, p.top_since, t)
