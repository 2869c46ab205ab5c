# Threads and processors: which worker a thread id is, which place a cpu, and their tables of packed
# rows.  Included by _replay.pyx.

cdef enum:
    # What a thread is doing now.
    NEVER = 0       # not observed yet
    RUNNING = 1
    RUNNABLE = 2
    ASLEEP = 3
    STOPPED = 4
    DEAD = 5
    LOST = 6        # observed, but an event that should have been there was not
    UNBORN = 7      # forked, not yet woken for the first time
    HIDDEN = 8      # since a gap: its first event tells what it was doing at the end of that
    OBSCURE = 9     # the same, but only a switch tells anything

    # What is known of a worker.
    SEEN = 1              # since ThreadInfo.first
    EXITING = 2
    RETRYING = 4          # its last sleep was ended by a timer, and it has run shortly since
    REFUSED = 8           # it tried to get a file lock, and has not slept since
    IN_FUTEX = 16         # it is in that system call, and the address is known
    YIELDED = 32          # it waits for the cpu that a thread has which it asked

    DEPTH = 16      # of interrupt contexts
    # Softirqs of which it is kept who raised them: NET_TX, NET_RX, BLOCK, TASKLET.
    FIRST_RAISED = 2
    BLOCK = 4
    TASKLET = 6
    RAISED = TASKLET + 1
    MOST_ASKING = 7  # who wait for a processor that a thread has which they asked

ctypedef struct Worker:
    # What events ask for and change: one line of the cache.
    int64_t since
    int64_t woken         # time of the wake that was seen, -1 none
    int64_t last
    int64_t row_end       # of its last row since the last cut, or the block's base
    int32_t waker         # source worker, -1: not a thread
    int32_t wake_detail   # what that wake means; of a thread's, how long it took to arrive (ns)
    int32_t name
    int32_t cpu
    int32_t syscall       # code of the system call the thread is in, 0 none
    int8_t doing
    int8_t wake_state
    int8_t pending        # the wake came while the thread was still running
    int8_t known          # a bit each: SEEN, EXITING, RETRYING, REFUSED, IN_FUTEX, YIELDED
    int8_t run_state      # what it is in while it runs: STATE_RUN while system calls are unknown
    int8_t syscall_state  # what one asleep in it waits for, -1: unknown
    int32_t rows          # since the last cut

ctypedef struct Waker:
    # Who woke a thread and who had woken that one: each since when it had not slept then.
    int64_t awake
    int64_t before_awake
    int64_t futex         # that it just woke somebody by, 0 none
    int32_t worker        # -1: no thread
    int32_t before

ctypedef struct Asker:
    int64_t awake         # since when it had not slept
    int64_t asked         # when
    int32_t worker        # -1: no thread

ctypedef struct ThreadInfo:
    # What a worker is, by lines of the cache: of sleeps, of what goes on, and what is rarely asked.
    int64_t awake         # since when it has not slept
    Waker by              # who ended its last sleep,
    Asker kept            # who woke it last, but for those that it had woken: they answered
    Waker noted           # as `by`, where its sleep is not over
    int64_t futex         # of the call that it is in, while it is IN_FUTEX
    int64_t ran           # since a timer ended its last sleep
    int32_t tried         # the timed sleep before: see _holders.pxi,
    int32_t first_tried   # and the first of that wait
    int32_t behind        # who has its cpu, while it is YIELDED,
    int32_t idle_cpu
    int64_t asked         # and when it asked whom it waits for
    int64_t parent
    int64_t born
    int64_t first         # event in which it was on a cpu, or changed itself; -1 none
    int64_t tid
    int64_t host
    int64_t pid
    int32_t attempt       # at a file lock, that was refused

ctypedef struct Cause:
    # Whose doing a softirq is: a thread's that raised it, or what was going on then.
    int64_t at
    int32_t known         # 0: nobody's that is known, and the rest means nothing
    int32_t worker        # -1: no thread
    int32_t state         # what is waited for that it ends, unless it is a thread's
    int32_t detail

ctypedef struct Context:
    Cause cause
    int32_t kind
    int32_t key
    int32_t state         # what a thread woken from here was waiting for
    int32_t detail
    int32_t shown         # STATE_IRQ or STATE_SOFTIRQ
    int32_t answers       # whether what is woken from here was woken by the cause

