# Merges the batches of many decoders into chunks in the order of time.  Included by _decode.pyx.

cdef enum:
    COPIED = 6  # values of an event that are copied without looking how many there are

# The rows of one decoder that wait, from the next one on.
cdef struct Lane:
    const int64_t* ts
    const int64_t* place
    const int64_t* values
    const int64_t* end  # of ts
    uint64_t upcoming   # key of the row behind the next one
    int64_t last  # time of the last row so far
    void* decoder
    int64_t ended  # whether these rows are its last

# What a merge writes to, and the tree it chooses the next row with: node i has the least
# key of nodes 2i and 2i + 1, leaf `leaves` + i is lane i.  A key is the time since `base`
# with the lane in its low bits, so that equal times stand in the order of lanes and the
# least key tells whose it is.  Times too far from the base all have the key `far` and
# their lane; where such a one is the least, the base is moved.  Every level costs a
# comparison that is no jump: which stream comes next cannot be predicted.
cdef struct Chunk:
    int64_t* ts
    int32_t* cpu
    int32_t* row_class
    int64_t* offset
    int64_t* values
    int64_t room
    int64_t value_room
    int64_t count
    int64_t value_count
    int64_t leaves
    int64_t base
    int64_t bits    # of a lane
    uint64_t far
    uint64_t* keys

cdef uint64_t THROUGH = ~<uint64_t>0  # key of a lane that has no more rows

cdef enum:
    IS_FULL = -1
    ARE_THROUGH = -2
    IS_FAR = -3


cdef inline uint64_t key_of(int64_t ts, int64_t lane, int64_t base, int64_t bits,
                            uint64_t far) noexcept nogil:
    cdef uint64_t since = <uint64_t>ts - <uint64_t>base
    return (since << bits if since < far >> bits else far) | <uint64_t>lane


cdef inline uint64_t play(uint64_t* keys, int64_t node, uint64_t key) noexcept nogil:
    """Give a leaf a new key; the least one of all."""
    cdef uint64_t other
    keys[node] = key
    while node > 1:
        other = keys[node ^ 1]
        node >>= 1
        key = other if other < key else key
        keys[node] = key
    return key


cdef int64_t merge_rows(Chunk* to, Lane* lanes, const int64_t* widths) noexcept nogil:
    """Merge until the chunk IS_FULL or a lane has no more rows: that lane.

    Or until the least key IS_FAR, or all ARE_THROUGH.
    """
    cdef int64_t out = to.count, room = to.room, at = to.value_count, width, place, i
    cdef int64_t value_room = to.value_room - COPIED, leaves = to.leaves, who, result
    cdef int64_t base = to.base, bits = to.bits
    cdef uint64_t far = to.far, key = to.keys[1]
    cdef int64_t* ts = to.ts
    cdef int32_t* cpu = to.cpu
    cdef int32_t* row_class = to.row_class
    cdef int64_t* offset = to.offset
    cdef int64_t* values = to.values
    cdef uint64_t* keys = to.keys
    cdef Lane* lane
    cdef const int64_t* next_ts
    while True:
        if out == room:
            result = IS_FULL
            break
        if key >= far:
            result = ARE_THROUGH if key == THROUGH else IS_FAR
            break
        who = key & (leaves - 1)
        lane = lanes + who
        next_ts = lane.ts
        place = lane.place[0]
        width = widths[<int32_t>place]
        if at + width > value_room:
            result = IS_FULL
            break
        key = lane.upcoming
        ts[out] = next_ts[0]
        row_class[out] = <int32_t>place
        cpu[out] = <int32_t>(place >> 32)
        offset[out] = at
        memcpy(values + at, lane.values, COPIED * 8)
        for i in range(COPIED, width):
            values[at + i] = lane.values[i]
        lane.values += width
        at += width
        out += 1
        next_ts += 1
        lane.ts = next_ts
        lane.place += 1
        if next_ts == lane.end:
            result = who
            break
        # Behind the end this is of no row, and never looked at.
        lane.upcoming = key_of(next_ts[1], who, base, bits, far)
        key = play(keys, leaves + who, key)
    to.count, to.value_count = out, at
    return result


