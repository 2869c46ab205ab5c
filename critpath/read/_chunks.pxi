# Merges the batches of many decoders into chunks in the order of time.  Included by _decode.pyx.

cdef enum:
    COPIED = 6  # values of an event that are copied without looking how many there are

# The rows of one decoder that wait, from the next one on.
cdef struct Lane:
    const int64_t* ts
    const int64_t* place
    const int64_t* values
    const int64_t* end  # of ts
    int64_t last  # time of the last row so far
    void* decoder
    int64_t ended  # whether these rows are its last
    int64_t unused

# What a merge writes to, and the tree it chooses the next row with: node i has the least
# key of nodes 2i and 2i + 1, the left one's where they are equal, and its lane.  Leaf
# `leaves` + i is lane i.  Every level costs a comparison that is no jump: which stream
# comes next cannot be predicted.
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
    int64_t* keys
    int32_t* winners


cdef inline int64_t play(int64_t* keys, int32_t* winners, int64_t leaves, int64_t lane,
                         int64_t key) noexcept nogil:
    """Give a lane a new key; the lane that wins now."""
    cdef int64_t node = leaves + lane, other, who = lane, lost
    keys[node] = key
    while node > 1:
        other = keys[node ^ 1]
        # Against the left one, equal is lost.  No time is so low that 1 less is a great one.
        lost = other - (node & 1) < key
        who ^= (who ^ winners[node ^ 1]) & -lost
        key = other if other < key else key
        node >>= 1
        keys[node] = key
        winners[node] = <int32_t>who
    return who


cdef int64_t merge_rows(Chunk* to, Lane* lanes, const int64_t* widths) noexcept nogil:
    """Merge until the chunk is full (-1) or a lane has no more rows: that lane."""
    cdef int64_t out = to.count, room = to.room, at = to.value_count, width, place, i
    cdef int64_t value_room = to.value_room - COPIED, leaves = to.leaves
    cdef int64_t who = to.winners[1]
    cdef int64_t* ts = to.ts
    cdef int32_t* cpu = to.cpu
    cdef int32_t* row_class = to.row_class
    cdef int64_t* offset = to.offset
    cdef int64_t* values = to.values
    cdef int64_t* keys = to.keys
    cdef int32_t* winners = to.winners
    cdef Lane* lane
    cdef const int64_t* next_ts
    while True:
        if out == room:
            who = -1
            break
        lane = lanes + who
        next_ts = lane.ts
        if next_ts == lane.end:
            break
        place = lane.place[0]
        width = widths[<int32_t>place]
        if at + width > value_room:
            who = -1
            break
        ts[out] = next_ts[0]
        next_ts += 1
        lane.ts = next_ts
        lane.place += 1
        row_class[out] = <int32_t>place
        cpu[out] = <int32_t>(place >> 32)
        offset[out] = at
        memcpy(values + at, lane.values, COPIED * 8)
        for i in range(COPIED, width):
            values[at + i] = lane.values[i]
        lane.values += width
        at += width
        out += 1
        if next_ts == lane.end:
            break
        who = play(keys, winners, leaves, who, next_ts[0])
    to.count, to.value_count = out, at
    return who


# What a merge stops for, besides what a decoder does.
cdef enum:
    BACKWARDS = 104
    NARROW = 105  # an event may have more values than a chunk has room for

ctypedef int (*Refill)(void*, Lane*) noexcept nogil


cdef int refill(Decoder of, Lane* lane) noexcept nogil:
    """Decode a lane's next rows; as `Decoder._batch`, or BACKWARDS."""
    cdef int result = of._batch()
    if result != OK:
        return result
    lane.ts, lane.place, lane.values = of.ts, of.place, of.values
    lane.end, lane.ended = lane.ts + of.count, of.ended
    if of.count:
        if not ordered(lane.ts, of.count, lane.last):
            return BACKWARDS
        lane.last = lane.end[-1]
    return OK


