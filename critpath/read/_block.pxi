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
