# How far walks have got: segments found, workers to return to.  Included by _walk.pyx.

cdef enum:
    FIRST_SEGMENTS = 16
    FIRST_FRAMES = 4

ctypedef struct Link:
    int64_t time
    int64_t sent
    int64_t source
    int32_t kind

ctypedef struct Segment:
    int64_t begin
    int64_t end
    int32_t worker
    int32_t detail
    int32_t cpu
    uint8_t state

ctypedef struct Frame:
    int64_t worker
    int64_t lo
    int64_t t
    int64_t at            # where the walk last left this worker for another
    # The last incoming link that was passed by while the worker was not waiting, and the
    # row it arrived in: by value, for the row may be in a block that is gone.
    Link bypassed
    int64_t bypassed_top  # where the row's own segment ended
    int64_t bypassed_count
    int32_t bypassed_detail
    int32_t bypassed_cpu
    uint8_t bypassed_state
    uint8_t has_bypassed
    uint8_t rewound

ctypedef struct Course:
    Segment* segments
    Frame* frames
    int64_t count
    int64_t capacity
    int64_t frame_capacity
    int32_t depth
    int32_t next          # the next that waits for the same block, -1 none


cdef class Courses:
    """A course each for some walks, and what they have found in the end."""

    cdef readonly int64_t emitted   # segments
    cdef public int64_t most        # of these: beyond, walks end at once; 0 for no limit
    cdef Course* courses
    cdef Py_ssize_t total

    def __cinit__(self):
        self.courses = NULL
        self.total = 0

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.courses != NULL:
            for i in range(self.total):
                free(self.courses[i].segments)
                free(self.courses[i].frames)
        free(self.courses)

    cdef int begin_courses(self, Py_ssize_t total) except -1:
        self.courses = <Course*>calloc(total + 1, sizeof(Course))
        if self.courses == NULL:
            raise MemoryError()
        self.total = total
        return 0

    cdef int emit(self, Course* c, int64_t begin, int64_t end, int64_t worker, uint8_t state,
                  int32_t detail, int32_t cpu) except -1 nogil:
        cdef Segment* s
        if end <= begin:
            return 0
        c.segments = <Segment*>with_room(c.segments, c.count, &c.capacity, FIRST_SEGMENTS,
                                         sizeof(Segment))
        s = &c.segments[c.count]
        s.begin = begin
        s.end = end
        s.worker = <int32_t>worker
        s.state = state
        s.detail = detail
        s.cpu = cpu
        c.count += 1
        self.emitted += 1
        return 0

    cdef int push(self, Course* c, int64_t worker, int64_t lo, int64_t t) except -1 nogil:
        cdef Frame* f
        c.frames = <Frame*>with_room(c.frames, c.depth, &c.frame_capacity, FIRST_FRAMES,
                                     sizeof(Frame))
        f = &c.frames[c.depth]
        f.worker = worker
        f.lo = lo
        f.t = t
        f.at = t + 1
        f.has_bypassed = 0
        f.rewound = 0
        c.depth += 1
        return 0

    def take(self):
        """Return and forget the segments: start, begin, end, worker, state, detail, cpu."""
        cdef Py_ssize_t i, j, at
        cdef Course* c
        cdef Segment* s
        starts = np.zeros(self.total + 1, np.int64)
        cdef int64_t[::1] start = starts
        for i in range(self.total):
            start[i + 1] = start[i] + self.courses[i].count
        cdef Py_ssize_t n = start[self.total]
        out = [starts, np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int32),
               np.empty(n, np.uint8), np.empty(n, np.int32), np.empty(n, np.int32)]
        cdef int64_t[::1] begin = out[1], end = out[2]
        cdef int32_t[::1] worker = out[3], detail = out[5], cpu = out[6]
        cdef uint8_t[::1] state = out[4]
        with nogil:
            for i in range(self.total):
                c = &self.courses[i]
                # The walk went backward in time.
                at = start[i + 1]
                for j in range(c.count):
                    s = &c.segments[j]
                    at -= 1
                    begin[at] = s.begin
                    end[at] = s.end
                    worker[at] = s.worker
                    state[at] = s.state
                    detail[at] = s.detail
                    cpu[at] = s.cpu
                free(c.segments)
                c.segments = NULL
                c.count = c.capacity = 0
        return out