ctypedef struct Processor:
    int64_t since
    int64_t top_since
    int64_t current_tid   # as the last switch names it
    int32_t current       # worker, -1 unknown
    int32_t idle          # worker
    int32_t host
    int32_t cpu
    int32_t index
    int32_t depth
    int32_t overflow      # contexts beyond DEPTH, to be popped unseen
    # Network events for which it is open who ran, and when the interrupt ends: the
    # first of a chain, -1 none.
    int32_t net_ran
    int32_t net_stolen
    int32_t ran_worker    # of the last row of occupation
    int64_t ran_end
    Tail stolen, ran
    Context stack[DEPTH]
    Cause raised[RAISED]  # what the softirqs that are pending were raised by
    int64_t interrupted   # until when a softirq that begins is an interrupt's doing
    int32_t pending       # a bit for each softirq that was raised
    int32_t has_raises    # whether the trace tells of raises here
    int32_t ksoftirqd     # code of its name, 0: not asked for yet
    int32_t left          # the softirq that ended last
    int32_t sender        # of the packets of this softirq: detail of a wait, 0 none yet, -1 open
    int32_t hidden        # since a gap: NOBODY_KNOWN, a bit for each softirq
    int32_t asking[MOST_ASKING]  # who asked the current thread and wait for this cpu
    int32_t asking_count

ctypedef struct ThreadTable:
    # The workers and processors seen so far.
    Worker* workers
    ThreadInfo* infos
    Py_ssize_t worker_count, worker_capacity
    Tids tids                 # living worker of (host, tid), plus 1
    Processor* processors
    Py_ssize_t processor_count, processor_capacity
    int32_t* processor_of     # [host * MOST_CPUS + cpu], plus 1
    Py_ssize_t hosts
    int64_t* hidden_since     # of hosts, the begin of the first gap; -1 none
    int64_t base              # of the block: see _packed_rows.pxi


cdef void* grown(void* old, Py_ssize_t used, Py_ssize_t more, Py_ssize_t item) except NULL nogil:
    """Return a larger piece of memory that begins at a line of the cache."""
    cdef void* fresh = NULL
    if posix_memalign(&fresh, 64, more * item):
        with gil:
            raise MemoryError()
    if used:
        memcpy(fresh, old, used * item)
    free(old)
    return fresh


cdef int begin_table(ThreadTable* table, Py_ssize_t hosts) except -1:
    cdef Py_ssize_t i
    table.hosts = hosts
    table.worker_count = 0
    table.worker_capacity = 1024
    table.workers = <Worker*>grown(NULL, 0, table.worker_capacity, sizeof(Worker))
    table.infos = <ThreadInfo*>grown(NULL, 0, table.worker_capacity, sizeof(ThreadInfo))
    tids_init(&table.tids, hosts)
    table.processor_count = 0
    table.processor_capacity = 16
    table.processors = <Processor*>grown(NULL, 0, table.processor_capacity, sizeof(Processor))
    # Memory of calloc that is not touched costs nothing.
    table.processor_of = <int32_t*>calloc(hosts * MOST_CPUS, sizeof(int32_t))
    if table.processor_of == NULL:
        raise MemoryError()
    table.hidden_since = <int64_t*>calloc(hosts + 1, sizeof(int64_t))
    if table.hidden_since == NULL:
        raise MemoryError()
    for i in range(hosts):
        table.hidden_since[i] = -1
    return 0


cdef int32_t new_worker(ThreadTable* table, int64_t host, int64_t tid, int64_t t) except -2 nogil:
    cdef Py_ssize_t n = table.worker_count
    if n == table.worker_capacity:
        table.workers = <Worker*>grown(table.workers, n, 2 * n, sizeof(Worker))
        table.infos = <ThreadInfo*>grown(table.infos, n, 2 * n, sizeof(ThreadInfo))
        table.worker_capacity = 2 * n
    cdef Worker* w = &table.workers[n]
    memset(w, 0, sizeof(Worker))
    w.last = -1
    w.doing = NEVER
    w.cpu = -1
    w.row_end = table.base
    w.since = t
    if table.hidden_since[host] >= 0:
        # It may have been there all the time.
        w.doing = OBSCURE
        w.since = table.hidden_since[host]
    w.waker = -1
    w.woken = -1
    w.run_state = STATE_RUN
    w.syscall_state = -1
    cdef ThreadInfo* info = &table.infos[n]
    info.tid = tid
    info.first = -1
    info.host = host
    info.pid = -1
    info.parent = -1
    info.born = -1
    info.awake = t
    info.by.worker = info.by.before = info.noted.worker = info.noted.before = -1
    info.kept.worker = -1
    info.idle_cpu = -1
    table.worker_count += 1
    return <int32_t>n


cdef inline int32_t worker_of(ThreadTable* table, int64_t host, int64_t tid,
                              int64_t t) except -2 nogil:
    """Return the living worker of a tid, made now if it was never seen."""
    cdef int32_t* number = tid_number(&table.tids, host, tid)
    if not number[0]:
        number[0] = new_worker(table, host, tid, t) + 1
    return number[0] - 1


