# Whose doing a softirq is: of the thread that raised it, of a device, of a timer (docs/critical-path.md,
# "Local peers").  Included by _replay.pyx.

cdef enum:
    # ftrace's common_flags: an interrupt or an NMI, of which there may be no event.
    IN_INTERRUPT = 0x08 | 0x40
    NET_RX = 3
    SAME_BATCH = 2000     # ns from one softirq to the next that the same interrupt caused

ctypedef struct Softirqs:
    uint8_t* has_disks            # per host: whether a storage device interrupted
    const int32_t* state          # what each is waited for
    const int64_t* addresses      # the host's own, ascending
    Py_ssize_t address_count
    int32_t local                 # details of waits for a packet
    int32_t remote


cdef void follow_softirqs(Handling* kinds) noexcept nogil:
    kinds[KIND_SOFTIRQ_RAISE] = Handling(on_raise, NULL, IN_BASE, 0, 0)
    kinds[KIND_SOFTIRQ_ENTRY] = Handling(on_softirq_entry, NULL, IN_BASE, 0, 0)
    kinds[KIND_SOFTIRQ_EXIT] = Handling(on_softirq_exit, NULL, IN_BASE, 0, 0)


cdef int on_raise(Replay self, Processor* p, int64_t t, const int64_t* v,
                  const EventSemantics* of) except -1 nogil:
    if p.ksoftirqd == 0:
        return ASK
    note_raise(&self.softirqs, &self.table, p, t, v[0], v[1])
    return DONE


cdef int on_softirq_entry(Replay self, Processor* p, int64_t t, const int64_t* v,
                          const EventSemantics* of) except -1 nogil:
    cdef int32_t which = <int32_t>self.softirq_state.shape[0] - 1
    if p.ksoftirqd == 0:
        return ASK
    if 0 <= v[0] < which:
        which = <int32_t>v[0]
    enter(self, p, t, C_SOFTIRQ, <int32_t>v[0], self.softirq_state[which],
          self.softirq_detail[which], STATE_SOFTIRQ)
    find_doer(&self.softirqs, &self.table, p, t, v[0])
    return DONE


cdef int on_softirq_exit(Replay self, Processor* p, int64_t t, const int64_t* v,
                         const EventSemantics* of) except -1 nogil:
    leave(self, p, t, C_SOFTIRQ, <int32_t>v[0])
    after_softirq(p, t, v[0])
    return DONE


cdef inline bint can_raise(const ThreadTable* table, const Processor* p) noexcept nogil:
    """Whether a thread runs here that a softirq can be the doing of."""
    return (p.current >= 0 and p.current != p.idle
            and table.workers[p.current].name != p.ksoftirqd)


cdef inline void find_cause(const Softirqs* softirqs, const ThreadTable* table, Processor* p,
                            int64_t t, int64_t vec, int64_t flags, Cause* cause) noexcept nogil:
    """Fill in what raises a softirq now: the innermost context, or the thread that runs."""
    cdef Context* top
    cause.known = 0
    cause.at = t
    cause.worker = -1
    if p.hidden & NOBODY_KNOWN and p.depth == 0 or (
            p.depth and p.stack[p.depth - 1].kind == C_HIDDEN):
        hide_cause(cause, t)
        return
    if p.depth == 0:
        # Completions may come by an interrupt between processors, of which there is no event.
        if flags & IN_INTERRUPT or not can_raise(table, p) or (
                vec == BLOCK and flags == 0 and softirqs.has_disks[p.host]):
            return
        cause.known = 1
        cause.worker = p.current
        return
    top = &p.stack[p.depth - 1]
    if top.kind == C_SOFTIRQ and top.cause.known:
        cause[0] = top.cause
        if cause.worker == p.current:
            cause.at = t
        elif cause.worker < 0 and cause.state != STATE_WAIT_TIMER:
            cause.state = softirqs.state[vec]
    elif top.kind == C_SOFTIRQ and top.state == STATE_WAIT_TIMER:
        cause.known = 1
        cause.state = STATE_WAIT_TIMER
        cause.detail = top.detail
    elif top.kind == C_IRQ:
        cause.known = 1
        cause.state = softirqs.state[vec]
        cause.detail = top.detail


