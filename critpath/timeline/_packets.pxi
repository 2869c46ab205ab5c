# Packets: who sent each, when the interrupt work around it ended, and which sleeps one may have
# ended.  Included by _replay.pyx.

ctypedef struct NetEvent:
    int64_t moment
    int64_t end           # of the interrupt work around it
    int32_t worker        # who was on the cpu, -1: idle, or not known
    int32_t next_ran      # the chains that `Processor` begins, -1 none
    int32_t next_stolen

ctypedef struct NetSleep:
    int64_t woken
    int64_t end
    int32_t worker

ctypedef struct Network:
    Rows events, sleeps


cdef void follow_packets(Handling* kinds) noexcept nogil:
    kinds[KIND_NET_SEND] = Handling(on_packet, on_packet, 0, 0, 0)
    kinds[KIND_NET_RECEIVE] = Handling(on_packet, on_packet, 0, 0, 0)


cdef int on_packet(Replay self, Processor* p, int64_t t, const int64_t* v,
                   const EventSemantics* of) except -1 nogil:
    cdef int receives = p != NULL and of.kind == KIND_NET_RECEIVE
    note_packet(&self.packets, &self.table, p, t, receives)
    if receives:
        note_sender(&self.softirqs, p, v[2])
    return DONE


# Network events are few.  Who ran and when an interrupt ended is known after them, so
# each is in a chain of its processor until it is.


cdef void note_packet(Network* network, const ThreadTable* table, Processor* p, int64_t t,
                      int receives) noexcept nogil:
    cdef NetEvent* event = <NetEvent*>network.events.data + network.events.size
    event.moment = t
    event.end = t
    event.worker = -1
    event.next_ran = -1
    event.next_stolen = -1
    if p != NULL and receives:
        event.next_stolen = p.net_stolen
        p.net_stolen = <int32_t>network.events.size
    elif p != NULL:
        if p.ran_worker >= 0 and p.ran_end == t:
            event.worker = thread_or_none(table, p.ran_worker)
        event.next_ran = p.net_ran
        p.net_ran = <int32_t>network.events.size
    network.events.size += 1


cdef inline int32_t thread_or_none(const ThreadTable* table, int32_t worker) noexcept nogil:
    return -1 if table.infos[worker].idle_cpu >= 0 else worker


cdef void assign_senders(Network* network, const ThreadTable* table, Processor* p, int64_t end,
                         int32_t worker) noexcept nogil:
    """A packet's thread is that of the last row that begins at its moment or before."""
    cdef NetEvent* events = <NetEvent*>network.events.data
    cdef NetEvent* event
    cdef int32_t* link = &p.net_ran
    while link[0] >= 0:
        event = &events[link[0]]
        if p.since <= event.moment:
            event.worker = thread_or_none(table, worker) if end >= event.moment else -1
        if p.since > event.moment or end > event.moment:
            link[0] = event.next_ran
        else:
            link = &event.next_ran


cdef void extend_interrupts(Network* network, Processor* p, int64_t begin,
                            int64_t end) noexcept nogil:
    """Interrupt work around a packet: nested interrupts cut it into pieces that touch."""
    cdef NetEvent* events = <NetEvent*>network.events.data
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


cdef void note_sleep(Network* network, int32_t worker, int64_t end, int64_t woken) noexcept nogil:
    cdef NetSleep* sleep = <NetSleep*>network.sleeps.data + network.sleeps.size
    network.sleeps.size += 1
    sleep.worker = worker
    sleep.end = end
    sleep.woken = woken


cdef void forget_sleeps(Network* network, int64_t before) noexcept:
    """Forget sleeps that a packet ended before a time: no packet of later can have."""
    cdef NetSleep* sleeps = <NetSleep*>network.sleeps.data
    cdef Py_ssize_t i, kept = 0
    if network.events.size:
        return
    for i in range(network.sleeps.size):
        if sleeps[i].woken >= before:
            sleeps[kept] = sleeps[i]
            kept += 1
    network.sleeps.size = kept


cdef network_columns(Network* network, const ThreadTable* table):
    """Return what `critpath.timeline.network.NetRecord` has, in its order."""
    cdef Py_ssize_t i, n = network.events.size, m = network.sleeps.size
    cdef NetEvent* events = <NetEvent*>network.events.data
    cdef NetSleep* sleeps = <NetSleep*>network.sleeps.data
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
        host_[i] = <int32_t>table.infos[sleeps[i].worker].host
        woken_[i] = sleeps[i].woken
        slept_[i] = sleeps[i].end
    order = np.lexsort((slept, owner, woken))
    return sent_by, end, owner[order], host[order], woken[order], slept[order]
