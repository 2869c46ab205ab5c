# The part of a stream file that is in memory.  Included by _decode.pyx.

from libc.errno cimport errno
from posix.fcntl cimport O_CLOEXEC, O_RDONLY, open as open_file
from posix.unistd cimport close as close_file, pread


cdef class Window:
    """A window onto the file, which moves along a packet as its events are decoded."""

    cdef State s
    cdef Glass* glass
    cdef bytes path
    cdef const char* name  # the path's bytes
    cdef int fd            # -1: not open
    cdef int why           # it could not be opened
    cdef bint keep         # whether the file stays open between two runs
    cdef int64_t size, at  # of the file; where in it the packet begins
    cdef int64_t ahead     # bytes of the file at a time
    cdef int64_t window_at, window_size
    cdef int64_t packet[PACKET_COLUMNS]
    cdef int64_t content  # bits of the packet's content that are in the file

    def __cinit__(self):
        self.fd = -1

    def __dealloc__(self):
        self._shut()

    def close(self):
        """Close the file; running on opens it again."""
        self._shut()

    cdef void _shut(self) noexcept nogil:
        if self.fd >= 0:
            close_file(self.fd)
            self.fd = -1

    cdef int _look(self) noexcept nogil:
        """Have the file open and the window ours, whoever looked through it meanwhile."""
        if self.fd < 0:
            self.fd = open_file(self.name, O_RDONLY | O_CLOEXEC)
            if self.fd < 0:
                self.why = errno
                return NOT_OPEN
        if self.glass.owner != <void*>self:
            self.glass.owner = <void*>self
            self.window_at = self.window_size = 0
        return OK

    cdef int _fill(self, int64_t begin, int64_t size) noexcept nogil:
        """Have some bytes of the file in the window, and slack behind them."""
        cdef int64_t done = 0, got
        cdef uint8_t* window = self.glass.data
        cdef void* p
        if begin >= self.window_at and begin + size <= self.window_at + self.window_size:
            return OK
        if size < self.ahead:
            size = self.ahead
        if size > self.size - begin:
            size = self.size - begin
        if self.window_at <= begin < self.window_at + self.window_size:
            done = self.window_at + self.window_size - begin
            memmove(window, window + (begin - self.window_at), done)
        if size + SLACK > self.glass.room:
            p = realloc(window, size + SLACK)
            if p == NULL:
                return NO_MEMORY
            self.glass.data = window = <uint8_t*>p
            self.glass.room = size + SLACK
        while done < size:
            got = pread(self.fd, window + done, size - done, begin + done)
            if got <= 0:
                break
            done += got
        memset(window + done, 0, SLACK)
        self.window_at = begin
        self.window_size = done
        return OK if done == size else IO_ERROR

    cdef void _show(self) noexcept nogil:
        """Let the steps see what of the packet's content is in the window."""
        self.s.buf = self.glass.data + (self.at - self.window_at)
        self.s.limit = 8 * (self.window_at + self.window_size - self.at)
        if self.s.limit > self.content:
            self.s.limit = self.content

    cdef int _again(self) noexcept nogil:
        """Move a window that was another's meanwhile to the current position."""
        cdef int64_t begin = self.at + (self.s.pos >> 3)
        cdef int64_t size = self.at + self.packet[1] - begin
        if self._fill(begin, size if size < self.ahead else self.ahead) == NO_MEMORY:
            return NO_MEMORY
        self._show()
        return OK

    cdef int _more(self) noexcept nogil:
        """Move the window to the current position; all that there is, if it cannot grow."""
        cdef int64_t begin = self.at + (self.s.pos >> 3), limit = self.s.limit
        cdef int64_t size = 2 * (self.window_at + self.window_size - begin)
        if size < self.ahead:
            size = self.ahead
        if size > self.at + self.packet[1] - begin:
            size = self.at + self.packet[1] - begin
        if self._fill(begin, size) == NO_MEMORY:
            return NO_MEMORY
        self._show()
        if self.s.limit <= limit:
            self.content = self.s.limit
        return OK
