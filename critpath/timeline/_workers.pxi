# Threads and processors: which worker a thread id is, which place a cpu.  Included by _replay.pyx.

cdef class Population:
    """The workers and processors seen so far."""

    cdef Worker* workers
    cdef Py_ssize_t worker_count, worker_capacity
    cdef int64_t* slots           # open addressing: worker of (host, tid), -1 free
    cdef Py_ssize_t slot_mask, slot_used
    cdef Processor* processors
    cdef Py_ssize_t processor_count
    cdef int64_t* processor_of    # [host * cpus + cpu]
    cdef Py_ssize_t cpus, hosts

    def __cinit__(self):
        self.workers = NULL
        self.slots = NULL
        self.processors = NULL
        self.processor_of = NULL

    def __dealloc__(self):
        free(self.workers)
        free(self.slots)
        free(self.processors)
        free(self.processor_of)

    cdef int populate(self, Py_ssize_t hosts, Py_ssize_t cpus) except -1:
        self.hosts = hosts
        self.cpus = cpus
        self.worker_capacity = 1024
        self.worker_count = 0
        self.workers = <Worker*>malloc(self.worker_capacity * sizeof(Worker))
        self.slot_mask = 4095
        self.slot_used = 0
        self.slots = <int64_t*>malloc((self.slot_mask + 1) * sizeof(int64_t))
        self.processor_count = 0
        self.processors = <Processor*>calloc(hosts * cpus, sizeof(Processor))
        self.processor_of = <int64_t*>malloc(hosts * cpus * sizeof(int64_t))
        if (self.workers == NULL or self.slots == NULL or self.processors == NULL
                or self.processor_of == NULL):
            raise MemoryError()
        memset(self.slots, 0xFF, (self.slot_mask + 1) * sizeof(int64_t))
        memset(self.processor_of, 0xFF, hosts * cpus * sizeof(int64_t))
        return 0

    cdef int64_t new_worker(self, int64_t host, int64_t tid, int64_t t) except -2 nogil:
        cdef Worker* more
        if self.worker_count == self.worker_capacity:
            more = <Worker*>realloc(self.workers, 2 * self.worker_capacity * sizeof(Worker))
            if more == NULL:
                with gil:
                    raise MemoryError()
            self.workers = more
            self.worker_capacity *= 2
        cdef Worker* w = &self.workers[self.worker_count]
        memset(w, 0, sizeof(Worker))
        w.tid = tid
        w.host = host
        w.pid = -1
        w.first = -1
        w.last = -1
        w.parent = -1
        w.born = -1
        w.idle_cpu = -1
        w.doing = NEVER
        w.cpu = -1
        w.since = t
        w.waker = -1
        w.woken = -1
        w.in_syscall = -1
        self.worker_count += 1
        return self.worker_count - 1

    cdef inline size_t hash(self, int64_t host, int64_t tid) noexcept nogil:
        # 2^64 over the golden ratio, in two halves: Cython has no unsigned 64-bit literal.
        cdef size_t golden = (<size_t>0x9E3779B9 << 32) | <size_t>0x7F4A7C15
        cdef size_t h = (<size_t>tid + (<size_t>host << 40)) * golden
        return h ^ (h >> 29)

    cdef int rehash(self) except -1 nogil:
        cdef Py_ssize_t mask = 2 * self.slot_mask + 1, i
        cdef size_t at
        cdef Worker* w
        cdef int64_t* slots = <int64_t*>malloc((mask + 1) * sizeof(int64_t))
        if slots == NULL:
            with gil:
                raise MemoryError()
        memset(slots, 0xFF, (mask + 1) * sizeof(int64_t))
        for i in range(self.slot_mask + 1):
            if self.slots[i] >= 0:
                w = &self.workers[self.slots[i]]
                at = self.hash(w.host, w.tid) & <size_t>mask
                while slots[at] >= 0:
                    at = (at + 1) & <size_t>mask
                slots[at] = self.slots[i]
        free(self.slots)
        self.slots = slots
        self.slot_mask = mask
        return 0

    cdef size_t slot(self, int64_t host, int64_t tid) noexcept nogil:
        cdef size_t at = self.hash(host, tid) & <size_t>self.slot_mask
        while self.slots[at] >= 0:
            if self.workers[self.slots[at]].tid == tid and self.workers[self.slots[at]].host == host:
                return at
            at = (at + 1) & <size_t>self.slot_mask
        return at

    cdef int64_t worker(self, int64_t host, int64_t tid, int64_t t) except -2 nogil:
        """Return the living worker of a tid, made now if it was never seen."""
        if 2 * self.slot_used > self.slot_mask:
            self.rehash()
        cdef size_t at = self.slot(host, tid)
        if self.slots[at] < 0:
            self.slots[at] = self.new_worker(host, tid, t)
            self.slot_used += 1
        return self.slots[at]

    cdef Processor* processor(self, int64_t host, int32_t cpu, int64_t t) except NULL nogil:
        cdef Py_ssize_t place = host * self.cpus + cpu
        cdef Processor* p
        cdef int64_t idle
        if self.processor_of[place] < 0:
            idle = self.new_worker(host, 0, t)
            self.workers[idle].idle_cpu = cpu
            self.workers[idle].pid = 0
            p = &self.processors[self.processor_count]
            p.host = host
            p.cpu = cpu
            p.current = -1
            p.since = t
            p.idle = idle
            self.processor_of[place] = self.processor_count
            self.processor_count += 1
        return &self.processors[self.processor_of[place]]

    cdef inline Worker* touch(self, int64_t index, int64_t t) noexcept nogil:
        cdef Worker* w = &self.workers[index]
        if w.first < 0:
            w.first = t
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
            host[i] = self.workers[i].host
            tid[i] = self.workers[i].tid
            pid[i] = self.workers[i].pid
            first[i] = self.workers[i].first
            last[i] = self.workers[i].last
            parent[i] = self.workers[i].parent
            born[i] = self.workers[i].born
            name_[i] = self.workers[i].name
            idle_cpu[i] = self.workers[i].idle_cpu
        return columns

    def processor_table(self):
        """Return (host, cpu) of every processor seen."""
        return tuple((self.processors[i].host, self.processors[i].cpu)
                     for i in range(self.processor_count))