cdef bint ordered(const int64_t* ts, int64_t n, int64_t last) noexcept nogil:
    """Whether times never run backwards, from one before them on."""
    cdef int64_t i, back = ts[0] < last
    for i in range(1, n):
        back |= ts[i] < ts[i - 1]
    return back == 0


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
        free(self.chunk.winners)

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

    cdef int _begin(self) except -1:
        cdef int64_t i, n = len(self.decoders), leaves = 1
        while leaves < n:
            leaves *= 2
        self.lanes = <Lane*>calloc(leaves, sizeof(Lane))
        self.chunk.keys = <int64_t*>malloc(2 * leaves * 8)
        self.chunk.winners = <int32_t*>malloc(2 * leaves * 4)
        if self.lanes == NULL or self.chunk.keys == NULL or self.chunk.winners == NULL:
            raise MemoryError
        self.lane_count, self.chunk.leaves = n, leaves
        for i in range(n):
            self.lanes[i].last = INT64_MIN
            self.lanes[i].decoder = <void*>self.decoders[i]
        for i in range(leaves):
            self.chunk.winners[leaves + i] = <int32_t>i
        for i in range(leaves, 2 * leaves):
            self.chunk.keys[i] = INT64_MAX
        for i in range(leaves - 1, 0, -1):
            self.chunk.keys[i] = INT64_MAX
            self.chunk.winners[i] = self.chunk.winners[2 * i]
        self.begun = True
        return 0

    def run(self):
        """Merge the next chunk; see the class."""
        cdef int result
        cdef Decoder decoder
        if not self.begun:
            self._begin()
            self.waiting = 0 if self.lane_count else -1
            self._write_to(0)
        elif self.full:
            self._write_to((self.turn + 1) % len(self.sets))
        if self.full:
            self.full = False
            self.chunk.count = self.chunk.value_count = 0
        while True:
            with nogil:
                result = self._chunk()
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

    cdef int _chunk(self) noexcept nogil:
        """Decode and merge until the chunk is full or everything through, or to a question.

        All without the interpreter: another thread may work on the chunk before.
        """
        cdef int64_t i
        cdef int result
        cdef Lane* lane
        while self.waiting >= 0 or not self.full:
            if self.waiting >= 0:
                lane = &self.lanes[self.waiting]
                result = (<Refill>refill)(lane.decoder, lane)
                if result != OK:
                    return result
                self._play(self.waiting, lane.ts[0] if lane.ts != lane.end else INT64_MAX)
                # At first every lane has to have rows.
                i = self.waiting + 1
                self.waiting = -1
                if i < self.lane_count and self.lanes[i].ts == NULL:
                    self.waiting = i
                continue
            if self.lane_count == 0:
                break
            if (self.chunk.count == 0
                    and self.chunk.value_room < self.recording.widest + COPIED):
                return NARROW
            i = merge_rows(&self.chunk, self.lanes, self.recording.widths)
            if i < 0:
                self.full = True
            elif i < self.lane_count and not self.lanes[i].ended:
                self.waiting = i
            else:
                i = self._next_at_the_end(i)
                if i < 0:
                    break
        self.full = True
        return OK

    cdef int64_t _next_at_the_end(self, int64_t lane) noexcept nogil:
        """Put a lane that is through out of the game; -1 if it was the last."""
        cdef int64_t i
        if lane < self.lane_count and self.chunk.keys[self.chunk.leaves + lane] != INT64_MAX:
            self._play(lane, INT64_MAX)
        if self.chunk.keys[1] != INT64_MAX:
            return lane
        # Rows of the last moment there is look like lanes that are through.
        for i in range(self.lane_count):
            if self.lanes[i].ts != self.lanes[i].end:
                self.chunk.winners[1] = <int32_t>i
                return i
            if not self.lanes[i].ended:
                self.waiting = i
                return i
        return -1

    cdef void _play(self, int64_t lane, int64_t key) noexcept nogil:
        play(self.chunk.keys, self.chunk.winners, self.chunk.leaves, lane, key)


cdef tuple columns_for(int64_t room, int64_t value_room):
    return (
        np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room, np.int32),
        np.empty(room, np.int64), np.empty(value_room, np.int64),
    )