cdef inline void note_raise(const Softirqs* softirqs, const ThreadTable* table, Processor* p,
                            int64_t t, int64_t vec, int64_t flags) noexcept nogil:
    cdef Cause cause
    cdef Cause* before
    p.has_raises = 1
    if 0 <= vec < RAISED:
        p.hidden &= ~(1 << FIRST_HIDDEN << vec)
    if not FIRST_RAISED <= vec < RAISED:
        return
    find_cause(softirqs, table, p, t, vec, flags, &cause)
    before = &p.raised[vec]
    # Of several the last; but no thread is blamed for what may be another's doing.
    if not p.pending >> vec & 1 or (before.known and before.worker >= 0):
        before[0] = cause
    p.pending |= 1 << vec


cdef inline void find_doer(const Softirqs* softirqs, const ThreadTable* table, Processor* p,
                           int64_t t, int64_t vec) noexcept nogil:
    """Say whose doing the softirq is that has just been entered."""
    cdef Context* top = &p.stack[p.depth - 1]
    if p.overflow:
        return
    p.sender = 0
    if t <= p.interrupted and vec != p.left:
        p.interrupted = NEVER_LOST
    if not FIRST_RAISED <= vec < RAISED:
        return
    if p.has_raises:
        if p.pending >> vec & 1:
            top.cause = p.raised[vec]
        elif p.hidden >> FIRST_HIDDEN >> vec & 1:
            hide_cause(&top.cause, t)
        p.pending &= ~(1 << vec)
        p.hidden &= ~(1 << FIRST_HIDDEN << vec)
    elif (p.depth == 1 and p.interrupted != NEVER_LOST and vec <= BLOCK and can_raise(table, p)
            and not (vec == BLOCK and softirqs.has_disks[p.host])):
        top.cause.known = 1
        top.cause.worker = p.current
        top.cause.at = t
        if p.interrupted == UNSURE:
            hide_cause(&top.cause, t)
    top.answers = top.cause.known and vec <= BLOCK


cdef inline bint receives(const Processor* p) noexcept nogil:
    """Whether packets are being received here."""
    return (p.depth > 0 and p.stack[p.depth - 1].kind == C_SOFTIRQ
            and p.stack[p.depth - 1].key == NET_RX)


cdef inline int32_t sender_of(const Softirqs* softirqs, int64_t address) noexcept nogil:
    """Tell what a packet's source address says; -1 where that is not known."""
    cdef Py_ssize_t low = 0, high = softirqs.address_count, middle
    if address == 0 or high == 0:
        return -1
    while low < high:
        middle = (low + high) // 2
        if softirqs.addresses[middle] < address:
            low = middle + 1
        else:
            high = middle
    if low < softirqs.address_count and softirqs.addresses[low] == address:
        return softirqs.local
    return softirqs.remote


cdef inline void note_sender(const Softirqs* softirqs, Processor* p,
                             int64_t address) noexcept nogil:
    """Say where a packet came from; of several that differ, any may wake who is woken next."""
    cdef int32_t sender = sender_of(softirqs, address)
    if receives(p) and p.sender != sender:
        p.sender = sender if p.sender == 0 else -1


cdef inline void name_packet(const Softirqs* softirqs, const Processor* p, int32_t* detail,
                             int32_t state) noexcept nogil:
    """Say of a wait whose packet that was; a device stays named, as it is from outside."""
    if p.sender > 0 and receives(p) and state == STATE_WAIT_NET and (
            p.sender == softirqs.local or detail[0] == p.stack[p.depth - 1].detail):
        detail[0] = p.sender


cdef inline void after_softirq(Processor* p, int64_t t, int64_t vec) noexcept nogil:
    p.left = <int32_t>vec
    if p.interrupted != UNSURE:
        p.interrupted = t + SAME_BATCH if p.interrupted == NEVER_LOST else 0
