# Memory that the decoder grew, as numpy sees it.  Included by _decode.pyx.

cdef class Block:
    """Memory of the decoder, handed to numpy without a copy."""

    cdef int64_t* data
    cdef Py_ssize_t shape[1]
    cdef Py_ssize_t strides[1]

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        self.strides[0] = 8
        view.buf = self.data
        view.obj = self
        view.len = self.shape[0] * 8
        view.itemsize = 8
        view.readonly = 0
        view.ndim = 1
        view.format = "q"
        view.shape = self.shape
        view.strides = self.strides
        view.suboffsets = NULL
        view.internal = NULL


cdef object take(int64_t** data, int64_t count):
    """An array over memory that was grown by realloc; the pointer is given away."""
    cdef Block block = Block()
    cdef void* fitted
    if count == 0:
        return np.zeros(0, np.int64)
    fitted = realloc(data[0], count * 8)
    block.data = <int64_t*>fitted if fitted != NULL else data[0]
    data[0] = NULL
    block.shape[0] = count
    return np.asarray(block)


cdef extern from "sys/mman.h" nogil:
    int madvise(void*, size_t, int)
    int MADV_HUGEPAGE

cdef enum:
    LARGE = 4194304
    PAGE = 4096


cdef inline void* grow(void* data, int64_t size) noexcept nogil:
    """realloc; large blocks ask for huge pages, as touching small ones costs most."""
    cdef void* p = realloc(data, size)
    cdef size_t begin
    if p != NULL and size >= LARGE:
        begin = (<size_t>p + PAGE - 1) & ~<size_t>(PAGE - 1)
        madvise(<void*>begin, <size_t>p + size - begin, MADV_HUGEPAGE)
    return p


# The window of the last decoder: the next one finds its pages touched.
cdef uint8_t* spare = NULL
cdef int64_t spare_room = 0


cdef void borrow_window(uint8_t** window, int64_t* room):
    global spare, spare_room
    window[0], room[0] = spare, spare_room
    spare, spare_room = NULL, 0


cdef void keep_window(uint8_t* window, int64_t room):
    global spare, spare_room
    if spare == NULL and room <= LARGE:
        spare, spare_room = window, room
    else:
        free(window)