# What a merge stops for, besides what a decoder does.
cdef enum:
    BACKWARDS = 104
    NARROW = 105  # an event may have more values than a chunk has room for

ctypedef int (*Refill)(void*, Lane*) noexcept nogil


cdef int refill(Decoder of, Lane* lane) noexcept nogil:
    """Decode a lane's next rows; as `Decoder._decode_batch`, or BACKWARDS."""
    cdef int result = of._decode_batch()
    if result != OK:
        return result
    lane.ts, lane.place, lane.values = of.ts, of.place, of.values
    lane.end, lane.ended = lane.ts + of.count, of.ended
    if of.count:
        if not ordered(lane.ts, of.count, lane.last):
            return BACKWARDS
        lane.last = of.ts[of.count - 1]
    return OK


cdef bint ordered(const int64_t* ts, int64_t n, int64_t last) noexcept nogil:
    """Whether times never run backwards, from one before them on."""
    cdef int64_t i, back = ts[0] < last
    for i in range(1, n):
        back |= ts[i] < ts[i - 1]
    return back == 0


# A lane's decoder is held by the merge's list; without the interpreter it is an address.
cdef Refill refill_from = <Refill><void*>refill


cdef class Merge:
    """Delivers the rows of several decoders as chunks in the order of time.

    Use: `add` the decoders in the order in which rows of the same time are to stand.
    `run` makes the next chunk and returns None; or it returns (decoder's position,
    stream, id) when that event class came up for the first time: answer as `Decoder`
    says and call it again.  `count` is 0 when there is nothing more.  A chunk is
    written over when as many more were made as there are `sets` of columns.
    """

    cdef Recording recording
    cdef list decoders
    cdef Lane* lanes
    cdef int64_t lane_count
    cdef Chunk chunk
    cdef int64_t waiting      # the lane to decode before anything else, or -1
    cdef bint begun
    cdef bint filled          # whether every lane has had rows
    cdef bint full            # whether the last chunk is complete
    cdef int64_t most         # rows of a chunk
    cdef readonly int64_t backwards  # the decoder whose time ran backwards, or -1
    cdef list sets
    cdef int64_t turn         # the columns that are written to

    def __init__(self, Recording recording, int64_t most, int64_t value_room, int64_t sets=1):
        self.recording = recording
        self.decoders = []
        self.most = most
        self.waiting = self.backwards = -1
        self.full = True
        self.sets = [columns_for(most, value_room) for _ in range(sets)]

    def __dealloc__(self):
        free(self.lanes)
        free(self.chunk.keys)

    cdef int _write_to(self, int64_t turn) except -1:
        cdef int64_t[::1] ts, offset, values
        cdef int32_t[::1] cpu, row_class
        ts, cpu, row_class, offset, values = self.sets[turn]
        self.chunk.ts, self.chunk.cpu, self.chunk.row_class = &ts[0], &cpu[0], &row_class[0]
        self.chunk.offset, self.chunk.values = &offset[0], &values[0]
        self.chunk.room, self.chunk.value_room = ts.shape[0], values.shape[0]
        self.turn = turn
        return 0

    def add(self, Decoder decoder):
        """Add a decoder that has a bound and a file."""
        self.decoders.append(decoder)

    @property
    def count(self):
        """Rows of the last chunk."""
        return self.chunk.count

    def columns(self):
        """The last chunk: timestamp, cpu, class, offset, values; not to be written to."""
        cdef int64_t n = self.chunk.count
        parts = [column[:n] for column in self.sets[self.turn][:4]]
        parts.append(self.sets[self.turn][4][:self.chunk.value_count])
        for part in parts:
            part.flags.writeable = False
        return tuple(parts)

    cdef int _begin_lanes(self) except -1:
        cdef int64_t i, n = len(self.decoders), leaves = 1
        while leaves < n:
            leaves *= 2
        self.lanes = <Lane*>calloc(leaves, sizeof(Lane))
        self.chunk.keys = <uint64_t*>malloc(2 * leaves * 8)
        if self.lanes == NULL or self.chunk.keys == NULL:
            raise MemoryError
        self.lane_count, self.chunk.leaves = n, leaves
        self.chunk.bits = leaves.bit_length() - 1
        self.chunk.far = (THROUGH >> 1) & -<uint64_t>leaves
        for i in range(n):
            self.lanes[i].last = INT64_MIN
            self.lanes[i].decoder = <void*>self.decoders[i]
        for i in range(2 * leaves):
            self.chunk.keys[i] = THROUGH
        self.begun = True
        self.filled = n == 0
        return 0

    def run(self):
        """Merge the next chunk; see the class."""
        cdef int result
        cdef Decoder decoder
        if not self.begun:
            self._begin_lanes()
            self.waiting = 0 if self.lane_count else -1
            self._write_to(0)
        elif self.full:
            self._write_to((self.turn + 1) % len(self.sets))
        if self.full:
            self.full = False
            self.chunk.count = self.chunk.value_count = 0
        while True:
            with nogil:
                result = self._merge_chunk()
            if result == NARROW:
                self.sets[self.turn] = columns_for(self.most, self.recording.widest + COPIED)
                self._write_to(self.turn)
                continue
            break
        if result == BACKWARDS:
            self.backwards = self.waiting
        elif result != OK:
            decoder = self.decoders[self.waiting]
            if result == NEED_CLASS:
                return self.waiting, decoder.stream_index, decoder.need_id
            decoder._raise(result)
        return None

    cdef int _merge_chunk(self) noexcept nogil:
        """Decode and merge until the chunk is full or everything through, or to a question.

        All without the interpreter: another thread may work on the chunk before.
        """
        cdef int64_t found
        cdef int result
        cdef Lane* lane
        while not self.full:
            if self.waiting >= 0:
                lane = &self.lanes[self.waiting]
                result = refill_from(lane.decoder, lane)
                if result != OK:
                    return result
                if self.filled:
                    self._renew_lane(self.waiting)
                    self.waiting = -1
                else:
                    self.waiting += 1
                    if self.waiting == self.lane_count:
                        self.filled = True
                        self.waiting = -1
                        self._move_base()
                continue
            if (self.chunk.count == 0
                    and self.chunk.value_room < self.recording.widest + COPIED):
                return NARROW
            found = merge_rows(&self.chunk, self.lanes, self.recording.widths)
            if found == IS_FULL or found == ARE_THROUGH:
                self.full = True
            elif found == IS_FAR:
                self._move_base()
            elif self.lanes[found].ended:
                self._renew_lane(found)
            else:
                self.waiting = found
        return OK

    cdef void _renew_lane(self, int64_t at) noexcept nogil:
        """Let a lane take part with the rows it has now."""
        cdef Chunk* of = &self.chunk
        cdef Lane* lane = &self.lanes[at]
        cdef uint64_t key = THROUGH
        if lane.ts != lane.end:
            key = key_of(lane.ts[0], at, of.base, of.bits, of.far)
            if lane.ts + 1 != lane.end:
                lane.upcoming = key_of(lane.ts[1], at, of.base, of.bits, of.far)
        play(of.keys, of.leaves + at, key)

    cdef void _move_base(self) noexcept nogil:
        """Count time from the next row of all on."""
        cdef int64_t i
        self.chunk.base = INT64_MAX
        for i in range(self.lane_count):
            if self.lanes[i].ts != self.lanes[i].end:
                self.chunk.base = min(self.chunk.base, self.lanes[i].ts[0])
        for i in range(self.lane_count):
            self._renew_lane(i)


cdef tuple columns_for(int64_t room, int64_t value_room):
    return (
        np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room, np.int32),
        np.empty(room, np.int64), np.empty(value_room, np.int64),
    )
