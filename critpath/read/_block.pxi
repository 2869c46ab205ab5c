# Memory that was grown here, as numpy sees it.  Included by _decode.pyx and _merge.pyx, of
# which each keeps its own spare blocks.

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


# Memory of decoders that are gone: the next one finds its pages touched, which costs
# more than what is done in them.  Used only with the GIL held.
cdef struct Spare:
    void* data
    int64_t size

cdef enum:
    SPARES = 4
    LARGEST_SPARE = 16777216

cdef Spare spares[SPARES]


cdef void* borrow(int64_t* size) noexcept:
    """The largest spare block and its size, or NULL and 0."""
    cdef int64_t i, best = -1
    cdef void* data
    for i in range(SPARES):
        if spares[i].data != NULL and (best < 0 or spares[i].size > spares[best].size):
            best = i
    size[0] = 0
    if best < 0:
        return NULL
    data, size[0] = spares[best].data, spares[best].size
    spares[best].data = NULL
    return data


cdef void give_back(void* data, int64_t size) noexcept:
    """Keep a block for the next decoder, or free it."""
    cdef int64_t i
    if data != NULL and size <= LARGEST_SPARE:
        for i in range(SPARES):
            if spares[i].data == NULL:
                spares[i].data, spares[i].size = data, size
                return
    free(data)


cdef class Block:
    """Memory of the decoder, handed to numpy without a copy."""

    cdef int64_t* data
    cdef int64_t room
    cdef Py_ssize_t shape[1]
    cdef Py_ssize_t strides[1]

    def __dealloc__(self):
        give_back(self.data, self.room * 8)

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


cdef object take(int64_t** data, int64_t count, int64_t room):
    """An array over memory that was grown by realloc; the pointer is given away."""
    cdef Block block = Block()
    cdef void* fitted
    if count == 0:
        give_back(data[0], room * 8)
        data[0] = NULL
        return np.zeros(0, np.int64)
    if room > 2 * count:
        fitted = realloc(data[0], count * 8)
        if fitted != NULL:
            data[0], room = <int64_t*>fitted, count
    block.data, block.room = data[0], room
    data[0] = NULL
    block.shape[0] = count
    return np.asarray(block)


cdef object fresh(int64_t count):
    """An array of that many 64-bit numbers, whatever stands in it."""
    cdef int64_t size = 0, needed = 8 * count if count else 8
    cdef Block block = Block()
    cdef void* data = borrow(&size)
    if size < needed or size > 4 * needed + LARGE:
        give_back(data, size)
        size = needed
        data = grow(NULL, size)
        if data == NULL:
            raise MemoryError
    block.data, block.room = <int64_t*>data, size // 8
    block.shape[0] = count
    return np.asarray(block)
