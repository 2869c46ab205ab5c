# cython: language_level=3
"""Replay of scheduling events: one pass, events -> intervals with wakers.

The rules are those of docs/critical-path.md (sections "states" and "rules").  The
plain-Python twin that tests compare this with is tests/oracle/replay.py.
"""

from cython cimport final
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset
from posix.stdlib cimport posix_memalign

import numpy as np

include "../model/_packed_rows.pxi"
include "../model/_tids.pxi"
include "_kinds.pxi"
include "_rows.pxi"

cdef enum:
    LINE = 64
    SOON = 8              # events from now, whose threads are asked for
    MOST_INTERVALS = 3    # that one event adds, but for those of who asked (_asked.pxi)
    ALL_OF_TID = (1 << TID_BITS) - 1

    # What a family has done with an event.
    DONE = 0
    ASK = 1               # nothing: what it names is asked for, then it comes again
    # What a family says of a kind of events.
    IN_BASE = 1           # a gap of `base` leaves it out: any within one contradicts it
    IN_GAPS = 2           # it is recorded all the time

# Who asks, where and when; the event's fields in the order of its `Kind`, and its class.
ctypedef int (*Handler)(Replay, Processor*, int64_t, const int64_t*,
                        const EventSemantics*) except -1 nogil

ctypedef struct Handling:
    # What the replay makes of a kind of events.
    Handler handle        # NULL: nothing
    Handler uncounted     # the same without a processor and values, where it may mean nothing
    int32_t flags
    # Which field has the thread that it changes, and the bits of it: none if it has none.
    int32_t thread
    int32_t thread_bits

ctypedef struct EventSemantics:
    # Of an event class: of system calls and vectors the qualifier, and what a thread
    # that it is about waits for (-1: unknown).
    uint8_t kind
    uint8_t flags
    int16_t qualifier     # which field has more to say than the class, -1: none
    int32_t host
    int32_t detail
    int32_t state
    Handler handle        # of its kind; where the thread is: `Handling`
    int32_t thread
    int32_t thread_bits

ctypedef struct Qualifier:
    # What a field's value says: the same as a class may say.
    int32_t detail
    int32_t state

cdef int64_t NEVER_LOST = 0x7FFFFFFFFFFFFFFF
cdef int64_t CREATED = 0x7FFFFFFFFFFFFFFF  # `Asker.awake` of who created a thread

include "_threads.pxi"
include "_gaps.pxi"
include "_asked.pxi"
# A family of events each: its `follow_` says which kinds, its handlers what is made of one.
include "_scheduler.pxi"
include "_lives.pxi"
include "_calls.pxi"
include "_interrupts.pxi"
include "_timers.pxi"
include "_softirqs.pxi"
include "_packets.pxi"
include "_holders.pxi"


cdef void follow_families(Handling* kinds) noexcept nogil:
    follow_scheduler(kinds)
    follow_lives(kinds)
    follow_calls(kinds)
    follow_interrupts(kinds)
    follow_timers(kinds)
    follow_softirqs(kinds)
    follow_packets(kinds)
    follow_locks(kinds)


cdef extern from *:
    """
    #define critpath_assert(condition) _Static_assert(condition, #condition)
    """
    void static_assert "critpath_assert"(bint) noexcept nogil


cdef void check_sizes() noexcept nogil:
    """Do not compile where structs are not whole lines of the cache, or kinds have no bit."""
    static_assert(sizeof(Worker) == 64)
    static_assert(sizeof(ThreadInfo) == 192)
    static_assert(sizeof(Processor) % 64 == 0)
    static_assert(KIND_COUNT <= 64)


# What Python has to know.
CPU_LIMIT = MOST_CPUS

# Fields of an event that has none: of a chunk without values.
cdef int64_t[8] nothing

cdef enum:
    LOAD_SLOTS = 64  # technical: of a recording, for a line of how busy the machine was


cdef struct Load:
    int64_t begin, slot                # ns; slots double as the recording goes on
    int64_t[LOAD_SLOTS] busy           # time on all cpus that threads had (ns)
    int64_t low, high, at              # the slot that was added to last, and its place


