# The part of a stream file that is in memory.  Included by _decode.pyx.

from posix.unistd cimport pread


cdef class Window(Tables):
    """A window onto the file, which moves along a packet as its events are decoded."""

    cdef int fd
    cdef int64_t size, at  # of the file; where in it the packet begins
    cdef uint8_t* window
    cdef int64_t window_at, window_size, window_room
    cdef int64_t packet[PACKET_COLUMNS]
    cdef int64_t content  # bits of the packet's content that are in the file

    def __cinit__(self):
        self.window = <uint8_t*>borrow(&self.window_room)

    def __dealloc__(self):
        give_back(self.window, self.window_room)

    cdef int _fill(self, int64_t begin, int64_t size) noexcept nogil:
        """Have some bytes of the file in the window, and slack behind them."""
        cdef int64_t done = 0, got
        cdef void* p
        if begin >= self.window_at and begin + size <= self.window_at + self.window_size:
            return OK
        if size < WINDOW:
            size = WINDOW
        if size > self.size - begin:
            size = self.size - begin
        if self.window_at <= begin < self.window_at + self.window_size:
            done = self.window_at + self.window_size - begin
            memmove(self.window, self.window + (begin - self.window_at), done)
        if size + SLACK > self.window_room:
            p = realloc(self.window, size + SLACK)
            if p == NULL:
                return NO_MEMORY
            self.window = <uint8_t*>p
            self.window_room = size + SLACK
        while done < size:
            got = pread(self.fd, self.window + done, size - done, begin + done)
            if got <= 0:
                break
            done += got
        memset(self.window + done, 0, SLACK)
        self.window_at = begin
        self.window_size = done
        return OK if done == size else IO_ERROR

    cdef void _show(self) noexcept nogil:
        """Let the steps see what of the packet's content is in the window."""
        self.s.buf = self.window + (self.at - self.window_at)
        self.s.limit = 8 * (self.window_at + self.window_size - self.at)
        if self.s.limit > self.content:
            self.s.limit = self.content

    cdef int _more(self) noexcept nogil:
        """Move the window to the current position; all that there is, if it cannot grow."""
        cdef int64_t begin = self.at + (self.s.pos >> 3), limit = self.s.limit
        cdef int64_t size = 2 * (self.window_at + self.window_size - begin)
        if size < WINDOW:
            size = WINDOW
        if size > self.at + self.packet[1] - begin:
            size = self.at + self.packet[1] - begin
        if self._fill(begin, size) == NO_MEMORY:
            return NO_MEMORY
        self._show()
        if self.s.limit <= limit:
            self.content = self.s.limit
        return OK