cdef int new_processor(ThreadTable* table, int64_t host, int32_t cpu,
                       int64_t t) except -1 nogil:
    cdef Py_ssize_t n = table.processor_count
    cdef int32_t idle = new_worker(table, host, 0, t)
    cdef Processor* p
    table.workers[idle].doing = NEVER
    table.workers[idle].since = t
    table.infos[idle].idle_cpu = cpu
    table.infos[idle].pid = 0
    if n == table.processor_capacity:
        table.processors = <Processor*>grown(table.processors, n, 2 * n, sizeof(Processor))
        table.processor_capacity = 2 * n
    p = &table.processors[n]
    memset(p, 0, sizeof(Processor))
    p.host = <int32_t>host
    p.cpu = cpu
    p.index = <int32_t>n
    p.current = -1
    p.since = t
    p.idle = idle
    p.net_ran = -1
    p.net_stolen = -1
    p.ran_worker = -1
    p.stolen.end = p.ran.end = table.base
    reserve(&p.stolen.bytes, ROW * SLICE + BEHIND, 1)
    reserve(&p.ran.bytes, ROW * SLICE + BEHIND, 1)
    table.processor_count += 1
    table.processor_of[host * MOST_CPUS + cpu] = <int32_t>table.processor_count
    return 0


cdef inline Worker* mark_seen(ThreadTable* table, int64_t index, int64_t t) noexcept nogil:
    cdef Worker* w = &table.workers[index]
    if not w.known & SEEN:
        w.known |= SEEN
        table.infos[index].first = t
    w.last = t
    return w


cdef void free_table(ThreadTable* table) noexcept:
    cdef Py_ssize_t i
    for i in range(table.processor_count):
        clear(&table.processors[i].stolen.bytes)
        clear(&table.processors[i].ran.bytes)
    free(table.workers)
    free(table.infos)
    free(table.processors)
    free(table.processor_of)
    free(table.hidden_since)
    tids_clear(&table.tids)


# ---------------------------------------------------------------------------- tables of packed rows

cdef sorted_intervals(ThreadTable* table, const Rows* intervals, const Rows* entries, take,
                      keep):
    """Return the table of what threads did."""
    cdef Py_ssize_t i, owners = table.worker_count, rows = entries.size
    cdef int64_t heads = 0
    # Places and sizes are of 32 bits; only what is not cut into blocks has so much.
    if intervals.size >> 32:
        raise MemoryError()
    cdef int32_t[::1] start = take(4 * (owners + 2)).view(np.int32)
    cdef uint32_t[::1] order = take(4 * (rows + 1)).view(np.uint32)
    with nogil:
        start[0] = start[1] = 0
        for i in range(owners):
            start[i + 2] = start[i + 1] + table.workers[i].rows
            heads += owner_bytes(table.workers[i].rows)
    data = keep(heads + intervals.size + BEHIND)
    cdef uint8_t[::1] out = data
    cdef char* end
    with nogil:
        end = put_sorted(<char*>&out[0], intervals.data, <int64_t*>entries.data,
                         rows, &start[0], owners, &order[0])
        memset(end, 0, BEHIND)
    return owners, rows, data


cdef joined_tails(ThreadTable* table, int which, keep):
    """Return the table of interrupt work, or of who ran."""
    cdef Py_ssize_t i, owners = table.processor_count, rows = 0
    cdef int64_t size = 0
    cdef Tail* tail
    for i in range(owners):
        tail = &table.processors[i].ran if which else &table.processors[i].stolen
        rows += tail.rows
        size += owner_bytes(tail.rows) + tail.bytes.size
    data = keep(size + BEHIND)
    cdef uint8_t[::1] out = data
    cdef char* own = <char*>&out[0]
    cdef char* p = own
    for i in range(owners):
        tail = &table.processors[i].ran if which else &table.processors[i].stolen
        p = put_owner(p, tail.rows)
    for i in range(owners):
        tail = &table.processors[i].ran if which else &table.processors[i].stolen
        own = put_size(own, tail.rows, tail.bytes.size)
        memcpy(p, tail.bytes.data, tail.bytes.size)
        p += tail.bytes.size
    memset(p, 0, BEHIND)
    return owners, rows, data


cdef worker_columns(const ThreadTable* table):
    """Return the workers' columns as a dict of arrays."""
    cdef Py_ssize_t i, n = table.worker_count
    names = ("host", "tid", "pid", "first", "last", "parent", "born")
    columns = {name: np.empty(n, np.int64) for name in names}
    columns["name"] = np.empty(n, np.int32)
    columns["idle_cpu"] = np.empty(n, np.int32)
    cdef int64_t[::1] host = columns["host"], tid = columns["tid"], pid = columns["pid"]
    cdef int64_t[::1] first = columns["first"], last = columns["last"]
    cdef int64_t[::1] parent = columns["parent"], born = columns["born"]
    cdef int32_t[::1] name_ = columns["name"], idle_cpu = columns["idle_cpu"]
    for i in range(n):
        host[i] = table.infos[i].host
        tid[i] = table.infos[i].tid
        pid[i] = table.infos[i].pid
        first[i] = table.infos[i].first
        last[i] = table.workers[i].last
        parent[i] = table.infos[i].parent
        born[i] = table.infos[i].born
        name_[i] = table.workers[i].name
        idle_cpu[i] = table.infos[i].idle_cpu
    return columns