cdef inline void add_load(Load* load, int64_t begin, int64_t end) noexcept nogil:
    """Add that a thread had a cpu."""
    cdef int64_t i, until
    if load.low <= begin and end <= load.high:  # as nearly always: no division
        load.busy[load.at] += end - begin
        return
    begin = max(begin, load.begin)
    while end - load.begin > LOAD_SLOTS * load.slot:
        for i in range(LOAD_SLOTS // 2):
            load.busy[i] = load.busy[2 * i] + load.busy[2 * i + 1]
        memset(&load.busy[LOAD_SLOTS // 2], 0, LOAD_SLOTS // 2 * sizeof(int64_t))
        load.slot *= 2
    while begin < end:
        i = (begin - load.begin) // load.slot
        until = min(end, load.begin + (i + 1) * load.slot)
        load.busy[i] += until - begin
        load.at, load.low, load.high = i, load.begin + i * load.slot, load.begin + (i + 1) * load.slot
        begin = until
memset(nothing, 0, sizeof(nothing))


@final
cdef class Replay:
    """The state machine: `feed` it all events, and take the columns when it suits."""

    cdef ThreadTable table
    cdef Network packets
    # Packed rows of threads as they come; the owner and the size of each (_rows.pxi).
    cdef Rows intervals, entries
    cdef bint based               # whether the first block has a base
    cdef int has_waking, has_syscalls
    cdef int32_t no_wake, idle_waker, context_unknown, timer_detail, timer_state
    cdef int64_t[::1] addresses
    cdef int64_t[:, ::1] prev_states   # per host: dead mask, stopped mask, runnable values...
    cdef int8_t* doing_by_state               # [host * KNOWN_STATES + state]
    cdef public uint64_t seen          # a bit for each kind of event that came
    cdef public int64_t contradictions
    cdef Handling[KIND_COUNT] handling
    cdef EventSemantics* classes
    cdef Py_ssize_t class_count
    # What a value of an event's qualifying field says: a number for (kind, value), plus 1.
    cdef Tids qualifier_of
    cdef Qualifier* qualifiers
    cdef Py_ssize_t qualifier_count
    cdef int32_t[::1] softirq_state, softirq_detail
    cdef int64_t[::1] loss_end, loss_host, loss_cpu
    cdef Py_ssize_t lost
    cdef int64_t[:, ::1] gaps, edges, resumed
    cdef Py_ssize_t passed, resumed_at
    cdef uint8_t[::1] closed           # of hosts
    cdef int64_t[::1] last_gap         # of hosts, -1 none
    cdef int32_t[::1] call_states      # by code of a system call
    cdef int closed_hosts
    cdef public int64_t misplaced      # first event in a gap that leaves it out
    cdef public int64_t unplaced
    cdef Softirqs softirqs
    cdef Retries retries
    cdef uint8_t[::1] has_disks        # of hosts
    cdef Load load

    def __dealloc__(self):
        free_table(&self.table)
        tids_clear(&self.qualifier_of)
        free(self.qualifiers)
        free(self.classes)
        free(self.doing_by_state)
        clear(&self.intervals)
        clear(&self.entries)
        clear(&self.packets.events)
        clear(&self.packets.sleeps)
        clear_retries(&self.retries)

    def __init__(self, Py_ssize_t hosts, *, int has_waking, int has_syscalls,
                 dict details, int32_t timer_state, int32_t[::1] softirq_state,
                 int32_t[::1] softirq_detail, int64_t[:, ::1] prev_states,
                 int64_t[:, ::1] losses, int64_t[::1] addresses, int64_t[:, ::1] gaps,
                 int64_t[:, ::1] edges, int64_t[:, ::1] resumed, int32_t[::1] call_states):
        """``losses`` has the rows end, host and cpu, in order of the ends; addresses ascend.

        ``gaps`` are as `critpath.timeline.after_gaps.gap_tables` makes them.
        """
        begin_table(&self.table, hosts)
        memset(self.handling, 0, sizeof(self.handling))
        follow_families(self.handling)
        tids_init(&self.qualifier_of, KIND_COUNT)
        load_prev_states(self, prev_states)
        self.has_waking = has_waking
        self.has_syscalls = has_syscalls
        self.no_wake = details["no_wake"]
        self.idle_waker = details["idle_waker"]
        self.context_unknown = details["context_unknown"]
        self.timer_detail = details["hrtimer"]
        self.addresses = addresses
        self.timer_state = timer_state
        self.softirq_state = softirq_state
        self.softirq_detail = softirq_detail
        self.loss_end, self.loss_host, self.loss_cpu = losses[0], losses[1], losses[2]
        self.lost = 0
        self.gaps, self.edges, self.resumed, self.call_states = gaps, edges, resumed, call_states
        self.passed = self.resumed_at = self.closed_hosts = 0
        self.closed = np.zeros(max(hosts, 1), np.uint8)
        self.last_gap = np.full(max(hosts, 1), -1, np.int64)
        self.misplaced = NEVER_LOST
        self.unplaced = 0
        self.has_disks = np.zeros(max(hosts, 1), np.uint8)
        self.softirqs = Softirqs(
            &self.has_disks[0], &softirq_state[0], NULL, addresses.shape[0],
            details["packet from this host"], details["packet from another host"])
        if addresses.shape[0]:
            self.softirqs.addresses = &addresses[0]
        self.retries.unused = -1

    def add_class(self, int kind, int host, int32_t detail, int32_t state, int qualifier,
                  bint has_success, bint has_target):
        """Add the next event class: see `critpath.timeline.replay.EventSemantics`."""
        cdef EventSemantics* more = <EventSemantics*>realloc(
            self.classes, (self.class_count + 1) * sizeof(EventSemantics))
        if more == NULL:
            raise MemoryError()
        self.classes = more
        more += self.class_count
        self.class_count += 1
        more.kind = <uint8_t>kind
        more.host = host
        more.detail = detail
        more.state = state
        more.qualifier = <int16_t>qualifier
        more.flags = HAS_SUCCESS * has_success | HAS_TARGET * has_target
        more.handle = self.handling[kind].handle
        more.thread = self.handling[kind].thread
        more.thread_bits = self.handling[kind].thread_bits

    def name_ksoftirqd(self, int64_t host, int32_t cpu, int32_t name):
        """Say what the thread is called that runs a processor's softirqs that were deferred."""
        # No thread is called by code 0, which is how a processor begins: asked for once.
        self.table.processors[self.table.processor_of[host * MOST_CPUS + cpu] - 1].ksoftirqd = (
            name or -1)

    def add_qualifier(self, int kind, int64_t value, int32_t detail, int32_t state):
        """Say what a value of the qualifying field means, in all events of a kind."""
        cdef Qualifier* more = <Qualifier*>realloc(
            self.qualifiers, (self.qualifier_count + 1) * sizeof(Qualifier))
        if more == NULL:
            raise MemoryError()
        self.qualifiers = more
        more[self.qualifier_count].detail = detail
        more[self.qualifier_count].state = state
        self.qualifier_count += 1
        tid_number(&self.qualifier_of, kind, value)[0] = <int32_t>self.qualifier_count

    cdef inline int qualify(self, const EventSemantics* of, const int64_t* v,
                            Qualifier* found) except -1 nogil:
        """Fill in what an event's qualifying field says, or its class; 0 if that is not known."""
        cdef int32_t number
        if of.qualifier < 0:
            found.detail = of.detail
            found.state = of.state
            return 1
        number = tid_number(&self.qualifier_of, of.kind, v[of.qualifier])[0]
        if number == 0:
            return 0
        found[0] = self.qualifiers[number - 1]
        return 1

    # ---------------------- intervals of threads, interrupt work of processors: written as they end

    # The rows that an event may add are reserved before it, so that adding one cannot fail.

    cdef void emit(self, int32_t worker, int64_t end, int32_t state, int32_t detail,
                   int32_t cpu) noexcept nogil:
        """End what a worker did without being woken."""
        cdef Worker* w = &self.table.workers[worker]
        cdef char* p = self.intervals.data + self.intervals.size
        if end > w.since:
            self.count_row(worker, end, put_row(p, w.since, end, detail, cpu, <uint8_t>state,
                                                 w.row_end) - p)

    cdef void emit_woken(self, int32_t worker, int64_t end, int32_t state, int32_t detail,
                         int32_t cpu, int32_t waker, int64_t woken) noexcept nogil:
        cdef Worker* w = &self.table.workers[worker]
        cdef char* p = self.intervals.data + self.intervals.size
        if end > w.since:
            self.count_row(worker, end, put_woken(p, w.since, end, woken, detail, cpu, waker,
                                                   <uint8_t>state, w.row_end) - p)

    cdef inline void count_row(self, int32_t worker, int64_t end, Py_ssize_t size) noexcept nogil:
        """Account for a row that was written behind the others."""
        cdef Worker* w = &self.table.workers[worker]
        self.intervals.size += size
        (<int64_t*>self.entries.data)[self.entries.size] = <int64_t>worker << SIZE_BITS | size
        self.entries.size += 1
        w.rows += 1
        w.row_end = end

    cdef inline void emit_cpu_interval(self, Processor* p, int64_t end,
                                       int32_t worker) noexcept nogil:
        cdef char* at = p.ran.bytes.data + p.ran.bytes.size
        count_tail(&p.ran, end, put_ran(at, p.since, end, worker, p.ran.end) - at)
        if p.net_ran >= 0:
            assign_senders(&self.packets, &self.table, p, end, worker)
        if self.table.infos[worker].idle_cpu < 0:
            add_load(&self.load, p.since, end)
        p.ran_end = end
        p.ran_worker = worker

    # -------------------------------------------------------------------------- from event to event

    cdef int reserve_rows(self, Py_ssize_t events) except -1 nogil:
        """Reserve what some events may add."""
        self.reserve_intervals((MOST_INTERVALS + 2 * MOST_ASKING) * events)
        self.reserve_tails(events)
        reserve(&self.packets.events, events, sizeof(NetEvent))
        reserve(&self.packets.sleeps, MOST_INTERVALS * events, sizeof(NetSleep))
        reserve(&self.retries.sleeps, MOST_INTERVALS * events, sizeof(TimedSleep))
        reserve(&self.retries.timed, MOST_INTERVALS * events, sizeof(TimedLength))
        reserve(&self.retries.locks, events, sizeof(int32_t))
        return 0

    def feed(self, const int64_t[::1] timestamp, const int32_t[::1] cpu,
             const int32_t[::1] event_class, const int64_t[::1] offset,
             const int64_t[::1] values, Py_ssize_t begin):
        """Replay events from one of them on.

        Returns where it stopped: at the end, at an event with a qualifier that
        `add_qualifier` did not explain yet, or at a cpu that no machine has.
        """
        cdef Py_ssize_t i = begin, n = timestamp.shape[0], end
        cdef const int64_t* all_values = &nothing[0]
        if values.shape[0]:
            all_values = &values[0]
        if begin >= n:
            return n
        self.begin_block(timestamp[0])
        with nogil:
            while i < n:
                end = min(i + SLICE, n)
                self.reserve_rows(SLICE)
                i = self.replay_slice(&timestamp[0], &cpu[0], &event_class[0], &offset[0],
                                  all_values, max(values.shape[0], 1), i, end)
                if i < end:
                    break
        return i

    cdef inline void prefetch_thread(self, const EventSemantics* semantics,
                                     int64_t tid) noexcept nogil:
        """Ask for what is known of a thread that an event will change soon.

        Without a branch on what the event is: those would be guessed wrong once more.
        """
        cdef size_t thread = <size_t>tid & <size_t>semantics.thread_bits
        cdef int32_t* numbers = self.table.tids.pages[
            (<size_t>semantics.host << (TID_BITS - TID_PAGE_BITS)) + (thread >> TID_PAGE_BITS)]
        cdef Py_ssize_t place
        if numbers != NULL:
            # Of a thread that has no number yet: some line that is not needed.
            place = <Py_ssize_t>numbers[thread & (TID_PAGE - 1)] - 1
            prefetch(<void*>(<char*>self.table.workers + place * sizeof(Worker)))
            prefetch(<void*>(<char*>self.table.infos + place * sizeof(ThreadInfo)))
            prefetch(<void*>(<char*>self.table.infos + place * sizeof(ThreadInfo) + LINE))

    cdef Py_ssize_t replay_slice(self, const int64_t* timestamp, const int32_t* cpu,
                             const int32_t* event_class, const int64_t* offset,
                             const int64_t* values, Py_ssize_t value_count,
                             Py_ssize_t begin, Py_ssize_t end) except -1 nogil:
        cdef Py_ssize_t i, soon
        cdef int64_t t
        cdef int32_t place
        cdef Processor* p
        cdef EventSemantics* semantics
        cdef int64_t next_stop = pass_stops(self, timestamp[begin] if begin < end else 0)
        for i in range(begin, end):
            soon = min(i + SOON, end - 1)
            semantics = &self.classes[event_class[soon]]
            self.prefetch_thread(
                semantics, values[min(offset[soon] + semantics.thread, value_count - 1)])
            semantics = &self.classes[event_class[i]]
            # Also of events that mean nothing here: the trace is damaged.
            if cpu[i] >= MOST_CPUS:
                return i
            if semantics.kind == 0:
                continue
            t = timestamp[i]
            if next_stop <= t:
                next_stop = pass_stops(self, t)
            if self.closed_hosts and is_passed_over(self, semantics, t):
                continue
            self.seen |= <uint64_t>1 << semantics.kind
            if cpu[i] < 0:
                self.unplaced += 1
                if self.handling[semantics.kind].uncounted != NULL:
                    self.handling[semantics.kind].uncounted(self, NULL, t, NULL, semantics)
                continue
            place = self.table.processor_of[<size_t>semantics.host * MOST_CPUS + <size_t>cpu[i]]
            if place == 0:
                new_processor(&self.table, semantics.host, cpu[i], t)
                place = <int32_t>self.table.processor_count
                if self.last_gap[semantics.host] >= 0:
                    self.table.processors[place - 1].hidden = NOBODY_KNOWN
            p = &self.table.processors[place - 1]
            if semantics.handle != NULL and semantics.handle(
                    self, p, t, values + offset[i], semantics) == ASK:
                return i
        return end

    def close_all(self, int64_t end):
        """End everything that goes on at the end of the recording."""
        cdef int32_t j
        cdef Processor* p
        with nogil:
            pass_stops(self, end - 1)
            # One row of each thread, one of each kind of each processor.
            self.reserve_intervals(self.table.worker_count)
            reserve(&self.packets.sleeps, self.table.worker_count, sizeof(NetSleep))
            reserve(&self.retries.sleeps, self.table.worker_count, sizeof(TimedSleep))
            reserve(&self.retries.timed, self.table.worker_count, sizeof(TimedLength))
            self.reserve_tails(1)
            for j in range(<int32_t>self.table.worker_count):
                if self.table.infos[j].idle_cpu < 0:
                    end_state(self, j, end)
            for j in range(<int32_t>self.table.processor_count):
                p = &self.table.processors[j]
                emit_interrupt(self, p, end)
                if p.current >= 0 and end > p.since:
                    self.emit_cpu_interval(p, end, p.current)

    # -------------------------------------------------------------------------- from block to block

    @property
    def waiting(self):
        """Rows since the last cut."""
        cdef Py_ssize_t i, rows = self.entries.size
        for i in range(self.table.processor_count):
            rows += self.table.processors[i].stolen.rows + self.table.processors[i].ran.rows
        return rows

    cdef int reserve_intervals(self, Py_ssize_t count) except -1 nogil:
        reserve(&self.intervals, ROW * count + BEHIND, 1)
        reserve(&self.entries, count, sizeof(int64_t))
        return 0

    cdef int reserve_tails(self, Py_ssize_t count) except -1 nogil:
        cdef Py_ssize_t i
        for i in range(self.table.processor_count):
            reserve(&self.table.processors[i].stolen.bytes, ROW * count + BEHIND, 1)
            reserve(&self.table.processors[i].ran.bytes, ROW * count + BEHIND, 1)
        return 0

    cdef void begin_block(self, int64_t base) noexcept nogil:
        """Have a base for the first block."""
        if not self.based:
            self.based = True
            self.table.base = base
            self.load.begin, self.load.slot = base, 1 << 20

    def packed(self, int last, int64_t cut, take, keep):
        """Return and forget the block: its base, and its tables.

        What threads did, interrupt work, who ran: of each how many owners and rows there
        are, and the rows as `critpath.model.packing` reads them.  ``take`` gives memory for
        a number of bytes to work in, ``keep`` memory that will be kept.  The next block
        has the cut for a base.
        """
        base = self.table.base
        tables = [sorted_intervals(&self.table, &self.intervals, &self.entries, take, keep),
                  joined_tails(&self.table, 0, keep), joined_tails(&self.table, 1, keep)]
        self.table.base = cut
        for i in range(self.table.worker_count):
            self.table.workers[i].row_end = cut
            self.table.workers[i].rows = 0
        for i in range(self.table.processor_count):
            forget_tail(&self.table.processors[i].stolen, last, cut)
            forget_tail(&self.table.processors[i].ran, last, cut)
        forget(&self.intervals, last)
        forget(&self.entries, last)
        return base, tables

    def forget_sleeps(self, int64_t before):
        """Forget sleeps that a packet ended before a time: no packet of later can have."""
        forget_sleeps(&self.packets, before)

    def network(self):
        """Return what `critpath.timeline.network.NetRecord` has, in its order."""
        return network_columns(&self.packets, &self.table)

    def holders(self):
        """Return what `critpath.timeline.holders.HolderRecord` has, in its order."""
        return holder_columns(&self.retries)

    def busy(self, int64_t end):
        """Return how long a slot is (ns), and the cpu time (ns) that threads had in each until then."""
        if self.load.slot == 0 or end - self.load.begin < self.load.slot:
            return 0, []
        used = min((end - self.load.begin) // self.load.slot, LOAD_SLOTS)
        return self.load.slot, [self.load.busy[i] for i in range(used)]

    def worker_table(self):
        """Return the workers' columns as a dict of arrays."""
        return worker_columns(&self.table)

    def processor_table(self):
        """Return (host, cpu) of every processor seen."""
        return tuple((self.table.processors[i].host, self.table.processors[i].cpu)
                     for i in range(self.table.processor_count))
