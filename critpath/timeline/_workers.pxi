# Threads and processors: which worker a thread id is, which place a cpu.  Included by _replay.pyx.

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


cdef class Population:
    """The workers and processors seen so far."""

    cdef Worker* workers
    cdef Person* persons
    cdef Py_ssize_t worker_count, worker_capacity
    cdef Tids tids                # living worker of (host, tid), plus 1
    cdef Processor* processors
    cdef Py_ssize_t processor_count, processor_capacity
    cdef int32_t* processor_of    # [host * CPUS + cpu], plus 1
    cdef Py_ssize_t hosts
    cdef int64_t base             # of the block: see _packed_rows.pxi

    def __cinit__(self):
        self.workers = NULL
        self.persons = NULL
        self.processors = NULL
        self.processor_of = NULL
        self.processor_count = 0
        self.base = 0
        memset(&self.tids, 0, sizeof(Tids))

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.processor_count):
            clear(&self.processors[i].stolen.bytes)
            clear(&self.processors[i].ran.bytes)
        free(self.workers)
        free(self.persons)
        free(self.processors)
        free(self.processor_of)
        tids_clear(&self.tids)

    cdef int populate(self, Py_ssize_t hosts) except -1:
        self.hosts = hosts
        self.worker_count = 0
        self.worker_capacity = 1024
        self.workers = <Worker*>grown(NULL, 0, self.worker_capacity, sizeof(Worker))
        self.persons = <Person*>grown(NULL, 0, self.worker_capacity, sizeof(Person))
        tids_init(&self.tids, hosts)
        self.processor_count = 0
        self.processor_capacity = 16
        self.processors = <Processor*>grown(NULL, 0, self.processor_capacity, sizeof(Processor))
        # Memory of calloc that is not touched costs nothing.
        self.processor_of = <int32_t*>calloc(hosts * CPUS, sizeof(int32_t))
        if self.processor_of == NULL:
            raise MemoryError()
        return 0

    cdef int32_t new_worker(self, int64_t host, int64_t tid, int64_t t) except -2 nogil:
        cdef Py_ssize_t n = self.worker_count
        if n == self.worker_capacity:
            self.workers = <Worker*>grown(self.workers, n, 2 * n, sizeof(Worker))
            self.persons = <Person*>grown(self.persons, n, 2 * n, sizeof(Person))
            self.worker_capacity = 2 * n
        cdef Worker* w = &self.workers[n]
        memset(w, 0, sizeof(Worker))
        w.last = -1
        w.doing = NEVER
        w.cpu = -1
        w.row_end = self.base
        w.since = t
        w.waker = -1
        w.woken = -1
        w.run_state = S_RUN
        w.syscall_state = -1
        cdef Person* person = &self.persons[n]
        person.tid = tid
        person.first = -1
        person.host = host
        person.pid = -1
        person.parent = -1
        person.born = -1
        person.idle_cpu = -1
        self.worker_count += 1
        return <int32_t>n

    cdef inline int32_t worker(self, int64_t host, int64_t tid, int64_t t) except -2 nogil:
        """Return the living worker of a tid, made now if it was never seen."""
        cdef int32_t* number = tid_number(&self.tids, host, tid)
        if not number[0]:
            number[0] = self.new_worker(host, tid, t) + 1
        return number[0] - 1

    cdef int new_processor(self, int64_t host, int32_t cpu, int64_t t) except -1 nogil:
        cdef Py_ssize_t n = self.processor_count
        cdef int32_t idle = self.new_worker(host, 0, t)
        cdef Processor* p
        self.persons[idle].idle_cpu = cpu
        self.persons[idle].pid = 0
        if n == self.processor_capacity:
            self.processors = <Processor*>grown(self.processors, n, 2 * n, sizeof(Processor))
            self.processor_capacity = 2 * n
        p = &self.processors[n]
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
        p.stolen.end = p.ran.end = self.base
        reserve(&p.stolen.bytes, ROW * SLICE + BEHIND, 1)
        reserve(&p.ran.bytes, ROW * SLICE + BEHIND, 1)
        self.processor_count += 1
        self.processor_of[host * CPUS + cpu] = <int32_t>self.processor_count
        return 0

    cdef inline Worker* touch(self, int64_t index, int64_t t) noexcept nogil:
        cdef Worker* w = &self.workers[index]
        if not w.known & SEEN:
            w.known |= SEEN
            self.persons[index].first = t
        w.last = t
        return w

    def worker_table(self):
        """Return the workers' columns as a dict of arrays."""
        cdef Py_ssize_t i, n = self.worker_count
        names = ("host", "tid", "pid", "first", "last", "parent", "born")
        columns = {name: np.empty(n, np.int64) for name in names}
        columns["name"] = np.empty(n, np.int32)
        columns["idle_cpu"] = np.empty(n, np.int32)
        cdef int64_t[::1] host = columns["host"], tid = columns["tid"], pid = columns["pid"]
        cdef int64_t[::1] first = columns["first"], last = columns["last"]
        cdef int64_t[::1] parent = columns["parent"], born = columns["born"]
        cdef int32_t[::1] name_ = columns["name"], idle_cpu = columns["idle_cpu"]
        for i in range(n):
            host[i] = self.persons[i].host
            tid[i] = self.persons[i].tid
            pid[i] = self.persons[i].pid
            first[i] = self.persons[i].first
            last[i] = self.workers[i].last
            parent[i] = self.persons[i].parent
            born[i] = self.persons[i].born
            name_[i] = self.workers[i].name
            idle_cpu[i] = self.persons[i].idle_cpu
        return columns

    def processor_table(self):
        """Return (host, cpu) of every processor seen."""
        return tuple((self.processors[i].host, self.processors[i].cpu)
                     for i in range(self.processor_count))
