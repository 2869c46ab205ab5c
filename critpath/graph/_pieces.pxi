# Pieces that segments of paths are cut into.  Included by _processors.pyx.

cdef enum:
    FIRST_PIECES = 16

ctypedef struct Piece:
    int64_t begin
    int64_t end
    int32_t worker
    int32_t detail        # of a WAIT_CPU: the worker that ran, or a code of _shares.pxi
    int32_t cpu
    uint8_t state

# How long a worker held a processor within a segment, and since when.
ctypedef struct Share:
    int64_t time
    int64_t since
    int32_t worker

ctypedef struct Path:
    Piece* pieces         # latest first
    Share* shares         # of the one segment that spans the last cut
    int64_t count
    int64_t capacity
    int64_t next          # segment, latest first
    int64_t top           # up to where that is not accounted for
    int64_t idle
    int64_t share_count


cdef class Pieces:
    """Segments of some paths, and the pieces found of each path so far."""

    cdef readonly int64_t pieces
    cdef public int64_t most    # of these: beyond, accounting ends at once; 0 for no limit
    cdef const int64_t[::1] start, begin, end, host
    cdef const int32_t[::1] worker, detail
    cdef int32_t[::1] cpu
    cdef const uint8_t[::1] state
    cdef Path* paths
    cdef Py_ssize_t total

    def __cinit__(self):
        self.paths = NULL
        self.total = 0

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.paths != NULL:
            for i in range(self.total):
                free(self.paths[i].pieces)
                free(self.paths[i].shares)
        free(self.paths)

    cdef int begin_paths(self, Py_ssize_t total) except -1:
        self.paths = <Path*>calloc(total + 1, sizeof(Path))
        if self.paths == NULL:
            raise MemoryError()
        self.total = total
        return 0

    cdef int emit(self, Path* path, int64_t segment, int64_t begin, int64_t end, uint8_t state,
                  int32_t detail) except -1 nogil:
        """Add a piece before those there are, or to the first if they are of one kind."""
        cdef Piece* piece
        if path.count:
            piece = &path.pieces[path.count - 1]
            if (piece.state == state and piece.detail == detail
                    and piece.worker == self.worker[segment] and piece.cpu == self.cpu[segment]):
                piece.begin = begin
                return 0
        path.pieces = <Piece*>with_room(path.pieces, path.count, &path.capacity, FIRST_PIECES,
                                        sizeof(Piece))
        piece = &path.pieces[path.count]
        piece.begin = begin
        piece.end = end
        piece.worker = self.worker[segment]
        piece.state = state
        piece.detail = detail
        piece.cpu = self.cpu[segment]
        path.count += 1
        self.pieces += 1
        return 0

    def take(self, const int32_t[::1] codes, const int64_t[::1] tid, const int32_t[::1] name):
        """Return and forget the pieces.

        Parameters
        ----------
        codes : int32 [workers + 2]
            Detail of a wait for a cpu, by who ran: idle, not known, then the workers.
        tid : int64 [workers]
        name : int32 [workers]

        Returns
        -------
        list of arrays
            start, begin, end, state, detail, comm, tid, host, cpu.
        """
        cdef Py_ssize_t i, j, at, n
        cdef Path* path
        cdef Piece* piece
        starts = np.zeros(self.total + 1, np.int64)
        cdef int64_t[::1] start = starts
        for i in range(self.total):
            start[i + 1] = start[i] + self.paths[i].count
        n = start[self.total]
        out = [starts, np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.uint8),
               np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int64),
               np.empty(n, np.int64), np.empty(n, np.int32)]
        cdef int64_t[::1] begin = out[1], end = out[2], tids = out[6], hosts = out[7]
        cdef uint8_t[::1] state = out[3]
        cdef int32_t[::1] detail = out[4], comm = out[5], cpu = out[8]
        with nogil:
            for i in range(self.total):
                path = &self.paths[i]
                at = start[i + 1]
                for j in range(path.count):
                    piece = &path.pieces[j]
                    at -= 1
                    begin[at] = piece.begin
                    end[at] = piece.end
                    state[at] = piece.state
                    detail[at] = piece.detail
                    if piece.state == S_WAIT_CPU:
                        detail[at] = codes[piece.detail + 2]
                    cpu[at] = piece.cpu
                    if piece.worker >= 0:
                        comm[at] = name[piece.worker]
                        tids[at] = tid[piece.worker]
                        hosts[at] = self.host[piece.worker]
                    else:
                        comm[at] = 0
                        tids[at] = -1
                        hosts[at] = 0
                free(path.pieces)
                path.pieces = NULL
                path.count = path.capacity = 0
        return out
